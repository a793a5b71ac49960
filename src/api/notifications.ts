// Notification endpoints: webhooks, their deliveries, and the events of a project.

import { eventShape, notifiableTypes } from '../contract/events.ts';
import {
  createdNotificationShape,
  deliveryShape,
  destroyedShape,
  notificationShape,
  presentCreatedNotification,
  presentDelivery,
  presentNotification,
} from '../contract/records.ts';
import type { Caller } from '../domain/access.ts';
import { checkWebhookUrl } from '../domain/webhook/address.ts';
import { newSigningSecret } from '../domain/webhook/signature.ts';
import { deleteNotification } from '../store/cleanup/purge.ts';
import { listEvents } from '../store/events.ts';
import {
  createNotification,
  type Delivery,
  enableNotification,
  listDeliveries,
  listNotifications,
  pingNotification,
  redeliver,
} from '../store/notifications.ts';
import type { Project } from '../store/projects.ts';
import { endpoint, listing } from './endpoint.ts';
import { cursor, PAGE_LIMIT, pageFields, required } from './fields.ts';
import { nextLink, readCallback, respondText } from './http/respond.ts';

const present = (delivery: Delivery, { project, caller }: { project: Project; caller: Caller }) =>
  presentDelivery(delivery, project.ownerId === caller.accountId ? 'owner' : 'collaborator');

export const notifications = {
  list: endpoint({
    method: 'GET',
    path: '/projects/:project_id/notifications',
    summary: "Lists the project's notifications",
    access: 'sees',
    scope: 'notifications',
    response: { list: notificationShape },
    handle: ({ db, project, page }) =>
      listing(page, listNotifications(db, project.id, page), presentNotification),
  }),
  create: endpoint({
    method: 'POST',
    path: '/projects/:project_id/notifications',
    summary: 'Creates a notification, which calls a webhook when an event happens',
    access: 'sees',
    scope: 'notifications',
    fields: {
      notifiable_type: required({
        doc: 'What it reports: builds (with build requests and deploys) or dependencies.',
        oneOf: notifiableTypes,
      }),
      name: required({ doc: 'The type of notification.', oneOf: ['webhook'] }),
      'options[url]': required({
        doc: 'Where the POST is sent: http or https. Loopback, link-local and multicast addresses are `invalid_format` unless the setting WEBHOOK_ALLOW lists them.',
        example: 'https://chat.example.org/hooks/ci',
        maxBytes: 2048,
      }),
    },
    checkTogether: ({ 'options[url]': url }, { webhookAllow }) =>
      url !== undefined && checkWebhookUrl(url, webhookAllow) ? { 'options[url]': ['invalid_format'] } : {},
    response: { record: createdNotificationShape, status: 201 },
    handle: ({ db, project, values }) => {
      const signingSecret = newSigningSecret();
      const notification = createNotification(db, {
        projectId: project.id,
        name: values.name,
        notifiableType: values.notifiable_type,
        url: values['options[url]'],
        signingSecret,
      });
      return presentCreatedNotification(notification, signingSecret);
    },
  }),
  delete: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/notifications/:notification_id',
    summary: 'Deletes a notification; nothing more is sent to its URL',
    access: 'users',
    scope: 'notifications',
    response: { record: destroyedShape },
    handle: ({ db, notification }) => {
      deleteNotification(db, notification.id);
      return { destroyed: true };
    },
  }),
  enable: endpoint({
    method: 'POST',
    path: '/projects/:project_id/notifications/:notification_id/enable',
    summary: 'Enables a notification that was disabled because its receiver responded 410',
    access: 'sees',
    scope: 'notifications',
    response: { record: notificationShape },
    handle: ({ db, notification }) => presentNotification(enableNotification(db, notification.id)),
  }),
  test: endpoint({
    method: 'POST',
    path: '/projects/:project_id/notifications/:notification_id/test',
    summary: 'Sends a `ping` event to this receiver',
    access: 'sees',
    scope: 'notifications',
    response: { record: deliveryShape, status: 201 },
    handle: call => present(pingNotification(call.db, call.notification), call),
  }),
  listDeliveries: endpoint({
    method: 'GET',
    path: '/projects/:project_id/notifications/:notification_id/deliveries',
    summary:
      'Lists what was sent or waits to be sent, with the status and time of each response. Only the owner sees the text of responses',
    access: 'sees',
    scope: 'notifications',
    response: { list: deliveryShape },
    handle: call =>
      listing(call.page, listDeliveries(call.db, call.notification.id, call.page), delivery =>
        present(delivery, call),
      ),
  }),
  redeliver: endpoint({
    method: 'POST',
    path: '/projects/:project_id/notifications/:notification_id/deliveries/:delivery_id/redeliver',
    summary: 'Sends a delivery again, with the same id and body',
    access: 'sees',
    scope: 'notifications',
    response: { record: deliveryShape },
    handle: call => present(redeliver(call.db, call.delivery), call),
  }),
  listEvents: endpoint({
    method: 'GET',
    path: '/projects/:project_id/events',
    summary:
      "Lists events of the project's build requests, builds, dependencies and deploys, oldest first, until they are purged",
    access: 'sees',
    scope: 'commits',
    query: {
      after: cursor('Only events after this one.'),
      limit: pageFields.limit,
    },
    response: { list: eventShape, paged: false },
    handle: ({ db, baseUrl, project, query, request, url }) => {
      const limit = query.limit ?? PAGE_LIMIT.defaultValue;
      const events = listEvents(db, project.id, query.after ?? 0n, limit + 1);
      const shown = events.slice(0, limit);
      // Bodies are stored as JSON text.
      const json = `{"response":[${shown.map(event => event.body).join(',')}]}`;
      const last = events.length > limit ? shown.at(-1) : undefined;
      return respondText(json, 200, readCallback(request.method, url), {
        ...(last && { link: nextLink(baseUrl, url, 'after', last.id) }),
      });
    },
  }),
};

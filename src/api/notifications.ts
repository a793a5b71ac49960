// Notification endpoints: webhooks, their deliveries, and the events of a project.

import { eventShape, notifiableTypes } from '../contract/events.ts';
import {
  createdNotificationShape,
  deliveryShape,
  notificationNames,
  notificationShape,
  presentCreatedNotification,
  presentDelivery,
  presentNotification,
} from '../contract/records/notification.ts';
import { destroyedShape } from '../contract/wire.ts';
import type { Caller } from '../domain/access.ts';
import {
  checkForgeRepository,
  contextChoices,
  defaultForgeOptions,
  type Forge,
  forges,
  type StatusOptions,
} from '../domain/commit-status.ts';
import type { Errors } from '../domain/refusal.ts';
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
  type Notification,
  pingNotification,
  redeliver,
  updateNotification,
} from '../store/notifications.ts';
import type { Project } from '../store/projects.ts';
import { endpoint, listing, type Services } from './endpoint.ts';
import { cursor, optional, PAGE_LIMIT, pageFields, required, type Values } from './fields.ts';
import { nextLink, readCallback, respondLongText } from './http/respond.ts';

const present = (delivery: Delivery, { project, caller }: { project: Project; caller: Caller }) =>
  presentDelivery(delivery, project.ownerId === caller.accountId ? 'owner' : 'collaborator');

const isToken = /^[!-~]+$/;

const optionFields = {
  'options[url]': optional({
    doc: "Required for a webhook: where the POST is sent, http or https. For commit statuses the base of the forge's API; the default follows from the host of the repository. Loopback, link-local and multicast addresses are `invalid_format` unless the setting WEBHOOK_ALLOW lists them.",
    example: 'https://chat.example.org/hooks/ci',
    inExample: true,
    maxBytes: 2048,
  }),
  'options[forge]': optional({ doc: 'Required for commit statuses: where they are sent.', oneOf: forges }),
  'options[token]': optional({
    doc: 'Required for commit statuses: a token of the forge that may set them. It is stored encrypted and never shown.',
    maxBytes: 1024,
    check: token => (isToken.test(token) ? undefined : 'invalid_format'),
  }),
  'options[repository]': optional({
    doc: 'For commit statuses: the repository, as the forge names it. Default: the path of `repository_url`.',
    maxBytes: 1024,
  }),
  'options[contexts]': optional({
    doc: 'For commit statuses: `rollup` reports the context `assay` for the whole request, `suites` one context for each suite, `both` (the default) all of them.',
    oneOf: contextChoices,
  }),
};

type Options = Partial<Values<typeof optionFields>>;

function checkWebhook(
  { 'options[url]': url }: Options,
  { webhookAllow }: Pick<Services, 'webhookAllow'>,
  errors: Readonly<Errors>,
): Errors {
  if (errors['options[url]']) return {};
  if (!url) return { 'options[url]': ['is_blank'] };
  return checkWebhookUrl(url, webhookAllow) ? { 'options[url]': ['invalid_format'] } : {};
}

function checkStatusOptions(
  values: Options,
  { webhookAllow, project }: Pick<Services, 'webhookAllow'> & { project: Project },
): Errors {
  const forge = values['options[forge]'];
  if (!forge) return {};
  const { url, statusOptions } = statusOptionsOf(values, project.repositoryUrl);
  return {
    ...((checkWebhookUrl(url, webhookAllow) || /[?#]/.test(url)) && { 'options[url]': ['invalid_format'] }),
    ...(checkForgeRepository(forge, statusOptions.repository) && {
      'options[repository]': [values['options[repository]'] ? 'invalid_format' : 'is_blank'],
    }),
  };
}

/** The defaults are stored, so that a token stays with its host when the project's repository moves. */
function statusOptionsOf(
  values: Options,
  repositoryUrl: string,
): { url: string; statusOptions: StatusOptions } {
  const forge = values['options[forge]'] as Forge;
  const defaults = defaultForgeOptions(forge, repositoryUrl);
  return {
    url: values['options[url]'] || defaults.url,
    statusOptions: {
      forge,
      repository: values['options[repository]'] || defaults.repository,
      contexts: values['options[contexts]'] ?? 'both',
    },
  };
}

/** Another forge has another API, so the URL of the old one does not stay. */
function mergeOptions({ url, statusOptions }: Notification, values: Options): Options {
  const forge = values['options[forge]'] ?? statusOptions?.forge;
  return {
    'options[url]': values['options[url]'] ?? (forge === statusOptions?.forge ? url : ''),
    'options[forge]': forge,
    'options[repository]': values['options[repository]'] ?? statusOptions?.repository,
    'options[contexts]': values['options[contexts]'] ?? statusOptions?.contexts,
  };
}

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
    summary: 'Creates a notification: a webhook for events, or commit statuses on a forge',
    access: 'sees',
    scope: 'notifications',
    fields: {
      notifiable_type: required({
        doc: 'What it reports: builds (with build requests and deploys) or dependencies. Commit statuses report builds.',
        oneOf: notifiableTypes,
      }),
      name: required({ doc: 'The type of notification.', oneOf: notificationNames }),
      ...optionFields,
    },
    checkTogether: (values, call, errors) => {
      if (values.name !== 'commit_status') return checkWebhook(values, call, errors);
      const missing = (['options[forge]', 'options[token]'] as const).filter(
        name => !values[name] && !errors[name],
      );
      return {
        ...(values.notifiable_type === 'dependency' && { notifiable_type: ['invalid_format'] }),
        ...Object.fromEntries(missing.map(name => [name, ['is_blank']])),
        ...checkStatusOptions(values, call),
      } as Errors;
    },
    response: { record: createdNotificationShape, status: 201 },
    handle: ({ db, project, values }) => {
      const isWebhook = values.name === 'webhook';
      const secret = isWebhook ? newSigningSecret() : (values['options[token]'] as string);
      const options = isWebhook ? undefined : statusOptionsOf(values, project.repositoryUrl);
      const notification = createNotification(db, {
        projectId: project.id,
        name: values.name,
        notifiableType: values.notifiable_type,
        url: options?.url ?? (values['options[url]'] as string),
        signingSecret: secret,
        ...(options && { statusOptions: options.statusOptions }),
      });
      return presentCreatedNotification(notification, secret);
    },
  }),
  update: endpoint({
    method: 'PUT',
    path: '/projects/:project_id/notifications/:notification_id',
    summary:
      'Updates the options that are sent. Another forge or another host needs its own token. Another receiver or token enables the notification',
    access: 'sees',
    scope: 'notifications',
    fields: optionFields,
    checkTogether: (values, call, errors) => {
      const { notification } = call;
      if (!notification.statusOptions)
        return checkWebhook({ 'options[url]': notification.url, ...values }, call, errors);
      const merged = mergeOptions(notification, values);
      const { url } = statusOptionsOf(merged, call.project.repositoryUrl);
      // A token is never sent to a host that it was not entered for.
      const isElsewhere =
        merged['options[forge]'] !== notification.statusOptions.forge ||
        URL.parse(url)?.origin !== URL.parse(notification.url)?.origin;
      return {
        ...(isElsewhere && !values['options[token]'] && { 'options[token]': ['is_blank'] }),
        ...checkStatusOptions(merged, call),
      };
    },
    response: { record: notificationShape },
    handle: ({ db, notification, project, values }) => {
      const token = values['options[token]'];
      const changes = notification.statusOptions
        ? {
            ...statusOptionsOf(mergeOptions(notification, values), project.repositoryUrl),
            ...(token && { signingSecret: token }),
          }
        : { url: values['options[url]'] ?? notification.url };
      return presentNotification(updateNotification(db, notification, changes));
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
    summary:
      'Enables a notification that a response disabled. Commit statuses that were not sent are sent now',
    access: 'sees',
    scope: 'notifications',
    response: { record: notificationShape },
    handle: ({ db, notification }) => presentNotification(enableNotification(db, notification.id)),
  }),
  test: endpoint({
    method: 'POST',
    path: '/projects/:project_id/notifications/:notification_id/test',
    summary: 'Sends a `ping` event to this receiver, or the newest commit status',
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
    summary:
      'Sends a delivery again, with the same id and body. Of a commit status, the newest of its context is sent',
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
      return respondLongText(request, json, 200, readCallback(request.method, url), {
        ...(last && { link: nextLink(baseUrl, url, 'after', last.id) }),
      });
    },
  }),
};

// The notifications of a project (webhooks and commit statuses), and the deliveries of each with their responses.

import { html } from 'hono/html';
import { notifications } from '../../api/notifications.ts';
import {
  type presentCreatedNotification,
  type presentDelivery,
  presentNotification,
} from '../../contract/records/notification.ts';
import { forgeLabel } from '../../domain/commit-status.ts';
import {
  copyText,
  emptyState,
  linkButton,
  olderLink,
  propertyList,
  relativeTime,
  table,
} from '../frame/components.ts';
import { actionButton, formTo, renderForm, selectField, submitButton, textField } from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, performPage, type View, type Visit } from '../frame/visit.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';
import { contextLabels, guessForge, renderStatusForm } from './status-form.ts';

const PATH = '/ui/projects/:project_id/notifications';
/** No event reports a delivery, so the page polls: often while one is due, rarely while it waits for its next attempt. */
const POLL_MS = { soonest: 2_000, latest: 60_000 };

type NotificationRecord = ReturnType<typeof presentNotification>;
type CreatedRecord = ReturnType<typeof presentCreatedNotification>;
type DeliveryRecord = ReturnType<typeof presentDelivery>;

export const notificationPages: Route[] = [
  page(PATH, showNotifications),
  page(`${PATH}/new`, showNewNotification),
  action(`${PATH}/new`, notifications.create, {
    showForm: showNewNotification,
    prepare: sent => sent.set('name', 'webhook'),
    done: showSecret,
  }),
  page(`${PATH}/new-statuses`, showNewStatuses),
  action(`${PATH}/new-statuses`, notifications.create, {
    showForm: showNewStatuses,
    prepare: sent => sent.set('name', 'commit_status').set('notifiable_type', 'build'),
    done: (visit, created) => ({
      to: projectPath(visit, `/notifications/${created.id_str}`),
      message: 'Commit statuses are reported from the next build on.',
    }),
  }),
  page(`${PATH}/:notification_id`, showDeliveries),
  page(`${PATH}/:notification_id/edit`, showEdit),
  action(`${PATH}/:notification_id/edit`, notifications.update, {
    showForm: showEdit,
    done: visit => ({ to: notificationPath(visit), message: 'Notification changed.' }),
  }),
  action(`${PATH}/:notification_id/test`, notifications.test, {
    showForm: showDeliveries,
    done: visit => ({ to: notificationPath(visit), message: 'Sending a test.' }),
  }),
  action(`${PATH}/:notification_id/enable`, notifications.enable, {
    showForm: showDeliveries,
    done: visit => ({
      to: notificationPath(visit),
      message: 'Notification enabled. Send a test to see whether the receiver responds.',
    }),
  }),
  action(`${PATH}/:notification_id/delete`, notifications.delete, {
    showForm: showNotifications,
    done: visit => ({
      to: projectPath(visit, '/notifications'),
      message: 'Notification deleted.',
    }),
  }),
  action(`${PATH}/:notification_id/deliveries/:delivery_id/redeliver`, notifications.redeliver, {
    showForm: showDeliveries,
    done: visit => ({ to: notificationPath(visit), message: 'Sending it again.' }),
  }),
];

type NotificationVisit = Visit<'project' | 'notification'>;

const notificationPath = (visit: NotificationVisit) =>
  projectPath(visit, `/notifications/${visit.found.notification.id}`);

const typeLabels: Record<string, string> = {
  build: 'builds, build requests and deploys',
  dependency: 'dependencies that the suites use',
};

async function showNotifications(visit: ProjectVisit): Promise<View> {
  const { items, next } = await performPage(visit, notifications.list, 100);
  const create = html`<div class="row">${linkButton(projectPath(visit, '/notifications/new'), 'New webhook', 'primary')}${linkButton(projectPath(visit, '/notifications/new-statuses'), 'New commit statuses')}</div>`;
  return projectView(visit, {
    tab: 'notifications',
    body:
      items.length === 0
        ? emptyState({
            title: 'No notifications yet',
            text: 'A webhook is called when the state of a build or a dependency changes, for example to post to a chat. Commit statuses show the result of each build next to the commit on GitHub, Gitea, GitLab or Bitbucket.',
            action: create,
          })
        : html`<div class="section-head"><h2>Notifications</h2>${create}</div>
${table({
  caption: 'Notifications',
  columns: ['Receiver', 'Reports', 'Actions'],
  rows: items.map(item => ({ cells: notificationCells(visit, item) })),
})}${olderLink(visit.url, next, 'Older notifications')}`,
  });
}

function notificationCells(visit: ProjectVisit, item: NotificationRecord): (Html | string)[] {
  const path = projectPath(visit, `/notifications/${item.id_str}`);
  const { options } = item;
  const receiver = receiverOf(options);
  return [
    html`<div><a class="name" href="${path}">${receiver}</a>${options.forge ? html`<div class="second"><code>${options.url}</code></div>` : ''}${item.error === undefined ? '' : html`<div class="why">Disabled: ${item.error}.</div>`}</div>`,
    reportedBy(item.notifiable_type, options),
    html`<div class="row"><a class="button plain" href="${path}">Deliveries</a><a class="button plain" href="${path}/edit">Change</a>${options.forge && item.error ? '' : actionButton(formTo(visit, `${path}/test`), 'Send test')}${
      isOwner(visit)
        ? actionButton(formTo(visit, `${path}/delete`), 'Delete', {
            tone: 'danger',
            confirm: `Delete the notification to ${receiver}? Pending deliveries are dropped.`,
            yes: 'Delete notification',
            no: 'Keep notification',
          })
        : ''
    }</div>`,
  ];
}

type Options = NotificationRecord['options'];

/** What receives it: the URL of a webhook, or the repository on its forge. */
export const receiverOf = ({ forge, repository, url }: Options) =>
  forge && repository ? `${repository} on ${forgeLabel(forge)}` : url;

const reportedBy = (type: string, { contexts }: Options) =>
  contexts ? `commit statuses: ${contextLabels[contexts]}` : (typeLabels[type] ?? type);

function showNewNotification(visit: ProjectVisit): View {
  const create = formTo(visit, projectPath(visit, '/notifications/new'), { notifiable_type: 'build' });
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'New webhook' },
    body: renderForm(create, {
      fields: html`${selectField(create, {
        name: 'notifiable_type',
        label: 'Events',
        required: true,
        choices: Object.entries(typeLabels).map(([value, label]) => ({ value, label })),
      })}
${textField(create, { name: 'options[url]', label: 'URL', required: true, code: true, placeholder: 'https://chat.example.org/hooks/ci', hint: 'Receives a signed POST with JSON for each event, following Standard Webhooks.' })}`,
      submit: html`${submitButton('Create webhook')} ${linkButton(projectPath(visit, '/notifications'), 'Back')}`,
    }),
  });
}

function showNewStatuses(visit: ProjectVisit): View {
  const { repositoryUrl } = visit.found.project;
  const create = formTo(visit, projectPath(visit, '/notifications/new-statuses'), {
    'options[forge]': guessForge(repositoryUrl),
    'options[contexts]': 'both',
  });
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'New commit statuses' },
    body: renderStatusForm(create, repositoryUrl, {
      hasToken: false,
      submit: html`${submitButton('Create commit statuses')} ${linkButton(projectPath(visit, '/notifications'), 'Back')}`,
    }),
  });
}

function showEdit(visit: NotificationVisit): View {
  const { notification, project } = visit.found;
  const { options } = presentNotification(notification);
  const path = notificationPath(visit);
  const change = formTo(visit, `${path}/edit`, {
    'options[url]': options.url,
    'options[forge]': options.forge ?? '',
    'options[repository]': options.repository ?? '',
    'options[contexts]': options.contexts ?? '',
  });
  const submit = html`${submitButton('Save')} ${linkButton(path, 'Back')}`;
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: options.forge ? 'Change commit statuses' : 'Change webhook' },
    body: options.forge
      ? renderStatusForm(change, project.repositoryUrl, { hasToken: true, submit })
      : renderForm(change, {
          fields: textField(change, {
            name: 'options[url]',
            label: 'URL',
            required: true,
            code: true,
            hint: 'The signing secret stays the same.',
          }),
          submit,
        }),
  });
}

function showSecret(visit: ProjectVisit, created: CreatedRecord): View {
  const path = projectPath(visit, `/notifications/${created.id_str}`);
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'Webhook created' },
    body: html`<div class="panel"><p class="lead">Copy this secret to the receiver now. It is not shown again. The receiver uses it to verify that calls come from this server.</p>
${propertyList([
  ['URL', html`<code>${created.options.url}</code>`],
  ['Signing secret', copyText(created.signing_secret ?? '', 'Copy secret')],
])}</div>
<div class="row">${actionButton(formTo(visit, `${path}/test`), 'Send test')}${linkButton(path, 'Done', 'primary')}</div>`,
  });
}

async function showDeliveries(visit: NotificationVisit): Promise<View> {
  const { notification } = visit.found;
  const record = presentNotification(notification);
  const { options } = record;
  /** Nothing is sent to a forge while it refuses the token, not even by hand. */
  const isOff = options.forge !== undefined && !notification.enabled;
  const { items, next } = await performPage(visit, notifications.listDeliveries, 50);
  const path = notificationPath(visit);
  const pollMs = pollMsOf(items, visit.services.db.now());
  return projectView(visit, {
    tab: 'notifications',
    live: path + (visit.request.method === 'GET' ? visit.url.search : ''),
    subpage: {
      heading: receiverOf(options),
      title: 'Deliveries',
      subtitle: html`Reports ${reportedBy(record.notifiable_type, options)}${options.forge ? html`<div class="description"><code>${options.url}</code></div>` : ''}`,
      actions: html`<div class="row">${linkButton(`${path}/edit`, 'Change')}${notification.enabled ? '' : actionButton(formTo(visit, `${path}/enable`), 'Enable')}${isOff ? '' : actionButton(formTo(visit, `${path}/test`), 'Send test')}</div>`,
    },
    body: html`<div id="disabled" data-live>${record.error === undefined ? '' : html`<p class="flash failed">Nothing is sent: ${record.error}.${isOff ? ' Change the token, or enable it once the forge accepts it. What was not sent is sent then.' : ''}</p>`}</div>
<section id="deliveries" data-live${pollMs === undefined ? '' : html` data-poll="${pollMs}"`} aria-labelledby="deliveries-head"><h2 id="deliveries-head">Deliveries</h2>
${table({
  caption: 'Deliveries',
  columns: [
    ...(options.forge ? ['Context', 'Status'] : ['Event']),
    'Delivery',
    'Response',
    'When',
    'Actions',
  ],
  rows: items.map(item => ({ cells: deliveryCells(visit, item, isOff) })),
  empty: {
    title: 'No deliveries yet',
    text: 'Each call is listed here with its response. Send a test to see whether the receiver responds.',
  },
})}</section>
${olderLink(visit.url, next, 'Older deliveries')}`,
  });
}

function pollMsOf(items: readonly DeliveryRecord[], now: number): number | undefined {
  const pending = items.filter(({ state }) => state === 'pending');
  if (pending.length === 0) return undefined;
  const delays = pending.flatMap(({ next_attempt_at: at }) => (at ? [Date.parse(at) - now] : []));
  return Math.min(POLL_MS.latest, Math.max(POLL_MS.soonest, Math.min(...delays)));
}

function deliveryCells(
  visit: NotificationVisit,
  delivery: DeliveryRecord,
  isOff: boolean,
): (Html | string)[] {
  const path = notificationPath(visit);
  // Resending resets the attempts to zero but keeps the last response.
  const isResent = delivery.response_status !== null;
  const tries =
    [isResent ? 'sent again' : 'no attempts yet', '1 attempt'][delivery.attempts] ??
    `${delivery.attempts} attempts`;
  return [
    ...renderContent(delivery),
    html`<div>${stateBadge(delivery.state)}<div class="second">${tries}${delivery.next_attempt_at ? html`, next attempt ${relativeTime(Date.parse(delivery.next_attempt_at))}` : ''}</div></div>`,
    renderAnswer(delivery),
    relativeTime(Date.parse(delivery.created_at)),
    isOff || delivery.state === 'superseded' || (delivery.state === 'pending' && delivery.attempts === 0)
      ? ''
      : actionButton(formTo(visit, `${path}/deliveries/${delivery.id_str}/redeliver`), 'Redeliver'),
  ];
}

const renderContent = ({ event, commit_status: status }: DeliveryRecord): Html[] =>
  status
    ? [
        html`<div><code>${status.context}</code><div class="second"><code>${status.commit_ref.slice(0, 10)}</code></div></div>`,
        stateBadge(status.state),
      ]
    : [html`<code>${event}</code>`];

function renderAnswer(delivery: DeliveryRecord): Html {
  const { response_status: status, response_ms: ms, response_excerpt: excerpt, last_error: error } = delivery;
  return html`<div>${status === null ? (error ? '' : html`<span class="quiet">none yet</span>`) : html`<span class="number">${status}</span>${ms === null ? '' : html` <span class="quiet">in ${ms} ms</span>`}`}
${error ? html`<div class="why">${error}</div>` : ''}${excerpt ? html`<details id="answer-${delivery.id_str}"><summary>Response body</summary><pre class="output" tabindex="0">${excerpt}</pre></details>` : ''}</div>`;
}

// The deliveries of a notification: the list with the response to each, and a page for each with what is sent.

import { html } from 'hono/html';
import { notifications } from '../../api/notifications.ts';
import { presentDelivery, presentNotification } from '../../contract/records/notification.ts';
import { indentJson } from '../../contract/wire.ts';
import { forgeLabel, forgeRequests } from '../../domain/commit-status.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import { findBuild, findBuildRequest, findCommit } from '../../store/builds.ts';
import { findVisibleDependency } from '../../store/dependencies.ts';
import { findDeploy } from '../../store/deploys.ts';
import { type Delivery, findBlocking, findDelivery } from '../../store/notifications.ts';
import { findMessage } from '../../store/outbox.ts';
import { findStatus } from '../../store/statuses.ts';
import { findTrigger } from '../../store/trigger/triggers.ts';
import { linkButton, olderLink, propertyList, relativeTime, table } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, performPage, type View, type Visit } from '../frame/visit.ts';
import { isOwner, projectPath, projectView, shortRef } from './frame.ts';
import { contextLabels } from './status-form.ts';

const PATH = '/ui/projects/:project_id/notifications/:notification_id';
const ONE = `${PATH}/deliveries/:delivery_id` as const;
/** No event reports a delivery, so the page polls: often while one is due, rarely while it waits for its next attempt. */
const POLL_MS = { soonest: 2_000, latest: 60_000 };
const BODY_CHARACTERS = 20_000;

export type NotificationVisit = Visit<'project' | 'notification'>;
type DeliveryVisit = Visit<'project' | 'notification' | 'delivery'>;
type Options = ReturnType<typeof presentNotification>['options'];
type DeliveryRecord = ReturnType<typeof presentDelivery>;

export const deliveryPages: Route[] = [
  page(PATH, showDeliveries),
  page(ONE, showDelivery),
  action(`${ONE}/redeliver`, notifications.redeliver, {
    showForm: showDelivery,
    done: visit => ({ to: notificationPath(visit), message: 'The delivery was queued to be sent again.' }),
  }),
];

export const notificationPath = (visit: NotificationVisit, rest = '') =>
  projectPath(visit, `/notifications/${visit.found.notification.id}${rest}`);

export const typeLabels: Record<string, string> = {
  build: 'builds, build requests and deploys',
  dependency: 'dependencies that the suites use',
};

/** What receives it: the URL of a webhook, or the repository on its forge. */
export const receiverOf = ({ forge, repository, url }: Options) =>
  forge && repository ? `${repository} on ${forgeLabel(forge)}` : url;

export const reportedBy = (type: string, { contexts }: Options) =>
  contexts ? `commit statuses: ${contextLabels[contexts]}` : (typeLabels[type] ?? type);

/** Nothing is sent to a forge while it refuses the token, not even by hand. */
const isOff = ({ found: { notification } }: NotificationVisit) =>
  notification.statusOptions !== null && !notification.enabled;

export async function showDeliveries(visit: NotificationVisit): Promise<View> {
  const { notification } = visit.found;
  const record = presentNotification(notification);
  const { options } = record;
  const { items, next } = await performPage(visit, notifications.listDeliveries, 50);
  const path = notificationPath(visit);
  const deliveries = items.map(record => describe(visit, record));
  const pollMs = pollMsOf(deliveries, visit.services.db.now());
  return projectView(visit, {
    tab: 'notifications',
    live: path + (visit.request.method === 'GET' ? visit.url.search : ''),
    subpage: {
      heading: receiverOf(options),
      title: 'Deliveries',
      subtitle: html`Reports ${reportedBy(record.notifiable_type, options)}${options.forge ? html`<div class="description"><code>${options.url}</code></div>` : ''}`,
      actions: html`<div class="row">${linkButton(`${path}/edit`, 'Edit')}${notification.enabled ? '' : actionButton(formTo(visit, `${path}/enable`), 'Enable')}${isOff(visit) ? '' : actionButton(formTo(visit, `${path}/test`), 'Send test')}</div>`,
    },
    body: html`<div id="disabled" data-live>${record.error === undefined ? '' : html`<p class="flash failed">Nothing is sent: ${record.error}.${isOff(visit) ? ' Change the token, or enable the notification once the forge accepts the token. Statuses that were not sent are sent then.' : ''}</p>`}</div>
<section id="deliveries" data-live${pollMs === undefined ? '' : html` data-poll="${pollMs}"`} aria-labelledby="deliveries-head"><h2 id="deliveries-head">Deliveries</h2>
${table({
  caption: 'Deliveries',
  columns: [
    ...(options.forge ? ['Context', 'Status'] : ['Event', 'About']),
    'Delivery',
    'Response',
    'When',
    'Actions',
  ],
  rows: deliveries.map(delivery => ({ cells: deliveryCells(visit, delivery) })),
  empty: {
    title: 'No deliveries yet',
    text: 'Each call is listed here with its response. Send a test to see whether the receiver responds.',
  },
})}</section>
${olderLink(visit.url, next, 'Older deliveries')}`,
  });
}

/** A delivery as the visitor may see it, what it is about, and the earlier delivery that it waits for. */
type Described = { record: DeliveryRecord; subject: Html | string; blockedBy: bigint | undefined };

function describe(visit: NotificationVisit, record: DeliveryRecord): Described {
  const { services, found } = visit;
  const row = findDelivery(services.db, found.notification.id, BigInt(record.id_str));
  return {
    record,
    subject: row ? renderSubject(visit, row) : '',
    blockedBy: row && findBlocking(services.db, row),
  };
}

const isPending = ({ record, blockedBy }: Described) => record.state === 'pending' && blockedBy === undefined;

function pollMsOf(deliveries: readonly Described[], now: number): number | undefined {
  const pending = deliveries.filter(isPending);
  if (pending.length === 0) return undefined;
  const delays = pending.flatMap(({ record: { next_attempt_at: at } }) => (at ? [Date.parse(at) - now] : []));
  return Math.min(POLL_MS.latest, Math.max(POLL_MS.soonest, Math.min(...delays)));
}

const deliveryPath = (visit: NotificationVisit, id: bigint | string) =>
  notificationPath(visit, `/deliveries/${id}`);

function deliveryCells(visit: NotificationVisit, delivery: Described): (Html | string)[] {
  const { record, subject } = delivery;
  const { commit_status: status } = record;
  const href = deliveryPath(visit, record.id_str);
  return [
    ...(status
      ? [
          html`<div><a href="${href}"><code>${status.context}</code></a><div class="second">${subject || html`<code>${status.commit_ref.slice(0, 10)}</code>`}</div></div>`,
          stateBadge(status.state),
        ]
      : [html`<a href="${href}"><code>${record.event}</code></a>`, subject]),
    html`<div>${stateBadge(record.state)}<div class="second">${renderAttempts(visit, delivery)}</div></div>`,
    renderResponse(record),
    relativeTime(Date.parse(record.created_at)),
    renderRedeliver(visit, delivery),
  ];
}

/** How often it was sent, and what happens next. */
function renderAttempts(visit: NotificationVisit, { record, blockedBy }: Described): Html {
  const { attempts, next_attempt_at: next, resent_at: resent } = record;
  const now = visit.services.db.now();
  const count = attempts === 0 ? 'not sent yet' : countOf(attempts, 'attempt');
  const again = resent === null ? '' : html`<div>resent ${relativeTime(Date.parse(resent), now)}</div>`;
  if (blockedBy !== undefined)
    return html`<a href="${deliveryPath(visit, blockedBy)}">waiting for an earlier delivery</a>${again}`;
  const due = next === null ? undefined : Date.parse(next);
  return html`${count}${due === undefined ? '' : due <= now ? ', due now' : html`, next attempt ${relativeTime(due, now)}`}${again}`;
}

/** What the event is about, linked if it still exists. */
function renderSubject(visit: NotificationVisit, delivery: Delivery): Html | string {
  const { caller, services, found } = visit;
  const { db } = services;
  const { eventType, status } = delivery;
  const kind = status ? (status.buildId === undefined ? 'build_request' : 'build') : eventType.split('.')[0];
  const id = status ? BigInt(status.buildId ?? status.requestId) : delivery.resourceId;
  const link = (path: string, label: Html | string) => html`<a href="${path}">${label}</a>`;
  if (kind === 'build') {
    const build = findBuild(db, found.project.id, id);
    return build
      ? link(
          projectPath(visit, `/builds/${id}`),
          html`${build.suiteName} <code>${build.commitRef.slice(0, 10)}</code>`,
        )
      : '';
  }
  if (kind === 'build_request') {
    const request = findBuildRequest(db, found.project.id, id);
    if (!request) return '';
    const commit = request.commitId === null ? undefined : findCommit(db, found.project.id, request.commitId);
    return commit
      ? link(projectPath(visit, `/commits/${commit.id}`), html`Commit ${shortRef(commit)}`)
      : `Request for ${request.commitRef}`;
  }
  if (kind === 'deploy') {
    const deploy = findDeploy(db, found.project.id, id);
    return deploy ? link(projectPath(visit, `/deploys/${id}`), `Deploy to ${deploy.strategyName}`) : '';
  }
  if (kind === 'trigger') {
    const trigger = findTrigger(db, found.project.id, id);
    return trigger ? link(projectPath(visit, `/triggers/${id}`), trigger.name) : '';
  }
  const dependency = kind === 'dependency' ? findVisibleDependency(db, caller.accountId, id) : undefined;
  return dependency ? link(`/ui/dependencies/${id}`, dependency.name) : '';
}

function renderResponse(delivery: DeliveryRecord): Html {
  const { response_status: status, response_ms: ms, last_error: error } = delivery;
  return html`<div>${status === null ? (error ? '' : html`<span class="quiet">none yet</span>`) : html`<span class="number">${status}</span>${ms === null ? '' : html` <span class="quiet">in ${ms} ms</span>`}`}
${error ? html`<div class="why">${error}</div>` : ''}</div>`;
}

/** A delivery that is still to be sent for the first time needs no button. */
function renderRedeliver(visit: NotificationVisit, { record }: Described): Html | string {
  const isNew = record.state === 'pending' && record.attempts === 0;
  if (isOff(visit) || record.state === 'superseded' || isNew) return '';
  return actionButton(formTo(visit, `${deliveryPath(visit, record.id_str)}/redeliver`), 'Redeliver');
}

function showDelivery(visit: DeliveryVisit): View {
  const { found } = visit;
  const { delivery, notification } = found;
  const record = presentDelivery(delivery, isOwner(visit) ? 'owner' : 'collaborator');
  const described = describe(visit, record);
  const { options } = presentNotification(notification);
  const path = deliveryPath(visit, delivery.id);
  const pollMs = pollMsOf([described], visit.services.db.now());
  return projectView(visit, {
    tab: 'notifications',
    live: path,
    subpage: {
      parent: { href: notificationPath(visit), label: `Deliveries to ${receiverOf(options)}` },
      heading: record.commit_status?.context ?? record.event,
      title: `Delivery of ${record.commit_status?.context ?? record.event}`,
    },
    body: html`<section class="panel" id="delivery" data-live${pollMs === undefined ? '' : html` data-poll="${pollMs}"`} aria-labelledby="delivery-head"><h2 id="delivery-head">Delivery</h2>
${propertyList([
  ['State', stateBadge(record.state)],
  ['Attempts', renderAttempts(visit, described)],
  [
    'Event',
    html`<code>${record.event}</code> <span class="quiet">${relativeTime(delivery.createdAt)}</span>`,
  ],
  ['About', described.subject],
  ['Response', renderResponse(record)],
])}
${renderRedeliver(visit, described)}</section>
<section aria-labelledby="request-head"><h2 id="request-head">Request</h2>${renderRequest(visit)}</section>
<section id="response" data-live aria-labelledby="response-head"><h2 id="response-head">Response body</h2>${renderResponseBody(visit, record)}</section>`,
  });
}

function renderRequest(visit: DeliveryVisit): Html {
  const sent = requestOf(visit);
  if (!sent)
    return html`<p class="quiet">The event was removed by retention, so its body is no longer available.</p>`;
  const text = indentJson(sent.body);
  const rest = text.length - BODY_CHARACTERS;
  return html`<p><code>POST ${sent.url}</code></p>
<pre class="output" tabindex="0" aria-label="Request body">${text.slice(0, BODY_CHARACTERS)}</pre>
${rest > 0 ? html`<p class="quiet">${formatCount(rest)} more characters are not shown.</p>` : ''}`;
}

/** The body of a webhook is the same in each attempt. That of a commit status is as it would be sent now. */
function requestOf({ services, found }: DeliveryVisit): { url: string; body: string } | undefined {
  const { db, baseUrl } = services;
  const { delivery, notification } = found;
  const { url, statusOptions } = notification;
  if (!statusOptions) {
    const message = findMessage(db, delivery.id);
    return message && { url, body: message.body };
  }
  const status = findStatus(db, delivery.id, baseUrl);
  // The token is in the headers, which are not shown.
  return status && forgeRequests(statusOptions, { url, token: '' }, status)[0];
}

function renderResponseBody(visit: DeliveryVisit, { response_excerpt: excerpt }: DeliveryRecord): Html {
  if (excerpt) return html`<pre class="output" tabindex="0" aria-label="Response body">${excerpt}</pre>`;
  return html`<p class="quiet">${isOwner(visit) ? 'None.' : 'Only the owner of the project can see it.'}</p>`;
}

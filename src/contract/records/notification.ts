// The records of notifications and deliveries: their schemas, and functions that create them from rows.

import {
  contextChoices,
  forges,
  type StatusOptions,
  type StatusReport,
  statusStates,
} from '../../domain/commit-status.ts';
import { idPair, idPairShape, ids, record, shape, wireTime, wireTimeOrNull } from '../wire.ts';

/** The types of notifications. */
export const notificationNames = ['webhook', 'commit_status'] as const;

const notification = {
  ...ids,
  name: shape.oneOf(notificationNames, 'The type of notification.'),
  options: record(
    'NotificationOptions',
    {
      url: shape.string("Where the POST is sent; for commit statuses the base of the forge's API."),
      forge: shape.oneOf(forges, 'Only for commit statuses.'),
      repository: shape.string('Only for commit statuses: the repository, as the forge names it.'),
      contexts: shape.oneOf(contextChoices, 'Only for commit statuses: which contexts are reported.'),
      token_set: shape.boolean('Only for commit statuses, always true: the token is never shown.'),
    },
    ['forge', 'repository', 'contexts', 'token_set'],
  ),
  notifiable_type: shape.oneOf(['build', 'dependency'], 'What it reports.'),
};
export const notificationShape = record(
  'Notification',
  {
    ...notification,
    ...idPairShape('project_id', 'The project.'),
    enabled: shape.boolean('Present when false: a response disabled it, and nothing is sent.'),
    error: shape.string('Present when it is disabled: the reason.'),
  },
  ['enabled', 'error'],
);
export const createdNotificationShape = record(
  'CreatedNotification',
  {
    ...notification,
    signing_secret: shape.string(
      'Only for a webhook, present once: verifies signatures as defined by Standard Webhooks.',
    ),
  },
  ['signing_secret'],
);

type NotificationRow = {
  id: bigint;
  name: string;
  url: string;
  notifiableType: string;
  statusOptions: StatusOptions | null;
};

const presentPlainNotification = (row: NotificationRow) => ({
  ...idPair('id', row.id),
  name: row.name,
  options: { url: row.url, ...(row.statusOptions && { ...row.statusOptions, token_set: true }) },
  notifiable_type: row.notifiableType,
});

export function presentNotification(
  row: NotificationRow & { projectId: bigint; enabled: boolean; disabledBecause: string | null },
) {
  return {
    ...presentPlainNotification(row),
    ...idPair('project_id', row.projectId),
    ...(!row.enabled && { enabled: false, error: row.disabledBecause ?? 'the receiver responded with 410' }),
  };
}

export function presentCreatedNotification(row: NotificationRow, signingSecret: string) {
  return {
    ...presentPlainNotification(row),
    ...(!row.statusOptions && { signing_secret: signingSecret }),
  };
}

export const deliveryShape = record(
  'Delivery',
  {
    ...ids,
    event: shape.string('Type of the event.'),
    ...idPairShape('event_id', 'The event; its id is the `webhook-id` of every attempt.'),
    state: shape.oneOf(
      ['pending', 'delivered', 'failed', 'superseded'],
      'State of the delivery. A commit status is superseded if a newer one of its context replaced it before it was sent.',
    ),
    attempts: shape.integer('Number of attempts.'),
    response_status: shape.nullable(shape.integer('Status of the last response.')),
    response_ms: shape.nullable(shape.integer('Duration of the last response, in milliseconds.')),
    response_excerpt: shape.nullable(
      shape.string("First 1 KiB of the last response; null unless the caller is the project's owner."),
    ),
    last_error: shape.nullable(shape.string('Why the last attempt failed.')),
    next_attempt_at: shape.nullable(shape.time('When the next attempt is due; null if there is none.')),
    created_at: shape.time('When the event happened.'),
    resent_at: shape.nullable(shape.time('When it was last redelivered by a caller; null if it never was.')),
    commit_status: record('CommitStatus', {
      context: shape.string('The context: `assay` for the whole request, `assay/<suite>` for a suite.'),
      commit_ref: shape.string('The full hash.'),
      state: shape.oneOf(statusStates, 'The reported state; forges have their own names for it.'),
    }),
  },
  ['commit_status'],
);

type DeliveryRow = {
  id: bigint;
  eventType: string;
  eventId: bigint;
  state: string;
  attempts: number;
  responseStatus: number | null;
  responseMs: number | null;
  responseExcerpt: string | null;
  lastError: string | null;
  nextAttemptAt: number | null;
  createdAt: number;
  status: StatusReport | null;
  resentAt: number | null;
};

/** Only the owner sees the response: a collaborator could use it to read pages in the server's network. */
export function presentDelivery(delivery: DeliveryRow, seenBy: 'owner' | 'collaborator') {
  return {
    ...idPair('id', delivery.id),
    event: delivery.eventType,
    ...idPair('event_id', delivery.eventId),
    state: delivery.state,
    attempts: delivery.attempts,
    response_status: delivery.responseStatus,
    response_ms: delivery.responseMs,
    response_excerpt: seenBy === 'owner' ? delivery.responseExcerpt : null,
    last_error: delivery.lastError,
    next_attempt_at: wireTimeOrNull(delivery.nextAttemptAt),
    created_at: wireTime(delivery.createdAt),
    resent_at: wireTimeOrNull(delivery.resentAt),
    ...(delivery.status && {
      commit_status: {
        context: delivery.status.context,
        commit_ref: delivery.status.commit,
        state: delivery.status.state,
      },
    }),
  };
}

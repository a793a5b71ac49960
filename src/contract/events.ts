// The types of events, their bodies, and how webhooks and firehoses send them. src/store/transition.ts records an event
// with each change of a state.

import type { BuildState } from '../domain/build.ts';
import { buildRequestShape, buildShape } from './records/build.ts';
import { dependencyShape } from './records/dependency.ts';
import { deployShape } from './records/deploy.ts';
import { projectShape } from './records/project.ts';
import { triggerShape } from './records/trigger.ts';
import { idPair, type JsonSchema, record, shape, wireTime } from './wire.ts';

/** Every type of event, and when it happens. */
export const eventDescriptions = {
  'build_request.enqueued': 'A build was requested.',
  'build_request.finished': 'The last build of a request ended.',
  'build.enqueued': 'A build was queued.',
  'build.started': 'A build started.',
  'build.finished': 'A build ended.',
  'dependency.enqueued': 'A compile was queued.',
  'dependency.started': 'A compile started.',
  'dependency.finished': 'A compile ended.',
  'dependency.shared': 'A dependency was shared with all accounts.',
  'deploy.enqueued': 'A deploy was queued.',
  'deploy.started': 'A deploy started.',
  'deploy.finished': 'A deploy ended.',
  'trigger.failing': 'The third check of the repository by a trigger in a row failed.',
  'trigger.recovered': 'A check of the repository by a failing trigger succeeded.',
  ping: 'A test of a notification. Only that notification gets it.',
} as const;
export type EventType = keyof typeof eventDescriptions;
export const eventTypes = Object.keys(eventDescriptions) as EventType[];
export type EventSubject = 'build_request' | 'build' | 'dependency' | 'deploy' | 'trigger';

export const notifiableTypes = ['build', 'dependency'] as const;
export type NotifiableType = (typeof notifiableTypes)[number];

/** The type of notification that an event is sent to. Deploys, build requests and triggers count as builds. */
export function notifiableTypeOf(type: EventType): NotifiableType {
  return type.startsWith('dependency.') ? 'dependency' : 'build';
}

export function buildEventOf(state: BuildState): EventType {
  if (state === 'enqueued') return 'build.enqueued';
  return state === 'running' ? 'build.started' : 'build.finished';
}

export const eventShape: JsonSchema = {
  title: 'Event',
  type: 'object',
  properties: {
    id: shape.id(),
    id_str: shape.idString,
    type: shape.oneOf(eventTypes, 'What happened.'),
    created_at: shape.time('When it happened.'),
    project: projectShape,
    build_request: buildRequestShape,
    build: buildShape,
    dependency: dependencyShape,
    deploy: deployShape,
    trigger: triggerShape,
  },
  required: ['id', 'id_str', 'type', 'created_at', 'project'],
  additionalProperties: false,
};

/** The body of one type of event. All but a ping have the record that the event is about. */
export function eventShapeOf(type: EventType): JsonSchema {
  const [subject = ''] = type.split('.');
  const title = type.replace(/(?:^|[._])(\w)/g, (_, letter: string) => letter.toUpperCase());
  const { id, id_str, created_at, project, ...records } = eventShape.properties as Record<string, JsonSchema>;
  return record(`${title}Event`, {
    id: id as JsonSchema,
    id_str: id_str as JsonSchema,
    type: { type: 'string', const: type, description: eventDescriptions[type] },
    created_at: created_at as JsonSchema,
    project: project as JsonSchema,
    ...(type !== 'ping' && { [subject]: records[subject] as JsonSchema }),
  });
}

/** The headers that a webhook has in addition to those of every HTTP request. */
export const webhookHeaders: Record<string, JsonSchema> = {
  'webhook-id': {
    type: 'string',
    pattern: '^[0-9]+$',
    description: 'The ID of the event. It stays the same when the event is sent again.',
  },
  'webhook-timestamp': {
    type: 'string',
    pattern: '^[0-9]+$',
    description: 'When this attempt was made, in seconds since 1970. Refuse old ones.',
  },
  'webhook-signature': {
    type: 'string',
    description:
      '`v1,` and the base64 of an HMAC with SHA-256 over `<webhook-id>.<webhook-timestamp>.<body>`. The key is the part of `signing_secret` after `whsec_`, decoded from base64.',
  },
  'user-agent': { type: 'string', description: '`Assay/` and the version.' },
};

/** An event of a stream. A client sends its `id` as `Last-Event-ID` to continue after it. */
type StreamEvent = { description: string; data: JsonSchema; id?: string };
export type StreamEvents = Record<string, StreamEvent>;

const logText = record('LogText', {
  offset: shape.integer('The byte of the log where the text begins.'),
  text: shape.string('New text of the log.'),
});

/** What the stream of a build or of a compile sends. */
export const logStreamEvents = (owner: JsonSchema): StreamEvents => ({
  state: { description: 'The record, at the beginning and after each change of its state.', data: owner },
  log: {
    description: 'New text of the log, and the byte where it begins (`offset`).',
    data: logText,
    id: 'The byte after the text.',
  },
  end: { description: 'The record at the end. Then the stream is closed.', data: owner },
});

/** What the stream of a project sends. */
export const projectStreamEvents: StreamEvents = {
  state: { description: 'The project, at the beginning.', data: projectShape },
  ...Object.fromEntries(
    eventTypes
      .filter(type => type !== 'ping')
      .map(type => [
        type,
        { description: eventDescriptions[type], data: eventShapeOf(type), id: 'The ID of the event.' },
      ]),
  ),
};

const KEY_FIELD = '"ssh_public_key":"';

/**
 * Inserts the project's SSH key into a stored body, which has only the key's comment after a space. User text cannot look
 * like the field, because its quotes are escaped. Without a readable key the field becomes empty.
 */
export function addKey(stored: string, key: string | undefined): string {
  const at = stored.indexOf(`${KEY_FIELD} `);
  if (at < 0) return stored;
  const value = at + KEY_FIELD.length;
  return key === undefined
    ? stored.slice(0, value) + stored.slice(stored.indexOf('"', value))
    : stored.slice(0, value) + key + stored.slice(value);
}

/** The body of an event. Every attempt of a webhook and every stream sends these bytes, with the key added. */
export function eventBody(event: {
  id: bigint;
  type: EventType;
  createdAt: number;
  project: unknown;
  subject?: { kind: EventSubject; record: unknown };
}): string {
  return JSON.stringify({
    ...idPair('id', event.id),
    type: event.type,
    created_at: wireTime(event.createdAt),
    project: event.project,
    ...(event.subject && { [event.subject.kind]: event.subject.record }),
  });
}

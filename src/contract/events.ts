// The kinds of events and what their bodies hold. Written by store/transition, read by webhooks, firehoses and pages.

import type { BuildState } from '../domain/build.ts';
import { buildRequestShape, buildShape, dependencyShape, deployShape, projectShape } from './records.ts';
import { type JsonSchema, shape, twin, wireTime } from './wire.ts';

export const eventTypes = [
  'build_request.enqueued',
  'build_request.finished',
  'build.enqueued',
  'build.started',
  'build.finished',
  'dependency.enqueued',
  'dependency.started',
  'dependency.finished',
  'dependency.shared',
  'deploy.enqueued',
  'deploy.started',
  'deploy.finished',
  'ping',
] as const;
export type EventType = (typeof eventTypes)[number];
export type EventSubject = 'build_request' | 'build' | 'dependency' | 'deploy';

export const notifiableTypes = ['build', 'dependency'] as const;
export type NotifiableType = (typeof notifiableTypes)[number];

/** Which notifications an event is for: what is not about dependencies counts as builds. */
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
  },
  required: ['id', 'id_str', 'type', 'created_at', 'project'],
  additionalProperties: false,
};

const KEY_FIELD = '"ssh_public_key":"';

/**
 * The body to send of one that is stored, in which only a comment stands for the project's key: a space comes first. No
 * text of a user can look like the field, since its quotes are escaped. A key that cannot be read leaves the field empty.
 */
export function addKey(stored: string, key: string | undefined): string {
  const at = stored.indexOf(`${KEY_FIELD} `);
  if (at < 0) return stored;
  const value = at + KEY_FIELD.length;
  return key === undefined
    ? stored.slice(0, value) + stored.slice(stored.indexOf('"', value))
    : stored.slice(0, value) + key + stored.slice(value);
}

/** The body of an event, fixed here once: every webhook try and every stream sends these bytes, with the key added. */
export function eventBody(event: {
  id: bigint;
  type: EventType;
  createdAt: number;
  project: unknown;
  subject?: { kind: EventSubject; record: unknown };
}): string {
  return JSON.stringify({
    ...twin('id', event.id),
    type: event.type,
    created_at: wireTime(event.createdAt),
    project: event.project,
    ...(event.subject && { [event.subject.kind]: event.subject.record }),
  });
}

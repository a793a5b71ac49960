// Which notifications an event is for, and the body that receivers get.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  buildEventOf,
  type EventType,
  eventBody,
  eventTypes,
  notifiableTypeOf,
} from '../../src/contract/events.ts';
import type { BuildState } from '../../src/domain/build.ts';

for (const type of eventTypes)
  test(`${type} is for notifications of ${type.startsWith('dependency.') ? 'dependencies' : 'builds'}`, () => {
    assert.equal(notifiableTypeOf(type), type.startsWith('dependency.') ? 'dependency' : 'build');
  });

const buildEvents: [state: BuildState, type: EventType][] = [
  ['enqueued', 'build.enqueued'],
  ['running', 'build.started'],
  ['passed', 'build.finished'],
  ['failed', 'build.finished'],
  ['errored', 'build.finished'],
  ['timed_out', 'build.finished'],
  ['canceled', 'build.finished'],
];
for (const [state, type] of buildEvents)
  test(`a build that is ${state} is sent as ${type}`, () => {
    assert.equal(buildEventOf(state), type);
  });

const id = 2n ** 62n + 1n;
const event = { id, type: 'build.started', createdAt: 0, project: { name: 'p' } } as const;

test('a body has the exact ID and its string form, the time with an offset, and the record', () => {
  const body = eventBody({ ...event, subject: { kind: 'build', record: { n: 1 } } });
  assert.equal(
    body,
    `{"id":${id},"id_str":"${id}","type":"build.started","created_at":"1970-01-01T00:00:00.000+00:00","project":{"name":"p"},"build":{"n":1}}`,
  );
});

test('a ping has no record', () => {
  const keys = Object.keys(JSON.parse(eventBody({ ...event, type: 'ping' })));
  assert.deepEqual(keys, ['id', 'id_str', 'type', 'created_at', 'project']);
});

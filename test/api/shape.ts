// Splits a record into IDs, their string forms, times, and the remaining fields.
import assert from 'node:assert/strict';
import type { Answer, Wire } from '../support/client.ts';

/** The record without its IDs, after they are compared with their string forms. */
export function plain(record: Wire, twins: Record<string, string> = { id: 'id_str' }): Wire {
  const rest = { ...record };
  for (const [id, twin] of Object.entries(twins)) {
    assert.equal(typeof rest[id], 'bigint', `${id} is an integer beyond 53 bits`);
    assert.equal(rest[twin], String(rest[id]), `${twin} is the twin of ${id}`);
    delete rest[id];
    delete rest[twin];
  }
  return rest;
}

export function ok(answer: Answer, status = 200): Answer {
  assert.equal(answer.status, status, answer.text);
  return answer;
}

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$/;

export function takeTime(record: Wire, name: string): void {
  assert.match(record[name] as string, time);
  delete record[name];
}

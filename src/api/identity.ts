// Who am I, is it there, is it well: ping, whoami, health, metrics and the description of the API itself.

import { identityShape } from '../contract/records.ts';
import { countByState } from '../store/counts.ts';
import { type Call, type Endpoint, endpoint } from './endpoint.ts';
import { readCallback, respondJson, respondText } from './http/respond.ts';
import type { Metrics } from './metrics.ts';

export const identity: Endpoint[] = [
  endpoint({
    method: 'GET',
    path: '/ping',
    summary: 'Whether the service answers',
    access: 'anyone',
    scope: undefined,
    answer: { record: { type: 'string', const: 'pong', title: 'Pong' } },
    handle: () => 'pong',
  }),
  endpoint({
    method: 'GET',
    path: '/whoami',
    summary: 'The email of the authenticated user',
    access: 'signed in',
    scope: 'user',
    unpaid: () => true,
    answer: { record: identityShape },
    handle: ({ caller }) => ({ email: caller.email }),
  }),
];

/** What administrators' tools read; `describe` gives the OpenAPI document of everything, these included. */
export function operations(metrics: Metrics, describe: () => unknown): Endpoint[] {
  let document: string | undefined;
  return [
    endpoint({
      method: 'GET',
      path: '/openapi.json',
      summary: 'This document',
      access: 'anyone',
      scope: undefined,
      answer: { media: 'application/json', description: 'An OpenAPI 3.1 document.' },
      // Made once: anyone may ask for it, and it never changes while the program runs.
      handle: ({ request, url }) => {
        document ??= JSON.stringify(describe());
        return respondText(document, 200, readCallback(request.method, url));
      },
    }),
    endpoint({
      method: 'GET',
      path: '/healthz',
      summary: 'Whether the appliance is well: 200, or 500 when it is not',
      access: 'anyone',
      scope: undefined,
      answer: { media: 'application/json', description: '`{"response":"ok"}`' },
      handle: ({ vitals, request, url }) => {
        const callback = readCallback(request.method, url);
        return vitals().healthy
          ? respondJson({ response: 'ok' }, 200, callback)
          : respondJson({ error: { generic: [] } }, 500, callback);
      },
    }),
    endpoint({
      method: 'GET',
      path: '/metrics',
      summary:
        "Figures for Prometheus, for administrators; no credentials are needed from loopback. Behind a reverse proxy on the same server set TRUSTED_PROXIES: then the address that it forwards counts, not the proxy's own",
      access: 'administrators',
      scope: undefined,
      unpaid: () => true,
      answer: { media: 'text/plain', description: 'Prometheus text format.' },
      handle: call =>
        new Response(metrics.render(gauges(call)), {
          headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        }),
    }),
  ];
}

function gauges({ db, live, vitals }: Call) {
  const { slots, slotsUsed, freeDiskBytes } = vitals();
  const counts = countByState(db);
  const memory = process.memoryUsage();
  return {
    assay_queue: { help: 'Work that has not ended, by kind and state.', values: counts.queue },
    assay_deliveries_pending: {
      help: 'Webhook deliveries that wait.',
      values: [['', counts.pendingDeliveries]] as [string, number][],
    },
    assay_slots: { help: 'Containers that may run at once.', values: [['', slots]] as [string, number][] },
    assay_slots_used: { help: 'Containers that run.', values: [['', slotsUsed]] as [string, number][] },
    assay_disk_free_bytes: {
      help: 'Room where the data directory is.',
      values: [['', freeDiskBytes]] as [string, number][],
    },
    assay_database_bytes: {
      help: 'Size of the database.',
      values: [['', counts.databaseBytes]] as [string, number][],
    },
    assay_watchers: {
      help: 'Open live streams and watchers.',
      values: [['', live.watchers()]] as [string, number][],
    },
    process_resident_memory_bytes: {
      help: 'Resident memory.',
      values: [['', memory.rss]] as [string, number][],
    },
  };
}

// Whether the service answers and is healthy, who the caller is, and the metrics.

import { identityShape } from '../contract/records.ts';
import { countByState } from '../store/counts.ts';
import { endpoint, type Services } from './endpoint.ts';
import { readCallback, respondJson } from './http/respond.ts';

export const identity = {
  ping: endpoint({
    method: 'GET',
    path: '/ping',
    summary: 'Whether the service answers',
    access: 'anyone',
    scope: undefined,
    response: { record: { type: 'string', const: 'pong', title: 'Pong' } },
    handle: () => 'pong',
  }),
  whoami: endpoint({
    method: 'GET',
    path: '/whoami',
    summary: 'The email of the authenticated user',
    access: 'signed in',
    scope: 'user',
    allowUnpaid: () => true,
    response: { record: identityShape },
    handle: ({ caller }) => ({ email: caller.email }),
  }),
};

export const operations = {
  health: endpoint({
    method: 'GET',
    path: '/healthz',
    summary: 'Whether the appliance is well: 200, or 500 when it is not',
    access: 'anyone',
    scope: undefined,
    response: { media: 'application/json', description: '`{"response":"ok"}`' },
    handle: ({ vitals, request, url }) => {
      const callback = readCallback(request.method, url);
      return vitals().healthy
        ? respondJson({ response: 'ok' }, 200, callback)
        : respondJson({ error: { generic: [] } }, 500, callback);
    },
  }),
  metrics: endpoint({
    method: 'GET',
    path: '/metrics',
    summary:
      "Figures for Prometheus, for administrators; no credentials are needed from loopback. Behind a reverse proxy on the same server set TRUSTED_PROXIES: then the address that it forwards counts, not the proxy's own",
    access: 'administrators',
    scope: undefined,
    allowUnpaid: () => true,
    response: { media: 'text/plain', description: 'Prometheus text format.' },
    handle: call =>
      new Response(call.metrics.render(gauges(call)), {
        headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
      }),
  }),
};

function gauges({ db, live, vitals }: Services) {
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
      help: 'Free space of the disk that holds the data directory.',
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

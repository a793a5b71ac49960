// Endpoints for the caller's identity, health checks and metrics.

import { record, shape } from '../contract/wire.ts';
import { countByState } from '../store/counts.ts';
import { endpoint, type Services } from './endpoint.ts';
import { readCallback, respondJson } from './http/respond.ts';

export const identity = {
  ping: endpoint({
    method: 'GET',
    path: '/ping',
    summary: 'Returns `pong` if the service is up',
    access: 'anyone',
    scope: undefined,
    response: { record: { type: 'string', const: 'pong', title: 'Pong' } },
    handle: () => 'pong',
  }),
  whoami: endpoint({
    method: 'GET',
    path: '/whoami',
    summary: 'Returns the email of the authenticated user',
    access: 'signed in',
    scope: 'user',
    allowUnpaid: () => true,
    response: { record: record('Identity', { email: shape.email('Email of the authenticated user.') }) },
    handle: ({ caller }) => ({ email: caller.email }),
  }),
};

export const operations = {
  health: endpoint({
    method: 'GET',
    path: '/healthz',
    summary: 'Responds 200 if the server is healthy, else 500',
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
      "Returns metrics for Prometheus. Behind a reverse proxy on the same host, set TRUSTED_PROXIES: then the client's address is checked, not the proxy's",
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

/** A label in the text format of Prometheus. */
const quoted = (value: string) =>
  `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;

/** A machine that joined again is listed twice under its name, once as down. Their slots are added up. */
function nodeGauges(nodes: NonNullable<ReturnType<Services['vitals']>['nodes']>): Record<string, Gauge> {
  const sum = (
    labels: (node: (typeof nodes)[number]) => string,
    count: (node: (typeof nodes)[number]) => number,
  ) => {
    const sums = new Map<string, number>();
    for (const node of nodes) sums.set(labels(node), (sums.get(labels(node)) ?? 0) + count(node));
    return [...sums];
  };
  const name = (node: { name: string }) => `node=${quoted(node.name)}`;
  // The state of a silent node ends with a message.
  const state = ({ state, availability }: (typeof nodes)[number]) =>
    `state=${quoted(state.split(':')[0] as string)},availability=${quoted(availability)}`;
  return {
    assay_nodes: {
      help: 'Machines that run containers, by state and availability.',
      values: sum(state, () => 1),
    },
    assay_node_slots: {
      help: 'Containers that a node may run at the same time; 0 if it gets no new ones.',
      values: sum(name, node => (node.unusable === undefined ? node.slots : 0)),
    },
    assay_node_slots_used: {
      help: 'Containers that run on a node.',
      values: sum(name, node => node.running.length),
    },
  };
}

type Gauge = { help: string; values: [labels: string, value: number][] };

const gauge = (help: string, value: number): Gauge => ({ help, values: [['', value]] });

function gauges({ db, live, vitals }: Services): Record<string, Gauge> {
  const { slots, slotsUsed, compileSlots, compilesRunning, freeDiskBytes, nodes } = vitals();
  const { queue, pendingDeliveries, triggers, lateLooks, databaseBytes } = countByState(db);
  return {
    assay_queue: { help: 'Unfinished work, by kind and state.', values: queue },
    assay_deliveries_pending: gauge('Webhook deliveries that wait.', pendingDeliveries),
    assay_triggers: { help: 'Triggers, by type and state.', values: triggers },
    assay_looks_late: gauge('Looks at repositories that are overdue by more than a minute.', lateLooks),
    assay_slots: gauge('Maximum number of running containers.', slots),
    assay_slots_used: gauge('Running containers.', slotsUsed),
    assay_compile_slots: gauge('Maximum number of running compiles.', compileSlots),
    assay_compile_slots_used: gauge('Running compiles.', compilesRunning),
    assay_disk_free_bytes: gauge('Free space of the disk that holds the data directory.', freeDiskBytes),
    assay_database_bytes: gauge('Size of the database.', databaseBytes),
    assay_watchers: gauge('Open live streams and watchers.', live.watchers()),
    ...(nodes && nodeGauges(nodes)),
    process_resident_memory_bytes: gauge('Resident memory.', process.memoryUsage().rss),
  };
}

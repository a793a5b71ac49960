// The cost of webhooks: deliveries to a live receiver compared with a bare loop of fetch, and the API during deliveries
// to a dead receiver. Every figure is a ratio of alternating rounds in one run, so that a busy machine affects both
// sides.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { parseArgs } from 'node:util';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { parseCidrs } from '../../src/domain/webhook/address.ts';
import { newSigningSecret } from '../../src/domain/webhook/signature.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { type Db, openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { recordEvent } from '../../src/store/events.ts';
import { createNotification } from '../../src/store/notifications.ts';
import { createProject } from '../../src/store/projects.ts';
import { MAX_PER_RECEIVER, startDeliveries } from '../../src/work/deliver-notifications.ts';
import { programPath } from '../cli/program.ts';
import { freePort } from '../support/ports.ts';
import {
  askOnce,
  type Child,
  exitStatus,
  median,
  openSocket,
  report,
  requestBytes,
  startChild,
} from './support.ts';

const { values: options } = parseArgs({
  options: {
    events: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '5' },
    requests: { type: 'string', default: '3000' },
  },
});
const eventCount = Number(options.events);
const rounds = Number(options.rounds);
const requestCount = Number(options.requests);
const main = await programPath();
const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const apiKey = 'assay_benchmark';
const allow = parseCidrs('127.0.0.0/8');
const log = createLog();

function fill(db: Db, url: string): { projectId: bigint; fillOutbox(): void } {
  const owner = createAccount(db, {
    email: 'bench@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey,
  });
  const project = createProject(db, {
    ownerId: owner.id,
    name: 'bench',
    description: 'A project of ordinary size.',
    repositoryUrl: 'git@example.com:bench.git',
    badge: false,
    cancelSuperseded: false,
    keyPair: generateKeyPair('assay'),
  });
  createNotification(db, {
    projectId: project.id,
    name: 'webhook',
    notifiableType: 'build',
    url,
    signingSecret: newSigningSecret(),
  });
  // Three events for each build, as in real builds.
  const types = ['build.enqueued', 'build.started', 'build.finished'] as const;
  return {
    projectId: project.id,
    fillOutbox: () =>
      db.write(() => {
        for (let count = 0; count < eventCount; count++)
          recordEvent(db, project.id, types[count % 3]!, BigInt(Math.floor(count / 3)));
      }),
  };
}

async function startReceiver(): Promise<Child & { url: string }> {
  const port = await freePort();
  const program = `
    require('node:http').createServer((request, response) => {
      request.resume().on('end', () => response.end('ok'));
    }).listen(${port}, '127.0.0.1', () => console.log('ready'));`;
  const child = await startChild([process.execPath, '-e', program], { port, ready: /ready/ });
  return { ...child, url: `http://127.0.0.1:${port}/hook` };
}

async function deliverAll(db: Db): Promise<number> {
  const { promise: done, resolve } = Promise.withResolvers<void>();
  let delivered = 0;
  const startedAt = performance.now();
  const deliveries = startDeliveries({
    db,
    live: createLive(),
    log,
    allow,
    baseUrl: 'https://ci.example.org',
    onOutcome: outcome => {
      if (outcome !== 'delivered') throw new Error(`a delivery was ${outcome}`);
      if (++delivered === eventCount) resolve();
    },
  });
  await done;
  const rate = (eventCount * 1000) / (performance.now() - startedAt);
  await deliveries.stop();
  return rate;
}

async function fetchAll(url: string, bodies: readonly string[]): Promise<number> {
  let next = 0;
  const startedAt = performance.now();
  const loop = async () => {
    for (let at = next++; at < bodies.length; at = next++) {
      const response = await fetch(url, {
        method: 'POST',
        body: bodies[at]!,
        headers: { 'content-type': 'application/json' },
        signal: AbortSignal.timeout(10_000),
      });
      await response.text();
    }
  };
  await Promise.all(Array.from({ length: MAX_PER_RECEIVER }, loop));
  return (bodies.length * 1000) / (performance.now() - startedAt);
}

async function compareLive(): Promise<void> {
  const receiver = await startReceiver();
  const db = openDb(join(work, 'live.db'), createVault(randomBytes(32)));
  const { fillOutbox } = fill(db, receiver.url);
  const ratios: number[] = [];
  for (let round = 0; round < rounds; round++) {
    fillOutbox();
    const bodies = db.sqlite
      .prepare<[], string>(
        `SELECT e.body FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.state = 'pending'`,
      )
      .pluck()
      .all();
    const assay = await deliverAll(db);
    const bare = await fetchAll(receiver.url, bodies);
    console.log(`  ${assay.toFixed(0)} deliveries/s, bare fetch ${bare.toFixed(0)}/s`);
    ratios.push(assay / bare);
  }
  db.close();
  await receiver.end();
  report(`${eventCount} events for a live receiver, compared with bare fetch`, median(ratios), '≥', 0.5);
}

type Served = { socket: TLSSocket; request: Buffer; end(): Promise<void> };

async function serve(name: string, hasBacklog: boolean): Promise<Served> {
  const data = join(work, name);
  createDataDirectory(data);
  const db = openData(data);
  const { projectId, fillOutbox } = fill(db, `http://127.0.0.1:${await freePort()}/nobody`);
  if (hasBacklog) fillOutbox();
  db.close();
  const port = await freePort();
  const child = await startChild([process.execPath, main, 'serve'], {
    port,
    env: { ASSAY_DATA: data, ASSAY_LISTEN: `127.0.0.1:${port}`, ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8' },
    ready: /assay is serving/,
  });
  const socket = await openSocket(port, readFileSync(join(data, 'tls/ca.pem'), 'utf8'));
  const request = requestBytes(`/projects/${projectId}`, `bench@example.com:${apiKey}`);
  return {
    socket,
    request,
    end: async () => {
      socket.destroy();
      await child.end();
    },
  };
}

async function measureMs({ socket, request }: Served): Promise<number> {
  const startedAt = performance.now();
  await askOnce(socket, request);
  return performance.now() - startedAt;
}

const p99 = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * 0.99)]!;

async function compareDead(): Promise<void> {
  const idle = await serve('idle', false);
  const loaded = await serve('loaded', true);
  for (let count = 0; count < 500; count++) for (const served of [idle, loaded]) await measureMs(served);
  const ratios: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const idleMs: number[] = [];
    const loadedMs: number[] = [];
    // Alternating, so that the load of the machine affects both.
    for (let count = 0; count < requestCount; count++) {
      idleMs.push(await measureMs(idle));
      loadedMs.push(await measureMs(loaded));
    }
    console.log(
      `  p99 ${p99(loadedMs).toFixed(2)} ms with a dead receiver, ${p99(idleMs).toFixed(2)} ms without`,
    );
    ratios.push(p99(loadedMs) / p99(idleMs));
  }
  await idle.end();
  await loaded.end();
  report(`p99 of the API with ${eventCount} events for a dead receiver`, median(ratios), '≤', 1.2);
}

try {
  await compareLive();
  await compareDead();
} finally {
  rmSync(work, { recursive: true });
}
process.exitCode = exitStatus();

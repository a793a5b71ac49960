// The cost of API requests: a record compared with a bare route, a page of a long list compared with a short one, and
// idling. Every figure is a ratio of alternating rounds in one run, so that a busy machine affects both sides.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { databasePath } from '../../src/store/data/paths.ts';
import { createProject } from '../../src/store/projects.ts';
import { freePort } from '../support/ports.ts';
import {
  askOnce,
  type Child,
  cpuMsOf,
  exitStatus,
  installExecutable,
  measureRate,
  median,
  openSocket,
  report,
  requestBytes,
  residentBytesOf,
  startChild,
} from './support.ts';

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '7' },
    'round-ms': { type: 'string', default: '1500' },
  },
});
const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const apiKey = 'assay_benchmark';
const auth = `bench@example.com:${apiKey}`;
const CONNECTIONS = 32;

const series =
  'WITH RECURSIVE series (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < ?)';

/** A data directory with a project that has `rows` build requests, and an owner who has `rows` projects. */
function fill(data: string, rows: number): bigint {
  createDataDirectory(data);
  const db = openData(data);
  const owner = createAccount(db, {
    email: 'bench@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey,
  });
  const make = (name: string) =>
    createProject(db, {
      ownerId: owner.id,
      name,
      description: 'A project of ordinary size.',
      repositoryUrl: `git@example.com:${name}.git`,
      badge: false,
      cancelSuperseded: false,
      keyPair: generateKeyPair('assay'),
    });
  const shown = 200;
  const projectId = db.write(() => {
    // IDs from 1 on are older than all IDs that the service creates.
    db.sqlite
      .prepare(
        `${series} INSERT INTO projects (id, owner_id, name, description, repository_url, build_state, ssh_public_key,
           ssh_private_key, badge, cancel_superseded, created_at)
         SELECT value, ?, 'old-' || value, 'A project of ordinary size.', 'git@example.com:old.git', 'passed',
                zeroblob(160), zeroblob(480), 0, 0, 1700000000000
         FROM series`,
      )
      .run(rows - shown, owner.id);
    const ids = Array.from({ length: shown }, (_, at) => make(`new-${at}`).id);
    db.sqlite
      .prepare(
        `${series} INSERT INTO build_requests (id, project_id, commit_ref, branch, commit_id, build_state, error,
           created_by, created_at, finished_at)
         SELECT value, ?, 'main', 'main', NULL, 'errored', 'no such branch', 'bench@example.com', 1700000000000 + value,
                1700000001000 + value
         FROM series`,
      )
      .run(rows, ids[0]);
    return ids[0] as bigint;
  });
  db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
  db.close();
  return projectId;
}

async function startAssay(executable: string, data: string): Promise<Child & { ca: string }> {
  const port = await freePort();
  const child = await startChild([executable, 'serve'], {
    port,
    env: { ASSAY_DATA: data, ASSAY_LISTEN: `127.0.0.1:${port}` },
    ready: /assay is serving/,
  });
  return { ...child, ca: readFileSync(join(data, 'tls/ca.pem'), 'utf8') };
}

/** Alternates between the two, after one warm-up round each. */
async function alternate(
  rounds: number,
  measureOne: () => Promise<number>,
  measureOther: () => Promise<number>,
): Promise<{ one: number; other: number; ratio: number }> {
  const ones: number[] = [];
  const others: number[] = [];
  for (let round = 0; round <= rounds; round += 1) {
    const one = await measureOne();
    const other = await measureOther();
    if (round === 0) continue;
    ones.push(one);
    others.push(other);
  }
  return {
    one: median(ones),
    other: median(others),
    ratio: median(ones.map((one, at) => one / (others[at] ?? 1))),
  };
}

async function compareRecord(data: string, projectId: bigint, executable: string): Promise<void> {
  const assay = await startAssay(executable, data);
  const barePort = await freePort();
  const tls = ['server.pem', 'server.key'].map(name => join(data, 'tls', name));
  const bare = await startChild(
    [
      process.execPath,
      join(import.meta.dirname, 'support-baseline.ts'),
      databasePath(data),
      ...tls,
      String(barePort),
    ],
    { port: barePort, ready: /ready/ },
  );
  const request = requestBytes(`/projects/${projectId}`, auth);
  const load = async (child: Child) => {
    const sockets = await Promise.all(
      Array.from({ length: CONNECTIONS }, () => openSocket(child.port, assay.ca)),
    );
    const pid = child.process.pid as number;
    const cpu: number[] = [];
    return {
      cpu,
      close: () => {
        for (const socket of sockets) socket.destroy();
      },
      run: async () => {
        const before = cpuMsOf(pid);
        const startedAt = performance.now();
        const rate = await measureRate(sockets, request, Number(options['round-ms']));
        cpu.push((cpuMsOf(pid) - before) / (performance.now() - startedAt));
        return rate;
      },
    };
  };
  const assayLoad = await load(assay);
  const bareLoad = await load(bare);
  const { one, other, ratio } = await alternate(Number(options.rounds), assayLoad.run, bareLoad.run);
  console.log(
    `GET /projects/<id>: ${one.toFixed(0)} requests/s at ${(median(assayLoad.cpu) * 100).toFixed(0)}% of a core; ` +
      `bare route: ${other.toFixed(0)} at ${(median(bareLoad.cpu) * 100).toFixed(0)}% (${CONNECTIONS} connections)`,
  );
  report('record, requests/s, ratio to a bare route', ratio, '≥', 0.6);
  assayLoad.close();
  bareLoad.close();
  await assay.end();
  await bare.end();
}

async function comparePages(sides: { data: string; projectId: bigint }[], executable: string): Promise<void> {
  const servers = await Promise.all(sides.map(({ data }) => startAssay(executable, data)));
  const sockets = await Promise.all(servers.map(({ port, ca }) => openSocket(port, ca)));
  const timePage = (side: number, path: string) => async () => {
    const request = requestBytes(path, auth);
    const times: number[] = [];
    for (let turn = 0; turn < 15; turn += 1) {
      const startedAt = performance.now();
      await askOnce(sockets[side]!, request);
      times.push(performance.now() - startedAt);
    }
    return median(times);
  };
  const lists = {
    'build requests of a project': (side: number) => `/projects/${sides[side]?.projectId}/build_requests`,
    'projects of an owner': () => '/projects',
  };
  for (const [name, path] of Object.entries(lists)) {
    const { one, other, ratio } = await alternate(15, timePage(1, path(1)), timePage(0, path(0)));
    console.log(`${name}: ${one.toFixed(2)} ms of ${options.rows}, ${other.toFixed(2)} ms of 1000`);
    report(`page of ${name}, ratio of long to short`, ratio, '≤', 1.3);
  }
  for (const socket of sockets) socket.destroy();
  for (const server of servers) await server.end();
}

/** From the start of the process to the first answer of /ping. */
async function timeStart(
  executable: string,
  data: string,
  idleMs = 3000,
): Promise<{ startMs: number; rssBytes: number }> {
  const port = await freePort();
  const ca = readFileSync(join(data, 'tls/ca.pem'), 'utf8');
  const startedAt = performance.now();
  const starting = startChild([executable, 'serve'], {
    port,
    env: { ASSAY_DATA: data, ASSAY_LISTEN: `127.0.0.1:${port}` },
    ready: /assay is serving/,
  });
  let startMs = 0;
  while (startMs === 0) {
    try {
      const socket = await openSocket(port, ca);
      await askOnce(socket, requestBytes('/ping', auth));
      socket.destroy();
      startMs = performance.now() - startedAt;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
      await new Promise(resolve => setTimeout(resolve, 2));
    }
  }
  const child = await starting;
  // Idle means that the work of the start-up is done.
  await new Promise(resolve => setTimeout(resolve, idleMs));
  const rssBytes = residentBytesOf(child.process.pid as number);
  await child.end();
  return { startMs, rssBytes };
}

try {
  const executable = await installExecutable(work);
  const rows = Number(options.rows);
  const small = { data: join(work, 'small'), projectId: 0n };
  const large = { data: join(work, 'large'), projectId: 0n };
  small.projectId = fill(small.data, 1000);
  large.projectId = fill(large.data, rows);

  await compareRecord(small.data, small.projectId, executable);
  await comparePages([small, large], executable);
  // After the first start, the server keeps its compiled code for the next ones.
  const first = await timeStart(executable, large.data, 6_000);
  console.log(`/ping after the first start, with ${rows} rows: ${first.startMs.toFixed(0)} ms`);
  const starts = [];
  for (let turn = 0; turn < 5; turn += 1) starts.push(await timeStart(executable, large.data));
  report(`/ping after the start, with ${rows} rows`, median(starts.map(one => one.startMs)), '≤', 400, ' ms');
  report('idle memory', median(starts.map(one => one.rssBytes)) / 1e6, '≤', 120, ' MB');
} finally {
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

// The cost of API requests: reading and creating a record compared with bare routes, a thousand callers compared with one,
// a page of a long list compared with a short one, and idling. Every figure is a ratio of alternating rounds in one run, so
// that a busy machine affects both sides. Names after `scripts/bench api` select parts: record, post, paced, pages, start.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
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
import { monotonicMs } from './support-clock.ts';
import type { Answered, Load } from './support-paced.ts';
import { watchPauses } from './support-pauses.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rows: { type: 'string', default: '1000000' },
    // Short rounds: the speed of a shared machine changes within seconds.
    rounds: { type: 'string', default: '60' },
    'round-ms': { type: 'string', default: '200' },
  },
});
const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const apiKey = 'assay_benchmark';
const auth = `bench@example.com:${apiKey}`;
const CONNECTIONS = 32;
const STARTS = 11;
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);

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

async function startAssay(executable: string, data: string): Promise<Side> {
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

type Side = Child & { ca: string };

/** Starts the bare routes on the data of a server that is running, or of a copy of it. */
async function startBare(data: string, { ca }: Side, publicKey: string): Promise<Side> {
  const port = await freePort();
  const tls = ['server.pem', 'server.key'].map(name => join(data, 'tls', name));
  const child = await startChild(
    [
      process.execPath,
      join(import.meta.dirname, 'support-baseline.ts'),
      databasePath(data),
      ...tls,
      String(port),
      publicKey,
    ],
    { port, ready: /ready/ },
  );
  return { ...child, ca };
}

/** The JSON that a request is answered with. */
async function readResponse({ port, ca }: Side, request: Buffer, status = 200): Promise<string> {
  const socket = await openSocket(port, ca);
  const answer = await askOnce(socket, request, status);
  socket.destroy();
  return answer.toString('utf8', answer.indexOf('\r\n\r\n') + 4);
}

const keyIn = (json: string) =>
  (JSON.parse(json) as { response: { ssh_public_key: string } }).response.ssh_public_key;

/** Sends the same request to both sides on many connections. Prints the rates, and reports their ratio. */
async function compareRates(
  [assay, bare]: [Side, Side],
  { name, request, status, goal }: { name: string; request: Buffer; status: number; goal: number },
): Promise<void> {
  const load = async (side: Side) => {
    const sockets = await Promise.all(
      Array.from({ length: CONNECTIONS }, () => openSocket(side.port, side.ca)),
    );
    const pid = side.process.pid as number;
    const cpu: number[] = [];
    return {
      cpu,
      close: () => {
        for (const socket of sockets) socket.destroy();
      },
      run: async () => {
        const before = cpuMsOf(pid);
        const startedAt = performance.now();
        const rate = await measureRate(sockets, request, Number(options['round-ms']), status);
        cpu.push((cpuMsOf(pid) - before) / (performance.now() - startedAt));
        return rate;
      },
    };
  };
  const assayLoad = await load(assay);
  const bareLoad = await load(bare);
  const { one, other, ratio } = await alternate(Number(options.rounds), assayLoad.run, bareLoad.run);
  console.log(
    `${name}: ${one.toFixed(0)} requests/s at ${(median(assayLoad.cpu) * 100).toFixed(0)}% of a core; ` +
      `bare route: ${other.toFixed(0)} at ${(median(bareLoad.cpu) * 100).toFixed(0)}% (${CONNECTIONS} connections)`,
  );
  report(`${name}, requests/s, ratio to a bare route`, ratio, '≥', goal);
  assayLoad.close();
  bareLoad.close();
  await assay.end();
  await bare.end();
}

async function compareRecord(data: string, projectId: bigint, executable: string): Promise<void> {
  const assay = await startAssay(executable, data);
  const request = requestBytes(`/projects/${projectId}`, auth);
  const json = await readResponse(assay, request);
  const bare = await startBare(data, assay, keyIn(json));
  if ((await readResponse(bare, request)) !== json) throw new Error('the bare route sends another body');
  await compareRates([assay, bare], { name: 'GET of a project', request, status: 200, goal: 0.85 });
}

/** Without workers: they would take the processor from the requests. Each side writes to a file of its own. */
async function comparePost(data: string, projectId: bigint): Promise<void> {
  const [assayData, bareData] = [join(work, 'post'), join(work, 'bare')];
  for (const copy of [assayData, bareData]) cpSync(data, copy, { recursive: true });
  const port = await freePort();
  const app = await startChild(
    [process.execPath, join(import.meta.dirname, 'support-api-app.ts'), assayData, String(port)],
    { port, ready: /ready/ },
  );
  const assay = { ...app, ca: readFileSync(join(assayData, 'tls/ca.pem'), 'utf8') };
  cpSync(join(assayData, 'tls'), join(bareData, 'tls'), { recursive: true });
  const project = await readResponse(assay, requestBytes(`/projects/${projectId}`, auth));
  const bare = await startBare(bareData, assay, keyIn(project));
  const request = requestBytes(`/projects/${projectId}/build_requests`, auth, { commit_ref: 'main' });
  const [ours, theirs] = [await readResponse(assay, request, 201), await readResponse(bare, request, 201)];
  if (ours.length !== theirs.length) throw new Error('the bare route sends a body of another length');
  await compareRates([assay, bare], { name: 'POST of a build request', request, status: 201, goal: 0.7 });
}

const CALLERS = 1_000;
const PACED_SECONDS = 5;
const PACED_ROUNDS = 5;

async function comparePaced(data: string, projectId: bigint, executable: string): Promise<void> {
  const assay = await startAssay(executable, data);
  const script = join(import.meta.dirname, 'support-paced.ts');
  const address = [String(assay.port), join(data, 'tls/ca.pem'), `/projects/${projectId}`, auth];
  const callers = await startChild([process.execPath, script, ...address], {
    port: assay.port,
    ready: /ready/,
    ipc: true,
  });
  const pauses = await watchPauses();
  const measure = async (load: Load) => {
    const signal = AbortSignal.timeout(60_000);
    const answered = once(callers.process, 'message', { signal });
    callers.process.send(load);
    const [answers] = (await answered) as [Answered[]];
    await pauses.read();
    const latencies = answers
      .map(({ fromMs, toMs }) => toMs - fromMs - pauses.within(fromMs, toMs))
      .sort((a, b) => a - b);
    return latencies[Math.floor(latencies.length * 0.99)] as number;
  };
  const { one, other, ratio } = await alternate(
    PACED_ROUNDS,
    () => measure({ callers: CALLERS, paceMs: 1_000, seconds: PACED_SECONDS }),
    () => measure({ callers: 1, paceMs: 10, seconds: PACED_SECONDS }),
  );
  console.log(
    `GET of a project, p99: ${one.toFixed(2)} ms with ${CALLERS} callers, each one request per second; ${other.toFixed(2)} ms with one caller`,
  );
  report(`p99 with ${CALLERS} paced callers, ratio to one caller`, ratio, '≤', 2);
  await callers.end();
  await pauses.end();
  await assay.end();
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
  idleMs: number,
): Promise<{ fromMs: number; startMs: number; rssBytes: number }> {
  const port = await freePort();
  const ca = readFileSync(join(data, 'tls/ca.pem'), 'utf8');
  const starting = startChild([executable, 'serve'], {
    port,
    env: { ASSAY_DATA: data, ASSAY_LISTEN: `127.0.0.1:${port}` },
    ready: /assay is serving/,
  });
  // Not before: the kernel copies the memory map of this large process for the new one.
  const fromMs = monotonicMs();
  const socket = await openSocket(port, ca, await untilListening(port));
  await askOnce(socket, requestBytes('/ping', auth));
  const startMs = monotonicMs() - fromMs;
  socket.destroy();
  const child = await starting;
  await new Promise(resolve => setTimeout(resolve, idleMs));
  const rssBytes = residentBytesOf(child.process.pid as number);
  await child.end();
  return { fromMs, startMs, rssBytes };
}

/** The first connection that the port accepts. Trying costs little, so that it does not slow the start down. */
async function untilListening(port: number): Promise<Socket> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
    }
    await new Promise(resolve => setTimeout(resolve, 2));
  }
}

/** Shows how fast the machine is at the moment: the limit of the start is not a ratio. */
async function timeBareStart(): Promise<number> {
  const child = spawn(process.execPath, ['--eval', '']);
  const startedAt = performance.now();
  await once(child, 'exit');
  return performance.now() - startedAt;
}

try {
  const needsExecutable = ['record', 'paced', 'pages', 'start'].some(wanted);
  const executable = needsExecutable ? await installExecutable(work) : '';
  const rows = Number(options.rows);
  const small = { data: join(work, 'small'), projectId: 0n };
  const large = { data: join(work, 'large'), projectId: 0n };
  small.projectId = fill(small.data, 1000);
  if (wanted('pages') || wanted('start')) large.projectId = fill(large.data, rows);

  if (wanted('record')) await compareRecord(small.data, small.projectId, executable);
  if (wanted('post')) await comparePost(small.data, small.projectId);
  if (wanted('paced')) await comparePaced(small.data, small.projectId, executable);
  if (wanted('pages')) await comparePages([small, large], executable);
  if (wanted('start')) {
    // Creates the certificate, which a connection needs.
    await (await startAssay(executable, large.data)).end();
    // After some seconds, the server keeps its compiled code for the next starts.
    const first = await timeStart(executable, large.data, 6_000);
    console.log(
      `/ping after a start without compiled code, with ${rows} rows: ${first.startMs.toFixed(0)} ms`,
    );
    const pauses = await watchPauses();
    const starts: number[] = [];
    const bare: number[] = [];
    let paused = 0;
    while (starts.length < STARTS) {
      const { fromMs, startMs } = await timeStart(executable, large.data, 1_000);
      bare.push(await timeBareStart());
      await pauses.read();
      if (paused < STARTS && pauses.within(fromMs, fromMs + startMs) > 0) paused += 1;
      else starts.push(startMs);
    }
    await pauses.end();
    console.log(
      `a bare Node process starts and ends in ${median(bare).toFixed(0)} ms; ${paused} starts are not counted, because the machine was paused`,
    );
    // V8 returns the memory of the start-up after half a minute.
    const idle = await timeStart(executable, large.data, 45_000);
    report(`/ping after the start, with ${rows} rows`, median(starts), '≤', 250, ' ms');
    report('idle memory', idle.rssBytes / 1e6, '≤', 95, ' MB');
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

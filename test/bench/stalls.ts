// The longest stall of the event loop during one user's large request: a real server with 1,000 waiting projects, 1,000
// suites in one project and 2,000 builds in one request. Each figure covers the work to its end, including all batches.
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Agent, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { retryDelaysMs } from '../../src/domain/webhook/retry.ts';
import { newSigningSecret } from '../../src/domain/webhook/signature.ts';
import { createAccount, createSession } from '../../src/store/accounts.ts';
import {
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  recordCommit,
} from '../../src/store/builds.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import type { Db } from '../../src/store/database/db.ts';
import { packDecisions } from '../../src/store/database/packed-decisions.ts';
import { createNotification } from '../../src/store/notifications.ts';
import { createProject, type Project } from '../../src/store/projects.ts';
import { createRule, createSuite } from '../../src/store/suites.ts';
import { moveRequest } from '../../src/store/transition.ts';
import { programPath } from '../cli/program.ts';
import { addReport, reported } from '../store/result/reported.ts';
import { commitFields } from '../support/app.ts';
import { freePort } from '../support/ports.ts';
import { createRepository } from '../support/repository.ts';
import { startSshd } from '../support/sshd.ts';
import { exitStatus, report, startChild, untilCodeIsKept } from './support.ts';
import { describe, type LongestStall, longestStall, watchPauses } from './support-pauses.ts';

const { values: options, positionals: chosen } = parseArgs({
  allowPositionals: true,
  options: {
    projects: { type: 'string', default: '1000' },
    suites: { type: 'string', default: '1000' },
    builds: { type: 'string', default: '2000' },
    requests: { type: 'string', default: '1000' },
    seconds: { type: 'string', default: '15' },
    profile: { type: 'string' },
  },
});
const PROJECTS = Number(options.projects);
const SUITES = Number(options.suites);
const BUILDS = Number(options.builds);
const REQUESTS = Number(options.requests);
const ROUNDS = 3;
const GOAL_MS = 50;
const DEADLINE_MS = 300_000;
const COMMITS_SHOWN = 25;
const FILES_CHANGED = 50;
const RULES = 2;
const PASSED = 5;
const OLD_ROWS = 200_000;
const TESTS = 100_000;
const FAILING_EVERY = 50;
const isChosen = (name: string) => chosen.length === 0 || chosen.includes(name);

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
const series =
  'WITH RECURSIVE series (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < ?)';

const data = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const sshd = await startSshd();
const keyPair = generateKeyPair('bench');
sshd.addKey(keyPair.publicKey);
createRepository(join(sshd.repositoriesDirectory, 'bench.git'), [
  {
    message: 'First\n',
    files: Object.fromEntries(
      Array.from({ length: FILES_CHANGED }, (_, at) => [
        `source/of/the/program/file-number-${at}.c`,
        `${at}\n`,
      ]),
    ),
  },
]);
const receiver = createServer((incoming, outgoing) => {
  incoming.resume().on('end', () => outgoing.end('ok'));
}).listen(0, '127.0.0.1');
await once(receiver, 'listening');
const receiverUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;

mkdirSync(join(data, 'ssh'), { mode: 0o700 });
writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
createDataDirectory(data);
const db = openData(data);
const world = db.write(() => fill(db));
const tested = await fillTests();
db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
console.log(
  `${PROJECTS} waiting projects, ${SUITES} suites with ${RULES} rules each, ${BUILDS} builds in one request, ` +
    `${REQUESTS} old requests of ${SUITES} builds; database ${(databaseBytes() / 1e6).toFixed(0)} MB`,
);

const port = await freePort();
const server = await startChild(
  [
    process.execPath,
    ...(options.profile ? ['--cpu-prof', `--cpu-prof-dir=${options.profile}`] : []),
    '--import',
    join(import.meta.dirname, 'support-stall-meter.ts'),
    await programPath(),
    'serve',
  ],
  {
    port,
    ipc: true,
    ready: /assay is serving/,
    env: {
      ASSAY_DATA: data,
      ASSAY_LISTEN: `127.0.0.1:${port}`,
      ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8',
      ASSAY_MIN_FREE_DISK: '1MiB',
      // Jobs that wait for a container keep waiting.
      DOCKER_HOST: `unix://${data}/no-docker.sock`,
    },
  },
);
const pauses = await watchPauses();
const agent = new Agent({ keepAlive: true, ca: readFileSync(join(data, 'tls/ca.pem'), 'utf8') });

try {
  if (isChosen('prune'))
    await stall(`retention of ${OLD_ROWS} events and as many deliveries`, () =>
      until(() => count(`SELECT count(*) FROM events WHERE id <= ${OLD_ROWS}`) === 0),
    );
  await untilCodeIsKept(data);
  // One warm-up each, for compilation and caches.
  await ask('GET', '/ping');
  await ask('GET', `/projects/${world.wide.id}/suites?limit=1`);
  await sleep(2_000);
  await stall('nothing (baseline)', () => sleep(2_000));

  if (isChosen('list')) {
    await stall(
      `list of ${SUITES} waiting builds`,
      () => ask('GET', `/projects/${world.queued.id}/commits/${world.queuedCommit}/builds?limit=1000`),
      ROUNDS,
    );
    await stall(`list of ${PROJECTS} projects`, () => ask('GET', '/projects?limit=1000'), ROUNDS);
    await stall(
      'one waiting build',
      () => ask('GET', `/projects/${world.queued.id}/builds/${world.queuedBuild}`),
      ROUNDS,
    );
    await stall(
      `why ${SUITES} suites run`,
      () => ask('GET', `/projects/${world.wide.id}/commits/${world.decidedCommit}/suites`),
      ROUNDS,
    );
  }
  if (isChosen('pages'))
    for (const [name, path, mostBytes] of pages()) {
      let bytes = 0;
      await stall(
        name,
        async () => {
          bytes = (await ask('GET', path)).length;
        },
        ROUNDS,
      );
      report(`${name}, size`, bytes / 1000, '≤', mostBytes / 1000, ' kB');
    }
  if (isChosen('cancel'))
    await stall(
      `cancel of a request with ${BUILDS} builds`,
      async round => {
        const id = world.canceled[round] as bigint;
        await ask('POST', `/projects/${world.queued.id}/build_requests/${id}/cancel`);
        await until(() => requestState(id) === 'canceled');
        await until(() => pendingDeliveries() === 0);
      },
      ROUNDS,
    );
  if (isChosen('begin')) {
    const before = databaseBytes();
    let took = 0;
    await stall(`request of ${SUITES} suites, with a webhook`, async () => {
      const startedAt = performance.now();
      await ask('POST', `/projects/${world.wide.id}/build_requests`, { commit_ref: 'main' });
      await until(
        () =>
          count(
            `SELECT count(*) FROM builds WHERE project_id = ${world.wide.id} AND build_state = 'enqueued'`,
          ) === SUITES,
      );
      await until(() => pendingDeliveries() === 0);
      took = performance.now() - startedAt;
    });
    console.log(`  until everything was delivered: ${took.toFixed(0)} ms`);
    report('what it adds to the database', (databaseBytes() - before) / 1e6, '≤', 10, ' MB');
  }
  if (isChosen('fetch')) {
    const waiting = () => count("SELECT count(*) FROM build_requests WHERE build_state = 'enqueued'");
    db.write(() => {
      for (const project of world.many) createBuildRequest(db, project, 'main', 'bench@example.com');
    });
    const ms = Number(options.seconds) * 1000;
    let fetched = 0;
    await stall(`fetches of ${PROJECTS} waiting projects`, async () => {
      // The periodic check that finds them, every five seconds.
      await until(() => waiting() < PROJECTS);
      const before = waiting();
      await sleep(ms);
      fetched = before - waiting();
    });
    console.log(`  ${((fetched * 1000) / ms).toFixed(1)} fetches/s`);
    db.write(() => {
      db.sqlite
        .prepare("UPDATE build_requests SET build_state = 'canceled' WHERE build_state = 'enqueued'")
        .run();
    });
  }
  if (isChosen('receiver'))
    await stall('delete of a receiver with 100,000 pending deliveries', async () => {
      await ask('DELETE', `/projects/${world.full.id}/notifications/${world.fullReceiver}`);
      await until(
        () => count(`SELECT count(*) FROM deliveries WHERE notification_id = ${world.fullReceiver}`) === 0,
      );
    });
  if (isChosen('delete')) {
    let answeredMs = 0;
    const startedAt = performance.now();
    await stall(`delete of a project with ${REQUESTS} requests of ${SUITES} builds`, async () => {
      await ask('DELETE', `/projects/${world.deep.id}`);
      answeredMs = performance.now() - startedAt;
      await until(() => count(`SELECT count(*) FROM projects WHERE id = ${world.deep.id}`) === 0);
    });
    console.log(
      `  answered after ${answeredMs.toFixed(0)} ms, purged after ${(performance.now() - startedAt).toFixed(0)} ms`,
    );
  }
} finally {
  agent.destroy();
  receiver.close();
  receiver.closeAllConnections();
  await server.end();
  await pauses.end();
  db.close();
  await sshd.close();
  rmSync(data, { recursive: true, force: true });
}
process.exitCode = exitStatus();

function pages(): [name: string, path: string, mostBytes: number][] {
  const wide = `/ui/projects/${world.wide.id}`;
  const results = `/projects/${tested.project}`;
  const mostBytes = 1_000_000;
  return [
    [`page of a project with ${SUITES} suites`, wide, mostBytes],
    ['page of its suites', `${wide}/suites`, mostBytes],
    ['page of its suites with a dry run', `${wide}/suites?commit=${world.decidedCommit}`, mostBytes],
    ['page of a commit', `${wide}/commits/${world.decidedCommit}`, mostBytes],
    ['page of a build', `${wide}/builds/${world.wideBuild}`, mostBytes],
    [`page of a build with ${TESTS} tests`, `/ui${results}/builds/${tested.build}`, mostBytes],
    ['page of its tests', `/ui${results}/builds/${tested.build}/tests`, mostBytes],
    ['page of its changes', `/ui${results}/builds/${tested.build}/changes`, mostBytes],
    ['page of the tests of its suite', `/ui${results}/suites/${tested.suite}/tests`, mostBytes],
    ['page of one of its tests', `/ui${results}/tests/${tested.test}`, mostBytes],
    ['page of flaky tests', `/ui${results}/flaky`, mostBytes],
    ['list of its tests', `${results}/builds/${tested.build}/tests?limit=1000`, mostBytes],
    ['list of the tests of its suite', `${results}/suites/${tested.suite}/tests?limit=1000`, mostBytes],
    ['page of the queue', '/ui/admin', mostBytes],
    ['page of projects', '/ui/projects', mostBytes],
    ['page of projects, filtered', '/ui/projects?q=many', 2 * mostBytes],
  ];
}

/** Two builds of a suite with many tests, so that there is something to compare. */
async function fillTests() {
  const project = world.queued;
  const suite = createSuite(db, {
    projectId: project.id,
    name: 'tests',
    description: '',
    command: 'true',
    image: null,
  });
  const tests = (at: number) =>
    Array.from({ length: TESTS }, (_, test) =>
      reported(`test_total_with_discount_${test}`, (test + at) % FAILING_EVERY === 0 ? 'failed' : 'passed', {
        classname: `com.example.shop.module${Math.floor(test / 100)}.CartTest`,
        durationMs: test % 1_000,
      }),
    );
  await addReport(db, project, suite.id, tests(0));
  const { id: build } = await addReport(db, project, suite.id, tests(1));
  const test = db.sqlite.prepare('SELECT id FROM tests WHERE suite_id = ? LIMIT 1').pluck().get(suite.id);
  return { project: project.id, suite: suite.id, build, test: test as bigint };
}

/**
 * Runs the work and checks the longest stall of the server during it. Repeatable work runs a few times and the best run
 * counts, because the load of the machine varies.
 */
async function stall(name: string, work: (round: number) => Promise<unknown>, rounds = 1): Promise<void> {
  const stalls: LongestStall[] = [];
  for (let round = 0; round < rounds; round += 1) {
    await longestStall(server.process, pauses);
    await work(round);
    stalls.push(await longestStall(server.process, pauses));
  }
  const { ms, cpuMs, pausedMs } = stalls.reduce((best, one) => (one.ms < best.ms ? one : best));
  report(`${name}, longest stall`, ms, '≤', GOAL_MS, ' ms');
  console.log(`  ${describe({ ms, cpuMs, pausedMs })}`);
}

function ask(method: string, path: string, form?: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        agent,
        host: '127.0.0.1',
        port,
        method,
        path,
        timeout: DEADLINE_MS,
        headers: path.startsWith('/ui')
          ? { cookie: `__Host-assay-session=${world.session}` }
          : {
              authorization: `Basic ${Buffer.from('bench@example.com:assay_benchmark').toString('base64')}`,
              'content-type': 'application/x-www-form-urlencoded',
            },
      },
      answer => {
        let text = '';
        answer.setEncoding('utf8').on('data', part => {
          text += part;
        });
        answer.on('end', () =>
          (answer.statusCode ?? 500) < 300
            ? resolve(text)
            : reject(new Error(`${method} ${path}: ${answer.statusCode} ${text.slice(0, 300)}`)),
        );
      },
    );
    outgoing.on('error', reject);
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no response to ${method} ${path}`)));
    outgoing.end(form && new URLSearchParams(form).toString());
  });
}

async function until(isDone: () => boolean): Promise<void> {
  const endsAt = performance.now() + DEADLINE_MS;
  while (!isDone()) {
    if (performance.now() > endsAt) throw new Error(`timed out waiting for ${isDone}`);
    await sleep(20);
  }
}

function count(words: string): number {
  return Number(db.sqlite.prepare(words).pluck().get());
}

/** Without those of the receiver that will be deleted. */
function pendingDeliveries(): number {
  return count(
    `SELECT count(*) FROM deliveries WHERE state = 'pending' AND notification_id <> ${world.fullReceiver}`,
  );
}

function requestState(id: bigint): unknown {
  return db.sqlite.prepare('SELECT build_state FROM build_requests WHERE id = ?').pluck().get(id);
}

/** Without free pages. */
function databaseBytes(): number {
  const pages = (name: string) => Number(db.sqlite.pragma(name, { simple: true }));
  return (pages('page_count') - pages('freelist_count')) * pages('page_size');
}

function fill(db: Db) {
  const owner = createAccount(db, {
    email: 'bench@example.com',
    kind: 'user',
    admin: true,
    passwordHash: null,
    apiKey: 'assay_benchmark',
  });
  const project = (name: string) =>
    createProject(db, {
      ownerId: owner.id,
      name,
      description: 'A project of ordinary size.',
      repositoryUrl: sshd.urlFor('bench.git'),
      badge: false,
      cancelSuperseded: false,
      keyPair,
    });
  const hook = ({ id }: Project) =>
    createNotification(db, {
      projectId: id,
      name: 'webhook',
      notifiableType: 'build',
      url: receiverUrl,
      signingSecret: newSigningSecret(),
    });
  let commits = 0;
  const begin = (of: Project, decisions: Parameters<typeof enqueueBuilds>[4]) => {
    const { id } = createBuildRequest(db, of, 'main', 'bench@example.com');
    moveRequest(db, id, 'fetch');
    const commit = recordCommit(db, of.id, commitFields(`${++commits}`.padStart(40, 'a')));
    enqueueBuilds(db, id, commit, 'main', decisions);
    while (enqueueSomeBuilds(db));
    return { requestId: id, commitId: commit.id };
  };
  const suiteOf = (at: number) => ({
    suiteId: BigInt(at + 1),
    suiteName: `suite ${at}`,
    runs: true,
    rules: [],
  });
  const firstBuild = (commitId: bigint) =>
    db.sqlite.prepare('SELECT min(id) FROM builds WHERE commit_id = ?').pluck().get(commitId) as bigint;

  const deep = project('deep');
  fillHistory(db, deep);

  const wide = project('wide');
  const suites = Array.from({ length: SUITES }, (_, at) => {
    const suite = createSuite(db, {
      projectId: wide.id,
      name: `Suite number ${at}`,
      description: '',
      command: 'make check',
      image: null,
    });
    for (let rule = 0; rule < RULES; rule += 1)
      createRule(db, { suiteId: suite.id, subject: 'commit.files', operator: 'matches', value: '**/*.c' });
    return suite;
  });
  const files = Array.from({ length: FILES_CHANGED }, (_, at) => `source/of/the/program/file-number-${at}.c`);
  const rules = Array.from({ length: RULES }, () => ({
    subject: 'commit.files' as const,
    operator: 'matches' as const,
    value: '**/*.c',
    holds: true,
    saw: files,
  }));
  let decided = { commitId: 0n, requestId: 0n };
  for (let shown = 0; shown < COMMITS_SHOWN; shown += 1)
    decided = begin(
      wide,
      suites.map(suite => ({ suiteId: suite.id, suiteName: suite.name, runs: true, rules })),
    );
  const end = "build_state = 'passed', finished_at = created_at + 2000";
  db.sqlite.prepare(`UPDATE builds SET started_at = created_at, ${end} WHERE project_id = ?`).run(wide.id);
  for (const table of ['build_requests', 'commits'])
    db.sqlite.prepare(`UPDATE ${table} SET build_state = 'passed' WHERE project_id = ?`).run(wide.id);
  hook(wide);

  const queued = project('queued');
  const queuedSuites = Array.from({ length: SUITES }, (_, at) => suiteOf(at));
  // Estimates are made of these.
  for (let passed = 0; passed < PASSED; passed += 1) begin(queued, queuedSuites);
  db.sqlite.prepare(`UPDATE builds SET started_at = created_at, ${end} WHERE project_id = ?`).run(queued.id);
  const waiting = begin(queued, queuedSuites);
  const many = Array.from({ length: PROJECTS }, (_, at) => project(`many ${at}`));
  for (const one of many) begin(one, [suiteOf(0)]);
  const canceled = Array.from(
    { length: ROUNDS },
    () =>
      begin(
        queued,
        Array.from({ length: BUILDS }, (_, at) => suiteOf(at)),
      ).requestId,
  );
  hook(queued);

  const full = project('full');
  const fullReceiver = hook(full).id;
  fillOutbox(db, fullReceiver);
  if (isChosen('prune')) fillOldEvents(db, full, fullReceiver);
  return {
    session: createSession(db, owner.id),
    deep,
    wide,
    wideBuild: firstBuild(decided.commitId),
    decidedCommit: decided.commitId,
    queued,
    queuedCommit: waiting.commitId,
    queuedBuild: firstBuild(waiting.commitId),
    many,
    canceled,
    full,
    fullReceiver,
  };
}

/** Old requests, each with a commit, its builds and its rule decisions. IDs from 1 on are older than all others. */
function fillHistory(db: Db, { id }: Project): void {
  const run = (words: string, ...values: unknown[]) => db.sqlite.prepare(words).run(...values);
  run(
    `${series} INSERT INTO commits (id, project_id, version, ref, build_state, message, author_name, author_email,
       authored_date, committer_name, committer_email, committed_date, branches, tags, files)
     SELECT value, ?, 1, printf('%040d', value), 'passed', 'A change', 'A', 'a@example.com', '2026-01-01T00:00:00Z',
       'A', 'a@example.com', '2026-01-01T00:00:00Z', '["main"]', '[]', '[]' FROM series`,
    REQUESTS,
    id,
  );
  run(
    `${series} INSERT INTO build_requests (id, project_id, commit_ref, branch, commit_id, build_state, created_by,
       created_at, finished_at)
     SELECT value, ?, 'main', 'main', value, 'passed', 'bench@example.com', 1700000000000, 1700000001000 FROM series`,
    REQUESTS,
    id,
  );
  run(
    `${series} INSERT INTO builds (id, project_id, build_request_id, commit_id, commit_ref, suite_id, suite_name,
       build_state, exit_code, attempts, created_at, started_at, finished_at)
     SELECT value, ?, 1 + (value - 1) / ${SUITES}, 1 + (value - 1) / ${SUITES}, printf('%040d', value / ${SUITES}),
       1 + value % ${SUITES}, 'suite', 'passed', 0, 1, 1700000000000, 1700000000000, 1700000001000 FROM series`,
    REQUESTS * SUITES,
    id,
  );
  run(
    `${series} INSERT INTO request_decisions SELECT value, ?, NULL FROM series`,
    REQUESTS,
    packDecisions(
      Array.from({ length: SUITES }, (_, at) => ({
        suiteId: BigInt(at + 1),
        suiteName: 'suite',
        runs: true,
        rules: [],
      })),
    ),
  );
}

/** With many attempts and due in ten minutes, so that nothing is sent meanwhile. */
function fillOutbox(db: Db, receiverId: bigint): void {
  db.sqlite
    .prepare(
      `${series} INSERT INTO deliveries (id, notification_id, event_id, event_type, resource_id, state, attempts,
         next_attempt_at, created_at)
       SELECT value, ?, -value, 'ping', value, 'pending', ?, ?, 1700000000000 FROM series`,
    )
    .run(100_000, receiverId, retryDelaysMs.length, Date.now() + 600_000);
}

/** Old events, each with a successful delivery. */
function fillOldEvents(db: Db, { id }: Project, receiverId: bigint): void {
  db.sqlite
    .prepare(
      `${series} INSERT INTO events (id, project_id, type, resource_id, body, created_at)
       SELECT value, ?, 'build.finished', value, printf('%1500d', value), 1700000000000 FROM series`,
    )
    .run(OLD_ROWS, id);
  db.sqlite
    .prepare(
      `${series} INSERT INTO deliveries (id, notification_id, event_id, event_type, resource_id, state, attempts, created_at)
       SELECT value + 1000000, ?, value, 'build.finished', value, 'delivered', 1, 1700000000000 FROM series`,
    )
    .run(OLD_ROWS, receiverId);
}

// The data of the benchmark of scale: an installation of a given size, with a project that has many suites and builds, and
// one of ordinary size. Both have at least one record of every kind, so that every page and endpoint has something to show.
import { hash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { idAt } from '../../src/domain/id.ts';
import { inputsDigest } from '../../src/domain/result/build-inputs.ts';
import { createResultTable, setResult } from '../../src/domain/result/comparison.ts';
import { toErrorLine } from '../../src/domain/result/error-line.ts';
import { createTestKeys } from '../../src/domain/result/test-identity.ts';
import type { TestCounts } from '../../src/domain/result/test-result.ts';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { createAccount, createSession, createSignInLink, updateAccount } from '../../src/store/accounts.ts';
import { createApplication } from '../../src/store/applications.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { buildLogPath, deployLogPath, snapshotPath } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { packDecisions } from '../../src/store/database/packed-decisions.ts';
import { createProject } from '../../src/store/projects.ts';
import { packResults } from '../../src/store/result/packed-results.ts';
import { createSuite } from '../../src/store/suites.ts';
import { createWallLink } from '../../src/store/wall-links.ts';
import { createFixture, type Fixture, type Planted } from '../support/app.ts';
import { storeArtifact } from '../support/dependency-artifact.ts';
import { finish } from '../support/steps.ts';

type ProjectSize = {
  commits: number;
  suites: number;
  /** How many suites ran for a commit that has this many newer ones. */
  suitesRun(newer: number): number;
  /** Every how many builds one fails. */
  failingEvery?: number;
  /** The branch of four commits of five. The others are on main. */
  branch?: string;
};
export type Size = {
  projects: number;
  eventsPerBuild: number;
  wide: ProjectSize;
  ordinary: ProjectSize;
  others: ProjectSize;
  /** A project that is deleted later. */
  deleted: ProjectSize | undefined;
};

const all = (suites: number) => () => suites;

/**
 * The small installation has enough rows to fill the first page of every list, also with a filter, the statistics of the
 * latest builds of a suite, and the picture of the latest requests of each project. Most of these ran one suite or none.
 */
export const sizes: Record<'small' | 'large', Size> = {
  small: {
    projects: 100,
    eventsPerBuild: 10,
    wide: {
      commits: 96,
      suites: 200,
      suitesRun: newer => (newer === 0 ? 200 : newer < 33 ? 16 : 1),
      failingEvery: 16,
      branch: 'feature-4',
    },
    ordinary: { commits: 70, suites: 3, suitesRun: newer => (newer < 27 ? 3 : 1) },
    others: { commits: 12, suites: 1, suitesRun: newer => (newer === 0 ? 1 : 0) },
    deleted: undefined,
  },
  large: {
    projects: 1_000,
    eventsPerBuild: 10,
    wide: { commits: 3_100, suites: 200, suitesRun: all(200) },
    ordinary: { commits: 96, suites: 3, suitesRun: all(3) },
    others: { commits: 96, suites: 3, suitesRun: all(3) },
    deleted: { commits: 2_000, suites: 50, suitesRun: all(50) },
  },
};

/** What the benchmark needs to know of an installation. Ids are text. */
export type Installation = {
  size: string;
  seededAt: number;
  email: string;
  key: string;
  session: string;
  /** Values of the parameters of paths. */
  wide: Record<string, string>;
  ordinary: Record<string, string>;
  deleted: string | undefined;
  /** Queries of pages that show little without one. */
  queries: Record<string, string>;
};

const DAY_MS = 24 * 3600_000;
/** Shorter than any retention, so that nothing expires while the benchmark runs or the directory is kept for a while. */
const SPAN_MS = 14 * DAY_MS;
const KEPT_MS = 7 * DAY_MS;
const TESTS_PER_SUITE = 20;
const FAILING_EVERY = 50;
const LOGS = 100;
const FIRINGS_PER_COMMIT = 16;
/** Ids of builds leave space for those of their events, deliveries and artifacts. */
const ID_STEP = 64n;
const keyPair = generateKeyPair('assay');

/** Creates the installation, or returns the one that is there and was made with the same size a short while ago. */
export async function openInstallation(data: string, size: Size): Promise<Installation> {
  const path = `${data}.json`;
  const sizeText = JSON.stringify({ size, wide: size.wide.suitesRun(0), span: SPAN_MS });
  if (existsSync(path)) {
    const known = JSON.parse(readFileSync(path, 'utf8')) as Installation;
    if (known.size === sizeText && known.seededAt > Date.now() - KEPT_MS) {
      if (size.deleted) restoreDeleted(data, known, size.deleted, size.eventsPerBuild);
      writeFileSync(path, JSON.stringify(known));
      return known;
    }
  }
  rmSync(path, { force: true });
  rmSync(data, { recursive: true, force: true });
  mkdirSync(data, { recursive: true, mode: 0o700 });
  const made = { ...(await create(data, size)), size: sizeText };
  writeFileSync(path, JSON.stringify(made));
  return made;
}

async function create(data: string, size: Size): Promise<Omit<Installation, 'size'>> {
  createDataDirectory(data);
  const db = openData(data);
  const fixture = createFixture(db, data);
  const { owner, collaborator } = fixture.people;
  updateAccount(db, owner.account.id, { admin: true });
  const wide = await plantProject(fixture);
  const ordinary = await plantProject(fixture);
  const others = size.projects - 2 - (size.deleted ? 1 : 0);
  const plans = db.write(() => [
    planProject(db, wide.project_id, size.wide, wide),
    planProject(db, ordinary.project_id, size.ordinary, ordinary),
    ...Array.from({ length: others }, (_, at) => {
      const id = addProject(db, owner.account.id, `Service ${at}`);
      return planProject(db, id, size.others);
    }),
  ]);
  const deleted = size.deleted && addDeleted(db, owner.account.id, size.deleted);
  const queries = {
    '/oauth2/authorize': authorizeQuery(db, owner.account.id),
    '/ui/welcome': `?link=${inviteLink(db)}`,
  };
  const session = createSession(db, owner.account.id);
  const wallToken = createWallLink(db, owner.account.id, 'Screen in the kitchen');
  fillInBulk(db, () => fill(db, [...plans, ...(deleted ? [deleted] : [])], size.eventsPerBuild));
  db.sqlite.exec(`
    UPDATE artifact_sums SET (builds, size_bytes) =
      (SELECT count(*), sum(artifacts_bytes) FROM builds WHERE artifacts > 0);
    UPDATE tests SET first_build_id = (SELECT min(id) FROM builds WHERE suite_id = tests.suite_id AND local = 0);
    UPDATE tests SET flaky_failed_build_id = first_build_id, flaky_passed_build_id = first_build_id
      WHERE flaky_at IS NOT NULL`);
  const newest = db.sqlite.prepare('SELECT id FROM builds ORDER BY id DESC LIMIT ?').pluck();
  for (const id of newest.all(LOGS)) writeFileSync(buildLogPath(data, id as bigint), logText());
  const parametersOf = (planted: Planted) => {
    const { used_dependency_id, ...ids } = planted;
    return {
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, String(id)])),
      ...newestOf(db, data, planted),
      dependency_id: String(used_dependency_id),
      account: String(collaborator.account.id),
      topic: 'webhooks',
      wall_token: wallToken,
    };
  };
  const made = {
    seededAt: Date.now(),
    email: owner.account.email,
    key: owner.key,
    session,
    wide: parametersOf(wide),
    ordinary: parametersOf(ordinary),
    deleted: deleted && String(deleted.projectId),
    queries,
  };
  db.close();
  return made;
}

/** The project that an earlier run has deleted. */
function restoreDeleted(data: string, known: Installation, size: ProjectSize, eventsPerBuild: number): void {
  const db = openData(data);
  const find = db.sqlite.prepare('SELECT count(*) FROM builds WHERE project_id = ?').pluck();
  const builds = Number(find.get(BigInt(known.deleted ?? 0)));
  if (builds < size.commits * size.suites) {
    const ownerId = db.sqlite.prepare('SELECT owner_id FROM projects WHERE id = ?').pluck();
    const plan = addDeleted(db, ownerId.get(BigInt(known.wide.project_id ?? 0)) as bigint, size);
    // Other rows may have ids of the same times.
    fill(db, [plan], eventsPerBuild, 1n << 20n);
    known.deleted = String(plan.projectId);
  }
  db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
  db.close();
}

const addDeleted = (db: Db, ownerId: bigint, size: ProjectSize) =>
  db.write(() => planProject(db, addProject(db, ownerId, `Old service ${Date.now()}`), size));

/** One record of every kind, none of which a worker has to do anything for. */
async function plantProject(fixture: Fixture): Promise<Planted> {
  const { db, data } = fixture;
  const planted = fixture.plant();
  await fixture.writeLog(planted.build_id, logText());
  writeFileSync(deployLogPath(data, planted.deploy_id), 'pushing\n');
  mkdirSync(snapshotPath(data, planted.snapshot_id));
  await fixture.writeCompileLog(planted.used_dependency_id, 'checking for gcc\n');
  await storeArtifact(fixture, planted.used_dependency_id, [
    { path: 'bin', type: 'directory', mode: 0o755 },
    { path: 'bin/tool', type: 'file', mode: 0o755, content: '#!/bin/sh\n' },
  ]);
  db.write(() => {
    const run = (words: string, ...values: unknown[]) => db.sqlite.prepare(words).run(...values);
    run(
      "UPDATE deploys SET state = 'deployed', deploy_started_at = created_at, deploy_finished_at = created_at",
    );
    run("UPDATE deliveries SET state = 'delivered', attempts = 1, next_attempt_at = NULL");
    run('UPDATE projects SET badge = 1 WHERE id = ?', planted.project_id);
    run("UPDATE dependencies SET compile_state = 'uncompiled' WHERE id = ?", planted.free_dependency_id);
  });
  return planted;
}

function addProject(db: Db, ownerId: bigint, name: string): bigint {
  const { id } = createProject(db, {
    ownerId,
    name,
    description: 'A service of ordinary size.',
    repositoryUrl: 'git@git.invalid:team/website.git',
    badge: false,
    cancelSuperseded: false,
    keyPair,
  });
  return id;
}

type Plan = {
  projectId: bigint;
  size: ProjectSize;
  suites: { id: bigint; name: string; inputs: string; digest: string; testIds: bigint[] }[];
  notificationId: bigint | undefined;
  triggerId: bigint | undefined;
  strategyId: bigint | undefined;
};

/** Creates the suites of a project with their tests and caches. */
function planProject(db: Db, projectId: bigint, size: ProjectSize, planted?: Planted): Plan {
  const insertTest = db.sqlite.prepare(
    `INSERT INTO tests (id, project_id, suite_id, number, key, classname, name, file, first_build_id, seen_at, flaky_at,
       flaky_failed_build_id, flaky_passed_build_id, flaky_runs)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, NULL, NULL, 0)`,
  );
  const insertCache = db.sqlite.prepare(
    'INSERT INTO caches (suite_id, generation, size_bytes, measured_at, used_at) VALUES (?, 1, ?, ?, ?)',
  );
  const suites = Array.from({ length: size.suites }, (_, at) => {
    const command = `make check-${at}`;
    const name = at === 0 && planted ? 'Unit tests' : `Suite ${at}`;
    const id =
      at === 0 && planted
        ? planted.suite_id
        : createSuite(db, { projectId, name, description: '', command, image: null }).id;
    insertCache.run(id, 1_000_000 + at, db.now(), db.now());
    const keyOf = createTestKeys();
    const testIds = Array.from({ length: TESTS_PER_SUITE }, (_, test) => {
      const testId = db.newId();
      const names = { classname: `shop.Cart${at}Test`, name: `totals with discount ${test}` };
      // The planted project has a test with number 1.
      insertTest.run(
        testId,
        projectId,
        id,
        test + 2,
        keyOf(names),
        names.classname,
        names.name,
        `test/cart-${at}.c`,
        db.now(),
        test === 0 ? db.now() : null,
      );
      return testId;
    });
    const inputs = {
      command,
      image: 'host',
      imageId: 'sha256:4f',
      variables: [{ name: 'API_URL', fingerprint: 'b1946ac92492d234' }],
      dependencies: [],
      limits: { MEMORY: 2_147_483_648, CPUS: 2, PIDS: 1024 },
    };
    return { id, name, inputs: JSON.stringify(inputs), digest: inputsDigest(inputs), testIds };
  });
  return {
    projectId,
    size,
    suites,
    notificationId: planted?.notification_id,
    triggerId: planted?.trigger_id,
    strategyId: planted?.deploy_strategy_id,
  };
}

/** Without journal, syncs and indexes, which are created again at the end. */
function fillInBulk(db: Db, work: () => void): void {
  const { sqlite } = db;
  const indexes = sqlite
    .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    .all() as { name: string; sql: string }[];
  sqlite.pragma('foreign_keys = OFF');
  sqlite.pragma('journal_mode = OFF');
  sqlite.pragma('synchronous = OFF');
  sqlite.pragma('cache_size = -400000');
  for (const { name } of indexes) sqlite.exec(`DROP INDEX ${name}`);
  work();
  for (const { sql } of indexes) sqlite.exec(sql);
  sqlite.pragma('journal_mode = WAL');
}

/** Hashes of one project differ from those of others. */
const refOf = (projectId: bigint, at: number) => hash('sha1', `${projectId}/${at}`);

/** Requests of all projects, in order of time, each with a commit, builds and all that builds leave behind. */
function fill(db: Db, plans: readonly Plan[], eventsPerBuild: number, idOffset = 0n): void {
  const endMs = db.now() - 3600_000;
  const newestId = idAt(endMs);
  const requests = plans
    .flatMap((plan, of) =>
      Array.from({ length: plan.size.commits }, (_, at) => ({
        plan,
        of,
        at,
        // Spread evenly, each project at other times.
        ms: Math.floor(endMs - SPAN_MS + (SPAN_MS * (at + ((of * 37) % 100) / 100)) / plan.size.commits),
      })),
    )
    .sort((a, b) => a.ms - b.ms);
  const insert = insertsOf(db);
  const results = {
    passed: packedResults('passed'),
    failed: packedResults('failed'),
  };
  const counts: Record<'passed' | 'failed', TestCounts> = {
    passed: { ...noCounts, passed: TESTS_PER_SUITE },
    failed: { ...noCounts, passed: TESTS_PER_SUITE - 1, failed: 1, newFailures: 1 },
  };
  const steps = JSON.stringify({ prepare: 400, checkout: 200, command: 60_000, collect: 100 });
  const lines = ['src/cart.c:41: error: expected ; before }', 'make: *** [check] Error 2'].map(text => {
    const line = toErrorLine(text, 100);
    if (!line) throw new Error(`no error line: ${text}`);
    return line;
  });
  const packed = new Map<string, Buffer>();
  const decisionsOf = (plan: Plan, run: number) => {
    const key = `${plan.projectId} ${run}`;
    const known = packed.get(key);
    if (known) return known;
    const decisions = packDecisions(
      plan.suites.map(({ id, name }, at) => ({ suiteId: id, suiteName: name, runs: at < run, rules: [] })),
    );
    packed.set(key, decisions);
    return decisions;
  };
  let lastMs = 0;
  db.sqlite.exec('BEGIN');
  for (const { plan, of, at, ms } of requests) {
    const startedAt = Math.max(ms, lastMs + 1);
    lastMs = startedAt;
    const finishedAt = startedAt + 61_000;
    const id = idAt(startedAt) + idOffset;
    const ref = refOf(plan.projectId, at);
    const newer = plan.size.commits - 1 - at;
    const run = plan.size.suitesRun(newer);
    // A quarter of the projects fail now.
    const states = plan.suites.slice(0, run).map((_, suite) => {
      const isLastFailure = newer === 0 && suite === 0 && of % 4 === 0;
      return isLastFailure || (at * 13 + suite + of) % (plan.size.failingEvery ?? FAILING_EVERY) === 0
        ? 'failed'
        : 'passed';
    });
    const state = run === 0 ? 'skipped' : states.includes('failed') ? 'failed' : 'passed';
    const [most, others] = plan.size.branch ? [plan.size.branch, 'main'] : ['main', `feature-${newer % 40}`];
    const branch = newer % 5 === 4 ? others : most;
    const time = new Date(startedAt).toISOString();
    insert.commit(
      ...[id, plan.projectId, at + 2, ref, state, `Change ${at} of the service\n\nIt was slow.\n`],
      ...['Ada', 'ada@example.org', time, 'Ada', 'ada@example.org', time],
      ...[JSON.stringify([branch]), '[]', '["src/cart.c","src/cart.h"]'],
    );
    insert.request(
      ...[id, plan.projectId, branch, branch, id, state, 'owner@example.org', startedAt, finishedAt],
    );
    insert.decisions(id, decisionsOf(plan, run));
    for (const [suite, buildState] of states.entries()) {
      const { id: suiteId, name, inputs, digest, testIds } = plan.suites[suite] as Plan['suites'][number];
      const buildId = id + ID_STEP * BigInt(suite + 1);
      insert.build(
        ...[buildId, plan.projectId, id, id, ref, suiteId, name, buildState, buildState === 'passed' ? 0 : 1],
        ...[startedAt, startedAt + 1_000, finishedAt - suite, 1, 20_000],
        ...[JSON.stringify(counts[buildState]), steps],
      );
      insert.report(buildId, suiteId, branch, results[buildState]);
      insert.inputs(buildId, digest, inputs);
      insert.artifact(buildId, buildId);
      if (buildState === 'passed') continue;
      insert.failure(buildId, testIds[0]);
      for (const [which, { hash, line, text }] of lines.entries())
        insert.line(buildId + BigInt(which), plan.projectId, buildId, hash, line, text);
    }
    if (newer === 0) insert.projectState(state, plan.projectId);
  }
  for (const plan of plans) fillOutside(db, plan, newestId);
  const [only] = plans.length === 1 ? plans : [];
  fillEvents(db, eventsPerBuild, only ? `project_id = ${only.projectId}` : `id < ${newestId}`);
  db.sqlite.exec('COMMIT');
}

/** An event has about a third of the size of a real one, so that millions are made in a minute. */
function fillEvents(db: Db, eventsPerBuild: number, which: string): void {
  db.sqlite
    .prepare(
      `WITH RECURSIVE series (number, type) AS (
         SELECT 0, 'build.started' UNION ALL
         SELECT number + 1, iif(number + 2 = @count, 'build.finished', 'build.started') FROM series WHERE number + 1 < @count)
       INSERT INTO events (id, project_id, type, resource_id, body, created_at)
       SELECT id + number, project_id, type, id,
         printf('{"id":%d,"id_str":"%d","type":"%s","created_at":"2026-01-01T00:00:00Z","project":{"id":%d,'
           || '"id_str":"%d","name":"Service","build_state":"passed","ssh_public_key":" assay"},"build":{"id":%d,'
           || '"id_str":"%d","suite_name":"%s","commit_ref":"%s","build_state":"%s","exit_code":0,"attempts":1}}',
           id + number, id + number, type, project_id, project_id, id, id, suite_name, commit_ref, build_state),
         created_at
       FROM builds CROSS JOIN series WHERE builds.${which} ORDER BY builds.id`,
    )
    .run({ count: eventsPerBuild });
}

const noCounts: TestCounts = {
  passed: 0,
  failed: 0,
  errored: 0,
  skipped: 0,
  newFailures: 0,
  fixed: 0,
  flaky: 0,
};

function packedResults(first: 'passed' | 'failed'): Buffer {
  const table = createResultTable(TESTS_PER_SUITE);
  for (let at = 0; at < TESTS_PER_SUITE; at += 1)
    setResult(table, at, {
      number: at + 2,
      result: at === 0 ? first : 'passed',
      change: at === 0 && first === 'failed' ? 'new' : undefined,
      durationMs: 10 * at,
    });
  return finish(packResults(table));
}

function insertsOf(db: Db) {
  const prepare = (words: string) => {
    const statement = db.sqlite.prepare(words);
    return (...values: unknown[]) => void statement.run(...values);
  };
  const places = (count: number) => Array.from({ length: count }, () => '?').join(', ');
  return {
    commit: prepare(
      `INSERT INTO commits (id, project_id, version, ref, build_state, message, author_name, author_email,
         authored_date, committer_name, committer_email, committed_date, branches, tags, files) VALUES (${places(15)})`,
    ),
    request: prepare(
      `INSERT INTO build_requests (id, project_id, commit_ref, branch, commit_id, build_state, created_by, created_at,
         finished_at) VALUES (${places(9)})`,
    ),
    decisions: prepare('INSERT INTO request_decisions VALUES (?, ?, NULL)'),
    build: prepare(
      `INSERT INTO builds (id, project_id, build_request_id, commit_id, commit_ref, suite_id, suite_name, build_state,
         exit_code, created_at, started_at, finished_at, artifacts, artifacts_bytes, tests, steps, attempts)
       VALUES (${places(16)}, 1)`,
    ),
    report: prepare(
      `INSERT INTO build_reports (build_id, suite_id, branch, duration_ms, results) VALUES (?, ?, ?, 1900, ?)`,
    ),
    inputs: prepare('INSERT INTO build_inputs VALUES (?, ?, ?)'),
    artifact: prepare(
      `INSERT INTO build_artifacts (id, build_id, path, size_bytes, stored_bytes, "offset", method, crc32, sha256, report)
       VALUES (?, ?, 'coverage/index.html', 20000, 5000, 60, 8, 1, '${'0'.repeat(64)}', 0)`,
    ),
    failure: prepare(
      `INSERT INTO test_failures VALUES (?, ?, 'failed', 'new', 10, 0, 'expected 3, got 4', 'at cart.c:41')`,
    ),
    line: prepare(
      'INSERT INTO failure_lines (id, project_id, build_id, hash, line, text) VALUES (?, ?, ?, ?, ?, ?)',
    ),
    projectState: prepare('UPDATE projects SET build_state = ? WHERE id = ?'),
  };
}

/** The deliveries, firings and deploys of a project that has them: one for each build or commit. */
function fillOutside(
  db: Db,
  { projectId, notificationId, triggerId, strategyId }: Plan,
  newestId: bigint,
): void {
  const run = (words: string, ...values: unknown[]) => db.sqlite.prepare(words).run(...values);
  if (notificationId !== undefined)
    run(
      `INSERT INTO deliveries (id, notification_id, event_id, event_type, resource_id, state, attempts, response_status,
         response_ms, response_excerpt, created_at)
       SELECT id + 9, ?, id + 9, 'build.finished', id, 'delivered', 1, 200, 12, 'ok', finished_at FROM builds
       WHERE project_id = ? AND id < ? ORDER BY id`,
      ...[notificationId, projectId, newestId],
    );
  const ofRequests = 'FROM build_requests WHERE project_id = ? AND id < ? ORDER BY id';
  if (triggerId !== undefined)
    for (let at = 0; at < FIRINGS_PER_COMMIT; at += 1)
      run(
        `INSERT INTO firings (id, trigger_id, event, ref, "before", "after", pushed_by, outcome, build_request_id, created_at)
         SELECT id + ${at}, ?, 'push', 'refs/heads/' || branch, '${'1'.repeat(40)}', '${'2'.repeat(40)}', 'ada', 'requested',
           id, created_at ${ofRequests}`,
        ...[triggerId, projectId, newestId],
      );
  if (strategyId !== undefined)
    run(
      `INSERT INTO deploys (id, project_id, deploy_strategy_id, strategy_name, repository_url, local_branch, remote_branch,
         commit_id, commit_ref, state, created_by, created_at, deploy_started_at, deploy_finished_at)
       SELECT id, project_id, ?, 'Production', 'git@git.invalid:team/live.git', 'main', 'live', commit_id,
         '${'3'.repeat(40)}', 'deployed', created_by, created_at, created_at, finished_at ${ofRequests}`,
      ...[strategyId, projectId, newestId],
    );
}

const logText = () => `${Array.from({ length: 200 }, (_, at) => `compiling src/file-${at}.c`).join('\n')}\n`;

/** Ids of what was inserted last, and logs of the newest builds. */
function newestOf(db: Db, data: string, { project_id, suite_id }: Planted): Record<string, string> {
  const get = (words: string, ...values: unknown[]) =>
    String(
      db.sqlite
        .prepare(words)
        .pluck()
        .get(...values),
    );
  const builds = db.sqlite
    .prepare('SELECT id FROM builds WHERE project_id = ? ORDER BY id DESC LIMIT ?')
    .pluck();
  for (const id of builds.all(project_id, LOGS)) writeFileSync(buildLogPath(data, id as bigint), logText());
  const newest = get('SELECT max(id) FROM commits WHERE project_id = ? AND version > 1', project_id);
  const failed = get("SELECT max(id) FROM builds WHERE suite_id = ? AND build_state = 'failed'", suite_id);
  writeFileSync(buildLogPath(data, BigInt(failed)), logText());
  return {
    commit_id: newest,
    build_request_id: newest,
    failed_build_id: failed,
    test_id: get('SELECT max(id) FROM tests WHERE suite_id = ?', suite_id),
  };
}

function authorizeQuery(db: Db, ownerId: bigint): string {
  const { application } = createApplication(db, {
    ownerId,
    name: 'Dashboard',
    redirectUri: 'https://dashboard.invalid/callback',
    isPublic: false,
  });
  return `?${new URLSearchParams({ client_id: application.clientId, redirect_uri: application.redirectUri, scope: 'user,commits' })}`;
}

function inviteLink(db: Db): string {
  const invited = createAccount(db, {
    email: 'invited@example.org',
    kind: 'collaborator',
    admin: false,
    passwordHash: null,
    apiKey: null,
  });
  return createSignInLink(db, invited.id);
}

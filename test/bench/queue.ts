// The queue without containers, compared with bare SQLite: builds that end as soon as they are claimed, against prepared
// statements that claim and end them with the same rows in as many durable transactions.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readSettings } from '../../src/config.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { type Db, openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { moveBuild } from '../../src/store/transition.ts';
import { createContainerSlots } from '../../src/work/container-slots.ts';
import { startQueue, type WorkKind } from '../../src/work/queue.ts';
import { suiteWork } from '../../src/work/suite-job.ts';
import { addBuilds, addProject, addSuite } from '../store/fixture.ts';
import { exitStatus, median, report, showLoad } from './support.ts';

const { values: options } = parseArgs({
  options: {
    builds: { type: 'string', default: '1000' },
    projects: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '7' },
  },
});
const CONCURRENCY = 4;
const projectCount = Number(options.projects);
const suiteCount = Math.ceil(Number(options.builds) / projectCount);
const buildCount = suiteCount * projectCount;

const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const { settings } = readSettings(new Map([['--data', work]]), {});
const vault = createVault(Buffer.alloc(32, 7));
const [assay, bare] = [openDb(join(work, 'assay.db'), vault), openDb(join(work, 'bare.db'), vault)];
const projects = Array.from({ length: projectCount }, () => {
  const project = addProject(assay);
  return { project, suites: Array.from({ length: suiteCount }, () => addSuite(assay, project.id).id) };
});
const enqueue = () => projects.flatMap(({ project, suites }) => addBuilds(assay, project, suites).builds);

try {
  showLoad('before');
  const own: number[] = [];
  const raw: number[] = [];
  for (let round = -1; round < Number(options.rounds); round++) {
    const ids = enqueue();
    const queued = copyRows(assay, ids);
    const assayMs = await runQueue(ids);
    const bareMs = claimBare(queued.builds, copyRows(assay, ids));
    // The first round compiles the code.
    if (round < 0) continue;
    own.push((buildCount * 1000) / assayMs);
    raw.push((buildCount * 1000) / bareMs);
  }
  console.log(
    `${buildCount} builds of ${projectCount} projects: ${median(own).toFixed(0)} per second; bare SQLite: ${median(raw).toFixed(0)} per second`,
  );
  report('claims and ends of builds', median(own.map((rate, at) => rate / (raw[at] as number))), '≥', 0.5);
  showLoad('after');
} finally {
  assay.close();
  bare.close();
  rmSync(work, { recursive: true });
}
process.exitCode = exitStatus();

/** Runs the queue until all builds have ended. Their jobs only record that they passed. */
async function runQueue(ids: readonly bigint[]): Promise<number> {
  const live = createLive();
  assay.onCommit = live.publish;
  const ended = Promise.withResolvers<void>();
  let left = ids.length;
  const slots = createContainerSlots({
    concurrency: CONCURRENCY,
    compileSlots: undefined,
    dataDirectory: work,
    dockerUnavailable: () => undefined,
    hasFreeSpace: () => true,
  });
  // Only what a claim uses.
  const builds = suiteWork({ db: assay, settings, early: { claim() {} } } as never, () => false);
  const kind: WorkKind = {
    listClaimed: () => [],
    listWaiting: () =>
      builds.listWaiting().map(item => ({
        ...item,
        claim: () =>
          item.claim() &&
          (async () => {
            await assay.writeTogether(() => moveBuild(assay, item.enqueuedAt, 'pass', { exitCode: 0 }));
            left -= 1;
            if (left === 0) ended.resolve();
          }),
      })),
  };
  const startedAt = performance.now();
  const queue = startQueue({
    live,
    log: createLog(line => process.stderr.write(line), {}),
    lanes: [{ slots, isOpen: slots.isOpen, kinds: [kind], claimTogether: assay.write }],
  });
  await ended.promise;
  const tookMs = performance.now() - startedAt;
  await queue.stop();
  return tookMs;
}

type Row = Record<string, unknown>;

/** What the database has of the builds, in their order. */
function copyRows({ sqlite }: Db, ids: readonly bigint[]) {
  const list = (from: string) => {
    const rows = sqlite.prepare<[bigint, bigint], Row>(`SELECT * FROM ${from} BETWEEN ? AND ?`);
    return rows.all(ids[0] as bigint, ids.at(-1) as bigint);
  };
  // Events are newer than their builds.
  const events = sqlite.prepare<[bigint], Row>('SELECT * FROM events WHERE id > ?').all(ids.at(-1) as bigint);
  const ofType = (type: string) => events.filter(event => event.type === type);
  return {
    builds: list('builds WHERE id'),
    inputs: list('build_inputs WHERE build_id'),
    started: ofType('build.started'),
    finished: ofType('build.finished'),
  };
}

/** Writes the same rows to the other database: one transaction claims the next build, another one ends it. */
function claimBare(queued: readonly Row[], ran: ReturnType<typeof copyRows>): number {
  const { sqlite } = bare;
  const insertInto = (table: string, row: Row) =>
    sqlite.prepare(
      `INSERT INTO ${table} (${Object.keys(row).join(', ')}) VALUES (${Object.keys(row).map(name => `@${name}`)})`,
    );
  // The rows of projects, suites and commits are not there: neither side changes them for each build.
  sqlite.pragma('foreign_keys = OFF');
  const insertBuild = insertInto('builds', queued[0] as Row);
  const enqueueAll = sqlite.transaction(() => {
    for (const build of queued) insertBuild.run(build);
  });
  enqueueAll();
  sqlite.pragma('wal_checkpoint(TRUNCATE)');
  const claim = sqlite.prepare<[bigint, string], { id: bigint }>(
    `UPDATE builds SET build_state = 'running', started_at = ?, nonce = ?, attempts = attempts + 1
     WHERE id = (SELECT id FROM builds WHERE build_state = 'enqueued' ORDER BY project_id, id LIMIT 1)
       AND build_state = 'enqueued' RETURNING id`,
  );
  const end = sqlite.prepare<[bigint, bigint]>(
    `UPDATE builds SET build_state = 'passed', finished_at = ?, nonce = NULL, exit_code = 0
     WHERE id = ? AND build_state = 'running'`,
  );
  const insertEvent = insertInto('events', ran.started[0] as Row);
  const insertInputs = insertInto('build_inputs', ran.inputs[0] as Row);
  const saveLastId = sqlite.prepare<[string]>("UPDATE facts SET value = ? WHERE name = 'last_id'");
  const begin = sqlite.prepare('BEGIN IMMEDIATE');
  const commit = sqlite.prepare('COMMIT');
  const nonce = 'f'.repeat(32);
  const startedAt = performance.now();
  for (let at = 0; at < buildCount; at++) {
    begin.run();
    const claimed = claim.get(BigInt(Date.now()), nonce) as { id: bigint };
    insertEvent.run(ran.started[at] as Row);
    insertInputs.run(ran.inputs[at] as Row);
    saveLastId.run(String(claimed.id));
    commit.run();
    begin.run();
    end.run(BigInt(Date.now()), claimed.id);
    insertEvent.run(ran.finished[at] as Row);
    saveLastId.run(String(claimed.id));
    commit.run();
  }
  return performance.now() - startedAt;
}

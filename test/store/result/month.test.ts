// A month of builds from a seed: several suites, branches, reruns and changed inputs. Flaky are exactly the tests that the
// definition names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestResult } from '../../../src/domain/result/test-result.ts';
import type { Db } from '../../../src/store/database/db.ts';
import type { Project } from '../../../src/store/projects.ts';
import { isFlaky, listFlakyTests } from '../../../src/store/result/tests.ts';
import { addProject, addSuite, openFixture } from '../fixture.ts';
import { addReport, reported } from './reported.ts';

const HOUR = 3600_000;
const DAY = 24 * HOUR;

/** Mulberry32. */
function createRandom(seed: number) {
  let state = seed;
  return (below: number) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

/** One run of one test, for the definition. */
type Run = { name: string; suite: number; commit: string; digest: string; at: number; build: bigint } & (
  | { result: TestResult; isFlaky: false }
  | { result: 'passed'; isFlaky: true }
);

/**
 * The definition, written for clarity: looks at every pair of runs. Returns each flaky test with its last two builds of
 * evidence.
 */
function flakyByDefinition(
  runs: readonly Run[],
  now: number,
  ended: Set<string>,
): Map<string, [failed: bigint, passed: bigint]> {
  const found = new Map<string, [bigint, bigint]>();
  for (const [name, own] of Map.groupBy(runs, run => `${run.suite} ${run.name}`)) {
    const ran = own.filter(({ result }) => result !== 'skipped');
    const fails = ({ result }: Run) => result !== 'passed';
    const evidence = ran.map((run, at): [bigint, bigint] | undefined => {
      if (run.isFlaky) return [run.build, run.build];
      const other = ran
        .slice(0, at)
        .findLast(
          earlier =>
            earlier.commit === run.commit &&
            earlier.digest === run.digest &&
            run.at - earlier.at < 14 * DAY &&
            fails(earlier) !== fails(run),
        );
      return other && (fails(run) ? [run.build, other.build] : [other.build, run.build]);
    });
    const last = evidence.findLastIndex(one => one !== undefined);
    if (last < 0) continue;
    const isRecent = now - (ran[last] as Run).at < 14 * DAY;
    const isUnsettled = ran.length - 1 - last < 100;
    if (isRecent && isUnsettled) found.set(name, evidence[last] as [bigint, bigint]);
    else ended.add(isRecent ? 'by runs' : isUnsettled ? 'by time' : 'by both');
  }
  return found;
}

type Month = { runs: Run[]; ended: Set<string>; check(): string[] };

/** Builds at random times, of commits that are built once or several times, with inputs that sometimes change. */
async function live(db: Db, now: { ms: number }, project: Project, seed: number): Promise<Month> {
  const random = createRandom(seed);
  const suites = Array.from({ length: 3 }, () => addSuite(db, project.id).id);
  const inputs = suites.map(() => 1);
  const runs: Run[] = [];
  const ended = new Set<string>();
  const commits: { hash: string; branch: string; broken: Set<string> }[] = [];
  const startedAt = now.ms;
  const names = [
    'steady',
    'broken sometimes',
    'wavers',
    'wavers rarely',
    'retried',
    'needs input 2',
    'skips',
  ];
  const check = () => {
    const expected = flakyByDefinition(runs, now.ms, ended);
    const flaky = listFlakyTests(db, project.id, 1000).filter(one => isFlaky(one, now.ms));
    const suiteAt = (id: bigint) => suites.indexOf(id);
    const found = new Map(
      flaky.map(one => [
        `${suiteAt(one.suiteId)} ${one.name}`,
        [one.flakyFailedBuildId, one.flakyPassedBuildId],
      ]),
    );
    assert.deepEqual(
      [...found].toSorted(([a], [b]) => (a < b ? -1 : 1)),
      [...expected].toSorted(([a], [b]) => (a < b ? -1 : 1)),
    );
    return [...found.keys()].sort();
  };
  while (now.ms < startedAt + 30 * DAY) {
    now.ms += (1 + random(140)) * 60_000;
    const isRerun = commits.length > 0 && random(3) === 0;
    if (!isRerun)
      commits.push({
        hash: `${commits.length + 1}`.padStart(40, 'a'),
        branch: ['main', 'main', 'feature', ''][random(4)] as string,
        broken: new Set(names.filter(name => name === 'broken sometimes' && random(4) === 0)),
      });
    // A rerun may be of an old commit.
    const commit = commits.at(isRerun ? -1 - random(Math.min(20, commits.length)) : -1)!;
    const suite = [0, 0, 0, 1, 1, 2][random(6)] as number;
    if (random(40) === 0) inputs[suite]! += 1;
    const digest = `digest ${inputs[suite]}`;
    // Each suite has a calm second half, so that tests stop to be flaky by runs or by time.
    const isCalm = now.ms > startedAt + (12 + 4 * suite) * DAY;
    const resultOf = (name: string): { result: TestResult; isFlaky: boolean } => {
      const passed = { result: 'passed' as const, isFlaky: false };
      if (commit.broken.has(name)) return { result: 'failed', isFlaky: false };
      if (name === 'wavers' && !isCalm && random(3) === 0) return { result: 'failed', isFlaky: false };
      if (name === 'wavers rarely' && random(60) === 0) return { result: 'errored', isFlaky: false };
      if (name === 'retried' && !isCalm && random(50) === 0) return { result: 'passed', isFlaky: true };
      if (name === 'needs input 2' && inputs[suite]! % 2 === 1) return { result: 'failed', isFlaky: false };
      if (name === 'skips' && random(2) === 0) return { result: 'skipped', isFlaky: false };
      return passed;
    };
    const results = names.map(name => ({ name, ...resultOf(name) }));
    const build = await addReport(
      db,
      project,
      suites[suite]!,
      results.map(({ name, result, isFlaky }) => reported(name, result, { isFlaky })),
      { ref: commit.hash, branch: commit.branch, digest },
    );
    for (const one of results)
      runs.push({ ...one, suite, commit: commit.hash, digest, at: now.ms, build: build.id } as Run);
    if (random(20) === 0) check();
  }
  return { runs, ended, check };
}

test('after a month of builds exactly the tests of the definition are flaky, with their two builds', async () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  // Hundreds of builds: their durability is not what is tested.
  db.sqlite.pragma('synchronous = OFF');
  const { runs, ended, check } = await live(db, now, project, 20_270_131);
  assert.ok(runs.length > 4000, `${runs.length} runs`);
  assert.ok(ended.has('by runs') && ended.has('by time'), [...ended].join());
  assert.deepEqual(check(), ['1 wavers', '1 wavers rarely']);
});

// Compares a build with an earlier one: what it was made of, its commits, its tests and its log.

import {
  type BuildDiff,
  compareInputs,
  type Differences,
  type DifferentTest,
  listCauses,
  type TestsDiff,
} from '../../domain/result/build-diff.ts';
import { findPosition, type ResultTable, resultAt } from '../../domain/result/comparison.ts';
import { isFailure } from '../../domain/result/test-result.ts';
import { GitFailure } from '../../engine/git/git.ts';
import { listFirstParents, readRange } from '../../engine/git/history.ts';
import { type Build, comparedBranch, findBuildRequest } from '../../store/builds.ts';
import { buildLogPath, repositoryPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { findInputs } from '../../store/result/build-inputs.ts';
import { findPassedAt, findPassedBefore } from '../../store/result/comparable-builds.ts';
import { createPace } from '../../store/result/pace.ts';
import { findResults } from '../../store/result/reports.ts';
import { findByNumbers } from '../../store/result/tests.ts';
import { createKeyedMutex } from '../keyed-mutex.ts';
import { MAX_ANCESTORS } from './collect-tests.ts';
import { compareLogs } from './compare-logs.ts';

const MAX_COMMITS = 100;
const MAX_FILES = 300;
const MAX_TESTS = 100;

type Chosen = { base: Build; chosen: 'branch' | 'ancestor' } | undefined;

export function createComparison({ db, dataDirectory }: { db: Db; dataDirectory: string }) {
  // Long logs take the processor: one comparison at a time is enough.
  const mutex = createKeyedMutex();
  const never = new AbortController().signal;

  async function compareLogsOf(before: Build, after: Build): Promise<Differences['log']> {
    using _lock = await mutex('logs', never);
    return compareLogs(buildLogPath(dataDirectory, before.id), buildLogPath(dataDirectory, after.id));
  }

  const requestOf = (build: Build) => findBuildRequest(db, build.projectId, build.buildRequestId);
  const repositoryOf = (build: Build) =>
    repositoryPath(dataDirectory, requestOf(build) ?? { ...build, snapshotId: null });

  async function readCommits(before: Build, after: Build): Promise<Differences['range']> {
    if (before.commitRef === after.commitRef) return undefined;
    const limits = { commits: MAX_COMMITS, files: MAX_FILES };
    return orWithoutGit(readRange(repositoryOf(after), before.commitRef, after.commitRef, limits), undefined);
  }

  async function chooseBase(build: Build): Promise<Chosen> {
    const request = requestOf(build);
    const ofBranch = (): Chosen => {
      const branch = request && request.pullRequest === null ? comparedBranch(request) : '';
      const base = branch === '' ? undefined : findPassedBefore(db, build, branch);
      return base && { base, chosen: 'branch' };
    };
    const ofAncestors = async (): Promise<Chosen> => {
      const ancestors = await orWithoutGit(
        listFirstParents(repositoryOf(build), build.commitRef, MAX_ANCESTORS),
        [],
      );
      // The repository may no longer have the commit.
      const base = findPassedAt(db, build, ancestors.length > 0 ? ancestors : [build.commitRef]);
      return base && { base, chosen: 'ancestor' };
    };
    // A working tree is often behind its branch: what it started from says more.
    return build.local ? ((await ofAncestors()) ?? ofBranch()) : (ofBranch() ?? (await ofAncestors()));
  }

  /** Undefined if there is no build to compare with. `isBrief` leaves out the log. */
  return async (
    build: Build,
    { against, isBrief = false }: { against?: Build | undefined; isBrief?: boolean } = {},
  ): Promise<BuildDiff<Build> | undefined> => {
    const found = against ? { base: against, chosen: 'caller' as const } : await chooseBase(build);
    if (!found) return undefined;
    const { base, chosen } = found;
    const before = findInputs(db, base.id)?.inputs;
    const after = findInputs(db, build.id)?.inputs;
    const [range, tests, log] = await Promise.all([
      readCommits(base, build),
      compareTests(db, base, build),
      isBrief || build.buildState === 'passed' ? undefined : compareLogsOf(base, build),
    ]);
    const differences: Differences = {
      inputs: before && after && compareInputs(before, after),
      isSameCommit: base.commitRef === build.commitRef,
      range,
      tests,
      log,
    };
    return { base, chosen, ...differences, causes: listCauses(differences) };
  };
}

/** A mirror that is damaged or takes too long only leaves out the commits. */
async function orWithoutGit<Value>(work: Promise<Value>, otherwise: Value): Promise<Value> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof GitFailure)) throw error;
    return otherwise;
  }
}

async function compareTests(db: Db, base: Build, build: Build): Promise<TestsDiff | undefined> {
  const pace = createPace();
  const before = await findResults(db, base.id, pace);
  const after = await findResults(db, build.id, pace);
  if (!before || !after) return undefined;
  const failing: number[] = [];
  const fixed: number[] = [];
  for (const [at, number] of after.numbers.entries()) {
    const failed = isFailure(resultAt(after, at));
    const failedBefore = hasFailed(before, number);
    if (failed && !failedBefore) failing.push(number);
    else if (failedBefore && resultAt(after, at) === 'passed') fixed.push(number);
    if (pace.isDue()) await pace.wait();
  }
  return {
    failing: nameTests(db, build.suiteId, failing),
    failingTotal: failing.length,
    fixed: nameTests(db, build.suiteId, fixed),
    fixedTotal: fixed.length,
  };
}

function hasFailed(table: ResultTable, number: number): boolean {
  const at = findPosition(table, number);
  return at >= 0 && isFailure(resultAt(table, at));
}

function nameTests(db: Db, suiteId: bigint, numbers: readonly number[]): DifferentTest[] {
  const listed = numbers.slice(0, MAX_TESTS);
  const found = findByNumbers(db, suiteId, listed);
  return listed.flatMap(number => {
    const test = found.get(number);
    return test ? [{ id: test.id, classname: test.classname, name: test.name }] : [];
  });
}

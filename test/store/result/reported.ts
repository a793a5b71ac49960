// Creates builds with test reports through the store.
import type { ReportedTest, TestResult } from '../../../src/domain/result/test-result.ts';
import { type Build, findBuild } from '../../../src/store/builds.ts';
import type { Db } from '../../../src/store/database/db.ts';
import type { Project } from '../../../src/store/projects.ts';
import {
  findBaseBuild,
  prepareReport,
  type Report,
  recordReport,
} from '../../../src/store/result/reports.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { addBuilds } from '../fixture.ts';

export function reported(name: string, result: TestResult, others: Partial<ReportedTest> = {}): ReportedTest {
  const isFailing = result === 'failed' || result === 'errored';
  return {
    classname: 'suite.Class',
    name,
    file: undefined,
    result,
    durationMs: 10,
    isFlaky: false,
    retries: 0,
    message: isFailing ? `${name} ${result}` : '',
    details: isFailing ? `at ${name}` : '',
    ...others,
  };
}

export function reportOf(reportedTests: Iterable<ReportedTest>): Report {
  const tests = [...reportedTests];
  const durationMs = tests.reduce((sum, one) => sum + (one.durationMs ?? 0), 0);
  return { tests, durationMs, malformed: null };
}

/** Ends a running or waiting build with a report, as a job does. */
export async function finishBuild(
  db: Db,
  id: bigint,
  reportedTests: Iterable<ReportedTest>,
  options: { branch?: string; ancestors?: readonly string[]; digest?: string } = {},
): Promise<Build> {
  const { branch = 'main', ancestors = [], digest } = options;
  const build = moveBuild(db, id, 'start') ?? (findBuild(db, projectOf(db, id), id) as Build);
  if (digest !== undefined)
    db.sqlite.prepare("INSERT OR REPLACE INTO build_inputs VALUES (?, ?, '{}')").run(id, digest);
  const base = findBaseBuild(db, build, branch, ancestors);
  const report = await prepareReport(db, build, branch, reportOf(reportedTests), base);
  const isPassed = report.counts.failed + report.counts.errored === 0;
  return db.write(() => {
    const moved = moveBuild(db, id, isPassed ? 'pass' : 'fail', {
      exitCode: isPassed ? 0 : 1,
      tests: report.counts,
    });
    recordReport(db, report);
    return moved as Build;
  });
}

const projectOf = (db: Db, id: bigint) =>
  db.sqlite.prepare('SELECT project_id FROM builds WHERE id = ?').pluck().get(id) as bigint;

/** A build of one suite that has ended with a report. */
export async function addReport(
  db: Db,
  project: Project,
  suiteId: bigint,
  tests: Iterable<ReportedTest>,
  options: {
    ref?: string;
    branch?: string;
    ancestors?: readonly string[];
    digest?: string;
    snapshotId?: bigint;
  } = {},
): Promise<Build> {
  const { builds } = addBuilds(db, project, [suiteId], options.ref, options.snapshotId);
  return finishBuild(db, builds[0] as bigint, tests, options);
}

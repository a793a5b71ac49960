// Reads the test reports of a build, compares their results with those of an earlier build, and prepares them for the
// transaction of the verdict. They never change the verdict.

import { isDiskFull } from '../../domain/disk-full.ts';
import { hideHostPaths } from '../../domain/host-paths.ts';
import { describeCounts, type TestCounts } from '../../domain/result/test-result.ts';
import { listFirstParents } from '../../engine/git/history.ts';
import { type Build, comparedBranch, findBuildRequest } from '../../store/builds.ts';
import { buildFilesPath, repositoryPath } from '../../store/data/paths.ts';
import { markReports, type NewBuildArtifact } from '../../store/result/build-artifacts.ts';
import { MAX_TESTS_OF_SUITE } from '../../store/result/identify-tests.ts';
import { findBaseBuild, type PreparedReport, prepareReport } from '../../store/result/reports.ts';
import type { JobOptions } from '../job.ts';
import { createKeyedMutex } from '../keyed-mutex.ts';
import { readReports } from './read-reports.ts';

/** How many ancestors of a commit are searched for a build to compare with. */
export const MAX_ANCESTORS = 200;

/** Keeps builds of one suite apart until their results are recorded, so that each sees those of the other. */
const suiteMutex = createKeyedMutex();

type CollectOptions = Pick<JobOptions, 'db' | 'dataDirectory' | 'log' | 'stopping'>;
type CollectedTests = {
  /** Undefined if there is nothing to record. */
  report: PreparedReport | undefined;
  /** For the log. */
  lines: string[];
};

/** Never fails because of the reports: what could not be read is in the lines. Throws when the server stops. */
export async function collectTests(
  options: CollectOptions,
  build: Build,
  job: { secrets: readonly string[]; held: DisposableStack },
  artifacts: readonly NewBuildArtifact[],
): Promise<CollectedTests> {
  const { db, dataDirectory, log, stopping } = options;
  if (artifacts.length === 0) return { report: undefined, lines: [] };
  try {
    const reports = await readReports(
      buildFilesPath(dataDirectory, build.id),
      artifacts,
      job.secrets,
      stopping,
    );
    if (!reports) return { report: undefined, lines: [] };
    await markReports(db, build.id, reports.paths);
    job.held.use(await suiteMutex(`${dataDirectory} ${build.suiteId}`, stopping));
    const request = findBuildRequest(db, build.projectId, build.buildRequestId);
    const repository = repositoryPath(dataDirectory, request ?? { ...build, snapshotId: null });
    const ancestors = await listAncestors(options, build, repository);
    const branch = (request && comparedBranch(request)) ?? '';
    const base = findBaseBuild(db, build, branch, ancestors);
    const report = await prepareReport(db, build, branch, reports, base);
    const problems = reports.malformed?.split('\n').map(line => `test report ${line}`) ?? [];
    return { report, lines: [...problems, describe(report.counts), ...describeOmitted(report)] };
  } catch (error) {
    if (stopping.aborted) throw error;
    log.warn('test results could not be recorded', { build: build.id, cause: error });
    const reason = isDiskFull(error)
      ? 'the disk of the appliance is full'
      : hideHostPaths((error as Error).message, dataDirectory);
    return { report: undefined, lines: [`the test results were not recorded: ${reason}`] };
  }
}

/** Without them, the results are compared with the previous build of the branch. */
async function listAncestors(
  { log }: CollectOptions,
  { id, commitRef }: Build,
  repository: string,
): Promise<string[]> {
  try {
    // The first one is the commit itself.
    return (await listFirstParents(repository, commitRef, MAX_ANCESTORS + 1)).slice(1);
  } catch (error) {
    log.warn('ancestors of a build could not be read', { build: id, cause: error });
    return [];
  }
}

function describe(counts: TestCounts): string {
  const { passed, failed, errored, skipped } = counts;
  if (passed + failed + errored + skipped === 0) return 'tests: the reports have none';
  const results = [`${passed} passed`, `${failed} failed`, `${errored} errored`, `${skipped} skipped`];
  const shown = results.filter((one, at) => at === 0 || !one.startsWith('0 ')).join(', ');
  return failed + errored === 0 ? `tests: ${shown}` : `tests: ${shown}; ${describeCounts(counts)}`;
}

const describeOmitted = ({ omitted }: PreparedReport) =>
  omitted === 0
    ? []
    : [
        `${omitted} tests are counted but not listed, because the suite has ${MAX_TESTS_OF_SUITE}: keep what changes from run to run out of their names`,
      ];

// Compares the test results of a build with those of an earlier one, and prepares them for the transaction of the verdict.

import { isDiskFull } from '../../domain/disk-full.ts';
import { hideHostPaths } from '../../domain/host-paths.ts';
import { listFirstParents } from '../../engine/git/history.ts';
import { type Build, findBuildRequest } from '../../store/builds.ts';
import { mirrorPath } from '../../store/data/paths.ts';
import {
  findBaseBuild,
  MAX_TESTS_OF_SUITE,
  type PreparedReport,
  prepareReport,
  type Report,
} from '../../store/result/reports.ts';
import type { JobOptions } from '../job.ts';
import { createKeyedMutex } from '../keyed-mutex.ts';

/** How far to search for an ancestor with results. */
const MAX_ANCESTORS = 200;

const suiteMutex = createKeyedMutex();

/**
 * Never fails because of the results: why they are not recorded is in the lines. `held` keeps other builds of the suite out
 * until these results are recorded. Throws when the server stops.
 */
export async function prepareTests(
  options: Pick<JobOptions, 'db' | 'dataDirectory' | 'log' | 'stopping'>,
  build: Build,
  report: Report,
  held: DisposableStack,
): Promise<{ prepared: PreparedReport | undefined; lines: string[] }> {
  const { db, dataDirectory, log, stopping } = options;
  held.use(await suiteMutex(`${dataDirectory} ${build.suiteId}`, stopping));
  try {
    const branch = findBuildRequest(db, build.projectId, build.buildRequestId)?.branch ?? '';
    const base = findBaseBuild(db, build, branch, await listAncestors(options, build));
    const prepared = await prepareReport(db, build, branch, report, base);
    const lines =
      prepared.omitted === 0
        ? []
        : [
            `${prepared.omitted} tests are counted but not listed, because the suite has ${MAX_TESTS_OF_SUITE}: keep what changes from run to run out of their names`,
          ];
    return { prepared, lines };
  } catch (error) {
    if (stopping.aborted) throw error;
    log.warn('test results could not be recorded', { build: build.id, cause: error });
    const reason = isDiskFull(error)
      ? 'the disk of the appliance is full'
      : hideHostPaths((error as Error).message, dataDirectory);
    return { prepared: undefined, lines: [`the test results were not recorded: ${reason}`] };
  }
}

/** Without them, the results are compared with the previous build of the branch. */
async function listAncestors(
  { dataDirectory, log }: Pick<JobOptions, 'dataDirectory' | 'log'>,
  { id, projectId, commitRef }: Build,
): Promise<string[]> {
  try {
    const parents = await listFirstParents(
      mirrorPath(dataDirectory, projectId),
      commitRef,
      MAX_ANCESTORS + 1,
    );
    return parents.slice(1);
  } catch (error) {
    log.warn('ancestors of a build could not be read', { build: id, cause: error });
    return [];
  }
}

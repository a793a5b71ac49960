// Records what a build is made of: first what it would use when it is claimed, then what it uses when its container starts.

import { orderDependencies } from '../../domain/container/artifact-mounts.ts';
import { type Build, findBuildRequest } from '../../store/builds.ts';
import type { Db } from '../../store/database/db.ts';
import { SealedValueError } from '../../store/database/vault.ts';
import { listRelatedVersions } from '../../store/dependency-use.ts';
import { defaultImage } from '../../store/images.ts';
import { recordInputs, type UsedInputs } from '../../store/result/build-inputs.ts';
import { findSuite, listAllVariables, listSuiteDependencies, type Variable } from '../../store/suites.ts';
import type { JobOptions } from '../job.ts';

type InputOptions = Pick<JobOptions, 'db' | 'settings'>;

/** A build of a fork's code gets none, unless its trigger allows it. */
export function variablesOf(db: Db, build: Build): Variable[] {
  const request = findBuildRequest(db, build.projectId, build.buildRequestId);
  return request?.withoutVariables ? [] : listAllVariables(db, build.suiteId);
}

/** Records what a build would use now, when it is claimed. One that never starts keeps this. */
export function recordPresentInputs(options: InputOptions, build: Build): void {
  const { db, settings } = options;
  const suite = findSuite(db, build.projectId, build.suiteId);
  if (!suite) return;
  try {
    recordUsedInputs(options, build, {
      command: suite.command,
      image: suite.image ?? defaultImage(db, settings),
      imageId: null,
      variables: variablesOf(db, build),
      dependencies: orderDependencies(listSuiteDependencies(db, suite.id), used =>
        listRelatedVersions(db, used),
      ).launch,
    });
  } catch (error) {
    // The build ends with this error when it starts.
    if (!(error instanceof SealedValueError)) throw error;
  }
}

/** Records what a build uses, when its container starts. */
export function recordUsedInputs(
  { db, settings }: InputOptions,
  build: Build,
  inputs: Omit<UsedInputs, 'limits'>,
): void {
  recordInputs(db, build, { ...inputs, limits: limitsOf(settings) });
}

const limitsOf = ({
  memoryBytes,
  cpus,
  pids,
  shmBytes,
  diskBytes,
  timeoutMs,
  network,
  runAs,
}: InputOptions['settings']) => ({
  MEMORY: memoryBytes,
  CPUS: cpus,
  PIDS: pids,
  SHM: shmBytes,
  DISK: diskBytes,
  TIMEOUT: timeoutMs / 1000,
  NETWORK: network,
  RUN_AS: `${runAs.uid}:${runAs.gid}`,
});

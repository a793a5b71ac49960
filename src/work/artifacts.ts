// The artifacts of dependencies, as suites and compiles mount them.

import type { Db } from '../store/db.ts';
import { listSuiteDependencies } from '../store/suites.ts';
import type { ContainerHost } from './container-host.ts';
import { type Attached, CannotRun } from './run-suite.ts';

export type ArtifactParts = { db: Db; host: ContainerHost; dataDirectory: string };

export async function attachDependencies({ db }: ArtifactParts, suiteId: bigint): Promise<Attached> {
  for (const dependency of listSuiteDependencies(db, suiteId))
    if (dependency.artifactHash === null)
      throw new CannotRun(`The dependency ${dependency.name} has not been compiled yet.`);
  return { dependencies: [], mounts: [] };
}

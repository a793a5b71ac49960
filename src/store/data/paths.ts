// The paths inside DATA. No other file spells these names.

import { join } from 'node:path';

export const databasePath = (data: string) => join(data, 'assay.db');
export const lockPath = (data: string) => join(data, 'lock.db');
export const masterKeyPath = (data: string) => join(data, 'master.key');
/** What V8 compiled at an earlier start. It may be deleted at any time. */
export const codeCachePath = (data: string) => join(data, 'code-cache');
export const tlsDirectory = (data: string) => join(data, 'tls');
export const buildLogPath = (data: string, id: bigint) => join(data, 'logs', `build-${id}.log`);
/** What a search reads first: see store/result/log-filter.ts. */
export const logFilterPath = (logPath: string) => `${logPath}.grams`;
export const dependencyLogPath = (data: string, id: bigint) => join(data, 'logs', `dependency-${id}.log`);
/** The log of the compile that made the dependency's artifact. It stays when the next compile fails or uses the artifact again. */
export const compiledLogPath = (data: string, id: bigint) =>
  join(data, 'logs', `dependency-${id}.compiled.log`);
export const deployLogPath = (data: string, id: bigint) => join(data, 'logs', `deploy-${id}.log`);
export const archivePath = (data: string, hash: string) => join(data, 'archives', hash);
export const artifactPath = (data: string, hash: string) => join(data, 'artifacts', `${hash}.tar.zst`);
/** What a listing of the artifact reads: see store/data/artifact-index.ts. */
export const artifactIndexPath = (data: string, hash: string) => join(data, 'artifacts', `${hash}.index`);
/** What the nodes of a swarm pull. It is made again if it is missing. */
export const imagesDirectory = (data: string) => join(data, 'images');
/** The files that a build produced, as one ZIP. */
export const buildFilesPath = (data: string, id: bigint) => join(buildFilesDirectory(data), `${id}.zip`);
export const buildFilesDirectory = (data: string) => join(data, 'files');
export const uploadDirectory = (data: string) => join(data, 'uploads');
export const mirrorPath = (data: string, projectId: bigint) => join(data, 'mirrors', `${projectId}.git`);
/** The mirrors of the project's submodules. They are next to its own mirror and are deleted with it. */
export const submoduleMirrors = (data: string, projectId: bigint) => `${mirrorPath(data, projectId)}.modules`;
/** The repository of a snapshot. It borrows from the project's mirror. */
export const snapshotPath = (data: string, id: bigint) => join(snapshotDirectory(data), `${id}.git`);
/** The repository that has the commit of a request. */
export const repositoryPath = (
  data: string,
  { projectId, snapshotId }: { projectId: bigint; snapshotId: bigint | null },
) => (snapshotId === null ? mirrorPath(data, projectId) : snapshotPath(data, snapshotId));
export const snapshotDirectory = (data: string) => join(data, 'snapshots');
export const jobDirectory = (data: string, kind: string, id: bigint) => join(data, 'jobs', `${kind}-${id}`);

/** Created at start, so that no code needs to check for them. */
export const directories = [
  'logs',
  'archives',
  'artifacts',
  'files',
  'uploads',
  'mirrors',
  'snapshots',
  'jobs',
  'ssh',
  'tls',
  'tmp',
] as const;

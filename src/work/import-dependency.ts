// Imports a dependency that another appliance exported: verifies all of the file before anything changes, then puts its
// files in place and records it in one transaction.

import { existsSync, renameSync } from 'node:fs';
import { chown, type FileHandle, link, open, rename, rm, stat, statfs } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Settings } from '../config.ts';
import { archiveName, artifactName, BadExport, type Manifest } from '../domain/dependency-export.ts';
import { checkArtifact } from '../engine/archive/artifact-check.ts';
import { captureTar, openArtifact } from '../engine/archive/artifact-tar.ts';
import { BadArchive } from '../engine/archive/zip-reader.ts';
import { isOwn, isTrusted } from '../store/appliance.ts';
import { findArtifact } from '../store/artifacts.ts';
import { inWorkDirectory } from '../store/backup/work-directory.ts';
import { isArchiveUsed } from '../store/cleanup/sweep.ts';
import { keepArchive, keepSourceArchive } from '../store/data/archive-file.ts';
import { DataError } from '../store/data/data.ts';
import { openLog, removeLog } from '../store/data/log-file.ts';
import { archivePath, artifactPath, dependencyLogPath, uploadDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import type { Dependency } from '../store/dependencies.ts';
import {
  createExtractor,
  type DependencyFile,
  readDependencyFile,
} from '../store/transfer/dependency-file.ts';
import { type ImportStep, planImport, recordImport } from '../store/transfer/import.ts';

/** Directories with this prefix are in DATA/uploads. The sweep removes those of imports that were killed. */
export const IMPORT_PREFIX = '.import-';

export type ImportRequest = {
  db: Db;
  settings: Pick<Settings, 'data' | 'runAs' | 'image' | 'anyImage' | 'minFreeDiskBytes'>;
  file: string;
  ownerId: bigint;
  name?: string | undefined;
  /** The fingerprint of the only appliance that may have signed the file. */
  trusted?: string | undefined;
  /** Called for an appliance that is not trusted yet. Throws to refuse it. */
  confirmTrust(manifest: Manifest, fingerprint: string): Promise<void>;
  /** Called with the dependencies that would be replaced. Throws to leave them. */
  confirmReplace(names: string[]): Promise<void>;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
};

export type ImportResult = {
  manifest: Manifest;
  fingerprint: string;
  steps: ImportStep[];
  /** As they are now, in the order of the steps. */
  dependencies: Dependency[];
};

export async function importDependency(request: ImportRequest): Promise<ImportResult> {
  const { db, settings } = request;
  if (!(await stat(request.file).catch(() => undefined))?.isFile())
    throw new DataError(`there is no file ${request.file}`);
  await using file = await open(request.file, 'r');
  try {
    const content = await readDependencyFile(file);
    const { manifest, fingerprint } = content;
    checkArchitecture(manifest);
    await checkTrust(request, content);
    const options = { ownerId: request.ownerId, name: request.name, data: settings.data, images: settings };
    const steps = planImport(db, manifest, options);
    if (steps.every(({ action }) => action === 'keep'))
      return { manifest, fingerprint, steps, dependencies: steps.map(step => step.existing as Dependency) };
    const replaced = steps.flatMap(({ action, name }) => (action === 'replace' ? [name] : []));
    if (replaced.length > 0) await request.confirmReplace(replaced);
    await checkFreeSpace(settings, manifest);
    const dependencies = await inWorkDirectory(uploadDirectory(settings.data), IMPORT_PREFIX, async work => {
      const ownership = await createOwnership(settings.data);
      await ownership(work);
      const files = await extractAll(request, file, content, work, ownership);
      for (const position of steps.keys())
        await ownership(...(await writeLog(logIn(work, position), content, position, files)));
      request.signal?.throwIfAborted();
      return await putInPlace(request, work, manifest, () =>
        recordImport(db, {
          ...options,
          manifest,
          fingerprint,
          steps,
          files,
          onRecorded(id, position) {
            const log = dependencyLogPath(settings.data, id);
            removeLog(log);
            for (const suffix of ['', '.times']) renameSync(logIn(work, position) + suffix, log + suffix);
          },
        }),
      );
    });
    return { manifest, fingerprint, steps, dependencies };
  } catch (error) {
    if (!(error instanceof BadExport || error instanceof BadArchive)) throw error;
    throw new DataError(`${resolve(request.file)}: ${error.message}; nothing was changed`);
  }
}

async function checkTrust(
  { db, trusted, confirmTrust }: ImportRequest,
  { manifest, fingerprint }: DependencyFile,
): Promise<void> {
  if (trusted !== undefined && trusted !== fingerprint)
    throw new BadExport(
      `it is signed by ${manifest.appliance.name} with the fingerprint ${fingerprint}, which is not the one given`,
    );
  const isKnown = trusted !== undefined || isTrusted(db, fingerprint) || isOwn(db, fingerprint);
  if (!isKnown) await confirmTrust(manifest, fingerprint);
}

function checkArchitecture({ architecture }: Manifest): void {
  if (architecture !== process.arch)
    throw new BadExport(
      `it was compiled for ${architecture}, and this appliance is ${process.arch}: compile it here, or export it on an appliance with ${process.arch}`,
    );
}

async function checkFreeSpace(
  { data, minFreeDiskBytes }: ImportRequest['settings'],
  { files, dependencies }: Manifest,
): Promise<void> {
  const { bavail, bsize } = await statfs(data);
  const sum = (sizes: number[]) => sizes.reduce((total, size) => total + size, 0);
  // The volumes for suites hold the artifacts unpacked.
  const neededBytes = Math.max(
    sum(files.map(file => file.size_bytes)),
    sum(dependencies.map(({ artifact }) => artifact.size_bytes)),
  );
  if (neededBytes + minFreeDiskBytes > bavail * bsize)
    throw new BadExport(
      `it needs ${neededBytes} bytes besides MIN_FREE_DISK, and ${bavail * bsize} are free: free some disk space first`,
    );
}

/** Root imports for the user that the data directory belongs to: the service. */
async function createOwnership(data: string): Promise<(...paths: string[]) => Promise<void>> {
  const { uid, gid } = await stat(data);
  const isNeeded = process.getuid?.() === 0 && uid !== 0;
  return async (...paths) => {
    if (isNeeded) for (const path of paths) await chown(path, uid, gid);
  };
}

const logIn = (work: string, position: number) => join(work, `log-${position}`);
const nameIn = (work: string, name: string) => join(work, name.replaceAll('/', '-'));

/** Copies every file to the work directory and verifies it. Returns the number of files in each artifact, by hash. */
async function extractAll(
  { settings, onProgress, signal }: ImportRequest,
  file: FileHandle,
  { manifest, files }: DependencyFile,
  work: string,
  ownership: (...paths: string[]) => Promise<void>,
): Promise<Map<string, number>> {
  const artifacts = new Map(
    manifest.dependencies.map(one => [artifactName(one.artifact.hash), one.artifact]),
  );
  const counts = new Map<string, number>();
  const totalBytes =
    files.reduce((sum, one) => sum + one.size_bytes, 0) +
    [...artifacts.values()].reduce((sum, one) => sum + one.size_bytes, 0);
  let doneBytes = 0;
  const onBytes = (bytes: number) => {
    doneBytes += bytes;
    onProgress?.(doneBytes, Math.max(totalBytes, doneBytes));
    signal?.throwIfAborted();
  };
  using extractor = createExtractor(file, onBytes);
  for (const one of files) {
    const path = nameIn(work, one.name);
    await extractor.extract(one, path);
    const artifact = artifacts.get(one.name);
    if (artifact) {
      const expected = { ...artifact, sizeBytes: artifact.size_bytes, onBytes };
      const checked = await checkArtifact(() => openArtifact(path), expected).catch(error => {
        throw error instanceof BadArchive ? new BadExport(`${one.name}: ${error.message}`) : error;
      });
      counts.set(artifact.hash, checked.files);
      const { uid, gid } = settings.runAs;
      if (checked.owner?.uid !== uid || checked.owner.gid !== gid)
        await changeOwner(path, artifact.prefix, settings.runAs, onBytes);
    }
    await ownership(path);
  }
  return counts;
}

/** Writes the tar again for the user that suites of this appliance run as. */
async function changeOwner(
  path: string,
  prefix: string,
  owner: Settings['runAs'],
  onBytes: (bytes: number) => void,
): Promise<void> {
  const mayContinue = () => {
    onBytes(0);
    return true;
  };
  await captureTar(openArtifact(path), { file: `${path}.new`, prefix, owner, mayContinue, isStored: true });
  await rename(`${path}.new`, path);
}

/** Returns the files of the log. */
async function writeLog(
  path: string,
  { manifest, fingerprint }: DependencyFile,
  position: number,
  files: ReadonlyMap<string, number>,
): Promise<string[]> {
  const { artifact, compiled_at } = manifest.dependencies[position] as Manifest['dependencies'][number];
  const log = await openLog({ path, limitBytes: Number.MAX_SAFE_INTEGER });
  await log.finish([
    `imported from ${manifest.appliance.name}, which exported it at ${manifest.created_at}`,
    `fingerprint of its key: ${fingerprint}`,
    `compiled there ${compiled_at === null ? '' : `at ${compiled_at} `}on ${manifest.system}, ${manifest.architecture}`,
    `kept ${files.get(artifact.hash) ?? 0} files, ${artifact.size_bytes} bytes, of ${artifact.prefix}`,
  ]);
  return [path, `${path}.times`];
}

/** Moves the files to where rows refer to them, then records them. If that fails, what was not there before is removed. */
async function putInPlace<T>(
  { db, settings: { data } }: ImportRequest,
  work: string,
  { files, dependencies }: Manifest,
  record: () => T,
): Promise<T> {
  const targets = new Map<string, { path: string; keep: typeof keepArchive; isUsed(): boolean }>();
  for (const { archive, artifact } of dependencies) {
    if (archive)
      targets.set(archiveName(archive.sha256), {
        path: archivePath(data, archive.sha256),
        keep: keepSourceArchive,
        isUsed: () => isArchiveUsed(db, archive.sha256),
      });
    targets.set(artifactName(artifact.hash), {
      path: artifactPath(data, artifact.hash),
      keep: keepArchive,
      isUsed: () => findArtifact(db, artifact.hash) !== undefined,
    });
  }
  const copyOf = (name: string) => `${nameIn(work, name)}.copy`;
  try {
    for (const { name } of files) {
      await link(nameIn(work, name), copyOf(name));
      const { keep, path } = targets.get(name)!;
      await keep(nameIn(work, name), path);
    }
    const recorded = record();
    // The sweep of a running server may have found a file unused just before rows referred to it.
    for (const [name, { path, keep }] of targets) if (!existsSync(path)) await keep(copyOf(name), path);
    return recorded;
  } catch (error) {
    for (const { path, isUsed } of targets.values()) if (!isUsed()) await rm(path, { force: true });
    throw error;
  }
}

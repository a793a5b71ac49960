// Exports a compiled dependency and its related ones to a signed file, while the server serves. The file gets its name when
// it is complete.

import { type FileHandle, open, rename } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import {
  archiveName,
  artifactName,
  EXPORT_FORMAT,
  EXPORT_VERSION,
  type ExportedDependency,
  type Manifest,
} from '../../domain/dependency-export.ts';
import { nameKey, taggedImage } from '../../domain/names.ts';
import { syncDirectory } from '../../fsync.ts';
import { identityOf } from '../appliance.ts';
import { findArtifact } from '../artifacts.ts';
import { checkNewFile } from '../backup/backup.ts';
import { inWorkDirectory } from '../backup/work-directory.ts';
import { DataError } from '../data/data.ts';
import { archivePath, artifactPath } from '../data/paths.ts';
import type { Db } from '../database/db.ts';
import { type Dependency, listRelatedVersions, type UsedDependency } from '../dependency-use.ts';
import { listImages } from '../images.ts';
import { UNKNOWN_SHA256, writeDependencyFile } from './dependency-file.ts';

export type ExportOptions = {
  db: Db;
  data: string;
  file: string;
  dependency: Dependency;
  withSource: boolean;
  /** The version of Assay. */
  version: string;
  /** The name of the operating system. */
  system: string;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
};

export async function exportDependency(
  options: ExportOptions,
): Promise<{ manifest: Manifest; fingerprint: string; sizeBytes: number }> {
  const { db } = options;
  const data = resolve(options.data);
  const file = resolve(options.file);
  await checkNewFile(data, file);
  const dependencies = describe(db, listWithRelated(db, options.dependency), options.withSource);
  const identity = identityOf(db);
  // Open handles stay valid if the server replaces or deletes the files meanwhile.
  const sources = new Map<string, FileHandle>();
  const add = async (name: string, path: string) => {
    if (!sources.has(name)) sources.set(name, await openSource(path, name));
  };
  try {
    for (const { archive, artifact } of dependencies) {
      if (archive) await add(archiveName(archive.sha256), archivePath(data, archive.sha256));
      await add(artifactName(artifact.hash), artifactPath(data, artifact.hash));
    }
    const files: Manifest['files'] = [];
    for (const [name, source] of sources)
      files.push({ name, size_bytes: (await source.stat()).size, sha256: UNKNOWN_SHA256 });
    const totalBytes = files.reduce((sum, { size_bytes }) => sum + size_bytes, 0);
    const manifest: Manifest = {
      format: EXPORT_FORMAT,
      version: EXPORT_VERSION,
      assay: options.version,
      created_at: new Date(db.now()).toISOString(),
      appliance: { name: identity.name, public_key: identity.publicKey },
      architecture: process.arch,
      system: options.system,
      images: imagesOf(db, dependencies),
      dependencies,
      files,
    };
    return await inWorkDirectory(dirname(file), `.${basename(file)}.part-`, async work => {
      let doneBytes = 0;
      const sizeBytes = await writeDependencyFile(join(work, 'export'), {
        manifest,
        identity,
        sources,
        onBytes(bytes) {
          doneBytes += bytes;
          options.onProgress?.(doneBytes, totalBytes);
          options.signal?.throwIfAborted();
        },
        onFile: checkArchive,
      });
      options.signal?.throwIfAborted();
      await rename(join(work, 'export'), file);
      await syncDirectory(dirname(file));
      return { manifest, fingerprint: identity.fingerprint, sizeBytes };
    });
  } finally {
    for (const source of sources.values()) await source.close();
  }
}

/** An archive is named after its content, so damage is found here and not by the importing appliance. */
function checkArchive({ name, sha256 }: { name: string; sha256: string }): void {
  if (name.startsWith(archiveName('')) && name !== archiveName(sha256))
    throw new DataError(
      `${name} in the data directory is damaged: upload the archive again, or export --without-source`,
    );
}

async function openSource(path: string, name: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new DataError(
      `${name} is missing in the data directory: upload the archive of the dependency again, which compiles it`,
    );
  }
}

/** One for each version: an account may keep an earlier one of a dependency that is no longer shared. */
const versionKey = ({ id, kept }: UsedDependency) => `${id} ${kept?.id ?? ''}`;

/** Related dependencies first, transitively, each once; the dependency itself last. */
function listWithRelated(db: Db, dependency: Dependency): UsedDependency[] {
  const ordered = new Map<string, UsedDependency>();
  const visit = (one: UsedDependency) => {
    if (ordered.has(versionKey(one))) return;
    for (const related of listRelatedVersions(db, one)) visit(related);
    ordered.set(versionKey(one), one);
  };
  visit({ ...dependency, kept: null });
  return [...ordered.values()];
}

function describe(
  db: Db,
  dependencies: readonly UsedDependency[],
  withSource: boolean,
): ExportedDependency[] {
  const positions = new Map(dependencies.map((one, position) => [versionKey(one), position]));
  const names = uniqueNames(dependencies);
  return dependencies.map((dependency, position) => {
    const { archiveHash, archiveFileSize, archiveContentType, artifactHash, finishedAt } = dependency;
    const artifact = artifactHash === null ? undefined : findArtifact(db, artifactHash);
    if (dependency.compileState !== 'compiled' || !artifact)
      throw new DataError(
        `${dependency.name} is not compiled: only a dependency whose last compile succeeded can be exported`,
      );
    return {
      name: names[position] as string,
      description: dependency.description,
      command: dependency.command,
      prefix: dependency.prefix,
      source: dependency.source,
      launch_command: dependency.launchCommand,
      launch_timeout: dependency.launchSeconds,
      environment: dependency.environment,
      library_path: dependency.libraryPath,
      recompile: dependency.recompile,
      image: dependency.image,
      related: listRelatedVersions(db, dependency).map(one => positions.get(versionKey(one)) as number),
      archive:
        // The source of a kept version may have been replaced since.
        withSource && archiveHash !== null && dependency.kept === null
          ? {
              sha256: archiveHash,
              size_bytes: archiveFileSize ?? 0,
              content_type: archiveContentType ?? 'application/octet-stream',
            }
          : null,
      artifact: { hash: artifact.hash, prefix: artifact.prefix, size_bytes: artifact.sizeBytes },
      related_artifacts:
        dependency.relatedArtifacts === null || dependency.kept
          ? null
          : (JSON.parse(dependency.relatedArtifacts) as string[]),
      compiled_at: finishedAt === null ? null : new Date(finishedAt).toISOString(),
    };
  });
}

/** Related dependencies of several accounts may have the same name, which one account cannot have twice. */
function uniqueNames(dependencies: readonly Dependency[]): string[] {
  const taken = new Set(dependencies.slice(-1).map(({ name }) => nameKey(name)));
  return dependencies.map(({ name }, position) => {
    if (position === dependencies.length - 1) return name.trim();
    let unique = name.trim();
    for (let number = 2; taken.has(nameKey(unique)); number++) unique = `${name.trim()} (${number})`;
    taken.add(nameKey(unique));
    return unique;
  });
}

/** The IDs of the imported images that the dependencies name. */
function imagesOf(db: Db, dependencies: readonly ExportedDependency[]): Record<string, string> {
  const used = new Set(dependencies.flatMap(({ image }) => (image === null ? [] : [taggedImage(image)])));
  return Object.fromEntries(
    listImages(db).flatMap(({ name, imageId }) => (used.has(taggedImage(name)) ? [[name, imageId]] : [])),
  );
}

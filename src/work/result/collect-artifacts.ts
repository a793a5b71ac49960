// Keeps the files that a build produced: everything in /srv/artifacts, and what the suite's globs match in the workspace.
// Reads them from the stopped container, writes them to one ZIP, and inserts its index. A server that was killed meanwhile
// left the container, so the next one collects from scratch.

import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  ARTIFACTS_DIRECTORY,
  type KeptPath,
  PROJECT_DIRECTORY,
} from '../../domain/container/container-plan.ts';
import type { Outcome } from '../../domain/container/verdict.ts';
import { isDiskFull } from '../../domain/disk-full.ts';
import { hideHostPaths } from '../../domain/host-paths.ts';
import { basesOf, type PathGlob, parsePathGlobs } from '../../domain/text/path-glob.ts';
import { createZip, type ZipWriter } from '../../engine/archive/build-zip.ts';
import { readTar, type TarFile } from '../../engine/archive/tar-files.ts';
import type { StoredEntry } from '../../engine/archive/zip-format.ts';
import { BadArchive } from '../../engine/archive/zip-reader.ts';
import { EngineUnavailable } from '../../engine/engine.ts';
import { type Build, findBuild } from '../../store/builds.ts';
import { keepArchive } from '../../store/data/archive-file.ts';
import type { LogWriter } from '../../store/data/log-file.ts';
import { buildFilesPath } from '../../store/data/paths.ts';
import { findProject } from '../../store/projects.ts';
import {
  type ArtifactCounts,
  deleteBuildArtifacts,
  type NewBuildArtifact,
  replaceBuildArtifacts,
} from '../../store/result/build-artifacts.ts';
import { findSuite } from '../../store/suites.ts';
import { watchCancellation } from '../cancellation.ts';
import type { JobOptions } from '../job.ts';

export const MAX_ARTIFACTS = 10_000;
const MAX_PATH_BYTES = 1_024;
const MAX_COLLECT_MS = 10 * 60_000;
/** A longer collection is mentioned in the log while it runs, and so is one with a larger file. */
const MENTION_AFTER_MS = 2_000;
const MENTION_BYTES = 256 << 20;
const CHECK_EVERY_BYTES = 8 << 20;

type CollectedArtifacts = {
  counts: ArtifactCounts;
  /** In order of path. Their content is in the ZIP at `buildFilesPath`. */
  entries: NewBuildArtifact[];
  /** For the log. */
  lines: string[];
};

type CollectJob = { name: string; directory: string; isCanceled(): boolean };

const nothing = (lines: string[] = [], isTruncated = false): CollectedArtifacts => ({
  counts: { artifacts: 0, artifactsBytes: 0, artifactsTruncated: isTruncated },
  entries: [],
  lines,
});

/** Never fails because of the files: what could not be kept is in the lines. Throws when the server stops. */
export async function collectArtifacts(
  options: JobOptions,
  build: Build,
  job: CollectJob,
  outcome: Outcome,
  log: LogWriter,
): Promise<CollectedArtifacts> {
  const { db, dataDirectory, stopping } = options;
  const target = buildFilesPath(dataDirectory, build.id);
  // A build that was canceled before keeps its files. A cancel from now on ends the collection.
  const wasCanceled = job.isCanceled();
  const cancellation = watchCancellation(options, [
    [
      `build:${build.id}`,
      () => {
        const found = findBuild(db, build.projectId, build.id);
        return found !== undefined && (wasCanceled || found.cancelBecause === null);
      },
    ],
    [`project:${build.projectId}`, () => findProject(db, build.projectId) !== undefined],
  ]);
  const deadline = AbortSignal.timeout(MAX_COLLECT_MS);
  const signal = AbortSignal.any([cancellation.signal, deadline]);
  let mentionAt = Date.now() + MENTION_AFTER_MS;
  const collection = createCollection(options, build, {
    signal,
    reasonOfAbort: () => (cancellation.isCanceled() ? 'canceled' : 'late'),
    async onFile(sizeBytes) {
      if (log.isEnded || (Date.now() < mentionAt && sizeBytes < MENTION_BYTES)) return;
      mentionAt = Number.POSITIVE_INFINITY;
      await log.line('collecting artifacts');
    },
  });
  const temporary = join(job.directory, 'artifacts.zip');
  let collected = nothing();
  try {
    if (mayHaveFiles(outcome) && !collection.isEmpty(outcome))
      collected = await collection.run(job.name, temporary, outcome.kind);
  } catch (error) {
    if (stopping.aborted) throw error;
    collected = nothing([explain(options, build, error)], true);
  } finally {
    cancellation.stopWatching();
  }
  if (collected.entries.length > 0) {
    await keepArchive(temporary, target);
    await replaceBuildArtifacts(db, build.id, collected.entries);
  } else {
    // An earlier attempt, or a server that was killed, may have left some.
    await deleteBuildArtifacts(db, build.id);
    for (const file of [target, temporary].filter(existsSync)) await rm(file, { force: true });
  }
  return collected;
}

/** A build that did not run or runs again keeps nothing, and neither does one that filled the disk. */
const mayHaveFiles = ({ kind }: Outcome) =>
  !['lost', 'not_started', 'cannot_run', 'disk_full'].includes(kind);

function explain(options: JobOptions, build: Build, error: unknown): string {
  if (isDiskFull(error)) return 'the artifacts were not kept: the disk of the appliance is full';
  options.log.warn('artifacts could not be collected', { build: build.id, cause: error });
  const reason = hideHostPaths((error as Error).message, options.dataDirectory);
  return `the artifacts were not kept: ${reason}`;
}

/** Why files were left out, other than because of the files themselves. */
type Shortage = 'limit' | 'count' | 'disk' | 'late' | 'canceled' | 'broken';

type Source = {
  directory: string;
  inside: string;
  keep(path: string): boolean;
  isReport(path: string): boolean;
};

function createCollection(
  options: JobOptions,
  build: Build,
  watch: { signal: AbortSignal; reasonOfAbort(): Shortage; onFile(sizeBytes: number): Promise<void> },
) {
  const { db, host, disk, stopping } = options;
  const { signal } = watch;
  const limitBytes = options.settings.artifactLimitBytes || Number.POSITIVE_INFINITY;
  const suite = findSuite(db, build.projectId, build.suiteId);
  const artifacts = parsePathGlobs(suite?.artifacts ?? '');
  const reports = parsePathGlobs(suite?.reports ?? '');

  /** Known without Docker: the directory of artifacts is empty, and the suite declares nothing else. */
  const isEmpty = (outcome: Outcome) =>
    outcome.kind === 'exit' &&
    outcome.hasNoArtifacts === true &&
    artifacts.length === 0 &&
    reports.length === 0;

  async function run(container: string, file: string, kind: Outcome['kind']): Promise<CollectedArtifacts> {
    for (;;) {
      try {
        // The exit record comes a moment before the end of the container. What is kept of a remote one is complete then.
        if (!host.engine.isRemote || kind !== 'exit') await host.engine.stopContainer(container);
        return await fill(container, file);
      } catch (error) {
        if (!(error instanceof EngineUnavailable) || signal.aborted) throw error;
        host.reportUnavailable(error);
        if (kind === 'canceled') throw error;
        // The container is still there when Docker is available again.
        await host.whenAvailable(signal).catch(() => {
          throw error;
        });
      }
    }
  }

  async function fill(container: string, file: string): Promise<CollectedArtifacts> {
    await using opened = new AsyncDisposableStack();
    let zip: ZipWriter | undefined;
    const openZip = async () => {
      zip ??= opened.use(await createZip(file));
      return zip;
    };
    const state = createState();
    for (const source of sourcesOf(artifacts, reports)) {
      if (state.shortage && state.shortage !== 'limit') break;
      const from = { container, directory: source.directory, inside: source.inside };
      try {
        await host.engine.readContainer(
          from,
          tar => readTar(tar, entry => take(openZip, state, source, entry)),
          signal,
        );
      } catch (error) {
        if (stopping.aborted || error instanceof EngineUnavailable) throw error;
        if (signal.aborted) state.shortage = watch.reasonOfAbort();
        else if (error instanceof BadArchive) state.shortage = 'broken';
        else if (error instanceof OutOfSpace) state.shortage = 'disk';
        else throw error;
      }
    }
    if (!zip || state.paths.size === 0) return nothing(linesOf(state), state.shortage !== undefined);
    const entries = (await zip.finish()).map((entry): StoredEntry & { report: boolean } => ({
      ...entry,
      report: state.paths.get(entry.path) ?? false,
    }));
    return {
      entries,
      counts: {
        artifacts: entries.length,
        artifactsBytes: state.keptBytes,
        artifactsTruncated: state.shortage !== undefined,
      },
      lines: linesOf(state),
    };
  }

  async function take(
    openZip: () => Promise<ZipWriter>,
    state: State,
    source: Source,
    { name, type, content, ...file }: TarFile,
  ): Promise<'continue' | 'stop'> {
    signal.throwIfAborted();
    await watch.onFile(file.sizeBytes);
    const path = pathOf(source, name);
    if (type === 'directory' || !source.keep(path)) return 'continue';
    const refusal =
      type !== 'file' ? type : !isAllowed(path) ? 'name' : state.paths.has(path) ? 'double' : undefined;
    if (refusal) {
      state.leftOut[refusal] += 1;
      return 'continue';
    }
    if (state.paths.size >= MAX_ARTIFACTS) {
      state.shortage = 'count';
      return 'stop';
    }
    // Checked before the content is read: a file of holes can be of any size.
    if (state.keptBytes + file.sizeBytes > limitBytes) {
      state.shortage = 'limit';
      state.tooLarge.push(path);
      state.skippedBytes += file.sizeBytes;
      return state.skippedBytes > limitBytes ? 'stop' : 'continue';
    }
    if (!disk.hasFreeSpace()) throw new OutOfSpace();
    const isLarge = file.sizeBytes > CHECK_EVERY_BYTES;
    const zip = await openZip();
    await zip.add({ ...file, path }, isLarge ? whileSpaceIsFree(content) : content);
    state.keptBytes += file.sizeBytes;
    state.paths.set(path, source.isReport(path));
    return 'continue';
  }

  async function* whileSpaceIsFree(content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let unchecked = 0;
    for await (const chunk of content) {
      unchecked += chunk.length;
      if (unchecked > CHECK_EVERY_BYTES) {
        unchecked = 0;
        if (!disk.hasFreeSpace()) throw new OutOfSpace();
      }
      yield chunk;
    }
  }

  function linesOf(state: State): string[] {
    const { leftOut, tooLarge } = state;
    const counted = (count: number, one: string, many = `${one}s`) =>
      count === 0 ? [] : [`${count} ${count === 1 ? one : many}`];
    const unusable = [
      ...counted(leftOut.link, 'link'),
      ...counted(leftOut.special, 'pipe, socket or device', 'pipes, sockets or devices'),
      ...counted(
        leftOut.name,
        'name that is not printable UTF-8 or longer than 1024 bytes',
        'names that are not printable UTF-8 or longer than 1024 bytes',
      ),
      ...counted(leftOut.double, 'path that /srv/artifacts has too', 'paths that /srv/artifacts has too'),
    ];
    const wide = [...artifacts, ...reports].some(({ base }) => base === '');
    const shortages: Record<Shortage, string> = {
      limit: `the artifacts are incomplete because of ARTIFACT_LIMIT (${limitBytes} bytes): ${tooLarge.length} ${tooLarge.length === 1 ? 'file was' : 'files were'} left out, the first is ${tooLarge[0]}; keep less, or ask an administrator to raise the limit`,
      count: `the artifacts are incomplete: only the first ${MAX_ARTIFACTS} files were kept; pack small files into an archive`,
      disk: 'the artifacts are incomplete: the disk of the appliance is nearly full',
      late: `the artifacts are incomplete: collecting them took longer than ${MAX_COLLECT_MS / 60_000} minutes`,
      canceled: 'the artifacts are incomplete: the build was canceled while they were collected',
      broken: 'the artifacts are incomplete: Docker could not read all files',
    };
    return [
      ...(wide
        ? ['the whole workspace was read because a glob begins with a wildcard: begin it with a directory']
        : []),
      ...(state.paths.size > 0
        ? [`kept ${counted(state.paths.size, 'artifact')}, ${counted(state.keptBytes, 'byte')}`]
        : []),
      ...(unusable.length > 0 ? [`not kept as artifacts: ${unusable.join(', ')}`] : []),
      ...(state.shortage ? [shortages[state.shortage]] : []),
    ];
  }

  return { isEmpty, run };
}

class OutOfSpace extends Error {}

type State = ReturnType<typeof createState>;

const createState = () => ({
  /** The kept paths, and whether each matches a glob of reports. */
  paths: new Map<string, boolean>(),
  keptBytes: 0,
  skippedBytes: 0,
  tooLarge: [] as string[],
  leftOut: { link: 0, special: 0, name: 0, double: 0 },
  shortage: undefined as Shortage | undefined,
});

function sourcesOf(artifacts: readonly PathGlob[], reports: readonly PathGlob[]): Source[] {
  const isReport = (path: string) => reports.some(glob => glob.matches(path));
  return [
    { directory: ARTIFACTS_DIRECTORY, inside: '', keep: () => true, isReport },
    ...basesOf([...artifacts, ...reports]).map(inside => ({
      directory: PROJECT_DIRECTORY,
      inside,
      keep: (path: string) => artifacts.some(glob => glob.matches(path)) || isReport(path),
      isReport,
    })),
  ];
}

/** What is read of the workspace after the end. */
export const workspacePaths = (suite: { artifacts: string; reports: string }): KeptPath[] =>
  sourcesOf(parsePathGlobs(suite.artifacts), parsePathGlobs(suite.reports))
    .filter(({ directory }) => directory === PROJECT_DIRECTORY)
    .map(({ directory, inside }) => ({ directory, inside }));

/** The names in the tar begin with the last segment of the path that was read. */
function pathOf({ inside }: Source, name: string): string {
  const rest = name
    .replace(/^\.?\/+/, '')
    .replace(/^[^/]*\/?/, '')
    .replace(/\/$/, '');
  return [inside, rest].filter(part => part !== '').join('/');
}

const isAllowed = (path: string) =>
  path !== '' &&
  Buffer.byteLength(path) <= MAX_PATH_BYTES &&
  !/[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufffd]/.test(path) &&
  !path.split('/').some(segment => segment === '' || segment === '.' || segment === '..');

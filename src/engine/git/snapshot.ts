// Verifies the git bundle of a working tree and unpacks it into a bare repository of its own, which borrows from the project's
// mirror. The bundle is untrusted: its size, its objects and the time that it takes are limited.

import { existsSync } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { GitFailure, runGit } from './git.ts';
import { listReachable, presentCommits } from './history.ts';
import { createRepository, TOLERATED } from './mirror.ts';

/** The only ref of a bundle. */
export const SNAPSHOT_REF = 'refs/assay/snapshot';
/** The commits that the bundle builds on, in the repository of the snapshot. */
const BASES = 'refs/assay/base';

type BundleFailureReason = 'invalid' | 'unknown_base' | 'disk_full';

export class BundleFailure extends Error {
  override name = 'BundleFailure';
  readonly reason: BundleFailureReason;
  constructor(reason: BundleFailureReason, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}

export type UnpackSnapshot = {
  bundle: string;
  mirror: string;
  /** The repository to create. It does not exist before, and not after a failure. */
  repository: string;
  /** Checked while the bundle is unpacked. */
  hasFreeSpace(): boolean;
  signal: AbortSignal;
  deadlineMs?: number;
};

const HEADER_MAX_BYTES = 256 * 1024;
const BASES_MAX = 1_000;
const OBJECTS_MAX = 1_000_000;
const OBJECT_MAX_BYTES = 256 * 1024 ** 2;
const TOTAL_MAX_BYTES = 4 * 1024 ** 3;
/** Git adds to the pack what the bundle's deltas refer to in the mirror, so it may become larger than the bundle. */
const PACK_MAX_BYTES = 1024 ** 3;
const MEMORY_MAX_BYTES = OBJECT_MAX_BYTES + 1024 ** 2;
/** A bundle of few KB may keep git busy for hours. The time that it gets depends on its size. */
const DEADLINE_MS = 30_000;
const DEADLINE_MS_PER_MIB = 600;
const WATCH_MS = 200;

const invalid = (message: string) => new BundleFailure('invalid', message);

/** Returns the hash of the snapshot's commit. */
export async function unpackSnapshot(options: UnpackSnapshot): Promise<string> {
  const { bundle, mirror, repository } = options;
  const file = await open(bundle, 'r');
  try {
    const header = await readHeader(file);
    await checkBases(mirror, header.bases);
    await createRepository(repository);
    await unpack(options, header, file);
    return header.ref;
  } catch (error) {
    await rm(repository, { recursive: true, force: true });
    if (!(error instanceof GitFailure) || options.signal.aborted) throw error;
    const isDiskFull = /No space left on device|Disk quota exceeded/.test(error.detail);
    throw new BundleFailure(isDiskFull ? 'disk_full' : 'invalid', error.reason, error);
  } finally {
    await file.close();
  }
}

/** The commits that the snapshot builds on and that a branch or a tag of the mirror contains. */
export async function listBases(repository: string, mirror: string): Promise<string[]> {
  const { output } = await runGit(['for-each-ref', '--format=%(objectname)', BASES], { repository });
  const bases = output.split('\n').filter(line => line !== '');
  return [...(await listReachable(mirror, bases, 'branches and tags'))];
}

/** Whether the snapshot was unpacked with a mirror to borrow from. */
export const borrowsFromMirror = (repository: string) => existsSync(alternatesOf(repository));

const alternatesOf = (repository: string) => join(repository, 'objects/info/alternates');

type Header = {
  ref: string;
  bases: string[];
  /** Where the pack begins. */
  packOffset: number;
};

/** Reads the header. The file is then at the beginning of the pack. */
async function readHeader(file: FileHandle): Promise<Header> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_MAX_BYTES), 0, HEADER_MAX_BYTES, 0);
  const bytes = buffer.subarray(0, bytesRead);
  const header = parseHeader(bytes);
  for (let at = 0; at < header.packOffset; ) {
    // Without a position, as git will read it.
    const read = await file.read(Buffer.alloc(header.packOffset - at), 0, header.packOffset - at, null);
    at += read.bytesRead;
  }
  return header;
}

function parseHeader(bytes: Buffer): Header {
  const end = bytes.indexOf('\n\n');
  if (end < 0) throw invalid('it has no header of a bundle');
  const [signature = '', ...lines] = bytes.toString('utf8', 0, end).split('\n');
  if (!/^# v[23] git bundle$/.test(signature)) throw invalid('it is not a bundle of version 2 or 3');
  const bases: string[] = [];
  const refs: { hash: string; name: string }[] = [];
  for (const line of lines) {
    const [, base, hash = '', name] = /^(?:-([0-9a-f]{40})(?: .*)?|([0-9a-f]{40}) (.+))$/.exec(line) ?? [];
    if (base !== undefined) bases.push(base);
    else if (name !== undefined) refs.push({ hash, name });
    // Others, such as a filter, leave out objects.
    else if (line !== '@object-format=sha1' || !signature.includes('v3'))
      throw invalid(`its header has a line that is not supported: ${JSON.stringify(line.slice(0, 100))}`);
  }
  const [ref] = refs;
  if (refs.length !== 1 || ref?.name !== SNAPSHOT_REF) throw invalid(`its only ref must be ${SNAPSHOT_REF}`);
  if (bases.length > BASES_MAX) throw invalid(`it builds on more than ${BASES_MAX} commits`);
  const packOffset = end + 2;
  const pack = bytes.subarray(packOffset, packOffset + 12);
  if (pack.length < 12 || pack.toString('latin1', 0, 4) !== 'PACK') throw invalid('it has no pack');
  const objects = pack.readUInt32BE(8);
  if (objects > OBJECTS_MAX) throw invalid(`it has more than ${OBJECTS_MAX} objects`);
  return { ref: ref.hash, bases, packOffset };
}

async function checkBases(mirror: string, bases: readonly string[]): Promise<void> {
  if (bases.length === 0) return;
  const present = existsSync(join(mirror, 'HEAD')) ? await presentCommits(mirror, bases) : [];
  if (present.length < bases.length)
    throw new BundleFailure('unknown_base', 'it builds on a commit that the mirror does not have');
}

async function unpack(options: UnpackSnapshot, { ref, bases }: Header, file: FileHandle): Promise<void> {
  const { repository, mirror, signal } = options;
  const sizeMib = (await file.stat()).size / 1024 ** 2;
  const deadlineMs = options.deadlineMs ?? DEADLINE_MS + sizeMib * DEADLINE_MS_PER_MIB;
  const deadlineAt = performance.now() + deadlineMs;
  const call = () => ({
    repository,
    signal,
    memoryMaxBytes: MEMORY_MAX_BYTES,
    deadlineMs: Math.max(1, deadlineAt - performance.now()),
  });
  const alternates = alternatesOf(repository);
  // Relative, so that the data directory can be moved.
  const borrowed = relative(join(repository, 'objects'), join(mirror, 'objects'));
  if (existsSync(join(mirror, 'HEAD'))) await writeFile(alternates, `${borrowed}\n`);
  const stop = watchPack(options);
  try {
    await runGit(
      [
        'index-pack',
        '--stdin',
        '--fix-thin',
        '--threads=1',
        `--strict=${TOLERATED.map(defect => `${defect}=ignore`).join()}`,
      ],
      { ...call(), inputFile: file.fd, signal: AbortSignal.any([signal, stop.signal]) },
    );
  } catch (error) {
    throw stop.signal.aborted ? stop.signal.reason : error;
  } finally {
    stop.end();
  }
  await hide(alternates, () => checkObjects(ref, call()));
  // All that the commit needs is here or in the mirror.
  await runGit(['rev-list', '--objects', '--quiet', '--stdin'], {
    ...call(),
    input: [ref, ...bases.map(base => `^${base}`), ''].join('\n'),
  });
  const refs = [[SNAPSHOT_REF, ref], ...bases.map((base, index) => [`${BASES}/${index}`, base])];
  await runGit(['update-ref', '--stdin'], {
    ...call(),
    input: refs.map(([name, hash]) => `create ${name} ${hash}\n`).join(''),
  });
}

/** Ends the unpacking if the pack becomes too large for the limit or for the disk. */
function watchPack({ repository, hasFreeSpace }: UnpackSnapshot) {
  const stop = new AbortController();
  const directory = join(repository, 'objects/pack');
  const check = async () => {
    if (!hasFreeSpace()) stop.abort(new BundleFailure('disk_full', 'the disk is nearly full'));
    for (const name of await readdir(directory)) {
      const found = await stat(join(directory, name)).catch(() => undefined);
      if ((found?.size ?? 0) > PACK_MAX_BYTES) stop.abort(invalid('its pack becomes too large'));
    }
  };
  const checkAndStop = () => check().catch(error => stop.abort(error));
  checkAndStop();
  const timer = setInterval(checkAndStop, WATCH_MS);
  return { signal: stop.signal, end: () => clearInterval(timer) };
}

/** While it runs, the repository has its own objects only. */
async function hide(alternates: string, work: () => Promise<void>): Promise<void> {
  if (!existsSync(alternates)) return work();
  const hidden = join(dirname(alternates), 'hidden');
  await rename(alternates, hidden);
  await work();
  await rename(hidden, alternates);
}

/** Checks the sizes of all objects, and that the commit is one of them. */
async function checkObjects(ref: string, call: { repository: string; signal: AbortSignal }): Promise<void> {
  let rest = '';
  let totalBytes = 0;
  let hasCommit = false;
  let failure: BundleFailure | undefined;
  const stop = new AbortController();
  const fail = (message: string) => {
    failure ??= invalid(message);
    stop.abort();
  };
  const format = '%(objectname) %(objecttype) %(objectsize)';
  await runGit(['cat-file', '--batch-all-objects', '--unordered', `--batch-check=${format}`], {
    ...call,
    signal: AbortSignal.any([call.signal, stop.signal]),
    isStreamed: true,
    onOutput(chunk, from) {
      if (from !== 'output') return;
      const lines = (rest + chunk.toString('latin1')).split('\n');
      rest = lines.pop() as string;
      for (const line of lines) {
        const [hash, type, size] = line.split(' ');
        if (hash === ref && type === 'commit') hasCommit = true;
        if (Number(size) > OBJECT_MAX_BYTES) fail('it has a file that is too large');
        totalBytes += Number(size);
      }
      if (totalBytes > TOTAL_MAX_BYTES) fail('its files are too large together');
    },
  }).catch(error => {
    throw failure ?? error;
  });
  if (!hasCommit) throw invalid(`${SNAPSHOT_REF} is not a commit of the bundle`);
}

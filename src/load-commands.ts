// Loads the commands of the client or the server. In the executable each is a file of its own, because compiling takes
// longer than many commands. The compiled code of `assay serve` is kept in the data directory for the next start.

import {
  closeSync,
  fstatSync,
  constants as modes,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Script } from 'node:vm';
import { crc32 } from 'node:zlib';
import { findAsset } from './asset.ts';
import { dataDirectoryOf } from './config.ts';
import { codeCachePath } from './store/data/paths.ts';

type ServerModule = typeof import('./cli.ts');
type ClientModule = typeof import('./client/command-line.ts');

/** By then, the functions that the start needs have been compiled. */
const KEEP_AFTER_MS = 3_000;
/** Requests wait while the compiled code is copied. A server that is busier than this does it later. */
const MAX_UTILIZATION = 0.2;
const CHECKSUM_BYTES = 16;

export async function loadClient(): Promise<ClientModule> {
  const code = findAsset('client.cjs');
  if (code === undefined) return import('./client/command-line.ts');
  return run('client.cjs', code).exports as ClientModule;
}

export async function loadServer(argv: readonly string[]): Promise<ServerModule> {
  const code = findAsset('server.cjs');
  if (code === undefined) return import('./cli.ts');
  const cachePath = findCachePath(argv);
  const cachedData = cachePath === undefined ? undefined : readCache(cachePath, code);
  const { script, exports } = run('server.cjs', code, cachedData);
  if (cachePath !== undefined && script.cachedDataRejected !== false)
    whenQuiet(() => writeCache(cachePath, code, script.createCachedData()));
  return exports as ServerModule;
}

/** Runs a file that build/bundle.ts made. It is one function, so that its text need not be copied to wrap it. */
function run(name: string, code: Buffer, cachedData?: Buffer): { script: Script; exports: unknown } {
  const filename = join(import.meta.dirname, name);
  const script = new Script(code.toString('latin1'), { filename, ...(cachedData && { cachedData }) });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, requireFrom(filename), module, filename, import.meta.dirname);
  return { script, exports: module.exports };
}

const packages = new Map<string, unknown>();

/** Like Node's own, but finds packages that are files of their own. */
function requireFrom(filename: string): (name: string) => unknown {
  const require = createRequire(filename);
  return name => {
    if (packages.has(name)) return packages.get(name);
    const code = isBuiltin(name) ? undefined : findAsset(`${name}.cjs`);
    if (code === undefined) return require(name);
    const { exports } = run(`${name}.cjs`, code);
    packages.set(name, exports);
    return exports;
  };
}

function whenQuiet(run: () => void): void {
  let before = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const { utilization } = performance.eventLoopUtilization(before);
    before = performance.eventLoopUtilization();
    if (utilization > MAX_UTILIZATION) return;
    clearInterval(timer);
    run();
  }, KEEP_AFTER_MS);
  timer.unref();
}

/** Only for the server itself: other commands may run as another user, who must not run code that the server's user wrote. */
function findCachePath(argv: readonly string[]): string | undefined {
  if (argv[0] !== 'serve') return undefined;
  const { values } = parseArgs({ args: [...argv], strict: false, options: { data: { type: 'string' } } });
  return codeCachePath(dataDirectoryOf(values.data?.toString(), process.env));
}

/**
 * V8 compares only its own version and the length of the text, so a checksum covers the text and the compiled code. It finds
 * accidents. Nobody else can write the file, and a cryptographic hash would make the start 10 ms longer.
 */
function checksumOf(code: Buffer, compiled: Buffer): Buffer {
  const checksum = new Uint32Array([code.length, crc32(code), compiled.length, crc32(compiled)]);
  return Buffer.from(checksum.buffer);
}

/** Undefined if there is none, or if it is not from this code or could have been written by somebody else. */
function readCache(path: string, code: Buffer): Buffer | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, modes.O_RDONLY | modes.O_NOFOLLOW | modes.O_NONBLOCK);
    const status = fstatSync(file);
    const isOurs = status.isFile() && status.uid === process.getuid?.() && (status.mode & 0o022) === 0;
    if (!isOurs) return undefined;
    const bytes = readFileSync(file);
    const compiled = bytes.subarray(CHECKSUM_BYTES);
    return checksumOf(code, compiled).equals(bytes.subarray(0, CHECKSUM_BYTES)) ? compiled : undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/** Failing is harmless: the next start takes longer. A file that was cut off by a power failure has the wrong checksum. */
function writeCache(path: string, code: Buffer, compiled: Buffer): void {
  const temporaryPath = `${path}.new`;
  try {
    writeFileSync(temporaryPath, Buffer.concat([checksumOf(code, compiled), compiled]), { mode: 0o600 });
    renameSync(temporaryPath, path);
  } catch {}
}

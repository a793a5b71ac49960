// Loads the commands of the client, those of the server, or `assay serve` alone. In the executable each is a file of its own,
// because compiling takes longer than many commands. The compiled code of `assay serve` is kept in the data directory for
// the next start.

import { createCipheriv } from 'node:crypto';
import { closeSync, fstatSync, constants as modes, openSync, readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Script } from 'node:vm';
import { findAsset } from './asset.ts';
import { dataDirectoryOf } from './config.ts';
import { codeCachePath } from './store/data/paths.ts';

type ClientModule = typeof import('./client/command-line.ts');
type CommandModule = { runCommand(argv: readonly string[]): Promise<number> };

/** By then, the functions that the start needs have been compiled. */
const KEEP_AFTER_MS = 3_000;
/** Requests wait while the compiled code is copied. A server that is busier than this does it later. */
const MAX_UTILIZATION = 0.2;
const CHECKSUM_BYTES = 16;
/** Node's own modules that a start does not need. Code outside of functions must not use them. */
const LOADED_LATER = ['zlib', 'dns', 'https', 'readline', 'readline/promises'];

export async function loadClient(): Promise<ClientModule> {
  const code = findCode('client');
  if (code === undefined) return import('./client/command-line.ts');
  return run('client', code).exports as ClientModule;
}

export async function loadCommands(argv: readonly string[]): Promise<CommandModule> {
  if (argv[0] === 'serve') return loadServer(argv);
  const code = findCode('commands');
  if (code === undefined) return import('./cli.ts');
  return run('commands', code).exports as CommandModule;
}

/** The other commands may run as another user, who must not run code that the server's user wrote. */
async function loadServer(argv: readonly string[]): Promise<CommandModule> {
  const code = findCode('server');
  if (code === undefined) return import('./cli/serve.ts');
  const { values } = parseArgs({ args: [...argv], strict: false, options: { data: { type: 'string' } } });
  const cachePath = codeCachePath(dataDirectoryOf(values.data?.toString(), process.env));
  const { script, exports } = run('server', code, readCache(cachePath, code));
  if (script.cachedDataRejected !== false)
    whenQuiet(() => writeCache(cachePath, code, script.createCachedData()));
  return exports as CommandModule;
}

/** A file that build/bundle.ts made. Those that may load more slowly are compressed. Undefined in the source tree. */
function findCode(name: string): Buffer | undefined {
  const code = findAsset(`${name}.cjs`);
  if (code !== undefined) return code;
  const compressed = findAsset(`${name}.cjs.zst`);
  return compressed && process.getBuiltinModule('node:zlib').zstdDecompressSync(compressed);
}

/** Runs such a file. It is one function, so that its text need not be copied to wrap it. */
function run(name: string, code: Buffer, cachedData?: Buffer): { script: Script; exports: unknown } {
  const filename = join(import.meta.dirname, `${name}.cjs`);
  const script = new Script(code.toString('latin1'), { filename, ...(cachedData && { cachedData }) });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, requireFrom(filename), module, filename, import.meta.dirname);
  return { script, exports: module.exports };
}

const packages = new Map<string, unknown>();

/** Like Node's own, but finds packages that are files of their own, and loads some modules of Node when they are first used. */
function requireFrom(filename: string): (name: string) => unknown {
  const require = createRequire(filename);
  return name => {
    if (LOADED_LATER.includes(name.replace(/^node:/, ''))) return loadedWhenUsed(() => require(name));
    if (packages.has(name)) return packages.get(name);
    const code = isBuiltin(name) ? undefined : findCode(name);
    if (code === undefined) return require(name);
    const { exports } = run(name, code);
    packages.set(name, exports);
    return exports;
  };
}

const loadedWhenUsed = (load: () => object): object =>
  new Proxy({}, { get: (_, property) => Reflect.get(load(), property) });

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

/**
 * V8 compares only its own version and the length of the text, so a checksum covers the text and the compiled code. It finds
 * accidents: nobody else can write the file. GMAC takes 1 ms. CRC-32 takes 3 ms with the module that it needs.
 */
function checksumOf(code: Buffer, compiled: Buffer): Buffer {
  const mac = createCipheriv('aes-128-gcm', Buffer.alloc(16), Buffer.alloc(12));
  mac.setAAD(code).setAAD(compiled).final();
  return mac.getAuthTag();
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
async function writeCache(path: string, code: Buffer, compiled: Buffer): Promise<void> {
  const temporaryPath = `${path}.new`;
  try {
    await writeFile(temporaryPath, [checksumOf(code, compiled), compiled], { mode: 0o600 });
    await rename(temporaryPath, path);
  } catch {}
}

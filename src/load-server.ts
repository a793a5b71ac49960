// Loads the commands of the server. In the executable they are a file of their own, because compiling them takes longer
// than many commands of the client. The compiled code of `assay serve` is kept in the data directory for the next start.

import { createHash } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  constants as modes,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Script, constants as vm } from 'node:vm';
import { findAsset } from './asset.ts';
import { dataDirectoryOf } from './config.ts';
import { codeCachePath } from './store/data/paths.ts';

type ServerModule = typeof import('./cli.ts');

/** By then, the functions that the start needs have been compiled. */
const KEEP_AFTER_MS = 3_000;
const DIGEST_BYTES = 32;

export async function loadServer(argv: readonly string[]): Promise<ServerModule> {
  const code = findAsset('server.cjs');
  if (code === undefined) return import('./cli.ts');
  const path = join(import.meta.dirname, 'server.cjs');
  const cachePath = findCachePath(argv);
  const cachedData = cachePath === undefined ? undefined : readCache(cachePath, code);
  const script = new Script(code.toString('latin1'), {
    filename: path,
    ...(cachedData && { cachedData }),
    importModuleDynamically: vm.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  const module = { exports: {} as ServerModule };
  const require = createRequire(path);
  // build/bundle.ts makes it one function, so that its text need not be copied to wrap it.
  script.runInThisContext()(module.exports, require, module, path, import.meta.dirname);
  if (cachePath !== undefined && script.cachedDataRejected !== false)
    setTimeout(() => writeCache(cachePath, code, script.createCachedData()), KEEP_AFTER_MS).unref();
  return module.exports;
}

/** Only for the server itself: other commands may run as another user, who must not run code that the server's user wrote. */
function findCachePath(argv: readonly string[]): string | undefined {
  if (argv[0] !== 'serve') return undefined;
  const { values } = parseArgs({ args: [...argv], strict: false, options: { data: { type: 'string' } } });
  return codeCachePath(dataDirectoryOf(values.data?.toString(), process.env));
}

/** V8 compares only its own version and the length of the text, so a digest covers the text and the compiled code. */
const digestOf = (code: Buffer, compiled: Buffer) =>
  createHash('sha256').update(code).update(compiled).digest();

/** Undefined if there is none, or if it is not from this code or could have been written by somebody else. */
function readCache(path: string, code: Buffer): Buffer | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, modes.O_RDONLY | modes.O_NOFOLLOW | modes.O_NONBLOCK);
    const status = fstatSync(file);
    const isOurs = status.isFile() && status.uid === process.getuid?.() && (status.mode & 0o022) === 0;
    if (!isOurs) return undefined;
    const bytes = readFileSync(file);
    const compiled = bytes.subarray(DIGEST_BYTES);
    return digestOf(code, compiled).equals(bytes.subarray(0, DIGEST_BYTES)) ? compiled : undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/** Failing is harmless: the next start takes longer. A file that was cut off by a power failure has the wrong digest. */
function writeCache(path: string, code: Buffer, compiled: Buffer): void {
  const temporaryPath = `${path}.new`;
  try {
    writeFileSync(temporaryPath, Buffer.concat([digestOf(code, compiled), compiled]), { mode: 0o600 });
    renameSync(temporaryPath, path);
  } catch {}
}

// Loads files that are not JavaScript: from the source tree, or from inside the executable, where build/pack.ts puts them
// under the same name.

import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { getRawAsset, isSea } from 'node:sea';

/** The content of a file, by its path under src/: `web/client/style.css`. */
export function asset(name: string): Buffer {
  return isSea() ? Buffer.from(getRawAsset(name)) : readFileSync(join(import.meta.dirname, name));
}

const NOT_FOUND = ['ENOENT', 'ERR_SINGLE_EXECUTABLE_APPLICATION_ASSET_NOT_FOUND'];

/** For files that build/ makes, which the source tree does not have. */
export function findAsset(name: string): Buffer | undefined {
  try {
    return asset(name);
  } catch (error) {
    if (!NOT_FOUND.includes(String((error as NodeJS.ErrnoException).code))) throw error;
    return undefined;
  }
}

type ClientFile = { content: Uint8Array<ArrayBuffer>; sha256: string };
let client: Promise<ClientFile> | undefined;

/** assay.mjs, the client as one file. In the source tree it is made when it is first asked for. */
export function clientFile(): Promise<ClientFile> {
  client ??= loadClient().then(bytes => ({
    content: new Uint8Array(bytes),
    sha256: createHash('sha256').update(bytes).digest('hex'),
  }));
  return client;
}

async function loadClient(): Promise<Uint8Array> {
  const made = findAsset('assay.mjs');
  if (made) return made;
  return (await loadBundler()).bundleClient();
}

/** Its path is not a literal, because the executable must not contain the bundler. */
const loadBundler = (): Promise<{
  bundleClient(): Promise<Uint8Array>;
  bundlePageFiles(): Promise<Map<string, Uint8Array>>;
}> => import(join(import.meta.dirname, '../build/bundle.ts'));

type Bytes = Uint8Array<ArrayBuffer>;
export type PageFile = { content: Bytes; compressed?: { br: Bytes; gzip: Bytes } };
let pageFiles: Promise<Map<string, Uint8Array>> | undefined;

/** A style sheet or script of the pages. In the source tree all are made when one is first asked for, and not compressed. */
export async function findPageFile(name: string): Promise<PageFile | undefined> {
  const made = findAsset(`pages/${name}`);
  const load = (path: string) => new Uint8Array(asset(path));
  if (made)
    return {
      content: new Uint8Array(made),
      compressed: { br: load(`pages/${name}.br`), gzip: load(`pages/${name}.gz`) },
    };
  if (findAsset('pages/base.css')) return undefined;
  pageFiles ??= loadBundler().then(({ bundlePageFiles }) => bundlePageFiles());
  const content = (await pageFiles).get(name);
  return content && { content: new Uint8Array(content) };
}

let loadedBinding: { path: string; exports: object } | undefined;

/** SQLite's native module in the executable. Undefined when run from source, where better-sqlite3 finds its own. */
export function nativeBinding(): object | undefined {
  if (!isSea()) return undefined;
  loadedBinding ??= loadBinding();
  return loadedBinding.exports;
}

/** Where another thread loads the same module from. The file may be gone: the system finds what it loaded by the path. */
export function nativeBindingPath(): string {
  const prebuilt = `../node_modules/better-sqlite3/prebuilds/linux-${process.arch}.node`;
  return loadedBinding?.path ?? join(import.meta.dirname, prebuilt);
}

// The system loads native code only from a file. The file is in a private directory with a random name, and is removed as
// soon as it is loaded. If /tmp is mounted noexec, the next directory is tried.
function loadBinding(): { path: string; exports: object } {
  const reasons: string[] = [];
  for (const parent of new Set([tmpdir(), process.env.XDG_RUNTIME_DIR ?? '', '/var/tmp', '/dev/shm'])) {
    if (parent === '') continue;
    let directory: string | undefined;
    try {
      directory = mkdtempSync(join(parent, 'assay-'));
      const path = join(directory, 'sqlite.node');
      writeFileSync(path, asset('sqlite.node'), { mode: 0o500, flag: 'wx' });
      const module = { exports: {} };
      process.dlopen(module, path, constants.dlopen.RTLD_NOW);
      return { path, exports: module.exports };
    } catch (error) {
      reasons.push(`${parent}: ${(error as Error).message}`);
    } finally {
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
    }
  }
  throw new Error(
    `SQLite cannot be loaded: set TMPDIR to a directory that is writable and not mounted noexec (${reasons.join('; ')})`,
  );
}

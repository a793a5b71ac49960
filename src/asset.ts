// Owns how the program finds what is not JavaScript: beside the sources when run from them, inside
// the executable when packed (build/pack.ts puts it there under the same name).
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { getRawAsset, isSea } from 'node:sea';

/** The content of a file under src/, named by its path there: `web/client/style.css`. */
export function asset(name: string): Buffer {
  return isSea() ? Buffer.from(getRawAsset(name)) : readFileSync(join(import.meta.dirname, name));
}

let loadedBinding: object | undefined;

/** SQLite's native part when packed; undefined when run from source, where better-sqlite3 finds its own. */
export function nativeBinding(): object | undefined {
  if (!isSea()) return undefined;
  loadedBinding ??= loadBinding();
  return loadedBinding;
}

// The system can only load it from a file. Each try has a directory of its own with a name that nobody
// can foresee, and is gone as soon as the code is mapped. /tmp may be mounted noexec: then the next place.
function loadBinding(): object {
  const reasons: string[] = [];
  for (const place of new Set([tmpdir(), process.env.XDG_RUNTIME_DIR ?? '', '/var/tmp', '/dev/shm'])) {
    if (place === '') continue;
    let directory: string | undefined;
    try {
      directory = mkdtempSync(join(place, 'assay-'));
      const path = join(directory, 'sqlite.node');
      writeFileSync(path, asset('sqlite.node'), { mode: 0o500, flag: 'wx' });
      const module = { exports: {} };
      process.dlopen(module, path, constants.dlopen.RTLD_NOW);
      return module.exports;
    } catch (error) {
      reasons.push(`${place}: ${(error as Error).message}`);
    } finally {
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
    }
  }
  throw new Error(
    `SQLite cannot be loaded: set TMPDIR to a directory that is writable and not mounted noexec (${reasons.join('; ')})`,
  );
}

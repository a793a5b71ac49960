// The index of an artifact lists its files and directories with their sizes, so that they can be shown without unpacking it.
// It is an SQLite file beside the artifact, and is made again if it is missing or damaged.

import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import type { ArtifactEntry, ArtifactEntryType, ArtifactTarEntry } from '../../domain/artifact-entry.ts';
import { isDamageError } from '../database/database-check.ts';
import { openSqlite, type Sqlite } from '../database/db.ts';

export type EntryOrder = 'name' | 'size';
type EntryPage = { order: EntryOrder; after?: bigint | undefined; limit: number };

/** Written when the index is complete. */
const VERSION = 1;
const ROOT = 1;

/** Names are the segments of paths. No name is used as a path on the host. */
const segmentsOf = (path: string) => path.split('/').filter(segment => segment !== '' && segment !== '.');

type OpenDirectory = {
  id: number;
  parent: number;
  name: string;
  mode: number;
  sizeBytes: number;
  files: number;
  isNew: boolean;
};

/** Disposing removes what was written, unless the index is finished. */
export type IndexWriter = Disposable & {
  add(entry: ArtifactTarEntry): void;
  /** Moves the complete index to its path. */
  finish(path: string): Promise<void>;
};

/**
 * Writes an index to `file`. Only the directories above the current entry are in memory. Each entry is written at once, which
 * takes microseconds. Entries are expected in the order of a walk; other orders are slower, not wrong.
 */
export function createIndex(file: string): IndexWriter {
  rmSync(file, { force: true });
  // Others must not read it, and SQLite would use the default mode.
  closeSync(openSync(file, 'wx', 0o600));
  const sqlite = openSqlite(file);
  // A crash leaves a file that nobody reads.
  for (const pragma of ['journal_mode = OFF', 'synchronous = OFF', 'cache_size = -8000'])
    sqlite.pragma(pragma);
  sqlite.exec(`
    CREATE TABLE entries (
      id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, mode INTEGER NOT NULL,
      size INTEGER NOT NULL, files INTEGER NOT NULL, target TEXT, offset INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX by_name ON entries (parent, name);
    CREATE INDEX by_size ON entries (parent, size);
    BEGIN`);
  const insert = sqlite.prepare('INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)');
  const grow = sqlite.prepare('UPDATE entries SET size = size + ?, files = files + ? WHERE id = ?');
  const find = sqlite
    .prepare<[number, string], number>(
      "SELECT id FROM entries WHERE parent = ? AND name = ? AND type = 'directory'",
    )
    .pluck();
  let lastId = ROOT;
  const root: OpenDirectory = {
    id: ROOT,
    parent: 0,
    name: '',
    mode: 0o755,
    sizeBytes: 0,
    files: 0,
    isNew: true,
  };
  const above: OpenDirectory[] = [];
  const current = () => above.at(-1) ?? root;

  const enter = (name: string) => {
    const parent = current().id;
    const known = find.get(parent, name);
    const id = known ?? ++lastId;
    above.push({ id, parent, name, mode: 0o755, sizeBytes: 0, files: 0, isNew: known === undefined });
  };
  const write = ({ id, parent, name, mode, sizeBytes, files, isNew }: OpenDirectory) =>
    isNew
      ? insert.run(id, parent, name, 'directory', mode, sizeBytes, files, null, 0)
      : grow.run(sizeBytes, files, id);
  const leave = () => {
    const left = above.pop() as OpenDirectory;
    write(left);
    current().sizeBytes += left.sizeBytes;
    current().files += left.files;
  };
  const goTo = (segments: readonly string[]) => {
    const shared = above.findIndex(({ name }, at) => name !== segments[at]);
    while (above.length > (shared < 0 ? segments.length : shared)) leave();
    for (const name of segments.slice(above.length)) enter(name);
  };

  return {
    add({ path, type, mode, sizeBytes, target, offset }) {
      const segments = segmentsOf(path);
      if (type === 'directory') {
        goTo(segments);
        current().mode = mode;
        return;
      }
      const name = segments.pop();
      if (name === undefined) return;
      goTo(segments);
      insert.run(++lastId, current().id, name, type, mode, sizeBytes, 0, target, offset);
      current().sizeBytes += sizeBytes;
      current().files += 1;
    },
    async finish(path) {
      while (above.length > 0) leave();
      write(root);
      sqlite.exec('COMMIT');
      sqlite.pragma(`user_version = ${VERSION}`);
      sqlite.close();
      const written = await open(file, 'r+');
      try {
        await written.sync();
      } finally {
        await written.close();
      }
      await rename(file, path);
    },
    [Symbol.dispose]() {
      sqlite.close();
      rmSync(file, { force: true });
    },
  };
}

export type ArtifactIndex = Disposable & {
  /** The entry at a path relative to the prefix. */
  find(path: string): ArtifactEntry | undefined;
  /** The entries of a directory, by name or the largest first. Undefined if `after` is not one of them. */
  list(directory: ArtifactEntry, page: EntryPage): ArtifactEntry[] | undefined;
};

/** Undefined if there is no index, or none that can be used. */
export function openIndex(path: string): ArtifactIndex | undefined {
  if (!existsSync(path)) return undefined;
  const sqlite = openSqlite(path, { readonly: true });
  try {
    if (sqlite.pragma('user_version', { simple: true }) === VERSION) return readerOf(sqlite);
  } catch (error) {
    if (!isDamageError(error)) throw error;
  }
  sqlite.close();
  return undefined;
}

function readerOf(sqlite: Sqlite): ArtifactIndex {
  type Row = { id: number; name: string; type: ArtifactEntryType; mode: number; size: number } & {
    files: number;
    target: string | null;
    offset: number;
  };
  const select = (rest: string) => sqlite.prepare<unknown[], Row>(`SELECT * FROM entries WHERE ${rest}`);
  const present = ({ id, name, type, mode, size, files, target, offset }: Row): ArtifactEntry => ({
    id: BigInt(id),
    name,
    type,
    mode,
    sizeBytes: size,
    files,
    target,
    offset,
  });
  return {
    find(path) {
      const byName = select('parent = ? AND name = ?');
      let found = select('id = ?').get(ROOT);
      for (const name of segmentsOf(path)) found = found && byName.get(found.id, name);
      return found && present(found);
    },
    list({ id: parent }, { order, after, limit }) {
      const last = after === undefined ? undefined : select('id = ? AND parent = ?').get(after, parent);
      if (after !== undefined && !last) return undefined;
      if (order === 'name')
        return select('parent = ? AND name > ? ORDER BY name LIMIT ?')
          .all(parent, last?.name ?? '', limit)
          .map(present);
      // In two steps, so that many entries of the same size are not read again for each page.
      const equal = last
        ? select('parent = ? AND size = ? AND id < ? ORDER BY id DESC LIMIT ?').all(
            parent,
            last.size,
            last.id,
            limit,
          )
        : [];
      const smaller = select('parent = ? AND size < ? ORDER BY size DESC, id DESC LIMIT ?');
      const rest = smaller.all(parent, last?.size ?? Number.MAX_SAFE_INTEGER, limit - equal.length);
      return [...equal, ...rest].map(present);
    },
    [Symbol.dispose]: () => void sqlite.close(),
  };
}

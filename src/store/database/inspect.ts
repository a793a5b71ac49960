// Reads basic values from a data directory of any version, without its key and without migrating it.

import { existsSync } from 'node:fs';
import { databasePath } from '../data/paths.ts';
import { checkDatabaseFile } from './database-check.ts';
import { openSqlite } from './db.ts';

export type Inspection = {
  /** The label of the instance's containers, volumes and networks. */
  instance: string | undefined;
  database: 'absent' | 'sound' | 'empty' | 'damaged';
  /** The image that `assay image use` chose. */
  image: string | undefined;
  /** When the newest event was created. */
  newestAt: number | undefined;
};

export function inspectData(data: string): Inspection {
  const path = databasePath(data);
  if (!existsSync(path))
    return { database: 'absent', instance: undefined, image: undefined, newestAt: undefined };
  const database = checkDatabaseFile(path);
  if (database !== 'sound') return { database, instance: undefined, image: undefined, newestAt: undefined };
  const sqlite = openSqlite(path, { readonly: true });
  try {
    const instance = sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get();
    const image = sqlite.prepare("SELECT value FROM facts WHERE name = 'image'").pluck().get();
    const newestAt = sqlite.prepare('SELECT max(created_at) FROM events').pluck().get();
    return {
      database,
      instance: instance as string | undefined,
      image: image as string | undefined,
      newestAt: (newestAt as number | null) ?? undefined,
    };
  } finally {
    sqlite.close();
  }
}

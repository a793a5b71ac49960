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
  const database = existsSync(path) ? checkDatabaseFile(path) : 'absent';
  if (database !== 'sound') return { database, instance: undefined, image: undefined, newestAt: undefined };
  using sqlite = openSqlite(path, { readonly: true });
  const value = <T>(query: string) => (sqlite.prepare(query).pluck().get() ?? undefined) as T | undefined;
  return {
    database,
    instance: value<string>("SELECT value FROM facts WHERE name = 'instance'"),
    image: value<string>("SELECT value FROM facts WHERE name = 'image'"),
    newestAt: value<number>('SELECT max(created_at) FROM events'),
  };
}

// What the commands that open the data directory share.

import { type FlagKind, type Invocation, UsageError } from '../command/command.ts';
import { readSettings, type Settings, settings } from '../config.ts';
import { errorMessage } from '../contract/error-text.ts';
import { Refusal } from '../domain/refusal.ts';
import { EngineRefused, EngineUnavailable } from '../engine/engine.ts';
import { createDataDirectory, DataError, openData } from '../store/data/data.ts';
import type { Db } from '../store/database/db.ts';

const PATHS = ['DATA', 'TLS_CERT', 'TLS_KEY'];

/** Every setting as a flag. Commands that open the data directory accept them all, so that they can share an env file. */
export const settingFlags: Record<string, FlagKind> = Object.fromEntries(
  settings.map(({ name }) => [
    name.toLowerCase().replaceAll('_', '-'),
    PATHS.includes(name) ? 'path' : 'value',
  ]),
);

/** The exit status for an error that a person has to fix. Undefined for a defect. */
export const statusOf = (error: unknown): number | undefined =>
  error instanceof DataError || error instanceof EngineUnavailable || error instanceof EngineRefused
    ? 1
    : undefined;

export const DATA_LINE = '  --data DIRECTORY      the data directory [./assay-data]';

/** Opens the data directory, which is created on first use, and closes it at the end. */
export async function withData<T>(
  { flags, environment }: Invocation,
  use: (db: Db, settings: Settings) => T | Promise<T>,
): Promise<T> {
  const chosen = readSettings(flags, environment).settings;
  createDataDirectory(chosen.data);
  const db = openData(chosen.data, environment);
  try {
    return await use(db, chosen);
  } finally {
    db.close();
  }
}

/** Reports a refusal with the texts of the web pages. `given` names, for each field, what the user typed. */
export async function describeRefusals<T>(
  given: Record<string, string>,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const lines = Object.entries(error.errors).map(
      ([field, codes]) =>
        `${given[field] ?? field}: ${codes.map(code => errorMessage(field, code)).join(' ')}`,
    );
    throw new UsageError(lines.join(' '));
  }
}

// Makes the filters with which logs are searched, one at a time: of a log when its build has finished, and of logs that have
// none, because a server was killed before it made them or a backup was restored.

import { opendir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { parseId } from '../../domain/id.ts';
import type { Log } from '../../log.ts';
import { isJobUnfinished } from '../../store/cleanup/sweep.ts';
import { buildLogPath, logFilterPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { MIN_FILTERED_BYTES, makeLogFilter } from '../../store/result/log-filter.ts';
import { createInTurn, type InTurn } from './in-turn.ts';

export type LogFilters = Pick<InTurn, 'idle'> & {
  /** Makes the filter of a finished build's log, after those that wait already. */
  add(buildId: bigint): void;
  /** Makes the filters that are missing, in the background. */
  repair(): void;
};

export function createLogFilters(options: {
  db: Db;
  log: Log;
  dataDirectory: string;
  stopping: AbortSignal;
}): LogFilters {
  const { dataDirectory, stopping } = options;
  const { run, idle } = createInTurn();
  let isRepairing = false;

  const make = async (path: string) => {
    if (stopping.aborted) return;
    try {
      if (await needsFilter(path)) await makeLogFilter(path, stopping);
    } catch (error) {
      // Without it, a search reads all of the log.
      if (!stopping.aborted) options.log.debug('filter of a log could not be made', { path, cause: error });
    }
  };

  return {
    add: buildId => void run(() => make(buildLogPath(dataDirectory, buildId))),
    repair() {
      if (isRepairing) return;
      isRepairing = true;
      void repairAll(options, path => run(() => make(path)))
        .catch(error => options.log.debug('filters of logs could not be checked', { cause: error }))
        .finally(() => {
          isRepairing = false;
        });
    },
    idle,
  };
}

async function repairAll(
  { db, dataDirectory, stopping }: Parameters<typeof createLogFilters>[0],
  make: (path: string) => Promise<void>,
): Promise<void> {
  for await (const { name } of await opendir(join(dataDirectory, 'logs'))) {
    if (stopping.aborted) return;
    const id = parseId(/^build-(\d+)\.log$/.exec(name)?.[1] ?? '');
    if (id === undefined || isJobUnfinished(db, 'build', id.toString())) continue;
    // One at a time, so that builds that finish meanwhile do not wait for all of them.
    await make(buildLogPath(dataDirectory, id));
  }
}

async function needsFilter(path: string): Promise<boolean> {
  const sizeOf = async (one: string) => (await stat(one).catch(() => undefined))?.size;
  return ((await sizeOf(path)) ?? 0) >= MIN_FILTERED_BYTES && !(await sizeOf(logFilterPath(path)));
}

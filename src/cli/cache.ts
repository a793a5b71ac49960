// `assay cache …`: lists and empties the caches of suites.

import { type Command, JSON_LINE, print, printLines, UsageError } from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import { cacheVolumeOf } from '../domain/cache.ts';
import { parseId } from '../domain/id.ts';
import { type Engine, EngineRefused, EngineUnavailable } from '../engine/engine.ts';
import { type Cache, type CacheOfSuite, emptyCache, findCache, listCaches } from '../store/caches.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { openEngine } from '../work/open-engine.ts';
import { DATA_LINE, settingFlags, withData } from './command.ts';

const ALL = 'all';

const list: Command = {
  name: 'cache list',
  summary: 'Lists the caches of suites, the largest first.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help: [JSON_LINE, DATA_LINE],
  run: invocation =>
    withData(invocation, db => {
      const caches = listCaches(db, Number.MAX_SAFE_INTEGER);
      return print(invocation, caches.map(present), caches.map(describe));
    }),
};

const present = (cache: CacheOfSuite) => ({
  suite_id: cache.suiteId.toString(),
  suite: cache.suiteName,
  project: cache.projectName,
  size_bytes: cache.sizeBytes,
  used_at: new Date(cache.usedAt).toISOString(),
  emptied_at: cache.emptiedAt === null ? null : new Date(cache.emptiedAt).toISOString(),
});

function describe({ suiteId, sizeBytes, usedAt, projectName, suiteName }: CacheOfSuite): string {
  const size = sizeBytes === null ? 'not measured' : sizeText(sizeBytes);
  const day = new Date(usedAt).toISOString().slice(0, 16).replace('T', ' ');
  return `${suiteId}  ${size.padStart(12)}  used ${day}  ${projectName}: ${suiteName}`;
}

const empty: Command = {
  name: 'cache empty',
  summary: 'Empties the cache of a suite, or of all.',
  positionals: ['SUITE'],
  flags: settingFlags,
  help: [
    'SUITE is the ID that `assay cache list` shows, or `all`. The next build begins with an empty cache. A running',
    'build keeps its files until it ends.',
    '',
    DATA_LINE,
  ],
  run: invocation =>
    withData(invocation, async (db, settings) => {
      const { environment } = invocation;
      const engine = openEngine(settings, { instance: instanceOf(db), environment });
      const given = invocation.positionals[0] ?? '';
      const chosen = given === ALL ? listCaches(db, Number.MAX_SAFE_INTEGER) : [getCache(db, given)];
      let inUse = 0;
      for (const cache of chosen) {
        emptyCache(db, cache.suiteId, 'on the command line');
        if (!(await removeVolume(engine, instanceOf(db), cache))) inUse += 1;
      }
      const words = chosen.length === 1 ? 'the cache is emptied' : `${chosen.length} caches are emptied`;
      const later = inUse === 0 ? '' : '; the server frees the space that is still in use later';
      return printLines(`${words}${later}`);
    }),
};

function getCache(db: Db, given: string): Cache {
  const id = parseId(given);
  const cache = id === undefined ? undefined : findCache(db, id);
  if (!cache)
    throw new UsageError(
      `no suite ${JSON.stringify(given)} has a cache; "assay cache list" shows the suites that do`,
    );
  return cache;
}

/** False if a build uses it or Docker does not answer. The server removes it later. */
async function removeVolume(engine: Engine, instance: string, cache: Cache): Promise<boolean> {
  try {
    return await engine.removeVolume(cacheVolumeOf(instance, cache.suiteId, cache.generation));
  } catch (error) {
    if (error instanceof EngineUnavailable || error instanceof EngineRefused) return false;
    throw error;
  }
}

export const cacheCommands: readonly Command[] = [list, empty];

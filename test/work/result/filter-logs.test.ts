// When the filters of logs are made.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { createLog } from '../../../src/log.ts';
import { buildLogPath } from '../../../src/store/data/paths.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { createLogFilters } from '../../../src/work/result/filter-logs.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../../store/fixture.ts';

test('filters are made when builds finish, and those that are missing are made again', async () => {
  using fixture = openFixture();
  const { db, path } = fixture;
  const dataDirectory = dirname(path);
  mkdirSync(join(dataDirectory, 'logs'));
  const project = addProject(db);
  const suites = Array.from({ length: 4 }, () => addSuite(db, project.id).id);
  const ids = addBuilds(db, project, suites).builds as [bigint, bigint, bigint, bigint];
  const [finished, old, running, short] = ids;
  for (const id of ids) {
    moveBuild(db, id, 'start', { nonce: 'n' });
    writeFileSync(buildLogPath(dataDirectory, id), 'some output\n'.repeat(id === short ? 10 : 10_000));
    if (id !== running) moveBuild(db, id, 'pass', { exitCode: 0 });
  }
  const hasFilter = (id: bigint) => existsSync(`${buildLogPath(dataDirectory, id)}.grams`);
  const filters = createLogFilters({
    db,
    log: createLog(() => {}, {}),
    dataDirectory,
    stopping: new AbortController().signal,
  });
  filters.add(finished);
  await filters.idle();
  assert.deepEqual(ids.map(hasFilter), [true, false, false, false]);
  rmSync(`${buildLogPath(dataDirectory, finished)}.grams`);
  filters.repair();
  while (!hasFilter(old) || !hasFilter(finished)) await new Promise(setImmediate);
  await filters.idle();
  assert.deepEqual(ids.map(hasFilter), [true, true, false, false]);
});

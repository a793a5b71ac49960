// Collecting artifacts with a scripted engine: cancels, an engine that fails, a full disk.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { pack } from 'tar-stream';
import type { Outcome } from '../../../src/domain/container/verdict.ts';
import { type Containers, EngineRefused, EngineUnavailable } from '../../../src/engine/engine.ts';
import { createLive } from '../../../src/live.ts';
import { createLog } from '../../../src/log.ts';
import { findBuild } from '../../../src/store/builds.ts';
import { openLog } from '../../../src/store/data/log-file.ts';
import { buildFilesPath } from '../../../src/store/data/paths.ts';
import type { JobOptions } from '../../../src/work/job.ts';
import { collectArtifacts } from '../../../src/work/result/collect-artifacts.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../../store/fixture.ts';

type Tar = ReturnType<typeof pack>;
type Script = {
  /** Fills the tar of /srv/artifacts. */
  fill(tar: Tar, attempt: number, cancel: () => void): void;
  outcome?: Outcome;
  hasFreeSpace?: () => boolean;
  isZipOnFullDisk?: boolean;
  declared?: { artifacts?: string; reports?: string };
};

const passed: Outcome = { kind: 'exit', step: 'command', status: 0, outOfMemory: false };

async function runScripted({ fill, outcome = passed, hasFreeSpace, isZipOnFullDisk, declared }: Script) {
  using fixture = openFixture();
  const { db } = fixture;
  const dataDirectory = dirname(fixture.path);
  const directory = join(dataDirectory, 'job');
  for (const path of [directory, join(dataDirectory, 'files')]) mkdirSync(path);
  if (isZipOnFullDisk) symlinkSync('/dev/full', join(directory, 'artifacts.zip'));
  const project = addProject(db);
  const suite = addSuite(db, project.id, declared);
  const [buildId] = addBuilds(db, project, [suite.id]).builds as [bigint];
  const live = createLive();
  db.onCommit = live.publish;
  const found = () => findBuild(db, project.id, buildId);
  const build = found();
  assert.ok(build);
  const happened: string[] = [];
  let attempts = 0;
  const engine: Pick<Containers, 'stopContainer' | 'readContainer'> = {
    stopContainer: async () => {},
    async readContainer(_, read, signal) {
      attempts += 1;
      const tar = pack();
      tar.on('error', () => {});
      signal?.addEventListener('abort', () => tar.destroy(signal.reason));
      fill(tar, attempts, () => {
        db.sqlite.prepare("UPDATE builds SET cancel_because = 'by somebody' WHERE id = ?").run(buildId);
        live.publish([`build:${buildId}`]);
      });
      try {
        return await read(tar as unknown as Readable);
      } catch (error) {
        throw signal?.aborted ? signal.reason : error;
      }
    },
  };
  const options = {
    db,
    dataDirectory,
    live,
    log: createLog(() => {}, {}),
    stopping: new AbortController().signal,
    host: {
      engine,
      reportUnavailable: () => happened.push('reports Docker unavailable'),
      whenAvailable: async () => void happened.push('waits for Docker'),
    },
    disk: { hasFreeSpace: hasFreeSpace ?? (() => true) },
    settings: { artifactLimitBytes: 0 },
  } as unknown as JobOptions;
  const logPath = join(dataDirectory, 'log');
  const log = await openLog({ path: logPath, limitBytes: 10_000 });
  const job = { name: 'container', directory, isCanceled: () => found()?.cancelBecause !== null };
  const collected = await collectArtifacts(options, build, job, outcome, log);
  await log.close();
  return {
    happened,
    lines: collected.lines,
    counts: collected.counts,
    paths: collected.entries.map(({ path }) => path),
    rows: db.sqlite.prepare('SELECT count(*) FROM build_artifacts').pluck().get(),
    isZipKept: existsSync(buildFilesPath(dataDirectory, buildId)),
    log: readFileSync(logPath, 'utf8'),
  };
}

const file = (tar: Tar, name: string, content = 'content') =>
  tar.entry({ name: `artifacts/${name}` }, content);

/** Writes a part of a file. */
function beginFile(tar: Tar, name: string): void {
  const sink = tar.entry({ name: `artifacts/${name}`, size: 1_000_000 });
  sink.on('error', () => {});
  sink.write('only the beginning');
}

test('Docker is not asked for artifacts when there are certainly none', async () => {
  const outcome: Outcome = { ...passed, hasNoArtifacts: true };
  for (const [declared, isAsked] of [
    [{}, false],
    [{ artifacts: 'out/*' }, true],
    [{ reports: 'junit.xml' }, true],
  ] as const) {
    let asked = false;
    await runScripted({
      outcome,
      declared,
      fill(tar) {
        asked = true;
        tar.finalize();
      },
    });
    assert.equal(asked, isAsked, JSON.stringify(declared));
  }
});

test('a cancel ends a collection, and the files that were complete are kept', async () => {
  const { paths, lines, counts } = await runScripted({
    fill(tar, _, cancel) {
      file(tar, 'first');
      beginFile(tar, 'second');
      setTimeout(cancel, 50);
    },
  });
  assert.deepEqual(paths, ['first']);
  assert.equal(counts.artifactsTruncated, true);
  assert.deepEqual(lines, [
    'kept 1 artifact, 7 bytes',
    'the artifacts are incomplete: the build was canceled while they were collected',
  ]);
});

test('a collection starts from scratch when Docker becomes available again', async () => {
  const { paths, happened, counts } = await runScripted({
    fill(tar, attempt) {
      file(tar, `of-attempt-${attempt}`);
      if (attempt === 1) setImmediate(() => tar.destroy(new EngineUnavailable('Docker is gone.')));
      else tar.finalize();
    },
  });
  assert.deepEqual(paths, ['of-attempt-2']);
  assert.deepEqual(happened, ['reports Docker unavailable', 'waits for Docker']);
  assert.equal(counts.artifactsTruncated, false);
});

test('a canceled build does not wait for Docker', async () => {
  const { paths, happened, lines } = await runScripted({
    fill: tar => void setImmediate(() => tar.destroy(new EngineUnavailable('Docker is gone.'))),
    outcome: { kind: 'canceled' },
  });
  assert.deepEqual(paths, []);
  assert.deepEqual(happened, ['reports Docker unavailable']);
  assert.deepEqual(lines, ['the artifacts were not kept: Docker is gone.']);
});

test('an engine that refuses, or cuts off the tar, is named in the log', async () => {
  const refused = await runScripted({
    fill: tar => void setImmediate(() => tar.destroy(new EngineRefused('Docker refused: disk on fire'))),
  });
  assert.deepEqual(refused.lines, ['the artifacts were not kept: Docker refused: disk on fire']);
  assert.equal(refused.counts.artifactsTruncated, true);
  const cut = await runScripted({
    fill(tar) {
      file(tar, 'first');
      beginFile(tar, 'second');
      // The end of the stream without the end of the tar.
      setTimeout(() => tar.push(null), 50);
    },
  });
  assert.deepEqual(cut.paths, ['first']);
  assert.equal(cut.lines[1], 'the artifacts are incomplete: Docker could not read all files');
});

test('with too little disk space the rest is left out, and a full disk leaves nothing behind', async () => {
  let isFree = true;
  const low = await runScripted({
    fill(tar) {
      file(tar, 'first');
      file(tar, 'second');
      file(tar, 'third');
      tar.finalize();
    },
    hasFreeSpace: () => {
      const was = isFree;
      isFree = false;
      return was;
    },
  });
  assert.deepEqual(low.paths, ['first']);
  assert.equal(low.lines[1], 'the artifacts are incomplete: the disk of the appliance is nearly full');
  const full = await runScripted({
    isZipOnFullDisk: true,
    fill(tar) {
      file(tar, 'first', 'x'.repeat(3_000_000));
      tar.finalize();
    },
  });
  assert.deepEqual(full.paths, []);
  assert.deepEqual(full.lines, ['the artifacts were not kept: the disk of the appliance is full']);
  assert.equal(full.rows, 0n);
  assert.equal(full.isZipKept, false);
});

test('a build that did not run or runs again keeps nothing', async () => {
  for (const kind of ['lost', 'not_started', 'disk_full'] as const) {
    const { paths, isZipKept } = await runScripted({
      outcome: { kind },
      fill: () => assert.fail('it was read'),
    });
    assert.deepEqual(paths, []);
    assert.equal(isZipKept, false);
  }
});

// Compares builds with real rows, logs and a real mirror: pairs in which exactly one thing changed name that thing first.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { type Build, findBuild } from '../../../src/store/builds.ts';
import { buildLogPath, mirrorPath } from '../../../src/store/data/paths.ts';
import { recordInputs } from '../../../src/store/result/build-inputs.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { createComparison } from '../../../src/work/result/compare-builds.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../../store/fixture.ts';
import { finishBuild, reported } from '../../store/result/reported.ts';
import { addCommits, createRepository } from '../../support/repository.ts';

type Used = Parameters<typeof recordInputs>[2];
const zlib = {
  id: 5n,
  name: 'zlib',
  artifactHash: 'aaaa',
  launchCommand: 'start-it',
  environment: '',
  libraryPath: true,
};
const used: Used = {
  command: 'make check',
  image: 'tools',
  imageId: 'sha256:1',
  variables: [{ id: 1n, name: 'TOKEN', content: 'the old token' }],
  dependencies: [zlib],
  limits: { MEMORY: 1_000, NETWORK: 'none' },
};

function openWorld() {
  const fixture = openFixture();
  const { db } = fixture;
  const dataDirectory = dirname(fixture.path);
  mkdirSync(join(dataDirectory, 'logs'));
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const mirror = mirrorPath(dataDirectory, project.id);
  const hashes = createRepository(mirror, [
    { message: 'One', files: { a: '1' } },
    { message: 'Two', files: { a: '2' } },
  ]);
  const finish = (id: bigint, event: 'pass' | 'fail', log = '') => {
    moveBuild(db, id, 'start');
    const build = moveBuild(db, id, event, { exitCode: event === 'pass' ? 0 : 1 }) as Build;
    if (log !== '') writeFileSync(buildLogPath(dataDirectory, id), log);
    return build;
  };
  const enqueue = (ref: string, branch = 'main') => {
    const { builds, requestId } = addBuilds(db, project, [suite.id], ref);
    db.sqlite.prepare('UPDATE build_requests SET branch = ? WHERE id = ?').run(branch, requestId);
    return builds[0] as bigint;
  };
  return {
    db,
    project,
    suite,
    mirror,
    hashes,
    enqueue,
    finish,
    compare: createComparison({ db, dataDirectory }),
    /** A finished build with inputs and a log. */
    build(event: 'pass' | 'fail', changes: Partial<Used> = {}, ref = hashes[0] as string, branch = 'main') {
      const id = enqueue(ref, branch);
      recordInputs(db, { id, projectId: project.id }, { ...used, ...changes });
      return finish(id, event, `[assay] suite unit: make\n${event === 'pass' ? 'fine' : 'broken'}\n`);
    },
    [Symbol.dispose]: () => fixture[Symbol.dispose](),
  };
}

test('if exactly one thing changed since the build that passed, it is named first', async t => {
  using world = openWorld();
  const table: [what: string, changes: Partial<Used>, kind: string, text: RegExp][] = [
    [
      'dependency',
      { dependencies: [{ ...zlib, artifactHash: 'bbbb' }] },
      'dependencies',
      /zlib was compiled again/,
    ],
    [
      'new dependency',
      { dependencies: [zlib, { ...zlib, id: 6n, name: 'lua' }] },
      'dependencies',
      /lua was added/,
    ],
    [
      'launch command',
      { dependencies: [{ ...zlib, launchCommand: 'x', environment: '', libraryPath: true }] },
      'dependencies',
      /zlib has a different launch/,
    ],
    ['image', { imageId: 'sha256:2' }, 'image', /image tools was replaced/],
    ['command', { command: 'make test' }, 'command', /command of the suite changed/],
    [
      'content of a variable',
      { variables: [{ id: 1n, name: 'TOKEN', content: 'the new token' }] },
      'variables',
      /variable TOKEN has a different value/,
    ],
    ['removed variable', { variables: [] }, 'variables', /variable TOKEN was removed/],
    ['limit', { limits: { ...used.limits, MEMORY: 500 } }, 'limits', /MEMORY from 1000 to 500/],
  ];
  for (const [what, changes, kind, text] of table)
    await t.test(what, async () => {
      const good = world.build('pass');
      const diff = await world.compare(world.build('fail', changes));
      assert.equal(diff?.base.id, good.id);
      assert.equal(diff.chosen, 'branch');
      assert.equal(diff.causes[0]?.kind, kind);
      assert.match(diff.causes[0].text, text);
      assert.deepEqual(
        diff.causes.map(cause => cause.kind),
        [kind, 'log'],
        'nothing else changed',
      );
      assert.deepEqual(diff.log?.lines, [{ line: 2, text: 'broken' }]);
      assert.ok(
        !JSON.stringify(diff, (_, value) => (typeof value === 'bigint' ? `${value}` : value)).includes(
          'token',
        ),
      );
    });
  await t.test('commit', async () => {
    const good = world.build('pass');
    const diff = await world.compare(world.build('fail', {}, world.hashes[1]));
    assert.equal(diff?.base.id, good.id);
    assert.deepEqual(diff.causes[0], { kind: 'commits', text: '1 commit by Ada, 1 file changed: Two.' });
    assert.deepEqual(diff.range?.files, [{ path: 'a', change: 'modified' }]);
    assert.equal(diff.range.commits[0]?.hash, world.hashes[1]);
  });
  await t.test('nothing', async () => {
    world.build('pass');
    const diff = await world.compare(world.build('fail'));
    assert.deepEqual(
      diff?.causes.map(({ kind }) => kind),
      ['chance', 'log'],
    );
  });
});

test('tests that fail or pass only here are listed', async () => {
  using world = openWorld();
  const run = async (...tests: ReturnType<typeof reported>[]) => {
    const id = world.enqueue(world.hashes[0] as string);
    recordInputs(world.db, { id, projectId: world.project.id }, used);
    return finishBuild(world.db, id, tests);
  };
  const before = await run(
    reported('adds', 'passed'),
    reported('divides', 'failed'),
    reported('gone', 'failed'),
    reported('always', 'errored'),
    reported('skipped now', 'failed'),
  );
  const after = await run(
    reported('adds', 'failed'),
    reported('divides', 'passed'),
    reported('always', 'failed'),
    reported('skipped now', 'skipped'),
    reported('brand new', 'errored'),
  );
  const diff = await world.compare(after, { against: before });
  assert.equal(diff?.chosen, 'caller');
  assert.deepEqual(diff.tests?.failing.map(({ name }) => name).toSorted(), ['adds', 'brand new']);
  assert.deepEqual(
    diff.tests?.fixed.map(({ name }) => name),
    ['divides'],
  );
  assert.deepEqual([diff.tests?.failingTotal, diff.tests?.fixedTotal], [2, 1]);
  assert.deepEqual(
    diff.causes.map(({ kind }) => kind),
    ['chance', 'tests'],
  );
});

test('without a choice it is the newest build before it that passed on the branch, or else at the nearest ancestor', async () => {
  using world = openWorld();
  const [one, two] = world.hashes as [string, string];
  const [three] = addCommits(world.mirror, [{ message: 'Three' }]) as [string];
  assert.equal(await world.compare(world.build('fail', {}, one)), undefined, 'nothing has passed');
  const atOne = world.build('pass', {}, one, 'other');
  const atTwo = world.build('pass', {}, two, 'other');
  const again = world.build('pass', {}, two, 'another');
  world.build('fail', {}, two);
  const failed = world.build('fail', {}, three);
  const byAncestor = await world.compare(failed);
  assert.deepEqual([byAncestor?.base.id, byAncestor?.chosen], [again.id, 'ancestor']);
  const byHash = world.build('fail', {}, three, '');
  assert.equal((await world.compare(byHash))?.base.id, again.id);
  const onBranch = world.build('pass', {}, one);
  const next = world.build('fail', {}, three);
  world.build('pass', {}, one);
  const byBranch = await world.compare(next);
  assert.deepEqual([byBranch?.base.id, byBranch?.chosen], [onBranch.id, 'branch']);
  const early = world.build('fail', {}, one, 'third');
  assert.notEqual((await world.compare(early))?.base.id, atTwo.id, 'a later commit is no ancestor');
  assert.equal((await world.compare(next, { against: atOne }))?.base.id, atOne.id);
  // A pull request of a fork is not a build of the branch that it names.
  world.db.sqlite
    .prepare('UPDATE build_requests SET pull_request = 7 WHERE id = ?')
    .run(findBuild(world.db, world.project.id, onBranch.id)?.buildRequestId);
  assert.notEqual((await world.compare(next))?.base.id, onBranch.id);
});

test('builds without recorded inputs, mirror or logs are compared by what is there', async () => {
  using world = openWorld();
  const good = world.finish(world.enqueue('b'.repeat(40)), 'pass');
  const bad = world.finish(world.enqueue('c'.repeat(40)), 'fail');
  const diff = await world.compare(bad);
  assert.equal(diff?.base.id, good.id);
  assert.deepEqual(
    [diff.inputs, diff.range, diff.tests, diff.log],
    [undefined, undefined, undefined, undefined],
  );
  assert.deepEqual(diff.causes, [{ kind: 'commits', text: 'The commit is different.' }]);
});

test('a brief comparison does not read logs, and a build that passed has no lines to explain', async () => {
  using world = openWorld();
  world.build('pass');
  assert.equal((await world.compare(world.build('fail'), { isBrief: true }))?.log, undefined);
  assert.equal((await world.compare(world.build('pass')))?.log, undefined);
});

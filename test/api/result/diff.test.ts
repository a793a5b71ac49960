// The endpoint that compares two builds.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { recordInputs } from '../../../src/store/result/build-inputs.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { bootApp, type Planted, type TestApp } from '../../support/app.ts';
import type { Wire } from '../../support/client.ts';
import { ok } from '../shape.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

const SECRET = 'the content of a variable';
const used = {
  command: 'make check',
  image: 'host',
  imageId: 'assay/host:1',
  variables: [{ id: 1n, name: 'TOKEN', content: SECRET }],
  dependencies: [
    { id: 5n, name: 'zlib', artifactHash: 'aaaa', launchCommand: '', environment: '', libraryPath: true },
  ],
  limits: { MEMORY: 100 },
};

const pathOf = ({ project_id }: Planted, build: unknown) => `/projects/${project_id}/builds/${build}`;

/** Another build of the planted one's suite and commit, which has ended. */
async function rerun(planted: Planted, event: 'pass' | 'fail', changes: Partial<typeof used> | undefined) {
  const { as } = app.people.owner;
  const answer = await app.client.call('POST', `${pathOf(planted, planted.build_id)}/rerun`, { as });
  const id = BigInt(ok(answer, 201).record.id_str as string);
  if (changes) recordInputs(app.db, { id, projectId: planted.project_id }, { ...used, ...changes });
  moveBuild(app.db, id, 'start');
  moveBuild(app.db, id, event, { exitCode: event === 'pass' ? 0 : 2 });
  return id;
}

test('the answer has the likeliest cause first, and what was before and after', async () => {
  const planted = app.plant();
  const good = await rerun(planted, 'pass', {});
  const changed = { ...used, variables: [{ id: 1n, name: 'TOKEN', content: 'x' }], command: 'make test' };
  const bad = await rerun(planted, 'fail', changed);
  await app.writeLog(good, '[assay] suite x: make\nfine\n');
  await app.writeLog(bad, '[assay] suite x: make\n\x1b[31mbroken\x1b[0m\n');
  const { record } = ok(await app.client.get(`${pathOf(planted, bad)}/diff`, app.people.owner.as));
  assert.equal((record.against as Wire).id_str, String(good));
  assert.equal(record.chosen, 'branch');
  assert.deepEqual(
    (record.causes as Wire[]).map(({ kind }) => kind),
    ['command', 'variables', 'log'],
  );
  assert.deepEqual(record.command, { before: 'make check', after: 'make test', changed: true });
  assert.deepEqual(record.variables, { added: [], removed: [], changed: ['TOKEN'] });
  assert.deepEqual(record.exit_code, { before: 0, after: 2, changed: true });
  assert.deepEqual(record.limits, [{ name: 'MEMORY', before: 100, after: 100, changed: false }]);
  assert.deepEqual(record.dependencies, [
    {
      dependency_id: 5,
      dependency_id_str: '5',
      name: 'zlib',
      before: 'aaaa',
      after: 'aaaa',
      change: 'same',
    },
  ]);
  assert.deepEqual(record.commits, { list: [], total: 0, missing: 0, files: [], files_total: 0 });
  assert.equal(record.tests, null);
  assert.deepEqual(record.log, { lines: [{ line: 2, text: 'broken' }], cut_because: null });
  assert.ok(
    !JSON.stringify(record, (_, value) => (typeof value === 'bigint' ? `${value}` : value)).includes(SECRET),
  );
});

test('a build from before inputs were recorded has null in their place', async () => {
  const planted = app.plant();
  const bad = await rerun(planted, 'fail', {});
  const { record } = ok(await app.client.get(`${pathOf(planted, bad)}/diff`, app.people.owner.as));
  assert.equal((record.against as Wire).id_str, String(planted.build_id));
  for (const name of ['command', 'image', 'limits', 'variables', 'dependencies', 'log', 'tests'])
    assert.equal(record[name], null, name);
  assert.deepEqual(record.causes, []);
});

test('another build can be named, if it is one of the same suite; without any there is nothing to compare with', async () => {
  const planted = app.plant();
  const other = app.plant();
  const { as } = app.people.owner;
  const first = await rerun(planted, 'fail', {});
  const second = await rerun(planted, 'fail', { command: 'make test' });
  const diff = (query: string, build: unknown = second) =>
    app.client.get(`${pathOf(planted, build)}/diff${query}`, as);
  const { record } = ok(await diff(`?against=${first}`));
  assert.deepEqual([(record.against as Wire).id_str, record.chosen], [String(first), 'caller']);
  const notFound = [404, { error: { against: ['not_found'] } }];
  const wrong = [404, { error: { against: ['invalid_format'] } }];
  const statusOf = async (query: string, build?: unknown) => {
    const { status, json } = await diff(query, build);
    return [status, json];
  };
  assert.deepEqual(await statusOf(`?against=${other.build_id}`), notFound);
  assert.deepEqual(await statusOf('?against=1'), notFound);
  assert.deepEqual((await statusOf('?against=x'))[1], wrong[1]);
  assert.deepEqual((await statusOf('?against='))[1], wrong[1]);
  const alone = app.plant();
  const { status, json } = await app.client.get(`${pathOf(alone, alone.build_id)}/diff`, as);
  assert.deepEqual([status, json], notFound);
});

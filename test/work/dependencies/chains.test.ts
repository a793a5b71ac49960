// Dependencies that relate to one another: the order of their compiles, outdated ones, and the slots that compiles leave
// to builds.
import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { runAssay, type Serving, serve } from '../../cli/program.ts';
import {
  type Appliance,
  clearDocker,
  containersUntil,
  docker,
  makeData,
  startAppliance,
} from '../../support/appliance.ts';
import { basic, type Client, createClient, type Wire } from '../../support/client.ts';
import { createJourney } from '../../support/journey.ts';
import { startSshd } from '../../support/sshd.ts';
import { type DependencyFixture, openDependencies, PREFIX, tarOf } from './fixture.ts';

const SOURCE = tarOf({ file: 'x' });

/** The base has the content of its archive. The others add a line to what they relate to. */
async function createChain(fixture: DependencyFixture, fields: Record<string, string> = {}) {
  const name = (level: string) => `${level} ${Math.random()}`;
  const base = { name: name('base'), prefix: '/opt/base', command: 'echo begun; cp file /opt/base' };
  const baseId = await fixture.create(base);
  const middle = {
    ...fields,
    name: name('middle'),
    prefix: '/opt/middle',
    command: 'echo begun; { cat /opt/base/file; echo middle; } >/opt/middle/file; sleep 2',
    'related_dependencies[]': baseId,
  };
  const middleId = await fixture.create(middle);
  const top = {
    ...fields,
    name: name('top'),
    prefix: '/opt/top',
    command: 'cat /opt/middle/file | tee /opt/top/file; echo top >>/opt/top/file',
    'related_dependencies[]': middleId,
  };
  const topId = await fixture.create(top);
  return { base: { ...base, id: baseId }, middle: { ...middle, id: middleId }, top: { ...top, id: topId } };
}

suite('chains', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  before(async () => {
    appliance = await startAppliance({ concurrency: 3, compileSlots: 2 });
    fixture = openDependencies(appliance);
  });
  after(() => appliance.close());
  const reasonOf = async (id: string) => ((await fixture.fetched(id)).waiting as Wire | undefined)?.reason;

  test('three that are uploaded in the wrong order are compiled by themselves, and again with one call after a change', async () => {
    const { base, middle, top } = await createChain(fixture);
    await fixture.upload(top.id, SOURCE);
    assert.equal(await reasonOf(top.id), `Waiting for the archive of ${middle.name}.`);
    await fixture.upload(middle.id, SOURCE);
    assert.equal(await reasonOf(top.id), `Waiting for ${middle.name} to be compiled.`);
    assert.equal(await reasonOf(middle.id), `Waiting for the archive of ${base.name}.`);
    await fixture.upload(base.id, tarOf({ file: 'one\n' }));
    const first = await fixture.finished(top.id);
    assert.equal(first.state, 'compiled', first.log);
    assert.match(first.log, /^one\nmiddle$/m);
    assert.equal('waiting' in first.record, false);

    await fixture.upload(base.id, tarOf({ file: 'two\n' }));
    assert.equal((await fixture.finished(base.id)).state, 'compiled');
    for (const { id } of [middle, top]) assert.equal((await fixture.fetched(id)).outdated, true);
    const enqueued = (await appliance.ask(
      'POST',
      `/dependencies/${base.id}/compile_dependents`,
    )) as unknown as Wire[];
    assert.deepEqual(
      enqueued.map(({ id_str, marketplace_state }) => [id_str, marketplace_state]),
      [middle, top].map(({ id }) => [id, 'enqueued_for_compile']),
    );
    assert.equal(
      (enqueued.at(-1) as { waiting: Wire }).waiting.reason,
      `Waiting for ${middle.name} to be compiled.`,
    );
    const recompiled = await fixture.finished(middle.id);
    assert.equal(recompiled.state, 'compiled', recompiled.log);
    const second = await fixture.finished(top.id);
    assert.equal(second.state, 'compiled', second.log);
    assert.match(second.log, /^two\nmiddle$/m, recompiled.log);
    for (const { id } of [middle, top]) assert.equal('outdated' in (await fixture.fetched(id)), false);
  });

  test('the dependents of one that cannot be compiled fail, and the error names it', async () => {
    const { base, middle, top } = await createChain(fixture);
    await fixture.upload(top.id, SOURCE);
    await fixture.upload(middle.id, SOURCE);
    await fixture.upload(base.id, tarOf({ other: 'no file' }));
    assert.equal((await fixture.finished(base.id)).state, 'compile_failed');
    for (const { id } of [middle, top]) {
      const { state, record } = await fixture.finished(id);
      assert.equal(state, 'compile_failed');
      assert.match(
        record.error as string,
        /^It relates to (base|middle) [\d.]+, which could not be compiled\.$/,
      );
    }
    await fixture.upload(base.id, tarOf({ file: 'good\n' }));
    await appliance.ask('POST', `/dependencies/${base.id}/compile_dependents`);
    const { state, log } = await fixture.finished(top.id);
    assert.equal(state, 'compiled', log);
    assert.match(log, /^good\nmiddle$/m);
  });

  test('a compile that waits for an archive can be canceled', async () => {
    const { top } = await createChain(fixture);
    await fixture.upload(top.id, SOURCE);
    await appliance.ask('POST', `/dependencies/${top.id}/cancel`);
    const { record } = await fixture.finished(top.id);
    assert.deepEqual(
      [record.marketplace_state, record.error],
      ['compile_failed', 'The compile was canceled.'],
    );
  });
});

test('compiles leave a slot to builds, and the reason of the next compile says so', async t => {
  const appliance = await startAppliance({ concurrency: 2 });
  t.after(() => appliance.close());
  const fixture = openDependencies(appliance);
  const ids = await Promise.all(
    [1, 2].map(number => fixture.create({ command: `echo begun ${number}; sleep 60; : ${PREFIX}` })),
  );
  for (const id of ids) await fixture.upload(id, SOURCE);
  await fixture.logHas(ids[0] as string, 'begun');
  const { waiting } = await fixture.fetched(ids[1] as string);
  assert.deepEqual(waiting, { position: 1, reason: 'All 1 slots for compiles are taken.' });
  const project = await appliance.project();
  const suiteId = await project.suite({ command: 'true' });
  assert.equal((await project.run()).of(suiteId).build.build_state, 'passed');
  assert.equal((await fixture.fetched(ids[0] as string)).marketplace_state, 'compiling');
  for (const id of ids.toReversed()) await appliance.ask('POST', `/dependencies/${id}/cancel`);
});

test('a server that is killed between the compiles of a chain loses none of them', async t => {
  const sshd = await startSshd();
  const data = makeData(sshd);
  const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
  const { email, api_key: key } = JSON.parse(added.stdout);
  let server: Serving;
  let client: Client;
  const start = async () => {
    server = await serve(data, { env: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' } });
    client = createClient(
      `https://127.0.0.1:${server.port}`,
      readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'),
    );
    return openDependencies({ ...createJourney({ client, as: basic(email, key), sshd }), client });
  };
  const kill = async () => {
    client.close();
    await server.end('SIGKILL');
  };
  let instance: string | undefined;
  t.after(async () => {
    await kill();
    await sshd.close();
    if (instance) await clearDocker(instance);
    rmSync(data, { recursive: true, force: true });
  });

  let fixture = await start();
  const { base, middle, top } = await createChain(fixture, { recompile: 'true' });
  for (const { id } of [top, middle]) await fixture.upload(id, SOURCE);
  await fixture.upload(base.id, tarOf({ file: 'one\n' }));
  await fixture.logHas(middle.id, 'begun');
  const names = await docker('ps', '--format', '{{.Names}}');
  [, instance] = new RegExp(`assay-([0-9a-f]+)-dependency-${middle.id}`).exec(names) ?? [];
  await kill();
  fixture = await start();
  const first = await fixture.finished(top.id);
  assert.equal(first.state, 'compiled', first.log);
  assert.match(first.log, /^one\nmiddle$/m);

  await fixture.upload(base.id, tarOf({ file: 'two\n' }));
  assert.equal((await fixture.finished(base.id)).state, 'compiled');
  await kill();
  fixture = await start();
  const second = await fixture.finished(top.id);
  assert.equal(second.state, 'compiled', second.log);
  assert.match(second.log, /^two\nmiddle$/m);
  if (instance) await containersUntil(instance, left => left.length === 0);
});

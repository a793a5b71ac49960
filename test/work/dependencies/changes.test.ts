// When a change of a dependency takes effect: with the next build or with the next compile.
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { findDependency } from '../../../src/store/dependencies.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Fields } from '../../support/client.ts';
import { type DependencyFixture, openDependencies, tarOf, useIn } from './fixture.ts';

suite('a change of a dependency', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  before(async () => {
    appliance = await startAppliance({ concurrency: 2 });
    fixture = openDependencies(appliance);
  });
  after(() => appliance.close());

  const change = (id: string, fields: Fields) => appliance.ask('PUT', `/dependencies/${id}`, fields);
  const compileAgain = async (id: string) => {
    await appliance.ask('POST', `/dependencies/${id}/compile`);
    const { state, log } = await fixture.finished(id);
    assert.equal(state, 'compiled', log);
  };

  test('of the launch command, its timeout, the environment and the library path takes effect with the next build, at the compiled prefix', async () => {
    const prefix = '/opt/launched';
    const id = await fixture.compiled(tarOf({ file: 'x' }), {
      prefix,
      command: `mkdir ${prefix}/lib && cp file ${prefix}`,
      launch_command: 'echo first >/tmp/launched',
      environment: 'PLACE=$PREFIX/first',
    });
    const { artifactHash } = findDependency(appliance.app.db, BigInt(id)) ?? {};
    await change(id, {
      prefix: '/opt/asked',
      command: 'cp file /opt/asked',
      launch_command: 'echo second >/tmp/launched',
      environment: 'PLACE=$PREFIX/second',
      library_path: 'false',
      launch_timeout: '7',
    });
    const look = 'cat /tmp/launched; echo "place $PLACE"; echo "libraries <$LD_LIBRARY_PATH>"';
    const project = await appliance.project();
    const { build, log } = await useIn(project, [id], look);
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^second\nplace \/opt\/launched\/second\nlibraries <>$/m);
    await change(id, { launch_command: 'sleep 60' });
    const slow = await useIn(project, [id], 'true');
    assert.equal(slow.build.build_state, 'errored', slow.log);
    assert.match(slow.log, /\b7 s/);
    assert.equal(findDependency(appliance.app.db, BigInt(id))?.artifactHash, artifactHash);
  });

  test('of the prefix, the command, the source and the related ones takes effect with the next compile', async () => {
    const [before, later] = await Promise.all(
      ['before', 'later'].map(name =>
        fixture.compiled(tarOf({ [name]: `echo related ${name}` }), {
          prefix: `/opt/${name}`,
          command: `mkdir -p /opt/${name}/bin && cp ${name} /opt/${name}/bin`,
        }),
      ),
    );
    const id = await fixture.compiled(tarOf({ 'one/tool': 'echo tool one', 'two/tool': 'echo tool two' }), {
      prefix: '/opt/old',
      source: 'one',
      command: 'mkdir -p /opt/old/bin && cp tool /opt/old/bin && command -v before >/opt/old/saw',
      'related_dependencies[]': before as string,
    });
    const record = await change(id, {
      prefix: '/opt/new',
      source: 'two',
      command: 'mkdir -p /opt/new/bin && cp tool /opt/new/bin && command -v later >/opt/new/saw',
      'related_dependencies[]': later as string,
    });
    assert.equal(record.prefix, '/opt/new');
    const project = await appliance.project();
    const look = 'tool; before || true; later || true; cat /opt/*/saw; echo "PATH $PATH"; ls /opt';
    const old = await useIn(project, [id], look);
    assert.equal(old.build.build_state, 'passed', old.log);
    assert.match(old.log, /^tool one\nrelated before\n/m);
    assert.match(old.log, /^\/opt\/before\/bin\/before$/m);
    assert.match(old.log, /^PATH \/opt\/old\/bin:/m);
    assert.doesNotMatch(old.log, /related later|\/opt\/new/);
    // The related one that is no longer asked for is still needed.
    const refused = await appliance.client.call('DELETE', `/dependencies/${before}`, { as: appliance.as });
    assert.equal(refused.status, 403, refused.text);

    await compileAgain(id);
    const now = await useIn(project, [id], look);
    assert.match(now.log, /^tool two\n/m);
    assert.match(now.log, /^related later\n/m);
    assert.match(now.log, /^\/opt\/later\/bin\/later$/m);
    assert.match(now.log, /^PATH \/opt\/new\/bin:/m);
    assert.doesNotMatch(now.log, /related before|\/opt\/old/);
    await appliance.ask('DELETE', `/dependencies/${before}`);
  });

  test('that relates to one that was never compiled leaves builds as they are', async () => {
    const never = await fixture.create();
    const id = await fixture.compiled(tarOf({ file: 'content' }), {
      prefix: '/opt/file',
      command: 'cp file /opt/file',
    });
    await change(id, { 'related_dependencies[]': never });
    const { build, log } = await useIn(await appliance.project(), [id], 'cat /opt/file/file');
    assert.equal(build.build_state, 'passed', log);
  });
});

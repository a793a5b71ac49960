// The inputs that real builds record: what the container got, for each kind of build.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { findInputs } from '../../../src/store/result/build-inputs.ts';
import { type Appliance, docker, startAppliance } from '../../support/appliance.ts';
import { openDependencies, tarOf } from '../dependencies/fixture.ts';

const SECRET = 'a-content-that-nobody-may-find';

describe('A build', () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 1 });
  });
  after(() => assay.close());
  const inputsOf = (buildId: unknown) => findInputs(assay.app.db, BigInt(buildId as string));

  test('records its command, image, variables, dependencies and limits, without the content of a variable', async () => {
    const dependencies = openDependencies(assay);
    const related = await dependencies.compiled(tarOf({ related: 'x' }), { name: 'the related one' });
    const direct = await dependencies.compiled(tarOf({ direct: 'x' }), {
      name: 'the direct one',
      'related_dependencies[]': [related],
    });
    const project = await assay.project();
    const suite = await project.suite({ command: 'echo one', variables: { TOKEN: SECRET, MODE: 'fast' } });
    await project.ask('POST', `/suites/${suite}/dependencies`, { dependency_id: direct });
    const first = (await project.run()).of(suite);
    const recorded = inputsOf(first.build.id_str);
    assert.ok(recorded);
    const { inputs, digest } = recorded;
    assert.equal(inputs.command, 'echo one');
    assert.equal(inputs.image, 'host');
    assert.match(inputs.imageId as string, /^assay\/host:[0-9a-f]{20}$/);
    assert.deepEqual(
      inputs.variables.map(({ name }) => name),
      ['MODE', 'TOKEN'],
    );
    const artifacts = Object.fromEntries(inputs.dependencies.map(({ name, artifact }) => [name, artifact]));
    assert.deepEqual(Object.keys(artifacts), ['the related one', 'the direct one']);
    for (const artifact of Object.values(artifacts)) assert.match(artifact as string, /^[0-9a-f]{64}$/);
    assert.equal(inputs.limits.NETWORK, 'none');
    assert.equal(inputs.limits.MEMORY, 2 * 1024 ** 3);

    const again = (await project.run()).of(suite);
    assert.equal(inputsOf(again.build.id_str)?.digest, digest, 'nothing has changed');
    await dependencies.upload(related, tarOf({ related: 'y' }));
    await dependencies.finished(related);
    const changed = inputsOf((await project.run()).of(suite).build.id_str);
    assert.notEqual(changed?.digest, digest);
    assert.notEqual(changed?.inputs.dependencies[0]?.artifact, artifacts['the related one']);
    assert.equal(changed?.inputs.dependencies[1]?.artifact, artifacts['the direct one']);

    // In another process: reading the database here would drop the locks on it. The files of the job are removed later.
    const search = spawnSync('grep', ['-rlsF', '--exclude-dir=jobs', SECRET, assay.data], {
      encoding: 'utf8',
    });
    assert.equal(search.stdout, '');
  });

  test('that runs again records what its later attempt used', async () => {
    const project = await assay.project();
    const suite = await project.suite({
      command: 'echo first attempt; exec sleep 1000',
      variables: { A: '1' },
    });
    const { id_str: id } = await project.buildOf(await project.request());
    await project.logHas(id as string, 'first attempt');
    const first = inputsOf(id);
    assert.match(first?.inputs.command as string, /first attempt/);
    await project.ask('PUT', `/suites/${suite}`, { command: 'echo second attempt' });
    await project.ask('POST', `/suites/${suite}/environment_variables`, { name: 'B', content: '2' });
    await docker('kill', `assay-${assay.instance}-build-${id}`);
    assert.equal((await project.finishedBuild(id as string)).build_state, 'passed');
    const second = inputsOf(id);
    assert.equal(second?.inputs.command, 'echo second attempt');
    assert.deepEqual(
      second?.inputs.variables.map(({ name }) => name),
      ['A', 'B'],
    );
  });

  test("of a fork's code without variables records none, and one that cannot start records what it would have used", async () => {
    const project = await assay.project();
    const blocking = await project.suite({ command: 'while ! test -e /srv/cache/go; do sleep 0.05; done' });
    const blockingBuild = await project.buildOf(await project.request(), blocking);
    await project.buildWhen(blockingBuild.id_str as string, build => build.build_state === 'running');
    const other = await assay.project();
    await other.suite({ command: 'env', variables: { TOKEN: SECRET } });
    const request = await other.request();
    const forked = await other.buildOf(request);
    assay.app.db.sqlite
      .prepare('UPDATE build_requests SET without_variables = 1 WHERE id = ?')
      .run(BigInt(request));
    const unable = await assay.project();
    const suite = await unable.suite({ command: 'true', variables: { TOKEN: 'x' } });
    const errored = await unable.buildOf(await unable.request());
    assay.app.db.sqlite.prepare("UPDATE suites SET image = 'never-imported' WHERE id = ?").run(BigInt(suite));
    assert.equal(inputsOf(forked.id_str), undefined, 'it waits');
    await docker('exec', `assay-${assay.instance}-build-${blockingBuild.id_str}`, 'touch', '/srv/cache/go');
    assert.equal((await other.finishedBuild(forked.id_str as string)).build_state, 'passed');
    assert.deepEqual(inputsOf(forked.id_str)?.inputs.variables, []);
    assert.equal((await unable.finishedBuild(errored.id_str as string)).build_state, 'errored');
    const { image, imageId, variables } = inputsOf(errored.id_str)?.inputs ?? {};
    assert.deepEqual([image, imageId, variables?.length], ['never-imported', null, 1]);
  });
});

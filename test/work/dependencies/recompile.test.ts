// Compiles again without an upload: reuse and force, and what is recorded of a compile.
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, suite, test } from 'node:test';
import { findArtifact } from '../../../src/store/artifacts.ts';
import { archivePath } from '../../../src/store/data/paths.ts';
import { findDependency, stepsOf, timesOfLastCompile } from '../../../src/store/dependencies.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Fields } from '../../support/client.ts';
import { type DependencyFixture, openDependencies, PREFIX, tarOf } from './fixture.ts';

suite('a compile of the archive that is there', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  before(async () => {
    appliance = await startAppliance({ concurrency: 2 });
    fixture = openDependencies(appliance);
  });
  after(() => appliance.close());

  const row = (id: string) => {
    const dependency = findDependency(appliance.app.db, BigInt(id));
    assert.ok(dependency);
    return dependency;
  };
  const compileAgain = async (id: string, fields: Fields = {}) => {
    await appliance.ask('POST', `/dependencies/${id}/compile`, fields);
    return fixture.finished(id);
  };

  test('uses a changed command, and reuses an earlier compile unless it is forced', async () => {
    const id = await fixture.compiled(tarOf({ file: 'archive' }), {
      command: `echo first; date +%N >${PREFIX}/when`,
    });
    const first = row(id);
    await appliance.ask('PUT', `/dependencies/${id}`, { command: `echo second; cp file ${PREFIX}` });
    const second = await compileAgain(id);
    assert.equal(second.state, 'compiled', second.log);
    assert.match(second.log, /^second$/m);
    assert.notEqual(row(id).artifactHash, first.artifactHash);

    await appliance.ask('PUT', `/dependencies/${id}`, { command: `echo third; date +%N >${PREFIX}/when` });
    const third = await compileAgain(id);
    assert.match(third.log, /^third$/m);
    const reused = await compileAgain(id);
    assert.match(reused.log, /was compiled in the same way before/);
    const { artifactHash } = row(id);
    const forced = await compileAgain(id, { force: 'true' });
    assert.equal(forced.state, 'compiled', forced.log);
    assert.doesNotMatch(forced.log, /was compiled in the same way before/);
    assert.notEqual(row(id).artifactHash, artifactHash);
    assert.equal(row(id).forced, false);
  });

  test('records the related artifacts, the number of files, and how long each step took', async () => {
    const library = await fixture.compiled(tarOf({ lib: 'x' }), {
      prefix: '/opt/library',
      command: 'cp lib /opt/library',
    });
    const id = await fixture.create({
      command: `sleep 1; cp file other ${PREFIX}`,
      'related_dependencies[]': library,
    });
    await fixture.upload(id, tarOf({ file: 'x', other: 'y' }));
    const { state, log } = await fixture.finished(id);
    assert.equal(state, 'compiled', log);
    const { artifactHash, relatedArtifacts, compileSteps, finishedAt } = row(id);
    assert.equal(findArtifact(appliance.app.db, artifactHash as string)?.files, 2);
    assert.deepEqual(JSON.parse(relatedArtifacts as string), [row(library).artifactHash]);
    const steps = timesOfLastCompile({ compileSteps });
    assert.deepEqual(
      steps.map(({ name }) => name),
      ['unpack', 'command', 'keep'],
    );
    assert.ok((steps[1]?.ms ?? 0) >= 900, compileSteps as string);
    assert.equal(stepsOf(row(id)).at(-1)?.endedAt, finishedAt);

    // A reuse has no steps, and leaves the times of the compile that ran.
    const reused = await compileAgain(id);
    assert.match(reused.log, /was compiled in the same way before/);
    assert.equal(row(id).compileSteps, compileSteps);
    assert.deepEqual(stepsOf(row(id)), []);
    assert.equal(row(id).relatedArtifacts, relatedArtifacts);
  });

  test('shows its steps while it runs, and which one it ended in', async () => {
    const id = await fixture.create({ command: `echo begun; sleep 60; cp file ${PREFIX}` });
    await fixture.upload(id, tarOf({ file: 'steps' }));
    await fixture.logHas(id, 'begun');
    const isEnded = () => stepsOf(row(id)).map(({ name, endedAt }) => [name, endedAt !== undefined]);
    assert.deepEqual(isEnded(), [
      ['unpack', true],
      ['command', false],
    ]);
    await appliance.ask('POST', `/dependencies/${id}/cancel`);
    assert.equal((await fixture.finished(id)).state, 'compile_failed');
    assert.deepEqual(isEnded(), [
      ['unpack', true],
      ['command', true],
    ]);
    assert.deepEqual(timesOfLastCompile(row(id)), []);
  });

  test('without its file in the data directory fails and asks for an upload', async () => {
    const id = await fixture.compiled(tarOf({ file: 'missing' }));
    const { archiveHash } = row(id);
    rmSync(archivePath(appliance.data, archiveHash as string));
    const { record } = await compileAgain(id, { force: 'true' });
    assert.equal(record.error, 'The archive is missing from the data directory: upload it again.');
  });
});

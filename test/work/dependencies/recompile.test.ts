// Compiles again without an upload: reuse and force, and what is recorded of a compile.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { newSecret } from '../../../src/domain/secret.ts';
import { createAccount } from '../../../src/store/accounts.ts';
import { findArtifact } from '../../../src/store/artifacts.ts';
import { archivePath } from '../../../src/store/data/paths.ts';
import { findDependency, stepsOf, timesOfLastCompile } from '../../../src/store/dependencies.ts';
import { startWorkers } from '../../../src/work/workers.ts';
import { type Appliance, docker, startAppliance } from '../../support/appliance.ts';
import { busyboxRoot } from '../../support/busybox.ts';
import { basic, type Fields } from '../../support/client.ts';
import { createJourney } from '../../support/journey.ts';
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

  const REUSED = /^\[assay\] the same archive was compiled in the same way before/gm;

  test('that is reused has the log of the compile that made the artifact, once, also after a failed compile', async () => {
    const command = `echo output of the compile; cp file ${PREFIX}`;
    const id = await fixture.create({ command });
    await fixture.upload(id, tarOf({ file: 'log' }));
    const { log } = await fixture.finished(id);
    for (const number of [1, 2]) {
      const reused = await compileAgain(id);
      assert.ok(reused.log.startsWith(log), `${number}: ${reused.log}`);
      assert.equal(reused.log.match(REUSED)?.length, 1, reused.log);
      const sent = reused.events.filter(({ event }) => event === 'log').map(({ data }) => data.text);
      assert.equal(sent.join(''), reused.log);
    }
    await appliance.ask('PUT', `/dependencies/${id}`, { command: `exit 3; : ${PREFIX}` });
    const failed = await compileAgain(id);
    assert.equal(failed.state, 'compile_failed');
    assert.doesNotMatch(failed.log, /output of the compile/);
    await appliance.ask('PUT', `/dependencies/${id}`, { command });
    const again = await compileAgain(id);
    assert.ok(again.log.startsWith(log), again.log);
    assert.match(again.log.slice(log.length), /^\[assay\] the same archive .*\n$/);
  });

  test('that is reused by another dependency shows the log to the same owner, and never to another account', async () => {
    const archive = tarOf({ file: 'shared archive' });
    const fields = { command: `echo output of the compile; cp file ${PREFIX}` };
    const first = await fixture.compile(archive, { ...fields, name: 'original' });
    const second = await fixture.compile(archive, fields);
    assert.ok(second.log.startsWith(first.log), second.log);
    assert.match(second.log, /in the same way before by the dependency original: its artifact is used/);
    // Its own log of the artifact, also when the other dependency is gone.
    await appliance.ask('DELETE', `/dependencies/${first.id}`);
    const kept = await compileAgain(second.id);
    assert.ok(kept.log.startsWith(first.log), kept.log);

    const key = newSecret('assay');
    const email = 'other@example.org';
    createAccount(appliance.app.db, { email, kind: 'user', admin: false, passwordHash: null, apiKey: key });
    const { client, sshd } = appliance;
    const as = basic(email, key);
    const foreign = openDependencies({ ...createJourney({ client, as, sshd }), client, as });
    const theirs = await foreign.compile(archive, fields);
    assert.equal(theirs.state, 'compiled', theirs.log);
    assert.match(
      theirs.log,
      /^\[assay\] the same archive was compiled in the same way before, by another account, whose log is not shown: its artifact is used\n$/,
    );
    assert.equal(row(theirs.id).artifactHash, row(second.id).artifactHash);
  });

  test('without its file in the data directory fails and asks for an upload', async () => {
    const id = await fixture.compiled(tarOf({ file: 'missing' }));
    const { archiveHash } = row(id);
    rmSync(archivePath(appliance.data, archiveHash as string));
    const { record } = await compileAgain(id, { force: 'true' });
    assert.equal(record.error, 'The archive is missing from the data directory: upload it again.');
  });
});

test('the same archive is compiled again when packages of the host or the content of its image changed', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'assay-host-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const hostRoot = join(directory, 'host');
  const status = join(hostRoot, 'var/lib/dpkg/status');
  mkdirSync(dirname(status), { recursive: true });
  writeFileSync(status, 'Package: gcc\n');
  utimesSync(status, 1e9, 1e9);
  const appliance = await startAppliance({ anyImage: true }, options =>
    startWorkers({ ...options, hostRoot }),
  );
  t.after(() => appliance.close());
  const fixture = openDependencies(appliance);
  const compileAgain = async (id: string) => {
    await appliance.ask('POST', `/dependencies/${id}/compile`);
    const { state, log } = await fixture.finished(id);
    assert.equal(state, 'compiled', log);
    return /was compiled in the same way before/.test(log) ? 'reused' : 'compiled';
  };
  const archive = tarOf({ file: 'x' });

  const onHost = await fixture.compiled(archive, { command: `date +%N >${PREFIX}/when` });
  assert.equal(await compileAgain(onHost), 'reused');
  appendFileSync(status, 'Package: zlib1g-dev\n');
  assert.equal(await compileAgain(onHost), 'compiled');
  assert.equal(await compileAgain(onHost), 'reused');

  const image = `assay-test/${appliance.instance}:tools`;
  t.after(() => docker('image', 'rm', '--force', image));
  const importImage = async (version: string) => {
    const root = join(directory, version);
    await busyboxRoot(root);
    writeFileSync(join(root, 'version'), version);
    execFileSync('sh', ['-c', `tar -C '${root}' -c . | docker import - '${image}'`], { stdio: 'ignore' });
  };
  await importImage('one');
  const inImage = await fixture.compiled(archive, { image, command: `cp /version ${PREFIX}` });
  assert.equal(await compileAgain(inImage), 'reused');
  appendFileSync(status, 'Package: libpng-dev\n');
  assert.equal(await compileAgain(inImage), 'reused');
  await importImage('two');
  assert.equal(await compileAgain(inImage), 'compiled');
});

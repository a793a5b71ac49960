// Compiles: environment, log and firehose, cancel, timeout, loss, restart, and the artifact.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, type TestContext, test } from 'node:test';
import { startApp } from '../../../src/app.ts';
import { readSettings } from '../../../src/config.ts';
import { createLog } from '../../../src/log.ts';
import { artifactIndexPath } from '../../../src/store/data/paths.ts';
import type { Db } from '../../../src/store/database/db.ts';
import { findDependency } from '../../../src/store/dependencies.ts';
import {
  type Appliance,
  clearDocker,
  containersUntil,
  docker,
  startAppliance,
  volumeGone,
} from '../../support/appliance.ts';
import { createClient, type Wire } from '../../support/client.ts';
import { directoryUntil } from '../../support/directory.ts';
import { createDockerGate } from '../../support/docker-gate.ts';
import { createJourney } from '../../support/journey.ts';
import { type DependencyFixture, openDependencies, PREFIX, rawTar, tarOf, useIn } from './fixture.ts';

const artifactOf = (db: Db, id: string) => findDependency(db, BigInt(id))?.artifactHash;
const containerOf = (appliance: Appliance, id: string) => `assay-${appliance.instance}-dependency-${id}`;

suite('compiles', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  before(async () => {
    appliance = await startAppliance({ concurrency: 3, compileSlots: 2, logLimitBytes: 100_000 });
    fixture = openDependencies(appliance);
  });
  after(() => appliance.close());

  test('a compile has a stable environment and the restrictions of suites', async () => {
    const { log, state } = await fixture.compile(tarOf({ file: 'x' }), {
      command: `env | sort; id; pwd; umask; cp file ${PREFIX}; ! touch /usr/x`,
    });
    assert.equal(state, 'compiled', log);
    const environment = log
      .split('\n')
      .filter(line => /^[A-Z_]+=/.test(line) && !line.startsWith('HOSTNAME='));
    assert.deepEqual(environment, [
      'ASSAY=true',
      'CI=true',
      'HOME=/home/assay',
      'LC_ALL=C.UTF-8',
      'MAKEFLAGS=-j2',
      'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      'PWD=/srv/project',
      'SOURCE_DATE_EPOCH=946684800',
      'TZ=UTC',
    ]);
    assert.match(log, /^uid=1000\(assay\) gid=1000\(assay\) groups=1000\(assay\)\n\/srv\/project\n0022$/m);
  });

  test('the log names programs of the image that would load a library of the prefix, unless it is off their path', async () => {
    const command = `mkdir ${PREFIX}/lib && cp file ${PREFIX} && cp "$(ldd /usr/bin/git | awk '/libz/ { print $3 }')" ${PREFIX}/lib/`;
    const warned = await fixture.compile(tarOf({ file: 'warned' }), { command });
    assert.equal(warned.state, 'compiled', warned.log);
    assert.match(
      warned.log,
      /^\[assay\] .*\bgit\b.* of the image would load libz\.so\.1 from \/srv\/dependency\/lib: set library_path to false if this causes errors\n\[assay\] kept 2 files/m,
    );
    const off = await fixture.compile(tarOf({ file: 'off' }), { command, library_path: 'false' });
    assert.equal(off.state, 'compiled', off.log);
    const broken = await fixture.compile(tarOf({ file: 'broken' }), {
      command: `${command}; echo broken >${PREFIX}/lib/libc.so.6; echo broken >${PREFIX}/lib/libz.so.1`,
    });
    assert.equal(broken.state, 'compiled', broken.log);
    for (const { log } of [off, broken]) assert.doesNotMatch(log, /would load/);
  });

  test('the same tree is the same artifact, whenever it was made', async () => {
    const tree = (mtime: number, mode = 0o755) =>
      rawTar([{ name: 'bin/tool', mode, mtime: new Date(mtime), content: 'echo tool' }]);
    const [one, other, third] = await Promise.all([
      fixture.compiled(await tree(1_000_000_000_000)),
      fixture.compiled(await tree(1_100_000_000_000)),
      fixture.compiled(await tree(1_100_000_000_000, 0o700)),
    ]);
    const { db } = appliance.app;
    assert.equal(artifactOf(db, one), artifactOf(db, other));
    assert.notEqual(artifactOf(db, one), artifactOf(db, third));
  });

  test('two with the same archive and command are compiled once, concurrently or one after the other', async () => {
    const archive = tarOf({ file: 'the very same' });
    const command = `echo compiling; sleep 1; date +%N >${PREFIX}/when`;
    const three = await Promise.all([1, 2].map(() => fixture.compile(archive, { command })));
    three.push(await fixture.compile(archive, { command }));
    const isReuse = (text: string) => /compiled in the same way before/.test(text);
    assert.equal(three.filter(({ log }) => !isReuse(log)).length, 1);
    for (const { state, log } of three) {
      assert.equal(state, 'compiled', log);
      assert.equal(log.match(/^compiling$/gm)?.length, 1, log);
    }
    const other = await fixture.compile(archive, { command: `${command} # another` });
    assert.equal(isReuse(other.log), false, other.log);
  });

  test('the files of an artifact can be listed and downloaded as soon as it is compiled', async () => {
    const { id, record } = await fixture.compile(
      tarOf({ 'bin/tool': 'the tool', 'lib/data': 'x'.repeat(5000) }),
      {
        command: `cp -R . ${PREFIX} && ln -s data ${PREFIX}/lib/link && ln ${PREFIX}/bin/tool "${PREFIX}/bin/<b>
again"`,
      },
    );
    const hash = artifactOf(appliance.app.db, id) as string;
    assert.ok(existsSync(artifactIndexPath(appliance.data, hash)), 'the index is made with the artifact');
    assert.deepEqual([(record.artifact as Wire).size, (record.artifact as Wire).files], [5008, 4]);
    const get = (rest: string) => appliance.client.get(`/dependencies/${id}/${rest}`, appliance.as);
    const list = async (path: string) =>
      (await get(`files?path=${path}`)).list.map(one => [one.path, one.type, one.size, one.target]);
    assert.deepEqual(await list(''), [
      ['bin', 'directory', 8, undefined],
      ['lib', 'directory', 5000, undefined],
    ]);
    assert.deepEqual(await list('lib'), [
      ['lib/data', 'file', 5000, undefined],
      ['lib/link', 'symlink', 0, 'data'],
    ]);
    for (const [path] of await list('bin'))
      assert.equal((await get(`artifact?path=${encodeURIComponent(path as string)}`)).text, 'the tool');
    const { bytes } = await get('artifact');
    const names = execFileSync('tar', ['-tf', '-', '--quoting-style=escape'], {
      input: bytes,
      encoding: 'utf8',
    });
    assert.deepEqual(names.trim().split('\n').toSorted(), [
      'srv/dependency',
      'srv/dependency/bin',
      'srv/dependency/bin/<b>\\nagain',
      'srv/dependency/bin/tool',
      'srv/dependency/lib',
      'srv/dependency/lib/data',
      'srv/dependency/lib/link',
    ]);
  });

  test('an empty prefix fails the compile, and directories alone count as empty', async () => {
    for (const command of [`true ${PREFIX}`, `mkdir -p ${PREFIX}/bin ${PREFIX}/lib`]) {
      const { state, record } = await fixture.compile(tarOf({ file: 'x' }), { command });
      assert.equal(state, 'compile_failed');
      assert.equal(record.error, `The command left nothing under its prefix ${PREFIX}.`);
    }
  });

  test('a command that kills every process it can runs once, and fails with that reason', async () => {
    const { state, record, log } = await fixture.compile(tarOf({ file: 'x' }), {
      command: `echo compiling ${PREFIX}; kill -9 -1`,
    });
    assert.equal(state, 'compile_failed', log);
    assert.match(record.error as string, /^The command killed the processes that wait for it /);
    assert.equal(log.match(/^compiling /gm)?.length, 1, log);
  });

  test('a failed command is reported with its status, and the next compile has its own log', async () => {
    const id = await fixture.create({
      command: `cat file; [ "$(cat file)" = good ] && cp file ${PREFIX} || exit 7`,
    });
    await fixture.upload(id, tarOf({ file: 'bad' }));
    const failed = await fixture.finished(id);
    assert.equal(failed.record.error, 'The command exited with 7.');
    assert.match(failed.log, /^bad$/m);
    await fixture.upload(id, tarOf({ file: 'good' }));
    const good = await fixture.finished(id);
    assert.equal(good.state, 'compiled');
    assert.equal('error' in good.record, false);
    assert.doesNotMatch(good.log, /bad/);
  });

  test('the firehose sends the states and the whole log, live', async () => {
    const id = await fixture.create({
      command: `for i in 1 2 3 4 5; do echo line $i; sleep 0.4; done; cp file ${PREFIX}`,
    });
    await fixture.upload(id, tarOf({ file: 'x' }));
    const { events, log, state } = await fixture.finished(id);
    assert.equal(state, 'compiled', log);
    const states = events.filter(({ event }) => event === 'state').map(({ data }) => data.marketplace_state);
    assert.deepEqual(states.at(-1), 'compiling');
    const chunks = events.filter(({ event }) => event === 'log');
    assert.ok(chunks.length >= 3, `the log came in ${chunks.length} chunks`);
    assert.equal(chunks.map(({ data }) => data.text).join(''), log);
  });

  test('output beyond the limit is counted but not stored', async () => {
    const { state, log } = await fixture.compile(tarOf({ file: 'x' }), {
      command: `seq 1 100000; cp file ${PREFIX}`,
    });
    assert.equal(state, 'compiled');
    assert.ok(log.length < 101_000);
    assert.match(log, /output past the limit of 100000 bytes was not kept: \d+ bytes omitted/);
  });

  test('a running compile can be canceled, and the last successful compile stays', async () => {
    const id = await fixture.create({
      command: `cp file ${PREFIX}; [ ! -e slow ] || { echo begun; sleep 60; }`,
    });
    await fixture.upload(id, tarOf({ file: 'x' }));
    assert.equal((await fixture.finished(id)).state, 'compiled');
    const artifact = artifactOf(appliance.app.db, id);
    await fixture.upload(id, tarOf({ file: 'y', slow: '' }));
    await fixture.logHas(id, 'begun');
    const busy = await appliance.client.call('POST', `/dependencies/${id}/archive`, {
      as: appliance.as,
      body: tarOf({ file: 'z' }),
    });
    assert.deepEqual(
      [busy.status, busy.text],
      [403, '{"error":{"generic":["resource_temporary_unavailable"]}}'],
    );
    await appliance.ask('POST', `/dependencies/${id}/cancel`);
    const { state, record, log } = await fixture.finished(id);
    assert.equal(state, 'compile_failed');
    assert.equal(record.error, 'The compile was canceled.');
    assert.match(log, /\[assay\] canceled\n$/);
    assert.equal(artifactOf(appliance.app.db, id), artifact);
  });

  test('a compile whose container is killed from outside runs again, and says so', async () => {
    const id = await fixture.create({ command: `echo begun; sleep 8; cp file ${PREFIX}` });
    await fixture.upload(id, tarOf({ file: 'killed' }));
    await fixture.logHas(id, 'begun');
    await docker('kill', containerOf(appliance, id));
    const { state, log } = await fixture.finished(id);
    assert.equal(state, 'compiled', log);
    assert.match(
      log,
      /begun\n\[assay\] The container ended without a result: .* The dependency is compiled again\.\n[\s\S]*begun\n/,
    );
  });

  test('a compile that is lost each time fails after three attempts, and says so', async () => {
    const id = await fixture.create({ command: `echo begun; sleep 60; cp file ${PREFIX}` });
    await fixture.upload(id, tarOf({ file: 'lost' }));
    let attempts = 0;
    let seen = '';
    let last: Wire | undefined;
    for await (const { event, data } of await appliance.open(`/dependencies/${id}/firehose`)) {
      if (event === 'end') last = data;
      if (event !== 'log') continue;
      seen += data.text;
      const begun = seen.match(/^begun$/gm)?.length ?? 0;
      if (begun === attempts) continue;
      attempts = begun;
      await docker('kill', containerOf(appliance, id));
    }
    assert.equal(attempts, 3, seen);
    assert.equal(last?.marketplace_state, 'compile_failed');
    assert.match(String(last?.error), /It was tried 3 times\.$/);
  });

  test('a shared dependency stays shared after a new compile', async () => {
    const id = await fixture.compiled(tarOf({ file: 'one' }));
    await appliance.ask('POST', `/dependencies/${id}/share`);
    await fixture.upload(id, tarOf({ file: 'two' }));
    assert.equal((await fixture.finished(id)).state, 'shared');
  });

  test('a compile leaves only its artifact in Docker', async () => {
    const id = await fixture.compiled(tarOf({ file: 'alone' }));
    const names = await docker('ps', '-aq', '--filter', `label=assay.id=${id}`);
    const volumes = await docker('volume', 'ls', '-q', '--filter', `label=assay.id=${id}`);
    assert.deepEqual([names, volumes], ['', '']);
  });
});

test('a reader of a waiting compile gets nothing of the previous one', async t => {
  const appliance = await startAppliance({ concurrency: 1 });
  t.after(() => appliance.close());
  const fixture = openDependencies(appliance);
  const id = await fixture.create({ command: `cat file; cp file ${PREFIX}` });
  await fixture.upload(id, tarOf({ file: 'the first' }));
  assert.match((await fixture.finished(id)).log, /the first/);
  const blocker = await fixture.create({ command: `echo begun; sleep 60; : ${PREFIX}` });
  await fixture.upload(blocker, tarOf({ file: 'x' }));
  await fixture.logHas(blocker, 'begun');
  await fixture.upload(id, tarOf({ file: 'the second' }));

  let seen = '';
  const states: unknown[] = [];
  for await (const { event, data } of await appliance.open(`/dependencies/${id}/firehose`)) {
    if (event === 'log') seen += data.text;
    else states.push(data.marketplace_state);
    if (states.length === 1 && event === 'state')
      await appliance.ask('POST', `/dependencies/${blocker}/cancel`);
  }
  assert.deepEqual(states, ['enqueued_for_compile', 'compiling', 'compiled']);
  assert.match(seen, /the second/);
  assert.equal(seen, await fixture.log(id));
});

test('a compile that takes too long fails with the reason', async t => {
  const appliance = await startAppliance({ timeoutMs: 3_000 });
  t.after(() => appliance.close());
  const { state, record, log } = await openDependencies(appliance).compile(tarOf({ file: 'x' }), {
    command: `cp file ${PREFIX}; echo begun; sleep 60`,
  });
  assert.equal(state, 'compile_failed', log);
  assert.equal(record.error, 'The compile was stopped: it took longer than 3 s.');
});

test('a compile and a launch continue while the server is down, and unused artifacts are freed', async t => {
  const appliance = await startAppliance({ concurrency: 2 });
  const fixture = openDependencies(appliance);
  const unused = await fixture.compiled(tarOf({ file: 'unused' }));
  const [artifact] = readdirSync(join(appliance.data, 'artifacts'));
  assert.ok(artifact);
  await appliance.ask('DELETE', `/dependencies/${unused}`);
  const launched = await fixture.compiled(tarOf({ file: 'launched' }), {
    name: 'Foreground',
    launch_command: 'echo up; sleep 1000',
    launch_timeout: '10',
  });
  const project = await appliance.project();
  const suiteId = await project.suite({ command: 'echo never' });
  await project.ask('POST', `/suites/${suiteId}/dependencies`, { dependency_id: launched });
  const { id_str: buildId } = await project.buildOf(await project.request());
  await project.logHas(buildId as string, 'up');
  const id = await fixture.create({
    command: `for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 1; done; cp file ${PREFIX}`,
  });
  await fixture.upload(id, tarOf({ file: 'x' }));
  await fixture.logHas(id, 'line 2');
  const container = await docker('inspect', '--format', '{{.Id}}', containerOf(appliance, id));
  await appliance.app.close();

  const freed = [fileGone(join(appliance.data, 'artifacts'), artifact), volumeGone(artifact.slice(0, 16))];
  const { journey, again } = await startAgain(t, appliance);
  assert.equal(await docker('inspect', '--format', '{{.Id}}', containerOf(appliance, id)), container);
  const { state, log } = await again.finished(id);
  assert.equal(state, 'compiled', log);
  assert.deepEqual(
    log.match(/^line \d$/gm),
    [1, 2, 3, 4, 5, 6, 7, 8].map(number => `line ${number}`),
  );
  const { build } = await useIn(await journey.project(), [id], `cat ${PREFIX}/file`);
  assert.equal(build.build_state, 'passed');
  const errored = await journey.knownProject(project.id).finishedBuild(buildId as string);
  assert.match(String(errored.error), /^The launch command of Foreground did not return within 10 s\. /);
  await Promise.all(freed);
});

test('a server that stops while it stores an artifact leaves that to the next one, and the command does not run again', async t => {
  const appliance = await startAppliance();
  const fixture = openDependencies(appliance);
  const id = await fixture.create({
    command: `echo begun; head -c 100000000 /dev/urandom >${PREFIX}/big; sha256sum ${PREFIX}/big`,
  });
  await fixture.upload(id, tarOf({ file: 'x' }));
  const job = join(appliance.data, 'jobs', `dependency-${id}`);
  await fixture.logHas(id, 'begun');
  await fileThere(job, 'outcome');
  await appliance.app.close();
  assert.ok(readdirSync(job).includes('outcome'), 'it was kept before the server had stopped');

  const { journey, again } = await startAgain(t, appliance);
  const { state, log } = await again.finished(id);
  assert.equal(state, 'compiled', log);
  assert.equal(log.match(/^begun$/gm)?.length, 1);
  const [sum] = log.match(/^[0-9a-f]{64}/m) ?? [];
  const used = await useIn(await journey.project(), [id], `sha256sum ${PREFIX}/big`);
  assert.ok(sum && used.log.includes(sum), used.log);
});

test('a server that ends after it removed the container and the volume of a compile, and before it recorded the verdict, leaves that to the next one', async t => {
  const gate = createDockerGate();
  await gate.open();
  t.after(() => gate.close());
  const appliance = await startAppliance({ dockerHost: gate.dockerHost });
  const fixture = openDependencies(appliance);
  const id = await fixture.create({ command: `echo begun; cp file ${PREFIX}; sleep 3` });
  await fixture.upload(id, tarOf({ file: 'x' }));
  await fixture.logHas(id, 'begun');
  gate.spoil(/^DELETE .*\/volumes\//, 'hang');
  const job = join(appliance.data, 'jobs', `dependency-${id}`);
  await fileThere(job, 'saved');
  await containersUntil(appliance.instance, names => !names.includes(containerOf(appliance, id)));
  await appliance.app.close();
  const left = await docker('volume', 'ls', '-q', '--filter', `label=assay.id=${id}`);
  await docker('volume', 'rm', ...left.split('\n'));

  const { journey, again } = await startAgain(t, appliance);
  const { state, log } = await again.finished(id);
  assert.equal(state, 'compiled', log);
  assert.equal(log.match(/^begun$/gm)?.length, 1, log);
  const used = await useIn(await journey.project(), [id], `cat ${PREFIX}/file`);
  assert.equal(used.build.build_state, 'passed');
});

/** A server on the data directory of the closed one. */
async function startAgain(t: TestContext, appliance: Appliance) {
  const { settings } = readSettings(
    new Map([
      ['--data', appliance.data],
      ['--listen', '127.0.0.1:0'],
      ['--network', 'none'],
      ['--min-free-disk', '1MiB'],
    ]),
    process.env,
  );
  const app = await startApp(
    settings,
    createLog(() => {}, {}),
  );
  const client = createClient(app.url, readFileSync(join(appliance.data, 'tls', 'ca.pem'), 'utf8'));
  const journey = createJourney({ client, as: appliance.as, sshd: appliance.sshd });
  t.after(async () => {
    client.close();
    await app.close();
    appliance.client.close();
    await appliance.sshd.close();
    await clearDocker(appliance.instance);
    rmSync(appliance.data, { recursive: true, force: true });
  });
  return { journey, again: openDependencies({ ...journey, client }) };
}

const fileThere = (directory: string, name: string) =>
  directoryUntil(directory, names => names.includes(name), `there is no ${name}`);
const fileGone = (directory: string, name: string) =>
  directoryUntil(directory, names => !names.includes(name), `${name} is still there`);

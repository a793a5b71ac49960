// Builds when Docker does not answer, loses a container or is tampered with; and that they leave nothing behind.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { recordImage } from '../../../src/store/images.ts';
import { createSuite } from '../../../src/store/suites.ts';
import { type Appliance, docker, startAppliance, volumeGone } from '../../support/appliance.ts';
import { bundleOf } from '../../support/bundle.ts';
import { busyboxRoot } from '../../support/busybox.ts';
import type { Wire } from '../../support/client.ts';
import { directoryUntil } from '../../support/directory.ts';
import { createDockerGate, type DockerGate } from '../../support/docker-gate.ts';
import { openDependencies, PREFIX, tarOf } from '../dependencies/fixture.ts';

const COUNTED = 'echo x >>/srv/cache/count; echo "try $(wc -l </srv/cache/count)"';

describe('While Docker', () => {
  let assay: Appliance;
  let gate: DockerGate;
  before(async () => {
    gate = createDockerGate();
    assay = await startAppliance({ concurrency: 3, dockerHost: gate.dockerHost });
  });
  after(async () => {
    await assay.close();
    await gate.close();
  });
  const container = (buildId: unknown) => `assay-${assay.instance}-build-${buildId}`;

  test('does not answer, builds wait enqueued with the reason, and run when it is back', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const requestId = await project.request();
    const { id_str: buildId } = await project.buildOf(requestId);
    const build = await project.buildRecord(buildId as string);
    assert.equal(build.build_state, 'enqueued');
    assert.equal((build.waiting as Wire).position, 1);
    assert.match((build.waiting as Wire).reason as string, /^Docker is unavailable: .*is Docker running\?/);
    await gate.open();
    assert.equal((await project.finishedRequest(requestId)).build_state, 'passed');
    const events = (await project.ask('GET', '/events')) as unknown as Wire[];
    assert.equal(events.filter(event => event.type === 'build.started').length, 1, 'it was claimed once');
  });

  test('stops and comes back, running builds continue and waiting ones run after them', async () => {
    const project = await assay.project();
    await project.suite({
      command: `${COUNTED}; while ! test -e /srv/cache/go; do sleep 0.05; done; echo done`,
    });
    const requestId = await project.request();
    const { id_str: buildId } = await project.buildOf(requestId);
    await project.logHas(buildId as string, 'try 1');
    await gate.shut();
    const short = await assay.project();
    await short.suite({ command: 'true' });
    const { id_str: waitingId } = await short.buildOf(await short.request());
    // It waits, or its start was in progress when the connection broke: then it is looked up before it is retried.
    await short.buildWhen(
      waitingId as string,
      build =>
        build.build_state === 'running' ||
        /^Docker is unavailable/.test(String((build.waiting as Wire)?.reason)),
    );
    assert.equal((await project.buildRecord(buildId as string)).build_state, 'running');
    await docker('exec', '--detach', container(buildId), 'touch', '/srv/cache/go');
    // Its end is read from its output, without Docker. The verdict waits for the files that the container left.
    await project.logHas(buildId as string, 'done\n');
    await gate.open();
    assert.equal((await project.finishedRequest(requestId)).build_state, 'passed');
    assert.equal((await short.finishedBuild(waitingId as string)).build_state, 'passed');
    assert.match(await project.log(buildId as string), /try 1\ndone\n$/);
  });

  test('has run a build of an image with git, it gets a single request to remove something', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const { id_str: buildId } = await project.buildOf(await project.request());
    await project.finishedBuild(buildId as string);
    await directoryUntil(join(assay.data, 'jobs'), names => names.length === 0, 'files of jobs are left');
    const removals = gate.requests.filter(
      request => request.startsWith('DELETE ') && request.includes(`build-${buildId}`),
    );
    assert.deepEqual(
      removals.map(request => request.replace(/\?.*/, '')),
      [`DELETE /containers/${container(buildId)}`],
    );
  });

  test('has its container killed from outside, it runs again, and is errored after three attempts, never failed', async () => {
    const [once, ever] = [await assay.project(), await assay.project()];
    const onceSuite = await once.suite({
      command: `${COUNTED}; test "$(wc -l </srv/cache/count)" -gt 2 || exec sleep 1000`,
    });
    await ever.suite({ command: `${COUNTED}; exec sleep 1000` });
    const [onceRequest, everRequest] = [await once.request(), await ever.request()];
    const { id_str: onceId } = await once.buildOf(onceRequest, onceSuite);
    const { id_str: everId } = await ever.buildOf(everRequest);
    const interfere = async () => {
      await once.logHas(onceId as string, 'try 1\n');
      await docker('kill', container(onceId));
      await once.logHas(onceId as string, 'try 2\n');
      await docker('rm', '-f', container(onceId));
    };
    const endless = async () => {
      for (const attempt of [1, 2, 3]) {
        await ever.logHas(everId as string, `try ${attempt}\n`);
        await docker('kill', container(everId));
      }
    };
    await Promise.all([interfere(), endless()]);
    const saved = await once.finishedBuild(onceId as string);
    assert.equal(saved.build_state, 'passed');
    const log = await once.log(onceId as string);
    assert.equal(log.match(/The build is run again\./g)?.length, 2, log);
    assert.deepEqual(log.match(/try \d/g), ['try 1', 'try 2', 'try 3'], log);
    const lost = await ever.finishedBuild(everId as string);
    assert.equal(lost.build_state, 'errored');
    assert.equal(lost.exit_code, null);
    assert.match(await ever.log(everId as string), /killed from outside\. It was tried 3 times\.\n$/);
  });

  test('never answers when a container is created, a build is errored after three attempts, with the reason', async () => {
    const project = await assay.project();
    gate.spoil(/^POST .*\/containers\/create/);
    try {
      const { build, log } = await project.runOne({ command: 'true' });
      assert.equal(build.build_state, 'errored');
      const reason = /Docker at its socket cannot be reached \(create a container\): the connection broke/;
      assert.match(build.error as string, reason);
      assert.match(build.error as string, /It was tried 3 times\.$/);
      assert.equal(log.match(/The build is run again\./g)?.length, 2, log);
    } finally {
      gate.spoil(undefined);
    }
    const { build } = await project.runOne({ command: 'true' });
    assert.equal(build.build_state, 'passed');
  });

  test('never answers when a container is created, a compile fails after three attempts, with the reason', async () => {
    gate.spoil(/^POST .*\/containers\/create/);
    try {
      const dependencies = openDependencies(assay);
      const { state, record, log } = await dependencies.compile(tarOf({ file: 'x' }), {
        command: `cp file ${PREFIX}`,
      });
      assert.equal(state, 'compile_failed');
      assert.match(
        record.error as string,
        /^Docker at its socket cannot be reached .* It was tried 3 times\.$/,
      );
      assert.equal(log.match(/The dependency is compiled again\./g)?.length, 2, log);
    } finally {
      gate.spoil(undefined);
    }
  });

  test('loses the answer to the start of a container, the command runs once', async () => {
    const project = await assay.project();
    const suite = await project.suite({ command: `${COUNTED}; ls /srv/.assay` });
    // The container of the second build is started while the commit is being fetched.
    for (const runs of [1, 2]) {
      project.repository.add({ message: `Build ${runs}\n`, files: { a: `${runs}` } });
      gate.spoil(/^POST .*\/containers\/[^/]+\/start/, 'lose');
      try {
        const { log } = (await project.run()).of(suite);
        assert.match(log, new RegExp(`^try ${runs}$`, 'm'));
        assert.equal(/^begin$/m.test(log), runs === 2, log);
        assert.doesNotMatch(log, /run again/);
      } finally {
        gate.spoil(undefined);
      }
      // Nothing starts early before the server knows that Docker answers again.
      await (await assay.project()).runOne({ command: 'true' });
    }
  });

  test('has a foreign container, it stays, while nothing of the builds is left', async () => {
    const project = await assay.project();
    await project.runOne({ command: 'exit 1' });
    const foreign = `foreign-${assay.instance}`;
    const image = (await docker('images', '-q', 'assay/host')).split('\n')[0] as string;
    // With the label of another server's build, and a name like one of ours.
    await docker(
      'create',
      '--name',
      foreign,
      '--label',
      'assay.instance=another',
      '--label',
      'assay.kind=build',
      '--label',
      'assay.id=1',
      image,
      '/bin/true',
    );
    try {
      await assay.containersUntil(names => names.length === 0);
      assert.equal(
        await docker('ps', '-aq', '--filter', `name=${foreign}`).then(ids => ids.length > 0),
        true,
      );
      const label = `label=assay.instance=${assay.instance}`;
      const volumes = (await docker('volume', 'ls', '--filter', label, '--format', '{{.Name}}')).split('\n');
      assert.ok(
        volumes.every(name => name.includes('-cache-')),
        String(volumes),
      );
      assert.equal(await docker('network', 'ls', '-q', '--filter', label), '');
      await directoryUntil(
        join(assay.data, 'jobs'),
        names => names.length === 0,
        'something is left of a job',
      );
    } finally {
      await docker('rm', '-f', foreign);
    }
  });
});

test('A network that was pruned from Docker is created again for the next build', async () => {
  const assay = await startAppliance({ network: 'bridge' });
  try {
    const project = await assay.project();
    const { build } = await project.runOne({ command: 'echo ran' });
    assert.equal(build.build_state, 'passed');
    // After a build, the server makes a sandbox in the network, which could otherwise happen at any time below.
    const names = await assay.containersUntil(
      names =>
        names.some(name => name.includes('-sandbox-')) && !names.some(name => name.includes('-build-')),
    );
    await docker('rm', '--force', ...names.filter(name => name.includes('-sandbox-')));
    const label = `label=assay.instance=${assay.instance}`;
    await docker('network', 'rm', await docker('network', 'ls', '-q', '--filter', label));
    const again = await project.run();
    assert.equal(again.state, 'passed', String(again.builds[0]?.error));
    assert.match(await project.log(again.builds[0]?.id_str as string), /ran\n$/);
    assert.equal((await docker('network', 'ls', '-q', '--filter', label)).split('\n').length, 1);
  } finally {
    await assay.close();
  }
});

test('A suite whose image has another shell and no git has its checkout made in another container, and nothing of it is left', async () => {
  const assay = await startAppliance({ concurrency: 1 });
  const image = `assay-test/busybox-${assay.instance}`;
  const directory = mkdtempSync(join(tmpdir(), 'assay-busybox-'));
  const [root, tar] = [join(directory, 'root'), join(directory, 'root.tar')];
  try {
    await busyboxRoot(root);
    await promisify(execFile)('tar', ['-C', root, '-cf', tar, '.']);
    await docker('import', tar, image);
    const lib = assay.repository({ files: { text: 'of a submodule\n' } });
    const repository = assay.repository({
      files: {
        'README.md': 'Hello\n',
        '.gitmodules': `[submodule "lib"]\n\tpath = lib\n\turl = ${lib.url}\n`,
      },
      submodules: { lib: lib.hashes[0] as string },
    });
    const project = await assay.project(repository, { submodules: 'on' });
    recordImage(assay.app.db, image, 'sha256:1');
    const ran = await project.runOne({
      image,
      command:
        'if command -v git; then exit 3; fi; ls -d .git; cat README.md lib/text; touch mine /srv/artifacts/x; id -un',
      artifacts: 'mine\nlib/*',
    });
    assert.equal(ran.build.build_state, 'passed', ran.log);
    assert.match(
      ran.log,
      /checkout of [\s\S]*\n\.git\nHello\nof a submodule\nassay\n\[assay\] kept 4 artifacts, \d+ bytes\n$/,
    );
    const kept = "SELECT group_concat(path, ' ') FROM (SELECT path FROM build_artifacts ORDER BY path)";
    assert.equal(assay.app.db.sqlite.prepare(kept).pluck().get(), 'lib/.git lib/text mine x');
    // The same for a working tree.
    const { bytes } = bundleOf(repository.directory, { files: { 'README.md': 'Changed\n' } });
    const sent = await assay.client.call('POST', `${project.path}/snapshots`, { as: assay.as, body: bytes });
    const form = { snapshot_id: sent.record.id_str as string };
    const local = await project.ask('POST', '/build_requests', form);
    const [build] =
      (await project.finishedRequest(local.id_str as string)) &&
      (await project.buildsOf(local.id_str as string));
    assert.match(await project.log(build?.id_str as string), /\n\.git\nChanged\nof a submodule\nassay\n/);
    await assay.containersUntil(names => names.length === 0);
    // Its volume is removed after its container.
    await volumeGone(`assay-${assay.instance}-build-`);

    // A workspace of an earlier attempt is not reused.
    const gate = await assay.project();
    await gate.suite({ command: 'while ! test -e /srv/cache/go; do sleep 0.05; done' });
    const blocker = await gate.buildOf(await gate.request());
    await gate.until(
      async () => (await gate.buildRecord(blocker.id_str as string)).build_state === 'running',
    );
    const again = await assay.project();
    await again.suite({ image, command: 'ls -A; test ! -e left-over' });
    const { id_str: id } = await again.buildOf(await again.request());
    const volume = `assay-${assay.instance}-build-${id}-workspace`;
    const label = `assay.instance=${assay.instance}`;
    await docker('volume', 'create', '--label', label, '--label', 'assay.kind=artifact', volume);
    const carrier = await docker('create', '--volume', `${volume}:/srv/project`, image, '/bin/true');
    writeFileSync(join(directory, 'left-over'), '');
    await docker('cp', join(directory, 'left-over'), `${carrier}:/srv/project/left-over`);
    await docker('rm', carrier);
    await gate.cancel(`builds/${blocker.id_str}`);
    const ended = await again.finishedBuild(id as string);
    assert.equal(ended.build_state, 'passed', await again.log(id as string));
  } finally {
    await assay.close();
    const base = await docker('inspect', '--format', '{{.Id}}', image);
    const prepared = await docker('images', '-q', '--filter', `label=assay.base=${base}`);
    await docker('rmi', '-f', ...prepared.split('\n').filter(Boolean), image);
    rmSync(directory, { recursive: true });
  }
});

test('A suite or dependency with an image that was never imported is errored with advice, even if Docker has the image', async () => {
  const assay = await startAppliance();
  const image = `assay-test/other-${assay.instance}`;
  const directory = mkdtempSync(join(tmpdir(), 'assay-other-'));
  const tar = join(directory, 'root.tar');
  try {
    mkdirSync(join(directory, 'root/etc'), { recursive: true });
    await promisify(execFile)('tar', ['-C', join(directory, 'root'), '-cf', tar, '.']);
    await docker('import', tar, image);
    const whatToDo = /^\[assay\] .*"assay image import FILE --name \S+" or to set ANY_IMAGE\.$/m;
    const { db } = assay.app;
    const project = await assay.project();
    // Both are older than the rule that images must be imported: the API no longer accepts them.
    const suite = createSuite(db, {
      projectId: BigInt(project.id),
      name: 'Old',
      description: '',
      command: 'true',
      image,
    });
    const { build, log } = (await project.run()).of(String(suite.id));
    assert.equal(build.build_state, 'errored', log);
    assert.match(log, whatToDo);

    const dependencies = openDependencies(assay);
    const id = await dependencies.create();
    db.sqlite.prepare('UPDATE dependencies SET image = ? WHERE id = ?').run(image, BigInt(id));
    await dependencies.upload(id, tarOf({ x: 'x' }));
    const compiled = await dependencies.finished(id);
    assert.equal(compiled.state, 'compile_failed', compiled.log);
    assert.match(compiled.log, whatToDo);
    assert.equal(
      await docker('images', '-q', '--filter', `label=assay.base=${image}`),
      '',
      'nothing was made of it',
    );
  } finally {
    await assay.close();
    await docker('rmi', '-f', image);
    rmSync(directory, { recursive: true });
  }
});

test('TIMEOUT covers all attempts of a build together', async () => {
  const assay = await startAppliance({ timeoutMs: 24_000 });
  try {
    const project = await assay.project();
    await project.suite({ command: 'sleep 14; echo late; exec sleep 1000' });
    const { id_str: buildId } = await project.buildOf(await project.request());
    await project.logHas(buildId as string, 'late\n');
    await docker('kill', `assay-${assay.instance}-build-${buildId}`);
    const build = await project.finishedBuild(buildId as string);
    assert.equal(build.build_state, 'timed_out');
    const log = await project.log(buildId as string);
    assert.match(
      log,
      /late\n\[assay\] The container ended.* The build is run again\.\n(.*\n)*\[assay\] stopped: it took longer than 24 s\n$/,
    );
    assert.equal(log.match(/^late$/gm)?.length, 1, 'less than 10 s were left for the second attempt');
  } finally {
    await assay.close();
  }
});

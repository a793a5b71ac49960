// The isolation of containers after the host's firewall was flushed, on an engine with its own network and firewall.
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import type { Engine } from '../../../src/engine/engine.ts';
import { createPrivateEngine, type PrivateEngine } from '../../drill/support/engine.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { type Appliance, clearDocker, startAppliance } from '../../support/appliance.ts';
import { type Fixture, follow, openFixture } from './fixture.ts';

const PORT = 4000;
const PUBLISHED = 4001;
const WAIT_MS = 60_000;
const RULES = 4;
const LISTEN = `$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => ${PORT}) or die; print "ready\\n"; while ($c = $s->accept) { close $c }`;
const attempt = (name: string, host: string, port = PORT) =>
  `timeout 5 bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo "${name} reached" || echo "${name} refused"`;

const skip = process.getuid?.() !== 0 && 'a network of its own takes root';

describe('After the firewall was flushed', { skip }, () => {
  let engine: PrivateEngine;
  let fixture: Fixture;
  /** A container of another instance, which starts on the bridge without a check of the rules. */
  let unprotected: Fixture;
  let listener: ChildProcess;
  const engines: Engine[] = [];

  before(async () => {
    engine = await createPrivateEngine({ bytes: 300 * 1024 ** 2, ownNetwork: true });
    fixture = await openFixture(engine.dockerHost);
    unprotected = await openFixture(engine.dockerHost);
    const [program = '', ...args] = engine.inNetwork('perl', '-MIO::Socket::INET', '-e', LISTEN);
    listener = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const _ of listener.stdout as NodeJS.ReadableStream) break;
  });
  after(async () => {
    listener.kill();
    for (const one of engines) one.close();
    await unprotected.close();
    await fixture.close();
    await engine.close();
  });

  const run = (...command: string[]) => {
    const [program = '', ...args] = engine.inNetwork(...command);
    return execFileSync(program, args, { encoding: 'utf8' });
  };
  const flush = () => run('iptables', '-F');
  const rulesOf = (bridge: string) =>
    run('iptables', '-S')
      .split('\n')
      .filter(rule => rule.includes(`-i ${bridge} `));
  const gatewayOf = (network: string) =>
    engine.docker('network', 'inspect', network, '--format', '{{(index .IPAM.Config 0).Gateway}}');
  const guards = async (instance: string) =>
    (
      await engine.docker(
        ...['ps', '-aq', '--filter', `label=assay.instance=${instance}`],
        ...['--filter', 'label=assay.kind=guard'],
      )
    )
      .split('\n')
      .filter(Boolean);
  const openEngine = () => {
    const opened = fixture.openEngine();
    engines.push(opened);
    return opened;
  };

  it("the next check blocks the host's ports, published ports and neighbours again", async t => {
    const assay = openEngine();
    const name = await assay.ensureNetwork();
    assert.equal(await assay.protectNetwork(), 'restored');
    const gateway = await gatewayOf(name);
    const neighbour = await fixture.begin(`perl -MIO::Socket::INET -e '${LISTEN}'`, { network: name });
    const neighbourId = await fixture.engine.startContainer(neighbour.plan);
    for await (const record of follow(neighbour.file, neighbour.nonce)) if (record.kind === 'bytes') break;
    const published = await engine.docker(
      ...['run', '--detach', '--publish', `${PUBLISHED}:${PORT}`, '--entrypoint', 'perl'],
      ...fixture.host.mounts.map(
        ({ source, target }) => `--mount=type=bind,source=${source},target=${target},readonly`,
      ),
      ...[fixture.host.reference, '-MIO::Socket::INET', '-e', LISTEN],
    );
    t.after(() => engine.docker('rm', '-f', neighbourId, published));
    await pollUntil(
      WAIT_MS,
      () => engine.docker('logs', published),
      text => text.includes('ready'),
    );
    const found = await fixture.docker.getContainer(neighbourId).inspect();
    const address = found.NetworkSettings.Networks[name]?.IPAddress as string;
    const attempts = [
      attempt('host', gateway),
      attempt('published', gateway, PUBLISHED),
      attempt('neighbour', address),
    ].join('\n');
    const reaches = async () => (await unprotected.run(attempts, { network: name })).text;
    const refused = 'host refused\npublished refused\nneighbour refused\n';
    assert.equal(await reaches(), refused);

    flush();
    // Without a check everything is open: the rules block the attempts.
    assert.equal(await reaches(), 'host reached\npublished reached\nneighbour reached\n');
    assert.equal(await assay.protectNetwork(), 'restored');
    assert.equal(await reaches(), refused);
    assert.equal(await assay.protectNetwork(), 'intact');
    assert.equal(rulesOf(name).length, RULES);

    // As after a reload of a firewall that puts its own rules first.
    for (const chain of ['INPUT', 'FORWARD']) run('iptables', '-I', chain, '1', '-p', 'tcp', '-j', 'ACCEPT');
    assert.equal(await reaches(), 'host reached\npublished reached\nneighbour reached\n');
    assert.equal(await assay.protectNetwork(), 'restored');
    assert.equal(await reaches(), refused);
    run('iptables', '-I', 'DOCKER-USER', '1', '-j', 'RETURN');
    assert.equal(await assay.protectNetwork(), 'restored');
    assert.equal(await reaches(), refused);
    assert.equal(await assay.protectNetwork(), 'intact');
    assert.equal(rulesOf(name).length, RULES);
    flush();
  });

  it('a guard that was removed is started again, and ends with its connection', async () => {
    const assay = openEngine();
    const name = await assay.ensureNetwork();
    await assay.protectNetwork();
    const before = await guards(fixture.instance);
    for (const id of before) await engine.docker('rm', '--force', id);
    flush();
    assert.equal(await assay.protectNetwork(), 'restored');
    assert.equal(rulesOf(name).length, RULES);
    const [guard] = await guards(fixture.instance);
    assert.ok(guard && !before.includes(guard));
    assay.close();
    await pollUntil(
      WAIT_MS,
      () => guards(fixture.instance),
      ids => !ids.includes(guard),
    );
    assert.ok(!(await guards(fixture.instance)).includes(guard));
  });

  it('rules of deleted networks are deleted, and those of others stay', async () => {
    run('ip', 'link', 'add', 'assay-0badcafe', 'type', 'bridge');
    const foreign = ['-i', 'assay-deadbeef', '-j', 'DROP'];
    for (const bridge of ['assay-deadbeef', 'assay-0badcafe']) {
      const ours = ['-m', 'comment', '--comment', bridge, '-j', 'REJECT'];
      run('iptables', '-I', 'INPUT', '1', '-i', bridge, ...ours);
      run('iptables', '-I', 'DOCKER-USER', '1', '-i', bridge, '-d', '169.254.0.0/16', ...ours);
    }
    run('iptables', '-A', 'INPUT', ...foreign);
    const assay = openEngine();
    await assay.ensureNetwork();
    await assay.protectNetwork();
    assert.deepEqual(rulesOf('assay-deadbeef'), [`-A INPUT ${foreign.join(' ')}`]);
    assert.equal(rulesOf('assay-0badcafe').length, 2);
    run('iptables', '-D', 'INPUT', ...foreign);
    run('ip', 'link', 'delete', 'assay-0badcafe');
  });

  it('the guard that deletes the rules of a network is removed with them', async () => {
    for (let round = 0; round < 5; round++) {
      const others = await guards(fixture.instance);
      const assay = openEngine();
      await assay.ensureNetwork();
      await assay.protectNetwork();
      assert.equal((await guards(fixture.instance)).length, others.length + 1);
      await assay.removeNetworks();
      assert.deepEqual(await guards(fixture.instance), others);
    }
  });

  describe('builds', () => {
    let assay: Appliance;
    let gateway: string;
    let bridge: string;
    before(async () => {
      assay = await startAppliance({
        dockerHost: engine.dockerHost,
        network: 'bridge',
        minFreeDiskBytes: 0,
        concurrency: 2,
      });
      await (await assay.project()).runOne({ command: 'true' });
      bridge = await engine.docker(
        ...['network', 'ls', '--filter', `label=assay.instance=${assay.instance}`, '--format', '{{.Name}}'],
      );
      gateway = await gatewayOf(bridge);
    });
    after(async () => {
      await assay.close();
      await clearDocker(assay.instance, engine.dockerHost);
      assert.deepEqual(rulesOf(bridge), []);
    });

    it('start at the same time with the rules restored, and the log of the server reports that they were missing', async () => {
      const project = await assay.project();
      const suiteIds = [];
      for (let number = 0; number < 2; number++)
        suiteIds.push(await project.suite({ command: attempt('host', gateway) }));
      flush();
      const ran = await project.run();
      for (const suiteId of suiteIds) {
        const { build, log } = ran.of(suiteId);
        assert.equal(build.build_state, 'passed', log);
        assert.match(log, /host refused\n/);
      }
      assert.equal(rulesOf(bridge).length, RULES);
      assert.ok(
        assay.logged.some(line => line.includes('firewall rules of the network were missing')),
        assay.logged.join(''),
      );
    });

    it('get their rules back while they run', async () => {
      const project = await assay.project();
      await project.suite({ command: 'echo begun; while ! test -e /srv/cache/go; do sleep 0.1; done' });
      const requestId = await project.request();
      const { id_str: buildId } = await project.buildOf(requestId);
      await project.logHas(buildId as string, 'begun');
      flush();
      const back = await pollUntil(
        WAIT_MS,
        () => rulesOf(bridge),
        rules => rules.length === RULES,
      );
      assert.equal(back.length, RULES);
      await engine.docker(
        'exec',
        '--detach',
        `assay-${assay.instance}-build-${buildId}`,
        'touch',
        '/srv/cache/go',
      );
      assert.equal((await project.finishedRequest(requestId)).build_state, 'passed');
    });

    it('do not start if the rules cannot be set, and say so', async t => {
      const project = await assay.project();
      // The engine's view of the host, which the next guard gets.
      const multi = execFileSync('readlink', ['-f', '/usr/sbin/iptables'], { encoding: 'utf8' }).trim();
      const inside = (...command: string[]) => {
        const [program = '', ...args] = engine.inside(...command);
        execFileSync(program, args);
      };
      inside('mount', '--bind', '/usr/bin/false', multi);
      t.after(() => inside('umount', multi));
      for (const id of await guards(assay.instance)) await engine.docker('rm', '--force', id);
      flush();
      const { build, log } = await project.runOne({ command: 'echo it runs' });
      assert.equal(build.build_state, 'errored', log);
      assert.match(log, /firewall rules that block containers from the host's ports could not be set/);
      assert.doesNotMatch(log, /^it runs/m);
    });
  });
});

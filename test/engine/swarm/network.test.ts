// What containers on the nodes of a swarm can reach: neither a node, nor the server, nor each other. The machines have real
// engines and firewalls.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { SwarmMachine } from '../../../src/demo/swarm-machines.ts';
import { CLOSED_NETWORK, OPEN_NETWORK, sharedPaths } from '../../../src/domain/swarm.ts';
import { EngineRefused } from '../../../src/engine/engine.ts';
import { listProtection } from '../../../src/engine/swarm/guard.ts';
import { createSwarmNetwork, type SwarmNetworkOptions } from '../../../src/engine/swarm/network.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { SWARM_SKIP, startSwarm, type TestSwarm } from '../../support/swarm.ts';

const WAIT_MS = 60_000;
const PORT = 4000;
const SWARM_PORT = 2377;
const LISTEN = `$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => ${PORT}) or die; print "ready\\n"; while ($c = $s->accept) { close $c }`;
const attempt = (name: string, host: string, port = PORT) =>
  `timeout 3 bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo '${name}: reached' || echo '${name}: refused'`;
/** A script that makes all attempts at the same time. */
const inParallel = (attempts: string[]) => [...attempts.map(one => `{ ${one}; } &`), 'wait'].join('\n');
const linesOf = (text: string) => text.trim().split('\n').toSorted();

const execute = ([program = '', ...args]: string[]) => execFileSync(program, args, { encoding: 'utf8' });

describe('The networks of a swarm', { skip: SWARM_SKIP }, () => {
  let swarm: TestSwarm;
  let nodes: string;
  let manager: SwarmMachine;
  let worker: SwarmMachine;
  let other: SwarmMachine;
  /** Stands for the Assay server. */
  let server: Server;
  let port: number;

  before(async () => {
    swarm = await startSwarm({ heartbeatMs: 1_000 });
    nodes = sharedPaths(swarm.shared).nodes;
    [manager, worker, other] = swarm.machines as [SwarmMachine, SwarmMachine, SwarmMachine];
    server = createServer(socket => socket.on('error', () => socket.destroy()).end()).listen(0, '0.0.0.0');
    await once(server, 'listening');
    ({ port } = server.address() as AddressInfo);
    const places = [...swarm.machines.map(({ inside }) => inside), swarm.outside];
    await Promise.all(places.map(listen));
    const network = open();
    assert.equal(await network.ensureNetwork(), 'assay-open');
    assert.equal(await open({ network: 'none' }).ensureNetwork(), 'assay-closed');
    await network.protectNetwork();
  });
  after(async () => {
    server?.close();
    await swarm?.close();
  });

  /** Another object for the same instance, as a new process would have it. */
  const open = (options: Partial<SwarmNetworkOptions> = {}) =>
    createSwarmNetwork(swarm.context, {
      network: 'bridge',
      shared: swarm.shared,
      image: async () => swarm.image,
      ...options,
    });
  const readProtection = () => listProtection(swarm.context, nodes);
  /** Starts a listener, which ends with its machine. */
  async function listen(place: (...command: string[]) => string[]): Promise<void> {
    const [program = '', ...args] = place('perl', '-MIO::Socket::INET', '-e', LISTEN);
    const listener = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(listener.stdout, 'data');
    listener.unref();
  }
  const rulesOf = (machine: SwarmMachine) =>
    execute(machine.inside('iptables', '-S'))
      .split('\n')
      .filter(rule => rule.includes('--comment assay-'));
  const markerOf = ({ nodeId }: SwarmMachine) => join(nodes, nodeId);
  const endGuard = async ({ docker: { call } }: SwarmMachine) => {
    const filters = { label: ['assay.kind=guard'] };
    for (const { Id } of await call('list containers', docker => docker.listContainers({ filters })))
      await call('remove a container', docker => docker.getContainer(Id).remove({ force: true }));
  };
  const bridgeOf = (machine: SwarmMachine, name: string) =>
    execute(machine.inside('ip', '-o', 'link')).includes(` ${name}:`);

  it('without rules, a container reaches everything: the attempts work', async () => {
    const attempts = [
      attempt('own node', worker.address),
      attempt('other node', other.address),
      attempt('swarm port', manager.address, SWARM_PORT),
      attempt('server', swarm.hostAddress, port),
      attempt('outside', swarm.outsideAddress),
    ];
    assert.deepEqual(linesOf(await swarm.run(inParallel(attempts), { machine: worker })), [
      'other node: reached',
      'outside: reached',
      'own node: reached',
      'server: reached',
      'swarm port: reached',
    ]);
  });

  for (const { name, isInternal } of [OPEN_NETWORK, CLOSED_NETWORK])
    it(`${name}: containers reach no node, no server and no neighbour${isInternal ? ', and nothing else' : ''}`, async () => {
      const neighbour = await swarm.begin(`perl -MIO::Socket::INET -e '${LISTEN}'`, {
        machine: worker,
        network: name,
      });
      await neighbour.textUntil(text => text.includes('ready'));
      const gateway = execute(worker.inside('ip', '-o', '-4', 'address', 'show', 'dev', name)).match(
        /inet ([\d.]+)/,
      )?.[1] as string;
      const attempts = [
        attempt('bridge', gateway),
        attempt('own node', worker.address),
        attempt('other node', other.address),
        attempt('file server', manager.address),
        attempt('swarm port', manager.address, SWARM_PORT),
        attempt('own swarm port', worker.address, 7946),
        attempt('server', swarm.hostAddress, port),
        attempt('neighbour', await neighbour.address()),
        attempt('outside', swarm.outsideAddress),
      ];
      const text = await swarm.run(inParallel(attempts), { machine: worker, network: name });
      await neighbour.remove();
      assert.deepEqual(linesOf(text), [
        'bridge: refused',
        'file server: refused',
        'neighbour: refused',
        'other node: refused',
        isInternal ? 'outside: refused' : 'outside: reached',
        'own node: refused',
        'own swarm port: refused',
        'server: refused',
        'swarm port: refused',
      ]);
    });

  it('every node reports a check of its rules with its clock, and the same /usr', async () => {
    const markers = swarm.machines.map(machine => readFileSync(markerOf(machine), 'utf8').trim().split(' '));
    for (const [seconds] of markers)
      assert.ok(Math.abs(Number(seconds) - Date.now() / 1_000) < 15, String(seconds));
    assert.match(markers[0]?.[1] as string, /^[0-9a-f]{64}$/);
    assert.equal(new Set(markers.map(([, usr]) => usr)).size, 1);
    // Not as root, which may not write to a file system of another machine.
    const { uid } = statSync(nodes);
    assert.notEqual(uid, 0);
    assert.equal(statSync(markerOf(worker)).uid, uid);
    const reports = await readProtection();
    assert.deepEqual([...reports.keys()].toSorted(), swarm.machines.map(({ nodeId }) => nodeId).toSorted());
    for (const { checkedAt, error } of reports.values()) {
      assert.ok(checkedAt);
      assert.equal(error, undefined);
    }
  });

  it('a second check changes nothing', async () => {
    const list = async () =>
      (
        (await swarm.context.call('list services', docker => docker.listServices())) as {
          ID: string;
          Version: { Index: number };
        }[]
      )
        .map(({ ID, Version }) => `${ID} ${Version.Index}`)
        .toSorted();
    const found = await list();
    assert.equal(found.length, 2);
    assert.equal(await open().protectNetwork(), 'intact');
    assert.deepEqual(await list(), found);
  });

  it('the bridge stays while no container of a job runs', () => {
    for (const machine of swarm.machines) assert.ok(bridgeOf(machine, OPEN_NETWORK.name));
  });

  it('a node that joins later gets rules, and the others refuse its address', async () => {
    const network = open();
    const added = await swarm.add();
    await listen(added.inside);
    await network.protectNetwork();
    assert.ok(existsSync(markerOf(added)));
    // Within one round of the guard.
    const rules = rulesOf(added).toSorted();
    const found = await pollUntil(
      WAIT_MS,
      () => rulesOf(worker).toSorted(),
      now => now.length === rules.length,
    );
    assert.deepEqual(found, rules);
    assert.ok(rules.some(rule => rule.includes(`-d ${added.address}/32 -i ${OPEN_NETWORK.name} `)));
    const text = await swarm.run(attempt('new node', added.address), {
      machine: worker,
      network: OPEN_NETWORK.name,
    });
    assert.equal(text, 'new node: refused\n');
  });

  it('the rules are set again within seconds after the firewall of a node was flushed', async () => {
    const rules = rulesOf(worker);
    execute(worker.inside('iptables', '-F'));
    assert.deepEqual(rulesOf(worker), []);
    const flushedAt = performance.now();
    const found = await pollUntil(
      WAIT_MS,
      () => rulesOf(worker),
      now => now.length >= rules.length,
      50,
    );
    assert.deepEqual(found.toSorted(), rules.toSorted());
    assert.ok(performance.now() - flushedAt < 10_000);
  });

  it('rules for an address that is no longer listed are deleted', async () => {
    const gone = '203.0.113.7';
    const add = (bridge: string) =>
      execute(
        worker.inside(
          ...['iptables', '-I', 'DOCKER-USER', '1', '-i', bridge, '-d', gone],
          ...['-m', 'comment', '--comment', bridge, '-j', 'REJECT'],
        ),
      );
    for (const { name } of [OPEN_NETWORK, CLOSED_NETWORK]) add(name);
    const found = await pollUntil(
      WAIT_MS,
      () => rulesOf(worker),
      rules => !rules.some(rule => rule.includes(gone)),
    );
    assert.ok(!found.some(rule => rule.includes(gone)));
  });

  it('a node whose rules cannot be set stops reporting and says why', async () => {
    const tool = execute(['readlink', '-f', '/usr/sbin/iptables']).trim();
    execute(other.inside('mount', '--bind', '/bin/false', tool));
    await endGuard(other);
    const errorFile = `${markerOf(other)}.error`;
    const errorAt = () => (existsSync(errorFile) ? statSync(errorFile).mtimeMs : 0);
    const first = await pollUntil(WAIT_MS, errorAt, at => at > 0);
    const marker = readFileSync(markerOf(other), 'utf8');
    await pollUntil(WAIT_MS, errorAt, at => at > first);
    assert.ok(errorAt() > first, 'it tries again');
    assert.equal(readFileSync(markerOf(other), 'utf8'), marker);
    assert.match((await readProtection()).get(other.nodeId)?.error ?? '', /iptables/);
    execute(other.inside('umount', tool));
    await endGuard(other);
    await pollUntil(WAIT_MS, errorAt, at => at === 0);
    assert.equal(errorAt(), 0);
    const renewed = await pollUntil(
      WAIT_MS,
      () => readFileSync(markerOf(other), 'utf8'),
      now => now !== marker,
    );
    assert.notEqual(renewed, marker);
  });

  it('a node that cannot run the guard says why', async () => {
    const { mounts, reference } = swarm.image;
    const missing = { type: 'bind', source: '/nonexistent', target: '/mnt', readOnly: true } as const;
    const image = async () => ({ reference, mounts: [...mounts, missing] });
    const network = open({ image });
    const failing = network.protectNetwork();
    const found = await pollUntil(
      WAIT_MS,
      async () => (await readProtection()).get(other.nodeId)?.error ?? '',
      error => error.includes('/nonexistent'),
    );
    assert.match(found, /\/nonexistent/);
    network.close();
    await failing.catch(() => {});
    const markers = () => swarm.machines.map(machine => statSync(markerOf(machine)).mtimeMs);
    const before = markers();
    await open().protectNetwork();
    await pollUntil(WAIT_MS, markers, now => now.every((at, index) => at > (before[index] as number)));
  });

  it('with the setting none, the other bridge is held', async () => {
    const network = open({ network: 'none' });
    assert.equal(await network.protectNetwork(), 'intact');
    const held = await pollUntil(
      WAIT_MS,
      () => swarm.machines.map(machine => bridgeOf(machine, CLOSED_NETWORK.name)),
      found => found.every(Boolean),
    );
    assert.ok(held.every(Boolean));
  });

  it('another setting is refused, and so is a second server', async () => {
    const refused = (pattern: RegExp) => (error: unknown) => {
      assert.ok(error instanceof EngineRefused);
      assert.match(error.message, pattern);
      return true;
    };
    await assert.rejects(open({ network: 'mine' }).ensureNetwork(), refused(/NETWORK=mine.*bridge or none/));
    const another = createSwarmNetwork(
      { ...swarm.context, instance: 'another' },
      { network: 'bridge', shared: swarm.shared, image: async () => swarm.image },
    );
    await assert.rejects(another.ensureNetwork(), refused(/another Assay server/));
    assert.deepEqual(await another.listNetworks(), []);
    assert.deepEqual(await another.removeNetworks(), { names: [], rules: 0, unreached: [] });
  });

  it('removal leaves no rules, services, networks and files, and names nodes that did not respond', async () => {
    const off = swarm.machines.at(-1) as SwarmMachine;
    const left = swarm.machines.slice(0, -1);
    await off.powerOff();
    await pollUntil(
      WAIT_MS,
      async () =>
        (await swarm.context.call('list nodes', docker => docker.listNodes())) as {
          ID: string;
          Status: { State: string };
        }[],
      found => found.some(({ ID, Status }) => ID === off.nodeId && Status.State === 'down'),
    );
    const expected = left.reduce((sum, machine) => sum + rulesOf(machine).length, 0);
    const network = open();
    const { names, rules, unreached } = await network.removeNetworks();
    assert.deepEqual(names, ['assay-open', 'assay-closed']);
    // Including those of ip6tables.
    assert.ok(rules >= expected, `${rules} of ${expected}`);
    assert.deepEqual(unreached, [off.name]);
    for (const machine of left) {
      assert.deepEqual(rulesOf(machine), []);
      const bridges = await pollUntil(
        WAIT_MS,
        () => [OPEN_NETWORK, CLOSED_NETWORK].filter(({ name }) => bridgeOf(machine, name)),
        found => found.length === 0,
      );
      assert.deepEqual(bridges, []);
    }
    assert.deepEqual(await swarm.context.call('list services', docker => docker.listServices()), []);
    assert.deepEqual(await network.listNetworks(), []);
    assert.deepEqual(readdirSync(nodes), []);
    assert.deepEqual(await network.removeNetworks(), { names: [], rules: 0, unreached: [] });
  });

  it('a manager that was not set up is refused', async () => {
    await manager.docker.call('remove a network', docker => docker.getNetwork(OPEN_NETWORK.config).remove());
    await assert.rejects(open().ensureNetwork(), /assay-open-node.*assay node script/);
  });
});

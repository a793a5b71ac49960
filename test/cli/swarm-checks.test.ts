// The lines of `assay doctor` about a swarm: what each state of a swarm, a node and the shared directory is reported as.
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Check } from '../../src/cli/check.ts';
import {
  checkManager,
  checkNode,
  checkShared,
  checkSnapshots,
  checkSwarm,
} from '../../src/cli/swarm-checks.ts';
import { readSettings } from '../../src/config.ts';
import type { EngineNode } from '../../src/domain/node.ts';
import type { SwarmState } from '../../src/engine/swarm/swarm-state.ts';
import { SWARM_SKIP, startSwarm, type TestSwarm } from '../support/swarm.ts';
import { type SwarmAppliance, startSwarmAppliance } from '../support/swarm-appliance.ts';
import { runAssay, temporaryDirectory } from './program.ts';

const manager: SwarmState = {
  state: 'active',
  isManager: true,
  nodeId: 'x',
  address: '192.0.2.1:2377',
  managers: 1,
  snapshotInterval: 500,
};
const node: EngineNode = {
  id: 'id',
  name: 'builder-1',
  role: 'worker',
  address: '192.0.2.2',
  state: 'ready',
  availability: 'active',
  engineVersion: '29.0.0',
  cpus: 8,
  memoryBytes: 32 * 1024 ** 3,
  slots: 4,
  running: [],
  unusable: undefined,
};

test('this server must be the only manager of a swarm', () => {
  assert.deepEqual(checkManager(manager), {
    status: 'ok',
    found: 'this server is the only manager, at 192.0.2.1:2377',
  });
  const none = checkManager({ ...manager, state: 'inactive', isManager: false });
  assert.equal(none.status, 'fail');
  assert.match(none.fix ?? '', /^docker swarm init --snapshot-interval 500/);
  assert.match(checkManager({ ...manager, isManager: false }).found, /is a worker/);
  const three = checkManager({ ...manager, managers: 3 });
  assert.deepEqual([three.status, three.found], ['fail', 'the swarm has 3 managers']);
});

test("the manager's log of changes must be shortened often", () => {
  assert.equal(checkSnapshots(manager).status, 'ok');
  for (const snapshotInterval of [10_000, 0])
    assert.equal(
      checkSnapshots({ ...manager, snapshotInterval }).fix,
      'docker swarm update --snapshot-interval 500',
    );
});

test('a node has a line for its state, and one for each limit that its Docker lacks', () => {
  const text = (checks: Check[]) => checks.map(({ status, found, fix = '' }) => `${status} ${found} ${fix}`);
  assert.deepEqual(text(checkNode(node)), [
    'ok worker at 192.0.2.2, 4 slots, 8 cores, 32.0 GiB, Docker 29.0.0 ',
  ]);
  const [, swap] = text(checkNode({ ...node, engineVersion: '28.5.1' }));
  assert.match(swap ?? '', /^ok Docker before 29: a container may use as much swap as MEMORY/);
  const old = text(checkNode({ ...node, engineVersion: '20.10.24+dfsg1' }));
  assert.equal(old.length, 3);
  assert.match(old[1] ?? '', /^ok Docker before 25: no-new-privileges comes from daemon\.json/);
  assert.deepEqual(
    text(checkNode({ ...node, state: 'down: x', unusable: 'It does not respond (down: x).' })),
    [
      'warn It does not respond (down: x). start the machine, or restart its Docker; if it is gone for good: docker node rm id',
    ],
  );
  assert.match(
    text(checkNode({ ...node, availability: 'pause', unusable: 'Its availability is pause.' }))[0] ?? '',
    /^warn .* docker node update --availability active builder-1$/,
  );
  assert.match(
    text(checkNode({ ...node, slots: 0, unusable: 'It was not set up with the node script.' }))[0] ?? '',
    /run the output of "assay node script" there$/,
  );
});

test('the shared directory must be there, writable, open to nodes but not for listing, and have free space', async () => {
  using place = temporaryDirectory();
  const shared = join(place.path, 'shared');
  assert.match((await checkShared(shared, 1)).found, /does not exist yet/);
  mkdirSync(shared);
  chmodSync(shared, 0o755);
  const open = await checkShared(shared, 1);
  assert.deepEqual([open.status, open.found], ['warn', `${shared} has mode 755`]);
  chmodSync(shared, 0o711);
  assert.equal((await checkShared(shared, 1)).status, 'ok');
  assert.equal((await checkShared(shared, Number.MAX_SAFE_INTEGER)).status, 'fail');
});

describe('A real swarm', { skip: SWARM_SKIP, timeout: 300_000 }, () => {
  let swarm: TestSwarm;
  before(async () => {
    swarm = await startSwarm({ count: 2 });
    chmodSync(swarm.shared, 0o711);
  });
  after(() => swarm?.close());

  const check = async (
    options: Partial<Parameters<typeof checkSwarm>[0]> = {},
    socket = swarm.managerSocket,
  ) => {
    const { settings } = readSettings(
      new Map([
        ['--engine', 'swarm'],
        ['--shared', swarm.shared],
        ['--data', '/nonexistent'],
      ]),
      { DOCKER_HOST: `unix://${socket}` },
    );
    return checkSwarm({
      settings,
      shared: swarm.shared,
      environment: {},
      instance: '',
      image: 'debian:12',
      probe: undefined,
      ...options,
    });
  };

  test('has a line for each thing, and for each thing that jobs find on nodes', async () => {
    const [first] = swarm.machines;
    const checks = await check({
      probe: async () => [
        {
          node: 'machine-1',
          checks: [
            { name: 'share', ok: true, detail: 'seen after 40 ms' },
            { name: 'swap', ok: false, detail: '4.0 GiB' },
            { name: 'firewall', ok: false, detail: 'no guard reports' },
          ],
        },
      ],
    });
    assert.deepEqual(
      checks
        .filter(({ found }) => !found.startsWith('Docker before'))
        .map(({ name, status }) => `${status} ${name}`),
      [
        'ok swarm',
        'ok swarm log',
        'ok shared directory',
        'ok nodes',
        `ok node ${first?.name}`,
        'ok node machine-2',
        'ok job on machine-1',
        'warn job on machine-1',
        'fail job on machine-1',
      ],
    );
    assert.equal(checks.find(({ name }) => name === 'nodes')?.found, '2 of 2 take work, 4 slots');
    assert.equal(checks.at(-1)?.found, 'firewall: no guard reports');
  });

  test('warns of the image host, whose content is the one of the node', async () => {
    const warned = (await check({ image: 'host' })).find(({ name }) => name === 'image on nodes');
    assert.equal(warned?.status, 'warn');
    assert.match(warned?.fix ?? '', /assay image import/);
  });

  test('says that jobs could not run, and that a worker or an engine that is away is not a manager', async () => {
    const broken = await check({
      probe: () => Promise.reject(new Error('No node could run the container.')),
    });
    assert.deepEqual(broken.at(-1), {
      name: 'jobs on nodes',
      status: 'fail',
      found: 'No node could run the container.',
      fix: 'see the log of the server: journalctl -u assay',
    });
    const worker = await check({}, swarm.machines[1]?.socket);
    assert.deepEqual(
      worker.map(({ name, status }) => [name, status]),
      [
        ['swarm', 'fail'],
        ['shared directory', 'ok'],
      ],
    );
    const [away] = await check({}, '/nonexistent.sock');
    assert.equal(away?.status, 'fail');
  });
});

describe('assay doctor with a server on a swarm', { skip: SWARM_SKIP, timeout: 300_000 }, () => {
  let appliance: SwarmAppliance;
  before(async () => {
    appliance = await startSwarmAppliance({ memoryBytes: 256 * 1024 ** 2 }, { count: 2 });
  });
  after(() => appliance?.close());

  test('runs a job on each node and prints a line for each thing that it checks', async () => {
    const { shared, hostAddress, managerSocket, machines } = appliance.swarm;
    const { port } = new URL(appliance.app.url);
    const environment = {
      ASSAY_ENGINE: 'swarm',
      ASSAY_SHARED: shared,
      ASSAY_LISTEN: `${hostAddress}:${port}`,
      ASSAY_DATA: appliance.data,
      ASSAY_MIN_FREE_DISK: '1MiB',
      DOCKER_HOST: `unix://${managerSocket}`,
    };
    const { status, stdout, stderr } = await runAssay(['doctor', '--json'], environment);
    const { checks } = JSON.parse(stdout) as { checks: Check[] };
    assert.deepEqual(
      checks.filter(one => one.status === 'fail'),
      [],
    );
    assert.equal(status, 0, stderr);
    for (const { name } of machines) {
      const found = checks.filter(one => one.name === `job on ${name}`).map(one => one.found);
      assert.deepEqual(
        found.map(text => text.split(':')[0]),
        ['container', 'profile and firewall', 'shared directory', 'clock', 'swap'],
        JSON.stringify(checks, undefined, 1),
      );
    }
    await appliance.containersUntil(names => names.length === 0);
  });
});

// `assay node …` with a real swarm: the script sets up machines again that lost everything it does, and the list has them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { SwarmMachine } from '../../src/demo/swarm-machines.ts';
import { createDataDirectory } from '../../src/store/data/data.ts';
import { tlsDirectory } from '../../src/store/data/paths.ts';
import { pollUntil } from '../drill/support/poll.ts';
import { SWARM_SKIP, startSwarm, type TestSwarm } from '../support/swarm.ts';
import { runAssay, temporaryDirectory } from './program.ts';

test('on a single host there are no nodes, and no script for them', async () => {
  using place = temporaryDirectory();
  const data = join(place.path, 'data');
  const listed = await runAssay(['node', 'list', '--data', data]);
  assert.deepEqual([listed.status, listed.stdout], [0, 'Builds run on this host only (setting ENGINE).\n']);
  assert.equal((await runAssay(['node', 'list', '--json', '--data', data])).stdout, '[]\n');
  const { status, stderr } = await runAssay(['node', 'script', '--data', data]);
  assert.equal(status, 2);
  assert.match(
    stderr,
    /^assay: there are no nodes: this server runs builds on one host \(setting ENGINE\)\n/,
  );
});

describe('The commands for nodes', { skip: SWARM_SKIP, timeout: 300_000 }, () => {
  let swarm: TestSwarm;
  let data: string;
  const place = temporaryDirectory();
  const settings = () => ({
    ASSAY_ENGINE: 'swarm',
    ASSAY_SHARED: swarm.shared,
    ASSAY_BASE_URL: `https://${swarm.hostAddress}:8443`,
    ASSAY_CONCURRENCY: '2',
    ASSAY_MEMORY: '64MiB',
    ASSAY_CPUS: '1',
    ASSAY_DATA: data,
    DOCKER_HOST: `unix://${swarm.managerSocket}`,
  });
  before(async () => {
    swarm = await startSwarm({ count: 2, slots: 2 });
    data = join(place.path, 'data');
    createDataDirectory(data);
    mkdirSync(tlsDirectory(data), { recursive: true });
    writeFileSync(join(tlsDirectory(data), 'ca.pem'), 'the authority\n');
  });
  after(async () => {
    await swarm?.close();
    place[Symbol.dispose]();
  });

  const on = ({ socket, inside }: SwarmMachine, ...command: string[]) => {
    const [program = '', ...args] = inside('env', `DOCKER_HOST=unix://${socket}`, ...command);
    const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
    return { status, stdout, text: stdout + stderr };
  };
  const printScript = async () => {
    const { status, stdout, stderr } = await runAssay(['node', 'script'], settings());
    assert.equal(status, 0, stderr);
    const file = join(place.path, 'node.sh');
    writeFileSync(file, stdout, { mode: 0o600 });
    return file;
  };

  test('the script joins a machine, trusts the server and makes the networks; the second time it changes nothing', async () => {
    const [, worker] = swarm.machines as [SwarmMachine, SwarmMachine];
    for (const command of [
      ['swarm', 'leave'],
      ['network', 'rm', 'assay-open-node', 'assay-closed-node'],
    ])
      assert.equal(on(worker, 'docker', ...command).status, 0);
    const file = await printScript();
    const first = on(worker, 'sh', file);
    assert.equal(first.status, 0, first.text);
    for (const line of [
      `changed this machine joined the swarm of ${swarm.machines[0]?.address}:2377`,
      'changed network assay-open-node',
      'changed network assay-closed-node',
      'ok      settings of Docker',
    ])
      assert.ok(first.stdout.includes(`${line}\n`), `${line}\n\n${first.text}`);
    const authority = `/etc/docker/certs.d/${swarm.hostAddress}:8443/ca.crt`;
    assert.equal(on(worker, 'cat', authority).stdout, 'the authority\n');
    const { stdout } = on(
      worker,
      ...['docker', 'network', 'inspect', '--format', '{{.ConfigOnly}} {{json .Options}}', 'assay-open-node'],
    );
    assert.deepEqual(JSON.parse(stdout.replace('true ', '')), {
      'com.docker.network.bridge.name': 'assay-open',
      'com.docker.network.bridge.enable_icc': 'false',
    });
    const second = on(worker, 'sh', file);
    assert.equal(second.status, 0, second.text);
    assert.doesNotMatch(second.stdout, /^changed/m);
  });

  test('on the manager the script joins nothing, and keeps its log of changes short', async () => {
    const [manager] = swarm.machines as [SwarmMachine];
    assert.equal(on(manager, 'docker', 'swarm', 'update', '--snapshot-interval', '10000').status, 0);
    const { status, text } = on(manager, 'sh', await printScript());
    assert.equal(status, 0, text);
    assert.match(text, /^ok +this machine is the manager of the swarm$/m);
    const interval = on(
      manager,
      'docker',
      'info',
      '--format',
      '{{.Swarm.Cluster.Spec.Raft.SnapshotInterval}}',
    );
    assert.equal(interval.stdout, '500\n');
  });

  test('the script refuses a machine of another swarm', async () => {
    const file = await printScript();
    const other = join(place.path, 'other.sh');
    const text = readFileSync(file, 'utf8');
    writeFileSync(other, text.replace(/^MANAGER=.*$/m, 'MANAGER=192.0.2.1:2377'));
    const { status, text: answer } = on(swarm.machines[1] as SwarmMachine, 'sh', other);
    assert.equal(status, 1);
    assert.match(answer, /belongs to another swarm: run "docker swarm leave" first/);
  });

  test('the list has each node with its slots, and says why one gets no builds', async () => {
    const [manager, worker] = swarm.machines as [SwarmMachine, SwarmMachine];
    // The list also has the former node of the machine, from before it joined again.
    const id = on(worker, 'docker', 'info', '--format', '{{.Swarm.NodeID}}').stdout.trim();
    const isReady = () =>
      on(manager, 'docker', 'node', 'inspect', '--format', '{{.Status.State}}', id).stdout === 'ready\n';
    assert.ok(await pollUntil(30_000, isReady, holds => holds), 'a machine that joined becomes ready');
    assert.equal(on(manager, 'docker', 'node', 'update', '--availability', 'pause', id).status, 0);
    const { status, stdout, stderr } = await runAssay(['node', 'list'], settings());
    assert.equal(status, 0, stderr);
    const [head = '', ...rows] = stdout.trimEnd().split('\n');
    assert.match(head, /^NAME +ROLE +ADDRESS +STATE +AVAILABILITY +SLOTS +CPUS +MEMORY +DOCKER +NOTE$/);
    assert.match(
      rows.find(row => row.startsWith(manager.name)) ?? '',
      new RegExp(`^${manager.name} +manager +[\\d.]+ +ready +active +0/2 +\\d+ +[\\d.]+ GiB +\\S+$`),
    );
    assert.match(
      rows.find(row => row.startsWith(worker.name) && row.includes('pause')) ?? stdout,
      /worker +[\d.]+ +ready +pause +0\/2 .* Its availability is pause\.$/,
    );
    const listed = JSON.parse((await runAssay(['node', 'list', '--json'], settings())).stdout);
    const record = listed.find((one: { id: string }) => one.id === id);
    assert.deepEqual(
      [record.name, record.slots, record.running, record.unusable],
      [worker.name, 2, [], 'Its availability is pause.'],
    );
  });

  test('an address that nodes cannot reach, a missing authority and a Docker without a swarm are refused with advice', async () => {
    const refused = async (changes: Record<string, string>, expected: number, message: RegExp) => {
      const { status, stdout, stderr } = await runAssay(['node', 'script'], { ...settings(), ...changes });
      assert.deepEqual([status, stdout], [expected, ''], stderr);
      assert.match(stderr, message);
    };
    await refused(
      { ASSAY_BASE_URL: 'https://localhost:8443' },
      2,
      /nodes cannot reach this server at .*BASE_URL/,
    );
    await refused({ ASSAY_DATA: join(place.path, 'new') }, 1, /start the server once, then run this again/);
    const [, worker] = swarm.machines as [SwarmMachine, SwarmMachine];
    const ofWorker = { DOCKER_HOST: `unix://${worker.socket}` };
    await refused(ofWorker, 1, /Docker on this server is a worker/);
    assert.equal(on(worker, 'docker', 'swarm', 'leave').status, 0);
    await refused(ofWorker, 1, /docker swarm init --snapshot-interval 500 --advertise-addr ADDRESS/);
  });
});

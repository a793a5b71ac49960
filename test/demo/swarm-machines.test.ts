// The machines of a Docker Swarm on one host: they run services, fail in the ways real ones do, and leave nothing behind.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import { promisify } from 'node:util';
import { type SwarmMachine, startSwarmMachines } from '../../src/demo/swarm-machines.ts';
import { pollUntil } from '../drill/support/poll.ts';
import { SWARM_SKIP, startSwarm, type TestSwarm } from '../support/swarm.ts';

const MODULE = join(import.meta.dirname, '../../src/demo/swarm-machines.ts');
const WAIT_MS = 60_000;

const execute = async ([program = '', ...args]: string[]) =>
  (await promisify(execFile)(program, args, { timeout: WAIT_MS })).stdout;

type Traces = { processes: string[]; mounts: string[]; links: string[]; cgroups: string[] };

/** What machines have on this host: their directory, and the host's end of their network. */
function tracesOf(directory: string, link: string): Traces {
  const number = link.replace(/^assay-sw/, '');
  return {
    processes: globSync('/proc/[0-9]*/cmdline').filter(file => textOf(file).includes(directory)),
    mounts: textOf('/proc/mounts')
      .split('\n')
      .filter(line => line.includes(directory)),
    links: Object.keys(networkInterfaces()).filter(name => name === link),
    cgroups: globSync(`/sys/fs/cgroup/{,*/}assay-machines-${number}`),
  };
}
const NO_TRACES: Traces = { processes: [], mounts: [], links: [], cgroups: [] };

const textOf = (file: string) => {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process has ended.
    return '';
  }
};
const linkOf = (address: string) =>
  Object.entries(networkInterfaces()).find(([, found]) =>
    found?.some(one => one.address === address),
  )?.[0] as string;

describe('The machines of a swarm', { skip: SWARM_SKIP }, () => {
  let swarm: TestSwarm;
  let worker: SwarmMachine;
  before(async () => {
    swarm = await startSwarm({ heartbeatMs: 1_000 });
    [, worker] = swarm.machines as [SwarmMachine, SwarmMachine];
  });
  after(async () => {
    if (!swarm) return;
    const { directory, hostAddress } = swarm;
    const link = linkOf(hostAddress);
    await swarm.begin('sleep 1000', { machine: worker });
    await swarm.close();
    assert.deepEqual(tracesOf(directory, link), NO_TRACES);
    assert.ok(!existsSync(directory));
  });

  const stateOf = async (machine: SwarmMachine) => {
    const nodes = (await swarm.context.call('list nodes', docker => docker.listNodes())) as {
      ID: string;
      Status: { State: string };
    }[];
    return nodes.find(({ ID }) => ID === machine.nodeId)?.Status.State;
  };
  const stateUntil = async (machine: SwarmMachine, expected: string) =>
    assert.equal(
      await pollUntil(
        WAIT_MS,
        () => stateOf(machine),
        state => state === expected,
      ),
      expected,
    );

  it('are nodes with an address, a host name, the label and slots of their own', async () => {
    const nodes = (await swarm.context.call('list nodes', docker => docker.listNodes())) as {
      ID: string;
      Spec: { Role: string };
      Status: { Addr: string };
      Description: {
        Hostname: string;
        Engine: { Labels: object };
        Resources: { GenericResources: object[] };
      };
    }[];
    assert.deepEqual(
      nodes
        .map(({ ID, Spec, Status, Description }) => [ID, Spec.Role, Status.Addr, Description.Hostname])
        .toSorted((one, other) => (one[3]! < other[3]! ? -1 : 1)),
      swarm.machines.map(({ nodeId, address, name }, index) => [
        nodeId,
        index === 0 ? 'manager' : 'worker',
        address,
        name,
      ]),
    );
    for (const { Description } of nodes) {
      assert.deepEqual(Description.Engine.Labels, { assay: 'yes' });
      assert.deepEqual(Description.Resources.GenericResources, [
        { DiscreteResourceSpec: { Kind: 'assay-slot', Value: 2 } },
      ]);
    }
  });

  it('run a service on a worker, and reach this process', async t => {
    const server = createServer((_, response) => response.end('served')).listen(0, swarm.hostAddress);
    await once(server, 'listening');
    t.after(() => server.close());
    const { port } = server.address() as AddressInfo;
    const get = `bash -c 'exec 3<>/dev/tcp/${swarm.hostAddress}/${port}; printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3; tail -n 1 <&3'`;
    assert.equal((await execute(worker.inside('sh', '-c', get))).trim(), 'served');
    const text = await swarm.run('hostname; grep NoNewPrivs /proc/self/status', { machine: worker });
    assert.match(text, /^[0-9a-f]{12}\nNoNewPrivs:\t1\n$/);
    assert.equal(await execute(worker.inside('hostname')), 'machine-2\n');
  });

  it('keep running containers when dockerd is killed, and are ready again after a restart', async () => {
    const service = await swarm.begin('while :; do echo tick; sleep 0.1; done', { machine: worker });
    await service.textUntil(text => text.includes('tick'));
    await worker.kill();
    assert.equal(worker.pid(), undefined);
    const { length } = await service.text();
    await service.textUntil(text => text.length > length);
    await stateUntil(worker, 'down');
    await worker.restart();
    await stateUntil(worker, 'ready');
    await service.remove();
  });

  it('lose their network while the cable is unplugged', async () => {
    await worker.cut();
    await stateUntil(worker, 'down');
    await worker.restoreLink();
    await stateUntil(worker, 'ready');
  });

  it('lose every process when the power fails', async () => {
    const service = await swarm.begin('while :; do echo tick; sleep 0.1; done', { machine: worker });
    await service.textUntil(text => text.includes('tick'));
    await worker.powerOff();
    const text = await service.text();
    await stateUntil(worker, 'down');
    assert.equal(await service.text(), text);
    await worker.restart();
    await stateUntil(worker, 'ready');
    assert.match(await swarm.run('echo works', { machine: worker }), /works/);
    await service.remove();
  });

  it('form the same swarm again after the manager was off', async () => {
    const [manager] = swarm.machines as [SwarmMachine];
    await manager.powerOff();
    await manager.restart();
    for (const machine of swarm.machines) await stateUntil(machine, 'ready');
    assert.match(await swarm.run('echo works', { machine: worker }), /works/);
  });

  it('trust the authority of a registry', async t => {
    const directory = await mkdtemp(join(tmpdir(), 'assay-ca-'));
    t.after(() => rm(directory, { recursive: true }));
    const file = join(directory, 'ca.pem');
    await writeFile(file, 'a certificate');
    await worker.trust({ host: '10.237.0.254:8443', caFile: file });
    const path = '/etc/docker/certs.d/10.237.0.254:8443/ca.crt';
    assert.equal(await execute(worker.inside('cat', path)), 'a certificate');
    assert.ok(!existsSync(path));
  });
});

describe('Of machines whose process is killed', { skip: SWARM_SKIP }, () => {
  it('nothing runs on, and the next start removes the rest', async t => {
    const directory = await mkdtemp(join(tmpdir(), 'assay-swarm-'));
    t.after(() => rm(directory, { recursive: true, force: true }));
    const program = `
      import { startSwarmMachines } from ${JSON.stringify(MODULE)};
      const { hostAddress } = await startSwarmMachines({ count: 1, directory: ${JSON.stringify(directory)} });
      process.stdout.write(hostAddress);
      setInterval(() => {}, 1_000);
    `;
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [output] = (await once(child.stdout, 'data')) as [Buffer];
    const link = linkOf(String(output));
    assert.match(link, /^assay-sw/);
    child.kill('SIGKILL');
    const isGone = ({ processes, mounts, links }: Traces) =>
      processes.length + mounts.length + links.length === 0;
    const left = await pollUntil(WAIT_MS, () => tracesOf(directory, link), isGone);
    assert.ok(isGone(left), JSON.stringify(left));
    const next = await startSwarmMachines({ count: 1, directory });
    await next.close();
    assert.deepEqual(tracesOf(directory, link), NO_TRACES);
  });
});

test('Machines that cannot all be started leave nothing behind', { skip: SWARM_SKIP }, async t => {
  const directory = await mkdtemp(join(tmpdir(), 'assay-swarm-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const registry = { host: 'registry', caFile: join(directory, 'missing') };
  await assert.rejects(startSwarmMachines({ count: 2, directory, registry }), /ENOENT.*missing/);
  assert.deepEqual(tracesOf(directory, 'none'), NO_TRACES);
  assert.deepEqual(readdirSync(directory), []);
});

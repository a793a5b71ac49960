// Where Swarm is asked to run a container, with a manager that answers as the test says.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ContainerPlan } from '../../../src/domain/container/container-plan.ts';
import { NODE_LABEL, SLOT_RESOURCE } from '../../../src/domain/swarm.ts';
import { createAttempts } from '../../../src/engine/swarm/attempts.ts';
import { createSwarmContainers } from '../../../src/engine/swarm/container.ts';
import { markerFile } from '../../../src/engine/swarm/guard-script.ts';
import type { Node, Task } from '../../../src/engine/swarm/tasks.ts';
import { temporaryDirectory } from '../../cli/program.ts';

type Spec = {
  TaskTemplate: { Placement: { Constraints: string[] }; Resources: { Reservations: object } };
};

test('a container whose chosen node has gone meanwhile is placed by Swarm', async () => {
  using fixture = temporaryDirectory();
  const [attempts, nodes] = ['attempts', 'nodes'].map(name => join(fixture.path, name)) as [string, string];
  for (const directory of [attempts, nodes]) mkdirSync(directory);
  writeFileSync(join(nodes, markerFile('gone')), '');
  const services: Spec[] = [];
  const removed: string[] = [];
  const docker = {
    async createService(_auth: unknown, spec: Spec) {
      services.push(spec);
      return { id: `service-${services.length}` };
    },
    getService: (id: string) => ({ remove: async () => removed.push(id) }),
  };
  // The node was there when it was chosen. Swarm knows that it is not.
  const tasksOf = async (id: string) => {
    if (removed.includes(id)) return [];
    const State = id === 'service-1' ? 'pending' : 'running';
    return [{ ServiceID: id, Status: { State, Err: 'no suitable node' } } as unknown as Task];
  };
  const containers = createSwarmContainers(
    { call: (_: string, work: (_: typeof docker) => unknown) => work(docker), instance: 'i' } as never,
    {
      attempts: createAttempts({
        directory: attempts,
        volumePath: name => name,
        removeTree: path => rm(path, { recursive: true }),
      }),
      cluster: {
        tasks: async () => [],
        allTasks: async () => [],
        tasksOf,
        nodes: async () => [readyNode('gone')],
      },
      registryAuth: () => ({}) as never,
      lostAfterMs: 1_000,
      plain: {} as never,
      hostImage: () => Promise.reject(new Error('not used')),
      nodesDirectory: nodes,
      composeImage: async image => image,
      ensureVolumes: async () => {},
      protect: async () => {},
      fingerprint: async () => '',
      unusableNodes: () => [],
    },
  );
  const name = await containers.startContainer(plan);
  assert.match(name, /^job-/);
  assert.deepEqual(removed, ['service-1']);
  const [first, second, ...more] = services.map(({ TaskTemplate }) => TaskTemplate);
  assert.deepEqual(more, []);
  assert.ok(first?.Placement.Constraints.includes('node.id==gone'));
  assert.deepEqual(first?.Resources.Reservations, {});
  assert.deepEqual(second?.Placement.Constraints, [`engine.labels.${NODE_LABEL}==yes`]);
  assert.deepEqual(second?.Resources.Reservations, {
    GenericResources: [{ DiscreteResourceSpec: { Kind: SLOT_RESOURCE, Value: 1 } }],
  });
});

const readyNode = (ID: string): Node => ({
  ID,
  Spec: { Availability: 'active', Role: 'worker' },
  Status: { State: 'ready', Addr: '' },
  Description: {
    Hostname: ID,
    Engine: { EngineVersion: '26', Labels: { [NODE_LABEL]: 'yes' } },
    Resources: {
      NanoCPUs: 4e9,
      MemoryBytes: 1e9,
      GenericResources: [{ DiscreteResourceSpec: { Kind: SLOT_RESOURCE, Value: 1 } }],
    },
  },
});

const plan: ContainerPlan = {
  name: 'job',
  owner: { instance: 'i', kind: 'build', id: '1' },
  image: 'image',
  command: ['true'],
  environment: {},
  workingDirectory: '/',
  mounts: [],
  limits: { runAs: { uid: 1000, gid: 1000 }, memoryBytes: 1e6, cpus: 1, pids: 10, shmBytes: 1e6 },
  network: 'none',
  remote: { nonce: '0'.repeat(32), layers: [], kept: [], deadlineAt: Date.now() + 60_000 },
};

// On which node the next container runs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPlacement } from '../../../src/engine/swarm/placement.ts';
import { type Node, type Task, taskLabels } from '../../../src/engine/swarm/tasks.ts';

const node = (
  ID: string,
  slots: number,
  others: { state?: string; isActive?: boolean; isOurs?: boolean } = {},
) =>
  ({
    ID,
    Spec: { Availability: (others.isActive ?? true) ? 'active' : 'drain', Role: 'worker' },
    Status: { State: others.state ?? 'ready', Addr: '' },
    Description: {
      Hostname: ID,
      Engine: { EngineVersion: '26', Labels: (others.isOurs ?? true) ? { assay: 'yes' } : {} },
      Resources: {
        NanoCPUs: 4e9,
        MemoryBytes: 1e9,
        GenericResources: [{ DiscreteResourceSpec: { Kind: 'assay-slot', Value: slots } }],
      },
    },
  }) as Node;

const task = (ServiceID: string, NodeID: string, State = 'running') =>
  ({
    ID: `task-${ServiceID}`,
    ServiceID,
    NodeID,
    Status: { State },
    Spec: { ContainerSpec: { Labels: taskLabels({ instance: 'i', kind: 'build', id: ServiceID }) } },
  }) as unknown as Task;

test('containers are spread over the nodes, up to their slots', () => {
  const { take } = createPlacement();
  const nodes = [node('a', 1), node('b', 3)];
  const chosen = Array.from({ length: 5 }, (_, at) => take(`job-${at}`, { nodes, tasks: [] }));
  assert.deepEqual(chosen.toSorted(), ['a', 'b', 'b', 'b', undefined]);
  assert.equal(chosen[0], 'b', 'it has the most free slots');
});

test('nodes that are down, drained, not set up or without slots get none', () => {
  const { take } = createPlacement();
  const nodes = [
    node('down', 2, { state: 'down' }),
    node('drained', 2, { isActive: false }),
    node('foreign', 2, { isOurs: false }),
    node('none', 0),
  ];
  assert.equal(take('job', { nodes, tasks: [] }), undefined);
});

test('a slot is free as soon as its job is over, although its task still runs', () => {
  const placement = createPlacement();
  const nodes = [node('a', 1)];
  assert.equal(placement.take('first', { nodes, tasks: [] }), 'a');
  placement.setId('first', 'id-1');
  const tasks = [task('id-1', 'a')];
  assert.equal(placement.take('second', { nodes, tasks }), undefined);
  placement.free('first');
  assert.equal(placement.take('second', { nodes, tasks }), 'a');
});

test('a slot is free again if its service could not be created', () => {
  const placement = createPlacement();
  const nodes = [node('a', 1)];
  placement.take('first', { nodes, tasks: [] });
  placement.free('first');
  assert.equal(placement.take('second', { nodes, tasks: [] }), 'a');
});

test('containers from before a restart, and those of other servers, use slots until they have ended', () => {
  const { take } = createPlacement();
  const nodes = [node('a', 2), node('b', 2)];
  const tasks = [task('x', 'a'), task('y', 'a'), task('z', 'b', 'complete')];
  assert.deepEqual(
    Array.from({ length: 3 }, (_, at) => take(`job-${at}`, { nodes, tasks })),
    ['b', 'b', undefined],
  );
});

test('services that are not jobs use no slot', () => {
  const { take } = createPlacement();
  const guard = { ...task('guard', 'a'), Spec: { ContainerSpec: { Labels: {} } } };
  assert.equal(take('job', { nodes: [node('a', 1)], tasks: [guard] }), 'a');
});

test('a slot whose container has been gone for a minute is free, even if nobody said so', () => {
  let now = 0;
  const placement = createPlacement(() => now);
  const nodes = [node('a', 1)];
  placement.take('first', { nodes, tasks: [] });
  placement.setId('first', 'id-1');
  now = 61_000;
  assert.equal(placement.take('second', { nodes, tasks: [task('id-1', 'a')] }), undefined);
  assert.equal(placement.take('second', { nodes, tasks: [] }), 'a');
});

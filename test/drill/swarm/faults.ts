// What happens to the machines of `drill swarm`: engines are killed and restarted, machines lose their power or their
// cable, nodes are drained and paused. Each fault is repaired after a while.
import { setTimeout as delay } from 'node:timers/promises';
import type { SwarmMachine } from '../../../src/demo/swarm-machines.ts';
import { ownerOfTask, type Task } from '../../../src/engine/swarm/tasks.ts';
import type { TestSwarm } from '../../support/swarm.ts';
import { pollUntil } from '../support/poll.ts';
import type { Random } from '../support/random.ts';

const READY_MS = 60_000;
/** Longer than a node needs: it registers again after 8 s at most. */
const STUCK_MS = 20_000;
const CALL_MS = 5_000;

type Fault = {
  strike(machine: SwarmMachine, swarm: TestSwarm): Promise<unknown>;
  repair(machine: SwarmMachine, swarm: TestSwarm): Promise<unknown>;
};

const change = (availability: string) => (machine: SwarmMachine, swarm: TestSwarm) =>
  setAvailability(swarm, machine, availability);

const faults = {
  'engine killed': { strike: machine => machine.kill(), repair: machine => machine.restart() },
  'engine restarted': { strike: machine => machine.restart(), repair: async () => {} },
  'powered off': { strike: machine => machine.powerOff(), repair: machine => machine.restart() },
  'cut off': { strike: machine => machine.cut(), repair: machine => machine.restoreLink() },
  drained: { strike: change('drain'), repair: change('active') },
  paused: { strike: change('pause'), repair: change('active') },
} satisfies Record<string, Fault>;

export type FaultName = keyof typeof faults;
export const faultNames = Object.keys(faults) as FaultName[];

/** The machine is given by its position. The first one is the manager. */
export type Strike = { fault: FaultName; machine: number; lastsMs: number };

/** Resolves when the node is repaired and ready again. */
export async function strike(swarm: TestSwarm, { fault, machine: at, lastsMs }: Strike): Promise<void> {
  const machine = swarm.machines[at] as SwarmMachine;
  try {
    await faults[fault].strike(machine, swarm);
    await delay(lastsMs);
  } finally {
    await faults[fault].repair(machine, swarm);
  }
  await untilReady(swarm, machine);
}

/** Random faults, now and then of two machines at once, until it is stopped. */
export function startFaults(
  swarm: TestSwarm,
  random: Random,
  onStrike: (strike: Strike) => void,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const broken = new Set<number>();
  const loop = async (own: Random, pauseMs: number) => {
    while (!stopping.signal.aborted) {
      await delay(own.between(0, pauseMs), undefined, { signal: stopping.signal }).catch(() => {});
      const chosen: Strike = {
        fault: own.pick(faultNames),
        machine: own.between(0, swarm.machines.length - 1),
        lastsMs: own.between(200, 12_000),
      };
      if (stopping.signal.aborted || broken.has(chosen.machine)) continue;
      broken.add(chosen.machine);
      onStrike(chosen);
      await strike(swarm, chosen);
      broken.delete(chosen.machine);
    }
  };
  const running = Promise.all([loop(random.apart('often'), 4_000), loop(random.apart('rarely'), 20_000)]);
  running.catch(() => {});
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Resolves when the machine runs a job, or when `isOver`. */
export async function untilBusy(swarm: TestSwarm, at: number, isOver: () => boolean): Promise<void> {
  const { call } = swarm.context;
  const filters = { node: [swarm.machines[at]?.nodeId as string] };
  const isBusy = async () => {
    const tasks = (await call('list tasks', docker => docker.listTasks({ filters }))) as Task[];
    return isOver() || tasks.some(task => ownerOfTask(task) && task.Status.State === 'running');
  };
  await pollUntil(READY_MS, isBusy, holds => holds);
}

type Node = { Version: { Index: number }; Spec: { Availability: string }; Status: { State: string } };

/** Undefined while the manager does not respond. */
async function findNode({ context: { call } }: TestSwarm, { nodeId }: SwarmMachine) {
  const inspect = () =>
    call('inspect a node', docker => docker.getNode(nodeId).inspect(), { deadlineMs: CALL_MS });
  return (await inspect().catch(() => undefined)) as Node | undefined;
}

/** The manager may be away just now, or may change the node at the same moment, which Docker refuses. */
export async function setAvailability(
  swarm: TestSwarm,
  machine: SwarmMachine,
  Availability: string,
): Promise<void> {
  const { call } = swarm.context;
  const update = async () => {
    const node = await findNode(swarm, machine);
    if (!node) return false;
    const changed = { version: node.Version.Index, ...node.Spec, Availability };
    return call('update a node', docker => docker.getNode(machine.nodeId).update(changed)).then(
      () => true,
      () => false,
    );
  };
  if (!(await pollUntil(READY_MS, update, isDone => isDone)))
    throw new Error(`the availability of ${machine.name} cannot be set to ${Availability}`);
}

/**
 * Restarts the engine if the node does not become ready, as the manual recommends. Docker marks a node as down for good if its
 * heartbeat expires while it registers again; with the short heartbeats of a drill that happens about once in 100 times.
 */
async function untilReady(swarm: TestSwarm, machine: SwarmMachine): Promise<void> {
  const isReady = async () => (await findNode(swarm, machine))?.Status.State === 'ready';
  if (await pollUntil(STUCK_MS, isReady, holds => holds)) return;
  await machine.restart();
  await untilState(swarm, machine, 'ready');
}

/** As the manager sees it. */
export async function untilState(
  swarm: TestSwarm,
  machine: SwarmMachine,
  state: 'ready' | 'down',
): Promise<void> {
  const hasState = async () => (await findNode(swarm, machine))?.Status.State === state;
  if (!(await pollUntil(READY_MS, hasState, holds => holds)))
    throw new Error(`${machine.name} is not ${state} after a minute`);
}

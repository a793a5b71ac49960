// Runs a small job on each node for `assay doctor`, through the same steps as a build, and reports what it finds there.
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type ContainerPlan,
  outputMount,
  type RunAs,
  resourceName,
} from '../../domain/container/container-plan.ts';
import { entryCommand } from '../../domain/container/entry-script.ts';
import { NODE_REFUSALS, NODE_STEP } from '../../domain/container/remote-script.ts';
import type { EngineNode } from '../../domain/node.ts';
import type { Containers, NodeProbe, PreparedImage } from '../engine.ts';
import { createOutput, followOutput } from '../output.ts';

const DEADLINE_MS = 60_000;
const LINES = 5;
const LINE_EVERY_MS = 200;
/** A log that is this late looks as if it stood still. */
const SLOW_MS = 2_000;
/** A larger difference makes times in logs hard to compare. */
const CLOCK_MS = 5_000;
/** Whether the node has swap, which Docker before 29 does not limit. */
export const SWAP_CHECK = 'swap';
const MEMORY_BYTES = 128 * 1024 ** 2;

const SCRIPT = `grep SwapTotal /proc/meminfo; for line in $(seq ${LINES}); do date +%s%3N; sleep ${LINE_EVERY_MS / 1000}; done`;

export type ProbeOptions = {
  containers: Pick<Containers, 'startContainer' | 'removeContainer' | 'waitForExit'>;
  hostImage(): Promise<PreparedImage>;
  network(): Promise<string>;
  instance: string;
  runAs: RunAs;
  /** For the output files, on the shared file system. */
  directory: string;
};

type Seen = { printedAt: number; seenAt: number };

export async function probeNode(options: ProbeOptions, node: EngineNode): Promise<NodeProbe> {
  const nonce = randomBytes(16).toString('hex');
  const owner = { instance: options.instance, kind: 'probe', id: node.id };
  const directory = join(options.directory, `probe-${nonce}`);
  const outputFile = join(directory, 'output');
  const deadlineAt = Date.now() + DEADLINE_MS;
  const [{ reference, mounts }, network] = await Promise.all([options.hostImage(), options.network()]);
  const plan: ContainerPlan = {
    name: resourceName(owner),
    owner,
    image: reference,
    command: entryCommand({ nonce, steps: [{ name: 'probe', script: SCRIPT, environment: 'service' }] }),
    environment: {},
    workingDirectory: '/tmp',
    mounts: [...mounts, outputMount(outputFile)],
    limits: { runAs: options.runAs, memoryBytes: MEMORY_BYTES, cpus: 1, pids: 32, shmBytes: 1 << 20 },
    network,
    remote: { nonce, layers: [], kept: [], deadlineAt, node: node.id },
  };
  await mkdir(directory);
  await chmod(directory, 0o711);
  try {
    await createOutput(outputFile);
    return { node: node.name, checks: await run(options, plan, outputFile) };
  } finally {
    await options.containers.removeContainer(plan.name);
    await rm(directory, { recursive: true, force: true });
  }
}

async function run(
  { containers }: ProbeOptions,
  plan: ContainerPlan,
  file: string,
): Promise<NodeProbe['checks']> {
  const { nonce } = plan.remote as { nonce: string };
  const startedAt = performance.now();
  const over = new AbortController();
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const lines: Seen[] = [];
  let firstAt: number | undefined;
  let swapBytes = 0;
  let ended: { step: string; status: number } | undefined;
  const follow = async () => {
    for await (const record of followOutput({ file, fromByte: 0, nonce, gone: over.signal, signal })) {
      firstAt ??= performance.now();
      if (record.kind === 'exit') ended = { step: record.name, status: record.status };
      if (record.kind === 'bytes') {
        const [, kib = 0] = /^SwapTotal: +(\d+) kB$/m.exec(record.bytes.toString()) ?? [];
        swapBytes ||= Number(kib) * 1024;
        for (const [printed] of record.bytes.toString().matchAll(/^\d{13}$/gm))
          lines.push({ printedAt: Number(printed), seenAt: Date.now() });
      }
    }
  };
  const following = follow();
  try {
    await containers.startContainer(plan);
    containers.waitForExit(plan.name, signal).then(
      () => over.abort(),
      () => over.abort(),
    );
    await following;
  } catch (error) {
    return [{ name: 'container', ok: false, detail: (error as Error).message }];
  } finally {
    over.abort();
    await following.catch(() => {});
  }
  if (ended?.step === NODE_STEP)
    return [{ name: 'check before commands', ok: false, detail: `it ${NODE_REFUSALS[ended.status]}` }];
  if (!ended || firstAt === undefined)
    return [{ name: 'container', ok: false, detail: `no output within ${DEADLINE_MS / 1000} s` }];
  const first = Math.round(firstAt - startedAt);
  return [
    { name: 'container', ok: ended.status === 0, detail: `started in ${first} ms` },
    { name: 'profile and firewall', ok: true, detail: 'in place, checked from inside' },
    ...compareTimes(lines),
    {
      name: SWAP_CHECK,
      ok: swapBytes === 0,
      detail: swapBytes === 0 ? 'none' : `${(swapBytes / 1024 ** 3).toFixed(1)} GiB`,
    },
  ];
}

function compareTimes(lines: readonly Seen[]): NodeProbe['checks'] {
  if (lines.length < LINES)
    return [{ name: 'shared directory', ok: false, detail: 'lines of the output are missing' }];
  const lags = lines.map(({ printedAt, seenAt }) => seenAt - printedAt);
  const offset = Math.min(...lags);
  const delay = Math.max(...lags) - offset;
  return [
    {
      name: 'shared directory',
      ok: delay < SLOW_MS,
      detail: `output arrives within ${Math.max(delay, 1)} ms`,
    },
    {
      name: 'clock',
      ok: Math.abs(offset) < CLOCK_MS,
      detail:
        Math.abs(offset) < 1_000 ? 'less than a second apart' : `${(-offset / 1000).toFixed(1)} s ahead`,
    },
  ];
}

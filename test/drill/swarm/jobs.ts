// The jobs of `drill swarm`. Each notes the attempt that it runs in, and its end, in the cache of its suite, which is on the
// shared file system: so runs are counted where neither the server nor Docker can be wrong about them.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sharedPaths } from '../../../src/domain/swarm.ts';
import type { Wire } from '../../support/client.ts';
import { isFinished, type ProjectJourney } from '../../support/journey.ts';
import type { SwarmAppliance } from '../../support/swarm-appliance.ts';

const EXIT_CODE = 3;
const MAX_ATTEMPTS = 3;
const RUNS = 'runs-';
const PARALLEL = 12;

/** How long jobs take, in seconds, and how they end. */
const KINDS = [
  { seconds: 0, exitCode: 0 },
  { seconds: 1, exitCode: 0 },
  { seconds: 3, exitCode: 0 },
  { seconds: 1, exitCode: EXIT_CODE },
  { seconds: 6, exitCode: 0 },
];

const commandOf = ({ seconds, exitCode }: (typeof KINDS)[number]) =>
  `attempt=$(sed -n 's|.*/attempts/\\([^/]*\\)/work /srv/.assay/attempt .*|\\1|p' /proc/self/mountinfo)
echo "begin $attempt" >>/srv/cache/${RUNS}$ASSAY_BUILD_ID
echo "in attempt $attempt"
sleep ${seconds}
echo made >"$ASSAY_ARTIFACTS/made"
echo "end $attempt" >>/srv/cache/${RUNS}$ASSAY_BUILD_ID
echo "at the end of $attempt"
exit ${exitCode}`;

export type Jobs = {
  /** A request makes one job of each kind, so there may be a few more than wanted. */
  total: number;
  /** Requests all jobs, never many more than there are slots. Resolves when they were requested. */
  requested: Promise<void>;
  /** Resolves when all have ended. */
  untilEnded(): Promise<void>;
  ended(): number;
  check(): Promise<JobResults>;
  close(): void;
};

export type JobResults = {
  /** All jobs that were found. */
  total: number;
  counts: Record<string, number>;
  runs: number;
  nodes: Record<string, number>;
  unfinished: string[];
  /** A verdict that was published, and is another one now. */
  changed: string[];
  /** A verdict that is not the one of the command. */
  wrong: string[];
  /** Attempts with more than one run. */
  doubled: string[];
};

export async function startJobs(
  appliance: SwarmAppliance,
  count: number,
  signal: AbortSignal,
): Promise<Jobs> {
  const project = await appliance.project();
  const exitCodes = new Map<string, number>();
  for (const kind of KINDS) exitCodes.set(await project.suite({ command: commandOf(kind) }), kind.exitCode);
  const verdicts = new Map<string, string[]>();
  const seen = new Set<string>();
  const waiting = new Set<() => void>();
  const firehose = await project.firehose('');
  const watching = (async () => {
    for await (const { event, data } of firehose) {
      if (!event.startsWith('build.')) continue;
      const { id_str: id, build_state: state, exit_code: exitCode } = data.build as Wire;
      seen.add(id as string);
      if (event !== 'build.finished') continue;
      verdicts.set(id as string, [...(verdicts.get(id as string) ?? []), `${state} ${exitCode}`]);
      for (const check of waiting) check();
    }
  })();
  watching.catch(() => {});

  /** Checks after each verdict. */
  const until = (holds: () => boolean) =>
    new Promise<void>(resolve => {
      const check = () => {
        if (!holds() && !signal.aborted) return;
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      signal.addEventListener('abort', check, { once: true });
      check();
    });

  const total = Math.ceil(count / KINDS.length) * KINDS.length;
  async function requestAll(): Promise<void> {
    for (let asked = 0; asked < total && !signal.aborted; asked += KINDS.length) {
      await until(() => asked - verdicts.size < PARALLEL);
      await project.request();
    }
  }

  const requested = requestAll();
  requested.catch(() => {});
  return {
    requested,
    total,
    untilEnded: () => until(() => verdicts.size >= total),
    ended: () => verdicts.size,
    close: () => firehose.close(),
    async check() {
      return checkJobs(project, [...seen], {
        verdicts,
        runs: readRuns(appliance.swarm.shared),
        exitCodeOf: build => exitCodes.get(build.suite_id_str as string) as number,
      });
    },
  };
}

type Noted = {
  verdicts: ReadonlyMap<string, readonly string[]>;
  runs: ReadonlyMap<string, readonly string[]>;
  exitCodeOf(build: Wire): number;
};

async function checkJobs(
  project: ProjectJourney,
  ids: readonly string[],
  { verdicts, runs, exitCodeOf }: Noted,
): Promise<JobResults> {
  const results: JobResults = {
    total: ids.length,
    counts: {},
    runs: 0,
    nodes: {},
    unfinished: [],
    changed: [],
    wrong: [],
    doubled: [],
  };
  for (const id of ids) {
    const build = await project.buildRecord(id);
    const state = build.build_state as string;
    const noted = runs.get(id) ?? [];
    const log = await project.log(id);
    const describe = (problem: string) => `build ${id}: ${problem}; ${noted.join(', ')}; ${log.slice(-800)}`;
    if (!isFinished(state)) {
      results.unfinished.push(describe(state));
      continue;
    }
    results.counts[state] = (results.counts[state] ?? 0) + 1;
    const node = (build.node as string | null) ?? 'none';
    results.nodes[node] = (results.nodes[node] ?? 0) + 1;
    const now = `${state} ${build.exit_code}`;
    const published = verdicts.get(id) ?? [];
    if (published.some(one => one !== now) || published.length !== 1)
      results.changed.push(describe(`${published.join(', then ')}; now ${now}`));
    const begun = noted.filter(line => line.startsWith('begin '));
    results.runs += begun.length;
    for (const line of new Set(begun)) {
      const times = begun.filter(one => one === line).length;
      if (times > 1) results.doubled.push(describe(`${line} ${times} times`));
    }
    const problem = findProblem(build, { noted, log, exitCode: exitCodeOf(build) });
    if (problem !== undefined) results.wrong.push(describe(problem));
  }
  return results;
}

/** Why the verdict cannot be right. */
function findProblem(
  build: Wire,
  { noted, log, exitCode }: { noted: readonly string[]; log: string; exitCode: number },
): string | undefined {
  const { build_state: state } = build;
  if (state === 'errored')
    return new RegExp(`It was tried ${MAX_ATTEMPTS} times`).test(String(build.error))
      ? undefined
      : `errored: ${build.error}`;
  const expected = exitCode === 0 ? 'passed' : 'failed';
  if (state !== expected || build.exit_code !== exitCode)
    return `${state} with ${build.exit_code} instead of ${expected} with ${exitCode}`;
  const [, attempt] = /^at the end of (\S+)$/m.exec(log.slice(log.lastIndexOf('in attempt '))) ?? [];
  if (attempt === undefined || !noted.includes(`end ${attempt}`))
    return 'the log of its last attempt is not complete';
  if (build.artifacts !== 1) return `it has ${build.artifacts} artifacts`;
  return undefined;
}

/** The lines that each build wrote, by its ID. */
function readRuns(shared: string): Map<string, string[]> {
  const runs = new Map<string, string[]>();
  const { volumes } = sharedPaths(shared);
  for (const volume of readdirSync(volumes))
    for (const name of readdirSync(join(volumes, volume)))
      if (name.startsWith(RUNS)) {
        const text = readFileSync(join(volumes, volume, name), 'utf8');
        runs.set(name.slice(RUNS.length), text.split('\n').filter(Boolean));
      }
  return runs;
}

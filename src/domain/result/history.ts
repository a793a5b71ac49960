// Figures about the latest runs of a suite or a project: how many passed, how long they take, how long failures last, and
// which steps are slow.

/** A finished build or build request that was neither canceled nor local. */
export type HistoryRun = {
  state: string;
  startedAt: number | null;
  finishedAt: number | null;
  /** Empty if it is on no branch: a tag, a hash, a pull request of a fork. */
  branch: string;
};

export type Figures = {
  /** Runs that passed or failed. One that Assay could not run says nothing about the suite. */
  counted: number;
  passed: number;
  /** Of those that passed: a failure often ends early. */
  medianMs: number | undefined;
  /** From the end of the first failed run to the end of the next passed one on the same branch. */
  timeToFix: { count: number; medianMs: number; lastMs: number } | undefined;
  /** The branches whose newest run failed, the longest failing first. */
  failing: { branch: string; since: number }[];
};

/** A command that takes too long has failed. */
export const isFailedRun = ({ state }: Pick<HistoryRun, 'state'>) =>
  state === 'failed' || state === 'timed_out';

export const durationOf = ({ startedAt, finishedAt }: Pick<HistoryRun, 'startedAt' | 'finishedAt'>) =>
  startedAt === null || finishedAt === null ? undefined : Math.max(0, finishedAt - startedAt);

export function median(values: readonly number[]): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  const upper = sorted[sorted.length >> 1];
  const lower = sorted[(sorted.length - 1) >> 1];
  return upper === undefined || lower === undefined ? undefined : Math.round((lower + upper) / 2);
}

/** How many runs passed or failed, and how many of these passed. */
export function countRuns(runs: readonly Pick<HistoryRun, 'state'>[]): Pick<Figures, 'counted' | 'passed'> {
  const passed = runs.filter(({ state }) => state === 'passed').length;
  return { counted: passed + runs.filter(isFailedRun).length, passed };
}

/** `runs` are in order, oldest first. */
export function figuresOf(runs: readonly HistoryRun[]): Figures {
  const passed = runs.filter(({ state }) => state === 'passed');
  const failedAt = new Map<string, number>();
  const fixes: { fixedAt: number; ms: number }[] = [];
  for (const run of runs) {
    const { branch, finishedAt } = run;
    if (branch === '' || finishedAt === null) continue;
    const since = failedAt.get(branch);
    if (isFailedRun(run) && since === undefined) failedAt.set(branch, finishedAt);
    if (run.state !== 'passed' || since === undefined) continue;
    fixes.push({ fixedAt: finishedAt, ms: Math.max(0, finishedAt - since) });
    failedAt.delete(branch);
  }
  const medianFix = median(fixes.map(({ ms }) => ms));
  const last = fixes.toSorted((a, b) => a.fixedAt - b.fixedAt).at(-1);
  return {
    ...countRuns(runs),
    medianMs: median(passed.flatMap(run => durationOf(run) ?? [])),
    timeToFix:
      medianFix === undefined || !last
        ? undefined
        : { count: fixes.length, medianMs: medianFix, lastMs: last.ms },
    failing: [...failedAt].map(([branch, since]) => ({ branch, since })).sort((a, b) => a.since - b.since),
  };
}

/**
 * How long each step of a build took, in milliseconds: `prepare` (image, dependencies, container), `checkout`, `launch NAME` for
 * each dependency that is started, `command`, and `collect` (artifacts and test results).
 */
export type BuildSteps = Record<string, number>;

/** The durations between marks, each of which begins a step. The last step ends at `endedAt`. */
export function stepsBetween(marks: readonly { name: string; at: number }[], endedAt: number): BuildSteps {
  const steps: BuildSteps = {};
  for (const [index, { name, at }] of marks.entries())
    steps[name] = (steps[name] ?? 0) + Math.max(0, (marks[index + 1]?.at ?? endedAt) - at);
  return steps;
}

/** The median of each step, slowest first. Steps of which there is no duration are left out. */
export function medianSteps(builds: readonly BuildSteps[]): { name: string; medianMs: number }[] {
  const names = new Set(builds.flatMap(steps => Object.keys(steps)));
  return [...names]
    .map(name => ({ name, medianMs: median(builds.flatMap(steps => steps[name] ?? [])) ?? 0 }))
    .sort((a, b) => b.medianMs - a.medianMs);
}

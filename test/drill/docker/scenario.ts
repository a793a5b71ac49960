// Shared by the scenarios of `drill docker`: running builds, checks of how they end, and the API that is called
// meanwhile.
import { writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Wire } from '../../support/client.ts';
import { isFinished, type ProjectJourney } from '../../support/journey.ts';
import { readNumbered } from '../kill/checks.ts';
import type { PrivateEngine } from '../support/engine.ts';
import type { DrillEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Random } from '../support/random.ts';
import type { Table } from '../support/table.ts';

export type DockerOptions = {
  random: Random;
  command: readonly string[];
  /** How long the engine hangs. Shorter than the timeout of a build, which hangs with it. */
  hangMs: number;
  goneMs: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

export type DockerScenario = {
  environment: DrillEnvironment;
  engine: PrivateEngine;
  project: ProjectJourney;
  table: Table;
  options: DockerOptions;
  /** The slowest API response during a fault. */
  watch<T>(fault: () => Promise<T>): Promise<T>;
  /** Sends SIGTERM to the program. Resolves when it has ended, with the time that took. */
  stopProgram(): Promise<number>;
  startProgram(): Promise<void>;
};

const ANSWER_MS = 1_000;
export const END_MS = 150_000;
const LINES = 60;
/** Counts its runs; takes about six seconds. */
export const STEADY = `echo run >>/srv/cache/runs; i=0
while [ $i -lt ${LINES} ]; do i=$((i + 1)); echo "line $i"; sleep 0.1; done`;

/** Two running builds of one suite. */
export async function begin(project: ProjectJourney, command: string, sign: string): Promise<Wire[]> {
  const suiteId = await project.suite({ command });
  const requests = [await project.request(), await project.request()];
  const builds = await Promise.all(requests.map(id => project.buildOf(id, suiteId)));
  await project.logHas(builds[0]?.id_str as string, sign);
  return builds;
}

export const containerOf = async (engine: PrivateEngine, build: Wire): Promise<string> =>
  (await engine.docker('ps', '-q', '--filter', `label=assay.id=${build.id_str}`)).split('\n')[0] ?? '';

export const ending = (project: ProjectJourney, requestId: string) =>
  pollUntil(
    END_MS,
    () => project.requestRecord(requestId),
    one => isFinished(one.build_state),
  );

export const removeSuite = (project: ProjectJourney, build: Wire) =>
  project.ask('DELETE', `/suites/${build.suite_id_str}`);

/** All passed, and the log of the final attempt is complete. */
export async function endsWell(
  project: ProjectJourney,
  builds: Wire[],
  table: Table,
  name: string,
): Promise<void> {
  const wrong: string[] = [];
  for (const { id_str } of builds) {
    const id = id_str as string;
    const ended = await pollUntil(
      END_MS,
      () => project.buildRecord(id),
      one => isFinished(one.build_state),
    );
    const log = await project.log(id);
    const last = log.slice(log.lastIndexOf('The build is run again.') + 1);
    const { count, missing, repeated } = readNumbered(last, 'line ');
    if (ended.build_state !== 'passed' || count !== LINES || missing + repeated > 0)
      wrong.push(`build ${id} is ${ended.build_state} with ${count} lines: ${log.slice(-600)}`);
  }
  table.mustBeEmpty(`${name}: builds that did not pass with a complete log`, wrong);
}

export async function countRuns(project: ProjectJourney, build: Wire): Promise<number> {
  const suiteId = build.suite_id_str as string;
  await project.ask('PUT', `/suites/${suiteId}`, { command: 'grep -c . /srv/cache/runs' });
  const ran = await project.run();
  const { log } = ran.of(suiteId);
  await project.ask('DELETE', `/suites/${suiteId}`);
  // One of them is the build that was requested while the engine hung.
  return Number(/^\d+$/m.exec(log)?.[0]) - 1;
}

/** Calls the API throughout, and checks the slowest response. */
export async function watchApi<T>(
  environment: DrillEnvironment,
  table: Table,
  fault: () => Promise<T>,
): Promise<T> {
  let isOver = false;
  let slowestMs = 0;
  // The first response is validated against the OpenAPI document, which takes a moment to load.
  await environment.ask('GET', '/projects');
  const watching = (async () => {
    while (!isOver) {
      const startedAt = performance.now();
      await environment.ask('GET', '/projects');
      slowestMs = Math.max(slowestMs, performance.now() - startedAt);
      await delay(100);
    }
  })();
  try {
    return await fault();
  } finally {
    isOver = true;
    await watching;
    table.atMost('  slowest response meanwhile', slowestMs, ANSWER_MS, 'ms');
  }
}

/** Fills all free space. */
export function fill(path: string): void {
  const block = Buffer.alloc(1 << 20);
  for (;;) {
    try {
      writeFileSync(path, block, { flag: 'a' });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return;
      throw error;
    }
  }
}

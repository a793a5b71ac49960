// What the scenes of `drill docker` share: builds under way, how they end, and the API that is watched meanwhile.
import { writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Wire } from '../support/client.ts';
import { isFinished, type ProjectJourney } from '../support/journey.ts';
import type { PrivateEngine } from './engine.ts';
import { readNumbered } from './judge.ts';
import { lookUntil } from './look.ts';
import type { Room } from './room.ts';
import type { Chance } from './seed.ts';
import type { Table } from './table.ts';

export type DockerWishes = {
  chance: Chance;
  command: readonly string[];
  /** How long the engine hangs: less than a build may take, which is what hangs with it. */
  hangMs: number;
  goneMs: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

export type Stage = {
  room: Room;
  engine: PrivateEngine;
  project: ProjectJourney;
  table: Table;
  wishes: DockerWishes;
  /** The slowest answer of the API while trouble lasts. */
  watch<T>(trouble: () => Promise<T>): Promise<T>;
  /** Sends the program SIGTERM; resolves when it has ended, with how long that took. */
  stopProgram(): Promise<number>;
  startProgram(): Promise<void>;
};

const ANSWER_MS = 1_000;
export const END_MS = 150_000;
const LINES = 60;
/** Counts its runs, takes some six seconds. */
export const STEADY = `echo run >>/srv/cache/runs; i=0
while [ $i -lt ${LINES} ]; do i=$((i + 1)); echo "line $i"; sleep 0.1; done`;

/** Two builds of one suite, both under way. */
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
  lookUntil(
    END_MS,
    () => project.requestRecord(requestId),
    one => isFinished(one.build_state),
  );

export const removeSuite = (project: ProjectJourney, build: Wire) =>
  project.ask('DELETE', `/suites/${build.suite_id_str}`);

/** All passed, and the log of the try that counts is whole. */
export async function endsWell(
  project: ProjectJourney,
  builds: Wire[],
  table: Table,
  name: string,
): Promise<void> {
  const wrong: string[] = [];
  for (const { id_str } of builds) {
    const id = id_str as string;
    const ended = await lookUntil(
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
  table.none(`${name}: builds that did not end well`, wrong);
}

export async function countRuns(project: ProjectJourney, build: Wire): Promise<number> {
  const suiteId = build.suite_id_str as string;
  await project.ask('PUT', `/suites/${suiteId}`, { command: 'grep -c . /srv/cache/runs' });
  const ran = await project.run();
  const { log } = ran.of(suiteId);
  await project.ask('DELETE', `/suites/${suiteId}`);
  // One of them is the build that was asked for while the engine hung.
  return Number(/^\d+$/m.exec(log)?.[0]) - 1;
}

/** Asks all the while, and holds the slowest answer against what a person would wait. */
export async function watchApi<T>(room: Room, table: Table, trouble: () => Promise<T>): Promise<T> {
  let isOver = false;
  let slowestMs = 0;
  // The first answer is held against the description, which takes a moment to read.
  await room.ask('GET', '/projects');
  const watching = (async () => {
    while (!isOver) {
      const startedAt = performance.now();
      await room.ask('GET', '/projects');
      slowestMs = Math.max(slowestMs, performance.now() - startedAt);
      await delay(100);
    }
  })();
  try {
    return await trouble();
  } finally {
    isOver = true;
    await watching;
    table.atMost('  slowest answer meanwhile', slowestMs, ANSWER_MS, 'ms');
  }
}

/** Takes all the room there is. */
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

// Fires schedules at their planned times, with one timer for the earliest. A schedule that builds only new commits asks the
// repository for the tip of its branch first.

import type { FiringOutcome } from '../../domain/trigger/trigger.ts';
import { listRemote } from '../../engine/git/ls-remote.ts';
import type { Live } from '../../live.ts';
import type { Log } from '../../log.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project, privateKeyOf } from '../../store/projects.ts';
import {
  findNextScheduleAt,
  fireSchedule,
  listDueSchedules,
  ON_TIME_MS,
  repairSchedules,
} from '../../store/trigger/schedules.ts';
import { findAnyTrigger, optionsOf, type Trigger } from '../../store/trigger/triggers.ts';
import { createHostSlots, hostIn } from '../host-slots.ts';
import { logFailure } from '../source/fetch-mirror.ts';
import { startDueTimer } from './due-timer.ts';

type ScheduleOptions = {
  db: Db;
  live: Live;
  log: Log;
  dataDirectory: string;
  onFiring?: (outcome: FiringOutcome) => void;
  /** The hash of a branch, or undefined if there is no such branch. Tests pass one that connects to no host. */
  findTip?: (project: Project, branch: string, signal: AbortSignal) => Promise<string | undefined>;
};

/** A change of the system clock is noticed within this time. */
const MAX_SLEEP_MS = ON_TIME_MS / 2;
const CLOCK_TOLERANCE_MS = 1_000;
/** After so many firings, each of which is a durable transaction, requests get a turn. */
const BATCH = 4;

export function startSchedules(options: ScheduleOptions): { stop(): Promise<void> } {
  const { db, log } = options;
  const findTip = options.findTip ?? ((project, branch, signal) => askHost(options, project, branch, signal));
  const stopping = new AbortController();
  const slots = createHostSlots(() => timer.wake());
  /** The schedules whose repository is being asked. */
  const asking = new Map<bigint, Promise<void>>();
  /** The clock may also have been set back while no process ran. */
  let clockOffsetMs = Infinity;

  /** Fires what is due, and returns when to continue. */
  function fireDue(): number {
    checkClock();
    let fired = 0;
    for (const id of listDueSchedules(db)) {
      if (fired === BATCH) return 0;
      const trigger = findAnyTrigger(db, id);
      const project = trigger && findProject(db, trigger.projectId);
      if (!trigger || asking.has(id)) continue;
      try {
        if (!project || !optionsOf(trigger, 'schedule').only_new) fire(trigger);
        else if (slots.mayBegin([hostIn(project.repositoryUrl)])) ask(project, trigger);
        else continue;
        fired += 1;
      } catch (error) {
        // Others fire nevertheless.
        log.error('schedule could not be fired', { trigger: id, cause: error });
      }
    }
    const nextAt = findNextScheduleAt(db) ?? Infinity;
    return Math.min(MAX_SLEEP_MS, Math.max(0, nextAt - db.now()));
  }

  function checkClock(): void {
    const offsetMs = db.now() - performance.now();
    if (offsetMs < clockOffsetMs - CLOCK_TOLERANCE_MS) repairSchedules(db);
    clockOffsetMs = offsetMs;
  }

  function fire(trigger: Trigger, tip?: string): void {
    const firing = fireSchedule(db, trigger, tip);
    if (firing) options.onFiring?.(firing.outcome);
  }

  function ask(project: Project, trigger: Trigger): void {
    const free = slots.begin([hostIn(project.repositoryUrl)]);
    const asked = fireIfNew(project, trigger)
      .catch(error => log.error('schedule could not be fired', { trigger: trigger.id, cause: error }))
      .finally(() => {
        asking.delete(trigger.id);
        free();
        timer.wake();
      });
    asking.set(trigger.id, asked);
  }

  async function fireIfNew(project: Project, trigger: Trigger): Promise<void> {
    let tip: string | undefined;
    try {
      tip = await findTip(project, optionsOf(trigger, 'schedule').branch, stopping.signal);
    } catch (error) {
      // The next process asks again. In any other case the build request is made, and its fetch shows what is wrong.
      if (stopping.signal.aborted) return;
      logFailure(log, 'repository could not be read', { project: project.id, trigger: trigger.id }, error);
    }
    fire(trigger, tip);
  }

  const timer = startDueTimer(options, fireDue);

  return {
    async stop() {
      stopping.abort();
      timer.stop();
      await Promise.all(asking.values());
    },
  };
}

async function askHost(
  { db, dataDirectory }: ScheduleOptions,
  project: Project,
  branch: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const ssh = { dataDirectory, privateKey: privateKeyOf(db, project) };
  const { refs } = await listRemote({ url: project.repositoryUrl, ssh, signal });
  return refs.get(`refs/heads/${branch}`);
}

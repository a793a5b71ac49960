// Looks at repositories with `git ls-remote`: at the intervals of triggers, when a hook leaves open what has changed, and
// when somebody asks for it. A look needs no container slot and no mirror.

import { hideHostPaths } from '../../domain/host-paths.ts';
import type { FiringOutcome } from '../../domain/trigger/trigger.ts';
import { GitFailure } from '../../engine/git/git.ts';
import { listRemote, type RemoteRefs } from '../../engine/git/ls-remote.ts';
import type { Live } from '../../live.ts';
import type { Log } from '../../log.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project, privateKeyOf } from '../../store/projects.ts';
import { FIRE, listLooking, resolveFiring } from '../../store/trigger/firings.ts';
import {
  type Claim,
  claimLook,
  type DueLook,
  failLook,
  findDueLook,
  findNextLookAt,
  nextLookAt,
  repairNextLooks,
  scheduleLook,
} from '../../store/trigger/looks.ts';
import { findAnyTrigger, isOwnerActive, type Trigger } from '../../store/trigger/triggers.ts';
import { createHostSlots, hostIn } from '../host-slots.ts';
import { logFailure } from '../source/fetch-mirror.ts';
import { applyLook } from './apply-look.ts';
import { startDueTimer } from './due-timer.ts';

export type LookOutcome = 'unchanged' | 'changed' | 'failed';

export type WatchOptions = {
  db: Db;
  live: Live;
  log: Log;
  dataDirectory: string;
  /** How many looks may begin in a second. */
  rate: number;
  onLook(outcome: LookOutcome): void;
  onFiring(outcome: FiringOutcome): void;
  /** Tests pass one that connects to no host. */
  ask?: (project: Project, signal: AbortSignal) => Promise<RemoteRefs>;
};

const SLEEP_MAX_MS = 60_000;
const MAX_PER_HOST = 2;

/** `stop` ends the running looks, and resolves when their processes have ended. */
export function watchRepositories(options: WatchOptions): { stop(): Promise<void> } {
  const { db, log, dataDirectory } = options;
  const stopping = new AbortController();
  const slots = createHostSlots(() => timer.wake());
  /** The running looks, by project. */
  const looks = new Map<bigint, { host: string; ended: Promise<void> }>();
  let startedAtMs = Number.NEGATIVE_INFINITY;
  /** Whether the last look was one that somebody waited for. */
  let isAwaited = false;

  const ask =
    options.ask ??
    ((project, signal) =>
      listRemote({
        url: project.repositoryUrl,
        ssh: { dataDirectory, privateKey: privateKeyOf(db, project) },
        signal,
      }));

  const report = ({ outcome }: { outcome: FiringOutcome }) => options.onFiring(outcome);

  const mayLook = ({ projectId, repositoryUrl }: DueLook) => {
    const host = hostIn(repositoryUrl);
    const ofHost = [...looks.values()].filter(look => look.host === host).length;
    return !looks.has(projectId) && ofHost < MAX_PER_HOST && slots.mayBegin([host]);
  };

  /** Starts at most one look. Returns when to continue, at the latest. */
  function startNext(): number {
    if (slots.isFull()) return SLEEP_MAX_MS;
    const waitMs = startedAtMs + 1000 / options.rate - performance.now();
    if (waitMs > 0) return waitMs;
    // Looks that somebody waits for come first, but only every second time: hooks without end must not stop all polls.
    for (const kind of [!isAwaited, isAwaited]) {
      const due = findDueLook(db, kind, mayLook);
      if (!due) continue;
      isAwaited = kind;
      const claim = claimLook(db, due);
      if (claim) start(due, claim);
      return 0;
    }
    return untilNextMs();
  }

  function untilNextMs(): number {
    repairNextLooks(db);
    const nextAt = findNextLookAt(db);
    return nextAt === undefined ? SLEEP_MAX_MS : Math.min(SLEEP_MAX_MS, Math.max(0, nextAt - db.now()));
  }

  function start(due: DueLook, claim: Claim): void {
    startedAtMs = performance.now();
    const host = hostIn(due.repositoryUrl);
    const free = slots.begin([host]);
    const ended = look(claim)
      .catch(error => log.error('look failed', { trigger: due.triggerId, cause: error }))
      .finally(() => {
        looks.delete(due.projectId);
        free();
        timer.wake();
      });
    looks.set(due.projectId, { host, ended });
  }

  async function look(claim: Claim): Promise<void> {
    const trigger = findAnyTrigger(db, claim.triggerId);
    const project = trigger && findProject(db, trigger.projectId);
    if (!trigger || !project) return;
    if (!isOwnerActive(db, project)) return skip(trigger, claim);
    try {
      const answer = await ask(project, stopping.signal);
      const outcome = await applyLook(db, { trigger, project, claim, answer }, report);
      if (outcome) options.onLook(outcome);
    } catch (error) {
      // The next process looks at once.
      if (stopping.signal.aborted) return scheduleLook(db, claim, db.now());
      options.onLook('failed');
      logFailure(log, 'repository could not be read', { project: project.id, trigger: trigger.id }, error);
      fail(trigger, claim, error);
    }
  }

  /** What changes until the owner is active again is found then. */
  function skip(trigger: Trigger, claim: Claim): void {
    db.write(() => {
      for (const firing of listLooking(db, trigger.projectId))
        report(resolveFiring(db, firing, { outcome: 'ignored', reason: 'owner_inactive' }));
      scheduleLook(db, claim, nextLookAt(db, trigger));
    });
  }

  function fail(trigger: Trigger, claim: Claim, failure: unknown): void {
    const reason =
      failure instanceof GitFailure
        ? failure.reason
        : `The service could not read the repository: ${(failure as Error).message}`;
    const error = hideHostPaths(reason, dataDirectory);
    db.write(() => {
      for (const firing of listLooking(db, trigger.projectId).filter(({ id }) => id < claim.startId))
        if (firing.event === FIRE) report(resolveFiring(db, firing, { outcome: 'failed', reason: error }));
        // Nobody sends a hook again, so its firing waits for a look that succeeds.
        else resolveFiring(db, firing, { reason: error });
      failLook(db, claim, error);
    });
  }

  const timer = startDueTimer(options, startNext);

  return {
    async stop() {
      stopping.abort();
      timer.stop();
      await Promise.all([...looks.values()].map(({ ended }) => ended));
    },
  };
}

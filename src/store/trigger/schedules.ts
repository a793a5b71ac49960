// Schedules: which ones are due, and what happens at a planned time. A firing, the next planned time and the build request
// are one transaction, so a planned time fires exactly once even if the process is killed.

import { and, desc, eq, gt, inArray, isNotNull, sql } from 'drizzle-orm';
import { checkTimeZone, lastTime, nextTime } from '../../domain/trigger/cron.ts';
import type { IgnoredReason } from '../../domain/trigger/trigger.ts';
import { type Db, prepared } from '../database/db.ts';
import { buildRequests, firings, triggers } from '../database/schema.ts';
import { unfinished } from '../database/unfinished.ts';
import { findProject, type Project } from '../projects.ts';
import { recordFiring, requestBuild } from './firings.ts';
import { type Firing, findAnyTrigger, isOwnerActive, optionsOf, type Trigger } from './triggers.ts';

/** A time that is noticed within this time is not late. The timer sleeps no longer than half of it. */
export const ON_TIME_MS = 120_000;
/** A planned time that is this much further away than the clock says was planned by a wrong clock. */
const WRONG_CLOCK_MS = 2 * 86_400_000;
const MINUTE_MS = 60_000;

const SCHEDULES = `enabled = 1 AND next_at IS NOT NULL AND deleted_at IS NULL AND trigger_type = 'schedule'`;

const statements = prepared(({ sqlite }) => ({
  due: sqlite
    .prepare<[bigint], bigint>(
      `SELECT id FROM triggers WHERE ${SCHEDULES} AND next_at <= ? ORDER BY next_at, id`,
    )
    .pluck(),
  next: sqlite
    .prepare<[bigint], bigint>(
      `SELECT next_at FROM triggers WHERE ${SCHEDULES} AND next_at > ? ORDER BY next_at LIMIT 1`,
    )
    .pluck(),
}));

/** The ids of schedules whose time has come, the longest waiting first. */
export const listDueSchedules = (db: Db): bigint[] => statements(db).due.all(BigInt(db.now()));

/** When the next schedule fires, of those that are not due yet. */
export function findNextScheduleAt(db: Db): number | undefined {
  const nextAt = statements(db).next.get(BigInt(db.now()));
  return nextAt === undefined ? undefined : Number(nextAt);
}

/**
 * Fires a schedule that was due when it was read. Undefined if it has fired or changed since. Of several planned times
 * that have passed, only the last one counts. `tip` is the hash of the branch, if the repository was asked.
 */
export function fireSchedule(db: Db, due: Trigger, tip?: string): Firing | undefined {
  return db.write(() => {
    const trigger = findAnyTrigger(db, due.id);
    const now = db.now();
    if (!trigger?.enabled || trigger.nextAt === null || trigger.nextAt > now) return undefined;
    if (trigger.nextAt !== due.nextAt || trigger.options !== due.options) return undefined;
    const project = findProject(db, trigger.projectId);
    const { cron, time_zone, late, branch, only_new } = optionsOf(trigger, 'schedule');
    const plannedAt = lastTime(cron, time_zone, trigger.nextAt, now) ?? trigger.nextAt;
    setNextAt(db, trigger, nextTime(cron, time_zone, now) ?? null);
    if (!project) return undefined;

    const firing = { event: 'schedule', ref: `refs/heads/${branch}`, plannedAt };
    const ignore = (reason: IgnoredReason) =>
      recordFiring(db, trigger, { ...firing, outcome: 'ignored', reason });
    if (checkTimeZone(time_zone)) {
      const reason = `The time zone ${time_zone} is not known any more: choose another one.`;
      return recordFiring(db, trigger, { ...firing, outcome: 'failed', reason });
    }
    if (now - plannedAt > Math.max(late * MINUTE_MS, ON_TIME_MS)) return ignore('too_late');
    if (!isOwnerActive(db, project)) return ignore('owner_inactive');
    if (hasUnfinishedRequest(db, trigger)) return ignore('still_running');
    const before = only_new ? findLastHash(db, trigger) : undefined;
    if (tip !== undefined && tip === before)
      return recordFiring(db, trigger, { ...firing, before, after: tip, outcome: 'unchanged' });
    return build(db, project, trigger, firing, tip);
  });
}

/** Builds the branch of a schedule now, because somebody asked for it. Its planned times stay as they are. */
export function fireScheduleNow(db: Db, project: Project, trigger: Trigger): Firing {
  return db.write(() => {
    const firing = { event: 'fire', ref: `refs/heads/${optionsOf(trigger, 'schedule').branch}` };
    if (!isOwnerActive(db, project))
      return recordFiring(db, trigger, { ...firing, outcome: 'ignored', reason: 'owner_inactive' });
    return build(db, project, trigger, firing);
  });
}

function build(
  db: Db,
  project: Project,
  trigger: Trigger,
  firing: { event: string; ref: string; plannedAt?: number },
  tip?: string,
): Firing {
  const { branch } = optionsOf(trigger, 'schedule');
  const pin = tip === undefined ? {} : { pinned: tip, pinnedRef: firing.ref };
  const request = requestBuild(db, project, trigger, { commitRef: branch, ...pin });
  return recordFiring(db, trigger, {
    ...firing,
    after: tip ?? null,
    outcome: 'requested',
    buildRequestId: request.id,
  });
}

function hasUnfinishedRequest(db: Db, { projectId, id }: Trigger): boolean {
  const request = db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(
      and(
        eq(buildRequests.projectId, projectId),
        eq(buildRequests.triggerId, id),
        sql.raw(unfinished.request),
      ),
    )
    .get();
  return request !== undefined;
}

/** What the schedule last asked for. An unchanged hash is recorded again, so that it outlives the retention of firings. */
function findLastHash(db: Db, trigger: Trigger): string | undefined {
  const firing = db.orm
    .select({ after: firings.after })
    .from(firings)
    .where(
      and(
        eq(firings.triggerId, trigger.id),
        inArray(firings.outcome, ['requested', 'unchanged']),
        isNotNull(firings.after),
      ),
    )
    .orderBy(desc(firings.id))
    .limit(1)
    .get();
  return firing?.after ?? undefined;
}

/** Plans again what was planned while the clock was far ahead. A small step back fires nothing twice. */
export function repairSchedules(db: Db): void {
  db.write(() => {
    const now = db.now();
    const distant = db.orm
      .select()
      .from(triggers)
      .where(and(sql.raw(SCHEDULES), gt(triggers.nextAt, now + WRONG_CLOCK_MS)))
      .all();
    for (const trigger of distant) {
      const { cron, time_zone } = optionsOf(trigger, 'schedule');
      const nextAt = nextTime(cron, time_zone, now);
      if (nextAt !== undefined && nextAt < trigger.nextAt! - WRONG_CLOCK_MS) setNextAt(db, trigger, nextAt);
    }
  });
}

function setNextAt(db: Db, { id }: Trigger, nextAt: number | null): void {
  db.orm.update(triggers).set({ nextAt }).where(eq(triggers.id, id)).run();
}

// When repositories are looked at: which triggers are due, who claims a look, and what a look changes about its trigger.

import { and, eq } from 'drizzle-orm';
import type { TriggerOptions } from '../../domain/trigger/trigger.ts';
import { type Db, prepared } from '../database/db.ts';
import { triggers } from '../database/schema.ts';
import { moveTrigger } from '../transition.ts';
import { FIRE } from './firings.ts';
import { findAnyTrigger, type Trigger } from './triggers.ts';

export type DueLook = { triggerId: bigint; nextAt: bigint; projectId: bigint; repositoryUrl: string };

/** A look of a process that was killed is due again after this time. */
const CLAIM_MS = 60_000;
/** Of push triggers, whose interval is hours. */
const FAILURE_BASE_S = 30;
const FAILURE_MAX_S = 3_600;
const FAILURES_BEFORE_FAILING = 3;
const JITTER = 0.1;
/** Looks begin within moments. One that is overdue by more waits for others. */
export const LATE_MS = 60_000;

const COLUMNS = `t.id AS triggerId, t.next_at AS nextAt, t.project_id AS projectId, p.repository_url AS repositoryUrl
  FROM triggers t JOIN projects p ON p.id = t.project_id`;
const OF_REPOSITORY = `t.deleted_at IS NULL AND t.trigger_type <> 'schedule'`;
const LOOKS = `t.enabled = 1 AND ${OF_REPOSITORY}`;

const statements = prepared(({ sqlite }) => ({
  due: sqlite.prepare<[bigint], DueLook>(
    `SELECT ${COLUMNS} WHERE ${LOOKS} AND t.next_at <= ? ORDER BY t.next_at`,
  ),
  awaited: sqlite.prepare<[bigint], DueLook>(
    // Whoever fires a trigger that is switched off gets a look all the same.
    `SELECT ${COLUMNS} WHERE ${OF_REPOSITORY} AND t.next_at <= ?
       AND t.id IN (SELECT trigger_id FROM firings WHERE outcome = 'looking' AND (event = '${FIRE}' OR t.enabled = 1))
       ORDER BY t.next_at`,
  ),
  next: sqlite
    .prepare<[bigint], bigint | null>(`SELECT min(next_at) FROM triggers t WHERE ${LOOKS} AND next_at > ?`)
    .pluck(),
  late: sqlite
    .prepare<[bigint], bigint>(`SELECT count(*) FROM triggers t WHERE ${LOOKS} AND next_at <= ?`)
    .pluck(),
  claim: sqlite.prepare<[bigint, bigint, bigint]>(
    'UPDATE triggers SET next_at = ? WHERE id = ? AND next_at = ? AND deleted_at IS NULL',
  ),
  repair: sqlite.prepare<{ now: bigint }>(
    `UPDATE triggers AS t SET next_at = :now WHERE ${LOOKS}
       AND next_at > :now + 1100 * max(${FAILURE_MAX_S}, coalesce(options ->> 'interval', options ->> 'reconcile'))`,
  ),
}));

/**
 * The trigger that has waited longest, of those that `mayLook` accepts. With `isAwaited`, only those of which a hook or a
 * person waits for a look.
 */
export function findDueLook(
  db: Db,
  isAwaited: boolean,
  mayLook: (look: DueLook) => boolean,
): DueLook | undefined {
  const { due, awaited } = statements(db);
  for (const look of (isAwaited ? awaited : due).iterate(BigInt(db.now()))) if (mayLook(look)) return look;
  return undefined;
}

/** When the next look is due, of those that are not due yet. */
export function findNextLookAt(db: Db): number | undefined {
  const nextAt = statements(db).next.get(BigInt(db.now()));
  return nextAt == null ? undefined : Number(nextAt);
}

/** How many looks should have begun long ago. */
export function countLateLooks(db: Db): number {
  return Number(statements(db).late.get(BigInt(db.now() - LATE_MS)));
}

/** A claimed look. `nextAt` is the value that the claim wrote. Ids of what happens from now on are higher than `startId`. */
export type Claim = { triggerId: bigint; nextAt: number; startId: bigint };

/** Undefined if the trigger was changed or claimed meanwhile. */
export function claimLook(db: Db, { triggerId, nextAt: oldNextAt }: DueLook): Claim | undefined {
  return db.write(() => {
    const nextAt = db.now() + CLAIM_MS;
    const { changes } = statements(db).claim.run(BigInt(nextAt), triggerId, oldNextAt);
    return Number(changes) === 1 ? { triggerId, nextAt, startId: db.newId() } : undefined;
  });
}

/** Looks that are due too far in the future, because the clock was set back, are due now. */
export function repairNextLooks(db: Db): void {
  db.write(() => statements(db).repair.run({ now: BigInt(db.now()) }));
}

/** Sets when the next look is due, unless a hook or a change of the trigger has set it since the claim. */
export function scheduleLook(db: Db, claim: Claim, nextAt: number | null): void {
  db.write(() =>
    db.orm
      .update(triggers)
      .set({ nextAt })
      .where(and(eq(triggers.id, claim.triggerId), eq(triggers.nextAt, claim.nextAt)))
      .run(),
  );
}

/** Seconds between two looks; 0 if there is none without a hook. */
const intervalOf = ({ options }: Pick<Trigger, 'options'>): number => {
  const { interval, reconcile } = JSON.parse(options) as Partial<
    TriggerOptions['poll'] & TriggerOptions['push']
  >;
  return interval ?? reconcile ?? 0;
};

const jittered = (seconds: number) => Math.round(seconds * 1000 * (1 - JITTER + 2 * JITTER * Math.random()));

/** When the look after one that succeeded is due. With `soonS`, not later than after so many seconds. */
export function nextLookAt(db: Db, trigger: Trigger, soonS?: number): number | null {
  const intervalS = intervalOf(trigger);
  if (soonS !== undefined) return db.now() + jittered(Math.min(soonS, intervalS || soonS));
  return intervalS === 0 ? null : db.now() + jittered(intervalS);
}

/** Writes nothing about the state if the look before succeeded too. */
export function endLook(db: Db, trigger: Trigger, claim: Claim, nextAt: number | null): void {
  db.write(() => {
    scheduleLook(db, claim, nextAt);
    if (trigger.state !== 'ok' || trigger.failures > 0)
      moveTrigger(db, trigger.id, 'ok', { failures: 0, error: null });
  });
}

/** The delay doubles with each failure in a row. */
export function failLook(db: Db, claim: Claim, error: string): void {
  db.write(() => {
    const trigger = findAnyTrigger(db, claim.triggerId);
    if (!trigger) return;
    const failures = trigger.failures + 1;
    const intervalS = intervalOf(trigger);
    const baseS = trigger.triggerType === 'poll' ? intervalS : FAILURE_BASE_S;
    const delayS = Math.min(baseS * 2 ** failures, Math.max(baseS, FAILURE_MAX_S));
    scheduleLook(db, claim, db.now() + jittered(delayS));
    const isFailing = failures >= FAILURES_BEFORE_FAILING;
    moveTrigger(db, trigger.id, isFailing ? 'failing' : trigger.state, { failures, error });
  });
}

// Triggers as callers see them. firings.ts records what they do.

import { and, asc, eq, isNull, sql } from 'drizzle-orm';
import { standingOf } from '../../domain/access.ts';
import { nameKey } from '../../domain/names.ts';
import type { TriggerOptions, TriggerType } from '../../domain/trigger/trigger.ts';
import { findAccount } from '../accounts.ts';
import { type Db, prepared } from '../database/db.ts';
import { listPage, type Page } from '../database/page.ts';
import { firings, triggers } from '../database/schema.ts';
import { isNameTaken, keyOfChange } from '../database/unique-name.ts';
import type { Project } from '../projects.ts';

export type Trigger = typeof triggers.$inferSelect;
export type Firing = typeof firings.$inferSelect;

/** How long hooks may still be signed with a secret after it was replaced. */
export const OLD_SECRET_MS = 24 * 3_600_000;

const secretCell = (column: 'secret' | 'old_secret', row: bigint) => ({ table: 'triggers', column, row });

/** The options of a trigger whose type is known. */
export function optionsOf<Type extends TriggerType>(
  trigger: Pick<Trigger, 'options' | 'triggerType'>,
  type: Type,
): TriggerOptions[Type] {
  if (trigger.triggerType !== type) throw new Error(`a ${trigger.triggerType} trigger is no ${type} trigger`);
  return JSON.parse(trigger.options);
}

export function listTriggers(db: Db, projectId: bigint, page: Page): Trigger[] {
  return listPage(db, triggers, and(eq(triggers.projectId, projectId), isNull(triggers.deletedAt)), page);
}

export function findTrigger(db: Db, projectId: bigint, id: bigint): Trigger | undefined {
  const trigger = findAnyTrigger(db, id);
  return trigger?.projectId === projectId ? trigger : undefined;
}

/** A trigger of any project, for hooks and workers. */
export function findAnyTrigger(db: Db, id: bigint): Trigger | undefined {
  return byId(db).get({ id });
}

const byId = prepared(db =>
  db.orm
    .select()
    .from(triggers)
    .where(and(eq(triggers.id, sql.placeholder('id')), isNull(triggers.deletedAt)))
    .prepare(),
);

/** The enabled triggers of a project that build refs, oldest first. */
export function listRefTriggers(db: Db, projectId: bigint): Trigger[] {
  return db.orm
    .select()
    .from(triggers)
    .where(and(eq(triggers.projectId, projectId), eq(triggers.enabled, true), isNull(triggers.deletedAt)))
    .orderBy(asc(triggers.id))
    .all()
    .filter(({ triggerType }) => triggerType !== 'schedule');
}

export function isTriggerNameTaken(db: Db, projectId: bigint, name: string, own?: Trigger): boolean {
  return isNameTaken(db, triggers, { column: triggers.projectId, id: projectId }, name, own);
}

type NewTrigger = {
  projectId: bigint;
  name: string;
  triggerType: TriggerType;
  options: object;
  /** When its first look or firing is due. */
  nextAt: number | null;
  secret?: string;
  createdBy: string;
};

export function createTrigger(db: Db, { secret, options, ...trigger }: NewTrigger): Trigger {
  return db.write(() => {
    const id = db.newId();
    touch(db, trigger.projectId, id);
    return db.orm
      .insert(triggers)
      .values({
        ...trigger,
        id,
        nameKey: nameKey(trigger.name),
        enabled: true,
        state: 'new',
        options: JSON.stringify(options),
        ...(secret !== undefined && { secret: db.vault.seal(secret, secretCell('secret', id)) }),
        failures: 0,
        refusedCount: 0,
        createdAt: db.now(),
      })
      .returning()
      .get();
  });
}

export function updateTrigger(
  db: Db,
  trigger: Trigger,
  changes: { name?: string; enabled?: boolean; options?: object; nextAt?: number | null },
): Trigger {
  const { options, ...others } = changes;
  return db.write(() => {
    touch(db, trigger.projectId, trigger.id);
    return db.orm
      .update(triggers)
      .set({
        name: trigger.name,
        ...others,
        ...(options && { options: JSON.stringify(options) }),
        ...keyOfChange(trigger, changes.name),
      })
      .where(eq(triggers.id, trigger.id))
      .returning()
      .get() as Trigger;
  });
}

function touch(db: Db, projectId: bigint, id: bigint): void {
  for (const topic of ['triggers', `trigger:${id}`, `project:${projectId}`]) db.touch(topic);
}

/** Replaces the secret. The old one is accepted for OLD_SECRET_MS more. */
export function replaceSecret(db: Db, trigger: Trigger, secret: string): Trigger {
  return db.write(() => {
    const [current] = secretsOf(db, trigger);
    return db.orm
      .update(triggers)
      .set({
        secret: db.vault.seal(secret, secretCell('secret', trigger.id)),
        ...(current !== undefined && {
          oldSecret: db.vault.seal(current, secretCell('old_secret', trigger.id)),
          oldSecretExpiresAt: db.now() + OLD_SECRET_MS,
        }),
      })
      .where(eq(triggers.id, trigger.id))
      .returning()
      .get() as Trigger;
  });
}

/** The secrets that hooks may be signed with, the newest first. */
export function secretsOf(db: Db, trigger: Trigger): string[] {
  const { id, secret, oldSecret, oldSecretExpiresAt } = trigger;
  const isOldValid = oldSecret !== null && (oldSecretExpiresAt ?? 0) > db.now();
  return [
    ...(secret === null ? [] : [db.vault.open(secret, secretCell('secret', id))]),
    ...(isOldValid ? [db.vault.open(oldSecret, secretCell('old_secret', id))] : []),
  ];
}

/** Whether triggers of the project may build: its owner is neither suspended nor owes payment. */
export function isOwnerActive(db: Db, project: Project): boolean {
  const owner = findAccount(db, project.ownerId);
  return owner !== undefined && standingOf(owner, db.now()) === 'active';
}

/** Adds to the number of hooks without a valid signature. Does nothing once the database is closed. */
export function addRefusedHooks(db: Db, counts: ReadonlyMap<bigint, number>): void {
  if (!db.sqlite.open) return;
  db.write(() => {
    for (const [id, count] of counts) {
      db.orm
        .update(triggers)
        .set({ refusedCount: sql`${triggers.refusedCount} + ${count}`, refusedAt: db.now() })
        .where(eq(triggers.id, id))
        .run();
      db.touch(`trigger:${id}`);
    }
  });
}

export function listFirings(db: Db, triggerId: bigint, page: Page): Firing[] {
  return listPage(db, firings, eq(firings.triggerId, triggerId), page);
}

export function findFiring(db: Db, id: bigint): Firing | undefined {
  return db.orm.select().from(firings).where(eq(firings.id, id)).get();
}

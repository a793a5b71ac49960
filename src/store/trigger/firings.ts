// What triggers do: compares refs with their last known hashes, makes build requests, and records a firing for each ref.
// Every function is one transaction.

import { and, asc, desc, eq, gt, isNotNull, ne, notInArray, sql } from 'drizzle-orm';
import type { RefChange } from '../../domain/trigger/hook-payload.ts';
import {
  type ForkedPull,
  type IgnoredReason,
  parseRef,
  type TriggerOptions,
  wantsRef,
} from '../../domain/trigger/trigger.ts';
import { type BuildRequest, createBuildRequest } from '../builds.ts';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { firings, repositoryLooks, seenRefs, triggers } from '../database/schema.ts';
import type { Project } from '../projects.ts';
import { type Firing, isOwnerActive, listRefTriggers, optionsOf, type Trigger } from './triggers.ts';

/** How a change became known: the event of a forge, or `look`. */
export type Origin = {
  event: string;
  delivery?: string | null | undefined;
  pushedBy?: string | null | undefined;
  /** A firing that waited for the look. It becomes the firing of the change. */
  waiting?: Firing | undefined;
};

/** The events of firings that no hook reported: found by a look, and asked for by a caller of the API. */
export const LOOK = 'look';
export const FIRE = 'fire';

const FILTERED = { outcome: 'ignored', reason: 'filtered' } as const;

type NewFiring = Omit<typeof firings.$inferInsert, 'id' | 'triggerId' | 'createdAt'>;

const insertFiring = insertInto(firings);
const markFired = prepared(({ sqlite }) =>
  sqlite.prepare<[number, bigint]>('UPDATE triggers SET fired_at = ? WHERE id = ?'),
);

export function recordFiring(
  db: Db,
  trigger: Trigger,
  { waiting, ...firing }: NewFiring & Pick<Origin, 'waiting'>,
): Firing {
  return db.write(() => {
    for (const topic of [`trigger:${trigger.id}`, `project:${trigger.projectId}`]) db.touch(topic);
    const createdAt = db.now();
    markFired(db).run(createdAt, trigger.id);
    if (trigger.state === 'new')
      db.orm.update(triggers).set({ state: 'ok' }).where(eq(triggers.id, trigger.id)).run();
    if (waiting) return resolveFiring(db, waiting, firing);
    const { event, outcome } = firing;
    const row: Firing = {
      id: db.newId(),
      triggerId: trigger.id,
      event,
      delivery: firing.delivery ?? null,
      ref: firing.ref ?? null,
      before: firing.before ?? null,
      after: firing.after ?? null,
      pushedBy: firing.pushedBy ?? null,
      outcome,
      reason: firing.reason ?? null,
      buildRequestId: firing.buildRequestId ?? null,
      plannedAt: firing.plannedAt ?? null,
      createdAt,
    };
    insertFiring(db, row);
    return row;
  });
}

/**
 * Handles a change that a verified hook reports. The hook is believed if it starts from the hash that is known. Otherwise
 * hooks were lost or came in another order: the firing stays `looking`, and the repository is asked.
 */
export function observeHook(
  db: Db,
  project: Project,
  trigger: Trigger,
  change: RefChange,
  origin: Origin,
): Firing {
  return db.write(() => {
    const known = seenHash(db, project.id, change.ref);
    const isTag = parseRef(change.ref)?.kind === 'tag';
    if (change.after !== null && known !== change.after) {
      const wanting = wantingTrigger(db, project.id, trigger, change.ref);
      // A hook names the object of an annotated tag, a look its commit. Only looks record tags.
      if (isTag && !wanting) return recordFiring(db, trigger, { ...origin, ...change, ...FILTERED });
      if (isTag || known !== (change.before ?? undefined)) return lookFor(db, trigger, change, origin);
    }
    if (change.after === null && known !== undefined && change.before !== known)
      return lookFor(db, trigger, change, origin);
    return observeRef(db, project, trigger, change, origin);
  });
}

/** Records that the repository has to be asked, at once. `change` is absent if the hook names no ref. */
export function lookFor(db: Db, trigger: Trigger, change: RefChange | undefined, origin: Origin): Firing {
  return db.write(() => {
    db.orm.update(triggers).set({ nextAt: db.now() }).where(eq(triggers.id, trigger.id)).run();
    db.touch('triggers');
    return recordFiring(db, trigger, { ...origin, ...change, outcome: 'looking' });
  });
}

const forgetDigest = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint]>(
    "UPDATE repository_looks SET refs_digest = '' WHERE project_id = ? AND refs_digest <> ''",
  ),
);

/** Records the hash of a ref, and makes a build request if it is new and a trigger wants the ref. */
export function observeRef(
  db: Db,
  project: Project,
  trigger: Trigger,
  { ref, after }: Pick<RefChange, 'ref' | 'after'>,
  origin: Origin,
  ignored?: IgnoredReason,
): Firing {
  return db.write(() => {
    const before = seenHash(db, project.id, ref) ?? null;
    const change = { ...origin, ref, before, after };
    const ignore = (reason: IgnoredReason) =>
      recordFiring(db, trigger, { ...change, outcome: 'ignored', reason });
    // The next look compares every ref: another one may bring this ref back to what the last look found.
    if (before !== after) forgetDigest(db).run(project.id);
    if (after === null) {
      rememberRefs(db, project.id, [{ ref, after }]);
      return ignore('deleted');
    }
    if (before === after) return recordFiring(db, trigger, { ...change, outcome: 'unchanged' });
    rememberRefs(db, project.id, [{ ref, after }]);
    if (ignored) return ignore(ignored);
    // All triggers of a project compare with the same hashes, so the first one to see a change asks for the others too.
    const wanting = wantingTrigger(db, project.id, trigger, ref);
    if (!wanting) return ignore('filtered');
    if (!isOwnerActive(db, project)) return ignore('owner_inactive');
    const request = requestBuild(db, project, wanting, {
      commitRef: parseRef(ref)?.name ?? ref,
      pinned: after,
      pinnedRef: ref,
      pushedBy: origin.pushedBy ?? null,
    });
    // The history of the trigger that saw it shows it too.
    if (wanting.id !== trigger.id) ignore('filtered');
    return recordFiring(db, wanting, { ...change, outcome: 'requested', buildRequestId: request.id });
  });
}

/** Builds a pull request from a fork, if the trigger allows it. */
export function observePull(
  db: Db,
  project: Project,
  trigger: Trigger,
  { number, ref, hash }: ForkedPull,
  origin: Origin,
): Firing {
  return db.write(() => {
    const { pull_requests, pull_request_variables } = optionsOf(trigger, 'push');
    const before = seenHash(db, project.id, ref) ?? null;
    const change = { ...origin, ref, before, after: hash };
    const ignore = (reason: IgnoredReason) =>
      recordFiring(db, trigger, { ...change, outcome: 'ignored', reason });
    if (!pull_requests) return ignore('filtered');
    if (before === hash) return recordFiring(db, trigger, { ...change, outcome: 'unchanged' });
    rememberRefs(db, project.id, [{ ref, after: hash }]);
    if (!isOwnerActive(db, project)) return ignore('owner_inactive');
    const request = requestBuild(db, project, trigger, {
      commitRef: `pull/${number}`,
      pinned: hash,
      pinnedRef: ref,
      pushedBy: origin.pushedBy ?? null,
      pullRequest: number,
      withoutVariables: !pull_request_variables,
    });
    return recordFiring(db, trigger, { ...change, outcome: 'requested', buildRequestId: request.id });
  });
}

/** The trigger that builds the ref: the one that saw it, or else another one of the project. */
function wantingTrigger(db: Db, projectId: bigint, seenBy: Trigger, ref: string): Trigger | undefined {
  const wants = ({ options }: Trigger) => wantsRef(JSON.parse(options) as TriggerOptions['push'], ref);
  return wants(seenBy) ? seenBy : listRefTriggers(db, projectId).find(wants);
}

/** Makes a build request in the name of whoever created the trigger. */
export function requestBuild(
  db: Db,
  project: Project,
  trigger: Trigger,
  request: {
    commitRef: string;
    pinned?: string;
    pinnedRef?: string;
    pushedBy?: string | null;
    pullRequest?: number;
    withoutVariables?: boolean;
  },
): BuildRequest {
  const { commitRef, ...others } = request;
  return createBuildRequest(db, project, commitRef, trigger.createdBy, {
    trigger: trigger.triggerType,
    triggerId: trigger.id,
    triggerName: trigger.name,
    ...others,
  });
}

export function seenHash(db: Db, projectId: bigint, ref: string): string | undefined {
  return seenStatements(db).find.get(projectId, ref);
}

/** The known branches and tags of a project in order, after the given one. Pull requests are between them. */
export function listSeenRefs(
  db: Db,
  projectId: bigint,
  after: string,
  limit: number,
): { ref: string; hash: string }[] {
  return db.orm
    .select({ ref: seenRefs.ref, hash: seenRefs.hash })
    .from(seenRefs)
    .where(
      and(
        eq(seenRefs.projectId, projectId),
        gt(seenRefs.ref, after),
        sql`(ref < 'refs/heads0' OR ref >= 'refs/tags/')`,
      ),
    )
    .orderBy(asc(seenRefs.ref))
    .limit(limit)
    .all();
}

const seenStatements = prepared(({ sqlite }) => ({
  find: sqlite
    .prepare<[bigint, string], string>('SELECT hash FROM seen_refs WHERE project_id = ? AND ref = ?')
    .pluck(),
  upsert: sqlite.prepare<[bigint, string, string]>(
    `INSERT INTO seen_refs (project_id, ref, hash) VALUES (?, ?, ?)
     ON CONFLICT (project_id, ref) DO UPDATE SET hash = excluded.hash`,
  ),
  forget: sqlite.prepare<[bigint, string]>('DELETE FROM seen_refs WHERE project_id = ? AND ref = ?'),
}));

/** Records hashes and deletions without building. */
export function rememberRefs(
  db: Db,
  projectId: bigint,
  changes: readonly Pick<RefChange, 'ref' | 'after'>[],
): void {
  const { upsert, forget } = seenStatements(db);
  db.write(() => {
    for (const { ref, after } of changes)
      if (after === null) forget.run(projectId, ref);
      else upsert.run(projectId, ref, after);
  });
}

/** The hashes that hooks have replaced since the given id, by ref. An answer from before the hooks may still have them. */
export function listReplacedHashes(
  db: Db,
  projectId: bigint,
  since: bigint,
): Map<string, Set<string | null>> {
  const rows = db.orm
    .select({ ref: firings.ref, before: firings.before })
    .from(firings)
    .innerJoin(triggers, eq(triggers.id, firings.triggerId))
    .where(
      and(
        eq(triggers.projectId, projectId),
        gt(firings.id, since),
        ne(firings.event, LOOK),
        isNotNull(firings.ref),
        notInArray(firings.outcome, ['looking', 'unchanged']),
      ),
    )
    .all();
  const byRef = Map.groupBy(rows, ({ ref }) => ref as string);
  return new Map([...byRef].map(([ref, found]) => [ref, new Set(found.map(({ before }) => before))]));
}

export type RepositoryLook = typeof repositoryLooks.$inferSelect;

/** The last complete look. Undefined if there was none at the project's current repository: the next one is a first look. */
export function findLook(db: Db, project: Project): RepositoryLook | undefined {
  const look = db.orm.select().from(repositoryLooks).where(eq(repositoryLooks.projectId, project.id)).get();
  return look?.repositoryUrl === project.repositoryUrl ? look : undefined;
}

/** The repository's default branch, if a look has found it. */
export const findRepositoryBranch = (db: Db, project: Project): string | undefined =>
  findLook(db, project)?.defaultBranch?.replace('refs/heads/', '');

/** Records a complete look. */
export function recordLook(db: Db, look: RepositoryLook): void {
  const { projectId: _, ...set } = look;
  db.write(() =>
    db.orm
      .insert(repositoryLooks)
      .values(look)
      .onConflictDoUpdate({ target: repositoryLooks.projectId, set })
      .run(),
  );
}

/** The newest firing of a trigger that a hook reported. */
export function findLastHook(db: Db, triggerId: bigint): Firing | undefined {
  return db.orm
    .select()
    .from(firings)
    .where(and(eq(firings.triggerId, triggerId), notInArray(firings.event, [LOOK, FIRE])))
    .orderBy(desc(firings.id))
    .limit(1)
    .get();
}

/** The firings of a project's triggers that wait for a look. */
export function listLooking(db: Db, projectId: bigint): Firing[] {
  return db.orm
    .select({ firing: firings })
    .from(firings)
    .innerJoin(triggers, eq(triggers.id, firings.triggerId))
    .where(and(eq(triggers.projectId, projectId), sql`outcome = 'looking'`))
    .orderBy(asc(firings.id))
    .all()
    .map(({ firing }) => firing);
}

/** Ends a firing that waited for a look, or says why it still waits. */
export function resolveFiring(db: Db, firing: Firing, changes: Partial<NewFiring>): Firing {
  return db.write(() => {
    db.touch(`trigger:${firing.triggerId}`);
    return db.orm
      .update(firings)
      .set({ reason: null, ...changes })
      .where(eq(firings.id, firing.id))
      .returning()
      .get() as Firing;
  });
}

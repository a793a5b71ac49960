// Dependencies, their relations and sharing. transition.ts changes their compile state.

import { and, eq, ne, sql } from 'drizzle-orm';
import { COMPILE_CANCELED } from '../domain/dependency.ts';
import { nameKey } from '../domain/names.ts';
import type { Db } from './database/db.ts';
import { dependencies, relatedDependencies, suiteDependencies } from './database/dependency-schema.ts';
import { listPage, type Page } from './database/page.ts';
import { accounts } from './database/schema.ts';
import { isNameTaken, keyOfChange } from './database/unique-name.ts';
import { canCompileAgain, type Dependency, listDependents } from './dependency-use.ts';
import { followCurrentVersion, isVersionKept, keepForOthers } from './kept-versions.ts';
import { replaceRelated } from './related-dependencies.ts';
import { announceDependency, moveDependency } from './transition.ts';

export type { Dependency } from './dependency-use.ts';

export function findDependency(db: Db, id: bigint): Dependency | undefined {
  return db.orm.select().from(dependencies).where(eq(dependencies.id, id)).get();
}

/** The dependency, if the account owns it or it is shared. */
export function findVisibleDependency(db: Db, accountId: bigint, id: bigint): Dependency | undefined {
  const dependency = findDependency(db, id);
  return dependency && (dependency.ownerId === accountId || dependency.shared) ? dependency : undefined;
}

export function listOwnDependencies(db: Db, ownerId: bigint, page: Page): Dependency[] {
  return listPage(db, dependencies, eq(dependencies.ownerId, ownerId), page);
}

/** Of all accounts, by name. */
export function listAllDependencies(db: Db): { dependency: Dependency; ownerEmail: string }[] {
  return db.orm
    .select({ dependency: dependencies, ownerEmail: accounts.email })
    .from(dependencies)
    .innerJoin(accounts, eq(accounts.id, dependencies.ownerId))
    .orderBy(dependencies.nameKey, dependencies.id)
    .all();
}

/** Dependencies that other accounts share. */
export function listSharedDependencies(db: Db, accountId: bigint, page: Page): Dependency[] {
  return listPage(db, dependencies, and(sql`shared = 1`, ne(dependencies.ownerId, accountId)), page);
}

export function isDependencyNameTaken(db: Db, ownerId: bigint, name: string, own?: Dependency): boolean {
  return isNameTaken(db, dependencies, { column: dependencies.ownerId, id: ownerId }, name, own);
}

type Instructions = Pick<
  Dependency,
  'name' | 'description' | 'command' | 'prefix' | 'source' | 'launchCommand' | 'image'
> &
  Partial<Pick<Dependency, 'launchSeconds' | 'environment' | 'libraryPath' | 'recompile'>>;

export function createDependency(
  db: Db,
  ownerId: bigint,
  instructions: Instructions,
  related: readonly bigint[],
): Dependency {
  return db.write(() => {
    const dependency = db.orm
      .insert(dependencies)
      .values({
        ...instructions,
        id: db.newId(),
        nameKey: nameKey(instructions.name),
        ownerId,
        compileState: 'waiting_archive_upload',
        shared: false,
        attempts: 0,
        cancelRequested: false,
        createdAt: db.now(),
      })
      .returning()
      .get();
    replaceRelated(db, dependency.id, related);
    return dependency;
  });
}

export function updateDependency(
  db: Db,
  dependency: Dependency,
  changes: Partial<Instructions>,
  related: readonly bigint[] | undefined,
): Dependency {
  return db.write(() => {
    if (related) replaceRelated(db, dependency.id, related);
    db.touch(`dependency:${dependency.id}`);
    return db.orm
      .update(dependencies)
      .set({ name: dependency.name, ...changes, ...keyOfChange(dependency, changes.name) })
      .where(eq(dependencies.id, dependency.id))
      .returning()
      .get() as Dependency;
  });
}

/**
 * Whether a suite uses it, another dependency relates to it or was compiled with it, or somebody keeps a version of it. Then
 * it cannot be deleted.
 */
export function isDependencyInUse(db: Db, id: bigint): boolean {
  const suite = db.orm
    .select({ id: suiteDependencies.id })
    .from(suiteDependencies)
    .where(eq(suiteDependencies.dependencyId, id))
    .limit(1)
    .get();
  const related = db.orm
    .select({ id: relatedDependencies.dependencyId })
    .from(relatedDependencies)
    .where(eq(relatedDependencies.relatedId, id))
    .limit(1)
    .get();
  return suite !== undefined || related !== undefined || isVersionKept(db, id);
}

export function deleteDependency(db: Db, dependency: Dependency): void {
  db.write(() => {
    db.orm.delete(dependencies).where(eq(dependencies.id, dependency.id)).run();
    db.touch(`dependency:${dependency.id}`);
    db.touch('queue');
  });
}

/** Accounts that use a dependency keep its version when it is no longer shared, and follow it again when it is. */
export function setShared(db: Db, dependency: Dependency, shared: boolean): Dependency {
  if (dependency.shared === shared) return dependency;
  return db.write(() => {
    if (shared) followCurrentVersion(db, dependency);
    else keepForOthers(db, dependency);
    const changed = db.orm
      .update(dependencies)
      .set({ shared })
      .where(eq(dependencies.id, dependency.id))
      .returning()
      .get() as Dependency;
    if (shared) announceDependency(db, changed, 'dependency.shared');
    db.touch(`dependency:${dependency.id}`);
    return changed;
  });
}

/** Enqueues a compile of a new archive. Undefined while the dependency is compiling. */
export function acceptArchive(
  db: Db,
  id: bigint,
  archive: { archiveHash: string; archiveContentType: string; archiveFileSize: number },
): Dependency | undefined {
  return moveDependency(db, id, 'upload', archive);
}

/** Enqueues the owner's dependencies that relate to it and are outdated, in the order in which they are compiled. */
export function compileDependents(db: Db, { id, ownerId }: Dependency): Dependency[] {
  return db.write(() =>
    listDependents(db, id)
      .filter(one => one.ownerId === ownerId && canCompileAgain(db, one))
      .flatMap(one => enqueueCompile(db, one) ?? []),
  );
}

/**
 * Enqueues a compile of the archive that is there. `forced` ignores earlier compiles with the same recipe, until the compile
 * ends. Changes nothing else if it is enqueued already. Undefined while it is compiling, and if there is no archive.
 */
export function enqueueCompile(
  db: Db,
  dependency: Dependency,
  { forced = false }: { forced?: boolean } = {},
): Dependency | undefined {
  return db.write(() => {
    const now = findDependency(db, dependency.id);
    if (!now || now.archiveHash === null) return undefined;
    if (now.compileState !== 'enqueued_for_compile')
      return moveDependency(db, now.id, 'recompile', { forced });
    if (!forced || now.forced) return now;
    db.touch(`dependency:${now.id}`);
    return db.orm.update(dependencies).set({ forced }).where(eq(dependencies.id, now.id)).returning().get();
  });
}

/** A step of a compile: `unpack`, `command` or `keep`. */
export type CompileStep = { name: string; beganAt: number; endedAt: number | undefined };

/**
 * The steps of the current compile so far, or of the last one, in order. The last step has no end while the compile runs.
 * Empty if no step has begun, and if an earlier compile was reused. `compileSteps` has the times of the last successful one.
 */
export function stepsOf(dependency: Pick<Dependency, 'stepsBegun' | 'finishedAt'>): CompileStep[] {
  const begun = JSON.parse(dependency.stepsBegun ?? '[]') as { name: string; began_at: number }[];
  return begun.map(({ name, began_at }, index) => ({
    name,
    beganAt: began_at,
    endedAt: begun[index + 1]?.began_at ?? dependency.finishedAt ?? undefined,
  }));
}

/** The steps of the last successful compile that was not a reuse, and how long each took. */
export function timesOfLastCompile({
  compileSteps,
}: Pick<Dependency, 'compileSteps'>): { name: string; ms: number }[] {
  return JSON.parse(compileSteps ?? '[]');
}

/** Records that a step of a running compile begins now, unless it began before. */
export function beginCompileStep(db: Db, id: bigint, name: string): void {
  db.write(() => {
    const dependency = findDependency(db, id);
    const begun = JSON.parse(dependency?.stepsBegun ?? '[]') as { name: string; began_at: number }[];
    if (dependency?.compileState !== 'compiling' || begun.some(step => step.name === name)) return;
    const stepsBegun = JSON.stringify([...begun, { name, began_at: db.now() }]);
    db.orm.update(dependencies).set({ stepsBegun }).where(eq(dependencies.id, id)).run();
    db.touch(`dependency:${id}`);
  });
}

/** Records on which node the container of a running compile was placed. Does nothing if it does not run. */
export function recordCompileNode(db: Db, id: bigint, node: string): void {
  db.write(() => {
    const { changes } = db.orm
      .update(dependencies)
      .set({ node })
      .where(
        and(
          eq(dependencies.id, id),
          eq(dependencies.compileState, 'compiling'),
          sql`${dependencies.node} IS NOT ${node}`,
        ),
      )
      .run();
    if (changes > 0) for (const topic of [`dependency:${id}`, 'queue']) db.touch(topic);
  });
}

/** How long each step took that has begun, if the last one ends now. */
export function measureSteps(db: Db, id: bigint): string | null {
  const dependency = findDependency(db, id);
  const steps = dependency ? stepsOf({ ...dependency, finishedAt: db.now() }) : [];
  if (steps.length === 0) return null;
  // The clock may have been set back.
  return JSON.stringify(
    steps.map(({ name, beganAt, endedAt }) => ({ name, ms: Math.max(0, (endedAt as number) - beganAt) })),
  );
}

/** Cancels a waiting compile at once, and asks the runner of a running one to stop. */
export function cancelCompile(db: Db, dependency: Dependency): void {
  db.write(() => {
    if (dependency.compileState === 'enqueued_for_compile')
      moveDependency(db, dependency.id, 'cancel', { error: COMPILE_CANCELED });
    if (dependency.compileState !== 'compiling') return;
    db.orm
      .update(dependencies)
      .set({ cancelRequested: true })
      .where(eq(dependencies.id, dependency.id))
      .run();
    db.touch(`dependency:${dependency.id}`);
    db.touch('queue');
  });
}

// Dependencies, their relations and sharing. transition.ts changes their compile state.

import { and, eq, ne, sql } from 'drizzle-orm';
import { COMPILE_CANCELED } from '../domain/dependency.ts';
import { nameKey } from '../domain/names.ts';
import type { Db } from './database/db.ts';
import { listPage, type Page } from './database/page.ts';
import { dependencies, projects, relatedDependencies, suiteDependencies, suites } from './database/schema.ts';
import { isNameTaken, keyOfChange } from './database/unique-name.ts';
import type { Dependency } from './dependency-use.ts';
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

function replaceRelated(db: Db, dependencyId: bigint, related: readonly bigint[]): void {
  db.orm.delete(relatedDependencies).where(eq(relatedDependencies.dependencyId, dependencyId)).run();
  for (const [position, relatedId] of related.entries())
    db.orm.insert(relatedDependencies).values({ dependencyId, relatedId, position }).run();
}

/** Whether a suite uses it or another dependency relates to it. Then it cannot be deleted. */
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
  return suite !== undefined || related !== undefined;
}

/** Whether another account uses it, in a suite or as a related dependency. */
export function isUsedByOthers(db: Db, dependency: Dependency): boolean {
  const suite = db.orm
    .select({ id: suiteDependencies.id })
    .from(suiteDependencies)
    .innerJoin(suites, eq(suites.id, suiteDependencies.suiteId))
    .innerJoin(projects, eq(projects.id, suites.projectId))
    .where(and(eq(suiteDependencies.dependencyId, dependency.id), ne(projects.ownerId, dependency.ownerId)))
    .limit(1)
    .get();
  const related = db.orm
    .select({ id: relatedDependencies.dependencyId })
    .from(relatedDependencies)
    .innerJoin(dependencies, eq(dependencies.id, relatedDependencies.dependencyId))
    .where(
      and(eq(relatedDependencies.relatedId, dependency.id), ne(dependencies.ownerId, dependency.ownerId)),
    )
    .limit(1)
    .get();
  return suite !== undefined || related !== undefined;
}

export function deleteDependency(db: Db, dependency: Dependency): void {
  db.write(() => {
    db.orm.delete(dependencies).where(eq(dependencies.id, dependency.id)).run();
    db.touch(`dependency:${dependency.id}`);
    db.touch('queue');
  });
}

export function setShared(db: Db, dependency: Dependency, shared: boolean): Dependency {
  if (dependency.shared === shared) return dependency;
  return db.write(() => {
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
  return moveDependency(db, id, 'upload', { ...archive, attempts: 0, cancelRequested: false });
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

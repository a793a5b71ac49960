// Writes which dependencies a dependency relates to, and which of them its last successful compile used. dependency-use.ts
// reads both. The caller has begun a transaction.

import { and, eq, isNull } from 'drizzle-orm';
import type { Db } from './database/db.ts';
import { dependencies, relatedDependencies } from './database/dependency-schema.ts';

/** Those that the last successful compile used, or a running one uses, stay as removed: its artifact needs them. */
export function replaceRelated(db: Db, dependencyId: bigint, related: readonly bigint[]): void {
  const own = eq(relatedDependencies.dependencyId, dependencyId);
  db.orm.update(relatedDependencies).set({ removed: true }).where(own).run();
  for (const [position, relatedId] of related.entries())
    db.orm
      .insert(relatedDependencies)
      .values({ dependencyId, relatedId, position })
      .onConflictDoUpdate({
        target: [relatedDependencies.dependencyId, relatedDependencies.relatedId],
        set: { position, removed: false },
      })
      .run();
  const { compileState } =
    db.orm
      .select({ compileState: dependencies.compileState })
      .from(dependencies)
      .where(eq(dependencies.id, dependencyId))
      .get() ?? {};
  if (compileState !== 'compiling') deleteUnusedRelations(db, dependencyId);
}

/** Deletes the removed ones that no artifact needs. Called when a compile has ended. */
export function deleteUnusedRelations(db: Db, dependencyId: bigint): void {
  db.orm
    .delete(relatedDependencies)
    .where(
      and(
        eq(relatedDependencies.dependencyId, dependencyId),
        eq(relatedDependencies.removed, true),
        isNull(relatedDependencies.compiledPosition),
      ),
    )
    .run();
}

/**
 * Records the dependencies that a successful compile used. Their list may have changed since the compile started; one that
 * was deleted meanwhile is left out.
 */
export function recordCompiledRelated(db: Db, dependencyId: bigint, related: readonly bigint[]): void {
  db.orm
    .update(relatedDependencies)
    .set({ compiledPosition: null })
    .where(eq(relatedDependencies.dependencyId, dependencyId))
    .run();
  const exists = (id: bigint) =>
    db.orm.select({ id: dependencies.id }).from(dependencies).where(eq(dependencies.id, id)).get();
  for (const [compiledPosition, relatedId] of related.entries())
    if (exists(relatedId))
      db.orm
        .insert(relatedDependencies)
        .values({ dependencyId, relatedId, position: 0, compiledPosition, removed: true })
        .onConflictDoUpdate({
          target: [relatedDependencies.dependencyId, relatedDependencies.relatedId],
          set: { compiledPosition },
        })
        .run();
  deleteUnusedRelations(db, dependencyId);
}

// Artifacts, the results of compiles, each stored once under the hash of its content. The files are in DATA/artifacts;
// src/work/artifacts.ts makes the Docker volumes that suites mount.

import { and, eq, isNotNull, sql } from 'drizzle-orm';
import type { Db } from './database/db.ts';
import { artifacts, dependencies } from './database/dependency-schema.ts';
import { unfinished } from './database/unfinished.ts';

type Artifact = typeof artifacts.$inferSelect;

export function findArtifact(db: Db, hash: string): Artifact | undefined {
  return db.orm.select().from(artifacts).where(eq(artifacts.hash, hash)).get();
}

/** An earlier compile with the same recipe: of the dependency itself, of its owner, or of another account, in this order. */
export function findCompiledRecipe(
  db: Db,
  recipeHash: string,
  { id, ownerId }: { id: bigint; ownerId: bigint },
): { artifact: Artifact; id: bigint; ownerId: bigint; name: string } | undefined {
  return db.orm
    .select({
      artifact: artifacts,
      id: dependencies.id,
      ownerId: dependencies.ownerId,
      name: dependencies.name,
    })
    .from(dependencies)
    .innerJoin(artifacts, eq(artifacts.hash, dependencies.artifactHash))
    .where(and(eq(dependencies.recipeHash, recipeHash), isNotNull(dependencies.artifactHash)))
    .orderBy(
      sql`${dependencies.id} = ${id} DESC, ${dependencies.ownerId} = ${ownerId} DESC, ${artifacts.createdAt} DESC`,
    )
    .limit(1)
    .get();
}

/** If an artifact with the same content exists, it counts as created now. */
export function createArtifact(
  db: Db,
  artifact: Pick<Artifact, 'hash' | 'prefix' | 'sizeBytes' | 'files'>,
): void {
  db.write(() =>
    db.orm
      .insert(artifacts)
      .values({ ...artifact, createdAt: db.now() })
      .onConflictDoUpdate({ target: artifacts.hash, set: { createdAt: db.now(), files: artifact.files } })
      .run(),
  );
}

export function setArtifactVolume(db: Db, hash: string, volume: string): void {
  db.write(() => db.orm.update(artifacts).set({ volume }).where(eq(artifacts.hash, hash)).run());
}

/**
 * Deletes the artifacts that no dependency and no kept version refers to, and returns their hashes. One that was created
 * during a compile that has not ended may be its result: a server that was killed before it recorded that left it for the
 * next.
 */
export function deleteUnusedArtifacts(db: Db, isInUse: (hash: string) => boolean): string[] {
  const unused = db.orm
    .select({ hash: artifacts.hash })
    .from(artifacts)
    .where(
      sql`NOT EXISTS (SELECT 1 FROM dependencies WHERE artifact_hash = ${artifacts.hash})
        AND NOT EXISTS (SELECT 1 FROM kept_versions WHERE artifact_hash = ${artifacts.hash})
        AND NOT EXISTS (
          SELECT 1 FROM dependencies
          WHERE ${sql.raw(unfinished.compile)} AND compile_state = 'compiling' AND started_at <= ${artifacts.createdAt}
        )`,
    )
    .all()
    .flatMap(({ hash }) => (isInUse(hash) ? [] : [hash]));
  for (const hash of unused) db.write(() => db.orm.delete(artifacts).where(eq(artifacts.hash, hash)).run());
  return unused;
}

// Artifacts, the results of compiles, each stored once under the hash of its content. The files are in DATA/artifacts;
// src/work/artifacts.ts makes the Docker volumes that suites mount.

import { and, eq, isNotNull, sql } from 'drizzle-orm';
import type { Db } from './database/db.ts';
import { artifacts, dependencies } from './database/schema.ts';

type Artifact = typeof artifacts.$inferSelect;

export function findArtifact(db: Db, hash: string): Artifact | undefined {
  return db.orm.select().from(artifacts).where(eq(artifacts.hash, hash)).get();
}

/** The artifact of an earlier compile with the same recipe. */
export function findCompiledRecipe(db: Db, recipeHash: string): Artifact | undefined {
  return db.orm
    .select({ artifact: artifacts })
    .from(dependencies)
    .innerJoin(artifacts, eq(artifacts.hash, dependencies.artifactHash))
    .where(and(eq(dependencies.recipeHash, recipeHash), isNotNull(dependencies.artifactHash)))
    .limit(1)
    .get()?.artifact;
}

/** Does nothing if an artifact with the same content exists. */
export function createArtifact(db: Db, artifact: Pick<Artifact, 'hash' | 'prefix' | 'sizeBytes'>): void {
  db.write(() =>
    db.orm
      .insert(artifacts)
      .values({ ...artifact, createdAt: db.now() })
      .onConflictDoNothing()
      .run(),
  );
}

export function setArtifactVolume(db: Db, hash: string, volume: string): void {
  db.write(() => db.orm.update(artifacts).set({ volume }).where(eq(artifacts.hash, hash)).run());
}

/** Deletes the artifacts that no dependency refers to, and returns their hashes. */
export function deleteUnusedArtifacts(db: Db, isInUse: (hash: string) => boolean): string[] {
  const unused = db.orm
    .select({ hash: artifacts.hash })
    .from(artifacts)
    .where(sql`NOT EXISTS (SELECT 1 FROM dependencies WHERE artifact_hash = ${artifacts.hash})`)
    .all()
    .flatMap(({ hash }) => (isInUse(hash) ? [] : [hash]));
  for (const hash of unused) db.write(() => db.orm.delete(artifacts).where(eq(artifacts.hash, hash)).run());
  return unused;
}

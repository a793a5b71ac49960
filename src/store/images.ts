// Images by the names that suites and dependencies use, and which of them is the default. What Docker has is Docker's.

import { asc } from 'drizzle-orm';
import type { Db } from './db.ts';
import { findFact, writeFact } from './facts.ts';
import { images } from './schema.ts';

export type Image = typeof images.$inferSelect;

const DEFAULT = 'image';

export function listImages(db: Db): Image[] {
  return db.orm.select().from(images).orderBy(asc(images.name)).all();
}

/** A name that is there already stands for the new image from now on. */
export function recordImage(db: Db, name: string, imageId: string): void {
  const createdAt = db.now();
  db.write(() =>
    db.orm
      .insert(images)
      .values({ name, imageId, createdAt })
      .onConflictDoUpdate({ target: images.name, set: { imageId, createdAt } })
      .run(),
  );
}

/** The image that `assay image use` chose; without one the setting IMAGE counts. */
export function findDefaultImage(db: Db): string | undefined {
  return findFact(db, DEFAULT);
}

export function setDefaultImage(db: Db, name: string): void {
  writeFact(db, DEFAULT, name);
}

// The imported images, the default image, and which images suites and dependencies may use.

import { asc } from 'drizzle-orm';
import { HOST_IMAGE, taggedImage } from '../domain/names.ts';
import type { Db } from './database/db.ts';
import { images } from './database/schema.ts';
import { findStoredValue, storeValue } from './database/stored-values.ts';

type Image = typeof images.$inferSelect;

/** The settings IMAGE and ANY_IMAGE. */
export type ImageSettings = { image: string; anyImage: boolean };

const DEFAULT = 'image';

export function listImages(db: Db): Image[] {
  return db.orm.select().from(images).orderBy(asc(images.name)).all();
}

/** An existing name refers to the new image from now on. */
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

/** The image that `assay image use` chose. It overrides the setting IMAGE. */
export function findDefaultImage(db: Db): string | undefined {
  return findStoredValue(db, DEFAULT);
}

/** The image of suites and dependencies that name none. */
export const defaultImage = (db: Db, { image }: ImageSettings): string => findDefaultImage(db) ?? image;

/** The images that may be used without ANY_IMAGE. Other images in Docker belong to other workloads. */
export function usableImages(db: Db, settings: ImageSettings): string[] {
  const imported = listImages(db).map(({ name }) => name);
  return [...new Set([HOST_IMAGE, defaultImage(db, settings), ...imported])];
}

export function isImageUsable(db: Db, settings: ImageSettings, name: string): boolean {
  if (settings.anyImage) return true;
  return usableImages(db, settings).some(usable => taggedImage(usable) === taggedImage(name));
}

export function setDefaultImage(db: Db, name: string): void {
  storeValue(db, DEFAULT, name);
}

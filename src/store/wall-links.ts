// Links that show the wall screen of an account without a sign-in. Only a digest of each token is stored.

import { and, desc, eq } from 'drizzle-orm';
import { refusal } from '../domain/refusal.ts';
import { digestOf, newSecret } from '../domain/secret.ts';
import type { Account } from './accounts.ts';
import type { Db } from './database/db.ts';
import { accounts, wallLinks } from './database/schema.ts';

export type WallLink = Omit<typeof wallLinks.$inferSelect, 'tokenDigest'>;

const { id, accountId, name, createdAt, usedAt } = wallLinks;
const linkFields = { id, accountId, name, createdAt, usedAt };

const MAX_LINKS = 50;
/** A screen loads the wall again and again: the last use is stored this often. */
const USE_INTERVAL_MS = 60_000;

/** Returns the token, which cannot be read again. */
export function createWallLink(db: Db, owner: bigint, linkName: string): string {
  const token = newSecret('wall');
  db.write(() => {
    if (listWallLinks(db, owner).length >= MAX_LINKS) throw refusal('resource_temporary_unavailable');
    db.orm
      .insert(wallLinks)
      .values({
        id: db.newId(),
        accountId: owner,
        name: linkName,
        tokenDigest: digestOf(token),
        createdAt: db.now(),
      })
      .run();
  });
  return token;
}

export function listWallLinks(db: Db, owner: bigint): WallLink[] {
  return db.orm.select(linkFields).from(wallLinks).where(eq(accountId, owner)).orderBy(desc(id)).all();
}

/** The link with this token, and the account whose projects it shows. */
export function findWallLink(db: Db, token: string): { link: WallLink; account: Account } | undefined {
  return db.orm
    .select({ link: linkFields, account: accounts })
    .from(wallLinks)
    .innerJoin(accounts, eq(accounts.id, accountId))
    .where(eq(wallLinks.tokenDigest, digestOf(token)))
    .get();
}

export function recordWallLinkUse(db: Db, link: WallLink): void {
  if (link.usedAt !== null && db.now() - link.usedAt < USE_INTERVAL_MS) return;
  db.write(() => db.orm.update(wallLinks).set({ usedAt: db.now() }).where(eq(id, link.id)).run());
}

/** The link stops working at once, also on screens that show it. */
export function deleteWallLink(db: Db, owner: bigint, linkId: bigint): WallLink | undefined {
  return db.write(() => {
    db.touch(`account:${owner}`);
    return db.orm
      .delete(wallLinks)
      .where(and(eq(id, linkId), eq(accountId, owner)))
      .returning(linkFields)
      .get();
  });
}

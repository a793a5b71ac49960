// Accounts, their API keys and passwords, sign-in links and sessions.

import { and, desc, eq, gt, isNull, lte, ne, or, type SQL, sql } from 'drizzle-orm';
import type { AccountKind, Standing } from '../domain/access.ts';
import { digestOf, newSecret, sameDigest } from '../domain/secret.ts';
import type { Theme } from '../domain/theme.ts';
import { type Db, prepared } from './database/db.ts';
import { accounts, authorizationCodes, sessions, signInLinks, tokens } from './database/schema.ts';

export type Account = typeof accounts.$inferSelect;

const LINK_LIFETIME_MS = 7 * 24 * 3600_000;
const SESSION_LIFETIME_MS = 30 * 24 * 3600_000;
const SESSION_USE_INTERVAL_MS = 5 * 60_000;
const MAX_USER_AGENT_LENGTH = 300;

const byEmail = prepared(db =>
  db.orm
    .select()
    .from(accounts)
    .where(eq(accounts.email, sql.placeholder('email')))
    .prepare(),
);
const byId = prepared(db =>
  db.orm
    .select()
    .from(accounts)
    .where(eq(accounts.id, sql.placeholder('id')))
    .prepare(),
);

/** Email addresses are compared without regard to case. */
export function findAccountByEmail(db: Db, email: string): Account | undefined {
  return byEmail(db).get({ email: email.toLowerCase() });
}

export function findAccount(db: Db, id: bigint): Account | undefined {
  return byId(db).get({ id });
}

export function listAccounts(db: Db): Account[] {
  return db.orm.select().from(accounts).orderBy(accounts.id).all();
}

export function hasAccounts(db: Db): boolean {
  return db.orm.select({ id: accounts.id }).from(accounts).limit(1).get() !== undefined;
}

/** Whether an administrator exists who is not suspended. */
export function hasAdministrator(db: Db): boolean {
  return (
    db.orm
      .select({ id: accounts.id })
      .from(accounts)
      .where(and(eq(accounts.admin, true), ne(accounts.standing, 'suspended')))
      .limit(1)
      .get() !== undefined
  );
}

export function createAccount(
  db: Db,
  account: {
    email: string;
    kind: AccountKind;
    admin: boolean;
    passwordHash: string | null;
    apiKey: string | null;
    invitedById?: bigint;
  },
): Account {
  return db.write(() =>
    db.orm
      .insert(accounts)
      .values({
        id: db.newId(),
        email: account.email.toLowerCase(),
        kind: account.kind,
        admin: account.admin,
        standing: 'active',
        passwordHash: account.passwordHash,
        apiKeyDigest: account.apiKey === null ? null : digestOf(account.apiKey),
        createdAt: db.now(),
        invitedById: account.invitedById ?? null,
      })
      .returning()
      .get(),
  );
}

export function updateAccount(
  db: Db,
  id: bigint,
  changes: Partial<{
    kind: AccountKind;
    admin: boolean;
    standing: Standing;
    trialEndsAt: number | null;
    apiKeyDigest: Buffer;
    theme: Theme;
    timeZone: string;
  }>,
): void {
  db.write(() => {
    db.orm.update(accounts).set(changes).where(eq(accounts.id, id)).run();
    db.touch(`account:${id}`);
  });
}

/** The old key stops working. */
export function replaceApiKey(db: Db, id: bigint): string {
  const key = newSecret('assay');
  updateAccount(db, id, { apiKeyDigest: digestOf(key) });
  return key;
}

const placeholderDigest = digestOf('nobody');

/** Compares a digest even if there is no account, so that timing does not reveal which accounts exist. */
export function matchesApiKey(account: Account | undefined, key: string): account is Account {
  const same = sameDigest(digestOf(key), account?.apiKeyDigest ?? placeholderDigest);
  return same && account?.apiKeyDigest != null;
}

/** A one-time link for an account without a password. Earlier links of the account stop working. */
export function createSignInLink(db: Db, accountId: bigint): string {
  const token = newSecret('link');
  db.write(() => {
    const now = db.now();
    db.orm
      .delete(signInLinks)
      .where(or(eq(signInLinks.accountId, accountId), lte(signInLinks.expiresAt, now)))
      .run();
    db.orm
      .insert(signInLinks)
      .values({ tokenDigest: digestOf(token), accountId, expiresAt: now + LINK_LIFETIME_MS })
      .run();
  });
  return token;
}

/** A link works only while the account has no password, so that no link can replace one. */
export function findSignInLink(db: Db, token: string): Account | undefined {
  return db.orm
    .select()
    .from(signInLinks)
    .innerJoin(accounts, eq(accounts.id, signInLinks.accountId))
    .where(
      and(
        eq(signInLinks.tokenDigest, digestOf(token)),
        gt(signInLinks.expiresAt, db.now()),
        isNull(accounts.passwordHash),
      ),
    )
    .get()?.accounts;
}

/** Consumes the link. Of two concurrent callers only one gets the account. */
export function claimSignInLink(db: Db, token: string): Account | undefined {
  return db.write(() => {
    const account = findSignInLink(db, token);
    db.orm
      .delete(signInLinks)
      .where(eq(signInLinks.tokenDigest, digestOf(token)))
      .run();
    return account;
  });
}

/** What a browser reports when it signs in. */
export type SessionOrigin = { userAgent: string; address: string };

export function createSession(
  db: Db,
  accountId: bigint,
  origin: SessionOrigin = { userAgent: '', address: '' },
): string {
  const token = newSecret('session');
  db.write(() => {
    const now = db.now();
    db.orm.delete(sessions).where(lte(sessions.expiresAt, now)).run();
    db.orm
      .insert(sessions)
      .values({
        tokenDigest: digestOf(token),
        accountId,
        createdAt: now,
        expiresAt: now + SESSION_LIFETIME_MS,
        usedAt: now,
        userAgent: origin.userAgent.slice(0, MAX_USER_AGENT_LENGTH),
        address: origin.address,
      })
      .run();
  });
  return token;
}

const byToken = prepared(db =>
  db.orm
    .select({ account: accounts, usedAt: sessions.usedAt })
    .from(sessions)
    .innerJoin(accounts, eq(accounts.id, sessions.accountId))
    .where(
      and(
        eq(sessions.tokenDigest, sql.placeholder('digest')),
        gt(sessions.expiresAt, sql.placeholder('now')),
      ),
    )
    .prepare(),
);

/** Records the use of the session, at most once in five minutes. */
export function findSession(db: Db, token: string): Account | undefined {
  const [digest, now] = [digestOf(token), db.now()];
  const found = byToken(db).get({ digest, now });
  if (found && now - found.usedAt > SESSION_USE_INTERVAL_MS) recordSessionUse(db, digest);
  return found?.account;
}

function recordSessionUse(db: Db, digest: Buffer): void {
  try {
    db.write(() =>
      db.orm.update(sessions).set({ usedAt: db.now() }).where(eq(sessions.tokenDigest, digest)).run(),
    );
  } catch {
    // If the disk is full, pages must still be shown.
  }
}

/** Names a session on pages. It reveals nothing about the token. */
const sessionKey = sql<string>`lower(hex(substr(${sessions.tokenDigest}, 1, 12)))`;

export type SessionEntry = SessionOrigin & {
  key: string;
  createdAt: number;
  usedAt: number;
  isCurrent: boolean;
};

/** The sessions of an account: the one with `currentToken` first, then the last used. */
export function listSessions(db: Db, accountId: bigint, currentToken: string, limit: number): SessionEntry[] {
  const isCurrent = eq(sessions.tokenDigest, digestOf(currentToken));
  return db.orm
    .select({
      key: sessionKey,
      userAgent: sessions.userAgent,
      address: sessions.address,
      createdAt: sessions.createdAt,
      usedAt: sessions.usedAt,
      isCurrent: sql`${isCurrent}`.mapWith(Boolean),
    })
    .from(sessions)
    .where(and(eq(sessions.accountId, accountId), gt(sessions.expiresAt, db.now())))
    .orderBy(desc(isCurrent), desc(sessions.usedAt), desc(sessions.createdAt))
    .limit(limit)
    .all();
}

/** Ends one session of the account. False if it has no such session. */
export function deleteSessionByKey(db: Db, accountId: bigint, key: string): boolean {
  return deleteSessions(db, and(eq(sessions.accountId, accountId), eq(sessionKey, key))) > 0;
}

export function deleteOtherSessions(db: Db, accountId: bigint, currentToken: string): number {
  const isOther = ne(sessions.tokenDigest, digestOf(currentToken));
  return deleteSessions(db, and(eq(sessions.accountId, accountId), isOther));
}

export function deleteSession(db: Db, token: string): void {
  deleteSessions(db, eq(sessions.tokenDigest, digestOf(token)));
}

/** Open streams of the sessions end at once. */
function deleteSessions(db: Db, which: SQL | undefined): number {
  return db.write(() => {
    const ended = db.orm.delete(sessions).where(which).returning({ accountId: sessions.accountId }).all();
    for (const accountId of new Set(ended.map(one => one.accountId))) db.touch(`account:${accountId}`);
    return ended.length;
  });
}

/** Sets the password and revokes everything else that signs in to the account: links, sessions, OAuth tokens and codes. */
export function setPassword(db: Db, accountId: bigint, passwordHash: string): void {
  db.write(() => {
    db.orm.update(accounts).set({ passwordHash }).where(eq(accounts.id, accountId)).run();
    closeInvitation(db, accountId);
    db.orm.delete(sessions).where(eq(sessions.accountId, accountId)).run();
    db.orm.delete(authorizationCodes).where(eq(authorizationCodes.accountId, accountId)).run();
    db.orm.delete(tokens).where(eq(tokens.accountId, accountId)).run();
    db.touch('tokens');
    db.touch(`account:${accountId}`);
  });
}

/** The account's sign-in links stop working, and the account that invited it can create no new ones. */
export function closeInvitation(db: Db, accountId: bigint): void {
  db.write(() => {
    db.orm.delete(signInLinks).where(eq(signInLinks.accountId, accountId)).run();
    db.orm.update(accounts).set({ invitedById: null }).where(eq(accounts.id, accountId)).run();
  });
}

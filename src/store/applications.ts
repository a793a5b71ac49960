// Registered OAuth applications, their authorization codes and their tokens.

import { randomBytes } from 'node:crypto';
import { and, desc, eq, lte, sql } from 'drizzle-orm';
import { digestOf, newSecret } from '../domain/secret.ts';
import type { Account } from './accounts.ts';
import { type Db, prepared } from './database/db.ts';
import { findIn } from './database/page.ts';
import { accounts, applications, authorizationCodes, tokens } from './database/schema.ts';

export type Application = typeof applications.$inferSelect;
type Token = typeof tokens.$inferSelect;
type AuthorizationCode = typeof authorizationCodes.$inferSelect;

/** A token's last use is recorded at most this often, so that reads rarely become writes. */
const LAST_USE_INTERVAL_MS = 60_000;

export function createApplication(
  db: Db,
  application: { ownerId: bigint; name: string; redirectUri: string; isPublic: boolean },
): { application: Application; clientSecret: string | undefined } {
  const clientSecret = application.isPublic ? undefined : newSecret('secret');
  const row = db.write(() =>
    db.orm
      .insert(applications)
      .values({
        id: db.newId(),
        ownerId: application.ownerId,
        name: application.name,
        clientId: randomBytes(16).toString('hex'),
        clientSecretDigest: clientSecret === undefined ? null : digestOf(clientSecret),
        redirectUri: application.redirectUri,
        createdAt: db.now(),
      })
      .returning()
      .get(),
  );
  return { application: row, clientSecret };
}

export function findApplicationByClientId(db: Db, clientId: string): Application | undefined {
  return db.orm.select().from(applications).where(eq(applications.clientId, clientId)).get();
}

export function listApplications(db: Db, ownerId: bigint): Application[] {
  return db.orm
    .select()
    .from(applications)
    .where(eq(applications.ownerId, ownerId))
    .orderBy(desc(applications.id))
    .all();
}

export const findOwnApplication = findIn(applications, applications.ownerId);

export function replaceClientSecret(db: Db, application: Application): string {
  const secret = newSecret('secret');
  db.write(() =>
    db.orm
      .update(applications)
      .set({ clientSecretDigest: digestOf(secret) })
      .where(eq(applications.id, application.id))
      .run(),
  );
  return secret;
}

/** Deletes its tokens and codes too. */
export function deleteApplication(db: Db, application: Application): void {
  db.write(() => {
    db.orm.delete(applications).where(eq(applications.id, application.id)).run();
    db.touch('tokens');
  });
}

export function createToken(
  db: Db,
  grant: { accountId: bigint; applicationId: bigint; scopes: readonly string[] },
): { id: bigint; token: string } {
  const token = newSecret('token');
  return db.write(() => {
    const id = db.newId();
    db.orm
      .insert(tokens)
      .values({
        id,
        tokenDigest: digestOf(token),
        accountId: grant.accountId,
        applicationId: grant.applicationId,
        scopes: grant.scopes.join(' '),
        createdAt: db.now(),
      })
      .run();
    return { id, token };
  });
}

const byToken = prepared(db =>
  db.orm
    .select({ token: tokens, account: accounts })
    .from(tokens)
    .innerJoin(accounts, eq(accounts.id, tokens.accountId))
    .where(eq(tokens.tokenDigest, sql.placeholder('digest')))
    .prepare(),
);

/** The lookup uses the hash, so no comparison of the secret itself can leak anything. */
export function findToken(db: Db, secret: string): { token: Token; account: Account } | undefined {
  const found = byToken(db).get({ digest: digestOf(secret) });
  if (found && db.now() - (found.token.lastUsedAt ?? 0) > LAST_USE_INTERVAL_MS) recordUse(db, found.token);
  return found;
}

function recordUse(db: Db, token: Token): void {
  try {
    db.write(() => db.orm.update(tokens).set({ lastUsedAt: db.now() }).where(eq(tokens.id, token.id)).run());
  } catch {
    // If the disk is full, reads must still work.
  }
}

export function listTokens(db: Db, accountId: bigint): { token: Token; application: Application }[] {
  return db.orm
    .select({ token: tokens, application: applications })
    .from(tokens)
    .innerJoin(applications, eq(applications.id, tokens.applicationId))
    .where(eq(tokens.accountId, accountId))
    .orderBy(desc(tokens.id))
    .all();
}

export function deleteToken(db: Db, accountId: bigint, id: bigint): boolean {
  return db.write(() => {
    db.touch('tokens');
    return (
      db.orm
        .delete(tokens)
        .where(and(eq(tokens.id, id), eq(tokens.accountId, accountId)))
        .run().changes > 0
    );
  });
}

export function createAuthorizationCode(
  db: Db,
  grant: {
    applicationId: bigint;
    accountId: bigint;
    redirectUri: string;
    scopes: readonly string[];
    codeChallenge: string | null;
    lifetimeMs: number;
  },
): string {
  const code = newSecret('code');
  db.write(() => {
    const now = db.now();
    // Expired codes are kept for another day: a code that is used twice must still revoke its token.
    db.orm
      .delete(authorizationCodes)
      .where(lte(authorizationCodes.expiresAt, now - 24 * 3600_000))
      .run();
    db.orm
      .insert(authorizationCodes)
      .values({
        codeDigest: digestOf(code),
        applicationId: grant.applicationId,
        accountId: grant.accountId,
        redirectUri: grant.redirectUri,
        scopes: grant.scopes.join(' '),
        codeChallenge: grant.codeChallenge,
        expiresAt: now + grant.lifetimeMs,
      })
      .run();
  });
  return code;
}

export function findAuthorizationCode(db: Db, code: string): AuthorizationCode | undefined {
  return db.orm
    .select()
    .from(authorizationCodes)
    .where(eq(authorizationCodes.codeDigest, digestOf(code)))
    .get();
}

/** Exchanges the code for a token, once. */
export function redeemAuthorizationCode(db: Db, code: AuthorizationCode): string {
  return db.write(() => {
    const { id, token } = createToken(db, {
      accountId: code.accountId,
      applicationId: code.applicationId,
      scopes: code.scopes.split(' '),
    });
    db.orm
      .update(authorizationCodes)
      .set({ usedAt: db.now(), tokenId: id })
      .where(eq(authorizationCodes.codeDigest, code.codeDigest))
      .run();
    return token;
  });
}

/** A code that is used twice has been stolen, so its token is revoked. */
export function revokeTokenOfCode(db: Db, code: AuthorizationCode): void {
  if (code.tokenId !== null) deleteToken(db, code.accountId, code.tokenId);
}

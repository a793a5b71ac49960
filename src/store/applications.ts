// Registered OAuth applications, the codes they exchange and the tokens they were given.

import { randomBytes } from 'node:crypto';
import { and, desc, eq, lte, sql } from 'drizzle-orm';
import { digestOf, newSecret } from '../domain/secret.ts';
import type { Account } from './accounts.ts';
import { type Db, prepared } from './database/db.ts';
import { accounts, applications, authorizationCodes, tokens } from './database/schema.ts';

export type Application = typeof applications.$inferSelect;
export type Token = typeof tokens.$inferSelect;
export type AuthorizationCode = typeof authorizationCodes.$inferSelect;

/** How often a token's last use is written down: reading must not become writing. */
const LAST_USE_STEP_MS = 60_000;

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

export function findOwnApplication(db: Db, ownerId: bigint, id: bigint): Application | undefined {
  return db.orm
    .select()
    .from(applications)
    .where(and(eq(applications.id, id), eq(applications.ownerId, ownerId)))
    .get();
}

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

/** Its tokens and codes go with it. */
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

/** Found by its hash, so no comparison of the secret itself can leak anything. */
export function findToken(db: Db, secret: string): { token: Token; account: Account } | undefined {
  const found = byToken(db).get({ digest: digestOf(secret) });
  if (found && db.now() - (found.token.lastUsedAt ?? 0) > LAST_USE_STEP_MS) noteUse(db, found.token);
  return found;
}

function noteUse(db: Db, token: Token): void {
  try {
    db.write(() => db.orm.update(tokens).set({ lastUsedAt: db.now() }).where(eq(tokens.id, token.id)).run());
  } catch {
    // A full disk: whoever only reads goes on reading.
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
    // Used ones are kept a day longer: a code that comes back then still revokes its token.
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

/** A code that comes back was stolen by one of the two who used it: the token it gave is revoked. */
export function revokeTokenOfCode(db: Db, code: AuthorizationCode): void {
  if (code.tokenId !== null) deleteToken(db, code.accountId, code.tokenId);
}

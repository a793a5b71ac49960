// Creates, changes and resets accounts for an administrator, both on pages and on the command line.
// domain/registration validates the input.

import { Refusal, refusal } from '../domain/refusal.ts';
import type { AccountChange, NewAccount } from '../domain/registration.ts';
import { digestOf, hashPassword, newReadableSecret, newSecret } from '../domain/secret.ts';
import {
  type Account,
  closeInvitation,
  createAccount,
  findAccountByEmail,
  setPassword,
  updateAccount,
} from './accounts.ts';
import type { Db } from './database/db.ts';

/** Shown once. Only their hashes are stored. */
export type Secrets = { password: string; apiKey: string };

export async function registerAccount(db: Db, input: NewAccount): Promise<Secrets & { account: Account }> {
  const { passwordHash, ...secrets } = await makeSecrets();
  return db.write(() => {
    if (findAccountByEmail(db, input.email)) throw refusal('already_exists', 'email');
    return { account: createAccount(db, { ...input, passwordHash, apiKey: secrets.apiKey }), ...secrets };
  });
}

/** `byAccountId` is the signed-in account that makes the change; undefined on the command line. */
export function changeAccount(db: Db, account: Account, change: AccountChange, byAccountId?: bigint): void {
  // Administrators must not lock themselves out.
  if (account.id === byAccountId) {
    const standing = change.standing !== undefined && change.standing !== 'active';
    const admin = change.admin === false;
    if (standing || admin)
      throw new Refusal(403, {
        ...(standing && { standing: ['is_reserved'] }),
        ...(admin && { admin: ['is_reserved'] }),
      });
  }
  const isPromoted =
    (change.admin === true && !account.admin) || (change.kind === 'user' && account.kind !== 'user');
  db.write(() => {
    updateAccount(db, account.id, change);
    // The inviter could otherwise sign in to the promoted account.
    if (isPromoted) closeInvitation(db, account.id);
  });
}

/** Replaces password and API key, and ends links, sessions and OAuth tokens. */
export async function resetAccount(db: Db, account: Account): Promise<Secrets> {
  const { passwordHash, ...secrets } = await makeSecrets();
  db.write(() => {
    setPassword(db, account.id, passwordHash);
    updateAccount(db, account.id, { apiKeyDigest: digestOf(secrets.apiKey) });
  });
  return secrets;
}

async function makeSecrets(): Promise<Secrets & { passwordHash: string }> {
  const password = newReadableSecret(4, 5);
  return { password, apiKey: newSecret('assay'), passwordHash: await hashPassword(password) };
}

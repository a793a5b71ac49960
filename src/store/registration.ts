// Accounts as an administrator makes and changes them, on a page or on the command line: the one way for both.
// What may be asked for is judged by domain/registration.

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

/** Shown once, and kept as hashes. */
export type Secrets = { password: string; apiKey: string };

export async function registerAccount(db: Db, asked: NewAccount): Promise<Secrets & { account: Account }> {
  const { passwordHash, ...secrets } = await makeSecrets();
  return db.write(() => {
    if (findAccountByEmail(db, asked.email)) throw refusal('already_exists', 'email');
    return { account: createAccount(db, { ...asked, passwordHash, apiKey: secrets.apiKey }), ...secrets };
  });
}

/** `byAccountId`: who asks, where it is somebody who has signed in. */
export function changeAccount(db: Db, account: Account, change: AccountChange, byAccountId?: bigint): void {
  // Whoever locked themselves out would need the command line to come back.
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
    // Whoever invited a collaborator must not become what an administrator made of it.
    if (isPromoted) closeInvitation(db, account.id);
  });
}

/** The old ones end, and so do links, sessions and OAuth tokens. */
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

// The credentials with which the nodes of a swarm pull images from Assay.

import { newSecret } from '../domain/secret.ts';
import type { Db } from './database/db.ts';
import { findStoredValue, storeValue } from './database/stored-values.ts';
import { SealedValueError } from './database/vault.ts';

export const NODE_USER = 'assay-node';

/** The name in the table `facts`, which is also the column that the vault seals the password for. */
const NODE_PASSWORD = 'node_password';
const CELL = { table: 'facts', column: NODE_PASSWORD, row: 0n };

/** Creates the password at first use. */
export function nodePasswordOf(db: Db): string {
  return db.write(() => {
    const stored = findStoredValue(db, NODE_PASSWORD);
    return (stored && openPassword(db, stored)) ?? createPassword(db);
  });
}

/** What Docker sends with a service, so that its nodes can pull. */
export const registryAuthOf = (db: Db, registry: string) => ({
  username: NODE_USER,
  password: nodePasswordOf(db),
  serveraddress: registry,
});

function createPassword(db: Db): string {
  const password = newSecret(NODE_USER);
  storeValue(db, NODE_PASSWORD, db.vault.seal(password, CELL).toString('base64'));
  return password;
}

/** Undefined if it was sealed with another key: every service brings the new one. */
function openPassword(db: Db, stored: string): string | undefined {
  try {
    return db.vault.open(Buffer.from(stored, 'base64'), CELL);
  } catch (error) {
    if (error instanceof SealedValueError) return undefined;
    throw error;
  }
}

// The identity of this appliance, an Ed25519 key that signs what it exports, and the appliances whose exports are trusted.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  sign,
  verify,
} from 'node:crypto';
import { hostname } from 'node:os';
import { asc, eq } from 'drizzle-orm';
import { DataError } from './data/data.ts';
import type { Db } from './database/db.ts';
import { trustedAppliances } from './database/dependency-schema.ts';
import { findStoredValue, hostOf, storeValue } from './database/stored-values.ts';
import { SealedValueError } from './database/vault.ts';

export type TrustedAppliance = typeof trustedAppliances.$inferSelect;

export type Identity = {
  name: string;
  /** SPKI in DER, as base64. */
  publicKey: string;
  fingerprint: string;
  sign(message: Buffer): Buffer;
};

/** The name in the table `facts`, which is also the column that the vault seals the private key for. */
export const APPLIANCE_KEY = 'appliance_key';
export const APPLIANCE_KEY_CELL = { table: 'facts', column: APPLIANCE_KEY, row: 0n };

/** Creates the key at first use. It stays the same when a backup is restored. */
export function identityOf(db: Db): Identity {
  const key = createPrivateKey(
    db.write(() => {
      const stored = findStoredValue(db, APPLIANCE_KEY);
      return stored === undefined ? createKey(db) : openKey(db, stored);
    }),
  );
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' }).toString('base64');
  return {
    name: hostOf(db) || hostname(),
    publicKey,
    fingerprint: fingerprintOf(publicKey),
    sign: message => sign(null, message, key),
  };
}

/** Whether the key of this appliance has the fingerprint. Creates no key. */
export const isOwn = (db: Db, fingerprint: string) =>
  findStoredValue(db, APPLIANCE_KEY) !== undefined && identityOf(db).fingerprint === fingerprint;

function createKey(db: Db): string {
  const { privateKey } = generateKeyPairSync('ed25519');
  const text = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  storeValue(db, APPLIANCE_KEY, db.vault.seal(text, APPLIANCE_KEY_CELL).toString('base64'));
  return text;
}

function openKey(db: Db, stored: string): string {
  try {
    return db.vault.open(Buffer.from(stored, 'base64'), APPLIANCE_KEY_CELL);
  } catch (error) {
    if (!(error instanceof SealedValueError)) throw error;
    throw new DataError(
      "this appliance's signing key cannot be decrypted with the master key: restore the database and the master key from the same backup",
    );
  }
}

/** SHA-256 of the public key in hex. */
export const fingerprintOf = (publicKey: string) =>
  createHash('sha256').update(Buffer.from(publicKey, 'base64')).digest('hex');

/** False also if the key is no Ed25519 key. */
export function isSignedBy(publicKey: string, message: Buffer, signature: Buffer): boolean {
  try {
    const key = createPublicKey({ key: Buffer.from(publicKey, 'base64'), type: 'spki', format: 'der' });
    return key.asymmetricKeyType === 'ed25519' && verify(null, message, key, signature);
  } catch {
    return false;
  }
}

export function listTrustedAppliances(db: Db): TrustedAppliance[] {
  return db.orm.select().from(trustedAppliances).orderBy(asc(trustedAppliances.createdAt)).all();
}

export function isTrusted(db: Db, fingerprint: string): boolean {
  return listTrustedAppliances(db).some(one => one.fingerprint === fingerprint);
}

/** A trusted appliance that has a new name keeps its place. */
export function trustAppliance(db: Db, appliance: { fingerprint: string; name: string }): void {
  db.write(() =>
    db.orm
      .insert(trustedAppliances)
      .values({ ...appliance, createdAt: db.now() })
      .onConflictDoUpdate({ target: trustedAppliances.fingerprint, set: { name: appliance.name } })
      .run(),
  );
}

/** False if it was not trusted. */
export function distrustAppliance(db: Db, fingerprint: string): boolean {
  return db.write(
    () =>
      db.orm.delete(trustedAppliances).where(eq(trustedAppliances.fingerprint, fingerprint)).returning().all()
        .length > 0,
  );
}

// The token in addresses under /files. It stands for one account that looks at the artifacts of one build, for an hour.
// It is part of the path so that relative links of a report keep it, and no cookie is needed there.

import { timingSafeEqual } from 'node:crypto';
import type { Db } from '../../store/database/db.ts';

const LIFETIME_MS = 3600_000;
const PURPOSE = 'file token';
const PAYLOAD_BYTES = 24;
const MAC_BYTES = 32;

export type FileToken = { buildId: bigint; accountId: bigint; isExpired: boolean };

export function createFileToken(db: Db, of: { buildId: bigint; accountId: bigint }): string {
  const payload = Buffer.alloc(PAYLOAD_BYTES);
  payload.writeBigInt64BE(of.buildId, 0);
  payload.writeBigInt64BE(of.accountId, 8);
  payload.writeBigInt64BE(BigInt(db.now() + LIFETIME_MS), 16);
  return Buffer.concat([payload, db.vault.mac(PURPOSE, payload)]).toString('base64url');
}

/** Undefined if this server did not make it. */
export function readFileToken(db: Db, token: string): FileToken | undefined {
  const bytes = Buffer.from(token, 'base64url');
  // The decoder ignores what does not belong to the alphabet: only one spelling of a token is valid.
  if (bytes.length !== PAYLOAD_BYTES + MAC_BYTES || bytes.toString('base64url') !== token) return undefined;
  const payload = bytes.subarray(0, PAYLOAD_BYTES);
  if (!timingSafeEqual(bytes.subarray(PAYLOAD_BYTES), db.vault.mac(PURPOSE, payload))) return undefined;
  return {
    buildId: payload.readBigInt64BE(0),
    accountId: payload.readBigInt64BE(8),
    isExpired: Number(payload.readBigInt64BE(16)) <= db.now(),
  };
}

// Encrypts database values with AES-256-CBC and a MAC over ciphertext and cell, so that a changed or moved value is detected.

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';

export type Cell = { table: string; column: string; row: bigint };

/** The value was changed, moved or sealed with another key. Only its record is affected. */
export class SealedValueError extends Error {}

export type Vault = {
  seal(plain: string, cell: Cell): Buffer;
  /** Throws SealedValueError if the value was changed, moved or sealed with another key. */
  open(sealed: Buffer, cell: Cell): string;
  /** Shows whether two texts of the same scope are equal, and nothing else to anybody without the master key. */
  fingerprint(text: string, scope: string): string;
  /** Authenticates a message, with a key of its own for each purpose. */
  mac(purpose: string, message: Buffer): Buffer;
};

const VERSION = 1;
const IV_BYTES = 16;
const MAC_BYTES = 32;
const FINGERPRINT_DIGITS = 32;

export function createVault(masterKey: Buffer): Vault {
  if (masterKey.length !== 32) throw new Error('the master key must have 32 bytes');
  const derive = (purpose: string) => Buffer.from(hkdfSync('sha256', masterKey, '', `assay ${purpose}`, 32));
  const cipherKey = derive('cipher');
  const macKey = derive('mac');
  const fingerprintKey = derive('fingerprint');

  const macOf = (body: Buffer, cell: Cell) =>
    createHmac('sha256', macKey).update(`${cell.table}\0${cell.column}\0${cell.row}\0`).update(body).digest();

  return {
    seal(plain, cell) {
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv('aes-256-cbc', cipherKey, iv);
      const body = Buffer.concat([Buffer.of(VERSION), iv, cipher.update(plain, 'utf8'), cipher.final()]);
      return Buffer.concat([body, macOf(body, cell)]);
    },
    open(sealed, cell) {
      const body = sealed.subarray(0, -MAC_BYTES);
      const mac = sealed.subarray(-MAC_BYTES);
      const isComplete = body[0] === VERSION && body.length > IV_BYTES && mac.length === MAC_BYTES;
      if (!isComplete || !timingSafeEqual(mac, macOf(body, cell)))
        throw new SealedValueError(
          `the sealed value in ${cell.table}.${cell.column} of ${cell.row} was changed or moved`,
        );
      const decipher = createDecipheriv('aes-256-cbc', cipherKey, body.subarray(1, 1 + IV_BYTES));
      return decipher.update(body.subarray(1 + IV_BYTES), undefined, 'utf8') + decipher.final('utf8');
    },
    fingerprint(text, scope) {
      const key = createHmac('sha256', fingerprintKey).update(scope).digest();
      return createHmac('sha256', key).update(text).digest('hex').slice(0, FINGERPRINT_DIGITS);
    },
    mac: (purpose, message) =>
      createHmac('sha256', derive(`mac of ${purpose}`))
        .update(message)
        .digest(),
  };
}

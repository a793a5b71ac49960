// Secrets of which only a hash is stored: API keys, tokens, codes, session ids and passwords.

import { argon2, hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

/** 256 random bits. The prefix lets people and secret scanners recognize it. */
export function newSecret(prefix: string): string {
  return `${prefix}_${randomBytes(32).toString('base64url')}`;
}

/** A secret of 256 random bits needs no slow hash. */
export function digestOf(secret: string): Buffer {
  // Hashing to a string is several times faster than to a Buffer, and every request needs a hash.
  return Buffer.from(hash('sha256', secret, 'latin1'), 'latin1');
}

export function sameDigest(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

const alphabet = 'abcdefghjkmnpqrstuvwxyz23456789';

/** Groups of characters that are hard to confuse, for passwords and codes that people type. */
export function newReadableSecret(groups: number, groupLength = 4): string {
  const bytes = randomBytes(groups * groupLength * 2);
  const letters: string[] = [];
  for (let at = 0; letters.length < groups * groupLength; at += 2)
    letters.push(alphabet[bytes.readUInt16BE(at) % alphabet.length] as string);
  return Array.from({ length: groups }, (_, group) =>
    letters.slice(group * groupLength, (group + 1) * groupLength).join(''),
  ).join('-');
}

const argon2Async = promisify(argon2);
/** Fewer than the four threads of Node's pool, so that hashing never blocks file reads. */
const HASHES_AT_ONCE = 2;
let hashing = 0;
const waitingToHash: (() => void)[] = [];

/** Runs at most HASHES_AT_ONCE hashes at a time; further calls wait in order. */
async function computeTag(options: Parameters<typeof argon2Async>[1]): Promise<Buffer> {
  if (hashing < HASHES_AT_ONCE) hashing += 1;
  else await new Promise<void>(resolve => waitingToHash.push(resolve));
  try {
    return await argon2Async('argon2id', options);
  } finally {
    const next = waitingToHash.shift();
    // Hand the slot to the next in line.
    if (next) next();
    else hashing -= 1;
  }
}

const COST = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 };

/** Stores the Argon2id parameters with the hash, so that they can be raised later. */
export async function hashPassword(password: string): Promise<string> {
  const nonce = randomBytes(16);
  const tag = await computeTag({ message: Buffer.from(password), nonce, ...COST });
  return [
    'argon2id',
    COST.memory,
    COST.passes,
    COST.parallelism,
    nonce.toString('base64url'),
    tag.toString('base64url'),
  ].join('$');
}

export async function verifyPassword(password: string, hash: string): Promise<boolean> {
  const [algorithm, memory, passes, parallelism, nonce, tag] = hash.split('$');
  if (algorithm !== 'argon2id' || nonce === undefined || tag === undefined) return false;
  const expected = Buffer.from(tag, 'base64url');
  const actual = await computeTag({
    message: Buffer.from(password),
    nonce: Buffer.from(nonce, 'base64url'),
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    tagLength: expected.length,
  });
  return sameDigest(actual, expected);
}

// Generates a project's SSH key pair in OpenSSH format with node:crypto, without starting ssh-keygen.

import { generateKeyPairSync, randomBytes } from 'node:crypto';

type SshKeyPair = { publicKey: string; privateKey: string };

const KEY_TYPE = 'ssh-ed25519';
const CIPHER_BLOCK_BYTES = 8;
const COMMENT_WORD_MAX_CHARACTERS = 100;

export function generateKeyPair(comment: string): SshKeyPair {
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  return formatKeyPair({
    seed: Buffer.from(jwk.d!, 'base64url'),
    point: Buffer.from(jwk.x!, 'base64url'),
    check: randomBytes(4),
    comment,
  });
}

/** Shows on the Git host which project of which Assay server a deploy key belongs to. */
export function keyComment(project: { id: bigint; name: string }, host: string): string {
  const name = plainWords(project.name) || `project-${project.id}`;
  return `assay-${name}@${plainWords(host) || 'localhost'}`;
}

/** One ASCII word that is safe in a line of an authorized_keys file. */
function plainWords(text: string): string {
  return text
    .normalize('NFKD')
    .replace(/\p{Mark}+/gu, '')
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, COMMENT_WORD_MAX_CHARACTERS);
}

/** The comment is not part of the key itself. */
export function withComment(publicKey: string, comment: string): string {
  return `${publicKey.split(' ', 2).join(' ')} ${comment}`;
}

type KeyMaterial = {
  seed: Buffer;
  point: Buffer;
  /** Written twice into the private section; OpenSSH compares the two to detect a wrong passphrase. */
  check: Buffer;
  comment: string;
};

export function formatKeyPair({ seed, point, check, comment }: KeyMaterial): SshKeyPair {
  // A line break would let a comment add a second line to an authorized_keys file.
  const note = comment.replace(/\p{Cc}+/gu, ' ').trim();
  const publicBlob = Buffer.concat([field(KEY_TYPE), field(point)]);
  const secret = Buffer.concat([
    check,
    check,
    field(KEY_TYPE),
    field(point),
    field(Buffer.concat([seed, point])),
    field(note),
  ]);
  const container = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    field('none'),
    field('none'),
    field(''),
    uint32(1),
    field(publicBlob),
    field(Buffer.concat([secret, padding(secret.length)])),
  ]);
  const lines = container.toString('base64').match(/.{1,70}/g) ?? [];
  return {
    publicKey: `${KEY_TYPE} ${publicBlob.toString('base64')} ${note}`.trimEnd(),
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines.join('\n')}\n-----END OPENSSH PRIVATE KEY-----\n`,
  };
}

function field(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint32(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** OpenSSH requires padding bytes 1, 2, 3 … */
function padding(length: number): Buffer {
  const missing = (CIPHER_BLOCK_BYTES - (length % CIPHER_BLOCK_BYTES)) % CIPHER_BLOCK_BYTES;
  return Buffer.from(Array.from({ length: missing }, (_, index) => index + 1));
}

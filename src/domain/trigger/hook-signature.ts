// Verifies who sent a push hook: the signature and token schemes of the forges, over the bytes as they arrived.

import { createHmac, type Hmac } from 'node:crypto';
import { digestOf, sameDigest } from '../secret.ts';
import { messageHmac } from '../webhook/signature.ts';
import { createFormDecoder } from './hook-payload.ts';

export { newSigningSecret as newHookSecret } from '../webhook/signature.ts';

/** How far the clock of the sender may differ from ours, where a signature has a timestamp. */
const MAX_SKEW_MS = 5 * 60_000;

export type HookVerifier = {
  /** Adds the next bytes of the body. */
  update(chunk: Uint8Array): void;
  /** Whether one of the secrets signed the body. Called once, after the last bytes. */
  verify(): boolean;
};

type Scheme = (value: string, secrets: readonly string[], headers: Headers, now: number) => Check | undefined;
/** The signatures that were sent, and an HMAC for each secret; `ofPayload` where the text inside a form may be signed. */
type Check = { claims: Buffer[]; hmacs: Hmac[]; ofPayload?: Hmac[] } | 'verified';

/**
 * In order of preference: the first header that is present counts. Another one never replaces it, so that nobody can
 * fall back to a weaker scheme by spoiling a stronger one.
 */
const schemes: readonly [header: string, Scheme][] = [
  ['webhook-signature', standardWebhooks],
  ['x-hub-signature-256', hexHmac('sha256=')],
  ['x-forgejo-signature', hexHmac('')],
  ['x-gitea-signature', hexHmac('')],
  ['x-gogs-signature', hexHmac('')],
  // The older header of GitHub. Bitbucket uses it with SHA-256; SHA-1 is refused.
  ['x-hub-signature', hexHmac('sha256=')],
  ['x-gitlab-token', token],
  ['x-assay-token', token],
];

/** Undefined when no body can make the headers valid: there is no need to read it. */
export function createHookVerifier(
  headers: Headers,
  secrets: readonly string[],
  now: number,
): HookVerifier | undefined {
  const present = schemes.find(([header]) => headers.has(header));
  if (!present) return undefined;
  const [header, scheme] = present;
  const check = scheme(
    headers.get(header) ?? '',
    secrets.filter(secret => secret !== ''),
    headers,
    now,
  );
  if (check === undefined) return undefined;
  if (check === 'verified') return { update: () => {}, verify: () => true };
  const { claims, hmacs, ofPayload = [] } = check;
  const form = createFormDecoder();
  return {
    update: chunk => {
      for (const hmac of hmacs) hmac.update(chunk);
      const payload = form.decode(chunk);
      for (const hmac of ofPayload) hmac.update(payload);
    },
    verify: () => {
      const digests = [...hmacs, ...(form.isForm() ? ofPayload : [])].map(hmac => hmac.digest());
      return digests.some(digest => claims.some(claim => sameDigest(claim, digest)));
    },
  };
}

/** GitHub signs a form as it is sent, Gitea the JSON text inside it. */
function hexHmac(prefix: string): Scheme {
  return (value, secrets) => {
    if (!value.startsWith(prefix) || !/^[0-9a-f]{64}$/i.test(value.slice(prefix.length))) return undefined;
    return {
      claims: [Buffer.from(value.slice(prefix.length), 'hex')],
      hmacs: secrets.map(secret => createHmac('sha256', secret)),
      ofPayload: secrets.map(secret => createHmac('sha256', secret)),
    };
  };
}

/** The header lists signatures separated by spaces; those of other versions are ignored. */
function standardWebhooks(
  value: string,
  secrets: readonly string[],
  headers: Headers,
  now: number,
): Check | undefined {
  const id = headers.get('webhook-id') ?? '';
  const timestamp = headers.get('webhook-timestamp') ?? '';
  const claims = [...value.matchAll(/(?:^| )v1,([A-Za-z0-9+/]{43}=)(?= |$)/g)].map(match =>
    Buffer.from(match[1] ?? '', 'base64'),
  );
  const isCurrent = /^\d{1,12}$/.test(timestamp) && Math.abs(now - Number(timestamp) * 1_000) <= MAX_SKEW_MS;
  if (id === '' || !isCurrent || claims.length === 0) return undefined;
  return { claims, hmacs: secrets.map(secret => messageHmac({ id, timestamp, secret })) };
}

/** The secret itself. Digests have the same length, so the comparison reveals nothing about it. */
function token(value: string, secrets: readonly string[]): Check | undefined {
  const digest = digestOf(value);
  const isKnown = secrets.some(secret => sameDigest(digestOf(secret), digest));
  return isKnown ? 'verified' : undefined;
}

// Signatures of webhooks, as Standard Webhooks lays them down. Keeping the secret is left to the vault.
import { createHmac, randomBytes } from 'node:crypto';

const secretPrefix = 'whsec_';

export function newSigningSecret(): string {
  return secretPrefix + randomBytes(32).toString('base64');
}

/** The value of `webhook-signature`; the timestamp is in seconds, the body exactly as it is sent. */
export function sign(message: {
  id: string;
  timestamp: number;
  body: string | Buffer;
  secret: string;
}): string {
  const key = Buffer.from(message.secret.slice(secretPrefix.length), 'base64');
  const hmac = createHmac('sha256', key).update(`${message.id}.${message.timestamp}.`).update(message.body);
  return `v1,${hmac.digest('base64')}`;
}

// Signs webhooks as specified by Standard Webhooks (standardwebhooks.com).

import { createHmac, randomBytes } from 'node:crypto';

const secretPrefix = 'whsec_';

export function newSigningSecret(): string {
  return secretPrefix + randomBytes(32).toString('base64');
}

/** The value of the header `webhook-signature`. The timestamp is in seconds; the body is exactly what is sent. */
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

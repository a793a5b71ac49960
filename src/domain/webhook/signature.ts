// Signs webhooks as specified by Standard Webhooks (standardwebhooks.com).

import { createHmac, type Hmac, randomBytes } from 'node:crypto';

const secretPrefix = 'whsec_';

export function newSigningSecret(): string {
  return secretPrefix + randomBytes(32).toString('base64');
}

/** The HMAC of a message whose body is still to be added. The timestamp is in seconds, as the header spells it. */
export function messageHmac(message: { id: string; timestamp: number | string; secret: string }): Hmac {
  const key = Buffer.from(message.secret.slice(secretPrefix.length), 'base64');
  return createHmac('sha256', key).update(`${message.id}.${message.timestamp}.`);
}

/** The value of the header `webhook-signature`. The timestamp is in seconds; the body is exactly what is sent. */
export function sign(message: {
  id: string;
  timestamp: number;
  body: string | Buffer;
  secret: string;
}): string {
  return `v1,${messageHmac(message).update(message.body).digest('base64')}`;
}

// Where a request comes from, over HTTP/1.1 and HTTP/2 alike: the one place that reads a connection's address and the
// headers of proxies.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { callerAddress, isForwardedPlain } from '../../domain/caller-address.ts';
import type { Cidr } from '../../domain/webhook/address.ts';

type Trusting = { trustedProxies: readonly Cidr[] };

export function addressOf({ req }: ServerResponse, { trustedProxies }: Trusting): string {
  return callerAddress(connectedFrom(req), headerOf(req, 'x-forwarded-for'), trustedProxies);
}

/** A browser that a trusted proxy let in without TLS: it keeps no session there. */
export function isPlainHttp({ req }: ServerResponse, { trustedProxies }: Trusting): boolean {
  return isForwardedPlain(connectedFrom(req), headerOf(req, 'x-forwarded-proto'), trustedProxies);
}

const connectedFrom = ({ socket }: IncomingMessage) => socket.remoteAddress ?? '';

/** Sent more than once, a header counts as one list. */
function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(',') : value;
}

// Finds the address that a request comes from, over HTTP/1.1 and HTTP/2. Only this file reads a connection's address and the
// headers of proxies.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { callerAddress, isForwardedPlain } from '../../domain/caller-address.ts';
import type { Cidr } from '../../domain/webhook/address.ts';

type ProxySettings = { trustedProxies: readonly Cidr[] };

export function addressOf({ req }: ServerResponse, { trustedProxies }: ProxySettings): string {
  return callerAddress(peerAddress(req), headerOf(req, 'x-forwarded-for'), trustedProxies);
}

/** Whether the browser reached a trusted proxy without TLS. It keeps no session then. */
export function isPlainHttp({ req }: ServerResponse, { trustedProxies }: ProxySettings): boolean {
  return isForwardedPlain(peerAddress(req), headerOf(req, 'x-forwarded-proto'), trustedProxies);
}

const peerAddress = ({ socket }: IncomingMessage) => socket.remoteAddress ?? '';

/** A header that was sent more than once is joined to one list. */
function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(',') : value;
}

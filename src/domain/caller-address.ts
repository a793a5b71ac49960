// The address that a request comes from: the peer of the connection, or what a trusted proxy reports. Forwarding headers
// from anyone else are ignored.

import { type Cidr, formatAddress, isIn, parseAddress, parseCidrs } from './webhook/address.ts';

/** Used when a trusted proxy reports an address that cannot be parsed. It is in no network. */
export const UNKNOWN_ADDRESS = '';

const loopback = parseCidrs('127.0.0.0/8 ::1');

/**
 * `forwardedFor` is the header X-Forwarded-For. Each proxy appends its peer, so the header is read from the right: the
 * first address that is not a trusted proxy is the caller. Everything to the left of it is written by the caller.
 */
export function callerAddress(
  connectedFrom: string,
  forwardedFor: string | undefined,
  trustedProxies: readonly Cidr[],
): string {
  let address = plainAddress(connectedFrom);
  const hops = forwardedFor?.split(',') ?? [];
  while (hops.length > 0 && isIn(trustedProxies, address))
    address = plainAddress(withoutPort(hops.pop() as string));
  return address;
}

/** Whether a trusted proxy reports that the caller reached it over plain HTTP. */
export function isForwardedPlain(
  connectedFrom: string,
  forwardedProto: string | undefined,
  trustedProxies: readonly Cidr[],
): boolean {
  const [scheme = ''] = forwardedProto?.split(',') ?? [];
  return scheme.trim().toLowerCase() === 'http' && isIn(trustedProxies, plainAddress(connectedFrom));
}

export const isLoopback = (address: string): boolean => isIn(loopback, address);

/** The network that belongs to one caller: an IPv4 address, or the /64 that a single IPv6 host usually gets. */
export function callerNetwork(address: string): string {
  const parsed = parseAddress(address);
  return parsed?.family === 6
    ? `${formatAddress({ family: 6, value: (parsed.value >> 64n) << 64n })}/64`
    : address;
}

/**
 * The network that a connection is counted against. Undefined where many callers share one address: for a trusted proxy,
 * and for loopback, where a proxy may run that is not configured as trusted.
 */
export function connectionNetwork(
  connectedFrom: string,
  trustedProxies: readonly Cidr[],
): string | undefined {
  const address = plainAddress(connectedFrom);
  return isLoopback(address) || isIn(trustedProxies, address) ? undefined : callerNetwork(address);
}

/** The canonical form of an address. An IPv4-mapped IPv6 address, which dual-stack sockets report, becomes IPv4. */
function plainAddress(text: string): string {
  const address = parseAddress(text);
  if (!address) return UNKNOWN_ADDRESS;
  const isMapped = address.family === 6 && address.value >> 32n === 0xffffn;
  return formatAddress(isMapped ? { family: 4, value: address.value & 0xffff_ffffn } : address);
}

/** Some proxies include the port: 192.0.2.1:1234, [2001:db8::1]:1234. */
function withoutPort(hop: string): string {
  const text = hop.trim();
  return /^\[(.*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
}

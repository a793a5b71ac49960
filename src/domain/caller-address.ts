// The address that a request comes from: that of the connection, or, where a trusted proxy made the connection, the one
// that the proxy reports. Nothing that another caller says about its address is believed.

import { type Cidr, formatAddress, isIn, parseAddress, parseCidrs } from './webhook/address.ts';

/** Stands for an address that a trusted proxy reports and that cannot be read. It is in no network. */
export const UNKNOWN_ADDRESS = '';

const loopback = parseCidrs('127.0.0.0/8 ::1');

/**
 * `forwardedFor` is the header X-Forwarded-For. Each proxy appends whom it was called by, so it is read from the right:
 * the first address that is not a trusted proxy's is the caller's. What stands left of that the caller wrote itself.
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

/** What one caller holds: an IPv4 address, or a network of 64 bits, which IPv6 hands to a single host. */
export function callerNetwork(address: string): string {
  const parsed = parseAddress(address);
  return parsed?.family === 6
    ? `${formatAddress({ family: 6, value: (parsed.value >> 64n) << 64n })}/64`
    : address;
}

/**
 * Whom a connection counts for. Undefined where many callers come from one address: a trusted proxy's, and loopback,
 * where a proxy may be that nobody named.
 */
export function connectionHolder(connectedFrom: string, trustedProxies: readonly Cidr[]): string | undefined {
  const address = plainAddress(connectedFrom);
  return isLoopback(address) || isIn(trustedProxies, address) ? undefined : callerNetwork(address);
}

/** One spelling for each address. An IPv4 address that a socket of both families shows as IPv6 is the IPv4 one. */
function plainAddress(text: string): string {
  const address = parseAddress(text);
  if (!address) return UNKNOWN_ADDRESS;
  const isMapped = address.family === 6 && address.value >> 32n === 0xffffn;
  return formatAddress(isMapped ? { family: 4, value: address.value & 0xffff_ffffn } : address);
}

/** Some proxies write the port as well: 192.0.2.1:1234, [2001:db8::1]:1234. */
function withoutPort(hop: string): string {
  const text = hop.trim();
  return /^\[(.*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
}

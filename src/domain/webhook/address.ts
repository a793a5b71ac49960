// Where webhooks may go: IP addresses in all their notations, the networks that are refused, those the administrator
// allows after all. Resolving names, and checking what is really connected to, is left to the engine.

export type Cidr = { family: 4 | 6; base: bigint; bits: number };
export type Address = { family: 4 | 6; value: bigint };

const network = (text: string): Cidr => parseCidr(text)!;

/** Loopback, link-local, unspecified, multicast and broadcast; private networks are where an appliance lives. */
const forbidden: Record<4 | 6, { network: string; kind: string }[]> = {
  4: [
    { network: '0.0.0.0/8', kind: 'an unspecified' },
    { network: '127.0.0.0/8', kind: 'a loopback' },
    { network: '169.254.0.0/16', kind: 'a link-local' },
    { network: '224.0.0.0/4', kind: 'a multicast' },
    { network: '255.255.255.255/32', kind: 'a broadcast' },
  ],
  6: [
    { network: '::/128', kind: 'an unspecified' },
    { network: '::1/128', kind: 'a loopback' },
    { network: 'fe80::/10', kind: 'a link-local' },
    { network: 'ff00::/8', kind: 'a multicast' },
  ],
};
const forbiddenNetworks = [...forbidden[4], ...forbidden[6]].map(entry => ({
  ...network(entry.network),
  kind: entry.kind,
}));

/** IPv6 networks whose addresses carry an IPv4 one, and how far from the right it stands. */
const carriers = [
  { ...network('::ffff:0:0/96'), shift: 0n },
  { ...network('::ffff:0:0:0/96'), shift: 0n },
  { ...network('::/96'), shift: 0n },
  { ...network('64:ff9b::/96'), shift: 0n },
  { ...network('64:ff9b:1::/48'), shift: 0n },
  { ...network('2002::/16'), shift: 80n },
];
const teredo = network('2001::/32');

export function isForbiddenAddress(ip: string, allow: readonly Cidr[]): boolean {
  return forbiddenKind(ip, allow) !== undefined;
}

/** `a loopback`, `a link-local` and so on; what cannot be read as an address is forbidden too. */
export function forbiddenKind(ip: string, allow: readonly Cidr[]): string | undefined {
  const address = parseAddress(ip);
  if (!address) return 'an unreadable';
  if (allow.some(cidr => contains(cidr, address))) return undefined;
  for (const face of facesOf(address)) {
    const found = forbiddenNetworks.find(cidr => contains(cidr, face));
    if (found && !allow.some(cidr => contains(cidr, face))) return found.kind;
  }
  return undefined;
}

/** The address itself, and the IPv4 address a translator or tunnel would make of it. */
function facesOf(address: Address): Address[] {
  const faces = [address];
  // `::` and `::1` lie in the range of the old IPv4-compatible addresses, and mean themselves.
  if (address.family === 4 || address.value <= 1n) return faces;
  for (const carrier of carriers) {
    if (contains(carrier, address))
      faces.push({ family: 4, value: (address.value >> carrier.shift) & 0xffff_ffffn });
  }
  if (contains(teredo, address)) faces.push({ family: 4, value: ~address.value & 0xffff_ffffn });
  return faces;
}

/** Whether `ip` is in one of the networks; what cannot be read as an address is in none. */
export function isIn(cidrs: readonly Cidr[], ip: string): boolean {
  const address = parseAddress(ip);
  return address !== undefined && cidrs.some(cidr => contains(cidr, address));
}

function contains(cidr: Cidr, address: Address): boolean {
  if (cidr.family !== address.family) return false;
  const rest = BigInt((cidr.family === 4 ? 32 : 128) - cidr.bits);
  return cidr.base >> rest === address.value >> rest;
}

const longestUrl = 2_048;

/** A name passes: it is judged by the address it leads to when it is connected to. */
export function checkWebhookUrl(text: string, allow: readonly Cidr[]): 'invalid_format' | undefined {
  // URL would mend white space and backslashes silently, and what is stored should be what was meant.
  if (text.length > longestUrl || /[\s\\\u0000-\u001f\u007f]/.test(text)) return 'invalid_format';
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  const url = URL.parse(text);
  if (!authority || authority.includes('@') || !url || url.port === '0') return 'invalid_format';
  const literal = literalAddress(url.hostname);
  return literal !== undefined && isForbiddenAddress(literal, allow) ? 'invalid_format' : undefined;
}

/** URL has already turned decimal, octal, hex and short spellings of IPv4 into four decimal parts. */
export function literalAddress(hostname: string): string | undefined {
  if (hostname.startsWith('[')) return hostname.slice(1, -1);
  return parseIpv4(hostname) === undefined ? undefined : hostname;
}

/** Networks separated by commas or white space; a bare address is a network of one. Throws what is wrong with which. */
export function parseCidrs(text: string): Cidr[] {
  return text
    .split(/[\s,]+/)
    .filter(part => part !== '')
    .map(part => {
      const cidr = parseCidr(part);
      if (!cidr)
        throw new Error(`"${part}" is not a network: write it as 10.0.0.0/8, fd00::/8 or one address`);
      return cidr;
    });
}

function parseCidr(text: string): Cidr | undefined {
  const [ip = '', length, ...more] = text.split('/');
  const address = parseAddress(ip);
  if (!address || ip.includes('%') || more.length > 0) return undefined;
  const widest = address.family === 4 ? 32 : 128;
  if (length !== undefined && !/^\d{1,3}$/.test(length)) return undefined;
  const bits = length === undefined ? widest : Number(length);
  return bits > widest ? undefined : { family: address.family, base: address.value, bits };
}

export function parseAddress(text: string): Address | undefined {
  const ipv4 = parseIpv4(text);
  if (ipv4 !== undefined) return { family: 4, value: ipv4 };
  const ipv6 = parseIpv6(text.replace(/%[^%]*$/, ''));
  return ipv6 === undefined ? undefined : { family: 6, value: ipv6 };
}

/** One spelling for each address: IPv4 in decimal, IPv6 in eight groups. */
export function formatAddress({ family, value }: Address): string {
  const [count, bits, radix, separator] = family === 4 ? [4, 8n, 10, '.'] : [8, 16n, 16, ':'];
  return Array.from({ length: count }, (_, at) =>
    ((value >> (BigInt(count - 1 - at) * bits)) & ((1n << bits) - 1n)).toString(radix),
  ).join(separator);
}

function parseIpv4(text: string): bigint | undefined {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)?.slice(1);
  if (!parts?.every(part => Number(part) <= 255 && String(Number(part)) === part)) return undefined;
  return parts.reduce((value, part) => (value << 8n) | BigInt(part), 0n);
}

function parseIpv6(text: string): bigint | undefined {
  if (!text.includes(':')) return undefined;
  const tail = /^(.*:)(\d[\d.]*\.\d+)$/.exec(text);
  const ipv4 = tail ? parseIpv4(tail[2]!) : undefined;
  if (tail && ipv4 === undefined) return undefined;
  const groupsText =
    ipv4 === undefined ? text : `${tail![1]}${(ipv4 >> 16n).toString(16)}:${(ipv4 & 0xffffn).toString(16)}`;
  const halves = groupsText.split('::').map(half => (half === '' ? [] : half.split(':')));
  const [left = [], right] = halves;
  const missing = 8 - left.length - (right?.length ?? 0);
  if (halves.length > 2 || (right ? missing < 1 : missing !== 0)) return undefined;
  const groups = right ? [...left, ...Array<string>(missing).fill('0'), ...right] : left;
  if (!groups.every(group => /^[0-9a-f]{1,4}$/i.test(group))) return undefined;
  return groups.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

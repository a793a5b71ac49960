// Which addresses webhooks may be sent to: parses IP addresses and networks, and knows the forbidden networks and the
// exceptions the administrator allows. engine/webhook resolves names and checks the address it connects to.

export type Cidr = { family: 4 | 6; base: bigint; bits: number };
type Address = { family: 4 | 6; value: bigint };

const network = (text: string): Cidr => parseCidr(text)!;

/** Private networks are not forbidden: that is where an appliance and its receivers run. */
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

/** IPv6 networks whose addresses embed an IPv4 address, and the number of bits to the right of it. */
const embeddings = [
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

/** `a loopback`, `a link-local` and so on. Text that is not an address is forbidden too. */
export function forbiddenKind(ip: string, allow: readonly Cidr[]): string | undefined {
  const address = parseAddress(ip);
  if (!address) return 'an unreadable';
  if (allow.some(cidr => contains(cidr, address))) return undefined;
  for (const equivalent of equivalentsOf(address)) {
    const found = forbiddenNetworks.find(cidr => contains(cidr, equivalent));
    if (found && !allow.some(cidr => contains(cidr, equivalent))) return found.kind;
  }
  return undefined;
}

/** The address itself, and the IPv4 addresses that a translator or tunnel would derive from it. */
function equivalentsOf(address: Address): Address[] {
  const found = [address];
  // `::` and `::1` are in the range of the old IPv4-compatible addresses, but are not such addresses.
  if (address.family === 4 || address.value <= 1n) return found;
  for (const network of embeddings) {
    if (contains(network, address))
      found.push({ family: 4, value: (address.value >> network.shift) & 0xffff_ffffn });
  }
  if (contains(teredo, address)) found.push({ family: 4, value: ~address.value & 0xffff_ffffn });
  return found;
}

/** Whether `ip` is in one of the networks. Text that is not an address is in none. */
export function isIn(cidrs: readonly Cidr[], ip: string): boolean {
  const address = parseAddress(ip);
  return address !== undefined && cidrs.some(cidr => contains(cidr, address));
}

function contains(cidr: Cidr, address: Address): boolean {
  if (cidr.family !== address.family) return false;
  const hostBits = BigInt((cidr.family === 4 ? 32 : 128) - cidr.bits);
  return cidr.base >> hostBits === address.value >> hostBits;
}

const maxUrlLength = 2_048;

/** A host name is accepted: the address it resolves to is checked when a webhook is sent. */
export function checkWebhookUrl(text: string, allow: readonly Cidr[]): 'invalid_format' | undefined {
  // URL silently normalizes white space and backslashes; the stored text must be exactly what is used.
  if (text.length > maxUrlLength || /[\s\\\u0000-\u001f\u007f]/.test(text)) return 'invalid_format';
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  const url = URL.parse(text);
  if (!authority || authority.includes('@') || !url || url.port === '0') return 'invalid_format';
  const literal = literalAddress(url.hostname);
  return literal !== undefined && isForbiddenAddress(literal, allow) ? 'invalid_format' : undefined;
}

/** URL has already normalized decimal, octal, hex and short notations of IPv4 to four decimal numbers. */
export function literalAddress(hostname: string): string | undefined {
  if (hostname.startsWith('[')) return hostname.slice(1, -1);
  return parseIpv4(hostname) === undefined ? undefined : hostname;
}

/** Networks separated by commas or white space; a bare address is a network of one. Throws if one is invalid. */
export function parseCidrs(text: string): Cidr[] {
  return text
    .split(/[\s,]+/)
    .filter(item => item !== '')
    .map(item => {
      const cidr = parseCidr(item);
      if (!cidr)
        throw new Error(`"${item}" is not a network: write it as 10.0.0.0/8, fd00::/8 or one address`);
      return cidr;
    });
}

function parseCidr(text: string): Cidr | undefined {
  const [ip = '', length, ...rest] = text.split('/');
  const address = parseAddress(ip);
  if (!address || ip.includes('%') || rest.length > 0) return undefined;
  const maxBits = address.family === 4 ? 32 : 128;
  if (length !== undefined && !/^\d{1,3}$/.test(length)) return undefined;
  const bits = length === undefined ? maxBits : Number(length);
  return bits > maxBits ? undefined : { family: address.family, base: address.value, bits };
}

export function parseAddress(text: string): Address | undefined {
  const ipv4 = parseIpv4(text);
  if (ipv4 !== undefined) return { family: 4, value: ipv4 };
  const ipv6 = parseIpv6(text.replace(/%[^%]*$/, ''));
  return ipv6 === undefined ? undefined : { family: 6, value: ipv6 };
}

/** The canonical form of an address: IPv4 in decimal, IPv6 in eight groups. */
export function formatAddress({ family, value }: Address): string {
  const [count, bits, radix, separator] = family === 4 ? [4, 8n, 10, '.'] : [8, 16n, 16, ':'];
  return Array.from({ length: count }, (_, at) =>
    ((value >> (BigInt(count - 1 - at) * bits)) & ((1n << bits) - 1n)).toString(radix),
  ).join(separator);
}

function parseIpv4(text: string): bigint | undefined {
  const octets = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)?.slice(1);
  if (!octets?.every(octet => Number(octet) <= 255 && String(Number(octet)) === octet)) return undefined;
  return octets.reduce((value, octet) => (value << 8n) | BigInt(octet), 0n);
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

// A hostile DNS zone: a name server on loopback whose answers each attack chooses, and a way to run a program that uses
// only this server, through the resolver of the system.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Not an address where a system may already run a resolver.
const ADDRESS = '127.0.53.1';
const HEADER_BYTES = 12;
const TYPES = { 1: 'A', 28: 'AAAA' } as const;

export type Zone = {
  /** The addresses of a name for its first lookup, its second, and so on. */
  lead(name: string, to: (lookup: number) => readonly string[]): void;
  /** A command line that runs a program with this name server only. */
  through: readonly string[];
  close(): void;
};

export async function openZone(): Promise<Zone> {
  const names = new Map<string, (lookup: number) => readonly string[]>();
  const lookups = new Map<string, number>();
  const socket = createSocket('udp4');
  socket.on('message', (query, { port, address }) => {
    const { name, type, bytes } = questionOf(query);
    const lead = names.get(name);
    // A lookup asks for both address families: each is counted separately.
    const question = `${type} ${name}`;
    const lookup = lookups.get(question) ?? 0;
    lookups.set(question, lookup + 1);
    const all = type === undefined ? [] : (lead?.(lookup) ?? []);
    const found = all.filter(one => isIPv6(one) === (type === 'AAAA'));
    socket.send(answerTo(query.subarray(0, 2), bytes, lead !== undefined, found), port, address);
  });
  socket.bind(53, ADDRESS);
  await once(socket, 'listening');

  const directory = mkdtempSync(join(tmpdir(), 'assay-zone-'));
  const resolver = join(directory, 'resolv.conf');
  const sources = join(directory, 'nsswitch.conf');
  writeFileSync(resolver, `nameserver ${ADDRESS}\nsearch .\noptions timeout:8 attempts:1\n`);
  writeFileSync(sources, 'hosts: files dns\n');
  const mounts =
    'mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"';
  return {
    lead: (name, to) => names.set(name, to),
    through: ['unshare', '--mount', 'sh', '-c', mounts, resolver, sources],
    close() {
      socket.close();
      rmSync(directory, { recursive: true });
    },
  };
}

function questionOf(query: Buffer) {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return {
    name: labels.join('.').toLowerCase(),
    type: TYPES[query.readUInt16BE(at + 1) as keyof typeof TYPES] as 'A' | 'AAAA' | undefined,
    bytes: query.subarray(HEADER_BYTES, at + 5),
  };
}

function answerTo(id: Buffer, question: Buffer, isKnown: boolean, addresses: readonly string[]): Buffer {
  // A response with recursion; code 3 if the name does not exist.
  const header = Buffer.from([0x81, isKnown ? 0x80 : 0x83, 0, 1, 0, addresses.length, 0, 0, 0, 0]);
  const records = addresses.map(address => {
    const bytes = bytesOf(address);
    // The name as in the question, its type, class IN, TTL 0.
    return Buffer.from([
      0xc0,
      HEADER_BYTES,
      0,
      bytes.length === 4 ? 1 : 28,
      0,
      1,
      0,
      0,
      0,
      0,
      0,
      bytes.length,
      ...bytes,
    ]);
  });
  return Buffer.concat([id, header, question, ...records]);
}

function bytesOf(address: string): number[] {
  if (!isIPv6(address)) return address.split('.').map(Number);
  // The URL parser expands all groups in hex, with at most one gap.
  const [before = '', after] = new URL(`http://[${address}]/`).hostname.slice(1, -1).split('::');
  const groups = (text: string | undefined) =>
    text ? text.split(':').map(group => Number.parseInt(group, 16)) : [];
  const [head, tail] = [groups(before), groups(after)];
  const all = [...head, ...Array<number>(8 - head.length - tail.length).fill(0), ...tail];
  return all.flatMap(group => [group >> 8, group & 0xff]);
}

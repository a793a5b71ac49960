// Reads the form or JSON body of a request into flat fields: `options[url]` is one name. Nothing nested can reach a prototype.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { refusal } from '../../domain/refusal.ts';
import { readParts, readWhole } from './multipart.ts';

/** The value of a field that cannot be used: an object instead of a scalar, or invalid UTF-8. */
const unreadable = Symbol('unreadable');

/** A value as received. The name of a list ends in `[]`, as in forms. */
export type Sent = string | number | bigint | boolean | null | typeof unreadable | Sent[];
export type SentFields = Map<string, Sent>;

const MAX_BODY_BYTES = 4 * 1024 * 1024;
const MAX_FIELDS = 1_000;
const MAX_DEPTH = 16;
const STALL_MS = 30_000;

const malformed = () => refusal('invalid_format');
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads the whole body. Refuses one that is too large or stalls. */
async function readBytes(request: Request): Promise<Buffer> {
  if (!request.body) return Buffer.alloc(0);
  const reader = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    let timer: NodeJS.Timeout | undefined;
    const stall = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(malformed()), STALL_MS);
    });
    let chunk: Awaited<ReturnType<typeof reader.read>>;
    try {
      chunk = await Promise.race([reader.read(), stall]);
    } catch {
      // The client disconnected or stalled.
      reader.cancel().catch(() => {});
      throw malformed();
    } finally {
      clearTimeout(timer);
    }
    if (chunk.done) return Buffer.concat(chunks, size);
    size += chunk.value.byteLength;
    if (size > MAX_BODY_BYTES) {
      reader.cancel().catch(() => {});
      throw malformed();
    }
    chunks.push(chunk.value);
  }
}

/**
 * Passes a body of any kind to `onChunk` as it arrives. Refuses one that is too large or not complete in time. Reads
 * from Node directly, which costs less than a web stream.
 */
export function readChunks(
  incoming: IncomingMessage,
  limits: { maxBytes: number; timeoutMs: number },
  onChunk: (chunk: Buffer) => void,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const refuse = () => reject(malformed());
  const timer = setTimeout(refuse, limits.timeoutMs);
  let size = 0;
  const onData = (chunk: Buffer) => {
    size += chunk.length;
    if (size > limits.maxBytes) refuse();
    else onChunk(chunk);
  };
  if (Number(incoming.headers['content-length']) > limits.maxBytes) refuse();
  else incoming.on('data', onData).once('end', resolve).once('error', refuse).once('close', refuse);
  return promise.finally(() => {
    clearTimeout(timer);
    incoming.off('data', onData).pause();
  });
}

/**
 * The body as it arrives, from Node directly. Whoever stops early can still respond, because the request stays open.
 */
export const streamBody = ({ req }: ServerResponse): AsyncIterable<Uint8Array> => new IncomingBody(req);

/** A class, because every request has one: a literal with a computed name costs ten times as much. */
class IncomingBody {
  readonly incoming: IncomingMessage;

  constructor(incoming: IncomingMessage) {
    this.incoming = incoming;
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return this.incoming.iterator({ destroyOnReturn: false });
  }
}

export async function readBody(request: Request): Promise<SentFields> {
  const bytes = await readBytes(request);
  if (bytes.length === 0) return new Map();
  const type = request.headers.get('content-type') ?? '';
  switch (type.split(';', 1).join().trim().toLowerCase()) {
    case 'application/json':
      return fromJson(bytes);
    case 'multipart/form-data':
      return fromMultipart(bytes, type);
    case 'application/x-www-form-urlencoded':
    case '':
      return fromUrlEncoded(bytes);
    default:
      throw malformed();
  }
}

/** The fields of a query string. A name that cannot be decoded is ignored, like any unknown name. */
export function readQuery(search: string): SentFields {
  return fromUrlEncoded(Buffer.from(search.replace(/^\?/, ''), 'latin1'), 'ignored');
}

function addField(fields: SentFields, name: string, value: Sent): void {
  const list = fields.get(name);
  if (!name.endsWith('[]')) fields.set(name, value);
  else if (Array.isArray(list)) list.push(value);
  else fields.set(name, [value]);
  if (fields.size > MAX_FIELDS) throw malformed();
}

function decodeText(bytes: Buffer): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function percentDecode(text: string): Buffer {
  if (!/[%+]/.test(text)) return Buffer.from(text, 'latin1');
  const plain = text
    .replaceAll('+', ' ')
    .replace(/%([0-9a-fA-F]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(plain, 'latin1');
}

function fromUrlEncoded(bytes: Buffer, badNames: 'ignored' | 'refused' = 'refused'): SentFields {
  const fields: SentFields = new Map();
  const pairs = bytes.toString('latin1').split('&', MAX_FIELDS + 1);
  if (pairs.length > MAX_FIELDS) throw malformed();
  for (const pair of pairs) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decodeText(percentDecode(equals < 0 ? pair : pair.slice(0, equals)));
    if (name === undefined && badNames === 'ignored') continue;
    if (name === undefined) throw malformed();
    addText(fields, name, percentDecode(equals < 0 ? '' : pair.slice(equals + 1)));
  }
  return fields;
}

function addText(fields: SentFields, name: string, bytes: Buffer): void {
  addField(fields, name, decodeText(bytes) ?? unreadable);
}

async function fromMultipart(bytes: Buffer, type: string): Promise<SentFields> {
  const fields: SentFields = new Map();
  let count = 0;
  for await (const { name, chunks } of readParts(type, Readable.from([bytes]))) {
    count += 1;
    if (count > MAX_FIELDS) throw malformed();
    addText(fields, name, await readWhole(chunks, MAX_BODY_BYTES));
  }
  return fields;
}

function fromJson(bytes: Buffer): SentFields {
  const text = decodeText(bytes);
  if (text === undefined) throw malformed();
  let value: unknown;
  try {
    // Integers are read from their source text, because ids may exceed 53 bits.
    value = JSON.parse(text, ((_: string, parsed: unknown, context?: { source?: string }) =>
      typeof parsed === 'number' && /^-?\d{1,19}$/.test(context?.source ?? '')
        ? BigInt(context?.source as string)
        : parsed) as (key: string, value: unknown) => unknown);
  } catch {
    throw malformed();
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value) || isTooDeep(value))
    throw malformed();
  const fields: SentFields = new Map();
  flatten(fields, '', value as Record<string, unknown>);
  return fields;
}

const isTooDeep = (value: unknown, depth = 0): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (depth === MAX_DEPTH || Object.values(value).some(inner => isTooDeep(inner, depth + 1)));

function flatten(fields: SentFields, prefix: string, object: Record<string, unknown>): void {
  for (const [key, value] of Object.entries(object)) {
    const name = prefix === '' ? key : `${prefix}[${key}]`;
    if (Array.isArray(value)) {
      fields.set(name, unreadable);
      fields.set(`${name}[]`, value.map(scalar));
    } else if (typeof value === 'object' && value !== null) {
      fields.set(name, unreadable);
      flatten(fields, name, value as Record<string, unknown>);
    } else fields.set(name, value as Sent);
    if (fields.size > MAX_FIELDS) throw malformed();
  }
}

const scalar = (value: unknown): Sent =>
  typeof value === 'object' && value !== null ? unreadable : (value as Sent);

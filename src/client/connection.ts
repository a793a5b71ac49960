// The HTTPS connection to a server: calls of the API, streams in both directions, and errors as messages that say what to do.
// It uses only what Node 20 has built in.

import { once } from 'node:events';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import zlib from 'node:zlib';
import { CommandError, UsageError } from '../command/command.ts';
import { errorMessage } from '../contract/error-text.ts';
import type { ErrorCode } from '../domain/refusal.ts';
import { version } from '../version.ts';
import { EXIT, unreachable } from './exit-status.ts';
import type { Credentials, Host } from './hosts.ts';
import { write } from './output.ts';

/** How long the server may send nothing. */
const SILENCE_MS = 60_000;
/** The same after an upload, which the server checks before it responds. */
const CHECK_MS = 300_000;
/** How long to wait for the server's consent to an upload. */
const CONSENT_MS = 2_000;
const MAX_JSON_BYTES = 64 << 20;
const MAX_CLOCK_ERROR_MS = 3_000;

export type Fields = Record<string, string | readonly string[] | undefined>;

type Sent = {
  query?: Fields | undefined;
  /** A form. */
  fields?: Fields | undefined;
  /** A stream of bytes, and how many there are if that is known. */
  body?: { content: Readable; sizeBytes?: number | undefined; type: string } | undefined;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
};

export type Connection = {
  url: string;
  /** Sends a request and returns what the envelope contains. Throws a ServerError if the server refuses it. */
  call<T>(method: string, path: string, sent?: Sent): Promise<T>;
  /** The records of a list, page by page. */
  list<T>(path: string, sent?: Sent): AsyncGenerator<T, void>;
  /** Opens the body of a successful response. */
  open(method: string, path: string, sent?: Sent): Promise<IncomingMessage>;
  /** Any response, successful or not. */
  send(method: string, path: string, sent?: Sent): Promise<IncomingMessage>;
  /** The time of the server, whose clock may differ from the one here. */
  nowMs(): number;
  close(): void;
};

/** The server refused a request. */
export class ServerError extends CommandError {
  readonly status: number;
  readonly errors: Record<string, string[]>;
  constructor(message: string, exitStatus: number, status: number, errors: Record<string, string[]> = {}) {
    super(message, exitStatus);
    this.status = status;
    this.errors = errors;
  }
}

/** The certificate of the server is not trusted. Trying again does not help. */
export class CertificateError extends CommandError {
  constructor(message: string) {
    super(message, EXIT.unreachable);
  }
}

/** The options of a TLS connection that trusts one authority. It may be one that another authority has signed. */
export const trustOnly = (ca: string | undefined) =>
  ca === undefined ? {} : { ca, allowPartialTrustChain: true };

export function openConnection(host: Pick<Host, 'url' | 'credentials' | 'ca'>): Connection {
  const { url, ca } = host;
  const agent = new Agent({ keepAlive: true, ...trustOnly(ca) });
  const authorization = host.credentials && authorizationOf(host.credentials);
  let clockOffsetMs = 0;

  function noteTime({ headers: { date = '' } }: IncomingMessage): void {
    const offsetMs = Date.parse(date) - Date.now();
    // The header has whole seconds, and the response took a while.
    clockOffsetMs = Math.abs(offsetMs) > MAX_CLOCK_ERROR_MS ? offsetMs : 0;
  }

  async function send(method: string, path: string, sent: Sent = {}): Promise<IncomingMessage> {
    const form = sent.fields && encode(sent.fields).toString();
    const query = sent.query ? encode(sent.query).toString() : '';
    const target = `${url}${path}${query === '' ? '' : `${path.includes('?') ? '&' : '?'}${query}`}`;
    const outgoing = request(target, {
      method,
      agent,
      headers: {
        'user-agent': `assay/${version}`,
        accept: '*/*',
        ...(authorization !== undefined && { authorization }),
        ...(form !== undefined && {
          'content-type': 'application/x-www-form-urlencoded',
          'content-length': String(Buffer.byteLength(form)),
        }),
        ...(sent.body && {
          'content-type': sent.body.type,
          expect: '100-continue',
          ...(sent.body.sizeBytes !== undefined && { 'content-length': String(sent.body.sizeBytes) }),
        }),
        ...sent.headers,
      },
      ...(sent.signal && { signal: sent.signal }),
    });
    outgoing.setTimeout(sent.body ? CHECK_MS : SILENCE_MS, () =>
      outgoing.destroy(Object.assign(new Error('no response'), { code: 'ETIMEDOUT' })),
    );
    // After the response has begun, its body reports the error.
    outgoing.on('error', () => {});
    const responded = once(outgoing, 'response') as Promise<[IncomingMessage]>;
    try {
      if (sent.body) {
        outgoing.flushHeaders();
        const refusal = await Promise.race([responded, consentTo(outgoing)]);
        if (refusal) return refusal[0];
        // A server that refuses an upload later responds before it has read all of it.
        const sending = pipeline(sent.body.content, outgoing);
        sending.catch(() => {});
        const [response] = await Promise.race([responded, sending.then(() => responded)]);
        return response;
      }
      outgoing.end(form);
      const [response] = await responded;
      noteTime(response);
      return response;
    } catch (error) {
      sent.signal?.throwIfAborted();
      // What is uploaded cannot be read.
      if (error instanceof CommandError || error instanceof UsageError) throw error;
      throw explainFailure(error, url, ca !== undefined);
    }
  }

  async function open(method: string, path: string, sent: Sent = {}): Promise<IncomingMessage> {
    const response = await send(method, path, sent);
    if ((response.statusCode ?? 0) < 300) return response;
    throw await explainRefusal(response, url);
  }

  async function page<T>(method: string, path: string, sent: Sent) {
    const response = await open(method, path, sent);
    const { response: content } = parse<{ response: T }>(await readText(response), url);
    const [, next] = /<([^>]+)>; rel="next"/.exec(String(response.headers.link ?? '')) ?? [];
    return { content, next: next === undefined ? undefined : new URL(next) };
  }

  return {
    url,
    send,
    open,
    call: async <T>(method: string, path: string, sent: Sent = {}) =>
      (await page<T>(method, path, sent)).content,
    async *list<T>(path: string, sent: Sent = {}) {
      for (let from = path, first: Sent = sent; ; ) {
        const { content, next } = await page<T[]>('GET', from, first);
        yield* content;
        if (!next) return;
        from = `${next.pathname}${next.search}`;
        first = { ...sent, query: undefined };
      }
    },
    nowMs: () => Date.now() + clockOffsetMs,
    close: () => agent.destroy(),
  };
}

/** A body arrives in pieces of 16 KiB. Each write costs. */
const GATHERED_BYTES = 256 << 10;

/**
 * Passes the body of a response to standard output as it is, or to another writer. While the writer waits for a slow reader,
 * the server may be silent. Throws if the connection breaks.
 */
export async function copyBody(
  response: IncomingMessage,
  to: (chunk: Buffer) => Promise<void> | void = write,
): Promise<void> {
  // At the end of the body, the response no longer has it.
  const { socket } = response;
  let gathered: Buffer[] = [];
  let bytes = 0;
  const flush = async () => {
    const [first = Buffer.alloc(0), ...others] = gathered;
    const chunk = others.length === 0 ? first : Buffer.concat(gathered, bytes);
    gathered = [];
    bytes = 0;
    socket.setTimeout(0);
    await to(chunk);
    socket.setTimeout(SILENCE_MS);
  };
  const body = response.headers['content-encoding'] === 'zstd' ? decompress(response) : response;
  // Events are much cheaper than an iterator, which waits for each piece.
  await new Promise<void>((resolve, reject) => {
    body.on('data', (chunk: Buffer) => {
      gathered.push(chunk);
      bytes += chunk.length;
      if (bytes < GATHERED_BYTES) return;
      body.pause();
      flush().then(
        () => body.resume(),
        error => {
          response.destroy();
          reject(error);
        },
      );
    });
    body.on('end', resolve);
    body.on('error', ({ message }) => reject(unreachable(`the connection was lost: ${message}`)));
  });
  if (bytes > 0) await flush();
}

/** Asks for a compressed body, which copyBody can read. Node 20 cannot. */
export const COMPRESSED: Record<string, string> =
  typeof zlib.createZstdDecompress === 'function' ? { 'accept-encoding': 'zstd, identity;q=0.5' } : {};

function decompress(response: IncomingMessage): Readable {
  const body = zlib.createZstdDecompress({ chunkSize: GATHERED_BYTES });
  // An error of the response becomes one of the body.
  pipeline(response, body).catch(() => {});
  return body;
}

/** Resolves when the server asks for the body. One that does not know about it sends nothing. */
const consentTo = (outgoing: ClientRequest): Promise<undefined> =>
  new Promise(resolve => {
    const timer = setTimeout(resolve, CONSENT_MS, undefined);
    outgoing.once('continue', () => resolve(undefined));
    outgoing.once('close', () => clearTimeout(timer));
  });

const authorizationOf = (credentials: Credentials) =>
  'token' in credentials
    ? `Bearer ${credentials.token}`
    : `Basic ${Buffer.from(`${credentials.email}:${credentials.apiKey}`).toString('base64')}`;

function encode(fields: Fields): URLSearchParams {
  const encoded = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    for (const one of typeof value === 'string' ? [value] : (value ?? [])) encoded.append(name, one);
  return encoded;
}

export const readText = async (response: IncomingMessage): Promise<string> =>
  (await readBytes(response)).toString('utf8');

export async function readBytes(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_JSON_BYTES) throw unreachable('the response of the server is too long');
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw unreachable(`the connection was lost: ${(error as Error).message}`);
  }
  return Buffer.concat(chunks);
}

function parse<T>(text: string, url: string): T {
  try {
    const value = JSON.parse(text) as T | null;
    if (value !== null) return value;
  } catch {
    // Reported below.
  }
  throw unreachable(`what responds at ${url} is not an Assay server`);
}

/** The error for a response that is not a success. */
async function explainRefusal(response: IncomingMessage, url: string): Promise<ServerError> {
  const status = response.statusCode ?? 0;
  const text = await readText(response).catch(() => '');
  if (status >= 500)
    return new ServerError(
      `the server had a problem (status ${status}): try again, or ask its administrator`,
      EXIT.unreachable,
      status,
    );
  let errors: Record<string, string[]>;
  try {
    ({ error: errors } = JSON.parse(text) as { error: Record<string, string[]> });
  } catch {
    return new ServerError(`what responds at ${url} is not an Assay server`, EXIT.unreachable, status);
  }
  const has = (code: ErrorCode) => Object.values(errors).some(codes => codes.includes(code));
  if (has('api_does_not_exists'))
    return new ServerError(
      `the server at ${url} does not know this call: it has another version of Assay than this client (${version})`,
      EXIT.refused,
      status,
      errors,
    );
  if (has('unauthorized') && status === 401)
    return new ServerError(
      `you are not signed in to ${url}, or not allowed to do this: "assay login ${url}" signs in`,
      EXIT.refused,
      status,
      errors,
    );
  const message = Object.entries(errors)
    .map(([field, codes]) => {
      const sentences = codes.map(code => errorMessage(field, code as ErrorCode) ?? code).join(' ');
      return field === 'generic' ? sentences : `${field}: ${sentences}`;
    })
    .join(' ');
  const isUsage = status === 403 && !has('resource_temporary_unavailable');
  return new ServerError(message, isUsage ? EXIT.usage : EXIT.refused, status, errors);
}

export const UNTRUSTED: readonly string[] = [
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'CERT_SIGNATURE_FAILURE',
];

const NO_TLS = 'what listens there does not use HTTPS';
const CONNECTION_PROBLEMS: Record<string, string> = {
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'there is no host of this name',
  EAI_AGAIN: 'the name cannot be resolved right now',
  ETIMEDOUT: 'it does not respond',
  ECONNRESET: 'it closed the connection',
  EHOSTUNREACH: 'there is no route to the host',
  ENETUNREACH: 'there is no network',
  EPROTO: NO_TLS,
};

/** The error for a request without a response. */
export function explainFailure(error: unknown, url: string, isPinned: boolean): CommandError {
  const { code = '', message } = error as NodeJS.ErrnoException;
  if (UNTRUSTED.includes(code))
    return new CertificateError(
      isPinned
        ? `the certificate of ${url} has changed: it is not from the authority that you accepted. If the administrator replaced it, compare the fingerprint and run "assay login ${url}" again. If not, somebody may be intercepting the connection`
        : `the certificate of ${url} is from an authority that this machine does not trust: "assay login ${url}" shows its fingerprint and keeps it`,
    );
  if (code === 'CERT_HAS_EXPIRED')
    return new CertificateError(
      `the certificate of ${url} has expired: ask its administrator, or check this machine's clock`,
    );
  if (code === 'CERT_NOT_YET_VALID')
    return new CertificateError(`the certificate of ${url} is not valid yet: check this machine's clock`);
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return new CertificateError(`the certificate is not for ${new URL(url).hostname}: ${message}`);
  const problem = code.startsWith('ERR_SSL_') ? NO_TLS : CONNECTION_PROBLEMS[code];
  return unreachable(`cannot connect to ${url}: ${problem ?? message}`);
}

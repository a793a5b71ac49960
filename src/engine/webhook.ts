// Sends one webhook: one POST with a total deadline and without redirects, and only if the address it connects to is
// allowed. src/work/deliver-notifications.ts decides what is sent and when it is retried.

import { lookup as resolveName } from 'node:dns';
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { LookupFunction } from 'node:net';
import { type Cidr, forbiddenKind, literalAddress } from '../domain/webhook/address.ts';
import type { Response as DeliveryResponse } from '../domain/webhook/delivery.ts';

export type ProxyEnvironment = { HTTP_PROXY?: string; HTTPS_PROXY?: string; NO_PROXY?: string };

/** The proxies in the environment, in upper or lower case. Undefined if there is none. */
export function proxyOf(environment: NodeJS.ProcessEnv): ProxyEnvironment | undefined {
  const read = (name: keyof ProxyEnvironment) => {
    const value = environment[name] || environment[name.toLowerCase()];
    return value ? { [name]: value } : {};
  };
  const proxies = { ...read('HTTP_PROXY'), ...read('HTTPS_PROXY') };
  return Object.keys(proxies).length > 0 ? { ...proxies, ...read('NO_PROXY') } : undefined;
}

export type Delivery = {
  url: string;
  body: string | Buffer;
  headers: Record<string, string>;
  /** Pass the same array every time: kept connections are shared only between deliveries with the same array. */
  allow: readonly Cidr[];
  signal?: AbortSignal;
  timeoutMs?: number;
  proxy?: ProxyEnvironment;
};

export type { DeliveryResponse };

/** More deliveries to one host wait for a connection while their deadline runs. */
export const connectionsPerHost = 16;
const excerptBytes = 1_024;
// Many servers close idle connections after 5 s. A shorter time avoids reusing one that is being closed.
const idleMs = 4_000;

export async function deliver(delivery: Delivery): Promise<DeliveryResponse> {
  const startedAt = performance.now();
  const deadlineAt = startedAt + (delivery.timeoutMs ?? 10_000);
  let attempt = await post(delivery, deadlineAt);
  // The receiver may have closed an idle connection. Retry with a new one.
  if (attempt.wasStale) attempt = await post(delivery, deadlineAt);
  const { wasStale: _, ...response } = attempt;
  return { ...response, responseMs: Math.round(performance.now() - startedAt) };
}

type Attempt = Omit<DeliveryResponse, 'responseMs'> & { wasStale?: boolean };

function post(delivery: Delivery, deadlineAt: number): Promise<Attempt> {
  const { promise, resolve } = Promise.withResolvers<Attempt>();
  const { allow, proxy, signal } = delivery;
  const url = URL.parse(delivery.url);
  if (!url || !/^https?:$/.test(url.protocol))
    return Promise.resolve({ excerpt: '', error: 'the address is not http(s)' });
  const literal = literalAddress(url.hostname);
  const kind = literal && forbiddenKind(literal, allow);
  if (kind) return Promise.resolve({ excerpt: '', error: refusal(url.hostname, literal, kind) });

  let request: ClientRequest | undefined;
  let response: IncomingMessage | undefined;
  const chunks: Buffer[] = [];
  let isFinished = false;

  function finish(error?: string, wasStale = false): void {
    if (isFinished) return;
    isFinished = true;
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
    if (!response?.complete) request?.destroy();
    const excerpt = new TextDecoder().decode(Buffer.concat(chunks).subarray(0, excerptBytes));
    // The status is valid even if the body never ends.
    if (response?.statusCode)
      resolve({ status: response.statusCode, excerpt, ...retryAfterOf(response.headers, Date.now()) });
    else resolve({ excerpt, error: error ?? 'no response', wasStale });
  }
  const onAbort = () => finish('the delivery was canceled');
  const timer = setTimeout(() => finish('no response in time'), Math.max(0, deadlineAt - performance.now()));
  signal?.addEventListener('abort', onAbort);
  if (signal?.aborted) onAbort();

  function send(target: URL): void {
    if (isFinished) return;
    const isTls = target.protocol === 'https:';
    const agents = agentsOf(allow, proxy);
    request = (isTls ? httpsRequest : httpRequest)(target, {
      method: 'POST',
      agent: isTls ? agents.https : agents.http,
      lookup: lookupFor(target.hostname, allow),
      headers: { ...delivery.headers, 'content-length': Buffer.byteLength(delivery.body) },
    });
    const sent = request;
    sent.on('response', received => {
      response = received;
      let bytes = 0;
      received.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes > excerptBytes) finish();
      });
      received.on('close', () => finish());
      received.on('error', () => finish());
    });
    sent.on('error', error => {
      const { code } = error as NodeJS.ErrnoException;
      finish(describe(error, target), sent.reusedSocket && (code === 'ECONNRESET' || code === 'EPIPE'));
    });
    sent.end(delivery.body);
  }

  if (!proxy || literal) send(url);
  else {
    // The proxy resolves the name itself. This check covers only what this host resolves.
    lookupFor(url.hostname, allow)(url.hostname, { all: true }, error => {
      if (error instanceof ForbiddenAddress) finish(error.message);
      else send(url);
    });
  }
  return promise;
}

const MAX_RETRY_AFTER_MS = 24 * 3600_000;

/** When the receiver wants to be called again: `Retry-After` in seconds or as a date, or GitHub's own headers. */
function retryAfterOf(headers: IncomingHttpHeaders, now: number): { retryAfterMs?: number } {
  const after = headers['retry-after'] ?? '';
  const isExceeded = headers['x-ratelimit-remaining'] === '0';
  const ms = /^\d+$/.test(after)
    ? Number(after) * 1000
    : after !== ''
      ? Date.parse(after) - now
      : isExceeded
        ? Number(headers['x-ratelimit-reset']) * 1000 - now
        : Number.NaN;
  return Number.isNaN(ms) ? {} : { retryAfterMs: Math.min(Math.max(0, ms), MAX_RETRY_AFTER_MS) };
}

class ForbiddenAddress extends Error {}

function refusal(host: string, address: string | undefined, kind: string): string {
  const subject =
    !address || host === address || host === `[${address}]`
      ? `${host} is`
      : `${host} resolves to ${address},`;
  return `${subject} ${kind} address; an administrator may allow it with ASSAY_WEBHOOK_ALLOW`;
}

/** Returns only allowed addresses, so that a name cannot pass the check and then change its address. */
function lookupFor(target: string, allow: readonly Cidr[]): LookupFunction {
  return (hostname, options, callback) => {
    resolveName(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, []);
      // Any other name is the proxy's, which the administrator has chosen.
      const allowed =
        hostname === target ? addresses.filter(({ address }) => !forbiddenKind(address, allow)) : addresses;
      const [first] = allowed;
      if (!first) {
        const { address } = addresses[0]!;
        return callback(new ForbiddenAddress(refusal(hostname, address, forbiddenKind(address, allow)!)), []);
      }
      return options.all ? callback(null, allowed) : callback(null, first.address, first.family);
    });
  };
}

type Agents = { http: HttpAgent; https: HttpsAgent };
const agentsByAllow = new WeakMap<readonly Cidr[], Map<string, Agents>>();

function agentsOf(allow: readonly Cidr[], proxy: ProxyEnvironment | undefined): Agents {
  const byProxy = agentsByAllow.get(allow) ?? new Map<string, Agents>();
  agentsByAllow.set(allow, byProxy);
  const key = JSON.stringify(proxy ?? {});
  const known = byProxy.get(key);
  if (known) return known;
  const options = { keepAlive: true, maxSockets: connectionsPerHost, timeout: idleMs, proxyEnv: proxy };
  const agents = {
    http: new HttpAgent(options),
    https: new HttpsAgent({ ...options, rejectUnauthorized: true }),
  };
  byProxy.set(key, agents);
  return agents;
}

function describe(error: Error, url: URL): string {
  const { code = '' } = error as NodeJS.ErrnoException;
  if (error instanceof ForbiddenAddress) return error.message;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `the name ${url.hostname} could not be resolved`;
  if (code === 'ECONNREFUSED') return `${url.host} refused the connection`;
  if (code === 'ECONNRESET' || code === 'EPIPE')
    return `${url.host} closed the connection without a response`;
  if (/^(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)$/.test(code)) return `${url.host} could not be reached`;
  if (code === 'ERR_PROXY_TUNNEL') return `the proxy could not connect to ${url.host}`;
  if (code.startsWith('HPE_')) return `the response of ${url.host} is not HTTP`;
  if (/CERT|SELF_SIGNED|UNABLE_TO|ALTNAME/.test(code))
    return `the certificate of ${url.host} is not trusted: ${error.message}`;
  return `${url.host} could not be reached: ${code || error.message}`;
}

// Sends one webhook: one POST with a total deadline, no redirects, and only to addresses that are allowed, judged by
// the address that is connected to. What is sent, and when it is tried again, is left to the work that delivers.
import { lookup as resolveName } from 'node:dns';
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { LookupFunction } from 'node:net';
import { type Cidr, forbiddenKind, literalAddress } from '../domain/webhook/address.ts';

export type ProxyEnvironment = { HTTP_PROXY?: string; HTTPS_PROXY?: string; NO_PROXY?: string };

/** The proxies that an environment names, in either spelling; undefined where it names none. */
export function proxyOf(environment: NodeJS.ProcessEnv): ProxyEnvironment | undefined {
  const named = (name: keyof ProxyEnvironment) => {
    const value = environment[name] || environment[name.toLowerCase()];
    return value ? { [name]: value } : {};
  };
  const proxies = { ...named('HTTP_PROXY'), ...named('HTTPS_PROXY') };
  return Object.keys(proxies).length > 0 ? { ...proxies, ...named('NO_PROXY') } : undefined;
}

export type Delivery = {
  url: string;
  body: string | Buffer;
  headers: Record<string, string>;
  /** Keep one list for the life of the process: connections are kept, and only shared, under the same list. */
  allow: readonly Cidr[];
  signal?: AbortSignal;
  timeoutMs?: number;
  proxy?: ProxyEnvironment;
};

/** `status` is there when the receiver answered; `error` says in words why it did not. */
export type DeliveryResponse = { status?: number; responseMs: number; excerpt: string; error?: string };

/** Deliveries to one host beyond this many wait for a connection while their deadline runs. */
export const connectionsPerHost = 16;
const excerptBytes = 1_024;
// Shorter than the 5 s after which many servers close: a connection is rarely closed just as it is used again.
const idleMs = 4_000;

export async function deliver(delivery: Delivery): Promise<DeliveryResponse> {
  const startedAt = performance.now();
  const deadlineAt = startedAt + (delivery.timeoutMs ?? 10_000);
  let attempt = await post(delivery, deadlineAt);
  // A kept connection that the receiver closed meanwhile says nothing about the receiver.
  if (attempt.wasStale) attempt = await post(delivery, deadlineAt);
  const { wasStale: _, ...answer } = attempt;
  return { ...answer, responseMs: Math.round(performance.now() - startedAt) };
}

type Attempt = { status?: number; excerpt: string; error?: string; wasStale?: boolean };

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
  let isOver = false;

  function finish(error?: string, wasStale = false): void {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
    if (!response?.complete) request?.destroy();
    const excerpt = new TextDecoder().decode(Buffer.concat(chunks).subarray(0, excerptBytes));
    // An answer whose body never ends is still an answer: its status is known.
    if (response?.statusCode) resolve({ status: response.statusCode, excerpt });
    else resolve({ excerpt, error: error ?? 'no answer', wasStale });
  }
  const onAbort = () => finish('the delivery was called off');
  const timer = setTimeout(() => finish('no answer in time'), Math.max(0, deadlineAt - performance.now()));
  signal?.addEventListener('abort', onAbort);
  if (signal?.aborted) onAbort();

  function send(target: URL): void {
    if (isOver) return;
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
    // A proxy resolves the name itself. What we can see of it is judged here; what only it can see is left to it.
    lookupFor(url.hostname, allow)(url.hostname, { all: true }, error => {
      if (error instanceof ForbiddenAddress) finish(error.message);
      else send(url);
    });
  }
  return promise;
}

class ForbiddenAddress extends Error {}

function refusal(host: string, address: string | undefined, kind: string): string {
  const what =
    !address || host === address || host === `[${address}]` ? `${host} is` : `${host} leads to ${address},`;
  return `${what} ${kind} address; an administrator may allow it with ASSAY_WEBHOOK_ALLOW`;
}

/** Hands out only addresses that may be connected to, so that a name which changes its address gets nowhere. */
function lookupFor(target: string, allow: readonly Cidr[]): LookupFunction {
  return (hostname, options, callback) => {
    resolveName(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, []);
      // Any other name is the proxy's: the administrator's choice, wherever it is.
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
  if (code === 'ECONNRESET' || code === 'EPIPE') return `${url.host} closed the connection without an answer`;
  if (/^(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)$/.test(code)) return `${url.host} could not be reached`;
  if (code === 'ERR_PROXY_TUNNEL') return `the proxy did not lead to ${url.host}`;
  if (code.startsWith('HPE_')) return `what ${url.host} answered is not HTTP`;
  if (/CERT|SELF_SIGNED|UNABLE_TO|ALTNAME/.test(code))
    return `the certificate of ${url.host} is not trusted: ${error.message}`;
  return `${url.host} could not be reached: ${code || error.message}`;
}

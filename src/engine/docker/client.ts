// The connection to the Docker Engine, and the only file that imports dockerode. It gives every call a deadline and
// translates errors to those of the engine's contract.
import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { connect as connectPlain, type Socket } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { inspect } from 'node:util';
import type Dockerode from 'dockerode';
import { EngineRefused, EngineUnavailable } from '../engine.ts';

/** The engine responded with this HTTP status. */
class DockerRefused extends EngineRefused {
  readonly status: number;
  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

export type DockerContainer = Dockerode.Container;
export type DockerContainerOptions = Dockerode.ContainerCreateOptions;
export type ServiceSpec = Dockerode.ServiceSpec;
export type RegistryAuth = Dockerode.AuthConfig;

type CallLimits = { deadlineMs?: number | undefined; signal?: AbortSignal | undefined };

export type DockerClient = {
  /** Runs a request with a deadline. `action` names it in messages. Throws EngineUnavailable or DockerRefused. */
  call: <T>(action: string, work: (docker: Dockerode) => Promise<T>, limits?: CallLimits) => Promise<T>;
  /** Opens the body of a GET request, for use in `call`. Costs a fifth of the processor time of a response of dockerode. */
  download: (path: string, signal?: AbortSignal) => Promise<Readable>;
  /** Ends every request and refuses new ones, so that the process can exit. */
  close(): void;
};

export type ClientSettings = {
  /** `unix:///path` or `tcp://host:port`, as src/config.ts accepts it. */
  dockerHost: string;
  /** For DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. */
  environment?: Record<string, string | undefined>;
  deadlineMs?: number;
};

/** The options of Node's global agent, whose connections cannot be closed separately. */
const AGENT_OPTIONS = { keepAlive: true, scheduling: 'lifo', timeout: 5_000 } as const;
/** Only TLS uses `servername`. Without it, Node matches a large regular expression for each request. */
const PLAIN_AGENT_OPTIONS = { ...AGENT_OPTIONS, servername: '' };

export function openDocker(settings: ClientSettings): DockerClient {
  const { dockerHost, environment = process.env, deadlineMs = 30_000 } = settings;
  const { certificates, ...address } = connection(dockerHost, environment);
  const agent =
    address.protocol === 'https' ? new HttpsAgent(AGENT_OPTIONS) : new HttpAgent(PLAIN_AGENT_OPTIONS);
  // dockerode formats the options of every request for its debug log, with all sockets of the agent: a quarter of the
  // processor time of a short build.
  Object.assign(agent, { [inspect.custom]: () => 'Agent' });
  const closed = new AbortController();
  const signalOfCall = new AsyncLocalStorage<AbortSignal>();
  const open = async () => {
    const docker = await makeDockerode({ ...address, agent });
    // dockerode accepts a signal only for some requests. This passes the signal of a call to all of its requests.
    const dial = docker.modem.dial.bind(docker.modem);
    docker.modem.dial = (request, callback) => {
      const abortSignal = signalOfCall.getStore();
      dial(abortSignal ? { ...request, abortSignal } : request, callback);
    };
    return docker;
  };
  let opened: Promise<Dockerode> | undefined;
  let tlsOptions: Partial<Certificates> | undefined = certificates === undefined ? {} : undefined;
  const begin = async () => {
    opened ??= open();
    const docker = await opened;
    // Tried before each call until it succeeds: without certificates the engine is unavailable.
    if (tlsOptions === undefined && certificates !== undefined) {
      tlsOptions = certificatesIn(certificates, dockerHost);
      Object.assign(docker.modem, tlsOptions);
    }
    return docker;
  };
  return {
    call: async (action, work, limits = {}) => {
      // The deadline applies to the call, not to a stream that it returns.
      const deadline = new AbortController();
      const timer = setTimeout(() => deadline.abort(), limits.deadlineMs ?? deadlineMs).unref();
      const signal = AbortSignal.any([
        deadline.signal,
        closed.signal,
        ...(limits.signal ? [limits.signal] : []),
      ]);
      let onAbort = () => {};
      const aborted = new Promise<never>((_, reject) => {
        onAbort = () => reject(signal.reason);
        signal.addEventListener('abort', onAbort, { once: true });
      });
      try {
        const run = async () => {
          const docker = await begin();
          signal.throwIfAborted();
          return work(docker);
        };
        return await Promise.race([signalOfCall.run(signal, run), aborted]);
      } catch (error) {
        if (limits.signal?.aborted) throw limits.signal.reason;
        if (closed.signal.aborted)
          throw new EngineUnavailable(`The connection to Docker at ${dockerHost} was closed (${action}).`);
        if (deadline.signal.aborted)
          throw new EngineUnavailable(`Docker at ${dockerHost} did not respond in time (${action}).`);
        throw translate(error, action, dockerHost);
      } finally {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
      }
    },
    download: (path, signal) =>
      download(
        () =>
          address.protocol === 'https'
            ? connectTls({ ...address, port: Number(address.port), ...tlsOptions } as never)
            : connectPlain(
                address.socketPath === undefined
                  ? { host: address.host as string, port: Number(address.port) }
                  : { path: address.socketPath },
              ),
        path,
        AbortSignal.any([closed.signal, ...(signal ? [signal] : [])]),
      ),
    close() {
      closed.abort();
      // Ends streams and idle connections, which have no signal.
      agent.destroy();
    },
  };
}

const MAX_HEAD_BYTES = 64 * 1024;
const MAX_REFUSAL_BYTES = 64 * 1024;

/**
 * With HTTP/1.0 the body is everything up to the end of the connection, so that the socket itself is the stream. An early end
 * looks like a short body: the reader has to notice it.
 */
async function download(connect: () => Socket, path: string, signal: AbortSignal): Promise<Readable> {
  signal.throwIfAborted();
  const socket = connect();
  const onAbort = () => socket.destroy(signal.reason as Error);
  signal.addEventListener('abort', onAbort, { once: true });
  socket.once('close', () => signal.removeEventListener('abort', onAbort));
  // The reader gets it too. Without a listener it would end the process.
  socket.on('error', () => {});
  try {
    socket.write(`GET ${path} HTTP/1.0\r\nHost: docker\r\nConnection: close\r\n\r\n`);
    const head = await readHead(socket);
    const status = Number(/^HTTP\/1\.\d (\d{3})/.exec(head)?.[1]);
    if (/^transfer-encoding:/im.test(head))
      throw new Error('Docker sent a body in chunks to an HTTP/1.0 client');
    if (status === 200) return socket;
    throw Object.assign(new Error(await readRefusal(socket)), { statusCode: status || 500 });
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Reads up to the empty line, and leaves the rest in the stream. */
async function readHead(socket: Socket): Promise<string> {
  let head = Buffer.alloc(0);
  for (;;) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) {
      if (socket.readableEnded || socket.destroyed)
        throw Object.assign(new Error('the connection was closed'), { code: 'ECONNRESET' });
      await Promise.race([once(socket, 'readable'), once(socket, 'end'), once(socket, 'close')]);
      continue;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end >= 0) {
      if (head.length > end + 4) socket.unshift(head.subarray(end + 4));
      return head.toString('latin1', 0, end);
    }
    if (head.length > MAX_HEAD_BYTES) throw new Error('Docker sent no end of its headers');
  }
}

async function readRefusal(socket: Socket): Promise<string> {
  let text = '';
  for await (const chunk of socket) {
    text += chunk;
    if (text.length > MAX_REFUSAL_BYTES) break;
  }
  try {
    return String((JSON.parse(text) as { message: unknown }).message);
  } catch {
    return text.trim();
  }
}

/**
 * Loads dockerode when it is first needed, so that a start of the server does not wait for it. Hides DOCKER_HOST, which
 * dockerode would read and throw if its certificates are missing.
 */
async function makeDockerode(
  address: Omit<Connection, 'certificates'> & { agent: HttpAgent },
): Promise<Dockerode> {
  const { default: Dockerode } = await import('dockerode');
  const { DOCKER_HOST } = process.env;
  delete process.env.DOCKER_HOST;
  try {
    return new Dockerode(address);
  } finally {
    if (DOCKER_HOST !== undefined) process.env.DOCKER_HOST = DOCKER_HOST;
  }
}

type Connection = {
  socketPath?: string;
  host?: string;
  port?: string;
  protocol?: 'http' | 'https';
  /** The directory with the certificates; undefined without TLS. */
  certificates?: string;
};

function connection(dockerHost: string, environment: Record<string, string | undefined>): Connection {
  if (dockerHost.startsWith('unix://')) return { socketPath: dockerHost.slice('unix://'.length) };
  const { hostname, port } = new URL(dockerHost);
  if (!environment.DOCKER_TLS_VERIFY && port !== '2376')
    return { host: hostname, port: port || '2375', protocol: 'http' };
  return {
    host: hostname,
    port: port || '2376',
    protocol: 'https',
    certificates: environment.DOCKER_CERT_PATH || join(homedir(), '.docker'),
  };
}

type Certificates = Record<'ca' | 'cert' | 'key', string>;

function certificatesIn(directory: string, dockerHost: string): Certificates {
  const read = (name: string) => {
    try {
      return readFileSync(join(directory, name), 'utf8');
    } catch (error) {
      throw new EngineUnavailable(
        `Docker at ${dockerHost} needs TLS, and ${join(directory, name)} cannot be read ` +
          `(${(error as NodeJS.ErrnoException).code}): ca.pem, cert.pem and key.pem must be in DOCKER_CERT_PATH`,
        false,
      );
    }
  };
  return { ca: read('ca.pem'), cert: read('cert.pem'), key: read('key.pem') };
}

/** An engine that is shutting down responds with status 500 and one of these messages for a while. */
const SHUTTING_DOWN =
  /transport is closing|connection is closing|database not open|ttrpc: closed|context canceled|containerd\.sock/;

function translate(error: unknown, action: string, dockerHost: string): unknown {
  if (!(error instanceof Error)) return error;
  if ('statusCode' in error && typeof error.statusCode === 'number') {
    if (error.statusCode >= 500 && SHUTTING_DOWN.test(reasonOf(error)))
      return new EngineUnavailable(
        `Docker at ${dockerHost} is shutting down (${action}): ${reasonOf(error)}`,
      );
    return new DockerRefused(`Docker refused: ${action}: ${reasonOf(error)}`, error.statusCode);
  }
  if (!('code' in error)) return error;
  const code = String(error.code);
  const advice =
    code === 'EACCES'
      ? "this user may not use its socket: add it to the group 'docker'"
      : code === 'ENOENT' || code === 'ECONNREFUSED'
        ? 'nothing responds there: is Docker running?'
        : `the connection broke (${code})`;
  const reached = !['EACCES', 'ENOENT', 'ECONNREFUSED'].includes(code);
  return new EngineUnavailable(`Docker at ${dockerHost} cannot be reached (${action}): ${advice}`, reached);
}

function reasonOf(error: Error): string {
  const message = 'json' in error && (error.json as { message?: unknown } | null)?.message;
  return typeof message === 'string' ? message : error.message.trim();
}

export function isRefused(error: unknown, ...statuses: number[]): error is DockerRefused {
  return error instanceof DockerRefused && statuses.includes(error.status);
}

/** Undefined if the call is refused with one of the statuses. */
export async function unlessRefused<T>(statuses: number[], work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (isRefused(error, ...statuses)) return undefined;
    throw error;
  }
}

/** Reads all progress messages of an import, load or pull. Throws if one reports an error. */
export async function readProgress(stream: NodeJS.ReadableStream): Promise<string[]> {
  const lines: string[] = [];
  let rest = '';
  for await (const chunk of stream) {
    rest += chunk.toString();
    const complete = rest.split('\n');
    rest = complete.pop() ?? '';
    lines.push(...complete);
  }
  return [...lines, rest]
    .filter(line => line.trim() !== '')
    .map(line => {
      const { error, stream: text, status } = JSON.parse(line) as Record<string, string | undefined>;
      if (error) throw new EngineRefused(error);
      return (text ?? status ?? '').trim();
    });
}

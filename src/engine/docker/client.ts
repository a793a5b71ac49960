// The connection to the Docker Engine, and the only file that imports dockerode. It gives every call a deadline and
// translates errors to those of the engine's contract.
import { AsyncLocalStorage } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { homedir } from 'node:os';
import { join } from 'node:path';
import Dockerode from 'dockerode';
import { EngineRefused, EngineUnavailable } from '../engine.ts';

/** The engine answered with this HTTP status. */
class DockerRefused extends EngineRefused {
  readonly status: number;
  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

export type DockerContainer = Dockerode.Container;
export type DockerContainerOptions = Dockerode.ContainerCreateOptions;

type CallLimits = { deadlineMs?: number | undefined; signal?: AbortSignal | undefined };

export type DockerClient = {
  docker: Dockerode;
  /** Runs a request with a deadline. `what` names it in messages. Throws EngineUnavailable or DockerRefused. */
  call: <T>(what: string, work: () => Promise<T>, limits?: CallLimits) => Promise<T>;
  /** Ends every request that is under way and refuses new ones, so that the process can exit. */
  close(): void;
};

export type ClientSettings = {
  /** `unix:///path` or `tcp://host:port`, as src/config.ts accepts it. */
  dockerHost: string;
  /** For DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. */
  environment?: Record<string, string | undefined>;
  deadlineMs?: number;
};

/** Like Node's global agent, which cannot be used: its connections cannot be closed apart from those of others. */
const AGENT_OPTIONS = { keepAlive: true, scheduling: 'lifo', timeout: 5_000 } as const;

export function openDocker(settings: ClientSettings): DockerClient {
  const { dockerHost, environment = process.env, deadlineMs = 30_000 } = settings;
  const { certificates, ...address } = connection(dockerHost, environment);
  const agent = address.protocol === 'https' ? new HttpsAgent(AGENT_OPTIONS) : new HttpAgent(AGENT_OPTIONS);
  const docker = makeDockerode({ ...address, agent });
  const closed = new AbortController();
  // dockerode accepts a signal for some requests only. This way every request of a call gets the signal of the call.
  const signalOfCall = new AsyncLocalStorage<AbortSignal>();
  const dial = docker.modem.dial.bind(docker.modem);
  docker.modem.dial = (request, callback) => {
    const abortSignal = signalOfCall.getStore();
    dial(abortSignal ? { ...request, abortSignal } : request, callback);
  };
  let unread = certificates;
  // Before the first call, and again until it succeeds: without certificates the engine counts as unavailable.
  const readCertificates = () => {
    if (unread === undefined) return;
    Object.assign(docker.modem, certificatesIn(unread, dockerHost));
    unread = undefined;
  };
  return {
    docker,
    call: async (what, work, limits = {}) => {
      // Aborted only during the call: a stream that it returns may last longer than the deadline.
      const deadline = new AbortController();
      const late = setTimeout(() => deadline.abort(), limits.deadlineMs ?? deadlineMs).unref();
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
        signal.throwIfAborted();
        readCertificates();
        return await Promise.race([signalOfCall.run(signal, work), aborted]);
      } catch (error) {
        if (limits.signal?.aborted) throw limits.signal.reason;
        if (closed.signal.aborted)
          throw new EngineUnavailable(`The connection to Docker at ${dockerHost} was closed (${what}).`);
        if (deadline.signal.aborted)
          throw new EngineUnavailable(`Docker at ${dockerHost} did not answer in time (${what}).`);
        throw translate(error, what, dockerHost);
      } finally {
        clearTimeout(late);
        signal.removeEventListener('abort', onAbort);
      }
    },
    close() {
      closed.abort();
      // This ends what has no signal any more: streams, and idle connections.
      agent.destroy();
    },
  };
}

/** dockerode reads DOCKER_HOST too, and throws when its certificates are missing. Only the setting counts. */
function makeDockerode(address: Omit<Connection, 'certificates'> & { agent: HttpAgent }): Dockerode {
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
  /** The directory of the certificates; undefined without TLS. */
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

function certificatesIn(directory: string, dockerHost: string): Record<'ca' | 'cert' | 'key', string> {
  const read = (name: string) => {
    try {
      return readFileSync(join(directory, name), 'utf8');
    } catch (cause) {
      throw new EngineUnavailable(
        `Docker at ${dockerHost} needs TLS, and ${join(directory, name)} cannot be read ` +
          `(${(cause as NodeJS.ErrnoException).code}): ca.pem, cert.pem and key.pem must be in DOCKER_CERT_PATH`,
        false,
      );
    }
  };
  return { ca: read('ca.pem'), cert: read('cert.pem'), key: read('key.pem') };
}

/** An engine that is shutting down still answers for a while, with status 500 and one of these messages. */
const SHUTTING_DOWN =
  /transport is closing|connection is closing|database not open|ttrpc: closed|context canceled|containerd\.sock/;

function translate(error: unknown, what: string, dockerHost: string): unknown {
  if (!(error instanceof Error)) return error;
  if ('statusCode' in error && typeof error.statusCode === 'number') {
    if (error.statusCode >= 500 && SHUTTING_DOWN.test(reasonOf(error)))
      return new EngineUnavailable(`Docker at ${dockerHost} is shutting down (${what}): ${reasonOf(error)}`);
    return new DockerRefused(`Docker refused: ${what}: ${reasonOf(error)}`, error.statusCode);
  }
  if (!('code' in error)) return error;
  const code = String(error.code);
  const advice =
    code === 'EACCES'
      ? "this user may not use its socket: add it to the group 'docker'"
      : code === 'ENOENT' || code === 'ECONNREFUSED'
        ? 'nothing answers there: is Docker running?'
        : `the connection broke (${code})`;
  const reached = !['EACCES', 'ENOENT', 'ECONNREFUSED'].includes(code);
  return new EngineUnavailable(`Docker at ${dockerHost} cannot be reached (${what}): ${advice}`, reached);
}

function reasonOf(error: Error): string {
  const message = 'json' in error && (error.json as { message?: unknown } | null)?.message;
  return typeof message === 'string' ? message : error.message.trim();
}

export function isRefused(error: unknown, ...statuses: number[]): error is DockerRefused {
  return error instanceof DockerRefused && statuses.includes(error.status);
}

/** Undefined when the call is refused with one of the statuses. */
export async function unlessRefused<T>(statuses: number[], work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (isRefused(error, ...statuses)) return undefined;
    throw error;
  }
}

/** Reads the progress messages of an import, load or pull to their end; throws when one reports an error. */
export async function readProgress(stream: NodeJS.ReadableStream): Promise<string[]> {
  const lines: string[] = [];
  let rest = '';
  for await (const chunk of stream) {
    rest += chunk.toString();
    const parts = rest.split('\n');
    rest = parts.pop() ?? '';
    lines.push(...parts);
  }
  return [...lines, rest]
    .filter(line => line.trim() !== '')
    .map(line => {
      const { error, stream: text, status } = JSON.parse(line) as Record<string, string | undefined>;
      if (error) throw new EngineRefused(error);
      return (text ?? status ?? '').trim();
    });
}

// The one door to dockerode: where the engine is, a deadline for every call, and what its refusals mean.
// What is asked of it is container.ts's, image.ts's and network.ts's.
import { AsyncLocalStorage } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { homedir } from 'node:os';
import { join } from 'node:path';
import Dockerode from 'dockerode';

/** Nobody answers: the work waits, nothing is decided. */
export class EngineUnavailable extends Error {
  override name = 'EngineUnavailable';
  /** False when no connection was made: what was asked has certainly not happened. */
  readonly reached: boolean;
  constructor(message: string, reached = true) {
    super(message);
    this.reached = reached;
  }
}
/** The engine answered, and said no. */
export class EngineRefused extends Error {
  override name = 'EngineRefused';
  readonly status: number;
  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}
export class ImageMissing extends Error {
  override name = 'ImageMissing';
}
/** A volume that was to be mounted is gone: nothing was started. */
export class VolumeLost extends Error {
  override name = 'VolumeLost';
}

export interface DockerDoor {
  docker: Dockerode;
  /** Runs one request with a deadline; throws EngineUnavailable or EngineRefused. */
  call: <T>(what: string, work: (signal: AbortSignal) => Promise<T>, limits?: CallLimits) => Promise<T>;
  /** Ends every request that is under way and refuses new ones: nothing keeps the process from ending. */
  close(): void;
}

export interface CallLimits {
  deadlineMs?: number;
  signal?: AbortSignal | undefined;
}

export interface DoorSettings {
  /** `unix:///path`, `tcp://host:port` */
  dockerHost: string;
  /** For DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. */
  environment?: Record<string, string | undefined>;
  deadlineMs?: number;
}

/** As Node's own agent keeps connections, which cannot be ended apart from everybody else's. */
const KEPT = { keepAlive: true, scheduling: 'lifo', timeout: 5_000 } as const;

export function openDocker(settings: DoorSettings): DockerDoor {
  const { dockerHost, environment = process.env, deadlineMs = 30_000 } = settings;
  const { certificates, ...address } = connection(dockerHost, environment);
  const agent = address.protocol === 'https' ? new HttpsAgent(KEPT) : new HttpAgent(KEPT);
  const docker = makeDockerode({ ...address, agent });
  const closed = new AbortController();
  // dockerode takes a signal for some requests only; this one reaches all of them.
  const underWay = new AsyncLocalStorage<AbortSignal>();
  const dial = docker.modem.dial.bind(docker.modem);
  docker.modem.dial = (request, callback) => {
    const abortSignal = request.abortSignal ?? underWay.getStore();
    dial(abortSignal ? { ...request, abortSignal } : request, callback);
  };
  let unread = certificates;
  // Not before the first call, and again until it succeeds: without them the engine is away, as it is without its socket.
  const readCertificates = () => {
    if (unread === undefined) return;
    Object.assign(docker.modem, certificatesIn(unread, dockerHost));
    unread = undefined;
  };
  return {
    docker,
    call: async (what, work, limits = {}) => {
      // Aborted only while the call lasts: a stream that it returns is not cut at the deadline.
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
        return await Promise.race([underWay.run(signal, () => work(signal)), aborted]);
      } catch (error) {
        if (limits.signal?.aborted) throw limits.signal.reason;
        if (closed.signal.aborted)
          throw new EngineUnavailable(`Docker at ${dockerHost} is not asked any more (${what}).`);
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
      // Also what no signal reaches any more: streams, and connections that are kept for the next request.
      agent.destroy();
    },
  };
}

/** dockerode looks at DOCKER_HOST and its certificates too, and throws where they are missing: only the setting counts. */
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
  /** The directory that the certificates are in, where TLS is asked for. */
  certificates?: string;
};

function connection(dockerHost: string, environment: Record<string, string | undefined>): Connection {
  if (dockerHost.startsWith('unix://')) {
    return { socketPath: dockerHost.slice('unix://'.length) };
  }
  if (!URL.canParse(dockerHost) || !dockerHost.startsWith('tcp://')) {
    throw new Error(`DOCKER_HOST must be unix:///path or tcp://host:port, and is ${dockerHost}.`);
  }
  const { hostname, port } = new URL(dockerHost);
  if (!environment.DOCKER_TLS_VERIFY && port !== '2376') {
    return { host: hostname, port: port || '2375', protocol: 'http' };
  }
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
        `Docker at ${dockerHost} is asked with TLS, and ${join(directory, name)} cannot be read ` +
          `(${(cause as NodeJS.ErrnoException).code}): ca.pem, cert.pem and key.pem must be in DOCKER_CERT_PATH`,
        false,
      );
    }
  };
  return { ca: read('ca.pem'), cert: read('cert.pem'), key: read('key.pem') };
}

/** An engine that is going down still answers for a while, with 500 and in these words. */
const GOING_DOWN =
  /transport is closing|connection is closing|database not open|ttrpc: closed|context canceled|containerd\.sock/;

function translate(error: unknown, what: string, dockerHost: string): unknown {
  if (!(error instanceof Error)) return error;
  if ('statusCode' in error && typeof error.statusCode === 'number') {
    if (error.statusCode >= 500 && GOING_DOWN.test(reasonOf(error)))
      return new EngineUnavailable(`Docker at ${dockerHost} is going down (${what}): ${reasonOf(error)}`);
    return new EngineRefused(`Docker refused: ${what}: ${reasonOf(error)}`, error.statusCode);
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

export function isRefused(error: unknown, ...statuses: number[]): error is EngineRefused {
  return error instanceof EngineRefused && statuses.includes(error.status);
}

/** Reads the progress messages of an import, load or pull to their end; throws when one tells of an error. */
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
      if (error) throw new EngineRefused(error, 500);
      return (text ?? status ?? '').trim();
    });
}

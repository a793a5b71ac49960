// Shared by the benchmarks: servers as child processes, a light HTTP/1.1 load generator over TLS, medians, and one line
// for each result.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, readFileSync, statfsSync } from 'node:fs';
import type { Socket } from 'node:net';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { pack } from '../../build/pack.ts';
import type { Machine } from '../../build/strip.ts';
import { codeCachePath, databasePath } from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';

const DEADLINE_MS = 60_000;

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] as number;
}

let failures = 0;

/** Prints a figure with its limit, and remembers if the limit is missed. */
export function report(name: string, figure: number, relation: '≥' | '≤', bound: number, unit = ''): void {
  const holds = relation === '≥' ? figure >= bound : figure <= bound;
  if (!holds) failures += 1;
  const digits = unit === '' ? 2 : 0;
  console.log(
    `${name}: ${figure.toFixed(digits)}${unit} (limit ${relation} ${bound}${unit}) ${holds ? 'ok' : 'MISSED'}`,
  );
}

/** Prints the load of the machine, which other work raises. */
export function showLoad(when: 'before' | 'after'): void {
  const values = loadavg().map(value => value.toFixed(1));
  console.log(`load ${when}: ${values.join(' ')}`);
}

/** The instance of a data directory: the label of everything that it has in Docker. */
export function instanceIn(data: string): string {
  using sqlite = openSqlite(databasePath(data));
  return sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get() as string;
}

/** Once after an upgrade, the server keeps its compiled code when it is quiet, which takes about 50 ms. */
export async function untilCodeIsKept(data: string): Promise<void> {
  const endsAt = performance.now() + DEADLINE_MS;
  while (!existsSync(codeCachePath(data))) {
    if (performance.now() > endsAt) throw new Error(`the server at ${data} does not keep its compiled code`);
    await pause(100);
  }
}

/** The exit status of the benchmark, after all figures are reported. */
export const exitStatus = () => (failures === 0 ? 0 : 1);

/**
 * Builds the executable and copies it to the directory, as an installation does. A file that was just built is not
 * measured: the build leaves it in the page cache in large blocks, which the kernel maps whole and counts as memory of
 * the server (20 MB more than for a copy, or for the same file read from disk).
 */
export async function installExecutable(directory: string): Promise<string> {
  const root = join(import.meta.dirname, '../..');
  const built = join(root, 'dist/assay');
  await pack({ output: built, machine: process.arch as Machine, force: false });
  const installed = join(directory, 'assay');
  copyFileSync(built, installed);
  return installed;
}

export type Child = { process: ChildProcess; port: number; end(): Promise<void> };

/** A service has no variables that make Node load certificates or options. */
function serviceEnvironment(): NodeJS.ProcessEnv {
  const { NODE_EXTRA_CA_CERTS, NODE_OPTIONS, SSL_CERT_DIR, SSL_CERT_FILE, ...environment } = process.env;
  return environment;
}

/** Starts a server and resolves when a line of its output matches. */
export async function startChild(
  command: readonly string[],
  options: {
    port: number;
    env?: Record<string, string>;
    ready: RegExp;
    ipc?: boolean;
    onOutput?: (text: string) => void;
  },
): Promise<Child> {
  const child = spawn(command[0] as string, command.slice(1), {
    env: { ...serviceEnvironment(), ...options.env },
    stdio: ['ignore', 'pipe', 'inherit', ...(options.ipc ? (['ipc'] as const) : [])],
  });
  const closed = once(child, 'close');
  // A benchmark that fails leaves no server behind.
  const kill = () => void child.kill('SIGKILL');
  process.once('exit', kill);
  closed.then(() => process.off('exit', kill));
  let text = '';
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`${command[0]} is not ready`));
    }, DEADLINE_MS);
    const done = (settle: () => void) => {
      clearTimeout(timer);
      settle();
    };
    child.stdout?.setEncoding('utf8').on('data', part => {
      text += part;
      options.onOutput?.(part);
      if (options.ready.test(text)) done(resolve);
    });
    closed.then(() => done(() => reject(new Error(`${command[0]} ended before it was ready`))));
  });
  return {
    process: child,
    port: options.port,
    end: async () => {
      child.kill('SIGTERM');
      await closed;
    },
  };
}

/** The processor time that a process has used so far, with or without that of children that have ended. */
export function cpuMsOf(pid: number, children?: 'and children'): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  const HERTZ = 100;
  const ticks = fields.slice(11, children ? 15 : 13).reduce((sum, field) => sum + Number(field), 0);
  return (ticks * 1000) / HERTZ;
}

export function residentBytesOf(pid: number): number {
  const [, kib] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) * 1024;
}

/** Opens a TLS connection, on an open one if there is one. */
export async function openSocket(port: number, ca: string, opened?: Socket): Promise<TLSSocket> {
  const socket = connect({
    host: '127.0.0.1',
    port,
    ca,
    ALPNProtocols: ['http/1.1'],
    ...(opened && { socket: opened }),
  });
  socket.setNoDelay(true);
  await once(socket, 'secureConnect');
  return socket;
}

/** A GET, or a POST if there is a value to send. */
export function requestBytes(path: string, auth: string, sent?: unknown): Buffer {
  const body = sent === undefined ? '' : JSON.stringify(sent);
  return Buffer.from(
    [
      `${sent === undefined ? 'GET' : 'POST'} ${path} HTTP/1.1`,
      'Host: localhost',
      `Authorization: Basic ${Buffer.from(auth).toString('base64')}`,
      ...(sent === undefined
        ? []
        : ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]),
      '',
      body,
    ].join('\r\n'),
  );
}

/** One request on an open connection: the whole response, which must have the status and a length. */
export async function askOnce(socket: TLSSocket, request: Buffer, status = 200): Promise<Buffer> {
  const chunks: Buffer[] = [];
  return new Promise((resolve, reject) => {
    const onData = (part: Buffer) => {
      chunks.push(part);
      const answer = chunks.length === 1 ? part : Buffer.concat(chunks);
      const headEnd = answer.indexOf('\r\n\r\n');
      if (headEnd < 0) return;
      const head = answer.toString('latin1', 0, headEnd);
      const [, length] = /content-length: (\d+)/i.exec(head) ?? [];
      if (length === undefined || !head.startsWith(`HTTP/1.1 ${status} `)) {
        reject(new Error(`unexpected answer: ${answer}`));
        return;
      }
      if (answer.length < headEnd + 4 + Number(length)) return;
      socket.off('data', onData);
      socket.off('error', reject);
      resolve(answer);
    };
    socket.on('data', onData);
    socket.once('error', reject);
    socket.write(request);
  });
}

/**
 * Requests per second on persistent connections, one at a time on each. The length of a response is read once and then
 * only bytes are counted, so that the load generator costs less than the server.
 */
export async function measureRate(
  sockets: readonly TLSSocket[],
  request: Buffer,
  durationMs: number,
  status = 200,
): Promise<number> {
  const { length } = await askOnce(sockets[0] as TLSSocket, request, status);
  let answered = 0;
  const startedAt = performance.now();
  const endsAt = startedAt + durationMs;
  await Promise.all(
    sockets.map(
      socket =>
        new Promise<void>((resolve, reject) => {
          let missing = length;
          const onData = (part: Buffer) => {
            missing -= part.length;
            if (missing > 0) return;
            if (missing < 0) {
              reject(new Error('responses differ in length'));
              return;
            }
            answered += 1;
            if (performance.now() >= endsAt) {
              socket.off('data', onData);
              resolve();
              return;
            }
            missing = length;
            socket.write(request);
          };
          socket.on('data', onData);
          socket.write(request);
        }),
    ),
  );
  return (answered * 1000) / (performance.now() - startedAt);
}

const MEMORY = '/dev/shm';

/**
 * Moves temporary files to memory if there is enough. Syncing to a disk that others share may take ten times as long as a
 * moment before.
 */
export function writeToMemory(): void {
  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize;
  };
  if (existsSync(MEMORY) && freeBytes() > 4 * 1024 ** 3) process.env.TMPDIR = MEMORY;
  console.log(`files are written to ${tmpdir()}`);
}

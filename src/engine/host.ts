// What `assay doctor` asks about the host: programs, Docker, libraries, the clock, and whether the server answers.
// Each question has a deadline. Whether an answer is good enough is decided in src/cli/checks.ts.

import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const DEADLINE_MS = 10_000;

/** What a program says of its version, on either stream; undefined where it is not there. */
export async function programVersion(program: string, flag: string): Promise<string | undefined> {
  try {
    const { stdout, stderr } = await run(program, [flag], { timeout: DEADLINE_MS });
    return (stdout || stderr).trim().split('\n')[0];
  } catch {
    return undefined;
  }
}

/** The C library's version, and which of the other libraries the executable needs are not loaded. */
export function libraries(): { glibc: string | undefined; missing: string[] } {
  // Or it would ask name servers about every open connection.
  Object.assign(process.report, { excludeNetwork: true });
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  const mapped = readFileSync('/proc/self/maps', 'utf8');
  return {
    glibc: header.glibcVersionRuntime,
    missing: ['libstdc++', 'libatomic'].filter(name => !mapped.includes(`/${name}.so`)),
  };
}

/** Free bytes where a path is or will be. */
export async function freeBytes(path: string): Promise<number> {
  let place = resolve(path);
  while (!existsSync(place)) place = dirname(place);
  const { bavail, bsize } = await statfs(place);
  return bavail * bsize;
}

/** Undefined where nobody on this host can tell. */
export async function isClockSynchronized(): Promise<boolean | undefined> {
  try {
    const { stdout } = await run('timedatectl', ['show', '--property=NTPSynchronized', '--value'], {
      timeout: DEADLINE_MS,
    });
    return stdout.trim() === 'yes';
  } catch {
    return undefined;
  }
}

/** The status of /healthz on this host; undefined where nobody answers. */
export function checkServer(
  listen: { host: string; port: number },
  deadlineMs: number,
): Promise<number | undefined> {
  const wildcard = new Map([
    ['0.0.0.0', '127.0.0.1'],
    ['::', '::1'],
  ]);
  return new Promise(done => {
    const asked = request(
      {
        host: wildcard.get(listen.host) ?? listen.host,
        port: listen.port,
        path: '/healthz',
        // Asked is whether it lives; who it is was decided by the address, which is this host's.
        rejectUnauthorized: false,
        agent: false,
        signal: AbortSignal.timeout(deadlineMs),
      },
      answer => {
        answer.resume();
        done(answer.statusCode);
      },
    );
    asked.on('error', () => done(undefined));
    asked.end();
  });
}

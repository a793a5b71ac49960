// Inspects the host for `assay doctor`: programs, Docker, libraries, the clock, and whether the server responds. Each
// check has a deadline. src/cli/checks.ts evaluates the results.

import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const DEADLINE_MS = 10_000;

/** The first line of a program's version output, on either stream. Undefined if it is not installed. */
export async function programVersion(program: string, flag: string): Promise<string | undefined> {
  try {
    const { stdout, stderr } = await run(program, [flag], { timeout: DEADLINE_MS });
    return (stdout || stderr).trim().split('\n')[0];
  } catch {
    return undefined;
  }
}

/** The version of the C library, and which other libraries of the executable are not loaded. */
export function libraries(): { glibc: string | undefined; missing: string[] } {
  // The report would otherwise resolve the names of all open connections.
  Object.assign(process.report, { excludeNetwork: true });
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  const mapped = readFileSync('/proc/self/maps', 'utf8');
  return {
    glibc: header.glibcVersionRuntime,
    missing: ['libstdc++', 'libatomic'].filter(name => !mapped.includes(`/${name}.so`)),
  };
}

/** Free bytes on the file system of a path that may not exist yet. */
export async function freeBytes(path: string): Promise<number> {
  let existing = resolve(path);
  while (!existsSync(existing)) existing = dirname(existing);
  const { bavail, bsize } = await statfs(existing);
  return bavail * bsize;
}

const NFS_MAGIC = 0x6969;

export async function fileSystemOf(path: string): Promise<{ isNfs: boolean; freeBytes: number }> {
  const { type, bavail, bsize } = await statfs(path);
  return { isNfs: type === NFS_MAGIC, freeBytes: bavail * bsize };
}

/** Undefined if this host has no timedatectl. */
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

/** The status of /healthz on this host. Undefined if there is no response. */
export function requestHealth(
  listen: { host: string; port: number },
  deadlineMs: number,
): Promise<number | undefined> {
  const wildcard = new Map([
    ['0.0.0.0', '127.0.0.1'],
    ['::', '::1'],
  ]);
  return new Promise(done => {
    const sent = request(
      {
        host: wildcard.get(listen.host) ?? listen.host,
        port: listen.port,
        path: '/healthz',
        // The address is this host's own, so the certificate need not identify it.
        rejectUnauthorized: false,
        agent: false,
        signal: AbortSignal.timeout(deadlineMs),
      },
      response => {
        response.resume();
        done(response.statusCode);
      },
    );
    sent.on('error', () => done(undefined));
    sent.end();
  });
}

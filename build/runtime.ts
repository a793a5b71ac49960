// Finds the Node that an executable is made from. The one for this machine is installed with the packages. The one for
// another processor, and the oldest one that the client supports, are downloaded from the npm registry once and checked.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { root } from './bundle.ts';
import type { Machine } from './strip.ts';

const run = promisify(execFile);
const fetchTimeoutMs = 300_000;
const machines: readonly Machine[] = ['x64', 'arm64'];

type LockFile = { packages: Record<string, { version: string; integrity: string } | undefined> };

export async function findRuntime(machine: Machine): Promise<string> {
  const name = `node-linux-${machine}`;
  const installed = join(root, 'node_modules', name, 'bin/node');
  if (existsSync(installed)) return installed;

  const lock: LockFile = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8'));
  const locked = lock.packages[`node_modules/${name}`];
  if (locked === undefined) throw new Error(`package-lock.json does not name ${name}`);
  if (`v${locked.version}` !== process.version) {
    throw new Error(`${name} is ${locked.version}, but this is Node ${process.version}: run npm ci`);
  }
  return download(name, locked);
}

/** Not in the lock file, because npm would replace the project's own Node with it in node_modules/.bin. */
const oldestForClient = {
  version: '20.0.0',
  integrity: {
    x64: 'sha512-CqTTD0yNmrI11aqmI+AB1VWX4AuBcxNul+dWnhCyOmAl1aMzCs7/Sac92dti1rmKKt4C/zvCrxhPa5XueoPl6g==',
    arm64: 'sha512-xC4N1D6L3bEgePclcqb2tOyU9MLoP0l1S2DEBq1TK2L9wX/uodXpqIZIK1ya/98C4B1bGBlkbQxYuk3fhxu2pQ==',
  },
};

/** The oldest Node that the client supports, for its tests. */
export function findOldestForClient(machine: Machine): Promise<string> {
  const { version, integrity } = oldestForClient;
  return download(`node-linux-${machine}`, { version, integrity: integrity[machine] });
}

/** With the project's own Node, npm does not find the settings of the system's npm, such as a private authority. */
const systemPath = () =>
  (process.env.PATH ?? '')
    .split(':')
    .filter(directory => !directory.endsWith('node_modules/.bin'))
    .join(':');

/** The path of a Node that was downloaded now or before. */
async function download(name: string, locked: { version: string; integrity: string }): Promise<string> {
  const cache = join(root, 'node_modules/.cache/assay');
  const kept = join(cache, `${name}-${locked.version}`);
  if (existsSync(kept)) return kept;

  await mkdir(cache, { recursive: true });
  const work = await mkdtemp(join(cache, 'fetch-'));
  try {
    // A connection that stalls is given up early and tried again.
    const retries = ['--fetch-timeout=60000', '--fetch-retries=4', '--fetch-retry-mintimeout=1000'];
    await run(
      'npm',
      ['pack', `${name}@${locked.version}`, '--silent', '--pack-destination', work, ...retries],
      { cwd: work, timeout: fetchTimeoutMs, env: { ...process.env, PATH: systemPath() } },
    );
    const archive = join(work, `${name}-${locked.version}.tgz`);
    const integrity = `sha512-${createHash('sha512')
      .update(await readFile(archive))
      .digest('base64')}`;
    if (integrity !== locked.integrity) throw new Error(`${name}: the archive does not match its checksum`);
    await run('tar', ['-xzf', archive, '-C', work, 'package/bin/node'], { timeout: fetchTimeoutMs });
    await rename(join(work, 'package/bin/node'), kept);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return kept;
}

// `node build/runtime.ts` downloads all of them ahead, for scripts/test: later, its tests change networks.
if (import.meta.main) {
  for (const machine of machines) await findRuntime(machine);
  await findOldestForClient(process.arch as Machine);
}

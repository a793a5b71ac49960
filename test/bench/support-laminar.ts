// Laminar, a small CI server, for a comparison on the same machine. Debian has no package of it: it is measured if `laminard`
// and `laminarc` are on the PATH.
import { execFile, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pollUntil } from '../drill/support/poll.ts';
import { freePort } from '../support/ports.ts';
import { startChild } from './support.ts';

export type Laminar = {
  /** Runs the job. The output of `before` comes first. */
  run(before: string): Promise<string>;
  end(): Promise<void>;
};

/** Starts it with one job, in a new directory. Undefined if it is not installed. */
export async function startLaminar(home: string, script: string): Promise<Laminar | undefined> {
  if (spawnSync('sh', ['-c', 'command -v laminard laminarc']).status !== 0) return undefined;
  const job = join(home, 'cfg/jobs/line.run');
  mkdirSync(join(home, 'cfg/jobs'), { recursive: true });
  writeFileSync(job, `#!/bin/sh\n${script}\n`);
  chmodSync(job, 0o755);
  const address = `unix:${join(home, 'socket')}`;
  const server = await startChild(['sh', '-c', 'echo started && exec laminard'], {
    port: 0,
    ready: /started/,
    env: {
      LAMINAR_HOME: home,
      LAMINAR_BIND_RPC: address,
      LAMINAR_BIND_HTTP: `127.0.0.1:${await freePort()}`,
    },
  });
  const ask = async (command: string) => {
    const env = { ...process.env, LAMINAR_HOST: address };
    return (await promisify(execFile)('sh', ['-c', command], { env })).stdout;
  };
  await pollUntil(
    10_000,
    () => ask('laminarc show-jobs').catch(() => ''),
    jobs => jobs.includes('line'),
    50,
  );
  return { run: before => ask(`${before} && laminarc run line`), end: server.end };
}

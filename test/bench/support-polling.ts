// Polling: the processor time and the memory of 1,000 polled repositories at the default rate. The time of git and ssh
// counts, that of the Git host does not.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { createRepository } from '../support/repository.ts';
import { startSshd } from '../support/sshd.ts';
import { cpuMsOf, report, startChild } from './support.ts';

const REPOSITORIES = 1_000;
const BRANCHES = 20;
const WINDOW_MS = 120_000;
const MIB = 1024 * 1024;

type Progress = { unchanged: number; changed: number; failed: number; usedBytes: number };

export async function measurePolling(): Promise<void> {
  const sshd = await startSshd();
  const dataDirectory = mkdtempSync(join(tmpdir(), 'assay-polling-'));
  try {
    const keyPair = generateKeyPair('polling');
    sshd.addKey(keyPair.publicKey);
    mkdirSync(join(dataDirectory, 'ssh'));
    writeFileSync(join(dataDirectory, 'ssh', 'config'), sshd.clientConfig);
    const original = join(sshd.repositoriesDirectory, 'original.git');
    createRepository(
      original,
      Array.from({ length: BRANCHES }, (_, n) => ({ message: `${n}\n`, branch: n === 0 ? 'main' : `b${n}` })),
    );
    const names = Array.from({ length: REPOSITORIES }, (_, n) => `r${n}.git`);
    for (const name of names) symlinkSync(original, join(sshd.repositoriesDirectory, name));
    writeFileSync(
      join(dataDirectory, 'repositories.json'),
      JSON.stringify({ urls: names.map(sshd.urlFor), ...keyPair }),
    );
    const reported: Progress[] = [];
    const program = join(import.meta.dirname, 'support-polling-watch.ts');
    const child = await startChild([process.execPath, program, dataDirectory], {
      port: 0,
      ready: /\n/,
      onOutput: text =>
        reported.push(
          ...text
            .split('\n')
            .filter(Boolean)
            .map(line => JSON.parse(line)),
        ),
    });
    const pid = child.process.pid as number;
    try {
      const before = cpuMsOf(pid, 'and children');
      const startedMs = performance.now();
      await delay(WINDOW_MS);
      const share = (cpuMsOf(pid, 'and children') - before) / (performance.now() - startedMs);
      const [first, last] = [reported[0], reported.at(-1)] as [Progress, Progress];
      const looks = last.unchanged - first.unchanged;
      console.log(`${looks} looks in ${WINDOW_MS / 1000} s, ${last.failed + last.changed} unexpected`);
      report('1,000 polled repositories, share of a core', share, '≤', 0.25);
      report('looks that found what was expected, of 2 a second', looks / ((WINDOW_MS / 1000) * 2), '≥', 0.8);
      report(
        'memory after polling for two minutes, growth',
        (last.usedBytes - first.usedBytes) / MIB,
        '≤',
        4,
        ' MiB',
      );
    } finally {
      await child.end();
    }
  } finally {
    await sshd.close();
    rmSync(dataDirectory, { recursive: true, force: true });
  }
}

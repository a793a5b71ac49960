// A Git host for tests: an SSH server, a data directory that is configured for it, and a key that it accepts.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { GitFailure } from '../../src/engine/git/git.ts';
import type { SshAccess } from '../../src/engine/git/ssh.ts';
import { type CommitDescription, createRepository } from './repository.ts';
import { startSshd } from './sshd.ts';

// Removed after the tests of the calling file.
export async function startGitHost() {
  const sshd = await startSshd();
  const dataDirectory = mkdtempSync(join(tmpdir(), 'assay-git-'));
  after(async () => {
    await sshd.close();
    rmSync(dataDirectory, { recursive: true, force: true });
  });
  const { publicKey, privateKey } = generateKeyPair('assay test');
  sshd.addKey(publicKey);
  mkdirSync(join(dataDirectory, 'ssh'));
  writeFileSync(join(dataDirectory, 'ssh', 'config'), sshd.clientConfig);
  const ssh: SshAccess = { dataDirectory, privateKey };
  let counter = 0;
  const remote = (commits: CommitDescription[] = []) => {
    const name = `repository-${++counter}.git`;
    const directory = join(sshd.repositoriesDirectory, name);
    const hashes = createRepository(directory, commits);
    return { directory, hashes, url: sshd.urlFor(name), mirror: join(dataDirectory, 'mirrors', name) };
  };
  return { sshd, dataDirectory, privateKey, ssh, remote };
}

export function failure(pattern: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof GitFailure, String(error));
    assert.match(error.reason, pattern);
    return true;
  };
}

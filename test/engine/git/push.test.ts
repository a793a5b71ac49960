// Pushes to a remote over a real SSH server.
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fetchMirror } from '../../../src/engine/git/mirror.ts';
import { pushCommit, remoteBranchHead } from '../../../src/engine/git/push.ts';
import { failure, startGitHost } from '../../support/git-host.ts';
import { addCommits } from '../../support/repository.ts';

const { sshd, ssh, remote } = await startGitHost();

test('the state of a push is recognized: new branch, up to date, fast-forward, behind, diverged', async () => {
  const source = remote([
    { message: 'a' },
    { message: 'b' },
    { branch: 'side', parent: 'none', message: 'c' },
  ]);
  const [a, b, c] = source.hashes as [string, string, string];
  await fetchMirror({ mirror: source.mirror, url: source.url, ssh });
  const target = remote();
  const push = (hash: string) =>
    pushCommit({ mirror: source.mirror, url: target.url, hash, remoteBranch: 'live/eu', ssh });
  const head = () => remoteBranchHead({ url: target.url, remoteBranch: 'live/eu', ssh });
  assert.equal(await head(), undefined);
  assert.deepEqual(await push(a), { result: 'pushed' });
  assert.deepEqual(await push(a), { result: 'up_to_date' });
  assert.deepEqual(await push(b), { result: 'pushed' });
  assert.equal(await head(), b);
  const behind = await push(a);
  assert.equal(behind.result, 'rejected');
  assert.match('reason' in behind ? behind.reason : '', /already contains the commit and is ahead of it/);
  const aside = await push(c);
  assert.match('reason' in aside ? aside.reason : '', /never forced/);
  const [unknown] = addCommits(target.directory, [{ branch: 'live/eu', message: 'made elsewhere' }]);
  const fetchFirst = await push(b);
  assert.match('reason' in fetchFirst ? fetchFirst.reason : '', /never forced/);
  assert.equal(await head(), unknown);
});

test('a hook of the remote can refuse a push, and its output is passed on line by line', async () => {
  const source = remote([{}]);
  await fetchMirror({ mirror: source.mirror, url: source.url, ssh });
  const target = remote();
  const hook = join(target.directory, 'hooks', 'pre-receive');
  mkdirSync(join(target.directory, 'hooks'), { recursive: true });
  writeFileSync(hook, '#!/bin/sh\necho "not on Fridays"\necho "grüße" >&2\nexit 1\n');
  chmodSync(hook, 0o755);
  const printed: string[] = [];
  const outcome = await pushCommit({
    mirror: source.mirror,
    url: target.url,
    hash: source.hashes[0]!,
    remoteBranch: 'main',
    ssh,
    onOutput: text => printed.push(text),
  });
  assert.deepEqual(outcome, {
    result: 'rejected',
    reason: 'The remote refused the push to main: pre-receive hook declined.',
  });
  assert.ok(printed.includes('remote: not on Fridays\n'), printed.join(''));
  assert.ok(printed.includes('remote: grüße\n'), printed.join(''));
  assert.ok(printed.every(line => /^[^\r\n]+\n$/.test(line)));
});

test('a push to a missing repository fails with a reason', async () => {
  const { url, mirror, hashes } = remote([{}]);
  await fetchMirror({ mirror, url, ssh });
  const push = { mirror, url: sshd.urlFor('none.git'), hash: hashes[0]!, remoteBranch: 'main', ssh };
  await assert.rejects(pushCommit(push), failure(/has no such repository/));
});

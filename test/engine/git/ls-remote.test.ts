// Listing the refs of a remote repository: real repositories behind sshd, and hosts that answer wrongly.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { listRemote } from '../../../src/engine/git/ls-remote.ts';
import { collectGarbage } from '../../support/garbage.ts';
import { failure, startGitHost } from '../../support/git-host.ts';
import { git } from '../../support/repository.ts';
import { startSshd } from '../../support/sshd.ts';

const { sshd, dataDirectory, ssh, remote } = await startGitHost();
const HASH = '1'.repeat(40);

const list = (url: string) => listRemote({ url, ssh });

test('branches, tags and the default branch are listed, an annotated tag with its commit', async () => {
  const { directory, hashes, url } = remote([
    { message: 'One\n' },
    { message: 'Two\n', branch: 'feature/ü' },
  ]);
  git(directory, 'tag', 'light', hashes[0] as string);
  git(directory, 'tag', '-a', '-m', 'Annotated', 'v1', hashes[1] as string);
  git(directory, 'update-ref', 'refs/pull/1/head', hashes[0] as string);
  git(directory, 'update-ref', 'refs/pull/refs/heads/main', hashes[1] as string);
  git(directory, 'symbolic-ref', 'refs/remotes/origin/HEAD', 'refs/heads/main');
  const { defaultBranch, refs, digest } = await list(url);
  assert.equal(defaultBranch, 'refs/heads/main');
  assert.deepEqual(
    [...refs],
    [
      ['refs/heads/feature/ü', hashes[1]],
      ['refs/heads/main', hashes[0]],
      ['refs/tags/light', hashes[0]],
      ['refs/tags/v1', hashes[1]],
    ],
  );
  assert.match(digest, /^[0-9a-f]{64}$/);
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), []);
});

test('the digest is the same until a branch or tag changes', async () => {
  const { directory, hashes, url } = remote([{ message: 'One\n' }, { message: 'Two\n', branch: 'two' }]);
  const first = (await list(url)).digest;
  git(directory, 'update-ref', 'refs/pull/1/head', hashes[0] as string);
  assert.equal((await list(url)).digest, first);
  git(directory, 'update-ref', 'refs/heads/two', hashes[0] as string);
  assert.notEqual((await list(url)).digest, first);
});

test('an empty repository has no refs and no default branch', async () => {
  const { defaultBranch, refs } = await list(remote().url);
  assert.deepEqual([defaultBranch, refs.size], [undefined, 0]);
});

test('a HEAD that is no branch is no default branch', async () => {
  const { directory, hashes, url } = remote([{ message: 'One\n' }]);
  git(directory, 'update-ref', '--no-deref', 'HEAD', hashes[0] as string);
  assert.equal((await list(url)).defaultBranch, undefined);
});

test('200,000 refs are listed, and their memory is freed', async () => {
  const { directory, hashes, url } = remote([{ message: 'One\n' }]);
  const names = Array.from({ length: 200_000 }, (_, index) => `refs/heads/b${index}`).sort();
  writeFileSync(
    join(directory, 'packed-refs'),
    `# pack-refs with: peeled fully-peeled sorted \n${names.map(name => `${hashes[0]} ${name}\n`).join('')}`,
  );
  const usedAfter = async (looks: number) => {
    for (let look = 0; look < looks; look += 1) assert.equal((await list(url)).refs.size, 200_001);
    collectGarbage();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = await usedAfter(1);
  const grown = (await usedAfter(3)) - before;
  assert.ok(grown < 8 * 1024 ** 2, `memory grew by ${grown} bytes`);
});

/** A host that runs this program instead of git-upload-pack. It answers one ls-refs request of protocol version 2. */
function hostileHost(name: string, answer: string) {
  const program = join(sshd.repositoriesDirectory, `${name}.mjs`);
  writeFileSync(
    program,
    `import { writeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
const pause = new Int32Array(new SharedArrayBuffer(4));
const send = text => {
  for (let left = Buffer.from(text); left.length > 0; )
    try {
      left = left.subarray(writeSync(1, left));
    } catch (error) {
      if (error.code !== 'EAGAIN') process.exit();
      Atomics.wait(pause, 0, 0, 5);
    }
};
const packet = line => {
  const content = Buffer.isBuffer(line) ? line : Buffer.from(line);
  return Buffer.concat([Buffer.from((content.length + 4).toString(16).padStart(4, '0')), content]);
};
const ref = (name, hash = '${HASH}') => send(packet(hash + ' ' + name + '\\n'));
send(Buffer.concat([...['version 2\\n', 'agent=test\\n', 'ls-refs\\n', 'fetch\\n'].map(packet), Buffer.from('0000')]));
process.stdin.on('end', () => process.exit());
process.stdin.once('data', async () => {
  ${answer}
  send('0000');
});
`,
  );
  const { publicKey, privateKey } = generateKeyPair(name);
  sshd.addKey(publicKey, `${process.execPath} ${program}`);
  return { url: sshd.urlFor('any.git'), ssh: { dataDirectory, privateKey } };
}

const INVALID_ANSWERS: [what: string, answer: string][] = [
  ['a name with two dots', `ref('refs/heads/a..b');`],
  ['a name with a control character', `ref('refs/heads/a\\x07b');`],
  ['a path out of the repository', `ref('refs/heads/../../x');`],
  ['a name with a line break', `ref('refs/heads/a\\nrefs/heads/b');`],
  ['a line break and a second hash', `ref('refs/heads/a\\n${HASH}\\trefs/heads/main.lock');`],
  ['a peeled branch that was not named', `ref('refs/heads/a'); ref('refs/tags/b^{}');`],
  ['a name with ^{} inside', `ref('refs/heads/a^{}b');`],
  ['the same branch twice', `ref('refs/heads/a'); ref('refs/heads/a');`],
  ['a name that is not UTF-8', `send(packet(Buffer.from('${HASH} refs/heads/\\xff', 'latin1')));`],
  ['a short hash', `ref('refs/heads/a', '123');`],
  ['no refs at all, but text', `send(packet('Welcome to this host'));`],
];

test('an answer with anything that is no ref fails as a whole', async t => {
  for (const [what, answer] of INVALID_ANSWERS)
    await t.test(what, () =>
      assert.rejects(
        listRemote(hostileHost('invalid', `ref('refs/heads/main'); ${answer}`)),
        failure(/invalid line|git failed|not git/),
      ),
    );
});

test('an answer that arrives in many small pieces is complete', async () => {
  const answer = `for (let at = 0; at < 3000; at += 1) {
    ref('refs/heads/b' + at);
    await delay(1);
  }`;
  const { refs } = await listRemote(hostileHost('pieces', answer));
  assert.equal(refs.size, 3000);
});

test('hashes of 64 digits are valid', async () => {
  // git drops them unless the host declares the object format, so a real repository is needed.
  const directory = join(sshd.repositoriesDirectory, 'sha256.git');
  execFileSync('git', [
    'init',
    '--quiet',
    '--bare',
    '--object-format=sha256',
    '--initial-branch=main',
    directory,
  ]);
  const tree = git(directory, 'hash-object', '-t', 'tree', '-w', '/dev/null');
  const commit = git(directory, 'commit-tree', '-m', 'One', tree);
  git(directory, 'update-ref', 'refs/heads/main', commit);
  assert.equal((await list(sshd.urlFor('sha256.git'))).refs.get('refs/heads/main'), commit);
});

test('an endless answer is cut off, before git takes much memory', async () => {
  const endless = `for (let n = 0; ; n += 1000) {
    const lines = Array.from({ length: 1000 }, (_, i) => packet('${HASH} refs/pull/' + 'x'.repeat(200) + (n + i) + '\\n'));
    send(Buffer.concat(lines));
  }`;
  await assert.rejects(
    listRemote(hostileHost('endless', endless)),
    failure(/more branches and tags than can be read/),
  );
});

test('more than 32 MiB of branches are refused', async () => {
  const many = `for (let n = 0; n < 180_000; n += 1000)
    send(Buffer.concat(Array.from({ length: 1000 }, (_, i) => packet('${HASH} refs/heads/' + 'x'.repeat(150) + (n + i) + '\\n'))));`;
  await assert.rejects(
    listRemote(hostileHost('many', many)),
    failure(/more branches and tags than can be read/),
  );
});

test('a host that sends one ref after the other without end is left after the deadline', async () => {
  const trickle = hostileHost(
    'trickle',
    `for (let n = 0; ; n += 1) { ref('refs/heads/b' + n); await delay(100); }`,
  );
  await assert.rejects(
    listRemote({ ...trickle, deadlineMs: 1_500 }),
    failure(/Waiting for the host git\.assay\.test was stopped after 2 s/),
  );
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), []);
});

test('a host that accepts the connection and never answers is left after the deadline', async () => {
  const silent = hostileHost('silent', `await delay(600_000);`);
  await assert.rejects(listRemote({ ...silent, deadlineMs: 1_000 }), failure(/was stopped after 1 s/));
});

test('a call can be aborted', async () => {
  const stop = new AbortController();
  const silent = hostileHost('aborted', `await delay(600_000);`);
  const listing = listRemote({ ...silent, signal: stop.signal });
  await delay(300);
  stop.abort();
  await assert.rejects(listing, failure(/canceled/));
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), []);
});

test('a withdrawn key, a missing repository, a changed host key and a host that is down are explained', async () => {
  const { url } = remote([{ message: 'One\n' }]);
  await assert.rejects(list(sshd.urlFor('missing.git')), failure(/no such repository/));
  const { publicKey, privateKey } = generateKeyPair('withdrawn');
  sshd.addKey(publicKey);
  const withdrawn = { url, ssh: { dataDirectory, privateKey } };
  assert.equal((await listRemote(withdrawn)).refs.size, 1);
  sshd.removeKey(publicKey);
  await assert.rejects(listRemote(withdrawn), failure(/refused the project's key/));
  await sshd.changeHostKey();
  await assert.rejects(list(url), failure(/host key of .* has changed/));
  rmSync(join(dataDirectory, 'ssh', 'known_hosts'));
  assert.equal((await list(url)).refs.size, 1);

  const other = await startSshd();
  writeFileSync(join(dataDirectory, 'ssh', 'config'), other.clientConfig);
  await other.close();
  await assert.rejects(list(url), failure(/refuses connections on port/));
});

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { GitFailure } from '../../src/engine/git.ts';
import {
  branchContains,
  findReplacements,
  reachable,
  readCommit,
  resolveRef,
} from '../../src/engine/history.ts';
import { fetchMirror } from '../../src/engine/mirror.ts';
import { pushCommit, remoteBranchHead } from '../../src/engine/push.ts';
import { closeConnections, type SshAccess } from '../../src/engine/ssh.ts';
import { addCommits, type CommitDescription, createRepository, git } from '../support/repository.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';

const dataDirectory = mkdtempSync(join(tmpdir(), 'assay-git-'));
const { publicKey, privateKey } = generateKeyPair('assay test');
// Most tests share one login, which costs more than all else in them.
const ssh: SshAccess = { dataDirectory, privateKey, keepConnectionMs: 60_000 };
const anew: SshAccess = { dataDirectory, privateKey };
let sshd: TestSshd;
let counter = 0;

before(async () => {
  sshd = await startSshd();
  sshd.addKey(publicKey);
  mkdirSync(join(dataDirectory, 'ssh'));
  writeFileSync(join(dataDirectory, 'ssh', 'config'), sshd.clientConfig);
});

after(async () => {
  await closeConnections();
  await sshd.close();
  rmSync(dataDirectory, { recursive: true, force: true });
});

function remote(commits: CommitDescription[] = []) {
  const name = `repository-${++counter}.git`;
  const directory = join(sshd.repositoriesDirectory, name);
  const hashes = createRepository(directory, commits);
  return { directory, hashes, url: sshd.urlFor(name), mirror: join(dataDirectory, 'mirrors', name) };
}

function failure(pattern: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof GitFailure, String(error));
    assert.match(error.reason, pattern);
    return true;
  };
}

test('a mirror follows its repository: new, moved and deleted branches and tags', async () => {
  const { directory, url, mirror, hashes } = remote([
    { files: { a: '1' } },
    { branch: 'gone', parent: 'none' },
  ]);
  git(directory, 'tag', 'v1', hashes[0]!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh: anew }), { rewritten: false });
  assert.deepEqual(await fetchMirror({ mirror, url, ssh: anew }), { rewritten: false });
  const [second] = addCommits(directory, [{ files: { a: '2' } }]);
  git(directory, 'tag', '-a', '-m', 'two', 'v2', second!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh: anew }), { rewritten: false });
  assert.equal((await resolveRef(mirror, 'main')).ref, second);
  git(directory, 'branch', '-D', 'gone');
  git(directory, 'branch', 'gone/deeper', second!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh: anew }), { rewritten: true });
  assert.equal(git(mirror, 'for-each-ref'), git(directory, 'for-each-ref'));
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), []);
});

test('an empty repository is fetched, and has no branch', async () => {
  const { url, mirror } = remote();
  await fetchMirror({ mirror, url, ssh });
  await assert.rejects(resolveRef(mirror, 'main'), failure(/no branch, tag or commit main/));
});

test('many fetches leave few packs, and nothing unreachable is lost', async () => {
  const { directory, url, mirror } = remote([{ message: 'first' }]);
  await fetchMirror({ mirror, url, ssh });
  const [lost] = addCommits(directory, [{ message: 'lost' }]);
  await fetchMirror({ mirror, url, ssh });
  addCommits(directory, [{ parent: 'none', files: { b: 'b' } }]);
  await fetchMirror({ mirror, url, ssh });
  const packs = join(mirror, 'objects/pack');
  git(mirror, 'config', 'fastimport.unpackLimit', '0');
  for (let index = 0; index < 40; index++) {
    addCommits(mirror, [{ branch: 'packs', files: { [`${index}`]: `${index}` } }]);
  }
  assert.ok(readdirSync(packs).filter(name => name.endsWith('.pack')).length > 40);
  await fetchMirror({ mirror, url, ssh });
  assert.ok(readdirSync(packs).filter(name => name.endsWith('.pack')).length < 10);
  assert.equal((await readCommit(mirror, lost!)).message, 'lost');
});

test('a name is a branch before it is a tag before it is a hash', async () => {
  const { directory, url, mirror, hashes } = remote([{ message: 'a' }, { message: 'b' }, { message: 'c' }]);
  const [a, b, c] = hashes as [string, string, string];
  const short = a.slice(0, 8);
  git(directory, 'tag', 'both', a);
  git(directory, 'branch', 'both', b);
  git(directory, 'tag', short, c);
  git(directory, 'tag', '-a', '-m', 'x', 'annotated', a);
  git(directory, 'tag', '-a', '-m', 'x', 'nested', 'annotated');
  git(directory, 'tag', 'of-a-tree', `${a}^{tree}`);
  await fetchMirror({ mirror, url, ssh });
  assert.deepEqual(await resolveRef(mirror, 'both'), { ref: b, branch: 'both' });
  assert.deepEqual(await resolveRef(mirror, short), { ref: c, branch: undefined });
  assert.deepEqual(await resolveRef(mirror, 'annotated'), { ref: a, branch: undefined });
  assert.deepEqual(await resolveRef(mirror, 'nested'), { ref: a, branch: undefined });
  assert.deepEqual(await resolveRef(mirror, b), { ref: b, branch: undefined });
  assert.deepEqual(await resolveRef(mirror, b.toUpperCase()), { ref: b, branch: undefined });
  assert.deepEqual(await resolveRef(mirror, b.slice(0, 7).toUpperCase()), { ref: b, branch: undefined });
  for (const unknown of [b.slice(0, 6), 'f'.repeat(40), 'of-a-tree', 'mai', `${a.slice(0, 39)}x`]) {
    await assert.rejects(resolveRef(mirror, unknown), failure(/no branch, tag or commit/), unknown);
  }
});

test('a short hash that fits several commits is told apart from one that fits none', async () => {
  // Two seconds in which the same commit happens to get hashes with the same first seven digits.
  const alike = ['1700005156 +0000', '1700011542 +0000'].map(authoredAt => ({ authoredAt, message: 'x\n' }));
  const { url, mirror, hashes } = remote([alike[0]!, { ...alike[1]!, branch: 'other', parent: 'none' }]);
  const [one, two] = hashes as [string, string];
  assert.equal(one.slice(0, 7), two.slice(0, 7));
  await fetchMirror({ mirror, url, ssh });
  await assert.rejects(resolveRef(mirror, one.slice(0, 7)), failure(/Several commits begin with/));
  assert.equal((await resolveRef(mirror, one.slice(0, 12))).ref, one);
});

test('hostile names and addresses never reach git', async () => {
  const { url, mirror, hashes } = remote([{}]);
  await fetchMirror({ mirror, url, ssh });
  const names = [
    '-x',
    '--all',
    '+main',
    'a:b',
    'main^',
    'main~1',
    '@{-1}',
    '@',
    '',
    'a//b',
    'a..b',
    'a b',
    'a\nb',
    'main\0',
    '/a',
    'a/',
    '.a',
    'a.lock',
    'a.',
    '*',
    'a\\b',
  ];
  for (const name of names) {
    const refused = failure(/not one that git takes/);
    await assert.rejects(resolveRef(mirror, name), refused, name);
    await assert.rejects(branchContains(mirror, name, hashes[0]!), refused, name);
    await assert.rejects(
      pushCommit({ mirror, url, hash: hashes[0]!, remoteBranch: name, ssh }),
      refused,
      name,
    );
    await assert.rejects(remoteBranchHead({ url, remoteBranch: name, ssh }), refused, name);
  }
  const marker = join(dataDirectory, 'marker');
  const urls = [
    `-oProxyCommand=touch${marker}@h:x.git`,
    `git@-oProxyCommand=touch${marker}:x.git`,
    `ext::sh -c touch% ${marker}`,
    '/etc/x.git',
    'file:///x.git',
    'ssh://git@h/x.git',
    'git@h:-x.git',
    'git@h:../x.git',
    'git@h:x.git\n',
    'a@b@h:x.git',
    '--upload-pack=x@h:x.git',
  ];
  for (const hostile of urls) {
    await assert.rejects(
      fetchMirror({ mirror, url: hostile, ssh }),
      failure(/form <user>@<host>:<path>\.git/),
      hostile,
    );
  }
  for (const hash of ['', 'HEAD', '--all', 'main', hashes[0]!.slice(0, 8)]) {
    await assert.rejects(readCommit(mirror, hash), failure(/full hash/), hash);
    await assert.rejects(
      pushCommit({ mirror, url, hash, remoteBranch: 'x', ssh }),
      failure(/full hash/),
      hash,
    );
  }
  assert.ok(!existsSync(marker));
});

test('a commit is read exactly as git has it', async () => {
  const { directory, url, mirror, hashes } = remote([
    {
      message: 'Subject\n\nFirst line,\nsecond line.\n',
      author: 'Åse Öström <ase@example.test>',
      authoredAt: '1700000000 +0530',
      committer: 'Bob <bob@example.test>',
      committedAt: '1700000100 -0330',
      files: { 'src/a b.ts': 'x', 'Ünïcode\tname': 'y', plain: 'z' },
    },
    { authoredAt: '1700000200 +0000', files: { plain: null, moved: 'z' } },
    { branch: 'side', parent: 'main', files: { side: '1' } },
    { message: 'empty' },
    { message: 'merge', mergeOf: 'side', files: { side: '1' } },
  ]);
  const [root, moved, side, empty, merge] = hashes as [string, string, string, string, string];
  git(directory, 'tag', 'v1,0', root);
  git(directory, 'tag', '-a', '-m', 'x', 'annotated', root);
  git(directory, 'tag', '-a', '-m', 'x', 'nested', 'annotated');
  await fetchMirror({ mirror, url, ssh });
  assert.deepEqual(await readCommit(mirror, root), {
    ref: root,
    message: 'Subject\n\nFirst line,\nsecond line.',
    authorName: 'Åse Öström',
    authorEmail: 'ase@example.test',
    authoredDate: '2023-11-15T03:43:20+05:30',
    committerName: 'Bob',
    committerEmail: 'bob@example.test',
    committedDate: '2023-11-14T18:45:00-03:30',
    branches: ['main', 'side'],
    tags: ['annotated', 'nested', 'v1,0'],
    files: ['plain', 'src/a b.ts', 'Ünïcode\tname'],
    filesOmitted: 0,
  });
  const second = await readCommit(mirror, moved);
  assert.equal(second.authoredDate, '2023-11-14T22:16:40+00:00');
  assert.deepEqual(second.files, ['moved', 'plain']);
  assert.deepEqual(second.tags, []);
  assert.deepEqual((await readCommit(mirror, side)).branches, ['main', 'side']);
  assert.deepEqual((await readCommit(mirror, empty)).files, []);
  const merged = await readCommit(mirror, merge);
  assert.deepEqual([merged.files, merged.branches], [['side'], ['main']]);
});

test('bytes that are no UTF-8 are shown as U+FFFD, and a mailmap changes nobody', async () => {
  const { url, mirror, hashes } = remote([
    {
      author: Buffer.from('J\xfcrgen <j@example.test>', 'latin1'),
      message: Buffer.from('Gr\xfc\xdfe\n', 'latin1'),
      files: { '.mailmap': 'Someone Else <else@example.test> <j@example.test>\n' },
    },
  ]);
  await fetchMirror({ mirror, url, ssh });
  const commit = await readCommit(mirror, hashes[0]!);
  assert.equal(commit.authorName, 'J\uFFFDrgen');
  assert.equal(commit.authorEmail, 'j@example.test');
  assert.equal(commit.message, 'Gr\uFFFD\uFFFDe');
});

test('of a commit that changes very many files the first ten thousand are named', async () => {
  const files = Object.fromEntries(Array.from({ length: 10_500 }, (_, index) => [`f${index}`, '']));
  const { url, mirror, hashes } = remote([{ files }]);
  await fetchMirror({ mirror, url, ssh });
  const commit = await readCommit(mirror, hashes[0]!);
  assert.equal(commit.files.length, 10_000);
  assert.equal(commit.filesOmitted, 500);
});

test('an amended and a rebased commit are found again after a forced push', async () => {
  const { directory, url, mirror, hashes } = remote([
    { message: 'base', files: { base: '1' } },
    { message: 'one', authoredAt: '1700000500 +0200', files: { one: '1' } },
    { message: 'two', authoredAt: '1700000600 +0200', files: { two: '1' } },
  ]);
  const [base, one, two] = hashes as [string, string, string];
  await fetchMirror({ mirror, url, ssh });
  assert.deepEqual(await reachable(mirror, hashes), new Set(hashes));
  const [newOne, newTwo, other] = addCommits(directory, [
    {
      message: 'one, amended',
      authoredAt: '1700000500 +0200',
      committedAt: '1700009000 +0200',
      parent: base,
      files: { one: '2' },
    },
    { message: 'two', authoredAt: '1700000600 +0200', committedAt: '1700009000 +0200', files: { two: '1' } },
    { message: 'new', authoredAt: '1700009000 +0200', files: { three: '1' } },
  ]);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: true });
  assert.deepEqual(await reachable(mirror, [...hashes, 'f'.repeat(40)]), new Set([base]));
  const expected = new Map([
    [one, newOne],
    [two, newTwo],
  ]);
  assert.deepEqual(await findReplacements(mirror, [two, one, 'f'.repeat(40)], hashes), expected);
  assert.deepEqual(await findReplacements(mirror, [one], [newOne!, other!]), new Map());
  assert.equal((await readCommit(mirror, one)).message, 'one');
  assert.deepEqual((await readCommit(mirror, one)).branches, []);
});

test('commits of one author and one second are told apart by what they change', async () => {
  const authoredAt = '1700000500 +0200';
  const { directory, url, mirror, hashes } = remote([
    { message: 'base' },
    { message: 'same', authoredAt, files: { one: 'a\nb\n' } },
    { message: 'same', authoredAt, files: { two: 'c\nd\n' } },
  ]);
  const [base, one, two] = hashes as [string, string, string];
  await fetchMirror({ mirror, url, ssh });
  const [newTwo, newOne] = addCommits(directory, [
    {
      message: 'reworded',
      authoredAt,
      committedAt: '1700009000 +0200',
      parent: base,
      files: { two: 'c\nd\n' },
    },
    { message: 'same', authoredAt, committedAt: '1700009000 +0200', files: { one: 'a\nb\n' } },
  ]);
  await fetchMirror({ mirror, url, ssh });
  const found = await findReplacements(mirror, [one, two], hashes);
  assert.deepEqual(
    found,
    new Map([
      [one, newOne],
      [two, newTwo],
    ]),
  );
});

test('a branch contains its own commits and no others', async () => {
  const { url, mirror, hashes } = remote([{}, { branch: 'side', parent: 'main' }]);
  await fetchMirror({ mirror, url, ssh });
  assert.equal(await branchContains(mirror, 'side', hashes[0]!), true);
  assert.equal(await branchContains(mirror, 'main', hashes[1]!), false);
  assert.equal(await branchContains(mirror, 'nowhere', hashes[0]!), false);
  assert.equal(await branchContains(mirror, 'main', 'f'.repeat(40)), false);
});

test('a key that is not installed is refused in plain words, and works once it is', async () => {
  const { url, mirror } = remote([{}]);
  const stranger = generateKeyPair('stranger');
  const theirs = { dataDirectory, privateKey: stranger.privateKey };
  await assert.rejects(fetchMirror({ mirror, url, ssh: theirs }), error => {
    failure(/host git\.assay\.test refused the project's key: install/)(error);
    assert.match((error as GitFailure).detail, /Permission denied/);
    return true;
  });
  sshd.addKey(stranger.publicKey);
  await fetchMirror({ mirror, url, ssh: theirs });
  sshd.removeKey(stranger.publicKey);
  await assert.rejects(fetchMirror({ mirror, url, ssh: theirs }), failure(/refused/));
});

test('a repository that is not there is told from one that refuses', async () => {
  const mirror = join(dataDirectory, 'mirrors', 'missing');
  await assert.rejects(
    fetchMirror({ mirror, url: sshd.urlFor('missing.git'), ssh }),
    failure(/has no such repository.*check the repository URL/),
  );
});

test('a host name that nobody knows, and a port where nobody listens', async () => {
  const mirror = join(dataDirectory, 'mirrors', 'nowhere');
  await assert.rejects(
    fetchMirror({ mirror, url: 'git@nowhere.invalid:x.git', ssh }),
    failure(/host name nowhere\.invalid is not known/),
  );
  const elsewhere = join(dataDirectory, 'closed-port');
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  writeAlias(elsewhere, port);
  await assert.rejects(
    fetchMirror({ mirror, url: 'git@silent.test:x.git', ssh: { dataDirectory: elsewhere, privateKey } }),
    failure(/refuses connections on port/),
  );
});

function writeAlias(directory: string, port: number): void {
  mkdirSync(join(directory, 'ssh'), { recursive: true });
  const lines = ['Host silent.test', 'HostName 127.0.0.1', `Port ${port}`, ''];
  writeFileSync(join(directory, 'ssh', 'config'), lines.join('\n'));
}

test('a host that takes the connection and says nothing is given up', async () => {
  const sockets: import('node:net').Socket[] = [];
  const server = createServer(socket => sockets.push(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const elsewhere = join(dataDirectory, 'silent');
  writeAlias(elsewhere, (server.address() as AddressInfo).port);
  const access = { dataDirectory: elsewhere, privateKey, connectTimeoutMs: 1_000 };
  const startedAt = performance.now();
  await assert.rejects(
    fetchMirror({ mirror: join(elsewhere, 'mirror'), url: 'git@silent.test:x.git', ssh: access }),
    failure(/silent\.test did not answer within 1 s/),
  );
  assert.ok(performance.now() - startedAt < 5_000);
  for (const socket of sockets) socket.destroy();
  server.close();
});

test('a fetch that stops moving is ended, and the next one works', async () => {
  const { url, mirror, hashes } = remote([{ files: { big: randomBytes(300_000) } }]);
  const slow = generateKeyPair('slow');
  sshd.addKey(slow.publicKey, 'eval $SSH_ORIGINAL_COMMAND | { dd bs=4096 count=30; exec sleep 15; }');
  const elsewhere = join(dataDirectory, 'slow');
  mkdirSync(join(elsewhere, 'ssh'), { recursive: true });
  writeFileSync(join(elsewhere, 'ssh', 'config'), sshd.clientConfig);
  const theirs = { dataDirectory: elsewhere, privateKey: slow.privateKey };
  await assert.rejects(
    fetchMirror({ mirror, url, ssh: theirs, stallMs: 1_500 }),
    failure(/Nothing has come from the host git\.assay\.test for 2 s/),
  );
  const moving = new AbortController();
  await assert.rejects(
    fetchMirror({
      mirror,
      url,
      ssh: theirs,
      signal: moving.signal,
      onOutput: () => moving.abort(),
    }),
    failure(/canceled/),
  );
  assert.deepEqual(processesThatName(elsewhere), []);
  // What a killed git leaves, in every place where it would be in the way.
  mkdirSync(join(mirror, 'refs/heads'), { recursive: true });
  for (const left of ['packed-refs.lock', 'refs/heads/main.lock', 'objects/pack/tmp_pack_abc', 'HEAD.lock']) {
    writeFileSync(join(mirror, left), '');
  }
  await fetchMirror({ mirror, url, ssh });
  assert.equal((await resolveRef(mirror, 'main')).ref, hashes[0]);
  assert.ok(!existsSync(join(mirror, 'objects/pack/tmp_pack_abc')));
});

function processesThatName(path: string): string[] {
  const numbers = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  const commands = numbers.map(number => {
    try {
      return readFileSync(`/proc/${number}/cmdline`, 'utf8');
    } catch {
      return '';
    }
  });
  return commands.filter(command => command.includes(path));
}

test('a signal that was given before ends the fetch before it begins', async () => {
  const { url, mirror } = remote([{}]);
  await assert.rejects(fetchMirror({ mirror, url, ssh, signal: AbortSignal.abort() }), failure(/canceled/));
});

test('a repository with an object that would harm a checkout is refused', async () => {
  const { directory, url, mirror } = remote();
  const blob = git(directory, 'hash-object', '-w', '-t', 'blob', '/dev/null');
  const entry = Buffer.concat([Buffer.from('100644 .git\0'), Buffer.from(blob, 'hex')]);
  const file = join(dataDirectory, 'tree');
  writeFileSync(file, entry);
  const tree = git(directory, 'hash-object', '-w', '--literally', '-t', 'tree', file);
  git(directory, 'update-ref', 'refs/heads/main', git(directory, 'commit-tree', '-m', 'x', tree));
  await assert.rejects(fetchMirror({ mirror, url, ssh }), failure(/damaged or dangerous/));
});

test('through a jump host the same key and the same known hosts hold', async () => {
  const { url, mirror, hashes } = remote([{}]);
  const elsewhere = join(dataDirectory, 'jump');
  mkdirSync(join(elsewhere, 'ssh'), { recursive: true });
  const config = `${sshd.clientConfig}  ProxyJump bastion\nHost bastion\n  HostName 127.0.0.1\n  Port ${sshd.port}\n`;
  writeFileSync(join(elsewhere, 'ssh', 'config'), config);
  await fetchMirror({ mirror, url, ssh: { dataDirectory: elsewhere, privateKey } });
  assert.equal((await resolveRef(mirror, 'main')).ref, hashes[0]);
  assert.match(readFileSync(join(elsewhere, 'ssh', 'known_hosts'), 'utf8'), /ssh-ed25519/);
});

test('a kept connection serves its own key alone, and is closed on request', async () => {
  const { directory, url, mirror } = remote([{}]);
  const mine = generateKeyPair('kept');
  sshd.addKey(mine.publicKey);
  const keeping = { dataDirectory, privateKey: mine.privateKey, keepConnectionMs: 60_000 };
  await fetchMirror({ mirror, url, ssh: keeping });
  // Without its key only the kept connection can still get in.
  sshd.removeKey(mine.publicKey);
  const [next] = addCommits(directory, [{}]);
  await fetchMirror({ mirror, url, ssh: keeping });
  assert.equal((await resolveRef(mirror, 'main')).ref, next);
  const stranger = { ...keeping, privateKey: generateKeyPair('stranger').privateKey };
  await assert.rejects(fetchMirror({ mirror, url, ssh: stranger }), failure(/refused/));
  await closeConnections();
  await assert.rejects(fetchMirror({ mirror, url, ssh: keeping }), failure(/refused/));
});

test('a push is told apart: new branch, up to date, forward, behind, aside', async () => {
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

test("a remote's hook may refuse a push, and what it prints is passed on line by line", async () => {
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

test('a push to a repository that is not there fails with a reason', async () => {
  const { url, mirror, hashes } = remote([{}]);
  await fetchMirror({ mirror, url, ssh });
  const push = { mirror, url: sshd.urlFor('none.git'), hash: hashes[0]!, remoteBranch: 'main', ssh };
  await assert.rejects(pushCommit(push), failure(/has no such repository/));
});

test('a mistake in the administrator’s ssh/config is named', async () => {
  const elsewhere = join(dataDirectory, 'mistake');
  mkdirSync(join(elsewhere, 'ssh'), { recursive: true });
  writeFileSync(join(elsewhere, 'ssh', 'config'), 'Colour blue\n');
  await assert.rejects(
    fetchMirror({
      mirror: join(elsewhere, 'm'),
      url: 'git@h.test:x.git',
      ssh: { dataDirectory: elsewhere, privateKey },
    }),
    failure(/ssh\/config in the data directory has a mistake/),
  );
});

// Last: from here on the known host is another.
test('a changed host key is refused until its line is removed, for fetch and push alike', async () => {
  const { url, mirror, hashes } = remote([{}]);
  await fetchMirror({ mirror, url, ssh: anew });
  await sshd.changeHostKey();
  const changed = failure(
    /host key of \[127\.0\.0\.1\]:\d+ has changed.*remove its line from ssh\/known_hosts/,
  );
  await assert.rejects(fetchMirror({ mirror, url, ssh: anew }), changed);
  await assert.rejects(pushCommit({ mirror, url, hash: hashes[0]!, remoteBranch: 'x', ssh: anew }), changed);
  const known = join(dataDirectory, 'ssh', 'known_hosts');
  writeFileSync(known, '');
  await fetchMirror({ mirror, url, ssh: anew });
  assert.match(readFileSync(known, 'utf8'), /^\[127\.0\.0\.1\]:\d+ ssh-ed25519 /);
});

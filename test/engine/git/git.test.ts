// Mirrors of repositories over a real SSH server: fetches, faults, and what a crash leaves behind.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { type GitFailure, runGit } from '../../../src/engine/git/git.ts';
import { branchContains, readCommit, resolveRef } from '../../../src/engine/git/history.ts';
import { fetchMirror, needsRepack, repackMirror } from '../../../src/engine/git/mirror.ts';
import { pushCommit, remoteBranchHead } from '../../../src/engine/git/push.ts';
import { failure, startGitHost } from '../../support/git-host.ts';
import { addCommits, git } from '../../support/repository.ts';

const { sshd, dataDirectory, privateKey, ssh, remote } = await startGitHost();

test('a mirror follows its repository: new, moved and deleted branches and tags', async () => {
  const { directory, url, mirror, hashes } = remote([
    { files: { a: '1' } },
    { branch: 'gone', parent: 'none' },
  ]);
  git(directory, 'tag', 'v1', hashes[0]!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: false });
  assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: false });
  const [second] = addCommits(directory, [{ files: { a: '2' } }]);
  git(directory, 'tag', '-a', '-m', 'two', 'v2', second!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: false });
  assert.equal((await resolveRef(mirror, 'main')).ref, second);
  git(directory, 'branch', '-D', 'gone');
  git(directory, 'branch', 'gone/deeper', second!);
  assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: true });
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
  assert.ok(await needsRepack(mirror));
  await repackMirror(mirror);
  assert.ok(!(await needsRepack(mirror)));
  assert.ok(readdirSync(packs).filter(name => name.endsWith('.pack')).length < 10);
  assert.equal((await readCommit(mirror, lost!)).message, 'lost');
});

test('a fetch of many commits writes the commit-graph, and a failure to write it fails nothing', async () => {
  const many = Array.from({ length: 600 }, (_, index) => ({ message: `${index}`, files: { a: `${index}` } }));
  const { directory, url, mirror } = remote(many);
  const graphs = join(mirror, 'objects/info/commit-graphs');
  await fetchMirror({ mirror, url, ssh });
  const count = () => readdirSync(graphs).length;
  const before = count();
  assert.ok(before > 0);
  addCommits(directory, [{ message: 'one more' }]);
  await fetchMirror({ mirror, url, ssh });
  assert.equal(count(), before, 'one commit is not worth it');

  writeFileSync(join(graphs, 'commit-graph-chain.lock'), '');
  addCommits(directory, many);
  const troubles: unknown[] = [];
  await fetchMirror({ mirror, url, ssh, onTrouble: error => troubles.push(error) });
  assert.equal(troubles.length, 1);
  assert.equal((await readCommit(mirror, (await resolveRef(mirror, 'main')).ref)).message, '599');
});

test('a stale lock of the commit-graph after a crash is removed by the next fetch', async () => {
  const { directory, url, mirror } = remote([{}]);
  const graphs = join(mirror, 'objects/info/commit-graphs');
  const lock = join(graphs, 'commit-graph-chain.lock');
  await fetchMirror({ mirror, url, ssh });
  mkdirSync(graphs, { recursive: true });
  writeFileSync(lock, '');
  addCommits(
    directory,
    Array.from({ length: 600 }, (_, index) => ({ message: `${index}`, files: { a: `${index}` } })),
  );
  const crash = () => {
    throw new Error('crashed');
  };
  await assert.rejects(fetchMirror({ mirror, url, ssh, onTrouble: crash }), /crashed/);
  await fetchMirror({ mirror, url, ssh });
  assert.ok(!existsSync(lock));
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
    const refused = failure(/not a valid branch, tag or commit/);
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

test('a key that is not installed is refused with a clear message, and works once it is', async () => {
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

test('a missing repository is distinguished from one that refuses access', async () => {
  const mirror = join(dataDirectory, 'mirrors', 'missing');
  await assert.rejects(
    fetchMirror({ mirror, url: sshd.urlFor('missing.git'), ssh }),
    failure(/has no such repository.*check the repository URL/),
  );
});

test('an unknown host name, and a port where nothing listens', async () => {
  const mirror = join(dataDirectory, 'mirrors', 'nowhere');
  await assert.rejects(
    fetchMirror({ mirror, url: 'git@nowhere.invalid:x.git', ssh }),
    failure(/host name nowhere\.invalid cannot be resolved/),
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

test('a silent host times out', async () => {
  const sockets: Socket[] = [];
  const server = createServer(socket => sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1');
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

test('a stalled fetch is stopped, and the next one works', async () => {
  const { url, mirror, hashes } = remote([{ files: { big: randomBytes(300_000) } }]);
  const slow = generateKeyPair('slow');
  sshd.addKey(slow.publicKey, 'eval $SSH_ORIGINAL_COMMAND | { dd bs=4096 count=30; exec sleep 15; }');
  const elsewhere = join(dataDirectory, 'slow');
  mkdirSync(join(elsewhere, 'ssh'), { recursive: true });
  writeFileSync(join(elsewhere, 'ssh', 'config'), sshd.clientConfig);
  const theirs = { dataDirectory: elsewhere, privateKey: slow.privateKey };
  await assert.rejects(
    fetchMirror({ mirror, url, ssh: theirs, stallMs: 1_500 }),
    failure(/Nothing has arrived from the host git\.assay\.test for 2 s/),
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
  // Locks that a killed git leaves, in every place where they would block.
  mkdirSync(join(mirror, 'refs/heads'), { recursive: true });
  for (const left of ['packed-refs.lock', 'refs/heads/main.lock', 'objects/pack/tmp_pack_abc', 'HEAD.lock']) {
    writeFileSync(join(mirror, left), '');
  }
  await fetchMirror({ mirror, url, ssh });
  assert.equal((await resolveRef(mirror, 'main')).ref, hashes[0]);
  assert.ok(!existsSync(join(mirror, 'objects/pack/tmp_pack_abc')));
});

test('a git that was killed while it wrote packed-refs does not prevent a later fetch from deleting branches', async () => {
  const { directory, url, mirror } = remote([{}, { branch: 'gone', parent: 'none' }]);
  await fetchMirror({ mirror, url, ssh });
  const killed = spawnSync(
    'strace',
    [
      '-f',
      '-o',
      '/dev/null',
      '-e',
      'inject=rename,renameat,renameat2:signal=KILL',
      'git',
      'pack-refs',
      '--all',
    ],
    { cwd: mirror, timeout: 20_000 },
  );
  assert.equal(killed.signal, 'SIGKILL');
  assert.ok(existsSync(join(mirror, 'packed-refs.new')));
  writeFileSync(join(mirror, 'assay-unfinished-fetch'), '');
  await fetchMirror({ mirror, url, ssh });
  git(mirror, 'pack-refs', '--all');
  git(directory, 'branch', '-D', 'gone');
  await fetchMirror({ mirror, url, ssh });
  assert.equal(git(mirror, 'for-each-ref'), git(directory, 'for-each-ref'));
});

for (const [what, damage] of [
  ['a branch without content', (mirror: string) => writeFileSync(join(mirror, 'refs/heads/main'), '')],
  ['a lost pack', (mirror: string) => rmSync(oldestPack(mirror))],
  ['a cut pack', (mirror: string) => truncateSync(oldestPack(mirror), 20)],
  [
    'packed-refs full of zeros',
    (mirror: string) => writeFileSync(join(mirror, 'packed-refs'), Buffer.alloc(50)),
  ],
  ['an empty HEAD', (mirror: string) => writeFileSync(join(mirror, 'HEAD'), '')],
] as const) {
  test(`a mirror that a power cut left with ${what} is created again by the next fetch`, async () => {
    const { directory, url, mirror } = remote([{ files: { a: '1' } }]);
    await fetchMirror({ mirror, url, ssh });
    addCommits(directory, [{ files: { a: '2' } }]);
    await fetchMirror({ mirror, url, ssh });
    const [newest] = addCommits(directory, [{ files: { a: '3' } }]);
    damage(mirror);
    // One that was killed while it did the same.
    mkdirSync(join(`${mirror}.rebuild`, 'objects'), { recursive: true });
    assert.deepEqual(await fetchMirror({ mirror, url, ssh }), { rewritten: true });
    assert.equal((await readCommit(mirror, newest!)).ref, newest);
    assert.equal(git(mirror, 'fsck', '--full', '--strict'), '');
    assert.deepEqual(
      readdirSync(dirname(mirror)).filter(name => name.endsWith('.rebuild')),
      [],
    );
  });
}

function oldestPack(mirror: string): string {
  const packs = readdirSync(join(mirror, 'objects/pack')).filter(name => name.endsWith('.pack'));
  const paths = packs.map(name => join(mirror, 'objects/pack', name));
  const [oldest] = paths.sort((a, b) => statSync(a).mtimeMs - statSync(b).mtimeMs);
  chmodSync(oldest!, 0o600);
  return oldest!;
}

test('a damaged repository does not destroy the existing mirror', async () => {
  const { directory, url, mirror, hashes } = remote([{ files: { a: '1' } }]);
  await fetchMirror({ mirror, url, ssh });
  writeFileSync(join(mirror, 'refs/heads/main'), '');
  const broken = join(directory, 'HEAD');
  writeFileSync(broken, '');
  await assert.rejects(fetchMirror({ mirror, url, ssh }));
  assert.equal((await readCommit(mirror, hashes[0]!)).ref, hashes[0]);
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

test('an aborted signal prevents the fetch', async () => {
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

test('the same key and the same known hosts apply through a jump host', async () => {
  const { url, mirror, hashes } = remote([{}]);
  const elsewhere = join(dataDirectory, 'jump');
  mkdirSync(join(elsewhere, 'ssh'), { recursive: true });
  const config = `${sshd.clientConfig}  ProxyJump bastion\nHost bastion\n  HostName 127.0.0.1\n  Port ${sshd.port}\n`;
  writeFileSync(join(elsewhere, 'ssh', 'config'), config);
  await fetchMirror({ mirror, url, ssh: { dataDirectory: elsewhere, privateKey } });
  assert.equal((await resolveRef(mirror, 'main')).ref, hashes[0]);
  assert.match(readFileSync(join(elsewhere, 'ssh', 'known_hosts'), 'utf8'), /ssh-ed25519/);
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

// Must be last: it changes the known host.
test('a changed host key is refused until its line is removed, for fetch and push', async () => {
  const { url, mirror, hashes } = remote([{}]);
  await fetchMirror({ mirror, url, ssh });
  await sshd.changeHostKey();
  const changed = failure(
    /host key of \[127\.0\.0\.1\]:\d+ has changed.*remove its line from ssh\/known_hosts/,
  );
  await assert.rejects(fetchMirror({ mirror, url, ssh }), changed);
  await assert.rejects(pushCommit({ mirror, url, hash: hashes[0]!, remoteBranch: 'x', ssh }), changed);
  const known = join(dataDirectory, 'ssh', 'known_hosts');
  writeFileSync(known, '');
  await fetchMirror({ mirror, url, ssh });
  assert.match(readFileSync(known, 'utf8'), /^\[127\.0\.0\.1\]:\d+ ssh-ed25519 /);
});

test('processes that are requested at once start in different turns of the event loop', async () => {
  let turn = 0;
  const starts: number[] = [];
  const onStart = () => starts.push(turn);
  let counting: NodeJS.Immediate;
  const count = () => {
    turn += 1;
    counting = setImmediate(count);
  };
  count();
  subscribe('child_process', onStart);
  try {
    await Promise.all(Array.from({ length: 5 }, () => runGit(['version'], {})));
  } finally {
    unsubscribe('child_process', onStart);
    clearImmediate(counting!);
  }
  assert.equal(starts.length, 5);
  assert.equal(new Set(starts).size, 5, `started in turns ${starts}`);
});

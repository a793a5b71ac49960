// Reading commits from a mirror: refs, details, changed files, branches.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import {
  branchContains,
  findReplacements,
  listFirstParents,
  listReachable,
  readCommit,
  readRange,
  resolveRef,
} from '../../../src/engine/git/history.ts';
import { fetchMirror, fetchPullRequest } from '../../../src/engine/git/mirror.ts';
import { failure, startGitHost } from '../../support/git-host.ts';
import { addCommits, git } from '../../support/repository.ts';

const { ssh, remote } = await startGitHost();

test('a name is resolved as a branch first, then as a tag, then as a hash', async () => {
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
  assert.deepEqual(await resolveRef(mirror, 'both'), { ref: b, branch: 'both', tag: '' });
  assert.deepEqual(await resolveRef(mirror, short), { ref: c, branch: '', tag: short });
  assert.deepEqual(await resolveRef(mirror, 'annotated'), { ref: a, branch: '', tag: 'annotated' });
  assert.deepEqual(await resolveRef(mirror, 'nested'), { ref: a, branch: '', tag: 'nested' });
  assert.deepEqual(await resolveRef(mirror, b), { ref: b, branch: '', tag: '' });
  assert.deepEqual(await resolveRef(mirror, b.toUpperCase()), { ref: b, branch: '', tag: '' });
  assert.deepEqual(await resolveRef(mirror, b.slice(0, 7).toUpperCase()), { ref: b, branch: '', tag: '' });
  for (const unknown of ['f'.repeat(40), 'of-a-tree', 'mai', `${a.slice(0, 39)}x`]) {
    await assert.rejects(resolveRef(mirror, unknown), failure(/no branch, tag or commit/), unknown);
  }
  for (const short of [b.slice(0, 6), b.slice(0, 5).toUpperCase()])
    await assert.rejects(resolveRef(mirror, short), failure(/a commit hash needs at least 7 digits/), short);
});

test('an ambiguous short hash is distinguished from an unknown one', async () => {
  // Two commit times whose hashes begin with the same seven digits.
  const alike = ['1700005156 +0000', '1700011542 +0000'].map(authoredAt => ({ authoredAt, message: 'x\n' }));
  const { url, mirror, hashes } = remote([alike[0]!, { ...alike[1]!, branch: 'other', parent: 'none' }]);
  const [one, two] = hashes as [string, string];
  assert.equal(one.slice(0, 7), two.slice(0, 7));
  await fetchMirror({ mirror, url, ssh });
  await assert.rejects(resolveRef(mirror, one.slice(0, 7)), failure(/Several commits begin with/));
  assert.equal((await resolveRef(mirror, one.slice(0, 12))).ref, one);
});

test('a commit is read exactly as git stores it', async () => {
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

test('bytes that are not UTF-8 are shown as U+FFFD, and a mailmap changes nothing', async () => {
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

test('all files of a commit that changes very many are listed', async () => {
  const files = Object.fromEntries(Array.from({ length: 10_500 }, (_, index) => [`f${index}`, '']));
  const { url, mirror, hashes } = remote([{ files }]);
  await fetchMirror({ mirror, url, ssh });
  const commit = await readCommit(mirror, hashes[0]!);
  assert.equal(commit.files.length, 10_500);
  assert.deepEqual(commit.files.toSorted(), Object.keys(files).sort());
});

test('a commit that names more paths than rules can be evaluated on fails with a clear error', async () => {
  const { directory, url, mirror } = remote([{ message: 'base', files: { base: '1' } }]);
  // Each tree contains the previous one ten times, under long names: a hundred megabytes of paths from a few objects.
  const write = (entries: string) =>
    execFileSync('git', ['mktree'], { cwd: directory, input: entries, encoding: 'utf8' }).trim();
  let tree = git(directory, 'rev-parse', 'main^{tree}');
  const name = 'd'.repeat(200);
  for (let level = 0; level < 5; level++)
    tree = write(Array.from({ length: 10 }, (_, index) => `040000 tree ${tree}\t${name}${index}\n`).join(''));
  const bomb = git(directory, 'commit-tree', '-m', 'bomb', tree);
  git(directory, 'branch', 'bomb', bomb);
  await fetchMirror({ mirror, url, ssh });
  await assert.rejects(readCommit(mirror, bomb), failure(/more than 64 MiB.*split it into several commits/));
});

test('a commit of a pull request is not taken for one that a force push removed', async () => {
  const { directory, url, mirror, hashes } = remote([
    { message: 'base', files: { base: '1' } },
    { message: 'from a fork', authoredAt: '1700000500 +0200', files: { one: '1' } },
  ]);
  const [base, pulled] = hashes as [string, string];
  git(directory, 'update-ref', 'refs/pull/7/head', pulled);
  git(directory, 'update-ref', 'refs/heads/main', base);
  await fetchMirror({ mirror, url, ssh });
  assert.equal(await fetchPullRequest({ mirror, url, ssh }, 'refs/pull/7/head', 7), true);
  assert.deepEqual(await listReachable(mirror, hashes), new Set(hashes));
});

test('an amended and a rebased commit are recognized after a force push', async () => {
  const { directory, url, mirror, hashes } = remote([
    { message: 'base', files: { base: '1' } },
    { message: 'one', authoredAt: '1700000500 +0200', files: { one: '1' } },
    { message: 'two', authoredAt: '1700000600 +0200', files: { two: '1' } },
  ]);
  const [base, one, two] = hashes as [string, string, string];
  await fetchMirror({ mirror, url, ssh });
  assert.deepEqual(await listReachable(mirror, hashes), new Set(hashes));
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
  assert.deepEqual(await listReachable(mirror, [...hashes, 'f'.repeat(40)]), new Set([base]));
  const expected = new Map([
    [one, newOne],
    [two, newTwo],
  ]);
  assert.deepEqual(await findReplacements(mirror, [two, one, 'f'.repeat(40)], hashes), expected);
  assert.deepEqual(await findReplacements(mirror, [one], [newOne!, other!]), new Map());
  assert.equal((await readCommit(mirror, one)).message, 'one');
  assert.deepEqual((await readCommit(mirror, one)).branches, []);
});

test('commits of one author and one second are distinguished by their changes', async () => {
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

test('the ancestors of a commit are listed through first parents, nearest first', async () => {
  const { url, mirror, hashes } = remote([
    { message: 'one' },
    { message: 'on the side', branch: 'side', parent: 'main', files: { side: '1' } },
    { message: 'two', branch: 'main' },
    { message: 'merge', branch: 'main', mergeOf: 'side' },
    { message: 'three', branch: 'main' },
  ]);
  const [one, , two, merge, three] = hashes as [string, string, string, string, string];
  await fetchMirror({ mirror, url, ssh });
  assert.deepEqual(await listFirstParents(mirror, three, 200), [three, merge, two, one]);
  assert.deepEqual(await listFirstParents(mirror, three, 2), [three, merge]);
  assert.deepEqual(await listFirstParents(mirror, 'f'.repeat(40), 200), []);
  assert.deepEqual(await listFirstParents(`${mirror}-not-there`, three, 200), []);
});

test('the commits and files between two commits are listed up to a limit, and counted', async () => {
  const { url, mirror, hashes } = remote([
    { message: 'one', files: { kept: '1', changed: '1', gone: '1' } },
    { message: 'elsewhere', branch: 'side', parent: 'main', files: { side: '1' } },
    { message: 'two', author: 'Åse <ase@example.test>', files: { changed: '2', 'with space\tand tab': 'x' } },
    { message: 'three\n\nmore text', files: { gone: null, 'dir/new': '1' } },
  ]);
  const [one, side, two, three] = hashes as [string, string, string, string];
  await fetchMirror({ mirror, url, ssh });
  const max = { commits: 100, files: 300 };
  const range = await readRange(mirror, one, three, max);
  assert.deepEqual(
    range?.commits.map(({ hash, subject, authorName }) => [hash, subject, authorName]),
    [
      [three, 'three', 'Ada'],
      [two, 'two', 'Åse'],
    ],
  );
  assert.match(range?.commits[0]?.authoredDate ?? '', /^\d{4}-\d\d-\d\dT.*[+-]\d\d:\d\d$/);
  assert.deepEqual(range?.files, [
    { path: 'changed', change: 'modified' },
    { path: 'dir/new', change: 'added' },
    { path: 'gone', change: 'deleted' },
    { path: 'with space\tand tab', change: 'added' },
  ]);
  assert.deepEqual([range?.commitsTotal, range?.missingTotal, range?.filesTotal], [2, 0, 4]);
  const cut = await readRange(mirror, one, three, { commits: 1, files: 2 });
  assert.deepEqual(
    [cut?.commits.length, cut?.commitsTotal, cut?.files.length, cut?.filesTotal],
    [1, 2, 2, 4],
  );
  const aside = await readRange(mirror, three, side, max);
  assert.deepEqual([aside?.commitsTotal, aside?.missingTotal], [1, 2]);
  const same = await readRange(mirror, one, one, max);
  assert.deepEqual([same?.commits, same?.files], [[], []]);
  assert.equal(await readRange(mirror, one, 'f'.repeat(40), max), undefined);
});

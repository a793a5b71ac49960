// Snapshots of working trees of all kinds, with git alone: the bundle is applied to a clone of the remote, its tree is
// compared with the working tree, and the user's repository must be the same afterwards, byte for byte.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { MAX_BUNDLE_BYTES, withSnapshot } from '../../src/client/snapshot.ts';
import { CommandError } from '../../src/command/command.ts';
import { git } from '../support/repository.ts';

const base = mkdtempSync(join(tmpdir(), 'assay-snapshots-'));
const temporary = join(base, 'tmp');
mkdirSync(temporary);
after(() => rmSync(base, { recursive: true, force: true }));
// Neither the configuration of the machine nor that of its user counts.
for (const name of Object.keys(process.env).filter(name => name.startsWith('GIT_'))) delete process.env[name];
Object.assign(process.env, {
  HOME: base,
  XDG_CONFIG_HOME: base,
  GIT_CONFIG_NOSYSTEM: '1',
  TMPDIR: temporary,
  EMAIL: 'ada@example.test',
});

const put = (root: string, path: string, content: string | Buffer = `${path}\n`) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
};

const local = (root: string, ...args: string[]) => git(root, '-c', 'protocol.file.allow=always', ...args);

function makeRemote(name: string, files: Record<string, string | Buffer>): string {
  const seed = join(base, `${name}-seed`);
  mkdirSync(seed);
  git(seed, 'init', '--quiet', '--initial-branch=main');
  for (const [path, content] of Object.entries(files)) put(seed, path, content);
  git(seed, 'add', '--all');
  git(seed, 'commit', '--quiet', '--message=First');
  put(seed, 'second.txt');
  git(seed, 'add', '--all');
  git(seed, 'commit', '--quiet', '--message=Second');
  git(seed, 'branch', 'other', 'HEAD~1');
  const remote = join(base, `${name}.git`);
  git(base, 'clone', '--quiet', '--bare', seed, remote);
  return remote;
}

const library = makeRemote('library', { 'library.c': 'int f;\n' });
const remote = makeRemote('remote', {
  'README.md': 'Hello\n',
  'src/main.c': 'int main() {}\n',
  'src/long/path/to/file.txt': 'deep\n',
  'tools/build.sh': '#!/bin/sh\n',
  '.gitignore': '*.log\nbuild/\n',
  ...Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`assets/${at}`, randomBytes(20_000)])),
});

let clones = 0;
function clone(...options: string[]): string {
  const path = join(base, `clone ${++clones}`);
  git(base, 'clone', '--quiet', ...options, options.length > 0 ? `file://${remote}` : remote, path);
  return path;
}

type Entry = string;
/** Files, links and executable bits, without repositories. */
function listTree(root: string, under = ''): Record<string, Entry> {
  // Names may be of no encoding.
  const at = (path: string) => Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, 'latin1')]);
  return Object.assign(
    {},
    ...readdirSync(at(under), { withFileTypes: true, encoding: 'latin1' }).map(entry => {
      const path = join(under, entry.name);
      if (entry.name === '.git') return {};
      if (entry.isDirectory()) return listTree(root, path);
      if (entry.isSymbolicLink()) return { [path]: `link to ${readlinkSync(at(path))}` };
      const mode = (statSync(at(path)).mode & 0o100) === 0 ? 'file' : 'program';
      return { [path]: `${mode} ${digestOf(at(path))}` };
    }),
  );
}

const digestOf = (path: string | Buffer) => createHash('sha1').update(readFileSync(path)).digest('hex');

/** Every file of a directory with its mode and content. */
function fingerprint(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .map(entry => join(entry.parentPath, entry.name))
    .toSorted()
    .map(path => {
      const { mode } = statSync(path);
      return `${path} ${mode} ${statSync(path).isFile() ? digestOf(path) : ''}`;
    });
}

const repositoryOf = (root: string) => [
  ...new Set(
    ['--git-dir', '--git-common-dir'].map(what => git(root, 'rev-parse', '--path-format=absolute', what)),
  ),
];

/** Sends the snapshot to a clone of the remote, as the server would take it. Returns what a checkout of it contains. */
async function deliver(
  root: string,
  options: { from?: string; lacks?: readonly string[]; to?: string } = {},
) {
  const before = repositoryOf(root).map(fingerprint);
  const tree = listTree(root);
  const mirror = join(base, `mirror-${++clones}.git`);
  git(base, 'clone', '--quiet', '--bare', '--shared', options.to ?? remote, mirror);
  const checkedOut = join(base, `checked-out-${clones}`);
  const delivered = await withSnapshot(
    async snapshot => {
      const tried: (string | undefined)[] = [];
      for await (const from of snapshot.bases()) {
        tried.push(from);
        const isKnown = from === undefined || (!options.lacks?.includes(from) && has(mirror, from));
        const bundle = isKnown ? await snapshot.bundle(from) : undefined;
        if (!bundle) continue;
        git(
          mirror,
          ...['-c', 'fetch.fsckObjects=true', 'fetch', '--quiet', bundle.path],
          'refs/assay/snapshot:refs/heads/snapshot',
        );
        assert.equal(git(mirror, 'rev-parse', 'snapshot'), snapshot.commit);
        git(mirror, 'worktree', 'add', '--quiet', checkedOut, 'snapshot');
        return { snapshot, tried, from, sizeBytes: bundle.sizeBytes };
      }
      return { snapshot, tried, from: undefined, sizeBytes: undefined };
    },
    { directory: options.from ?? root },
  );
  assert.deepEqual(repositoryOf(root).map(fingerprint), before, 'the repository has changed');
  assert.deepEqual(listTree(root), tree, 'the working tree has changed');
  assert.deepEqual(readdirSync(temporary), [], 'temporary files are left');
  return { ...delivered, tree, received: existsSync(checkedOut) ? listTree(checkedOut) : {}, mirror };
}

function has(repository: string, hash: string): boolean {
  try {
    git(repository, 'cat-file', '-e', `${hash}^{commit}`);
    return true;
  } catch {
    return false;
  }
}

const without = (tree: Record<string, Entry>, ...paths: string[]) =>
  Object.fromEntries(Object.entries(tree).filter(([path]) => !paths.includes(path)));

describe('the working tree as it is', () => {
  type Case = { make(root: string): void; absent?: string[]; remarks?: RegExp[] };
  const cases: Record<string, Case> = {
    'without any change': { make() {} },
    'a changed file that nobody staged': { make: root => put(root, 'README.md', 'changed\n') },
    'a change of the same size in the second of the commit': {
      make(root) {
        const time = statSync(join(root, '.git/index')).mtime;
        put(root, 'README.md', 'HELLO\n');
        utimesSync(join(root, 'README.md'), time, time);
      },
    },
    'a staged change, and another one on top': {
      make(root) {
        put(root, 'README.md', 'staged\n');
        git(root, 'add', 'README.md');
        put(root, 'README.md', 'on top\n');
      },
    },
    'untracked files, and ignored ones that stay': {
      make(root) {
        put(root, 'new/file');
        put(root, 'debug.log');
        put(root, 'build/out');
        put(root, '.git/info/exclude', 'secret\n');
        put(root, 'secret');
      },
      absent: ['debug.log', 'build/out', 'secret'],
    },
    'an ignored file that is tracked': {
      make(root) {
        put(root, 'kept.log');
        git(root, 'add', '--force', 'kept.log');
        git(root, 'commit', '--quiet', '--message=Kept');
        put(root, 'kept.log', 'changed\n');
      },
    },
    'deletions, staged or not': {
      make(root) {
        rmSync(join(root, 'README.md'));
        git(root, 'rm', '--quiet', 'src/main.c');
        rmSync(join(root, 'assets'), { recursive: true });
      },
    },
    'renames, staged or not': {
      make(root) {
        renameSync(join(root, 'README.md'), join(root, 'LIESMICH.md'));
        git(root, 'mv', 'src', 'source');
      },
    },
    'executable bits': {
      make(root) {
        chmodSync(join(root, 'tools/build.sh'), 0o755);
        put(root, 'tools/new.sh');
        chmodSync(join(root, 'tools/new.sh'), 0o755);
      },
    },
    'symbolic links, also broken ones': {
      make(root) {
        symlinkSync('README.md', join(root, 'link'));
        symlinkSync('/nowhere/at all', join(root, 'broken'));
        rmSync(join(root, 'second.txt'));
        symlinkSync('src', join(root, 'second.txt'));
      },
    },
    'a directory in place of a file, and the reverse': {
      make(root) {
        rmSync(join(root, 'README.md'));
        put(root, 'README.md/part');
        rmSync(join(root, 'src'), { recursive: true });
        put(root, 'src', 'now a file\n');
      },
    },
    'names with spaces, quotes, line breaks, dashes and bytes of no encoding': {
      make(root) {
        for (const name of [
          'with space',
          'a "quote"',
          "it's",
          'line\nbreak',
          '-dash',
          'ünïcode',
          ':(glob)*',
          '*',
        ])
          put(root, name);
        writeFileSync(Buffer.concat([Buffer.from(`${root}/byte-`), Buffer.from([0xff, 0xfe])]), 'bytes\n');
      },
    },
    'empty files and empty directories, which git does not know': {
      make(root) {
        put(root, 'empty', '');
        mkdirSync(join(root, 'hollow'));
      },
    },
    'a file that is only announced (add --intent-to-add)': {
      make(root) {
        put(root, 'announced');
        git(root, 'add', '--intent-to-add', 'announced');
      },
    },
    'local commits that were not pushed': {
      make(root) {
        put(root, 'one');
        git(root, 'add', '--all');
        git(root, 'commit', '--quiet', '--message=One');
        put(root, 'two');
      },
    },
    'a merge with conflicts': {
      make(root) {
        git(root, 'checkout', '--quiet', '-b', 'theirs');
        put(root, 'README.md', 'theirs\n');
        rmSync(join(root, 'src/main.c'));
        git(root, 'commit', '--quiet', '--all', '--message=Theirs');
        git(root, 'checkout', '--quiet', 'main');
        put(root, 'README.md', 'ours\n');
        put(root, 'src/main.c', 'ours\n');
        git(root, 'commit', '--quiet', '--all', '--message=Ours');
        assert.throws(() => git(root, 'merge', '--quiet', 'theirs'));
      },
      remarks: [/README\.md has unresolved conflicts/, /src\/main\.c has unresolved conflicts/],
    },
    'a split index': {
      make(root) {
        git(root, 'config', 'core.splitIndex', 'true');
        git(root, 'update-index', '--split-index');
        put(root, 'README.md', 'changed\n');
      },
    },
    'hooks of the repository, which do not run': {
      make(root) {
        put(root, '.git/hooks/post-index-change', '#!/bin/sh\ntouch hook-ran\n');
        chmodSync(join(root, '.git/hooks/post-index-change'), 0o755);
        put(root, 'README.md', 'changed\n');
      },
    },
    'a repository in it that is no submodule': {
      make(root) {
        for (const name of ['nested', 'hollow']) {
          mkdirSync(join(root, name));
          git(join(root, name), 'init', '--quiet');
          put(root, `${name}/file`);
        }
        git(join(root, 'nested'), 'add', '--all');
        git(join(root, 'nested'), 'commit', '--quiet', '--message=Nested');
      },
      absent: ['nested/file', 'hollow/file'],
      remarks: [/^hollow is a repository of its own/, /^nested is a repository of its own/],
    },
    'a detached HEAD': {
      make(root) {
        git(root, 'checkout', '--quiet', '--detach', 'HEAD~1');
        put(root, 'README.md', 'changed\n');
      },
    },
    'an orphan branch': {
      make(root) {
        git(root, 'checkout', '--quiet', '--orphan', 'fresh');
        put(root, 'README.md', 'changed\n');
      },
    },
  };
  for (const [name, { make, absent = [], remarks = [] }] of Object.entries(cases))
    test(`travels with ${name}`, async () => {
      const root = clone();
      make(root);
      const { tree, received, snapshot } = await deliver(root);
      assert.deepEqual(received, without(tree, ...absent));
      assert.equal(snapshot.remarks.length, remarks.length, snapshot.remarks.join('\n'));
      for (const [at, remark] of remarks.entries()) assert.match(snapshot.remarks[at] as string, remark);
    });

  test('travels from a directory below its root, and from a linked worktree', async () => {
    const root = clone();
    const linked = join(base, 'linked');
    git(root, 'worktree', 'add', '--quiet', '-b', 'side', linked, 'HEAD~1');
    put(root, 'README.md', 'not this one\n');
    put(linked, 'README.md', 'this one\n');
    put(linked, 'src/long/new');
    const { tree, received, snapshot } = await deliver(linked, { from: join(linked, 'src/long') });
    assert.deepEqual(received, tree);
    assert.equal(snapshot.branch, 'side');
  });

  test('travels whole from a sparse checkout', async () => {
    const root = clone();
    git(root, 'sparse-checkout', 'set', 'src');
    assert.ok(!existsSync(join(root, 'assets')));
    put(root, 'src/main.c', 'changed\n');
    put(root, 'outside/new');
    const whole = listTree(clone());
    const { tree, received } = await deliver(root);
    assert.deepEqual(received, { ...whole, ...tree });
  });

  test('travels without the changes that git was asked to ignore', async () => {
    const root = clone();
    git(root, 'update-index', '--assume-unchanged', 'README.md');
    put(root, 'README.md', 'only here\n');
    const { tree, received, mirror } = await deliver(root);
    assert.deepEqual(without(received, 'README.md'), without(tree, 'README.md'));
    assert.equal(git(mirror, 'show', 'snapshot:README.md'), 'Hello');
  });

  test('travels with the files that a clean filter makes', async () => {
    const root = clone();
    git(root, 'config', 'filter.upper.clean', 'tr a-z A-Z');
    put(root, '.gitattributes', '*.up filter=upper\n');
    put(root, 'a.up', 'small\n');
    put(
      root,
      '.git/config',
      `${readFileSync(join(root, '.git/config'), 'utf8')}[core]\n\tautocrlf = input\n\tsafecrlf = true\n`,
    );
    put(root, 'windows.txt', 'a\r\nb\r\n');
    const { mirror } = await deliver(root);
    assert.equal(git(mirror, 'show', 'snapshot:a.up'), 'SMALL');
    assert.equal(git(mirror, 'show', 'snapshot:windows.txt'), 'a\nb');
  });

  test('names the commit of a submodule that is checked out, and says that its own changes stay', async () => {
    const root = clone();
    local(root, 'submodule', '--quiet', 'add', library, 'lib/clean');
    local(root, 'submodule', '--quiet', 'add', library, 'lib/dirty dir');
    git(root, 'commit', '--quiet', '--message=Submodules');
    git(join(root, 'lib/clean'), 'checkout', '--quiet', 'HEAD~1');
    put(root, 'lib/dirty dir/untracked');
    const { mirror, snapshot } = await deliver(root);
    assert.equal(git(mirror, 'rev-parse', 'snapshot:lib/clean'), git(library, 'rev-parse', 'main~1'));
    assert.equal(git(mirror, 'rev-parse', 'snapshot:lib/dirty dir'), git(library, 'rev-parse', 'main'));
    assert.deepEqual(snapshot.remarks, [
      'the uncommitted changes of the submodule lib/dirty dir do not travel',
    ]);
  });

  test('travels before the first commit, with and without an index', async () => {
    const root = join(base, 'unborn');
    mkdirSync(root);
    git(root, 'init', '--quiet', '--initial-branch=begin');
    put(root, 'first');
    const first = await deliver(root);
    assert.deepEqual(first.received, first.tree);
    assert.deepEqual(
      [first.snapshot.head, first.snapshot.branch, first.tried],
      [undefined, 'begin', [undefined]],
    );
    git(root, 'add', '--all');
    put(root, 'second');
    const second = await deliver(root);
    assert.deepEqual(Object.keys(second.received), ['first', 'second']);
    assert.equal(git(second.mirror, 'rev-list', '--count', 'snapshot'), '1');
  });

  test('is read although another git holds the lock of the index', async () => {
    const root = clone();
    put(root, '.git/index.lock', '');
    put(root, 'README.md', 'changed\n');
    const { tree, received } = await deliver(root);
    assert.deepEqual(received, tree);
  });
});

describe('the commit', () => {
  test('has HEAD as its parent, the user as its author, and names the branch', async () => {
    const root = clone();
    git(root, 'config', 'user.name', 'Grace');
    git(root, 'config', 'user.email', 'grace@example.test');
    git(root, 'config', 'commit.gpgSign', 'true');
    const { mirror } = await deliver(root);
    assert.equal(
      git(mirror, 'log', '-1', '--format=%an <%ae> %cn <%ce> %s %P', 'snapshot'),
      `Grace <grace@example.test> Grace <grace@example.test> Working tree of main ${git(root, 'rev-parse', 'HEAD')}`,
    );
  });

  test('has another author if the user has no name', async () => {
    const root = clone();
    git(root, 'config', 'user.useConfigOnly', 'true');
    git(root, 'checkout', '--quiet', '--detach');
    delete process.env.EMAIL;
    const { mirror } = await deliver(root);
    assert.equal(
      git(mirror, 'log', '-1', '--format=%an <%ae> %s', 'snapshot'),
      `assay <assay@localhost> Working tree of ${git(root, 'rev-parse', '--short=7', 'HEAD')}`,
    );
  });
});

describe('what travels', () => {
  const hash = (root: string, of: string) => git(root, 'rev-parse', of);

  test('is only what the upstream branch lacks', async () => {
    const root = clone();
    put(root, 'README.md', 'changed\n');
    const { tried, sizeBytes } = await deliver(root);
    assert.deepEqual(tried, [hash(root, 'origin/main')]);
    assert.ok((sizeBytes as number) < 2000, `${sizeBytes} bytes`);
  });

  test('begins where the branch left a branch of the remote, if the server does not know the upstream', async () => {
    const root = clone();
    git(root, 'checkout', '--quiet', '-b', 'feature');
    put(root, 'one');
    git(root, 'add', '--all');
    git(root, 'commit', '--quiet', '--message=One');
    git(root, 'update-ref', 'refs/remotes/origin/feature', 'HEAD');
    git(root, 'branch', '--quiet', '--set-upstream-to=origin/feature');
    const { tried, tree, received, sizeBytes } = await deliver(root);
    assert.deepEqual(tried, [hash(root, 'HEAD'), hash(root, 'HEAD~1')]);
    assert.deepEqual(received, tree);
    assert.ok((sizeBytes as number) < 2000, `${sizeBytes} bytes`);
  });

  test('begins at an older branch if the server lacks the newest, and is everything if it has nothing', async () => {
    const root = clone();
    const [main, other] = [hash(root, 'origin/main'), hash(root, 'origin/other')];
    const older = await deliver(root, { lacks: [main] });
    assert.deepEqual([older.tried, older.received], [[main, other], older.tree]);
    const empty = join(base, 'empty.git');
    mkdirSync(empty);
    git(empty, 'init', '--quiet', '--bare');
    const everything = await deliver(root, { to: empty });
    assert.deepEqual([everything.tried, everything.received], [[main, other, undefined], everything.tree]);
    assert.ok((everything.sizeBytes as number) > 400_000);
  });

  test('is small from a shallow clone, also of a tag', async () => {
    const root = clone('--depth=1');
    put(root, 'README.md', 'changed\n');
    const { tree, received, sizeBytes } = await deliver(root);
    assert.deepEqual(received, tree);
    assert.ok((sizeBytes as number) < 2000, `${sizeBytes} bytes`);
    git(remote, 'tag', 'v1', 'main~1');
    const tagged = clone('--depth=1', '--branch=v1');
    put(tagged, 'README.md', 'changed\n');
    const ofTag = await deliver(tagged);
    assert.deepEqual([ofTag.tried, ofTag.received], [[hash(tagged, 'HEAD')], ofTag.tree]);
  });

  test('is nothing if the server has no commit of a shallow clone', async () => {
    const root = clone('--depth=1');
    put(root, 'README.md', 'changed\n');
    const { tried, sizeBytes } = await deliver(root, { lacks: [hash(root, 'HEAD')] });
    assert.deepEqual([tried, sizeBytes], [[hash(root, 'HEAD'), undefined], undefined]);
  });

  test('comes from a clone that borrows its objects, in a directory with a colon', async () => {
    const root = join(base, 'with:colon "quoted"');
    git(base, 'clone', '--quiet', '--shared', remote, root);
    put(root, 'README.md', 'changed\n');
    const { tree, received } = await deliver(root);
    assert.deepEqual(received, tree);
  });
});

describe('what cannot be sent', () => {
  const refusal = (directory: string, maxBytes = MAX_BUNDLE_BYTES) =>
    withSnapshot(snapshot => snapshot.bundle(snapshot.head), { directory, maxBytes }).then(
      () => assert.fail('it was taken'),
      (error: unknown) => {
        assert.ok(error instanceof CommandError, String(error));
        assert.deepEqual(readdirSync(temporary), [], 'temporary files are left');
        return error;
      },
    );

  test('files that are too large are named before they are read', async () => {
    const root = clone();
    put(root, 'data/huge.bin', '');
    truncateSync(join(root, 'data/huge.bin'), 3 * 2 ** 30);
    put(root, 'small');
    const { message, exitStatus } = await refusal(root);
    assert.match(message, /too large \(3\.0 GiB\)[\s\S]*\n +3\.0 GiB {2}data\/huge\.bin\n[\s\S]*\.gitignore/);
    assert.equal(exitStatus, 5);
  });

  test('a bundle that is too large names the files in it', async () => {
    const root = clone();
    put(root, 'random.bin', randomBytes(300_000));
    const { message } = await refusal(root, 200_000);
    assert.match(message, /^what the server lacks is too large[\s\S]*\n +293\.0 KiB {2}random\.bin\n/);
  });

  test('a directory that is no checkout, or a bare repository', async () => {
    assert.match((await refusal(base)).message, /not a git repository/);
    assert.match((await refusal(remote)).message, /work tree/);
  });

  test('a file that cannot be read is named', async () => {
    const root = clone();
    put(root, '.gitattributes', '*.bad filter=bad\n');
    git(root, 'config', 'filter.bad.clean', 'false');
    git(root, 'config', 'filter.bad.required', 'true');
    put(root, 'a.bad');
    assert.match((await refusal(root)).message, /a\.bad/);
  });
});

test('an interrupt stops git and removes everything', async () => {
  const root = clone();
  // A filter that goes on when git is killed.
  git(
    root,
    'config',
    'filter.slow.clean',
    `echo > '${base}/begun'; while [ -e '${base}/begun' ]; do sleep 0.1; done`,
  );
  put(root, '.gitattributes', '*.slow filter=slow\n');
  put(root, 'a.slow');
  const interrupt = new AbortController();
  const taken = withSnapshot(async () => assert.fail('it was taken'), {
    directory: root,
    signal: interrupt.signal,
  });
  while (!existsSync(join(base, 'begun'))) await new Promise(resolve => setImmediate(resolve));
  interrupt.abort(new Error('stopped'));
  await assert.rejects(taken, /stopped/);
  rmSync(join(base, 'begun'));
  assert.deepEqual(readdirSync(temporary), []);
});

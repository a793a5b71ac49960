// The checkout inside the container, from a mirror like that of the server.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import {
  type Checkout,
  checkoutStep,
  volumeCheckoutPlan,
  workspaceMount,
} from '../../../src/domain/container/checkout-script.ts';
import { mirrorMount } from '../../../src/domain/container/container-plan.ts';
import { exitOf, type Fixture, follow, openFixture, textOf } from './fixture.ts';

const run = promisify(execFile);
const WHO = {
  GIT_AUTHOR_NAME: 'A',
  GIT_AUTHOR_EMAIL: 'a@example.org',
  GIT_COMMITTER_NAME: 'A',
  GIT_COMMITTER_EMAIL: 'a@example.org',
};

async function git(directory: string, ...args: string[]): Promise<string> {
  const env = { ...process.env, ...WHO, GIT_CONFIG_GLOBAL: '/dev/null' };
  const { stdout } = await run('git', args, { cwd: directory, env, timeout: 20_000 });
  return stdout.trim();
}

const checkOut = (checkout: Omit<Checkout, 'at'>) => checkoutStep({ ...checkout, at: 1_700_000_000_000 });

async function makeMirror(fixture: Fixture, name: string, ...format: string[]) {
  const work = join(fixture.directory, name);
  await mkdir(work);
  await git(work, 'init', '-q', '-b', 'main', ...format);
  await writeFile(join(work, 'a.txt'), 'first\n');
  await git(work, 'add', '.');
  await git(work, 'commit', '-qm', 'first');
  await git(work, 'tag', '-am', 'a tag', 'v1.0');
  await writeFile(join(work, 'run.sh'), '#!/bin/sh\necho ran\n');
  await chmod(join(work, 'run.sh'), 0o755);
  await writeFile(join(work, '.gitattributes'), '* filter=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n');
  await writeFile(join(work, 'big.bin'), 'version https://git-lfs.github.com/spec/v1\n');
  await writeFile(
    join(work, '.gitmodules'),
    '[submodule "m"]\n\tpath = m\n\turl = ext::sh -c "touch /tmp/owned"\n',
  );
  await symlink('/etc/passwd', join(work, 'link'));
  await symlink('../../..', join(work, 'up'));
  await git(work, 'add', '.');
  await git(work, 'commit', '-qm', 'second');
  const second = await git(work, 'rev-parse', 'HEAD');
  await git(work, 'update-index', '--add', '--cacheinfo', `160000,${second},m`);
  await git(work, 'commit', '-qm', "third, with 'quotes'");
  await git(work, 'branch', 'topic/x', 'HEAD~1');
  const mirror = join(fixture.directory, `${name}.git`);
  await git(fixture.directory, 'clone', '-q', '--mirror', work, mirror);
  return { mirror, head: await git(work, 'rev-parse', 'HEAD'), second };
}

describe('a checkout', () => {
  let fixture: Fixture;
  let repository: Awaited<ReturnType<typeof makeMirror>>;
  before(async () => {
    fixture = await openFixture();
    repository = await makeMirror(fixture, 'work');
  });
  after(() => fixture.close());

  const inside = (checkout: Omit<Checkout, 'at'>, command: string, mirror = repository.mirror) =>
    fixture.run(command, { steps: [checkOut(checkout)], mounts: [mirrorMount(mirror)] });

  it("of a branch is clean, complete and named, and passes git's own checks", async () => {
    const { text, exit } = await inside(
      { hash: repository.head, branch: 'main', originUrl: 'git@example.org:a/b.git' },
      `exec 2>&1
       git status --porcelain; git status | head -2
       git rev-parse HEAD; git describe; git log --oneline | wc -l; git tag; git branch -a
       git remote get-url origin; ./run.sh; git fsck --connectivity-only --no-dangling
       git -c user.name=A -c user.email=a@b commit -q --allow-empty -m more && git log --oneline | wc -l`,
    );
    assert.equal(exit?.status, 0, text);
    assert.equal(
      text,
      [
        'On branch main',
        "Your branch is up to date with 'origin/main'.",
        repository.head,
        `v1.0-2-g${repository.head.slice(0, 7)}`,
        '3',
        'v1.0',
        '* main',
        '  remotes/origin/main',
        '  remotes/origin/topic/x',
        'git@example.org:a/b.git',
        'ran',
        '4',
        '',
      ].join('\n'),
    );
  });

  it('of a hash is detached at exactly that commit', async () => {
    const { text } = await inside(
      { hash: repository.second },
      'git status | head -1; git rev-parse HEAD; git branch; git reflog --date=unix; cat .git/ORIG_HEAD 2>&1',
    );
    assert.match(text, /^HEAD detached at [0-9a-f]{7}\n/);
    assert.match(text, /HEAD@\{1700000000\}: checkout: moving from origin to /);
    assert.match(text, /cat: .*No such file/);
    assert.ok(text.includes(repository.second));
  });

  it('can be changed: branches, tags, and files to ignore', async () => {
    const { exit, text } = await inside(
      { hash: repository.second },
      `exec 2>&1
       echo made >>.git/info/exclude && touch made && git status --porcelain
       git switch -qc mine && git tag v9 && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m more
       git gc -q && git describe && git fsck --no-dangling && git switch -q --detach v1.0 && git status | head -1`,
    );
    assert.equal(exit?.status, 0, text);
    assert.match(text, /^v1\.0-2-g[0-9a-f]{7}\nHEAD detached at v1\.0\n$/);
  });

  it('belongs to the user, and copies no history', async () => {
    const { text } = await inside(
      { hash: repository.head, branch: 'main' },
      'find . ! -user assay; find .git/objects -type f | grep -v /info/; touch /srv/.assay/mirror/x 2>&1',
    );
    assert.match(text, /^touch: .*Read-only file system\n$/);
  });

  it('runs nothing that a repository configures: hooks, filters, submodules, LFS', async () => {
    const { text } = await inside(
      { hash: repository.head, branch: 'main' },
      'ls /tmp; ls -A .git/hooks 2>/dev/null; ls -A m; head -c 7 big.bin; echo; readlink link up; git status --porcelain',
    );
    assert.equal(text, 'version\n/etc/passwd\n../../..\n');
  });

  it('fails as a separate step if the commit is missing', async () => {
    const { exit, text } = await inside({ hash: '0123456789'.repeat(4) }, 'echo never');
    assert.equal(exit?.name, 'checkout');
    assert.notEqual(exit.status, 0);
    assert.doesNotMatch(text, /never/);
  });

  it('ignores the git settings of the suite', async () => {
    const { exit, text } = await fixture.run('unset GIT_DIR; git rev-parse HEAD', {
      steps: [checkOut({ hash: repository.head })],
      mounts: [mirrorMount(repository.mirror)],
      environment: { GIT_DIR: '/nowhere', LD_LIBRARY_PATH: '/nowhere' },
    });
    assert.equal(exit?.status, 0, text);
    assert.equal(text.trim(), repository.head);
  });

  it('works for a repository with SHA-256 objects', async () => {
    const wide = await makeMirror(fixture, 'wide', '--object-format=sha256');
    const { text, exit } = await inside(
      { hash: wide.head, branch: 'main' },
      'git status -sb; git describe',
      wide.mirror,
    );
    assert.equal(exit?.status, 0, text);
    assert.match(text, /^## main\.\.\.origin\/main\nv1\.0-2-g/);
  });

  it('is made in a volume for an image without git', async () => {
    const volume = `${fixture.instance}-workspace`;
    await fixture.engine.createVolume({
      name: volume,
      owner: { instance: fixture.instance, kind: 'build', id: '1' },
    });
    const step = checkOut({ hash: repository.head });
    const { plan: suite, file: outputFile, nonce } = await fixture.begin('never run', { network: 'none' });
    const mirror = repository.mirror;
    const plan = volumeCheckoutPlan({ suite, host: fixture.host, step, mirror, volume, outputFile, nonce });
    await fixture.engine.startContainer(plan);
    const records = await Array.fromAsync(follow(outputFile, nonce));
    assert.equal(exitOf(records)?.status, 0, textOf(records));
    const shared = [mirrorMount(mirror), workspaceMount(volume)];
    const second = await fixture.run('./run.sh; touch new; git status --porcelain', { mounts: shared });
    assert.equal(second.text, 'ran\n?? new\n');
  });
});

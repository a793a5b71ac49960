// `assay run --local` against a real server: what the suites see, what travels, and what is left behind when it cannot work.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { newSecret } from '../../src/domain/secret.ts';
import { createAccount } from '../../src/store/accounts.ts';
import type { ProjectJourney } from '../support/journey.ts';
import { git } from '../support/repository.ts';
import { type ClientWorld, type RunOptions, startClientWorld } from './fixture.ts';

const put = (root: string, path: string, content: string | Buffer = `${path}\n`) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
};

/** Prints everything in the workspace, and what git says about it. */
const DESCRIBE = `find . -path ./.git -prune -o -type f -printf '%P %m ' -exec cat {} \\; | sort
git status --porcelain
git log -1 --format='%s of %an on %P'
echo "trigger $ASSAY_TRIGGER"
[ ! -e fail ]`;

describe('assay run --local', () => {
  let world: ClientWorld;
  let project: ProjectJourney;
  let path: string;
  let temporary: string;
  before(async () => {
    world = await startClientWorld({ concurrency: 4 });
    temporary = join(world.directory, 'tmp');
    mkdirSync(temporary);
    ({ project, path } = await world.checkout(
      world.repository({
        message: 'First\n',
        files: {
          'README.md': 'Hello\n',
          'old name': 'moved\n',
          removed: 'removed\n',
          'tool.sh': '#!/bin/sh\n',
          '.gitignore': '*.log\n',
          'large.bin': randomBytes(3 << 20),
        },
      }),
    ));
    git(path, 'config', 'user.name', 'Grace');
    git(path, 'config', 'user.email', 'grace@example.org');
    await project.suite({
      name: 'Describe',
      command: `rm large.bin; git update-index --assume-unchanged large.bin\n${DESCRIBE}`,
    });
    await project.suite({ name: 'Other', command: 'echo other' });
    assert.equal((await project.run()).state, 'passed');
  });
  after(() => world.close());

  /** Runs the suites that are named, and returns the end of the request and the log of its first build. */
  async function run(args: readonly string[], options: RunOptions & { of?: ProjectJourney } = {}) {
    const { of = project, env, ...rest } = options;
    const ran = await world.run(['run', '--local', '--json', ...args], {
      in: path,
      ...rest,
      env: { TMPDIR: temporary, ...env },
    });
    assert.deepEqual(readdirSync(temporary), [], 'temporary files are left');
    const records = ran.stdout
      .split('\n')
      .filter(line => line !== '')
      .map(line => JSON.parse(line) as { build_request?: Record<string, string> });
    const request = records.at(-1)?.build_request;
    const builds = request ? await of.buildsOf(request.id_str as string) : [];
    const [build] = builds;
    const log = build ? await of.log(build.id_str as string) : '';
    const text = `${ran.status}\n${ran.stdout}\n${ran.stderr}\n${log}`;
    return { ...ran, request, builds, lines: log.split('\n'), text };
  }

  async function sizeOf({ request, text }: Awaited<ReturnType<typeof run>>): Promise<number> {
    assert.ok(request?.snapshot_id_str, text);
    const { size_bytes: sizeBytes } = await project.ask('GET', `/snapshots/${request.snapshot_id_str}`);
    return sizeBytes as number;
  }

  const refs = () => project.repository.git('for-each-ref');

  it('builds the working tree as it is, and changes neither the repository here nor the remote', async () => {
    renameSync(join(path, 'old name'), join(path, 'new name'));
    rmSync(join(path, 'removed'));
    chmodSync(join(path, 'tool.sh'), 0o755);
    put(path, 'README.md', 'Changed\n');
    put(path, 'deep/untracked');
    put(path, 'ignored.log');
    const [remote, local] = [refs(), git(path, 'for-each-ref') + git(path, 'status', '--porcelain')];
    const ran = await run(['describe'], { in: join(path, 'deep') });
    assert.equal(ran.status, 0, ran.text);
    assert.equal(ran.builds.length, 1);
    for (const line of [
      'README.md 644 Changed',
      'deep/untracked 644 deep/untracked',
      'new name 644 moved',
      'tool.sh 755 #!/bin/sh',
      `Working tree of main of Grace on ${git(path, 'rev-parse', 'HEAD')}`,
      'trigger local',
    ])
      assert.ok(ran.lines.includes(line), `${line}\n${ran.text}`);
    assert.ok(!ran.lines.some(line => /^(removed|old name|ignored|[ MADRCU?]{2} )/.test(line)), ran.text);
    assert.deepEqual(
      [refs(), git(path, 'for-each-ref') + git(path, 'status', '--porcelain')],
      [remote, local],
    );
    // Only what the server lacks: not the large file.
    assert.ok((await sizeOf(ran)) < 4096, ran.text);
    assert.match(ran.stderr, /^assay: sent the working tree of main \(\d+ B\)$/m);
    git(path, 'checkout', '--quiet', '.');
  });

  it('exits with the status of the build, and refuses a suite that does not exist', async () => {
    put(path, 'fail');
    const [failed, passed, unknown, several] = [
      await run(['Describe']),
      await run(['OTHER']),
      await run(['Unit tests']),
      await world.run(['run', 'main', 'Other'], { in: path }),
    ];
    rmSync(join(path, 'fail'));
    assert.equal(failed.status, 1, failed.text);
    assert.equal(passed.status, 0, passed.text);
    assert.deepEqual(
      [unknown.status, unknown.stderr],
      [2, 'assay: the project has no suite "Unit tests"; its suites are:\n  Other\n  Describe\n'],
    );
    assert.deepEqual(
      [several.status, several.stderr],
      [2, 'assay: name one REF; suites can be named with --local only\n'],
    );
  });

  it('runs all suites whose rules match if none is named, and follows them with plain lines', async () => {
    const { status, stdout } = await world.run(['run', '--local'], { in: path });
    assert.equal(status, 0, stdout);
    for (const name of ['Describe', 'Other']) assert.match(stdout, new RegExp(` ${name}: passed`));
    assert.match(stdout, /main: passed\n$/);
  });

  it('is found by other commands with --local, for the user who started it', async () => {
    const { request, text } = await run(['Other']);
    const opened = await world.run(['open', '--local', '--print'], { in: path });
    assert.equal(opened.status, 0, opened.stderr);
    assert.ok(opened.stdout.endsWith(`/commits/${request?.commit_id_str}\n`), opened.stdout + text);
    for (const [args, status, printed] of [
      [['watch', '--local'], 0, / Other: passed/],
      [['logs', '--local'], 0, /\[assay\] suite Other/],
      [['builds', '--local', '--limit', '1'], 0, /main \(local\)/],
      [['artifacts', 'get', '--local'], 5, /keeps no files/],
      [['logs', '--local', '--branch', 'main'], 2, /local runs belong to no branch/],
    ] as const) {
      const done = await world.run(args, { in: path });
      assert.equal(done.status, status, `${args.join(' ')}: ${done.stdout}${done.stderr}`);
      assert.match(done.stdout + done.stderr, printed);
    }
  });

  it('takes a linked worktree on a detached HEAD, a shallow clone, and a repository without a commit', async () => {
    const linked = join(world.directory, 'linked');
    git(path, 'worktree', 'add', '--quiet', '--detach', linked);
    put(linked, 'new');
    const shallow = join(world.directory, 'shallow');
    git(world.directory, 'clone', '--quiet', '--depth=1', `file://${project.repository.directory}`, shallow);
    const unborn = join(world.directory, 'unborn');
    mkdirSync(unborn);
    git(unborn, 'init', '--quiet', '--initial-branch=begin');
    git(unborn, 'remote', 'add', 'origin', project.repository.url);
    git(shallow, 'remote', 'set-url', 'origin', project.repository.url);
    for (const checkout of [shallow, unborn]) put(checkout, 'new');
    for (const [checkout, branch] of [
      [linked, 'HEAD'],
      [shallow, 'main'],
      [unborn, 'begin'],
    ] as const) {
      const ran = await run(['Describe'], { in: checkout });
      assert.equal(ran.status, 0, ran.text);
      assert.ok(ran.lines.includes('new 644 new'), ran.text);
      assert.equal(ran.request?.commit_ref, branch);
      assert.ok((await sizeOf(ran)) < 4096);
    }
  });

  it('says what to do if the server has no commit of a shallow clone', async () => {
    const newer = join(world.directory, 'newer');
    git(world.directory, 'clone', '--quiet', '--depth=1', `file://${project.repository.directory}`, newer);
    git(newer, 'remote', 'set-url', 'origin', project.repository.url);
    git(newer, 'checkout', '--quiet', '--orphan', 'apart');
    git(newer, 'commit', '--quiet', '--message=Apart');
    writeFileSync(join(newer, '.git/shallow'), `${git(newer, 'rev-parse', 'HEAD')}\n`);
    git(newer, 'update-ref', '-d', 'refs/remotes/origin/main');
    const { status, stderr } = await run([], { in: newer });
    assert.equal(status, 5, stderr);
    assert.match(stderr, /none of the commits of this shallow clone: "git fetch --unshallow"/);
  });

  it('checks out the commits of submodules that the working tree names', async () => {
    const library = world.repository({ message: 'One\n', files: { text: 'one\n' } });
    const [newer = ''] = library.add({ message: 'Two\n', files: { text: 'two\n' } });
    const outer = await world.checkout(
      world.repository({
        message: 'First\n',
        files: {
          '.gitmodules': `[submodule "lib"]\n\tpath = lib\n\turl = ../${basename(library.directory)}\n`,
        },
        submodules: { lib: library.hashes[0] as string },
      }),
      { submodules: 'on' },
    );
    await outer.project.suite({ command: 'cat lib/text' });
    await outer.project.run();
    git(join(outer.path, 'lib'), 'clone', '--quiet', library.directory, '.');
    assert.equal(git(join(outer.path, 'lib'), 'rev-parse', 'HEAD'), newer);
    put(outer.path, 'lib/text', 'not committed\n');
    const ran = await run([], { in: outer.path, of: outer.project });
    assert.equal(ran.status, 0, ran.text);
    assert.ok(ran.lines.includes('two'), ran.text);
    assert.match(ran.stderr, /^assay: the uncommitted changes of the submodule lib do not travel$/m);
  });

  it('downloads what the builds keep, also of one that fails', async () => {
    const command = 'mkdir -p out/deep; cat README.md >out/deep/copy; exit 1';
    await project.suite({ name: 'Keep: it', command, artifacts: 'out/**' });
    put(path, 'README.md', 'Not committed\n');
    const directory = join(world.directory, 'kept');
    const kept = await run(['Keep: it', '--artifacts', directory]);
    const none = await run(['Other', '--artifacts', directory]);
    const never = await run(['--artifacts', directory, '--no-wait']);
    git(path, 'checkout', '--quiet', '.');
    assert.equal(kept.status, 1, kept.text);
    assert.match(kept.stderr, /^assay: stored 1 file in /m);
    assert.equal(readFileSync(join(directory, 'Keep_ it/out/deep/copy'), 'utf8'), 'Not committed\n');
    assert.equal(none.status, 0, none.text);
    assert.match(none.stderr, /^assay: no build keeps files/m);
    assert.equal(never.status, 2, never.text);
  });

  it('is open to collaborators, who need no key of the repository', async () => {
    const key = newSecret('assay');
    const email = 'helper@example.org';
    createAccount(world.app.db, {
      email,
      kind: 'collaborator',
      admin: false,
      passwordHash: null,
      apiKey: key,
    });
    await project.ask('POST', '/collaborators', { email });
    const ran = await run(['Other'], { env: { ASSAY_TOKEN: `${email}:${key}` } });
    assert.equal(ran.status, 0, ran.text);
    assert.equal(ran.request?.created_by, email);
  });

  it('takes 50,000 files', async t => {
    // In memory: it is not the disk that is tested.
    const memory = join(world.directory, 'memory');
    mkdirSync(memory);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2g', 'tmpfs', memory]);
    t.after(() => execFileSync('umount', [memory]));
    const many = join(memory, 'checkout');
    git(memory, 'clone', '--quiet', path, many);
    git(many, 'remote', 'set-url', 'origin', project.repository.url);
    mkdirSync(join(memory, 'tmp'));
    for (let directory = 0; directory < 100; directory++) {
      mkdirSync(join(many, `many/${directory}`), { recursive: true });
      for (let at = 0; at < 500; at++)
        writeFileSync(join(many, `many/${directory}/${at}`), `${directory} ${at}\n`);
    }
    await project.suite({ name: 'Count', command: 'find many -type f | wc -l; cat many/99/499' });
    const ran = await run(['Count'], { in: many, env: { TMPDIR: join(memory, 'tmp') } });
    assert.equal(ran.status, 0, ran.text);
    assert.deepEqual(ran.lines.slice(-3), ['50000', '99 499', '']);
    assert.deepEqual(readdirSync(join(memory, 'tmp')), []);
  });

  describe('on a connection that is watched', () => {
    let proxy: Server;
    const sockets = new Set<Socket>();
    let sentBytes = 0;
    /** No more than so many bytes pass. */
    let limitBytes = Number.POSITIVE_INFINITY;
    let onLimit = () => {};
    let env: Record<string, string>;
    before(async () => {
      proxy = createServer(client => {
        const server = connect(Number(new URL(world.client.origin).port), '127.0.0.1');
        for (const socket of [client, server]) sockets.add(socket.on('error', () => {}));
        client.on('data', (chunk: Buffer) => {
          sentBytes += chunk.length;
          if (sentBytes < limitBytes) server.write(chunk);
          else onLimit();
        });
        client.on('close', () => server.destroy());
        server.pipe(client);
      }).listen(0, '127.0.0.1');
      await once(proxy, 'listening');
      env = { ASSAY_URL: `https://127.0.0.1:${(proxy.address() as AddressInfo).port}` };
    });
    after(() => {
      for (const socket of sockets) socket.destroy();
      proxy.close();
    });

    it('sends only what the server lacks, and once, although it does not know the newest commit', async () => {
      put(path, 'new.bin', randomBytes(1 << 20));
      git(path, 'checkout', '--quiet', '-b', 'feature');
      git(path, 'add', 'new.bin');
      git(path, 'commit', '--quiet', '--message=Not pushed');
      git(path, 'branch', '--quiet', '--set-upstream-to=main');
      git(path, 'update-ref', 'refs/remotes/origin/feature', 'HEAD');
      git(path, 'branch', '--quiet', '--set-upstream-to=origin/feature');
      put(path, 'newer.bin', randomBytes(1 << 20));
      sentBytes = 0;
      const ran = await run(['Other'], { env });
      assert.equal(ran.status, 0, ran.text);
      assert.ok(sentBytes > 2 << 20 && sentBytes < 2.2 * (1 << 20), `${sentBytes} bytes`);
      assert.equal(ran.request?.commit_ref, 'feature');
    });

    it('removes its files when Ctrl-C interrupts the upload, and shows progress on a terminal until then', async () => {
      put(path, 'huge.bin', randomBytes(6 << 20));
      for (const signal of ['SIGINT', 'SIGTERM', 'Ctrl-C'] as const) {
        sentBytes = 0;
        limitBytes = 200_000;
        const isLimitReached = new Promise<void>(resolve => {
          onLimit = resolve;
        });
        const running = await world.start(['run', '--local'], {
          in: path,
          env: { ...env, TMPDIR: temporary },
          ...(signal === 'Ctrl-C' && { columns: 80 }),
        });
        if (signal === 'Ctrl-C') {
          await running.until(/Sending the working tree .*%/);
          running.type('\x03');
        } else {
          await isLimitReached;
          running.child.kill(signal);
        }
        const { status, stdout, stderr } = await running.ended;
        assert.equal(status, 130, stdout + stderr);
        assert.match(stdout + stderr, /assay: interrupted: nothing was started/);
        assert.deepEqual(readdirSync(temporary), []);
      }
      limitBytes = Number.POSITIVE_INFINITY;
      rmSync(join(path, 'huge.bin'));
    });
  });

  it('leaves nothing behind when the server refuses the snapshot', async () => {
    put(path, '.gitmodules', '[submodule "x"]\n\tpath = x\n\turl = -u./payload\n');
    const { status, stderr } = await run([]);
    rmSync(join(path, '.gitmodules'));
    assert.equal(status, 5, stderr);
    assert.match(stderr, /^assay: the server refused the working tree: /m);
  });

  it('leaves nothing behind on a full disk, and says which', async t => {
    const full = join(world.directory, 'full');
    mkdirSync(full);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', full]);
    t.after(() => execFileSync('umount', [full]));
    put(path, 'too-much.bin', randomBytes(3 << 20));
    const { status, stderr } = await run([], { env: { TMPDIR: full } });
    rmSync(join(path, 'too-much.bin'));
    assert.equal(status, 3, stderr);
    assert.equal(
      stderr,
      `assay: the disk is full: free space in ${full}, or name another directory with TMPDIR\n`,
    );
    assert.deepEqual(readdirSync(full), []);
  });
});

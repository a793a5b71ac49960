// `assay dependencies …`: create, upload with a progress bar, follow the compile, over broken connections.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { openDependencies, packTree } from '../work/dependencies/fixture.ts';
import { type ClientWorld, startClientWorld } from './fixture.ts';

/** Passes connections on to the server, until it is told to cut them. */
async function startRelay(port: number) {
  const sockets = new Set<Socket>();
  let cutsAfterBytes = Number.POSITIVE_INFINITY;
  const server: Server = createServer(near => {
    const far = connect(port, '127.0.0.1');
    let bytes = 0;
    near.on('data', chunk => {
      bytes += chunk.length;
      if (bytes > cutsAfterBytes) near.destroy();
    });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `https://127.0.0.1:${(server.address() as { port: number }).port}`,
    /** Cuts each connection that has sent more. */
    cutAfter(bytes: number) {
      cutsAfterBytes = bytes;
    },
    cutNow() {
      for (const socket of sockets) socket.destroy();
    },
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

describe('assay dependencies', () => {
  let world: ClientWorld;
  let relay: Awaited<ReturnType<typeof startRelay>>;
  let archive: string;
  let large: string;
  const makeFile = (name: string, content: Buffer | string) => {
    const path = join(world.directory, name);
    writeFileSync(path, content);
    return path;
  };
  before(async () => {
    world = await startClientWorld();
    relay = await startRelay(Number(new URL(world.client.origin).port));
    archive = makeFile('tool-1.0.tar.gz', packTree({ 'tool-1.0/run': 'echo hello' }, 'tar -czf - *'));
    // Blocks of random bytes: it stays large when it is sent.
    large = makeFile(
      'large.tar',
      packTree({ run: 'echo large' }, 'head -c 12000000 /dev/urandom >data; tar -cf - *'),
    );
  });
  after(async () => {
    relay?.close();
    await world?.close();
  });

  const create = async (name: string, ...flags: string[]) => {
    const created = await world.run(['dependencies', 'create', name, ...flags]);
    assert.equal(created.status, 0, created.stderr);
  };
  const recordOf = async (name: string) => {
    const { stdout } = await world.run(['dependencies', 'list', '--json']);
    const records = stdout
      .trim()
      .split('\n')
      .map(one => JSON.parse(one));
    return records.find(one => one.name === name);
  };

  it('creates, uploads, follows the compile to its end and lists the result', async () => {
    const empty = await world.run(['dependencies', 'list']);
    assert.deepEqual([empty.status, empty.stdout], [0, '']);
    assert.match(empty.stderr, /"assay dependencies create NAME" creates one/);
    const flags = ['--prefix', '/srv/tool', '--source', 'tool-1.0', '--command-file', '-'];
    const creating = await world.start(['dependencies', 'create', 'Tool', ...flags, '--json'], {
      input: 'echo compiling\ncp run /srv/tool\n',
    });
    const created = await creating.ended;
    assert.equal(created.status, 0, created.stderr);
    assert.deepEqual(
      (({ name, prefix, source, command }) => [name, prefix, source, command])(JSON.parse(created.stdout)),
      ['Tool', '/srv/tool', 'tool-1.0', 'echo compiling\ncp run /srv/tool\n'],
    );
    assert.match(created.stdout, /^\{"id":(\d+),"id_ref":"\1"/, 'the exact digits');
    const uploaded = await world.run(['dependencies', 'upload', 'tool', archive]);
    assert.equal(uploaded.status, 0, uploaded.stderr);
    assert.match(uploaded.stdout, /^compiling$/m);
    assert.match(uploaded.stderr, /^Tool: compiled, \d+ B$/m);
    assert.doesNotMatch(uploaded.stdout + uploaded.stderr, /\x1b|\r/);
    const listed = await world.run(['dependencies', 'list']);
    assert.match(listed.stdout, /^Tool {2}compiled {2}\d+ B {2}just now$/m);
  });

  it('shows a progress bar on a terminal, and the result as JSON on request', async () => {
    await create('Large', '--command', 'cp run /srv/dependency');
    const shown = await world.run(['dependencies', 'upload', 'Large', large], { columns: 100 });
    assert.equal(shown.status, 0, shown.stdout);
    assert.match(shown.stdout, /\ruploading large\.tar|\x1b\[Kuploading large\.tar \[\.+\] +0 %/);
    assert.match(shown.stdout, /\[#+\.*\] +[1-9]\d* % /);
    assert.match(shown.stdout, /compiled/);
    const again = await world.run(['dependencies', 'compile', 'Large', '--json']);
    assert.equal(again.status, 0, again.stderr);
    assert.equal(JSON.parse(again.stdout).marketplace_state, 'compiled');
    const queued = await world.run(['dependencies', 'compile', 'Large', '--force', '--no-wait']);
    assert.deepEqual([queued.status, queued.stdout], [0, 'The compile of Large is queued.\n']);
    const followed = await world.run(['dependencies', 'log', 'Large', '-f', '--json']);
    assert.equal(followed.status, 0);
    const lines = followed.stdout
      .trim()
      .split('\n')
      .map(one => JSON.parse(one) as { offset: number; text: string });
    const { stdout: plainLog } = await world.run(['dependencies', 'log', 'Large']);
    assert.equal(lines.map(({ text }) => `${text}\n`).join(''), plainLog);
    for (const { offset, text } of lines)
      assert.equal(Buffer.from(plainLog).subarray(offset).toString().startsWith(text), true);
  });

  it('exits with the result of the compile, and with the stated status for everything else', async () => {
    await create('Bad', '--command', 'echo broken /srv/dependency; exit 3');
    const failed = await world.run(['dependencies', 'upload', 'Bad', archive]);
    assert.equal(failed.status, 1);
    assert.match(failed.stdout, /^broken \/srv\/dependency$/m);
    assert.match(failed.stderr, /^Bad: compile failed\. The command exited with 3\.$/m);
    assert.equal((await world.run(['dependencies', 'log', 'Bad'])).status, 0);
    assert.equal((await world.run(['dependencies', 'log', 'Bad', '-f'])).status, 1);
    const noArchive = makeFile('notes.txt', 'This is not an archive.\n'.repeat(40));
    for (const [args, status, message] of [
      [['upload', 'Bad', noArchive], 2, /archive: This archive cannot be read/],
      [['upload', 'Bad', world.directory], 2, /is not a file/],
      [['upload', 'Bad', '/nowhere.tar'], 2, /cannot be read: ENOENT/],
      [['upload', 'Bad', makeFile('empty.tar', '')], 2, /is empty/],
      [['upload', 'Nobody', archive], 5, /no dependency "Nobody" on .*: "assay dependencies list"/],
      [['create', 'Bad', '--command', 'x /srv/dependency'], 2, /name: This name is already in use/],
      [['create', 'New'], 2, /needs --command or --command-file/],
      [['create', 'New', '--command', 'a', '--command-file', archive], 2, /gives the command a second time/],
      [['create', 'New', '--command', 'true'], 2, /command: /],
      [['create', 'New', '--command', 'x /srv/dependency', '--related', 'Nobody'], 5, /"Nobody"/],
      [['compile', 'New'], 5, /no dependency "New"/],
      [['list', 'extra'], 2, /usage: assay dependencies list/],
    ] as const) {
      const done = await world.run(['dependencies', ...args]);
      assert.equal(done.status, status, `${args.join(' ')}: ${done.stderr}`);
      assert.match(done.stderr, message);
      assert.equal(done.stdout, '', args.join(' '));
    }
  });

  it('an upload is refused before it begins, and one that breaks off leaves nothing', async () => {
    await create('Slow', '--command', 'echo started /srv/dependency; sleep 600');
    const slow = await world.start(['dependencies', 'upload', 'Slow', archive]);
    await slow.until('started /srv/dependency\n');
    const refused = await world.run(['dependencies', 'upload', 'Slow', large], { columns: 100 });
    assert.equal(refused.status, 5);
    assert.match(refused.stdout, /not possible right now/);
    assert.doesNotMatch(refused.stdout, /\[#/, 'nothing was sent');
    await world.run(['api', 'POST', `/dependencies/${(await recordOf('Slow')).id_str}/cancel`]);
    const canceled = await slow.ended;
    assert.equal(canceled.status, 4, canceled.stderr);
    assert.match(canceled.stderr, /^Slow: compile failed\. The compile was canceled\.$/m);

    await create('Cut', '--command', 'cp run /srv/dependency');
    relay.cutAfter(2_000_000);
    const cut = await world.run(['dependencies', 'upload', 'Cut', large], { env: { ASSAY_URL: relay.url } });
    relay.cutAfter(Number.POSITIVE_INFINITY);
    assert.equal(cut.status, 6, cut.stderr);
    assert.match(cut.stderr, /the upload was interrupted, and nothing was kept: run it again/);
    assert.equal((await recordOf('Cut')).marketplace_state, 'waiting_archive_upload');
  });

  it('log -f continues at the byte after a broken connection, and Ctrl-C leaves the compile alone', async () => {
    const dependencies = openDependencies(world);
    await create(
      'Resumed',
      '--command',
      'echo first /srv/dependency; i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo "line $i"; sleep 0.1; done; cp run /srv/dependency',
    );
    const queued = await world.run(['dependencies', 'upload', 'Resumed', large, '--no-wait', '--json']);
    assert.equal(queued.status, 0, queued.stderr);
    const { id_str: id } = JSON.parse(queued.stdout);
    const leaving = await world.start(['dependencies', 'log', 'Resumed', '-f'], { columns: 80 });
    await leaving.until('first /srv/dependency');
    const following = await world.start(['dependencies', 'log', id, '--follow'], {
      env: { ASSAY_URL: relay.url },
    });
    await following.until('line 3\n');
    relay.cutNow();
    leaving.type('\x03');
    const left = await leaving.ended;
    assert.equal(left.status, 130, left.stdout);
    assert.match(left.stdout, /the compile goes on/);
    const followed = await following.ended;
    assert.equal(followed.status, 0, followed.stderr);
    assert.match(followed.stderr, /connection lost, trying again/);
    assert.equal(followed.stdout, await dependencies.log(id));
    assert.match(followed.stdout, /^line 40$/m);
  });
});

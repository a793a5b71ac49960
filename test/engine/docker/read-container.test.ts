// Reading files of a stopped container: links are not followed, a missing path is a normal answer, and an early end of the
// reader does not block other calls.
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ARTIFACTS_DIRECTORY, PROJECT_DIRECTORY } from '../../../src/domain/container/container-plan.ts';
import { readTar } from '../../../src/engine/archive/tar-files.ts';
import { EngineRefused, EngineUnavailable } from '../../../src/engine/engine.ts';
import { type Fixture, openFixture } from './fixture.ts';

let fixture: Fixture;
let container: string;
before(async () => {
  fixture = await openFixture();
  const script = [
    'mkdir -p a/b && echo deep >a/b/deep.txt && ln -s /etc outside && ln -s a/b inside && ln -s /etc/passwd file',
    'head -c 64M /dev/zero >big',
  ].join('\n');
  const { plan } = await fixture.begin(script);
  container = plan.name;
  await fixture.engine.startContainer(plan);
  await fixture.engine.waitForExit(container);
});
after(() => fixture.close());

async function namesAt(directory: string, inside: string, name = container): Promise<string[] | undefined> {
  const names: string[] = [];
  return fixture.engine.readContainer({ container: name, directory, inside }, async tar => {
    await readTar(tar, async file => {
      names.push(`${file.type} ${file.name}`);
      return 'continue';
    });
    return names;
  });
}

test('a path of a stopped container is read, and what is missing is undefined', async () => {
  assert.deepEqual(await namesAt(PROJECT_DIRECTORY, 'a/b'), ['directory b/', 'file b/deep.txt']);
  assert.deepEqual(await namesAt(PROJECT_DIRECTORY, 'a/b/deep.txt'), ['file deep.txt']);
  for (const inside of ['none', 'a/none/x', 'a/b/deep.txt/x'])
    assert.equal(await namesAt(PROJECT_DIRECTORY, inside), undefined, inside);
  assert.equal(await namesAt(PROJECT_DIRECTORY, '', 'assay-no-such-container'), undefined);
  assert.equal(await namesAt(ARTIFACTS_DIRECTORY, ''), undefined, 'nothing was written to it');
});

test('links on the way are not followed', async () => {
  for (const inside of ['outside/passwd', 'inside/deep.txt'])
    assert.equal(await namesAt(PROJECT_DIRECTORY, inside), undefined, inside);
  assert.deepEqual(await namesAt(PROJECT_DIRECTORY, 'outside'), ['link outside']);
  assert.deepEqual(await namesAt(PROJECT_DIRECTORY, 'file'), ['link file']);
});

test('a reader that stops early, fails or is aborted leaves no lock on the container', async () => {
  const { engine } = fixture;
  const from = { container, directory: PROJECT_DIRECTORY, inside: 'big' };
  const stopped = await engine.readContainer(from, async tar => {
    await readTar(tar, async () => 'stop');
    return 'stopped';
  });
  assert.equal(stopped, 'stopped');
  await assert.rejects(
    engine.readContainer(from, () => Promise.reject(new Error('the reader failed'))),
    /the reader failed/,
  );
  const abort = new AbortController();
  const reading = engine.readContainer(
    from,
    async tar => {
      abort.abort(new Error('no longer needed'));
      await readTar(tar, async () => 'continue');
    },
    abort.signal,
  );
  await assert.rejects(reading, /no longer needed/);
  assert.equal((await engine.inspectContainer(container))?.running, false);
});

test('an engine that breaks off, one that refuses and one that does not answer are distinguished', async () => {
  const path = join(fixture.directory, 'docker.sock');
  const stat = Buffer.from(JSON.stringify({ mode: 2 ** 31, mtime: '2026-01-01T00:00:00Z' })).toString(
    'base64',
  );
  let answer = (_: string): string | undefined => undefined;
  const server = createServer(socket => {
    socket.on('error', () => {});
    socket.once('data', data => {
      const request = data.toString();
      if (request.startsWith('HEAD'))
        socket.end(`HTTP/1.1 200 OK\r\nX-Docker-Container-Path-Stat: ${stat}\r\nConnection: close\r\n\r\n`);
      else {
        const text = answer(request);
        if (text === undefined) return;
        if (text === 'reset') socket.resetAndDestroy();
        else socket.end(text);
      }
    });
  });
  await new Promise<void>(resolve => {
    server.listen(path, resolve);
  });
  const engine = fixture.openEngine({ dockerHost: `unix://${path}`, deadlineMs: 500 });
  const read = () =>
    engine.readContainer({ container: 'x', directory: '/srv/artifacts', inside: '' }, async tar => {
      for await (const _ of tar);
      return 'read';
    });
  try {
    answer = () => 'HTTP/1.0 500 Internal Server Error\r\n\r\n{"message":"disk on fire"}';
    await assert.rejects(
      read(),
      error => error instanceof EngineRefused && /disk on fire/.test(error.message),
    );
    answer = () => 'HTTP/1.0 404 Not Found\r\n\r\n{"message":"gone"}';
    assert.equal(await read(), undefined);
    answer = () => 'HTTP/1.0 200 OK\r\nContent-Type: application/x-tar\r\n\r\nbytes';
    assert.equal(await read(), 'read');
    answer = () => 'HTTP/1.0 200 OK';
    await assert.rejects(read(), EngineUnavailable);
    answer = () => undefined;
    await assert.rejects(read(), EngineUnavailable);
  } finally {
    engine.close();
    server.close();
  }
});

// Uploads of source archives: all formats, refusals, aborted and concurrent uploads.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { archivePath, uploadDirectory } from '../../src/store/data/paths.ts';
import { moveDependency } from '../../src/store/transition.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors } from '../support/client.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

describe('an archive', () => {
  const directory = mkdtempSync(join(tmpdir(), 'assay-archives-'));
  after(() => rmSync(directory, { recursive: true }));
  const inDirectory = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: directory });
  let planted: Planted;
  const upload = (body?: Buffer, headers: Record<string, string> = {}) =>
    app.client.call('POST', `/dependencies/${planted.free_dependency_id}/archive`, {
      as: app.people.owner.as,
      ...(body && { body }),
      headers,
    });
  const path = () => `/dependencies/${planted.free_dependency_id}`;
  const fetched = async () => (await app.client.get(path(), app.people.owner.as)).record;

  before(() => {
    writeFileSync(join(directory, 'main.c'), 'int main(void) { return 0; }\n');
    inDirectory('tar', '-cf', 'a.tar', 'main.c');
    for (const [program, ending] of [
      ['gzip', 'gz'],
      ['bzip2', 'bz2'],
      ['xz', 'xz'],
      ['zstd', 'zst'],
    ] as const)
      writeFileSync(join(directory, `a.tar.${ending}`), inDirectory(program, '-c', 'a.tar'));
    inDirectory('zip', '-q', 'a.zip', 'main.c');
    planted = app.plant();
  });

  for (const [name, type] of [
    ['a.tar', 'application/x-tar'],
    ['a.tar.gz', 'application/gzip'],
    ['a.tar.bz2', 'application/x-bzip2'],
    ['a.tar.xz', 'application/x-xz'],
    ['a.tar.zst', 'application/zstd'],
    ['a.zip', 'application/zip'],
  ] as const)
    test(`${name} is recognized by its first bytes and stored unchanged`, async () => {
      const bytes = readFileSync(join(directory, name));
      const answer = await upload(bytes, { 'content-type': 'text/plain' });
      assert.equal(answer.status, 202, answer.text);
      assert.equal(answer.record.archive_file_size, bytes.length);
      const record = await fetched();
      assert.deepEqual(
        [record.archive_content_type, record.archive_file_size, record.marketplace_state],
        [type, bytes.length, 'enqueued_for_compile'],
      );
      const hash = createHash('sha256').update(bytes).digest('hex');
      assert.deepEqual(readFileSync(archivePath(app.data, hash)), bytes);
    });

  test('that is empty is blank, and of another format invalid; nothing changes', async () => {
    const before = await fetched();
    const blank = await upload();
    assert.deepEqual([blank.status, blank.json], [403, errors('archive', 'is_blank')]);
    for (const body of ['hello', 'BZh9 is how this text begins', '<html></html>', '\0'.repeat(1024)]) {
      const answer = await upload(Buffer.from(body));
      assert.deepEqual(
        [answer.status, answer.json],
        [403, errors('archive', 'invalid_format')],
        body.slice(0, 9),
      );
    }
    assert.deepEqual(await fetched(), before);
    assert.deepEqual(await readdir(uploadDirectory(app.data)), []);
  });

  test('that is aborted leaves the dependency unchanged', async () => {
    const before = await fetched();
    const broken = (async function* () {
      yield Buffer.concat([Buffer.from('1f8b08', 'hex'), Buffer.alloc(100_000)]);
      throw new Error('broken off');
    })();
    await assert.rejects(
      app.client.call('POST', `/dependencies/${planted.free_dependency_id}/archive`, {
        as: app.people.owner.as,
        body: broken,
      }),
    );
    const isClean = async () => (await readdir(uploadDirectory(app.data))).length === 0;
    for (const until = Date.now() + 5000; !(await isClean()); )
      assert(Date.now() < until, 'the unfinished upload was not removed');
    assert.deepEqual(await fetched(), before);
  });

  test('of two concurrent uploads, one wins completely', async () => {
    const bodies = ['a.tar.gz', 'a.zip'].map(name => readFileSync(join(directory, name)));
    const answers = await Promise.all(bodies.map(body => upload(body)));
    assert.deepEqual(
      answers.map(answer => answer.status),
      [202, 202],
    );
    const record = await fetched();
    const won = bodies.find(body => body.length === record.archive_file_size);
    assert.equal(record.archive_content_type, won === bodies[0] ? 'application/gzip' : 'application/zip');
  });

  test('can be replaced while it waits, not while it compiles, and again afterwards', async () => {
    const bytes = readFileSync(join(directory, 'a.tar.gz'));
    assert.equal((await upload(bytes)).status, 202);
    moveDependency(app.db, planted.free_dependency_id, 'start');
    const busy = await upload(bytes);
    assert.deepEqual([busy.status, busy.json], [403, errors('generic', 'resource_temporary_unavailable')]);
    moveDependency(app.db, planted.free_dependency_id, 'fail', { error: 'make: not found' });
    assert.equal((await upload(bytes)).status, 202);
    assert(!('error' in (await fetched())));
  });
});

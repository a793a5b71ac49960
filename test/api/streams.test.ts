// Logs with ranges, and firehoses, over both versions of HTTP.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { zstdDecompressSync } from 'node:zlib';
import { updateAccount } from '../../src/store/accounts.ts';
import { deleteToken, listTokens } from '../../src/store/applications.ts';
import { findBuild, recordNode, rerunBuild } from '../../src/store/builds.ts';
import { lastEventId, listEvents, recordEvent } from '../../src/store/events.ts';
import { deleteCollaborator, findCollaborator } from '../../src/store/projects.ts';
import { moveBuild, moveDependency } from '../../src/store/transition.ts';
import { visitorFor } from '../attacks/wire.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { type Event, follow, kinds, readTo, textOf, versions } from './event-stream.ts';
import { startCompile } from './states.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

/** A running build, and its paths. */
function begin(): { planted: Planted; id: bigint; path: string } {
  const planted = app.plant();
  const first = findBuild(app.db, planted.project_id, planted.build_id);
  assert(first);
  const { id } = rerunBuild(app.db, first, { id: planted.suite_id, name: 'Unit tests' });
  moveBuild(app.db, id, 'start');
  return { planted, id, path: `/projects/${planted.project_id}/builds/${id}` };
}

describe('a log', () => {
  const bytes = Buffer.from('zero\nübung\nthird\n\xff\n', 'latin1');
  let path: string;
  before(async () => {
    const at = begin();
    path = `${at.path}/log`;
    await app.writeLog(at.id, bytes);
  });
  const read = (range?: string) =>
    app.client.call('GET', path, { as: app.people.owner.as, ...(range && { headers: { range } }) });

  test('is text, byte for byte, and empty before the start', async () => {
    const whole = await read();
    assert.deepEqual([whole.status, whole.bytes], [200, bytes]);
    assert.equal(whole.headers['content-type'], 'text/plain; charset=utf-8');
    assert.equal(whole.headers['x-content-type-options'], 'nosniff');
    assert.equal(whole.headers['accept-ranges'], 'bytes');
    const none = await app.client.get(`${begin().path}/log`, app.people.owner.as);
    assert.deepEqual([none.status, none.text], [200, '']);
  });

  test('is compressed for a client that prefers that, and for nobody else', async () => {
    const ask = (headers: Record<string, string>) =>
      app.client.call('GET', path, { as: app.people.owner.as, headers });
    const compressed = await ask({ 'accept-encoding': 'zstd, identity;q=0.5' });
    assert.equal(compressed.headers['content-encoding'], 'zstd');
    assert.deepEqual(zstdDecompressSync(compressed.bytes), bytes);
    for (const accepted of ['gzip, deflate, br, zstd', 'zstd', '*', 'zstd;q=0.4, identity;q=0.5', '']) {
      const { headers, bytes: sent } = await ask({ 'accept-encoding': accepted });
      assert.deepEqual([headers['content-encoding'], sent], [undefined, bytes], accepted);
    }
    const part = await ask({ 'accept-encoding': 'zstd, identity;q=0.5', range: 'bytes=2-5' });
    assert.deepEqual([part.status, part.bytes], [206, bytes.subarray(2, 6)]);
  });

  test('supports ranges', async () => {
    const size = bytes.length;
    for (const [range, start, end] of [
      ['bytes=0-0', 0, 0],
      ['bytes=2-5', 2, 5],
      ['bytes=7-', 7, size - 1],
      ['bytes=-3', size - 3, size - 1],
      ['bytes=-1000', 0, size - 1],
      [`bytes=0-${size + 100}`, 0, size - 1],
      ['bytes=0-18446744073709551615', 0, size - 1],
      ['bytes=-18446744073709551615', 0, size - 1],
      ['Bytes=1-2', 1, 2],
      [`bytes=${size - 1}-`, size - 1, size - 1],
    ] as const) {
      const part = await read(range);
      assert.deepEqual([part.status, part.bytes], [206, bytes.subarray(start, end + 1)], range);
      assert.equal(part.headers['content-range'], `bytes ${start}-${end}/${size}`);
    }
  });

  test('is returned completely if a range is invalid or cannot be satisfied', async () => {
    for (const range of [
      `bytes=${bytes.length}-`,
      'bytes=18446744073709551615-',
      'bytes=9-3',
      'bytes=-0',
      'bytes=x',
      'lines=0-1',
      'bytes=0-1,3-4',
      'bytes=-',
    ]) {
      const whole = await read(range);
      assert.deepEqual([whole.status, whole.bytes], [200, bytes], range);
    }
  });

  test('of a dependency and of a deploy works the same way', async () => {
    const planted = app.plant();
    await app.writeCompileLog(planted.free_dependency_id, 'gcc -O2\n');
    const compile = await app.client.call('GET', `/dependencies/${planted.free_dependency_id}/log`, {
      as: app.people.owner.as,
      headers: { range: 'bytes=4-' },
    });
    assert.deepEqual([compile.status, compile.text], [206, '-O2\n']);
    const deploy = await app.client.get(
      `/projects/${planted.project_id}/deploys/${planted.deploy_id}/log`,
      app.people.owner.as,
    );
    assert.deepEqual([deploy.status, deploy.text], [200, '']);
  });
});

for (const version of versions)
  describe(`the firehose of a build over ${version}`, () => {
    test('begins with the state and the log, continues as both change, and ends with the build', async () => {
      const at = begin();
      await app.writeLog(at.id, 'first\n');
      const stream = await follow(app, `${at.path}/firehose`, { version });
      assert.deepEqual([stream.status, stream.type], [200, 'text/event-stream; charset=utf-8']);
      const state = await stream.next();
      const fetched = await app.client.get(at.path, app.people.owner.as);
      assert.deepEqual([state.event, state.data], ['state', fetched.record]);
      const log = await stream.next();
      assert.deepEqual(log, { event: 'log', id: '6', data: { offset: 0, text: 'first\n' } });
      await app.writeLog(at.id, 'second\n');
      assert.deepEqual(await stream.next(), {
        event: 'log',
        id: '13',
        data: { offset: 6, text: 'second\n' },
      });
      await app.writeLog(at.id, 'last');
      moveBuild(app.db, at.id, 'fail', { exitCode: 2 });
      const rest = await stream.rest();
      assert.equal(textOf(rest), 'last');
      const end = rest.at(-1);
      assert.deepEqual([end?.event, end?.data.build_state, end?.data.exit_code], ['end', 'failed', 2]);
    });

    test('sends the record again when the node of the build is known', async () => {
      const at = begin();
      const stream = await follow(app, `${at.path}/firehose`, { version });
      assert.equal('node' in (await stream.next()).data, false);
      recordNode(app.db, at.id, 'builder-2');
      const { event, data } = await stream.next();
      assert.deepEqual([event, data.build_state, data.node], ['state', 'running', 'builder-2']);
      const fetched = await app.client.get(at.path, app.people.owner.as);
      assert.equal(fetched.record.node, 'builder-2');
      moveBuild(app.db, at.id, 'pass', { exitCode: 0 });
      assert.equal((await stream.rest()).at(-1)?.data.node, 'builder-2');
    });

    test('sends each state, from before it runs', async () => {
      const planted = app.plant();
      const first = findBuild(app.db, planted.project_id, planted.build_id);
      assert(first);
      const { id } = rerunBuild(app.db, first, { id: planted.suite_id, name: 'Unit tests' });
      const stream = await follow(app, `/projects/${planted.project_id}/builds/${id}/firehose`, { version });
      assert.equal((await stream.next()).data.build_state, 'enqueued');
      moveBuild(app.db, id, 'start');
      assert.equal((await stream.next()).data.build_state, 'running');
      moveBuild(app.db, id, 'requeue');
      assert.equal((await stream.next()).data.build_state, 'enqueued');
      moveBuild(app.db, id, 'cancel');
      const rest = await stream.rest();
      assert.deepEqual(kinds(rest), ['end']);
      assert.equal(rest[0]?.data.build_state, 'canceled');
    });

    test('continues at the byte after Last-Event-ID, and repeats state and end for a late reader', async () => {
      const at = begin();
      await app.writeLog(at.id, 'abcäé\nxyz\n');
      moveBuild(app.db, at.id, 'pass', { exitCode: 0 });
      const log = await app.client.get(`${at.path}/log`, app.people.owner.as);
      for (const from of [0, 3, 5, 8, log.bytes.length]) {
        const stream = await follow(app, `${at.path}/firehose`, { version, from: String(from) });
        const events = await stream.rest();
        assert.equal(events[0]?.event, 'state');
        assert.equal(events.at(-1)?.event, 'end');
        assert.equal(textOf(events), log.bytes.subarray(from).toString('utf8'), `from ${from}`);
        const first = events.find(one => one.event === 'log');
        if (first) assert.equal(first.data.offset, from);
      }
      for (const from of ['', 'abc', '-1', '1e9', '99999999999999999999', '1000'])
        assert.equal(
          textOf(await (await follow(app, `${at.path}/firehose`, { version, from })).rest()),
          log.text,
        );
    });
  });

describe('the text of a firehose', () => {
  test('waits with a character that is split over two writes until it is complete', async () => {
    const at = begin();
    const bytes = Buffer.from('a€😀\n');
    const stream = await follow(app, `${at.path}/firehose`);
    await stream.next();
    const sent: Event[] = [];
    for (let at_ = 0; at_ < bytes.length; at_ += 1) await app.writeLog(at.id, bytes.subarray(at_, at_ + 1));
    sent.push(...(await readTo(stream, bytes.length)));
    assert.equal(textOf(sent), 'a€😀\n');
    for (const one of sent) assert(!String(one.data.text).includes('\ufffd'));
    stream.close();
  });

  test('shows invalid bytes as U+FFFD and counts the original bytes', async () => {
    const at = begin();
    await app.writeLog(at.id, Buffer.from([0x61, 0xff, 0x62, 0xc3, 0x0a, 0xe2, 0x82]));
    moveBuild(app.db, at.id, 'pass', { exitCode: 0 });
    const events = await (await follow(app, `${at.path}/firehose`)).rest();
    assert.equal(textOf(events), 'a\ufffdb\ufffd\n\ufffd');
    assert.equal(events.filter(one => one.event === 'log').at(-1)?.id, '7');
  });

  test('keeps line ends, colons and text that looks like an event inside its JSON', async () => {
    const at = begin();
    const text = 'a\r\nb\rc\n\nevent: end\ndata: {}\n\n: x\n\u2028\0\u001b[31m';
    await app.writeLog(at.id, text);
    moveBuild(app.db, at.id, 'pass', { exitCode: 0 });
    const events = await (await follow(app, `${at.path}/firehose`)).rest();
    assert.equal(textOf(events), text);
    assert.deepEqual(kinds(events), ['state', 'log', 'end']);
  });

  test('of a large log arrives completely, split only between characters', async () => {
    const at = begin();
    const text = 'line €😀 '.repeat(200_000);
    await app.writeLog(at.id, text);
    moveBuild(app.db, at.id, 'pass', { exitCode: 0 });
    for (const version of versions) {
      const events = await (await follow(app, `${at.path}/firehose`, { version })).rest();
      assert.equal(textOf(events).length, text.length);
      assert.equal(textOf(events), text);
      let offset = 0;
      for (const one of events.filter(event => event.event === 'log')) {
        assert.equal(one.data.offset, offset);
        offset = Number(one.id);
      }
      assert.equal(offset, Buffer.byteLength(text));
    }
  });

  test('reaches earlier readers even if another one connects while output is buffered', async () => {
    const at = begin();
    await app.writeLog(at.id, 'one\n');
    const early = await follow(app, `${at.path}/firehose`);
    await readTo(early, 4);
    await app.writeLog(at.id, 'two\n');
    const late = await follow(app, `${at.path}/firehose`);
    assert.equal(textOf(await readTo(late, 8)), 'one\ntwo\n');
    assert.equal(textOf(await readTo(early, 8)), 'two\n');
    await app.writeLog(at.id, 'three\n');
    for (const stream of [early, late]) {
      assert.equal(textOf(await readTo(stream, 14)), 'three\n');
      stream.close();
    }
  });

  test('reaches others even if one reader reads nothing', async () => {
    const at = begin();
    await app.writeLog(at.id, 'x'.repeat(20 * 1024 * 1024));
    const stuck = await follow(app, `${at.path}/firehose`);
    const quick = await follow(app, `${at.path}/firehose`, { from: String(20 * 1024 * 1024) });
    assert.equal((await quick.next()).event, 'state');
    await app.writeLog(at.id, 'y');
    assert.equal((await quick.next()).data.text, 'y');
    stuck.close();
    quick.close();
  });

  for (const version of versions)
    test(`reaches a reader over ${version} that falls far behind without a new connection`, async () => {
      const at = begin();
      await app.writeLog(at.id, 'one\n');
      const quick = await follow(app, `${at.path}/firehose`, { version });
      const slow = await follow(app, `${at.path}/firehose`, { version });
      for (const stream of [quick, slow]) await readTo(stream, 4);
      const part = 'x'.repeat(2 * 1024 * 1024);
      const PARTS = 10;
      let length = 4;
      // The slow reader does not read meanwhile: far more than the buffers of a connection hold.
      for (let count = 0; count < PARTS; count += 1) {
        await app.writeLog(at.id, part);
        length += part.length;
        await readTo(quick, length);
      }
      await app.writeLog(at.id, 'last\n');
      assert.equal(textOf(await readTo(slow, length + 5)), `${part.repeat(PARTS)}last\n`);
      for (const stream of [quick, slow]) stream.close();
    });
});

test('the firehose of a dependency follows its compile, from before the upload', async () => {
  const planted = app.plant();
  const path = `/dependencies/${planted.free_dependency_id}`;
  const early = await follow(app, `${path}/firehose`);
  assert.equal((await early.next()).data.marketplace_state, 'waiting_archive_upload');
  startCompile(app.db, planted.free_dependency_id);
  const stream = await follow(app, `${path}/firehose`);
  assert.equal((await stream.next()).data.marketplace_state, 'compiling');
  await app.writeCompileLog(planted.free_dependency_id, 'cc main.c\n');
  assert.equal((await stream.next()).data.text, 'cc main.c\n');
  moveDependency(app.db, planted.free_dependency_id, 'fail', { error: 'The prefix is empty.' });
  const { record } = await app.client.get(path, app.people.owner.as);
  const all = await early.rest();
  assert.ok(all.some(({ event, data }) => event === 'log' && data.text === 'cc main.c\n'));
  for (const events of [all, await stream.rest()]) assert.deepEqual(events.at(-1)?.data, record);
  const late = await (await follow(app, `${path}/firehose`)).rest();
  assert.deepEqual(kinds(late), ['state', 'log', 'end']);
});

for (const version of versions)
  describe(`the firehose of a project over ${version}`, () => {
    test('sends each event as it happens, replays missed events, and stays open', async () => {
      const planted = app.plant();
      const project = `/projects/${planted.project_id}`;
      const stream = await follow(app, `${project}/firehose`, { version });
      const state = await stream.next();
      assert.deepEqual([state.event, state.data.id], ['state', planted.project_id]);
      const created = await app.client.call('POST', `${project}/build_requests`, {
        as: app.people.owner.as,
        form: { commit_ref: 'main' },
      });
      const enqueued = await stream.next();
      assert.equal(enqueued.event, 'build_request.enqueued');
      assert.equal(enqueued.id, enqueued.data.id_str);
      assert.deepEqual(enqueued.data.build_request, created.record);
      const { list } = await app.client.get(`${project}/events`, app.people.owner.as);
      assert.deepEqual(enqueued.data, list.at(-1));
      stream.close();

      const replayed = await follow(app, `${project}/firehose`, { version, from: String(list[2]?.id) });
      assert.equal((await replayed.next()).event, 'state');
      for (const event of list.slice(3)) assert.deepEqual((await replayed.next()).data, event);
      await app.client.call('POST', `${project}/build_requests/${created.record.id}/cancel`, {
        as: app.people.owner.as,
      });
      assert.equal((await replayed.next()).event, 'build_request.finished');
      replayed.close();
    });

    test('replays many large events to a slow reader, and so does its page', async () => {
      const { project_id: projectId, build_id: buildId } = app.plant();
      const from = lastEventId(app.db, projectId);
      const record = (length: number) =>
        recordEvent(app.db, projectId, 'build.finished', buildId, {
          kind: 'build',
          record: { text: 'x'.repeat(length) },
        });
      app.db.write(() => {
        for (let count = 0; count < 100; count += 1) record(50_000);
        // One event alone is larger than the allowed lag of a reader.
        record(3_000_000);
      });
      const ids = listEvents(app.db, projectId, from, 1000).map(event => event.id.toString());
      const { cookie } = visitorFor(app, app.people.owner);
      for (const place of [
        { path: `/projects/${projectId}/firehose` },
        { path: `/ui/projects/${projectId}/stream`, cookie },
      ]) {
        const stream = await follow(app, place.path, { ...place, version, from: String(from) });
        assert.equal((await stream.next()).event, 'state');
        const read: (string | undefined)[] = [];
        for (let count = 0; count < 60; count += 1) {
          read.push((await stream.next()).id);
          // Lets others run before it continues to read.
          await setImmediate();
        }
        stream.close();
        const again = await follow(app, place.path, { ...place, version, from: read.at(-1) as string });
        assert.equal((await again.next()).event, 'state');
        while (read.length < ids.length) read.push((await again.next()).id);
        assert.deepEqual(read, ids);
        record(1);
        assert.equal((await again.next()).event, 'build.finished', 'it stays open');
        ids.push(lastEventId(app.db, projectId).toString());
        again.close();
      }
    });

    test('ends when the project is deleted', async () => {
      const planted = app.plant();
      const project = `/projects/${planted.project_id}`;
      const stream = await follow(app, `${project}/firehose`, { version });
      await stream.next();
      await app.client.call('DELETE', project, { as: app.people.owner.as });
      assert.deepEqual(await stream.rest(), []);
    });
  });

describe('an open stream ends when', () => {
  const cases: Record<string, (at: ReturnType<typeof begin>) => { as: string; end: () => void }> = {
    'its reader no longer collaborates': ({ planted }) => ({
      as: app.people.collaborator.as,
      end: () => {
        const row = findCollaborator(app.db, planted.project_id, planted.collaborator_id);
        assert.equal(row?.email, 'collaborator@example.org');
        deleteCollaborator(app.db, row);
      },
    }),
    'its token is revoked': () => ({
      as: app.token(app.people.owner, 'commits'),
      end: () => {
        const [granted] = listTokens(app.db, app.people.owner.account.id);
        assert(granted);
        deleteToken(app.db, app.people.owner.account.id, granted.token.id);
      },
    }),
    'its account is suspended': () => ({
      as: app.people.guest.as,
      end: () => updateAccount(app.db, app.people.guest.account.id, { standing: 'suspended' }),
    }),
  };
  for (const [name, prepare] of Object.entries(cases))
    for (const version of versions)
      test(`${name}, over ${version}`, async () => {
        const at = begin();
        const { as, end } = prepare(at);
        updateAccount(app.db, app.people.guest.account.id, { standing: 'active' });
        const project = `/projects/${at.planted.project_id}`;
        const streams = await Promise.all(
          [`${project}/firehose`, `${at.path}/firehose`].map(path => follow(app, path, { as, version })),
        );
        for (const stream of streams) assert.equal((await stream.next()).event, 'state');
        const other = await follow(app, `${at.path}/firehose`, { version });
        await other.next();
        const beganAt = Date.now();
        end();
        for (const stream of streams) assert.deepEqual(await stream.rest(), []);
        assert(Date.now() - beganAt < 5000);
        await app.writeLog(at.id, 'on\n');
        assert.equal((await other.next()).data.text, 'on\n', 'others read on');
        other.close();
      });
});

// A log that grows or ends at the moment when a reader reaches its end.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { EventStream } from '../../src/api/http/stream.ts';
import { createLogFeeds } from '../../src/api/log-feed.ts';
import { createLive } from '../../src/live.ts';

test('output that is written while a reader subscribes is sent, even if nothing follows', async t => {
  const fixture = mkdtempSync(join(tmpdir(), 'assay-feed-'));
  t.after(() => rmSync(fixture, { recursive: true }));
  const path = join(fixture, 'log');
  writeFileSync(path, 'first\n');
  const handle = await open(path);
  const prototype: FileHandle = Object.getPrototypeOf(handle);
  await handle.close();
  const moments = new EventEmitter();
  const held = once(moments, 'release');
  const atEnd = once(moments, 'end');
  // The reader has read the end of the file, but has not subscribed yet.
  const read = prototype.read as (...args: unknown[]) => Promise<{ bytesRead: number }>;
  const readAndHold = async function (this: FileHandle, ...args: unknown[]) {
    const result = await read.apply(this, args);
    if (result.bytesRead > 0) return result;
    moments.emit('end');
    await held;
    return result;
  };
  t.mock.method(prototype, 'read', readAndHold as typeof prototype.read);
  t.mock.timers.enable({ apis: ['setTimeout'] });

  const live = createLive();
  let sent = '';
  const stream = {
    open: true,
    send(bytes: Buffer) {
      sent += bytes;
      moments.emit('sent');
    },
    drained: async () => {},
    onClose: () => {},
    end: () => {},
  } as unknown as EventStream;
  createLogFeeds(live).follow(path, 'log', stream, 0);
  await atEnd;
  assert.match(sent, /first/);
  appendFileSync(path, 'second\n');
  live.publish(['log']);
  t.mock.timers.tick(1_000);
  t.mock.timers.reset();
  t.mock.restoreAll();
  const more = once(moments, 'sent', { signal: AbortSignal.timeout(20_000) });
  moments.emit('release');
  await more;
  assert.match(sent, /second/);
});

test('a reader gets each line once when the log ends while it catches up', async t => {
  const fixture = mkdtempSync(join(tmpdir(), 'assay-feed-'));
  t.after(() => rmSync(fixture, { recursive: true }));
  const path = join(fixture, 'log');
  writeFileSync(path, 'first\n');
  const live = createLive();
  const feeds = createLogFeeds(live);
  const moments = new EventEmitter();
  const drained = once(moments, 'drained');
  const followAs = (name: string, whenDrained: Promise<unknown>) => {
    const received = { text: '' };
    const stream = {
      open: true,
      lagBytes: 0,
      send(bytes: Buffer) {
        received.text += JSON.parse(/^data: (.*)$/m.exec(String(bytes))?.[1] ?? '').text;
        moments.emit(name);
      },
      drained: () => whenDrained,
      onClose: () => {},
      end: () => {},
    } as unknown as EventStream;
    return { received, reader: feeds.follow(path, 'log', stream, 0) };
  };
  const quick = followAs('quick', Promise.resolve());
  await quick.reader.ownReads;
  const slowHasFirst = once(moments, 'slow');
  const slow = followAs('slow', drained);
  await slowHasFirst;
  const flushed = feeds.flush(slow.reader);

  const handle = await open(path);
  const prototype: FileHandle = Object.getPrototypeOf(handle);
  await handle.close();
  const read = prototype.read as (...args: unknown[]) => Promise<{ bytesRead: number }>;
  let isAtEnd = false;
  const readAndGrow = async function (this: FileHandle, ...args: unknown[]) {
    const result = await read.apply(this, args);
    if (result.bytesRead === 0 && !isAtEnd) {
      isAtEnd = true;
      appendFileSync(path, 'last\n');
    } else if (result.bytesRead > 0) {
      // The last read of the slow reader has the line, and the group gets it before that read is sent.
      live.publish(['log']);
      while (!quick.received.text.includes('last'))
        await once(moments, 'quick', { signal: AbortSignal.timeout(20_000) });
    }
    return result;
  };
  t.mock.method(prototype, 'read', readAndGrow as typeof prototype.read);
  moments.emit('drained');
  await flushed;
  for (const { received } of [quick, slow]) assert.equal(received.text, 'first\nlast\n');
});

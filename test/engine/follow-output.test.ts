// Following an output file while it is written, without a container.
import assert from 'node:assert/strict';
import { appendFile, mkdtemp, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import { recordPrefix } from '../../src/domain/container/entry-script.ts';
import { followOutput, type OutputRecord, releaseOutput, waitForContent } from '../../src/engine/output.ts';
import { exitOf, follow, textOf } from './docker/fixture.ts';

const NONCE = '0123456789abcdef';
const record = (payload: string) => `${recordPrefix(NONCE)}${payload}\x1e`;

describe('followOutput', () => {
  let directory: string;
  let file: string;
  let count = 0;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'assay-follow-'));
  });
  after(() => rm(directory, { recursive: true }));

  async function fresh(content = '') {
    count += 1;
    file = join(directory, String(count));
    await writeFile(file, content);
  }

  it('returns bytes as soon as they are written, and waits for more', async () => {
    await fresh();
    const records = follow(file, NONCE);
    for (const text of ['a', 'b\n', 'c']) {
      await appendFile(file, text);
      const { value } = await records.next();
      assert.equal(value?.kind === 'bytes' && value.bytes.toString(), text);
    }
    await appendFile(file, record('exit main 5 oom'));
    const { value } = await records.next();
    assert.deepEqual(value?.kind === 'exit' && [value.status, value.outOfMemory], [5, true]);
    assert.equal((await records.next()).done, true);
  });

  it('recognizes a record that is split anywhere, and holds back nothing else', async () => {
    const whole = record('exit main 3 within');
    for (let cut = 1; cut < whole.length; cut += 1) {
      await fresh(`text${whole.slice(0, cut)}`);
      const records = follow(file, NONCE);
      const { value } = await records.next();
      assert.equal(value?.kind === 'bytes' && value.bytes.toString(), 'text');
      await appendFile(file, whole.slice(cut));
      const next = await records.next();
      assert.equal(next.value?.kind === 'exit' && next.value.status, 3, `cut at ${cut}`);
      await records.return(undefined);
    }
  });

  it('passes through what only looks like a record', async () => {
    const texts = [
      '\x1e\x1e',
      '\x1eassay:',
      `${record('exit main 999 within')}`,
      `${recordPrefix(NONCE)}${'x'.repeat(200)}`,
    ];
    for (const text of texts) {
      await fresh(`${text}${record('exit main 0 within')}`);
      const seen: OutputRecord[] = [];
      for await (const item of follow(file, NONCE)) seen.push(item);
      assert.equal(textOf(seen), text);
      assert.equal(exitOf(seen)?.status, 0);
    }
  });

  it('reads the rest of the file when the container is gone, including what it held back', async () => {
    await fresh(`left${recordPrefix(NONCE)}ex`);
    const seen: OutputRecord[] = [];
    for await (const item of follow(file, NONCE, { gone: AbortSignal.abort() })) seen.push(item);
    assert.equal(textOf(seen), `left${recordPrefix(NONCE)}ex`);
  });

  it('stops at once when it is aborted', async () => {
    await fresh();
    const stop = new AbortController();
    const never = new AbortController().signal;
    const records = followOutput({ file, nonce: NONCE, fromByte: 0, signal: stop.signal, gone: never });
    const pending = records.next();
    stop.abort();
    assert.equal((await pending).done, true);
  });

  it('reports that the file was truncated', async () => {
    await fresh('0123456789');
    const records = follow(file, NONCE);
    await records.next();
    const pending = records.next();
    await truncate(file, 4);
    const { value } = await pending;
    assert.equal(value?.kind === 'tampered' && value.reason, 'shrank');
    assert.equal((await records.next()).done, true);
  });

  it('reports that the file was extended with a hole, and does not read the hole', async () => {
    await fresh('0123456789');
    await truncate(file, 1024 ** 4);
    const seen = await Array.fromAsync(follow(file, NONCE));
    assert.deepEqual(
      seen.map(item => item.kind === 'tampered' && item.reason),
      ['stretched'],
    );
  });

  it('frees the disk space of what was read, and keeps all offsets', async () => {
    await fresh('x'.repeat(4 * 1024 * 1024));
    await appendFile(file, `tail${record('exit main 0 within')}`);
    const before = await stat(file);
    assert.equal(await releaseOutput(file, 4 * 1024 * 1024), true);
    const after = await stat(file);
    assert.equal(after.size, before.size);
    assert.ok(after.blocks < before.blocks / 10, `${after.blocks} of ${before.blocks} blocks left`);
    const records = follow(file, NONCE, { fromByte: 4 * 1024 * 1024 });
    const { value } = await records.next();
    await records.return(undefined);
    assert.equal(value?.kind === 'bytes' && value.bytes.toString(), 'tail');
    assert.equal(await releaseOutput(join(directory, 'missing'), 10), false);
  });
});

test('waitForContent resolves with the first byte, and after a while without one', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'assay-content-'));
  try {
    const file = join(directory, 'output');
    await writeFile(file, '');
    assert.equal(await waitForContent(file), false);
    const waiting = waitForContent(file);
    await appendFile(file, 'a');
    assert.equal(await waiting, true);
    assert.equal(await waitForContent(file), true);
    assert.equal(await waitForContent(join(directory, 'missing')), false);
  } finally {
    await rm(directory, { recursive: true });
  }
});

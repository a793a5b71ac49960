// Masking of secrets in output that arrives in chunks of any size.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createMask } from '../../../src/domain/text/mask.ts';
import { processorMs } from '../../support/processor.ts';

const mask = (values: string[], ...chunks: (string | Buffer)[]): string => {
  const masker = createMask(values);
  const shown = chunks.map(chunk => masker.push(Buffer.from(chunk as string)));
  return Buffer.concat([...shown, masker.end()]).toString('latin1');
};
const text = (values: string[], ...chunks: (string | Buffer)[]): string =>
  Buffer.from(mask(values, ...chunks), 'latin1').toString();

test('values of eight characters or more are replaced, shorter ones are left', () => {
  const table: [values: string[], log: string, shown: string][] = [
    [[], 'nothing secret', 'nothing secret'],
    [['1234567'], 'a 1234567 b', 'a 1234567 b'],
    [['12345678'], 'a 12345678 b', 'a *** b'],
    [['12345678'], '1234567812345678', '******'],
    [['äöüäöüä'], 'äöüäöüä', 'äöüäöüä'],
    [['äöüäöüäö'], '<äöüäöüäö>', '<***>'],
    [['😀😀😀😀😀😀😀'], '😀😀😀😀😀😀😀', '😀😀😀😀😀😀😀'],
    [['😀😀😀😀😀😀😀😀'], 'x😀😀😀😀😀😀😀😀x', 'x***x'],
    [['hunter2hunter2'], 'hunter2hunter', 'hunter2hunter'],
    [['hunter2hunter2'], 'hunter2hunter2hunter2', '***'],
    [['password', 'password123'], 'password123 password12 password', '*** ***12 ***'],
    [['token-abcdefgh', 'abcdefgh'], 'abcdefgh token-abcdefgh', '*** ***'],
    [['xxabcdef', 'abcdefgh12'], 'xxabcdefgh12!', '***!'],
    [['aaaaaaaa'], 'aaaaaaaaaaaaaaaab', '***b'],
    [['first line\nsecond line\nshort'], 'second line!', '***!'],
    [['first line\nsecond line\nshort'], 'first line\nsecond line\nshort.', '***.'],
    [['first line\nsecond line\nshort'], 'first line\r\nsecond line\r\nshort', '***\r\n***\r\nshort'],
    [['a secret value\n'], 'a secret value\nnext', '***\nnext'],
    [['1234567\n'], '1234567\nx 1234567 y', '***x 1234567 y'],
  ];
  for (const [values, log, shown] of table)
    assert.equal(text(values, log), shown, JSON.stringify([values, log]));
});

test('a secret that arrives in single bytes is masked too', () => {
  const log = Buffer.from('before geheimnis-äöü after');
  assert.equal(text(['geheimnis-äöü'], ...Array.from(log, byte => Buffer.from([byte]))), 'before *** after');
});

test('bytes that are not UTF-8 pass unchanged', () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  assert.equal(mask(['something'], bytes, bytes), Buffer.concat([bytes, bytes]).toString('latin1'));
});

test('only a possible beginning of a secret is held back, and released at the end', () => {
  const masker = createMask(['supersecret', 'other-secret']);
  assert.equal(masker.push(Buffer.from('plain text')).toString(), 'plain text');
  assert.equal(masker.heldBytes, 0);
  assert.equal(masker.push(Buffer.from(' super')).toString(), ' ');
  assert.equal(masker.heldBytes, 5);
  assert.equal(masker.push(Buffer.from('s')).toString(), '');
  assert.equal(masker.heldBytes, 6);
  assert.equal(masker.push(Buffer.from('uper')).toString(), 'supers'.slice(0, 5));
  assert.equal(masker.heldBytes, 5);
  assert.equal(masker.push(Buffer.from('secret')).toString(), '***');
  assert.equal(masker.heldBytes, 0);
  assert.equal(masker.push(Buffer.from('othe')).toString(), '');
  assert.equal(masker.end().toString(), 'othe');
  assert.equal(masker.heldBytes, 0);
});

/** A small generator with a fixed seed, so that failures are reproducible. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** The reference implementation: every occurrence of every value, with overlapping ones merged. */
function reference(secrets: string[], log: string): string {
  const found = secrets
    .flatMap(secret =>
      Array.from(log, (_, at) => at)
        .filter(at => log.startsWith(secret, at))
        .map(at => [at, at + secret.length] as const),
    )
    .sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  let shown = '';
  let until = 0;
  for (const [start, end] of found) {
    if (start >= until) shown += `${log.slice(until, start)}***`;
    until = Math.max(until, end);
  }
  return shown + log.slice(until);
}

test('the output is the same however the input is split and wherever it is resumed', () => {
  for (let seed = 0; seed < 1_500; seed++) {
    const random = randomOf(seed);
    const alphabet = seed % 2 ? 'ab' : 'abc';
    const word = (length: number) => Array.from({ length }, () => alphabet[random(alphabet.length)]).join('');
    const secrets = Array.from({ length: 1 + random(4) }, () => word(8 + random(5)));
    let log = word(random(60));
    for (let part = random(6); part > 0; part--) {
      log += secrets[random(secrets.length)]!.slice(0, 4 + random(12)) + word(random(8));
    }
    const expected = reference(secrets, log);
    const bytes = Buffer.from(log);
    let masker = createMask(secrets);
    let shown = '';
    for (let at = 0; at < bytes.length; ) {
      const next = Math.min(bytes.length, at + random(12));
      shown += masker.push(bytes.subarray(at, next));
      at = next;
      if (random(5) === 0) {
        at -= masker.heldBytes;
        masker = createMask(secrets);
      }
    }
    shown += masker.end();
    assert.equal(shown, expected, `seed ${seed}`);
  }
});

test('a long run inside a secret is dropped and not buffered', () => {
  const masker = createMask(['aaaaaaaaaaaa']);
  const run = Buffer.alloc(1 << 16, 'a');
  for (let chunk = 0; chunk < 64; chunk++) assert.equal(masker.push(run).length, 0);
  assert.equal(masker.heldBytes, 64 << 16);
  assert.equal(masker.push(Buffer.from('b')).toString(), '***b');
});

test('hostile output is masked in linear time', () => {
  const long = `${'a'.repeat(20_000)}b`;
  const masker = createMask([long, `${'a'.repeat(12)}c`]);
  const run = Buffer.alloc(1 << 20, 'a');
  let shownBytes = 0;
  const workedMs = processorMs(() => {
    for (let chunk = 0; chunk < 8; chunk++) shownBytes += masker.push(run).length;
    for (let chunk = 0; chunk < 20_000; chunk++) shownBytes += masker.push(Buffer.from('a')).length;
    shownBytes += masker.end().length;
  });
  assert.equal(shownBytes, 8 * (1 << 20) + 20_000);
  assert.ok(workedMs < 3_000, `${workedMs} ms`);
});

test('an ordinary log is masked much faster than any build can write it', () => {
  const masker = createMask([
    'ghp_x8Kq2LmZpR4tVw9YbN3cJ6hD1sF5gA0eUiOo',
    'postgres://ci:s3cr3t@db/app',
    'correct-horse',
  ]);
  const line =
    'Compiling src/some/module.c with -O2 -g -Wall: 123 functions, 4567 lines, no warnings in 0.123 s\n';
  const chunk = Buffer.from(line.repeat(Math.ceil((1 << 16) / line.length)));
  let shownBytes = 0;
  const workedMs = processorMs(() => {
    for (let count = 0; count < 512; count++) shownBytes += masker.push(chunk).length;
  });
  const bytesPerSecond = (shownBytes / workedMs) * 1_000;
  assert.ok(bytesPerSecond > 100e6, `only ${Math.round(bytesPerSecond / 1e6)} MB/s`);
});

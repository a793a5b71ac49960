// Which new commit replaces which old one after a force push.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type CommitIdentity,
  hashesThatNeedPatches,
  matchReplacements,
} from '../../src/domain/replacements.ts';
import { processorMs } from '../support/processor.ts';

function trace(hash: string, overrides: Partial<CommitIdentity> = {}): CommitIdentity {
  return { hash, author: 'Ada <ada@x>', authoredAt: '1 +0000', subject: 'Subject', ...overrides };
}

function match(gone: CommitIdentity[], candidates: CommitIdentity[], patches: Record<string, string> = {}) {
  return Object.fromEntries(matchReplacements(gone, candidates, new Map(Object.entries(patches))));
}

test('an amended commit is found by author and author date, whatever else changed', () => {
  assert.deepEqual(match([trace('a', { subject: 'Old' })], [trace('b', { subject: 'New' })]), { a: 'b' });
});

test('another author, second or offset makes another commit', () => {
  const strangers = [
    trace('b', { author: 'Bob <bob@x>' }),
    trace('c', { authoredAt: '2 +0000' }),
    trace('d', { authoredAt: '1 +0100' }),
  ];
  assert.deepEqual(match([trace('a')], strangers), {});
});

test('among several commits of one second, the same patch is preferred to the same subject', () => {
  const candidates = [trace('b'), trace('c', { subject: 'Other' })];
  assert.deepEqual(match([trace('a')], candidates, { a: 'P', b: 'Q', c: 'P' }), { a: 'c' });
});

test('with the same patch twice the subject decides', () => {
  const candidates = [trace('b', { subject: 'Other' }), trace('c')];
  assert.deepEqual(match([trace('a')], candidates, { a: 'P', b: 'P', c: 'P' }), { a: 'c' });
});

test('without a common patch the subject decides', () => {
  const candidates = [trace('b', { subject: 'Other' }), trace('c')];
  assert.deepEqual(match([trace('a')], candidates, { a: 'P', b: 'Q', c: 'R' }), { a: 'c' });
});

test('commits that cannot be distinguished are paired in order', () => {
  assert.deepEqual(match([trace('a'), trace('b')], [trace('c'), trace('d'), trace('e')]), { a: 'c', b: 'd' });
});

test('one new commit replaces at most one', () => {
  assert.deepEqual(match([trace('a'), trace('b')], [trace('c')]), { a: 'c' });
});

test('an earlier commit does not take the better match of a later one', () => {
  const patches = { a: 'P', b: 'Q', c: 'Q' };
  assert.deepEqual(match([trace('a'), trace('b')], [trace('c')], patches), { b: 'c' });
});

test('patches are requested only if author and date do not decide', () => {
  const alone = trace('a', { authoredAt: '9 +0000' });
  const heir = trace('b', { authoredAt: '9 +0000' });
  assert.deepEqual(hashesThatNeedPatches([alone], [heir]), []);
  assert.deepEqual(hashesThatNeedPatches([alone], [trace('c')]), []);
  assert.deepEqual(hashesThatNeedPatches([trace('d')], [trace('e'), trace('f')]), ['d', 'e', 'f']);
});

test('ten thousand commits of one second are matched in linear time', () => {
  const many = (prefix: string) => Array.from({ length: 10_000 }, (_, index) => trace(`${prefix}${index}`));
  const workedMs = processorMs(() => {
    assert.equal(matchReplacements(many('a'), many('b'), new Map()).size, 10_000);
  });
  assert.ok(workedMs < 2_000, `${workedMs} ms`);
});

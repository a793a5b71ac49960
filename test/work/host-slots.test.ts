// Which Git host may be contacted next, with a scripted clock.
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { createHostSlots, hostIn } from '../../src/work/host-slots.ts';

const SLOW_MS = 3_000;

function slotsOf(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let changes = 0;
  const slots = createHostSlots(() => {
    changes += 1;
  });
  /** Starts as many calls as are allowed, at most `most`. */
  const fill = (most: number, hostOf: (index: number) => string) => {
    const ends: (() => void)[] = [];
    while (ends.length < most && slots.mayBegin([hostOf(ends.length)]))
      ends.push(slots.begin([hostOf(ends.length)]));
    return ends;
  };
  return { slots, fill, pass: () => t.mock.timers.tick(SLOW_MS), changes: () => changes };
}

/** The host answers quickly. */
const prove = (slots: ReturnType<typeof createHostSlots>, host: string) => slots.begin([host])();

test('a host that answers quickly can use every slot', t => {
  const { slots, fill } = slotsOf(t);
  prove(slots, 'good');
  assert.equal(fill(100, () => 'good').length, 4);
  assert.ok(slots.isFull());
});

test('one slot stays free for hosts that are known to answer', t => {
  const { slots, fill } = slotsOf(t);
  prove(slots, 'good');
  assert.equal(fill(100, index => `unknown-${index}`).length, 3);
  assert.ok(slots.mayBegin(['good']));
  assert.ok(!slots.mayBegin(['another']));
});

test('a call that takes longer gives its slot to others', t => {
  const { slots, fill, pass, changes } = slotsOf(t);
  fill(3, index => `slow-${index}`);
  pass();
  assert.equal(changes(), 3, 'waiting calls are notified');
  assert.equal(fill(3, index => `other-${index}`).length, 3);
  assert.ok(!slots.isFull());
});

test('a slow host uses at most four slots, and a few slow hosts do not block the others', t => {
  const { slots, fill, pass } = slotsOf(t);
  let held = 0;
  for (let round = 0; round < 10; round += 1) {
    held += fill(100, () => 'slow').length;
    pass();
  }
  assert.equal(held, 4);
  assert.ok(slots.mayBegin(['other']));
});

test('four slow hosts that use all their slots delay no other host, known or not', t => {
  const { slots, fill, pass } = slotsOf(t);
  for (const host of ['a', 'b', 'c', 'd']) {
    let held = 0;
    for (let round = 0; round < 4; round += 1) {
      held += fill(2, () => host).length;
      pass();
    }
    assert.equal(held, 4);
  }
  assert.ok(slots.mayBegin(['other']));
  assert.ok(!slots.mayBegin(['a']));
});

test('any number of slow hosts leaves slots for fast ones', t => {
  const { slots, fill, pass } = slotsOf(t);
  prove(slots, 'good');
  let held = 0;
  for (let round = 0; round < 50; round += 1) {
    held += fill(100, index => `slow-${round}-${index}`).length;
    pass();
  }
  assert.equal(held, 28);
  assert.equal(fill(100, () => 'good').length, 4);
});

test('a host that was fast again counts as fast', t => {
  const { slots, fill, pass } = slotsOf(t);
  prove(slots, 'turning');
  const calls = fill(4, () => 'turning');
  assert.equal(calls.length, 4);
  pass();
  for (const end of calls) end();
  const [end] = fill(100, () => 'turning');
  assert.ok(!slots.isFull(), 'it has been slow');
  end?.();
  assert.equal(fill(100, () => 'turning').length, 2, 'in addition to the two that continue');
  assert.ok(slots.isFull());
});

test('the host of a URL is compared, regardless of case', () => {
  assert.equal(hostIn('git@Git.Example.org:team/x.git'), 'git.example.org');
});

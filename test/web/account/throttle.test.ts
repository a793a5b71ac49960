// How password guesses are slowed down, limited and dropped, and that callers do not wait for each other.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  createThrottle,
  delayAfter,
  type Guess,
  TooManyAttempts,
} from '../../../src/web/account/throttle.ts';

const staying = new AbortController().signal;
const guess = (caller: string, subject = 'ada', gone = staying): Guess => ({ caller, subject, gone });
const wrong = async () => undefined;
const atOnce = { now: () => 0, wait: async () => {} };

/** Attempts that end when the test says so, in the order in which they started. */
function openTries() {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  return {
    begun,
    attempt: (name: string) => () =>
      new Promise<undefined>(resolve => {
        begun.push(name);
        ends.push(() => resolve(undefined));
      }),
    /** Ends the running attempt, and lets the next one start. */
    async endOne() {
      ends.shift()?.();
      await settled();
    },
    /** Ends all running and waiting attempts. */
    async endAll() {
      while (ends.length > 0) await this.endOne();
    },
  };
}

const settled = () => new Promise(resolve => setImmediate(resolve));

/** The result of each attempt; `refused` if it did not run. */
const outcome = (tried: Promise<unknown>) =>
  tried.then(
    () => 'tried',
    (error: unknown) => {
      assert.ok(error instanceof TooManyAttempts, String(error));
      return 'refused';
    },
  );

describe('guesses at a secret', () => {
  it('wait longer from the fourth of one caller for one subject on, but never more than four seconds', async () => {
    const waits: number[] = [];
    const throttle = createThrottle({ now: () => 0, wait: async ms => waits.push(ms) });
    for (let n = 0; n < 9; n += 1) await throttle.attempt(guess('a'), wrong);
    await throttle.attempt(guess('b'), wrong);
    await throttle.attempt(guess('a', 'bob'), wrong);
    assert.deepEqual(waits, [500, 1000, 2000, 4000, 4000, 4000]);
  });

  it('accept the right one after any number of failures, and forget the failures', async () => {
    const waits: number[] = [];
    const throttle = createThrottle({ now: () => 0, wait: async ms => waits.push(ms) });
    for (let n = 0; n < 50; n += 1) await throttle.attempt(guess('a'), wrong);
    assert.equal(await throttle.attempt(guess('a'), async () => 'in'), 'in');
    waits.length = 0;
    await throttle.attempt(guess('a'), wrong);
    assert.deepEqual(waits, []);
    assert.equal(delayAfter(0), 0);
  });

  it('run one after another', async () => {
    const throttle = createThrottle(atOnce);
    let running = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        throttle.attempt(guess(`caller ${at % 5}`), async () => {
          running += 1;
          most = Math.max(most, running);
          await settled();
          running -= 1;
          return undefined;
        }),
      ),
    );
    assert.equal(most, 1);
  });

  it('that fail for another reason report it, and the next one runs', async () => {
    const throttle = createThrottle(atOnce);
    const broken = throttle.attempt(guess('a'), () => Promise.reject(new Error('no disk')));
    await assert.rejects(broken, /no disk/);
    assert.equal(await throttle.attempt(guess('a'), async () => 'in'), 'in');
  });

  it('are refused at once when five wait for one subject, and accepted again after that', async () => {
    const throttle = createThrottle(atOnce);
    const tries = openTries();
    const tried = Array.from({ length: 9 }, (_, at) =>
      outcome(throttle.attempt(guess('a'), tries.attempt(String(at)))),
    );
    await settled();
    // One runs and five wait.
    assert.deepEqual(await Promise.all(tried.slice(6)), ['refused', 'refused', 'refused']);
    await tries.endAll();
    assert.deepEqual(tries.begun, ['0', '1', '2', '3', '4', '5']);
    assert.equal(await throttle.attempt(guess('a'), async () => 'in'), 'in');
  });

  it('of one caller do not delay another: callers take turns', async () => {
    const throttle = createThrottle(atOnce);
    const tries = openTries();
    for (let at = 0; at < 20; at += 1)
      void outcome(throttle.attempt(guess('stranger', `user ${at}`), tries.attempt('stranger')));
    await settled();
    void throttle.attempt(guess('person'), tries.attempt('person'));
    await tries.endOne();
    await tries.endOne();
    assert.ok(tries.begun.slice(0, 3).includes('person'), tries.begun.join());
    await tries.endAll();
  });

  it('of callers who guessed wrong before wait for those who did not', async () => {
    const throttle = createThrottle(atOnce);
    const strangers = Array.from({ length: 20 }, (_, at) => `stranger ${at}`);
    for (const stranger of strangers) await throttle.attempt(guess(stranger), wrong);
    const tries = openTries();
    for (const stranger of strangers)
      void outcome(throttle.attempt(guess(stranger), tries.attempt(stranger)));
    await settled();
    void throttle.attempt(guess('person'), tries.attempt('person'));
    await tries.endOne();
    assert.deepEqual(tries.begun, ['stranger 0', 'person']);
    await tries.endAll();
  });

  it('wait up to 50 in total; beyond that, the caller with the most waiting loses one to a newcomer', async () => {
    const throttle = createThrottle(atOnce);
    const tries = openTries();
    const flood = Array.from({ length: 300 }, (_, at) =>
      outcome(throttle.attempt(guess('stranger', `user ${at}`), tries.attempt('stranger'))),
    );
    await settled();
    const person = outcome(throttle.attempt(guess('person'), tries.attempt('person')));
    await tries.endAll();
    assert.ok(tries.begun.indexOf('person') <= 2, 'callers take turns');
    assert.equal(await person, 'tried');
    const outcomes = await Promise.all(flood);
    // One ran and 50 waited; the newcomer replaced one of them.
    assert.equal(outcomes.filter(one => one === 'tried').length, 50);
  });

  it('of a disconnected client are dropped, unless they already run', async () => {
    const throttle = createThrottle(atOnce);
    const tries = openTries();
    const clients = Array.from({ length: 4 }, () => new AbortController());
    const tried = clients.map(({ signal }, at) =>
      outcome(throttle.attempt(guess('a', 'ada', signal), tries.attempt(String(at)))),
    );
    await settled();
    clients[0]?.abort();
    clients[2]?.abort();
    await tries.endAll();
    assert.deepEqual(await Promise.all(tried), ['tried', 'tried', 'refused', 'tried']);
    assert.deepEqual(tries.begun, ['0', '1', '3']);
    const gone = AbortSignal.abort();
    assert.equal(await outcome(throttle.attempt(guess('a', 'ada', gone), wrong)), 'refused');
  });

  it('that are delayed delay nobody else: a client that disconnects meanwhile is dropped, others run', async () => {
    const delays: (() => void)[] = [];
    const throttle = createThrottle({
      now: () => 0,
      wait: () => new Promise<void>(done => delays.push(done)),
    });
    for (let n = 0; n < 3; n += 1) await throttle.attempt(guess('a'), wrong);
    const client = new AbortController();
    const delayed = outcome(throttle.attempt(guess('a', 'ada', client.signal), wrong));
    await settled();
    assert.equal(delays.length, 1);
    assert.equal(await throttle.attempt(guess('a', 'bob'), async () => 'in'), 'in');
    client.abort();
    assert.equal(await delayed, 'refused');
    const next = throttle.attempt(guess('a'), async () => 'in');
    delays[0]?.();
    assert.equal(await next, 'in');
  });
});

// Bounds guesses at a secret. Tries for one subject by one caller come one after another, each after failures a little
// later. Callers take turns, those with fewer wrong guesses first. What is too much is refused at once, and what nobody
// waits for any more is dropped. Nobody is locked out.

import { setTimeout as wait } from 'node:timers/promises';
import { ExpectedError } from '../../domain/refusal.ts';

const FREE_FAILURES = 3;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 4_000;
const FORGET_MS = 15 * 60_000;
/** As many callers and keys are remembered. */
const MAX_REMEMBERED = 10_000;
const MAX_WAITING_PER_KEY = 5;
/** Some two seconds' worth of hashing: whoever would wait longer is refused at once. */
const MAX_WAITING = 50;
/** Longer than any email address: what is typed beyond it is not kept. */
const MAX_SUBJECT_LENGTH = 256;
/** Each takes a core for some 25 ms: the others stay for everything else. */
const AT_ONCE = 1;

/** The try was not made, because there are too many or because its client has hung up. */
export class TooManyTries extends ExpectedError {}

export type Guess = {
  /** Where it comes from. */
  caller: string;
  /** Whose secret it is about. */
  subject: string;
  /** Aborted when nobody waits for the outcome any more. */
  gone: AbortSignal;
};

export type Slowdown = {
  /** Runs `attempt` when it is its turn; what it gives is undefined when the guess was wrong. Throws TooManyTries. */
  attempt<T>(guess: Guess, attempt: () => Promise<T | undefined>): Promise<T | undefined>;
};

type Clock = { now(): number; wait(ms: number): Promise<unknown> };
type Try = { run(): Promise<boolean>; refuse(): void };
type Caller = { failures: number; lastAt: number };
type Key = {
  caller: Caller;
  failures: number;
  lastAt: number;
  /** Oldest first. */
  waiting: Try[];
  /** One of its tries is delayed, ready or running: the others wait for it. */
  busy: boolean;
};

export function delayAfter(failures: number): number {
  if (failures < FREE_FAILURES) return 0;
  return Math.min(FIRST_DELAY_MS * 2 ** (failures - FREE_FAILURES), LONGEST_DELAY_MS);
}

export function createSlowdown(clock: Clock = { now: Date.now, wait: ms => wait(ms) }): Slowdown {
  const callers = new Map<string, Caller>();
  const keys = new Map<string, Key>();
  const withWaiting = new Set<Key>();
  /** Keys whose next try may run, by caller; the caller whose turn it is comes first. */
  const ready = new Map<Caller, Key[]>();
  let running = 0;

  /** What is known under the name, or new where that is too long ago. The oldest are forgotten first. */
  function recall<T extends { lastAt: number }>(known: Map<string, T>, name: string, make: () => T): T {
    const before = known.get(name);
    const one = before && clock.now() - before.lastAt < FORGET_MS ? before : make();
    // Putting it back makes this one the youngest.
    known.delete(name);
    known.set(name, one);
    if (known.size > MAX_REMEMBERED) known.delete(known.keys().next().value as string);
    return one;
  }

  function keyOf({ caller: name, subject }: Guess): Key {
    const caller = recall(callers, name, () => ({ failures: 0, lastAt: clock.now() }));
    const key = recall(
      keys,
      `${name} ${subject.slice(0, MAX_SUBJECT_LENGTH)}`,
      (): Key => ({
        caller,
        failures: 0,
        lastAt: clock.now(),
        waiting: [],
        busy: false,
      }),
    );
    // It may have been forgotten before the key was.
    key.caller = caller;
    return key;
  }

  function enqueue(key: Key, one: Try): void {
    key.waiting.push(one);
    withWaiting.add(key);
    if (key.waiting.length > MAX_WAITING_PER_KEY || countWaiting(withWaiting) > MAX_WAITING)
      refuseNewest(key.waiting.length > MAX_WAITING_PER_KEY ? key : greediest(withWaiting));
    if (!key.busy) void prepare(key);
  }

  function refuseNewest(key: Key): void {
    const newest = key.waiting.pop();
    if (key.waiting.length === 0) withWaiting.delete(key);
    newest?.refuse();
  }

  /** Lets the next try of the key run as soon as its delay is over. */
  async function prepare(key: Key): Promise<void> {
    key.busy = key.waiting.length > 0;
    if (!key.busy) return;
    const delayMs = delayAfter(key.failures);
    if (delayMs > 0) await clock.wait(delayMs);
    const others = ready.get(key.caller);
    if (others) others.push(key);
    else ready.set(key.caller, [key]);
    runReady();
  }

  function runReady(): void {
    while (running < AT_ONCE && ready.size > 0) {
      const caller = [...ready.keys()].reduce((best, one) => (one.failures < best.failures ? one : best));
      const [key, ...others] = ready.get(caller) as [Key, ...Key[]];
      // Back in line behind the other callers.
      ready.delete(caller);
      if (others.length > 0) ready.set(caller, others);
      void runNext(key);
    }
  }

  async function runNext(key: Key): Promise<void> {
    const next = key.waiting.shift();
    if (key.waiting.length === 0) withWaiting.delete(key);
    if (next) {
      running += 1;
      const isRight = await next.run();
      running -= 1;
      key.failures = isRight ? 0 : key.failures + 1;
      // One's own password, known and sent in between, makes guesses at others' no better.
      if (!isRight) key.caller.failures += 1;
      key.lastAt = clock.now();
      key.caller.lastAt = clock.now();
    }
    void prepare(key);
    runReady();
  }

  return {
    attempt: <T>(guess: Guess, attempt: () => Promise<T | undefined>) =>
      new Promise<T | undefined>((resolve, reject) => {
        if (guess.gone.aborted) throw new TooManyTries();
        const key = keyOf(guess);
        const leave = () => guess.gone.removeEventListener('abort', drop);
        const one: Try = {
          async run() {
            leave();
            const result = await attempt().catch((cause: unknown) => void reject(cause));
            resolve(result);
            return result !== undefined;
          },
          refuse() {
            leave();
            reject(new TooManyTries());
          },
        };
        const drop = () => {
          key.waiting = key.waiting.filter(other => other !== one);
          if (key.waiting.length === 0) withWaiting.delete(key);
          one.refuse();
        };
        guess.gone.addEventListener('abort', drop);
        enqueue(key, one);
      }),
  };
}

function countWaiting(keys: Iterable<Key>): number {
  let count = 0;
  for (const { waiting } of keys) count += waiting.length;
  return count;
}

/** The key with the most tries of the caller with the most, of those who guessed wrong first; among equals the last. */
function greediest(keys: ReadonlySet<Key>): Key {
  const rank = ([{ failures }, ofCaller]: [Caller, Key[]]) =>
    countWaiting(ofCaller) + (failures > 0 ? MAX_WAITING : 0);
  const [, ofCaller] = [...Map.groupBy(keys, ({ caller }) => caller)].reduce((most, one) =>
    rank(one) >= rank(most) ? one : most,
  );
  return ofCaller.reduce((most, one) => (one.waiting.length >= most.waiting.length ? one : most));
}

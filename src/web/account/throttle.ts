// Throttles guesses at passwords and codes. Attempts by one caller on one subject run one at a time, with a growing
// delay after failures; callers with fewer failures go first. Excess attempts are refused, and nobody is locked out.

import { setTimeout as wait } from 'node:timers/promises';
import { ExpectedError } from '../../domain/refusal.ts';

const FREE_FAILURES = 3;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 4_000;
const FORGET_MS = 15 * 60_000;
/** How many callers and how many keys are remembered. */
const MAX_REMEMBERED = 10_000;
const MAX_WAITING_PER_KEY = 5;
/** About two seconds of hashing; further attempts are refused at once. */
const MAX_WAITING = 50;
/** Longer than any email address; the rest is cut off to bound memory. */
const MAX_SUBJECT_LENGTH = 256;
/** Each guess occupies a core for about 25 ms; the other cores stay free for other requests. */
const MAX_RUNNING = 1;

/** The guess was not checked: there are too many attempts, or the client has disconnected. */
export class TooManyAttempts extends ExpectedError {}

export type Guess = {
  /** The network address of the client. */
  caller: string;
  /** The account or code being guessed. */
  subject: string;
  /** Aborted when the client disconnects. */
  gone: AbortSignal;
};

export type Throttle = {
  /** Runs `attempt` when its turn comes. The result is undefined if the guess was wrong. Throws TooManyAttempts. */
  attempt<T>(guess: Guess, attempt: () => Promise<T | undefined>): Promise<T | undefined>;
};

type Clock = { now(): number; wait(ms: number): Promise<unknown> };
type Attempt = { run(): Promise<boolean>; refuse(): void };
type Caller = { failures: number; lastAt: number };
type Key = {
  caller: Caller;
  failures: number;
  lastAt: number;
  /** Oldest first. */
  waiting: Attempt[];
  /** One attempt is delayed, ready or running; the others wait for it. */
  busy: boolean;
};

export function delayAfter(failures: number): number {
  if (failures < FREE_FAILURES) return 0;
  return Math.min(FIRST_DELAY_MS * 2 ** (failures - FREE_FAILURES), LONGEST_DELAY_MS);
}

export function createThrottle(clock: Clock = { now: Date.now, wait: ms => wait(ms) }): Throttle {
  const callers = new Map<string, Caller>();
  const keys = new Map<string, Key>();
  const withWaiting = new Set<Key>();
  /** Keys whose next attempt may run, by caller, in round-robin order. */
  const ready = new Map<Caller, Key[]>();
  let running = 0;

  /** The entry for `name`, or a new one if there is none or it has expired. Evicts the least recently used entry. */
  function findOrCreate<T extends { lastAt: number }>(known: Map<string, T>, name: string, make: () => T): T {
    const before = known.get(name);
    const one = before && clock.now() - before.lastAt < FORGET_MS ? before : make();
    // Inserting it again makes it the most recently used.
    known.delete(name);
    known.set(name, one);
    if (known.size > MAX_REMEMBERED) known.delete(known.keys().next().value as string);
    return one;
  }

  function keyOf({ caller: name, subject }: Guess): Key {
    const caller = findOrCreate(callers, name, () => ({ failures: 0, lastAt: clock.now() }));
    const key = findOrCreate(
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
    // The caller may have been evicted before the key.
    key.caller = caller;
    return key;
  }

  function enqueue(key: Key, one: Attempt): void {
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

  /** Makes the next attempt of the key ready once its delay is over. */
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
    while (running < MAX_RUNNING && ready.size > 0) {
      const caller = [...ready.keys()].reduce((best, one) => (one.failures < best.failures ? one : best));
      const [key, ...others] = ready.get(caller) as [Key, ...Key[]];
      // Move the caller to the end of the line.
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
      // A success does not reset the caller: otherwise signing in to one's own account would allow more guesses at others.
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
        if (guess.gone.aborted) throw new TooManyAttempts();
        const key = keyOf(guess);
        const leave = () => guess.gone.removeEventListener('abort', drop);
        const one: Attempt = {
          async run() {
            leave();
            const result = await attempt().catch((error: unknown) => void reject(error));
            resolve(result);
            return result !== undefined;
          },
          refuse() {
            leave();
            reject(new TooManyAttempts());
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

/** The key with the most waiting attempts, of the caller with the most. Callers with failures come first; the last wins a tie. */
function greediest(keys: ReadonlySet<Key>): Key {
  const rank = ([{ failures }, ofCaller]: [Caller, Key[]]) =>
    countWaiting(ofCaller) + (failures > 0 ? MAX_WAITING : 0);
  const [, ofCaller] = [...Map.groupBy(keys, ({ caller }) => caller)].reduce((most, one) =>
    rank(one) >= rank(most) ? one : most,
  );
  return ofCaller.reduce((most, one) => (one.waiting.length >= most.waiting.length ? one : most));
}

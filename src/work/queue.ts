// The scheduler. Rows are the queue: on each signal of the topic `queue`, it reads what is waiting, claims what the slots
// allow, and runs it. Fetches, suites, compiles and deploys all work the same way.

import { nextInTurn, type Waiting } from '../domain/fair-queue.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Slots } from './host-slots.ts';

/**
 * Runs claimed work until its row is finished or queued again. Ends early if the row is canceled. If the server stops, the
 * row stays claimed. `release` frees the slot before the end.
 */
export type Run = (release: () => void) => Promise<void>;

type Item = {
  /** One worker at a time runs for a key. */
  key: string;
  /** The Git hosts that it connects to, or the kind of its container. Groups take turns: the first one counts. */
  groups: readonly string[];
};

/** Work that is queued in the database. `claim` returns undefined if it was canceled or claimed meanwhile. */
export type WaitingItem = Item & Waiting & { claim(): Run | undefined };

/** Work that was claimed before, by a server that stopped or by a worker that failed. */
type ClaimedItem = Item & { run: Run };

export type WorkKind = {
  /** The first item of each owner. */
  listWaiting(): WaitingItem[];
  listClaimed(): ClaimedItem[];
};

/** Kinds of work that share slots. A closed lane claims nothing, and finishes what it claimed. */
export type Lane = {
  slots: Slots;
  isOpen(): boolean;
  kinds: readonly WorkKind[];
  /** Makes claims as one transaction. All of them are undone if one fails, and made again later. */
  claimTogether?: (claims: () => void) => void;
};

type Queue = {
  wake(): void;
  /** Stops claiming. Resolves when every worker has ended. */
  stop(): Promise<void>;
};

/** The command line writes to the database without a signal, and failed workers have to be restarted. */
const POLL_MS = 5_000;

export function startQueue({ live, log, lanes }: { live: Live; log: Log; lanes: readonly Lane[] }): Queue {
  const working = new Map<string, Promise<void>>();
  const servedAt = new Map<string, number>();
  let served = 0;
  let stopped = false;
  let scheduled = false;

  const work = (key: string, freeSlot: () => void, run: Run) => {
    const release = () => {
      freeSlot();
      wake();
    };
    const done = run(release)
      .catch(error => log.error('worker failed', { job: key, cause: error }))
      .finally(() => {
        working.delete(key);
        release();
      });
    working.set(key, done);
  };

  const resumeClaimed = () => {
    for (const lane of lanes)
      for (const item of lane.kinds.flatMap(kind => kind.listClaimed()))
        if (!working.has(item.key)) work(item.key, lane.slots.begin(item.groups), item.run);
  };

  /** Groups take turns, and so do the owners of each group. */
  const nextItem = (items: readonly WaitingItem[]): WaitingItem | undefined => {
    const groupOf = ({ groups }: Item) => `group ${groups[0] ?? ''}`;
    const group = nextInTurn(
      items.map(item => ({ owner: groupOf(item), enqueuedAt: item.enqueuedAt })),
      servedAt,
    )?.owner;
    const next = nextInTurn(
      items.filter(item => groupOf(item) === group),
      servedAt,
    );
    if (group === undefined || !next) return undefined;
    servedAt.set(group, ++served);
    servedAt.set(next.owner, served);
    return next;
  };

  const startWaiting = (lane: Lane) => {
    const claimed = new Map<string, { freeSlot: () => void; run: Run }>();
    const mayBegin = ({ key, groups }: Item) =>
      !working.has(key) && !claimed.has(key) && lane.slots.mayBegin(groups);
    const findNext = () =>
      lane.isOpen() && !lane.slots.isFull()
        ? nextItem(lane.kinds.flatMap(kind => kind.listWaiting()).filter(mayBegin))
        : undefined;
    const first = findNext();
    if (!first) return;
    const claim = (item: WaitingItem) => {
      const run = item.claim();
      if (run) claimed.set(item.key, { freeSlot: lane.slots.begin(item.groups), run });
      return run !== undefined;
    };
    const claimAll = () => {
      // Many items may have been canceled. Let requests run before the next attempt.
      for (let next: WaitingItem | undefined = first; next; next = findNext())
        if (!claim(next)) return wake();
    };
    try {
      if (lane.claimTogether) lane.claimTogether(claimAll);
      else {
        claim(first);
        // Each claim waits for the disk. Let requests run before the next one.
        wake();
      }
    } catch (error) {
      if (lane.claimTogether) {
        // The transaction was rolled back, so nothing is claimed.
        for (const { freeSlot } of claimed.values()) freeSlot();
        claimed.clear();
      }
      throw error;
    } finally {
      for (const [key, { freeSlot, run }] of claimed) work(key, freeSlot, run);
    }
  };

  const attempt = (work: () => void) => {
    try {
      work();
    } catch (error) {
      // Most likely the disk is full. The next poll tries again.
      log.error('queue could not be read', { cause: error });
    }
  };

  /** Several calls in one turn of the event loop read the queue once. */
  function wake(): void {
    if (scheduled || stopped) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      if (!stopped) attempt(() => lanes.forEach(startWaiting));
    });
  }

  resumeClaimed();
  const unwatch = live.watch('queue', wake);
  const timer = setInterval(() => {
    attempt(resumeClaimed);
    wake();
  }, POLL_MS);
  wake();

  return {
    wake,
    async stop() {
      stopped = true;
      unwatch();
      clearInterval(timer);
      await Promise.all(working.values());
    },
  };
}

// The scheduler. Rows are the queue: woken by the topic `queue`, it reads what waits, claims as much as slots allow, and
// runs it. Fetches, suites, compiles and deploys are all treated the same way.

import { nextInTurn, type Waiting } from '../domain/fair-queue.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Slots } from './host-slots.ts';

/**
 * Runs what was claimed until its row is settled. If the row is canceled meanwhile, the run ends early; if the server
 * stops, it leaves the row claimed. `release` gives back the slot before the end.
 */
export type Run = (release: () => void) => Promise<void>;

type Item = {
  /** Only one worker at a time has this key. */
  key: string;
  /** The Git hosts it connects to. It waits for its turn among those of the first. */
  hosts: readonly string[];
};

/** Work that waits in the database. `claim` returns undefined if it was canceled or claimed meanwhile. */
export type WaitingItem = Item & Waiting & { claim(): Run | undefined };

/** Work that was claimed before, by a server that stopped or by a worker that failed. */
export type ClaimedItem = Item & { run: Run };

export type WorkKind = {
  /** The first of each owner that waits. */
  listWaiting(): WaitingItem[];
  listClaimed(): ClaimedItem[];
};

/** Kinds of work that share slots. Nothing is claimed while the lane is closed; what was claimed goes on. */
export type Lane = { slots: Slots; isOpen(): boolean; kinds: readonly WorkKind[] };

export type Queue = {
  poke(): void;
  /** Claims nothing more. Resolves when every worker has ended. */
  stop(): Promise<void>;
};

/** The command line writes to the database from outside, and a worker that failed has to be started again. */
const LOOK_AGAIN_MS = 5_000;

export function startQueue({ live, log, lanes }: { live: Live; log: Log; lanes: readonly Lane[] }): Queue {
  const working = new Map<string, Promise<void>>();
  const servedAt = new Map<string, number>();
  let served = 0;
  let stopped = false;
  let scheduled = false;

  const work = ({ slots }: Lane, { key, hosts }: Item, run: Run) => {
    const giveBack = slots.begin(hosts);
    const release = () => {
      giveBack();
      poke();
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
        if (!working.has(item.key)) work(lane, item, item.run);
  };

  /** The hosts take turns, and for each host the owners. */
  const nextItem = (items: readonly WaitingItem[]): WaitingItem | undefined => {
    const hostOf = ({ hosts }: Item) => `host ${hosts[0] ?? ''}`;
    const host = nextInTurn(
      items.map(item => ({ owner: hostOf(item), enqueuedAt: item.enqueuedAt })),
      servedAt,
    )?.owner;
    const next = nextInTurn(
      items.filter(item => hostOf(item) === host),
      servedAt,
    );
    if (host === undefined || !next) return undefined;
    servedAt.set(host, ++served);
    servedAt.set(next.owner, served);
    return next;
  };

  const startWaiting = (lane: Lane) => {
    while (lane.isOpen() && !lane.slots.isFull()) {
      const waiting = lane.kinds.flatMap(kind => kind.listWaiting());
      const next = nextItem(
        waiting.filter(({ key, hosts }) => !working.has(key) && lane.slots.mayBegin(hosts)),
      );
      if (!next) return;
      const run = next.claim();
      // Very many may have been canceled: requests are served before the next one is tried.
      if (!run) return poke();
      work(lane, next, run);
    }
  };

  const attempt = (look: () => void) => {
    try {
      look();
    } catch (error) {
      // Most likely the disk is full. The next look tries again.
      log.error('queue could not be read', { cause: error });
    }
  };

  /** Many pokes in one turn of the event loop are one look. */
  function poke(): void {
    if (scheduled || stopped) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      if (!stopped) attempt(() => lanes.forEach(startWaiting));
    });
  }

  resumeClaimed();
  const unwatch = live.watch('queue', poke);
  const timer = setInterval(() => {
    attempt(resumeClaimed);
    poke();
  }, LOOK_AGAIN_MS);
  poke();

  return {
    poke,
    async stop() {
      stopped = true;
      unwatch();
      clearInterval(timer);
      await Promise.all(working.values());
    },
  };
}

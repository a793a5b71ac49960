// How hard a receiver of webhooks is leaned on, judged by how it answered lately. Who sends and counts is left to the work.

/** `atOnce` may be under way together; after a failure nothing more is sent for `pauseMs`. */
export type Pace = { atOnce: number; pauseMs: number };

/** Below what one host gets, so that a receiver which begins to hang leaves room for its neighbours. */
export const mostAtOnce = 12;
const mostAtOnceWhenSlow = 4;
const slowMs = 1_000;

// Small pauses keep a dead receiver with many events waiting from costing anyone else a connection or a commit each.
const firstPauseMs = 50;
const longestPauseMs = 1_000;

/** Unknown yet: two show whether it answers, and cost little where it hangs. */
export const firstPace: Pace = { atOnce: 2, pauseMs: 0 };

export function nextPace(pace: Pace, answer: { succeeded: boolean; responseMs: number }): Pace {
  if (!answer.succeeded)
    return { atOnce: 1, pauseMs: Math.min(longestPauseMs, pace.pauseMs * 2 || firstPauseMs) };
  const most = answer.responseMs >= slowMs ? mostAtOnceWhenSlow : mostAtOnce;
  return { atOnce: Math.min(most, pace.atOnce + 1), pauseMs: 0 };
}

type Paced = { host: string; pace: Pace; underWay: { size: number } };

/** Receivers that failed last share this part of the places: the rest is for those that answer. */
const failingShare = 0.5;
const isFailing = (receiver: Paced) => receiver.pace.pauseMs > 0;

/** How many places are taken, of all and of each host's, and how many are free for one receiver. */
export function countPlaces(receivers: Iterable<Paced>, limits: { inAll: number; perHost: number }) {
  const all = { taken: 0, failing: 0, limit: limits.inAll };
  const byHost = new Map<string, typeof all>();
  const placesOf = (receiver: Paced) => {
    const host = byHost.get(receiver.host) ?? { taken: 0, failing: 0, limit: limits.perHost };
    byHost.set(receiver.host, host);
    return [all, host];
  };
  const take = (receiver: Paced, places = 1) => {
    for (const count of placesOf(receiver)) {
      count.taken += places;
      if (isFailing(receiver)) count.failing += places;
    }
  };
  for (const receiver of receivers) take(receiver, receiver.underWay.size);
  return {
    take,
    freeFor(receiver: Paced): number {
      const free = placesOf(receiver).flatMap(({ taken, failing, limit }) =>
        isFailing(receiver) ? [limit - taken, limit * failingShare - failing] : [limit - taken],
      );
      return Math.min(receiver.pace.atOnce - receiver.underWay.size, ...free);
    },
  };
}

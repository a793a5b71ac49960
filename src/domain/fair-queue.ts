// Whose turn it is. Among those who wait, the one who was served longest ago: so whoever begins to wait is behind at most
// one job of each other who waits, however many jobs they have.

export type Waiting<Job> = { who: string; job: Job; enqueuedAt: bigint };

/** `servedAt` tells when each was last served; who never was comes first, the longer waiting before the shorter. */
export function nextInTurn<One extends Waiting<unknown>>(
  waiting: readonly One[],
  servedAt: ReadonlyMap<string, number>,
): One | undefined {
  return waiting.reduce<One | undefined>((first, one) => {
    if (!first) return one;
    const a = servedAt.get(one.who) ?? -1;
    const b = servedAt.get(first.who) ?? -1;
    if (a !== b) return a < b ? one : first;
    return one.enqueuedAt < first.enqueuedAt ? one : first;
  }, undefined);
}

// Fair scheduling: the owner who was served longest ago is next. A newcomer waits for at most one job of each other
// owner, however many jobs they have queued.

export type Waiting = { owner: string; enqueuedAt: bigint };

/** `servedAt` has the time each owner was last served. Owners never served come first; ties go to the older job. */
export function nextInTurn<One extends Waiting>(
  waiting: readonly One[],
  servedAt: ReadonlyMap<string, number>,
): One | undefined {
  return waiting.reduce<One | undefined>((first, one) => {
    if (!first) return one;
    const a = servedAt.get(one.owner) ?? -1;
    const b = servedAt.get(first.owner) ?? -1;
    if (a !== b) return a < b ? one : first;
    return one.enqueuedAt < first.enqueuedAt ? one : first;
  }, undefined);
}

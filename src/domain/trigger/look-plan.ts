// Decides what a look at a repository does about each changed ref.

import { parseRef } from './trigger.ts';

/** A ref whose hash is not the known one. `after` is null if the repository no longer has it. */
export type SeenChange = { ref: string; after: string | null };

export type LookPlan = {
  /** Recorded without a firing. */
  silent: SeenChange[];
  /** Deleted, or wanted by no trigger. */
  ignored: SeenChange[];
  tooMany: SeenChange[];
  /** To be built. */
  wanted: SeenChange[];
};

/** A look that finds more changes asks for so many builds, so that a mirror push does not fill the queue. */
export const REQUESTS_MAX = 20;
/** Further changes of one look get no row in the history. */
const FIRINGS_MAX = 1_000;

export function planLook(
  changes: readonly SeenChange[],
  look: {
    /** Nothing is known about the repository: all refs are recorded, and only these are built. */
    firstRefs?: ReadonlySet<string> | undefined;
    defaultBranch: string | undefined;
    /** Refs that hooks have named. */
    named: ReadonlySet<string>;
    isWanted(ref: string): boolean;
  },
): LookPlan {
  const silent: SeenChange[] = [];
  const ignored: SeenChange[] = [];
  const ranked: SeenChange[][] = [[], [], [], []];
  const rankOf = (ref: string) =>
    ref === look.defaultBranch ? 0 : look.named.has(ref) ? 1 : parseRef(ref)?.kind === 'branch' ? 2 : 3;
  for (const change of changes) {
    const { ref, after } = change;
    if (look.firstRefs && !look.firstRefs.has(ref)) silent.push(change);
    else if (after === null || !look.isWanted(ref)) ignored.push(change);
    else ranked[rankOf(ref)]?.push(change);
  }
  const wanted = ranked.flat();
  const tooMany = wanted.splice(REQUESTS_MAX);
  return {
    silent: silent.concat(ignored.splice(FIRINGS_MAX), tooMany.splice(FIRINGS_MAX)),
    ignored,
    tooMany,
    wanted,
  };
}

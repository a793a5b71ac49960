// Finds the commit that replaces one that a forced push removed. engine/git/history.ts reads the commits; the store keeps
// the record's id and version.

export type CommitIdentity = {
  hash: string;
  /** Name and email exactly as in the commit object. An amend or a rebase keeps them and the date. */
  author: string;
  authoredAt: string;
  subject: string;
};

type Patches = ReadonlyMap<string, string>;

/** Maps removed hashes to new ones. Both lists are oldest first: commits that no criterion matches are paired in order. */
export function matchReplacements(
  removed: readonly CommitIdentity[],
  candidates: readonly CommitIdentity[],
  patches: Patches,
): Map<string, string> {
  const replacements = new Map<string, string>();
  const candidateGroups = groupByAuthorship(candidates);
  for (const [authorship, group] of groupByAuthorship(removed)) {
    const unmatched = new Set(candidateGroups.get(authorship));
    for (const criterion of matchCriteria(patches)) {
      const matches = Map.groupBy(unmatched, criterion);
      for (const old of group) {
        const key = criterion(old);
        if (key === undefined || replacements.has(old.hash)) continue;
        const replacement = matches.get(key)?.shift();
        if (!replacement) continue;
        replacements.set(old.hash, replacement.hash);
        unmatched.delete(replacement);
      }
    }
  }
  return replacements;
}

/** Patches are expensive to compute. They matter only if one author made several commits in the same second. */
export function hashesThatNeedPatches(
  removed: readonly CommitIdentity[],
  candidates: readonly CommitIdentity[],
): string[] {
  const candidateGroups = groupByAuthorship(candidates);
  return [...groupByAuthorship(removed)].flatMap(([authorship, group]) => {
    const matches = candidateGroups.get(authorship) ?? [];
    const isUnambiguous = matches.length === 0 || (matches.length === 1 && group.length === 1);
    return isUnambiguous ? [] : [...group, ...matches].map(commit => commit.hash);
  });
}

/** From the strongest criterion to the weakest. */
function matchCriteria(patches: Patches): ((commit: CommitIdentity) => string | undefined)[] {
  const patchOf = (commit: CommitIdentity) => patches.get(commit.hash);
  return [
    commit => patchOf(commit) && `${patchOf(commit)}\0${commit.subject}`,
    patchOf,
    commit => commit.subject,
    () => 'in order',
  ];
}

function groupByAuthorship(commits: readonly CommitIdentity[]): Map<string, CommitIdentity[]> {
  return Map.groupBy(commits, commit => `${commit.author}\0${commit.authoredAt}`);
}

// Which commit stands in the place of one that a forced push took away. Pure matching: reading the
// commits is left to engine/history.ts, keeping the record's id and version to the store.

export interface CommitIdentity {
  hash: string;
  // Name, address and date exactly as the commit object has them: an amend or a rebase keeps all three.
  author: string;
  authoredAt: string;
  subject: string;
}

type Patches = ReadonlyMap<string, string>;

// Both lists oldest first: what is left over after the other signs is paired in that order.
export function matchReplacements(
  gone: readonly CommitIdentity[],
  candidates: readonly CommitIdentity[],
  patches: Patches,
): Map<string, string> {
  const replacements = new Map<string, string>();
  const offered = groupByAuthorship(candidates);
  for (const [authorship, lost] of groupByAuthorship(gone)) {
    const free = new Set(offered.get(authorship));
    for (const sign of signs(patches)) {
      const heirs = Map.groupBy(free, sign);
      for (const old of lost) {
        const wanted = sign(old);
        if (wanted === undefined || replacements.has(old.hash)) continue;
        const heir = heirs.get(wanted)?.shift();
        if (!heir) continue;
        replacements.set(old.hash, heir.hash);
        free.delete(heir);
      }
    }
  }
  return replacements;
}

// Patches cost far more to compute than anything else here, and decide only between several commits of
// one author and one second.
export function hashesThatNeedPatches(
  gone: readonly CommitIdentity[],
  candidates: readonly CommitIdentity[],
): string[] {
  const offered = groupByAuthorship(candidates);
  return [...groupByAuthorship(gone)].flatMap(([authorship, lost]) => {
    const heirs = offered.get(authorship) ?? [];
    const decided = heirs.length === 0 || (heirs.length === 1 && lost.length === 1);
    return decided ? [] : [...lost, ...heirs].map(commit => commit.hash);
  });
}

function signs(patches: Patches): ((commit: CommitIdentity) => string | undefined)[] {
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

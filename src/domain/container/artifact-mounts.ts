// Plans where artifacts are mounted in a container, and the order of dependencies. Artifacts may share a prefix or be
// nested in one another; src/work/artifacts.ts makes the unions.

import { orderByRelation } from '../dependency.ts';

/** For people: the file of an artifact is not in the data directory, or cannot be read. */
export const MISSING_ARTIFACT =
  'The artifact of a dependency is missing: compile it again, or restore a backup.';

export type PlacedArtifact = { hash: string; prefix: string };

/** One directory of a union: an artifact's root, or a directory inside it. */
type Layer = { hash: string; inside: string };

export type ArtifactMount = {
  target: string;
  /** If two layers have the same path, the first wins. */
  layers: Layer[];
  /** Directories that other mounts need as mount points. They cannot be created later in a read-only mount. */
  mountPoints: string[];
  writable: boolean;
};

/**
 * One mount for each prefix. `artifacts` are in order of precedence. `hasDirectory` says whether an artifact contains a
 * directory. `writable` is the prefix that a compile writes to; its layers are below what it writes.
 */
export function planArtifactMounts(
  artifacts: readonly PlacedArtifact[],
  hasDirectory: (hash: string, inside: string) => boolean,
  writable?: string,
): ArtifactMount[] {
  const targets = [
    ...new Set([...artifacts.map(({ prefix }) => prefix), ...(writable === undefined ? [] : [writable])]),
  ];
  return targets.map(target => ({
    target,
    layers: eachOnce(
      artifacts.flatMap(({ hash, prefix }): Layer[] => {
        const inside = pathInside(prefix, target);
        if (inside === undefined || (inside !== '' && !hasDirectory(hash, inside))) return [];
        return [{ hash, inside }];
      }),
    ),
    mountPoints: target === writable ? [] : targets.flatMap(other => pathInside(target, other) || []).sort(),
    writable: target === writable,
  }));
}

/** Two dependencies may compile to the same content, and an overlay rejects a directory that is given twice. */
const eachOnce = (layers: readonly Layer[]): Layer[] => {
  const first = new Map<string, Layer>();
  for (const layer of layers) {
    const key = `${layer.hash} ${layer.inside}`;
    if (!first.has(key)) first.set(key, layer);
  }
  return [...first.values()];
};

/** The directories that `planArtifactMounts` will ask about: none unless one prefix is inside another. */
export function nestedPairs(artifacts: readonly PlacedArtifact[], writable?: string): Layer[] {
  const targets = [...artifacts.map(({ prefix }) => prefix), ...(writable === undefined ? [] : [writable])];
  return artifacts.flatMap(({ hash, prefix }) =>
    targets.flatMap(target => {
      const inside = pathInside(prefix, target);
      return inside ? [{ hash, inside }] : [];
    }),
  );
}

/** The path of `inner` relative to `outer`: empty if they are equal, undefined if it is not inside. */
function pathInside(outer: string, inner: string): string | undefined {
  if (inner === outer) return '';
  return inner.startsWith(`${outer}/`) ? inner.slice(outer.length + 1) : undefined;
}

/**
 * The listed dependencies and their transitive ones, each once. `search` is the order on search paths: the listed ones in
 * their order, then the others. `launch` is the start order: each after the dependencies it relates to. If several versions
 * of a dependency are reached, the nearest one counts.
 */
export function orderDependencies<D extends { id: bigint }>(
  listed: readonly D[],
  relatedTo: (dependency: D) => readonly D[],
): { search: D[]; launch: D[] } {
  const search = listTransitive(listed, relatedTo);
  const ordered = orderByRelation(listed, one => relatedTo(one).flatMap(({ id }) => search.get(id) ?? []));
  return { search: [...search.values()], launch: ordered };
}

/** Breadth first: nearer dependencies come before farther ones. */
function listTransitive<D extends { id: bigint }>(
  listed: readonly D[],
  relatedTo: (dependency: D) => readonly D[],
): Map<bigint, D> {
  const found = new Map(listed.map(dependency => [dependency.id, dependency]));
  for (let level = [...listed]; level.length > 0; ) {
    const next: D[] = [];
    for (const dependency of level.flatMap(one => relatedTo(one))) {
      if (found.has(dependency.id)) continue;
      found.set(dependency.id, dependency);
      next.push(dependency);
    }
    level = next;
  }
  return found;
}

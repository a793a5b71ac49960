// Where artifacts appear in a container: one prefix of its own, several that share one, one inside another.
// Making the unions is src/work/artifacts.ts's.

export type PlacedArtifact = { hash: string; prefix: string };

/** A directory that a union is made of: an artifact's root, or one inside it. */
export type Layer = { hash: string; inside: string };

export type ArtifactMount = {
  target: string;
  /** The first wins where two have one path. */
  layers: Layer[];
  /** Directories that other places of the plan are mounted on: nothing can make them in what is read-only. */
  mountPoints: string[];
  writable: boolean;
};

/**
 * One place for each prefix. `artifacts` come in the order in which they win; `hasDirectory` tells whether an artifact has a
 * directory at a path inside it. `writable` is a compile's own prefix, whose layers lie under what it writes.
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

/** Two dependencies may have been compiled to the same content, and an overlay takes no directory twice. */
const eachOnce = (layers: readonly Layer[]): Layer[] => {
  const first = new Map<string, Layer>();
  for (const layer of layers) {
    const key = `${layer.hash} ${layer.inside}`;
    if (!first.has(key)) first.set(key, layer);
  }
  return [...first.values()];
};

/** The pairs that `planArtifactMounts` will ask about: none unless one prefix lies inside another. */
export function nestedPairs(artifacts: readonly PlacedArtifact[], writable?: string): Layer[] {
  const targets = [...artifacts.map(({ prefix }) => prefix), ...(writable === undefined ? [] : [writable])];
  return artifacts.flatMap(({ hash, prefix }) =>
    targets.flatMap(target => {
      const inside = pathInside(prefix, target);
      return inside ? [{ hash, inside }] : [];
    }),
  );
}

/** The path of `inner` inside `outer`: empty where they are one, undefined where it is not inside. */
function pathInside(outer: string, inner: string): string | undefined {
  if (inner === outer) return '';
  return inner.startsWith(`${outer}/`) ? inner.slice(outer.length + 1) : undefined;
}

/**
 * Those that were listed and those that they bring along, each once. `search`: who is found first: the listed ones in their
 * order, then the others. `launch`: who is started first: what one relates to before itself.
 */
export function orderDependencies<D extends { id: bigint }>(
  listed: readonly D[],
  relatedTo: (dependency: D) => readonly D[],
): { search: D[]; launch: D[] } {
  const launch = new Map<bigint, D>();
  const visit = (dependency: D, path: readonly bigint[]) => {
    if (launch.has(dependency.id) || path.includes(dependency.id)) return;
    for (const related of relatedTo(dependency)) visit(related, [...path, dependency.id]);
    launch.set(dependency.id, dependency);
  };
  for (const dependency of listed) visit(dependency, []);
  const search = new Map(listed.map(dependency => [dependency.id, dependency]));
  for (const dependency of broughtAlong(listed, relatedTo))
    search.set(dependency.id, search.get(dependency.id) ?? dependency);
  return { search: [...search.values()], launch: [...launch.values()] };
}

/** Breadth first: the nearer ones before the farther ones. */
function broughtAlong<D extends { id: bigint }>(
  listed: readonly D[],
  relatedTo: (dependency: D) => readonly D[],
): D[] {
  const met = new Map<bigint, D>();
  for (let level = [...listed]; level.length > 0; ) {
    const next = level.flatMap(dependency => relatedTo(dependency)).filter(({ id }) => !met.has(id));
    for (const dependency of next) met.set(dependency.id, dependency);
    level = next;
  }
  return [...met.values()];
}

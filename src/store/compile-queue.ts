// The queue of compiles: which can start, what the others wait for, and the position of each. A compile waits until
// everything that it relates to, directly or transitively, is compiled.

import { type CompileState, compileObstacle, orderByRelation } from '../domain/dependency.ts';
import { cached, type Db, prepared } from './database/db.ts';
import { unfinished } from './database/unfinished.ts';
import { type Dependency, findDependency } from './dependencies.ts';
import { POSITION_HORIZON, servedByRound } from './queue.ts';

/** A waiting dependency, or one that a waiting dependency relates to. */
type Node = { id: bigint; ownerId: bigint; obstacle: ReturnType<typeof compileObstacle> };

type WaitingCompile = {
  id: bigint;
  ownerId: bigint;
  position: number;
  /** What has to be compiled first; undefined if it can start. */
  waitsFor: Node | undefined;
};

const WAITING = `${unfinished.compile} AND compile_state = 'enqueued_for_compile'`;
// A compile uses what it relates to, and what those were compiled with. Nothing waits for a kept version, which does not
// change any more, nor for a removed relation, which could be part of a cycle.
const statements = prepared(({ sqlite }) => ({
  waiting: sqlite
    .prepare<[], [bigint, bigint]>(
      `SELECT id, owner_id FROM dependencies WHERE ${WAITING} ORDER BY enqueued_at, id`,
    )
    .raw(),
  relationsOfWaiting: sqlite
    .prepare<[], [bigint, bigint]>(
      `SELECT dependency_id, related_id FROM dependencies CROSS JOIN related_dependencies ON dependency_id = id
       WHERE ${WAITING} AND removed = 0 AND kept_version_id IS NULL`,
    )
    .raw(),
  other: sqlite
    .prepare<[bigint], [bigint, CompileState, bigint]>(
      'SELECT owner_id, compile_state, artifact_hash IS NOT NULL FROM dependencies WHERE id = ?',
    )
    .raw(),
  relationsOf: sqlite
    .prepare<[bigint], bigint>(
      `SELECT related_id FROM related_dependencies
       WHERE dependency_id = ? AND compiled_position IS NOT NULL AND removed = 0 AND kept_version_id IS NULL`,
    )
    .pluck(),
}));

/** The waiting compiles, by id, in the order in which each account's can start. */
const compileQueue = cached(
  () => 'all',
  (db: Db): Map<bigint, WaitingCompile> => {
    const { waiting, relationsOfWaiting, other, relationsOf } = statements(db);
    const nodes = new Map<bigint, Node>();
    for (const [id, ownerId] of waiting.all()) nodes.set(id, { id, ownerId, obstacle: 'compile' });
    const listed = [...nodes.values()];
    const nodeOf = (id: bigint): Node => {
      const known = nodes.get(id);
      if (known) return known;
      const [ownerId, compileState, hasArtifact] = other.get(id) as [bigint, CompileState, bigint];
      const obstacle = compileObstacle(compileState, hasArtifact === 1n);
      const node = { id, ownerId, obstacle };
      nodes.set(id, node);
      return node;
    };
    const related = new Map<bigint, Node[]>(listed.map(({ id }) => [id, []]));
    for (const [id, relatedId] of relationsOfWaiting.all()) related.get(id)?.push(nodeOf(relatedId));
    const relatedTo = ({ id }: Node): Node[] => {
      const known = related.get(id) ?? relationsOf.all(id).map(nodeOf);
      related.set(id, known);
      return known;
    };
    return orderQueue(listed, relatedTo);
  },
);

function orderQueue(listed: readonly Node[], relatedTo: (node: Node) => Node[]): Map<bigint, WaitingCompile> {
  const waiting = new Set(listed);
  /** The first that it relates to and that is not compiled yet, and whether one could not be compiled. */
  const obstacles = new Map<bigint, { first: Node | undefined; failed: boolean }>();
  const ordered = orderByRelation(listed, relatedTo);
  for (const node of ordered) {
    const direct = relatedTo(node);
    const farther = direct.map(one => (one.obstacle ? undefined : obstacles.get(one.id)));
    obstacles.set(node.id, {
      first: direct.find(isPending) ?? farther.find(one => one?.first)?.first,
      failed: direct.some(({ obstacle }) => obstacle === 'failed') || farther.some(one => one?.failed),
    });
  }
  const byOwner = Map.groupBy(
    ordered.filter(node => waiting.has(node)),
    ({ ownerId }) => ownerId,
  );
  const served = servedByRound([...byOwner.values()].map(({ length }) => length));
  const compiles = [...byOwner.values()].flatMap(own =>
    own.map(({ id, ownerId }, at): [bigint, WaitingCompile] => {
      const { first, failed } = obstacles.get(id) ?? {};
      const position = served[Math.min(at + 1, POSITION_HORIZON)] as number;
      // After a failure it starts, and fails with that reason.
      return [id, { id, ownerId, position, waitsFor: failed ? undefined : first }];
    }),
  );
  return new Map(compiles);
}

const isPending = ({ obstacle }: Node) => obstacle === 'compile' || obstacle === 'archive';

/** The first compile of each account that can start. */
export function listFirstCompiles(db: Db): { id: bigint; ownerId: bigint }[] {
  const first = new Map<bigint, WaitingCompile>();
  for (const compile of compileQueue(db, undefined)?.values() ?? [])
    if (!compile.waitsFor && !first.has(compile.ownerId)) first.set(compile.ownerId, compile);
  return [...first.values()];
}

/** The position of a waiting compile, and what has to be compiled first. Undefined if it does not wait. */
export function findWaitingCompile(
  db: Db,
  { id, ownerId, compileState }: Pick<Dependency, 'id' | 'ownerId' | 'compileState'>,
): { position: number; reason?: string } | undefined {
  if (compileState !== 'enqueued_for_compile') return undefined;
  const found = compileQueue(db, undefined)?.get(id);
  if (!found) return undefined;
  const { position, waitsFor } = found;
  const related = waitsFor && findDependency(db, waitsFor.id);
  if (!related) return { position };
  const isVisible = related.ownerId === ownerId || related.shared;
  const name = isVisible ? related.name : 'a dependency of another account';
  const reason =
    waitsFor.obstacle === 'archive'
      ? `Waiting for the archive of ${name}.`
      : `Waiting for ${name} to be compiled.`;
  return { position, reason };
}

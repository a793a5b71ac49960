// The queries of the queue for waiting and running jobs. Each reads a partial index, however many other rows there are:
// the conditions below repeat those of the indexes.

import { and, asc, eq, isNull, sql } from 'drizzle-orm';
import { type Db, prepared } from './database/db.ts';
import { dependencies } from './database/dependency-schema.ts';
import { accounts, buildRequests, builds, deploys, projects } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';
import type { Dependency } from './dependency-use.ts';
import type { Build, BuildRequest, Deploy } from './transition.ts';

type First = { projectId: bigint; id: bigint; repositoryUrl: string };

const WAITING = "build_state = 'enqueued'";
const NOT_DELETED = 'project_id NOT IN (SELECT id FROM projects WHERE deleted_at IS NOT NULL)';
const waiting = sql.raw(WAITING);
const unfinishedDependency = sql.raw(unfinished.compile);

/** The oldest matching row of each project, in one query that skips through the index from project to project. */
const firstOfEachProject = (table: 'builds' | 'build_requests' | 'deploys', condition: string) =>
  prepared(db =>
    db.sqlite.prepare<[], First>(
      `WITH RECURSIVE found (project_id) AS (
         SELECT min(project_id) FROM ${table} WHERE ${condition}
         UNION ALL
         SELECT (SELECT min(project_id) FROM ${table} WHERE ${condition} AND project_id > found.project_id) FROM found
         WHERE found.project_id IS NOT NULL
       )
       SELECT project_id AS projectId,
         (SELECT min(id) FROM ${table} WHERE project_id = found.project_id AND ${condition}) AS id,
         (SELECT repository_url FROM projects WHERE id = found.project_id) AS repositoryUrl
       FROM found WHERE project_id IS NOT NULL AND ${NOT_DELETED}`,
    ),
  );
const firstWaitingBuilds = firstOfEachProject('builds', WAITING);
const firstWaitingRequests = firstOfEachProject('build_requests', `${WAITING} AND local = 0`);
const firstWaitingSnapshots = firstOfEachProject('build_requests', `${WAITING} AND local = 1`);
const firstUnfinishedDeploys = firstOfEachProject('deploys', unfinished.deploy);

/** The first waiting build of each project. */
export const listFirstWaitingBuilds = (db: Db): First[] => firstWaitingBuilds(db).all();

// What runs is read every second.
const running = prepared(db => db.orm.select().from(builds).where(sql`build_state = 'running'`).prepare());
const compiling = prepared(db =>
  db.orm
    .select()
    .from(dependencies)
    .where(and(unfinishedDependency, eq(dependencies.compileState, 'compiling')))
    .prepare(),
);
const fetching = prepared(db =>
  db.orm.select().from(buildRequests).where(sql`build_state = 'fetching'`).prepare(),
);
export const listRunningBuilds = (db: Db): Build[] => running(db).all();
export const listCompiling = (db: Db): Dependency[] => compiling(db).all();
export const listFetching = (db: Db): BuildRequest[] => fetching(db).all();

/** Running and waiting compiles of all accounts, longest waiting first. */
export function listUnfinishedCompiles(
  db: Db,
  limit: number,
): { dependency: Dependency; ownerEmail: string }[] {
  return db.orm
    .select({ dependency: dependencies, ownerEmail: accounts.email })
    .from(dependencies)
    .innerJoin(accounts, eq(accounts.id, dependencies.ownerId))
    .where(unfinishedDependency)
    .orderBy(asc(dependencies.enqueuedAt))
    .limit(limit)
    .all();
}

/** The first waiting request of each project, without those for snapshots. */
export const listFirstWaitingRequests = (db: Db): First[] => firstWaitingRequests(db).all();

/** The first waiting request for a snapshot of each project. */
export const listFirstWaitingSnapshots = (db: Db): First[] => firstWaitingSnapshots(db).all();

/** Without those for snapshots. */
export function listWaitingRequests(db: Db, projectId: bigint, limit: number): BuildRequest[] {
  return db.orm
    .select()
    .from(buildRequests)
    .where(and(eq(buildRequests.projectId, projectId), waiting, eq(buildRequests.local, false)))
    .orderBy(asc(buildRequests.id))
    .limit(limit)
    .all();
}

/** The oldest unfinished deploy of each project. A project deploys one commit at a time, in order of creation. */
export function listFirstDeploys(db: Db): { deploy: Deploy; repositoryUrl: string }[] {
  return firstUnfinishedDeploys(db)
    .all()
    .flatMap(({ id, repositoryUrl }) => {
      const deploy = db.orm.select().from(deploys).where(eq(deploys.id, id)).get();
      return deploy ? [{ deploy, repositoryUrl }] : [];
    });
}

export const POSITION_HORIZON = 1000;

const waitingByProject = prepared(db =>
  db.sqlite
    .prepare<[], bigint>(
      `SELECT count(*) FROM builds WHERE ${WAITING} AND ${NOT_DELETED} GROUP BY project_id`,
    )
    .pluck(),
);
const firstWaitingOf = prepared(db =>
  db.sqlite
    .prepare<[bigint, number], bigint>(
      `SELECT id FROM builds WHERE project_id = ? AND ${WAITING} ORDER BY id LIMIT ?`,
    )
    .pluck(),
);

/** How many jobs have started by the end of each round, if every owner gets one per round. `counts` is how many each has. */
export function servedByRound(counts: readonly number[]): number[] {
  const ownersWith = new Array<number>(POSITION_HORIZON + 1).fill(0);
  for (const count of counts) ownersWith[Math.min(count, POSITION_HORIZON)]! += 1;
  const served = new Array<number>(POSITION_HORIZON + 1).fill(0);
  let inRound = counts.length;
  for (let round = 1; round <= POSITION_HORIZON; round += 1) {
    served[round] = (served[round - 1] as number) + inRound;
    inRound -= ownersWith[round] as number;
  }
  return served;
}

/** Queue positions, cached for one generation of the database: a list needs many of them at once. */
const positions = prepared(() => ({
  generation: -1,
  served: [] as number[],
  rounds: new Map<bigint, Map<bigint, number>>(),
}));

/** The build's position in the queue. Beyond the horizon it is a lower bound. */
export function positionOf(db: Db, build: Pick<Build, 'id' | 'projectId'>): number {
  const known = positions(db);
  const generation = db.generation();
  if (known.generation !== generation || db.writing) {
    known.generation = db.writing ? -1 : generation;
    known.served = servedByRound(waitingByProject(db).all().map(Number));
    known.rounds.clear();
  }
  let rounds = known.rounds.get(build.projectId);
  if (!rounds) {
    const first = firstWaitingOf(db).all(build.projectId, POSITION_HORIZON);
    rounds = new Map(first.map((id, at) => [id, at + 1]));
    known.rounds.set(build.projectId, rounds);
  }
  return known.served[rounds.get(build.id) ?? POSITION_HORIZON] as number;
}

// SQLite would otherwise scan all builds, because that yields the order for free.
const firstUnfinished = (limit: number) =>
  sql`(SELECT id FROM builds INDEXED BY builds_unfinished
       WHERE ${sql.raw(unfinished.build)} ORDER BY id LIMIT ${limit})`;

/** Running and waiting builds of all projects, longest waiting first. */
export function listUnfinishedBuilds(db: Db, limit: number): { build: Build; projectName: string }[] {
  return db.orm
    .select({ build: builds, projectName: projects.name })
    .from(builds)
    .innerJoin(projects, and(eq(projects.id, builds.projectId), isNull(projects.deletedAt)))
    .where(sql`${builds.id} IN ${firstUnfinished(limit)}`)
    .orderBy(asc(builds.id))
    .all();
}

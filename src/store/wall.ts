// What the wall screen shows: the projects that an account sees, ranked, and for those that fail since when and by whom.

import type { BuildRequestState } from '../domain/build.ts';
import { type ActivityRequest, describeRequests } from './activity.ts';
import { type Db, prepared } from './database/db.ts';
import {
  findProjectHeads,
  isFailing,
  type RankedProject,
  rankProjects,
  type Viewer,
} from './project-ranking.ts';

const LARGE_TILES = 24;
const SMALL_TILES = 60;
/** How many build requests of a branch are read to find the first that failed. */
const REQUESTS_SEARCHED = 100;

export type LargeTile = RankedProject & {
  name: string;
  newest: ActivityRequest | undefined;
  /** The first build request of the branch that failed since the last one that passed. */
  broken: ActivityRequest | undefined;
};

export type Wall = {
  /** Projects that fail or build. */
  large: LargeTile[];
  small: (RankedProject & { name: string })[];
  /** Of all projects. */
  counts: { failing: number; building: number; others: number };
  /** How many of the projects have no tile. */
  hidden: number;
};

export async function describeWall(db: Db, viewer: Viewer): Promise<Wall> {
  const { ranked } = await rankProjects(db, viewer);
  const isLarge = ({ buildState }: RankedProject) => isFailing(buildState) || buildState === 'building';
  const large = ranked.filter(isLarge).slice(0, LARGE_TILES);
  const small = ranked.filter(project => !isLarge(project)).slice(0, SMALL_TILES);
  const heads = findProjectHeads(
    db,
    [...large, ...small].map(({ id }) => id),
  );
  const withName = (project: RankedProject) => ({ ...project, name: heads.get(project.id)?.name ?? '' });
  const failing = ranked.filter(({ buildState }) => isFailing(buildState)).length;
  const building = ranked.filter(({ buildState }) => buildState === 'building').length;
  const newest = describe(
    db,
    large.map(({ newestRequestId }) => newestRequestId),
  );
  const broken = describe(
    db,
    [...newest.values()].flatMap(({ request }) => findBroken(db, request.projectId, request.branch) ?? []),
  );
  return {
    large: large.map(project => ({
      ...withName(project),
      newest: newest.get(project.id),
      broken: broken.get(project.id),
    })),
    small: small.map(withName),
    counts: { failing, building, others: ranked.length - failing - building },
    hidden: ranked.length - large.length - small.length,
  };
}

/** By project, of which each has one of the requests. */
const describe = (db: Db, requestIds: readonly bigint[]) =>
  new Map(describeRequests(db, requestIds).map(one => [one.request.projectId, one]));

const latest = prepared(({ sqlite }) => {
  const prepare = (condition: string) =>
    sqlite
      .prepare<[{ projectId: bigint; branch: string }], [bigint, BuildRequestState]>(
        `SELECT id, build_state FROM build_requests WHERE project_id = @projectId AND ${condition}
         ORDER BY id DESC LIMIT ${REQUESTS_SEARCHED}`,
      )
      .raw();
  return {
    branch: prepare('branch = @branch AND local = 0'),
    // A request that reached no commit has no branch.
    all: prepare("local = 0 AND @branch = ''"),
  };
});

function findBroken(db: Db, projectId: bigint, branch: string): bigint | undefined {
  let broken: bigint | undefined;
  for (const [id, state] of latest(db)[branch === '' ? 'all' : 'branch'].iterate({ projectId, branch })) {
    if (state === 'passed') break;
    if (state === 'failed' || state === 'errored') broken = id;
  }
  return broken;
}

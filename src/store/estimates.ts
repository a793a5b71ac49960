// How long a build will probably take: the median of the latest builds of its suite that passed. Local runs do not count.

import { isFinishedBuild } from '../domain/build.ts';
import { median } from '../domain/result/history.ts';
import { cached, type Db, prepared } from './database/db.ts';
import type { Build } from './transition.ts';

const BUILDS = 5;

// The index builds_passed has the same condition and all columns.
const durations = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], bigint>(
      `SELECT finished_at - started_at FROM builds INDEXED BY builds_passed
       WHERE suite_id = ? AND build_state = 'passed' AND local = 0 ORDER BY id DESC LIMIT ${BUILDS}`,
    )
    .pluck(),
);

const medianSeconds = cached(
  (suiteId: bigint) => suiteId,
  (db, suiteId): number | undefined => {
    const ms = median(durations(db).all(suiteId).map(Number));
    return ms === undefined ? undefined : Math.max(1, Math.round(ms / 1000));
  },
);

/** Of an unfinished build, from its start to its end; undefined if its suite has not passed yet. */
export function estimateSeconds(db: Db, build: Pick<Build, 'suiteId' | 'buildState'>): number | undefined {
  return isFinishedBuild(build.buildState) ? undefined : medianSeconds(db, build.suiteId);
}

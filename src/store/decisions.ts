// The decisions of a build request: which suites run, and the results of their rules.

import { and, desc, eq, ne } from 'drizzle-orm';
import { type Db, insertInto } from './database/db.ts';
import { type Decision, packDecisions, unpackDecisions } from './database/packed-decisions.ts';
import { buildRequests, requestDecisions } from './database/schema.ts';

export { type Decision, unpackDecisions } from './database/packed-decisions.ts';

const insertDecisions = insertInto(requestDecisions);

/** Stores the decisions. None of the suites that run has a build yet. */
export function recordDecisions(db: Db, buildRequestId: bigint, decisions: readonly Decision[]): void {
  const begun = decisions.some(({ runs }) => runs) ? 0 : null;
  insertDecisions(db, { buildRequestId, decisions: packDecisions(decisions), begun });
}

/** The suites that ran for the project's newest request that is past fetching. */
export function listSuitesOfNewestRequest(db: Db, projectId: bigint): Set<bigint> {
  const row = db.orm
    .select({ decisions: requestDecisions.decisions })
    .from(buildRequests)
    .innerJoin(requestDecisions, eq(requestDecisions.buildRequestId, buildRequests.id))
    .where(and(eq(buildRequests.projectId, projectId), eq(buildRequests.local, false)))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
  const running = (row ? unpackDecisions(row.decisions) : []).filter(({ runs }) => runs);
  return new Set(running.map(({ suiteId }) => suiteId));
}

/** The decisions of the commit's newest request that is past fetching, newest suite first. */
export function listSuiteDecisions(db: Db, commitId: bigint): (Decision & { buildRequestId: bigint })[] {
  const newest = db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(and(eq(buildRequests.commitId, commitId), ne(buildRequests.buildState, 'fetching')))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
  if (!newest) return [];
  const row = db.orm
    .select({ decisions: requestDecisions.decisions })
    .from(requestDecisions)
    .where(eq(requestDecisions.buildRequestId, newest.id))
    .get();
  return (row ? unpackDecisions(row.decisions) : [])
    .map(decision => ({ ...decision, buildRequestId: newest.id }))
    .sort((a, b) => (a.suiteId < b.suiteId ? 1 : -1));
}

// Turns build requests into builds: fetches the mirror once for all waiting requests of a project, then resolves each
// request to a commit and enqueues the suites whose rules hold. A request for a snapshot fetches nothing.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { hideHostPaths } from '../../domain/host-paths.ts';
import { DETACHED } from '../../domain/names.ts';
import { createEvaluator, type Evaluation, type Rule } from '../../domain/rules.ts';
import { findSkipMarker } from '../../domain/trigger/skip-marker.ts';
import { parseRef } from '../../domain/trigger/trigger.ts';
import { GitFailure } from '../../engine/git/git.ts';
import {
  type CommitRead,
  findReplacements,
  listReachable,
  readCommit,
  resolvePinned,
  resolveRef,
} from '../../engine/git/history.ts';
import { fetchPullRequest, pullRequestRef } from '../../engine/git/mirror.ts';
import {
  type BuildRequest,
  type CommitFields,
  type Decision,
  enqueueBuilds,
  findBuildRequest,
  listCommitRefs,
  listSupersededRequests,
  overwriteCommit,
  type ReservedIds,
  recordCommit,
} from '../../store/builds.ts';
import { markRequestCanceled } from '../../store/cancels.ts';
import { mirrorPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project } from '../../store/projects.ts';
import {
  listFetching,
  listFirstWaitingRequests,
  listFirstWaitingSnapshots,
  listWaitingRequests,
} from '../../store/queue.ts';
import { listAllRules, listAllSuites } from '../../store/suites.ts';
import { moveRequest } from '../../store/transition.ts';
import { watchCancellation } from '../cancellation.ts';
import { hostIn } from '../host-slots.ts';
import type { WorkKind } from '../queue.ts';
import { type FetchOptions, fetchProject, logFailure, mirrorFetch } from './fetch-mirror.ts';
import { getSnapshot } from './snapshots.ts';
import { fetchSource, findSource, trustedSource } from './source.ts';

/** How many paths of a commit are stored. Pages show the number of the others. */
const FILES_KEPT = 10_000;
const REQUESTS_PER_FETCH = 50;

/** Connects fetches to the queue. One fetch serves all waiting requests of a project. Those for snapshots do not wait for it. */
export function fetchWork(options: FetchOptions): WorkKind {
  const { db } = options;
  const keyOf = (projectId: bigint) => `fetch ${projectId}`;
  const keyOfSnapshot = (requestId: bigint) => `local ${requestId}`;
  return {
    listWaiting: () => [
      ...listFirstWaitingRequests(db).map(({ projectId, id, repositoryUrl }) => ({
        key: keyOf(projectId),
        owner: keyOf(projectId),
        enqueuedAt: id,
        groups: [hostIn(repositoryUrl)],
        claim() {
          return db.write(() => {
            const waiting = listWaitingRequests(db, projectId, REQUESTS_PER_FETCH);
            const claimed = waiting.flatMap(request => moveRequest(db, request.id, 'fetch') ?? []);
            const [first] = claimed;
            if (!first) return undefined;
            const reserved = options.early.reserve(first);
            return () => fetchCommits(options, projectId, claimed, reserved);
          });
        },
      })),
      ...listFirstWaitingSnapshots(db).map(({ projectId, id }) => ({
        key: keyOfSnapshot(id),
        owner: `local ${projectId}`,
        enqueuedAt: id,
        groups: [],
        claim() {
          const claimed = moveRequest(db, id, 'fetch');
          return claimed && (() => fetchCommits(options, projectId, [claimed], new Map()));
        },
      })),
    ],
    // Queue them again, because they have to wait for disk space and a slot.
    listClaimed: () =>
      [
        ...Map.groupBy(listFetching(db), ({ projectId, id, snapshotId }) =>
          snapshotId === null ? keyOf(projectId) : keyOfSnapshot(id),
        ),
      ].map(([key, requests]) => ({
        key,
        groups: [],
        run: async () => {
          for (const { id } of requests) moveRequest(db, id, 'requeue');
        },
      })),
  };
}

/**
 * Fetches once and resolves all requests. The reserved ids are for builds of the first one. Aborts when all of them are
 * canceled or their project is deleted.
 */
async function fetchCommits(
  options: FetchOptions,
  projectId: bigint,
  requests: readonly BuildRequest[],
  reserved: ReservedIds,
): Promise<void> {
  const { db, log } = options;
  const project = findProject(db, projectId);
  if (!project) return;
  const mirror = mirrorPath(options.dataDirectory, projectId);
  const isFetching = ({ id }: BuildRequest) => findBuildRequest(db, projectId, id)?.buildState === 'fetching';
  const isAnyFetching = () => requests.some(isFetching);
  options.early.start(project, requests[0] as BuildRequest, reserved);
  const cancellation = watchCancellation(options, [
    [`project:${projectId}`, () => findProject(db, projectId) !== undefined],
    ...requests.map(({ id }): [string, () => boolean] => [`build_request:${id}`, isAnyFetching]),
  ]);
  try {
    if (requests.some(({ snapshotId }) => snapshotId === null)) {
      await fetchProject(options, project, cancellation.signal);
      await handleForcePushes(options, project, mirror);
    }
    await beginRequests(options, project, requests, reserved, cancellation.signal);
  } catch (error) {
    // After a stop, the next server fetches again.
    if (cancellation.signal.aborted) return;
    logFailure(log, 'fetch failed', { project: projectId }, error);
    for (const request of requests) fail(options, request, error);
  } finally {
    cancellation.stopWatching();
    options.early.removeUnused(projectId, reserved);
    options.repacks.schedule(mirror);
  }
}

async function beginRequests(
  options: FetchOptions,
  project: Project,
  requests: readonly BuildRequest[],
  reserved: ReservedIds,
  signal: AbortSignal,
): Promise<void> {
  const { db, log } = options;
  // Requests with the same ref get the same commit, so git reads it once.
  const found = new Map<string, Found>();
  const mirror = mirrorPath(options.dataDirectory, project.id);
  for (const request of requests) {
    const key = `${request.pinnedRef ?? ''} ${request.pinned ?? request.commitRef}`;
    try {
      // A request with many suites is a long transaction. Let HTTP requests run before the next one.
      await nextTurn();
      if (request.pullRequest !== null) await fetchPull(options, project, request, signal);
      const known = found.get(key);
      const resolved = known ?? (await resolveRequested(options, mirror, request));
      if (!resolved) {
        moveRequest(db, request.id, 'skip', { error: goneReason(request) });
        continue;
      }
      const trusted = trustedSource(options, project, request);
      const { ref } = resolved;
      const [commit, source] = await Promise.all([
        known?.commit ?? readCommit(resolved.repository, ref),
        findSource(options, trusted, ref, { isFetched: true }),
      ]);
      const read = {
        ...resolved,
        commit: resolved.branches ? { ...commit, branches: resolved.branches } : commit,
      };
      // Very long lists of files are read again, to save memory.
      if (commit.files.length <= FILES_KEPT) found.set(key, read);
      if (!source || source.lacksLfs) await fetchSource(options, trusted, ref, signal);
      const evaluate = await evaluateAhead(db, request, read.commit);
      begin(db, project, request, read, evaluate, request === requests[0] ? reserved : new Map());
    } catch (error) {
      if (signal.aborted) return;
      logFailure(log, 'commit could not be read', { request: request.id }, error);
      fail(options, request, error);
    }
  }
}

function fail({ db, dataDirectory }: FetchOptions, request: BuildRequest, failure: unknown): void {
  const error =
    failure instanceof GitFailure
      ? failure.reason
      : `The service could not fetch the commit: ${(failure as Error).message}`;
  moveRequest(db, request.id, 'error', { error: hideHostPaths(error, dataDirectory) });
}

type Resolved = {
  repository: string;
  ref: string;
  branch: string;
  tag: string;
  /** Instead of those of the repository. */
  branches?: string[];
};
type Found = Resolved & { commit: CommitRead };

/** Undefined if the ref that a trigger saw no longer has the commit. */
async function resolveRequested(
  options: FetchOptions,
  mirror: string,
  request: BuildRequest,
): Promise<Resolved | undefined> {
  const { commitRef, pinned, pinnedRef, pullRequest } = request;
  if (request.snapshotId !== null) {
    // Rules are evaluated as on the branch of the working tree. The commit is on no branch otherwise.
    const branches = commitRef === DETACHED ? [] : [commitRef];
    return { ...getSnapshot(options, request), branch: '', tag: '', branches };
  }
  if (pinned === null || pinnedRef === null)
    return { repository: mirror, ...(await resolveRef(mirror, commitRef)) };
  const seenAt = pullRequest === null ? pinnedRef : pullRequestRef(pullRequest);
  const ref = await resolvePinned(mirror, pinned, seenAt);
  if (ref === undefined) return undefined;
  const parsed = parseRef(pinnedRef);
  return {
    repository: mirror,
    ref,
    branch: parsed?.kind === 'branch' ? parsed.name : '',
    tag: parsed?.kind === 'tag' ? parsed.name : '',
  };
}

async function fetchPull(
  options: FetchOptions,
  project: Project,
  { pinnedRef, pullRequest }: BuildRequest,
  signal: AbortSignal,
): Promise<void> {
  using _lock = await options.mutex(`mirror ${project.id}`, signal);
  await fetchPullRequest(mirrorFetch(options, project, signal), pinnedRef as string, pullRequest as number);
}

const goneReason = ({ commitRef, pinned }: BuildRequest) =>
  `${commitRef} no longer contains the commit ${pinned?.slice(0, 12)}: it was overwritten or deleted after the push.`;

/** Only pushes of a branch can be skipped by the commit message. */
function findSkipReason(request: BuildRequest, { branch, commit }: Found): string | undefined {
  const marker =
    (request.trigger === 'push' || request.trigger === 'poll') && branch !== ''
      ? findSkipMarker(commit.message)
      : undefined;
  return marker && `Skipped, because the commit message contains ${marker}.`;
}

function begin(
  db: Db,
  project: Project,
  request: BuildRequest,
  found: Found,
  evaluate: Evaluator,
  reserved: ReservedIds,
): void {
  const { branch, tag, commit: read } = found;
  db.write(() => {
    // If it was canceled meanwhile, a new commit would wait for builds forever.
    if (findBuildRequest(db, project.id, request.id)?.buildState !== 'fetching') return;
    const local = request.snapshotId !== null;
    const commit = recordCommit(db, project.id, {
      ...fieldsOf(local ? { ...read, branches: [] } : read),
      local,
    });
    const skipReason = findSkipReason(request, found);
    const decisions = skipReason === undefined ? decide(db, request, evaluate) : [];
    const others = { tag, ...(skipReason !== undefined && { error: skipReason }) };
    const begun = enqueueBuilds(db, request.id, commit, branch, decisions, others, reserved);
    if (begun && (branch !== '' || begun.pullRequest !== null) && project.cancelSuperseded)
      for (const older of listSupersededRequests(db, begun))
        markRequestCanceled(db, older, `because a newer build of ${request.commitRef} has begun`);
  });
}

type Evaluator = (rules: readonly Rule[]) => Evaluation;

/** Evaluates rules one by one, because many rules on many paths take long. `decide` then gets remembered results. */
async function evaluateAhead(db: Db, request: BuildRequest, read: CommitRead): Promise<Evaluator> {
  const { trigger, triggerName, projectId } = request;
  const evaluate = createEvaluator({ ...read, trigger: trigger ?? '', triggerName: triggerName ?? '' });
  for (const suite of listAllSuites(db, projectId))
    for (const rule of rulesOf(db, suite.id)) {
      evaluate([rule]);
      await nextTurn();
    }
  return evaluate;
}

/** Decides which suites run for the commit, by their current rules or because the request names them. */
function decide(db: Db, { projectId, suites }: BuildRequest, evaluate: Evaluator): Decision[] {
  const named = suites === null ? undefined : new Set(JSON.parse(suites) as string[]);
  return listAllSuites(db, projectId).map(suite => ({
    suiteId: suite.id,
    suiteName: suite.name,
    ...evaluate(rulesOf(db, suite.id)),
    ...(named && { runs: named.has(suite.id.toString()) }),
  }));
}

const rulesOf = (db: Db, suiteId: bigint): Rule[] =>
  listAllRules(db, suiteId).map(({ subject, operator, value }) => ({ subject, operator, value }) as Rule);

const fieldsOf = (read: CommitRead): CommitFields => ({
  ...read,
  branches: JSON.stringify(read.branches),
  tags: JSON.stringify(read.tags),
  files: JSON.stringify(read.files.slice(0, FILES_KEPT)),
  filesOmitted: read.files.length > FILES_KEPT ? read.files.length - FILES_KEPT : null,
});

/** Commits that a force push replaced get the hash of their replacement and a higher version. */
async function handleForcePushes(options: FetchOptions, project: Project, mirror: string): Promise<void> {
  if (options.handledForcePushes.has(project.id)) return;
  try {
    await replaceCommits(options.db, project, mirror);
  } catch (error) {
    if (options.stopping.aborted) throw error;
    // Old commits then keep their hash, and new builds still run.
    options.log.warn('force push could not be handled', { project: project.id, cause: error });
  }
  options.handledForcePushes.add(project.id);
}

async function replaceCommits(db: Db, project: Project, mirror: string): Promise<void> {
  const known = listCommitRefs(db, project.id);
  if (known.length === 0) return;
  const idOf = new Map(known.map(({ ref, id }) => [ref, id]));
  const refs = [...idOf.keys()];
  const reachable = await listReachable(mirror, refs);
  const gone = refs.filter(ref => !reachable.has(ref));
  if (gone.length === 0) return;
  const replacements = await findReplacements(mirror, gone, refs);
  for (const [old, replacement] of replacements) {
    const id = idOf.get(old);
    if (id !== undefined) overwriteCommit(db, id, fieldsOf(await readCommit(mirror, replacement)));
  }
}

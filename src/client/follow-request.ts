// Follows a build request or a deploy to its end. The firehose of the project reports each change; the records are read at the
// beginning, again whenever the connection was lost, and now and then for what has no event.

import { isFinishedBuild, isFinishedRequest } from '../domain/build.ts';
import { UNFINISHED_DEPLOYS } from '../domain/deploy.ts';
import type { Connection } from './connection.ts';
import { followEvents, type Retry, type RetryOptions, retrying } from './event-stream.ts';
import { listBuilds } from './find-build.ts';
import type { Build, BuildRequest, Commit, Deploy, SuiteBuild } from './records.ts';
import type { ProjectSession } from './session.ts';

/** How often to ask why builds wait and how long they will take. */
const REFRESH_MS = 3_000;

export type ProjectEvent = {
  created_at: string;
  build_request?: BuildRequest;
  build?: Build;
  deploy?: Deploy;
};

type Subject<S> = {
  read(): Promise<S>;
  /** The state after an event, the same one if the event changes nothing. Undefined if the records must be read. */
  apply(state: S, event: ProjectEvent): S | undefined;
  isFinished(state: S): boolean;
  /** Whether reading again may show something new without an event. */
  isVague(state: S): boolean;
};

type FollowOptions<S> = Omit<RetryOptions, 'signal'> & {
  signal: AbortSignal;
  /** Whether to refresh what has no event. */
  isLive: boolean;
  onState(state: S): void;
};

/** Resolves with the state at the end. Reads that belong to the same work can share the `retry`. */
async function follow<S>(
  { connection, path }: { connection: Connection; path: string },
  subject: Subject<S>,
  retry: Retry,
  { signal, isLive, onState }: FollowOptions<S>,
): Promise<S> {
  let state: S = await retrying(retry, subject.read);
  let eventCount = 0;
  const set = (next: S) => {
    state = next;
    onState(state);
  };
  const refresh = async () => {
    const before = eventCount;
    const next = await subject.read();
    // A response that was on its way while an event arrived may be older than the event.
    if (eventCount === before) set(next);
  };
  onState(state);
  if (subject.isFinished(state)) return state;
  const timer = setInterval(() => {
    // The stream reports what is wrong.
    if (isLive && subject.isVague(state)) refresh().catch(() => {});
  }, REFRESH_MS);
  try {
    for await (const { event, data } of followEvents(connection, `${path}/firehose`, { signal, retry })) {
      // The first one of each connection: what happened before it was connected is not sent if no event had arrived yet.
      if (event === 'state') await retrying(retry, refresh);
      else {
        eventCount += 1;
        const next = subject.apply(state, JSON.parse(data) as ProjectEvent);
        if (next === undefined) set(await retrying(retry, subject.read));
        else if (next !== state) set(next);
      }
      if (subject.isFinished(state)) return state;
    }
    return state;
  } finally {
    clearInterval(timer);
  }
}

export type RequestState = {
  request: BuildRequest;
  /** Undefined until it is fetched. */
  commit: Commit | undefined;
  /** The newest build of each suite, in the order in which they were queued. */
  builds: readonly SuiteBuild[];
};

export function followRequest(
  session: ProjectSession,
  requestId: string,
  retry: Retry,
  options: FollowOptions<RequestState>,
): Promise<RequestState> {
  const read = createReader(session, requestId);
  return follow(
    session,
    {
      read,
      apply: applyEvent,
      isFinished: ({ request }) => isFinishedRequest(request.build_state),
      isVague: ({ builds }) =>
        builds.length === 0 || builds.some(({ build_state: state }) => state === 'enqueued'),
    },
    retry,
    options,
  );
}

function createReader(session: ProjectSession, requestId: string): () => Promise<RequestState> {
  const { connection, path } = session;
  let commit: Commit | undefined;
  return async () => {
    const request = await connection.call<BuildRequest>('GET', `${path}/build_requests/${requestId}`);
    const commitId = request.commit_id_str;
    if (commitId === '') return { request, commit: undefined, builds: [] };
    commit ??= await connection.call<Commit>('GET', `${path}/commits/${commitId}`);
    return { request, commit, builds: await listBuilds(session, requestId) };
  };
}

/** The state after an event. The event may be older than the records that were read last. */
export function applyEvent(state: RequestState, event: ProjectEvent): RequestState | undefined {
  const { build, build_request: request } = event;
  if (request && request.id_str === state.request.id_str) {
    if (!isFinishedRequest(request.build_state)) return state;
    return { ...state, request };
  }
  if (!build || build.build_request_id_str !== state.request.id_str) return state;
  const known = state.builds.find(one => one.suite_id_str === build.suite_id_str);
  if (!known || BigInt(known.id_str) < BigInt(build.id_str)) return undefined;
  if (known.id_str !== build.id_str || isOlder(event, build, known)) return state;
  // Events have the record alone.
  const { suite, estimated_seconds: estimated, waiting } = known;
  const next = {
    ...build,
    suite,
    ...(estimated !== undefined && { estimated_seconds: estimated }),
    ...(waiting && build.build_state === 'enqueued' && { waiting }),
  };
  return { ...state, builds: state.builds.map(one => (one === known ? next : one)) };
}

/** A build ends once. It may be queued again while it runs, but not before it has started. */
function isOlder(event: ProjectEvent, build: Build, known: Build): boolean {
  if (isFinishedBuild(known.build_state)) return true;
  if (known.build_state !== 'running' || build.build_state !== 'enqueued') return false;
  return Date.parse(event.created_at) <= Date.parse(known.started_at ?? '');
}

const isFinishedDeploy = ({ state }: Deploy) => !UNFINISHED_DEPLOYS.includes(state);

export const followDeploy = (
  session: ProjectSession,
  deployId: string,
  retry: Retry,
  options: FollowOptions<Deploy>,
): Promise<Deploy> =>
  follow(
    session,
    {
      read: () => session.connection.call<Deploy>('GET', `${session.path}/deploys/${deployId}`),
      apply: (known, { deploy }) =>
        deploy?.id_str === deployId && !isFinishedDeploy(known) ? deploy : known,
      isFinished: isFinishedDeploy,
      isVague: () => false,
    },
    retry,
    options,
  );

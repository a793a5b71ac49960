// Finds the build request and the build that a command is about: by id, by the address of a page, or the newest of this
// branch. Of several suites it chooses the one that a developer wants to see first.

import { type Command, type Invocation, UsageError } from '../command/command.ts';
import { isFinishedBuild, isFinishedRequest, isRerunCandidate } from '../domain/build.ts';
import { currentBranch } from './checkout.ts';
import { type Connection, ServerError } from './connection.ts';
import { followEvents } from './event-stream.ts';
import { refused } from './exit-status.ts';
import { chooseHost } from './hosts.ts';
import { plain, stateText } from './output.ts';
import type { Build, DetailedRequest, SuiteBuild } from './records.ts';
import { type ProjectSession, projectCommand, take } from './session.ts';

export const REQUEST_LINES = [
  "  --branch NAME         the newest build request of this branch [this checkout's]",
  '  --local               your newest local run',
];
const CHOICE_LINES = ['  --suite NAME          this suite only', ...REQUEST_LINES];

/** A command that works on a build or a build request. The first positional may also be the address of a page. */
export function buildCommand(command: Parameters<typeof projectCommand>[0]): Command {
  const help = command.help as readonly string[];
  /** A command may explain a flag in its own words. */
  const flagIn = (line: string) => /^ {2}(--[a-z]+) /.exec(line)?.[1];
  const made = projectCommand({
    ...command,
    flags: { ...command.flags, suite: 'value', branch: 'value', local: 'flag' },
    help: [...help, ...CHOICE_LINES.filter(line => !help.some(one => flagIn(one) === flagIn(line)))],
  });
  return { ...made, run: invocation => made.run(resolveAddress(invocation)) };
}

/** Replaces the address of a page by the id in it, and by the server and the project that it names. */
export function resolveAddress(invocation: Invocation): Invocation {
  const [first = '', ...rest] = invocation.positionals;
  if (!/^https?:\/\//i.test(first)) return invocation;
  const { origin, pathname } = URL.canParse(first) ? new URL(first) : { origin: '', pathname: '' };
  const [, projectId, id] =
    /^\/(?:ui\/)?projects\/(\d+)\/(?:builds|commits|build_requests)\/(\d+)(?:\/|$)/.exec(pathname) ?? [];
  if (projectId === undefined || id === undefined)
    throw new UsageError(`${plain(first)} is not the address of a build or a commit`);
  const flags = new Map(invocation.flags);
  const { ASSAY_URL, ASSAY_TOKEN } = invocation.environment;
  // Credentials of one server never go to another one because of an address.
  if (!flags.has('--host') && !ASSAY_URL && !ASSAY_TOKEN) flags.set('--host', origin);
  else if (chooseHost(invocation).url !== origin)
    throw new UsageError(
      `${plain(first)} is on another server than ${chooseHost(invocation).url}: name its server with --host`,
    );
  flags.set('--project', projectId);
  return { ...invocation, flags, positionals: [id, ...rest] };
}

/** What a command is about. */
export type Target = {
  request: DetailedRequest;
  /** The build, if an id named one and not a request. */
  build: SuiteBuild | undefined;
  /** The newest build of each suite, in the order in which they were queued. */
  builds: SuiteBuild[];
};

/** The build or the request with this id; without one, the newest request of the branch, or the user's newest local run. */
export async function findTarget(session: ProjectSession, invocation: Invocation): Promise<Target> {
  const [given] = invocation.positionals;
  if (given === undefined) {
    const request = invocation.flags.has('--local')
      ? await findLocalRun(session, invocation)
      : await findNewestRequest(session, await chooseBranch(invocation));
    return { request, build: undefined, builds: await listBuilds(session, request.id_str) };
  }
  // One after the other: a second connection costs more than a second call.
  const build = await findNamedBuild(session, invocation);
  const request = build ? undefined : await findRequest(session, given);
  const requestId = build?.build_request_id_str ?? request?.id_str ?? (await findOfCommit(session, given));
  if (requestId === undefined)
    throw refused(`the project ${plain(session.project.name)} has no build or build request ${given}`);
  const found = request ?? (await findRequest(session, requestId));
  const all = await listAllBuilds(session, requestId);
  if (!found) throw refused(`the build request ${requestId} was deleted`);
  return { request: found, build: all.find(({ id_str: id }) => id === given), builds: newestOfEach(all) };
}

/** The build with the id that was given. Undefined if there is no id, or if it is not that of a build. */
export async function findNamedBuild(
  session: ProjectSession,
  { positionals: [given] }: Invocation,
): Promise<Build | undefined> {
  if (given === undefined) return undefined;
  if (!/^\d{1,20}$/.test(given))
    throw new UsageError(
      `${JSON.stringify(given)} is neither an ID nor the address of a page: "assay builds" shows IDs, --branch chooses a branch`,
    );
  return find<Build>(session, `/builds/${given}`);
}

/** The branch that --branch names or that is checked out. Undefined, all branches, for a project of another checkout. */
export const chooseBranch = async ({ flags }: Invocation): Promise<string | undefined> =>
  flags.get('--branch') ?? (flags.has('--project') ? undefined : await currentBranch());

export async function findNewestRequest(
  session: ProjectSession,
  branch: string | undefined,
): Promise<DetailedRequest> {
  const [request] = await listRequests(session, { branch, limit: 1 });
  if (request) return request;
  const name = plain(session.project.name);
  throw refused(
    branch === undefined
      ? `the project ${name} has no build request yet: "assay run" starts one`
      : `the project ${name} has no build request for the branch ${plain(branch)}: "assay run" starts one, "assay builds" lists those of other branches`,
  );
}

/** Others cannot be meant: everybody sees the local runs of all. */
async function findLocalRun(session: ProjectSession, { flags }: Invocation): Promise<DetailedRequest> {
  if (flags.has('--branch')) throw new UsageError('local runs belong to no branch: without --branch');
  const { connection, path, project } = session;
  const { email } = await connection.call<{ email: string }>('GET', '/whoami');
  const query = { local: 'true', details: 'true', limit: '50' };
  for await (const request of connection.list<DetailedRequest>(`${path}/build_requests`, { query }))
    if (request.created_by === email) return request;
  throw refused(
    `you have no local run in the project ${plain(project.name)}: "assay run --local" starts one`,
  );
}

/** The newest requests, newest first. */
export function listRequests(
  { connection, path }: ProjectSession,
  {
    limit,
    ...filter
  }: { branch?: string | undefined; state?: string | undefined; local?: string | undefined; limit: number },
): Promise<DetailedRequest[]> {
  const query = { ...filter, limit: String(limit), details: 'true' };
  return take(connection.list<DetailedRequest>(`${path}/build_requests`, { query }), limit);
}

export const findRequest = (session: ProjectSession, id: string): Promise<DetailedRequest | undefined> =>
  find<DetailedRequest>(session, `/build_requests/${id}`, { details: 'true' });

/** The newest build of each suite of a request, in the order in which they were queued. */
export const listBuilds = async (session: ProjectSession, requestId: string): Promise<SuiteBuild[]> =>
  newestOfEach(await listAllBuilds(session, requestId));

/** Newest first, with those that were rerun. */
async function listAllBuilds({ connection, path }: ProjectSession, requestId: string): Promise<SuiteBuild[]> {
  const builds = connection.list<SuiteBuild>(`${path}/build_requests/${requestId}/builds`, {
    query: { limit: '1000' },
  });
  return take(builds, Number.POSITIVE_INFINITY);
}

function newestOfEach(builds: readonly SuiteBuild[]): SuiteBuild[] {
  const bySuite = new Map<string, SuiteBuild>();
  for (const build of builds) if (!bySuite.has(build.suite_id_str)) bySuite.set(build.suite_id_str, build);
  return [...bySuite.values()].reverse();
}

/** Undefined if there is no such record. */
async function find<T>(
  { connection, path }: { connection: Connection; path: string },
  below: string,
  query?: Record<string, string>,
): Promise<T | undefined> {
  try {
    return await connection.call<T>('GET', `${path}${below}`, { query });
  } catch (error) {
    if (error instanceof ServerError && error.status === 404) return undefined;
    throw error;
  }
}

/** The newest request of the commit with this id: the address of a commit's page has it. */
async function findOfCommit(session: ProjectSession, id: string): Promise<string | undefined> {
  const [build] = (await find<Build[]>(session, `/commits/${id}/builds`, { limit: '1' })) ?? [];
  return build?.build_request_id_str;
}

const byEnd = (a: SuiteBuild, b: SuiteBuild) =>
  Date.parse(a.finished_at ?? a.created_at) - Date.parse(b.finished_at ?? b.created_at);

/** The builds that did not pass, in the order in which they ended. */
export const failingBuilds = (builds: readonly SuiteBuild[]): SuiteBuild[] =>
  builds.filter(({ build_state: state }) => isRerunCandidate(state)).sort(byEnd);

/** The builds of the suite that --suite names, or all. */
export function ofSuite(builds: readonly SuiteBuild[], suite: string | undefined): SuiteBuild[] {
  if (suite === undefined) return [...builds];
  const wanted = suite.trim().toLowerCase();
  const found = builds.filter(build => build.suite.trim().toLowerCase() === wanted);
  if (found.length > 0) return found;
  throw refused(
    `the build request has no suite ${JSON.stringify(plain(suite))}. It has ${namesOf(builds) || 'none'}`,
  );
}

const namesOf = (builds: readonly SuiteBuild[]) => builds.map(build => plain(build.suite)).join(', ');

/** The build that was named; or the one that failed first, or that runs, or the only one. */
export function chooseBuild({ build, builds, request }: Target, suite: string | undefined): SuiteBuild {
  if (build) return build;
  const among = ofSuite(builds, suite);
  const chosen =
    failingBuilds(among)[0] ??
    among.find(({ build_state: state }) => state === 'running') ??
    among.find(({ build_state: state }) => !isFinishedBuild(state)) ??
    (among.length === 1 ? among[0] : undefined);
  if (chosen) return chosen;
  if (among.length === 0) throw refused(explainNoBuilds(request));
  throw new UsageError(
    `choose a suite with --suite NAME, or a build by its ID:\n${among.map(one => `  ${one.id_str}  ${plain(one.suite)}  ${stateText(one.build_state)}`).join('\n')}`,
  );
}

/** Why a request has no builds. */
export function explainNoBuilds({ id_str: id, build_state: state, error }: DetailedRequest): string {
  const reason = error === undefined ? '' : `: ${plain(error)}`;
  if (!isFinishedRequest(state))
    return `the build request ${id} has no builds yet: it is ${stateText(state)}`;
  return state === 'skipped'
    ? `the build request ${id} was skipped: no suite runs for it${reason}`
    : `the build request ${id} has no builds: it is ${stateText(state)}${reason}`;
}

/** Waits until the request has builds, or ends without any. */
export async function untilBuilds(
  session: ProjectSession,
  target: Target,
  signal?: AbortSignal,
): Promise<Target> {
  if (target.builds.length > 0 || isFinishedRequest(target.request.build_state)) return target;
  for await (const _ of followEvents(session.connection, `${session.path}/firehose`, { signal })) {
    const request = (await findRequest(session, target.request.id_str)) ?? target.request;
    const builds = await listBuilds(session, request.id_str);
    if (builds.length > 0 || isFinishedRequest(request.build_state)) return { ...target, request, builds };
  }
  return target;
}

/** The address of the page that shows a build, or the builds of a request. */
export function pageOf({ pageUrl }: ProjectSession, { request, build }: Target): string {
  if (build) return `${pageUrl}/builds/${build.id_str}`;
  return request.commit_id_str === '' ? pageUrl : `${pageUrl}/commits/${request.commit_id_str}`;
}

// Commit statuses: their contexts and descriptions, how each forge receives them, and how its answers are classified.
// store/statuses.ts derives them from rows, work/deliver-notifications.ts sends them.

import { createHash } from 'node:crypto';
import type { BuildRequestState, BuildState } from './build.ts';
import { addCounts, describeCounts, type TestCounts } from './result/test-result.ts';
import type { Classification, Response } from './webhook/delivery.ts';
import { isSuccess } from './webhook/delivery.ts';

export const forges = ['github', 'gitea', 'gitlab', 'bitbucket'] as const;
export type Forge = (typeof forges)[number];

/** Which contexts are reported: the whole request, its suites, or both. */
export const contextChoices = ['both', 'rollup', 'suites'] as const;
export type ContextChoice = (typeof contextChoices)[number];

export type StatusOptions = { forge: Forge; repository: string; contexts: ContextChoice };

export const statusStates = [
  'pending',
  'running',
  'passed',
  'failed',
  'errored',
  'timed_out',
  'canceled',
  'skipped',
] as const;
export type StatusState = (typeof statusStates)[number];

/** What a delivery reports. The rest is read from the rows when it is sent. Without a build it is about the request. */
export type StatusReport = {
  context: string;
  commit: string;
  state: StatusState;
  requestId: string;
  buildId?: string;
};

/** A status as it is sent. */
export type CommitStatus = {
  context: string;
  commit: string;
  state: StatusState;
  description: string;
  url: string;
  /** `refs/heads/…` or `refs/tags/…`; undefined if the request names neither. */
  ref: string | undefined;
  /** The build or the request. */
  number: string;
  durationMs: number | undefined;
};

/** The context of a whole request. Unlike the suites of a project, it is the same for every commit, and always ends. */
export const ROLLUP_CONTEXT = 'assay';

const MAX_CONTEXT = 255;

export function suiteContext(suiteName: string): string {
  const context = `${ROLLUP_CONTEXT}/${suiteName}`;
  return context.length <= MAX_CONTEXT ? context : withDigest(cut(context, MAX_CONTEXT - 9), context);
}

const withDigest = (short: string, whole: string) =>
  `${short}~${createHash('sha256').update(whole).digest('hex').slice(0, 8)}`;

/** A number for a context of a commit. Its deliveries form a chain of the outbox, whichever builds they are about. */
export function contextKey({ context, commit }: Pick<StatusReport, 'context' | 'commit'>): bigint {
  const digest = createHash('sha256').update(`${commit}\0${context}`).digest();
  return digest.readBigUInt64BE() >> 1n;
}

/** Whether a state is worth reporting after `last`. A context that runs does not go back to pending. */
export function isNewState(last: StatusState | undefined, next: StatusState): boolean {
  return next !== last && !(next === 'pending' && last === 'running');
}

type StateNames = Record<StatusState, string>;

const githubStates: StateNames = {
  pending: 'pending',
  running: 'pending',
  passed: 'success',
  failed: 'failure',
  errored: 'error',
  timed_out: 'error',
  canceled: 'error',
  skipped: 'success',
};
const gitlabStates: StateNames = {
  pending: 'pending',
  running: 'running',
  passed: 'success',
  failed: 'failed',
  errored: 'failed',
  timed_out: 'failed',
  canceled: 'canceled',
  skipped: 'success',
};
const bitbucketStates: StateNames = {
  pending: 'INPROGRESS',
  running: 'INPROGRESS',
  passed: 'SUCCESSFUL',
  failed: 'FAILED',
  errored: 'FAILED',
  timed_out: 'FAILED',
  canceled: 'CANCELLED',
  skipped: 'SUCCESSFUL',
};

/** GitHub refuses characters beyond the basic plane, such as most emoji. Gitea has the same fields, and accepts them. */
const fieldsWith = (status: CommitStatus, plain: (text: string) => string) => ({
  state: githubStates[status.state],
  target_url: status.url,
  description: plain(status.description),
  context:
    plain(status.context) === status.context
      ? status.context
      : withDigest(plain(status.context), status.context),
});
const withoutEmoji = (text: string) => text.replaceAll(/[\u{10000}-\u{10ffff}]\ufe0f?\u200d?/gu, '');

const encodePath = (path: string) => path.split('/').map(encodeURIComponent).join('/');
const OWNER_AND_NAME = /^[^/]+\/[^/]+$/;

const forgeTable: Record<
  Forge,
  {
    label: string;
    apiPath: string;
    repository: RegExp;
    path(repository: string, commit: string): string;
    headers(token: string): Record<string, string>;
    body(status: CommitStatus): Record<string, unknown>;
    /** The state that an older version accepts instead of one that it answers 400 to. */
    olderState?: { [state: string]: string };
  }
> = {
  github: {
    label: 'GitHub',
    apiPath: '/api/v3',
    repository: OWNER_AND_NAME,
    path: (repository, commit) => `/repos/${encodePath(repository)}/statuses/${commit}`,
    headers: token => ({ authorization: `Bearer ${token}`, accept: 'application/vnd.github+json' }),
    body: status => fieldsWith(status, withoutEmoji),
  },
  gitea: {
    label: 'Gitea or Forgejo',
    apiPath: '/api/v1',
    repository: OWNER_AND_NAME,
    path: (repository, commit) => `/repos/${encodePath(repository)}/statuses/${commit}`,
    headers: token => ({ authorization: `token ${token}` }),
    body: status => fieldsWith(status, text => text),
  },
  gitlab: {
    label: 'GitLab',
    apiPath: '/api/v4',
    // A number, or a path with groups.
    repository: /^(?:\d+|[^/]+(?:\/[^/]+)+)$/,
    path: (repository, commit) => `/projects/${encodeURIComponent(repository)}/statuses/${commit}`,
    headers: token => ({ 'private-token': token }),
    body: status => ({
      state: gitlabStates[status.state],
      name: status.context,
      target_url: status.url,
      description: status.description,
      ...(status.ref && { ref: status.ref.replace(/^refs\/(?:heads|tags)\//, '') }),
    }),
  },
  bitbucket: {
    label: 'Bitbucket Data Center',
    apiPath: '/rest/api/latest',
    repository: OWNER_AND_NAME,
    path: (repository, commit) => {
      const [key = '', slug = ''] = repository.split('/').map(encodeURIComponent);
      return `/projects/${key}/repos/${slug}/commits/${commit}/builds`;
    },
    headers: token => ({ authorization: `Bearer ${token}` }),
    body: status => ({
      key: status.context,
      name: status.context,
      state: bitbucketStates[status.state],
      url: status.url,
      description: status.description,
      buildNumber: status.number,
      ...(status.ref && { ref: status.ref }),
      ...(status.durationMs !== undefined && { duration: status.durationMs }),
    }),
    olderState: { CANCELLED: 'FAILED' },
  },
};

export const forgeLabel = (forge: Forge) => forgeTable[forge].label;

/** The API of the forge that has the repository, and the repository's name there, as far as its URL shows them. */
export function defaultForgeOptions(
  forge: Forge,
  repositoryUrl: string,
): { url: string; repository: string } {
  const [, host = '', path = ''] = /@([^:]+):\/*(.+)\.git$/.exec(repositoryUrl) ?? [];
  const isGithubCom = forge === 'github' && /^(?:ssh\.)?github\.com$/i.test(host);
  return {
    url: isGithubCom ? 'https://api.github.com' : `https://${host}${forgeTable[forge].apiPath}`,
    repository: path,
  };
}

export function checkForgeRepository(forge: Forge, repository: string): 'invalid_format' | undefined {
  const isPath = repository.split('/').every(segment => segment !== '.' && segment !== '..');
  return isPath && forgeTable[forge].repository.test(repository) ? undefined : 'invalid_format';
}

export type ForgeRequest = { url: string; headers: Record<string, string>; body: string };

/** The requests that report a status: the first one, and another one to send if the forge answers 400 to it. */
export function forgeRequests(
  { forge, repository }: StatusOptions,
  target: { url: string; token: string },
  status: CommitStatus,
): ForgeRequest[] {
  const { path, headers, body, olderState } = forgeTable[forge];
  const fields = body(status);
  const older = olderState?.[String(fields.state)];
  return [fields, ...(older === undefined ? [] : [{ ...fields, state: older }])].map(one => ({
    url: target.url.replace(/\/+$/, '') + path(repository, status.commit),
    headers: headers(target.token),
    body: JSON.stringify(one),
  }));
}

/** A commit may reach the forge later than Assay, for example through a mirror: this many retries take ten minutes. */
const NOT_FOUND_RETRIES = 4;

/** `attempts` counts the earlier attempts. */
export function classifyForgeResponse(response: Response, attempts: number): Classification {
  const { status, excerpt, retryAfterMs } = response;
  const failed = (error: string): Classification => ({ outcome: 'failed', error });
  const retry = (error?: string): Classification => ({
    outcome: 'retry',
    ...(error && { error }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
  if (isSuccess(status)) return { outcome: 'delivered' };
  if (status === undefined || status >= 500 || status === 408) return retry();
  // GitLab refuses a state that the context already has. A retry after a lost answer gets this.
  if (status === 400 && excerpt.includes('Cannot transition status')) return { outcome: 'delivered' };
  if (status === 429) return retry('the forge responded with 429: too many requests');
  // GitHub answers 403 when a limit is exceeded, and says when to retry.
  if (status === 403 && retryAfterMs !== undefined)
    return retry('the forge responded with 403: too many requests');
  if (status === 401)
    return {
      ...failed('the forge responded with 401'),
      disableBecause: 'the forge responded with 401: it does not accept the token',
    };
  if (status === 403)
    return {
      ...failed('the forge responded with 403'),
      disableBecause: 'the forge responded with 403: the token may not set statuses of this repository',
    };
  if (status === 404) {
    const error =
      'the forge responded with 404: the repository or the commit does not exist there, or the token cannot see it';
    return attempts < NOT_FOUND_RETRIES ? retry(error) : failed(error);
  }
  if (status < 400) return failed(`the forge responded with ${status}: redirects are not followed`);
  return failed(`the forge responded with ${status}`);
}

const MAX_DESCRIPTION = 140;

/** At most `length` UTF-16 units, never with half of an emoji or a letter without its accent. */
function cut(text: string, length: number): string {
  if (text.length <= length) return text;
  // Not kept: few texts are so long, and making one takes 20 ms at the start.
  const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' });
  let kept = '';
  for (const { segment } of graphemes.segment(text.slice(0, length + 100))) {
    if (kept.length + segment.length > length - 1) break;
    kept += segment;
  }
  return `${kept.trimEnd()}…`;
}

/** One line that every forge accepts. */
export function descriptionOf(text: string): string {
  return cut(text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim(), MAX_DESCRIPTION);
}

export type ReportedBuild = {
  suiteName: string;
  state: BuildState;
  exitCode: number | null;
  error: string | null;
  durationMs: number | undefined;
  /** Null if it has no test report. */
  tests: TestCounts | null;
};

export function describeBuild({ state, exitCode, error, durationMs, tests }: ReportedBuild): string {
  const took = durationMs === undefined ? '' : ` after ${durationText(durationMs)}`;
  const after = `${took}${tests ? `: ${describeCounts(tests)}` : ''}`;
  switch (state) {
    case 'enqueued':
      return 'Queued';
    case 'running':
      return 'Running';
    case 'passed':
      return `Passed${after}`;
    case 'failed':
      return `Failed${exitCode === null ? '' : ` with exit code ${exitCode}`}${after}`;
    case 'timed_out':
      return `Timed out${after}`;
    case 'canceled':
      return `Canceled${after}`;
    default:
      return error ? `Errored: ${error}` : `Errored${after}`;
  }
}

/** `builds` are the newest of each suite. */
export function describeRequest(
  request: { state: BuildRequestState; error: string | null; durationMs: number | undefined },
  builds: readonly Pick<ReportedBuild, 'suiteName' | 'state' | 'tests'>[],
): string {
  const count = (suites: number) => (suites === 1 ? '1 suite' : `${suites} suites`);
  switch (request.state) {
    case 'enqueued':
    case 'fetching':
      return 'Fetching the commit';
    case 'building':
      return builds.some(({ state }) => state !== 'enqueued')
        ? `Running ${count(builds.length)}`
        : `${count(builds.length)} queued`;
    case 'skipped':
      return request.error ?? 'No suite runs for this commit';
    default:
  }
  if (builds.length === 0)
    return request.error ?? (request.state === 'canceled' ? 'Canceled' : 'The commit could not be fetched');
  const took = request.durationMs === undefined ? '' : `, ${durationText(request.durationMs)}`;
  const others = [
    ...Map.groupBy(
      builds.filter(({ state }) => state !== 'passed'),
      ({ state }) => state,
    ),
  ];
  if (others.length === 0) return `${count(builds.length)} passed${took}`;
  const passed = builds.filter(({ state }) => state === 'passed').length;
  const reasons = others
    .map(
      ([state, named]) => `${named.map(({ suiteName }) => suiteName).join(', ')} ${state.replace('_', ' ')}`,
    )
    .join('; ');
  const tests = addCounts(builds.map(build => build.tests));
  const failures = tests && tests.failed + tests.errored > 0 ? ` ${describeCounts(tests)};` : '';
  return `${passed} of ${count(builds.length)} passed;${failures} ${reasons}${took}`;
}

function durationText(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} m ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}

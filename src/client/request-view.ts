// How a build request, its builds and a deploy are shown: their rows, notes and addresses, and which changes are worth a line.

import { isFinishedRequest, isRerunCandidate } from '../domain/build.ts';
import { UNFINISHED_DEPLOYS } from '../domain/deploy.ts';
import { describeCounts } from '../domain/result/test-result.ts';
import type { RequestState } from './follow-request.ts';
import type { View, ViewRow } from './live-view.ts';
import type { Commit, Deploy, SuiteBuild } from './records.ts';
import type { ProjectSession } from './session.ts';

/** A change of state that is worth a line. */
export type Change = {
  row: ViewRow;
  /** What --json prints. */
  record: unknown;
  /** Where the log is, if it should be printed. */
  logPath: string | undefined;
  /** The command that prints all of the log. */
  logCommand: string;
};

/** Where the build request is on the pages of the project. */
export const requestUrl = (
  { pageUrl }: ProjectSession,
  { commit_id_str: commitId }: { commit_id_str: string },
) => (commitId === '' ? `${pageUrl}/build_requests` : `${pageUrl}/commits/${commitId}`);

export const commitTitle = ({ ref, message }: Pick<Commit, 'ref' | 'message'>) =>
  `${ref.slice(0, 10)} ${message.split('\n', 1)[0]}`;

const REF_IS_HASH = /^[0-9a-f]{7,40}$/;

export function viewOf(session: ProjectSession, { request, commit, builds }: RequestState): View {
  const ref = REF_IS_HASH.test(request.commit_ref) && commit ? '' : `${request.commit_ref} `;
  const ends = builds.map(build => build.finished_at ?? '').toSorted();
  return {
    url: requestUrl(session, request),
    title: `${ref}${commit ? commitTitle(commit) : ''}`,
    state: request.build_state,
    startedAt: request.created_at,
    finishedAt: isFinishedRequest(request.build_state) ? (ends.at(-1) ?? request.created_at) : null,
    note: requestNote(request),
    rows: builds.map(rowOf),
  };
}

const requestNote = ({ error = '', build_state: state }: RequestState['request']) =>
  error === '' && state === 'skipped' ? 'the rules of no suite match' : error;

const rowOf = (build: SuiteBuild): ViewRow => ({
  id: build.id_str,
  name: build.suite,
  state: build.build_state,
  startedAt: build.started_at,
  finishedAt: build.finished_at,
  estimatedSeconds: build.estimated_seconds,
  note: buildNote(build),
});

function buildNote({ build_state: state, waiting, exit_code: exitCode, error, tests }: SuiteBuild): string {
  if (state === 'enqueued' && waiting)
    return waiting.position > 1 ? `position ${waiting.position}: ${waiting.reason}` : waiting.reason;
  if (error !== undefined) return error;
  const { new_failures: newFailures = 0, ...counts } = tests ?? {};
  return [
    ...(tests ? [describeCounts({ ...(counts as typeof tests), newFailures })] : []),
    ...(state === 'failed' && exitCode !== null ? [`exit status ${exitCode}`] : []),
  ].join(', ');
}

/** The request itself is reported when it has ended, after its builds. */
export function changesOf(session: ProjectSession, { request, builds }: RequestState): Change[] {
  const ofBuilds = builds.map(build => ({
    row: rowOf(build),
    record: { suite: build.suite, build },
    logPath: isRerunCandidate(build.build_state) ? `${session.path}/builds/${build.id_str}/log` : undefined,
    logCommand: `assay logs ${build.id_str}`,
  }));
  return [
    ...ofBuilds,
    {
      row: {
        id: 'request',
        name: request.commit_ref,
        state: request.build_state,
        startedAt: null,
        finishedAt: null,
        estimatedSeconds: undefined,
        note: requestNote(request),
      },
      record: { url: requestUrl(session, request), build_request: request },
      logPath: undefined,
      logCommand: '',
    },
  ];
}

export type DeployTitle = { strategy: string; title: string };

const deployRow = (deploy: Deploy, { strategy }: DeployTitle): ViewRow => ({
  id: deploy.id_str,
  name: strategy,
  state: deploy.state,
  startedAt: deploy.deploy_started_at,
  finishedAt: deploy.deploy_finished_at,
  estimatedSeconds: undefined,
  note: deploy.error ?? '',
});

export function deployView(session: ProjectSession, deploy: Deploy, about: DeployTitle): View {
  const isFinished = !UNFINISHED_DEPLOYS.includes(deploy.state);
  const row = deployRow(deploy, about);
  return {
    url: `${session.pageUrl}/deploys/${deploy.id_str}`,
    title: about.title,
    state: deploy.state,
    startedAt: row.startedAt,
    finishedAt: isFinished ? row.finishedAt : null,
    note: row.note,
    rows: [],
  };
}

export const deployChange = (session: ProjectSession, deploy: Deploy, about: DeployTitle): Change => ({
  row: deployRow(deploy, about),
  record: { strategy: about.strategy, deploy },
  logPath: deploy.state === 'failed' ? `${session.path}/deploys/${deploy.id_str}/log` : undefined,
  logCommand: '',
});

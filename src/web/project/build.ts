// The page of a build: its state and the reason for it, its actions, and its live log.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import { builds } from '../../api/builds.ts';
import { followBuild } from '../../api/firehose.ts';
import { isFinishedBuild, isRerunCandidate } from '../../domain/build.ts';
import { Refusal } from '../../domain/refusal.ts';
import {
  type Build,
  type BuildRequest,
  type Commit,
  findBuildRequest,
  findCommit,
  listBuildsOfRequest,
} from '../../store/builds.ts';
import { buildLogPath } from '../../store/data/paths.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { formatDuration, pageHead, propertyList, relativeTime } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { action, form, page, type Route } from '../frame/route.ts';
import { stateBadge, stateMark } from '../frame/state.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import {
  logScripts,
  logStyles,
  logView,
  respondLogStream,
  respondLogTimes,
  respondRawLog,
} from './log-view.ts';
import { renderStartedBy } from './started-by.ts';

type BuildVisit = Visit<'project' | 'build'>;

const BUILD = '/projects/:project_id/builds/:build_id';
const SIBLINGS_LISTED = 12;

export const buildPages: Route[] = [
  page(`/ui${BUILD}`, showBuild),
  page(`/ui${BUILD}/log`, visit => respondRawLog(visit, builds.log, fileName(visit.found.build))),
  page(`/ui${BUILD}/stream`, visit => {
    const { services, found } = visit;
    return respondLogStream(visit, followBuild(services, found.project.id, found.build.id), caller =>
      findVisibleProject(services.db, caller.accountId, found.project.id),
    );
  }),
  page(`/ui${BUILD}/times`, visit =>
    respondLogTimes(visit, buildLogPath(visit.services.dataDirectory, visit.found.build.id)),
  ),
  action(`/ui${BUILD}/cancel`, builds.cancel, {
    showForm: showBuild,
    done: ({ found }) => ({ to: buildHref(found.build) }),
  }),
  action(`/ui${BUILD}/rerun`, builds.rerun, {
    showForm: showBuild,
    done: ({ found }, again) => ({
      to: `/ui/projects/${found.project.id}/builds/${again.id_str}`,
      message: 'Suite started again. This is the new build.',
    }),
  }),
  form('/ui/projects/:project_id/build_requests/:build_request_id/rerun-failed', rerunFailed),
];

const buildHref = (build: Pick<Build, 'projectId' | 'id'>) =>
  `/ui/projects/${build.projectId}/builds/${build.id}`;
const fileName = (build: Build) => `build-${build.id}.log`;

/** The newest build of each suite of a request, which alone decides its state; in the order of their ids. */
function newestBuilds(builds: readonly Build[]): Build[] {
  const newest = new Map<bigint, Build>();
  for (const build of builds.toSorted((a, b) => Number(a.id - b.id))) newest.set(build.suiteId, build);
  return [...newest.values()];
}

/** Reruns each build and returns the ids of the new ones. Skips builds of deleted suites. */
export async function rerunBuilds(
  visit: Visit<'project'>,
  chosen: readonly Pick<Build, 'id'>[],
): Promise<string[]> {
  const startedIds: string[] = [];
  for (const { id } of chosen) {
    try {
      const { id_str: again } = await perform(visit, builds.rerun, { params: { build_id: id.toString() } });
      startedIds.push(again);
      // There may be a thousand builds: let other requests run in between.
      await nextTurn();
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
    }
  }
  return startedIds;
}

async function rerunFailed(visit: Visit<'project' | 'buildRequest'>): Promise<Response> {
  const { services, found } = visit;
  const bad = newestBuilds(listBuildsOfRequest(services.db, found.buildRequest.id)).filter(build =>
    isRerunCandidate(build.buildState),
  );
  const startedIds = await rerunBuilds(visit, bad);
  const project = `/ui/projects/${found.project.id}`;
  const [only] = startedIds;
  if (only && startedIds.length === 1)
    return respondRedirect(`${project}/builds/${only}`, { message: 'Suite started again.' });
  return respondRedirect(`${project}/commits/${found.buildRequest.commitId ?? ''}`, {
    message: only
      ? `${startedIds.length} suites started again.`
      : 'No suite of this build request has failed.',
  });
}

async function showBuild(visit: BuildVisit): Promise<View> {
  const { services, found, url } = visit;
  const { project, build } = found;
  const request = findBuildRequest(services.db, project.id, build.buildRequestId);
  const commit = findCommit(services.db, project.id, build.commitId);
  const newest = newestBuilds(listBuildsOfRequest(services.db, build.buildRequestId));
  return {
    title: `${build.suiteName} · ${project.name}`,
    section: 'projects',
    state: build.buildState,
    scripts: logScripts,
    styles: logStyles,
    body: html`<div id="build-head" data-live>${buildHead(visit, request, commit, newest)}</div>
${
  // log.js requests only the head when the state changes.
  url.searchParams.get('part') === 'head'
    ? ''
    : await logView({
        base: buildHref(build),
        path: buildLogPath(services.dataDirectory, build.id),
        state: build.buildState,
        isLive: !isFinishedBuild(build.buildState),
        fileName: fileName(build),
        empty: isFinishedBuild(build.buildState)
          ? 'The build printed nothing.'
          : 'The log appears here as soon as the build prints something.',
      })
}`,
  };
}

function buildHead(
  visit: BuildVisit,
  request: BuildRequest | undefined,
  commit: Commit | undefined,
  newest: readonly Build[],
): Html {
  const { project, build } = visit.found;
  const later = newest.find(one => one.suiteId === build.suiteId && one.id !== build.id);
  return html`${pageHead(build.suiteName, {
    parent: { href: `/ui/projects/${project.id}`, label: project.name },
    actions: buildButtons(visit, newest),
    subtitle: html`${stateBadge(build.buildState)} ${durationOf(build, visit.services.db.now())}`,
  })}
${explainState(visit)}
${later ? html`<p class="flash">This suite has run again since. <a href="${buildHref(later)}">Go to the newest build</a></p>` : ''}
${propertyList(buildProperties(visit, build, request, commit, visit.services.db.now()))}
${newest.length > 1 ? renderSiblings(build, newest) : ''}`;
}

/** The waiting time and the run time; log.js updates the run time of a running build. */
function durationOf({ createdAt, startedAt, finishedAt }: Build, now: number): Html | string {
  if (startedAt === null) return '';
  const waited =
    startedAt - createdAt >= 1000 ? ` after waiting ${formatDuration(startedAt - createdAt)}` : '';
  const took = formatDuration(Math.max(0, (finishedAt ?? now) - startedAt));
  return finishedAt === null
    ? html`<span>for <span class="number" data-running-ms="${now - startedAt}">${took}</span>${waited}</span>`
    : html`<span>in <span class="number">${took}</span>${waited}</span>`;
}

function buildButtons(visit: BuildVisit, newest: readonly Build[]): Html[] {
  const { build } = visit.found;
  const href = buildHref(build);
  if (!isFinishedBuild(build.buildState))
    return build.cancelBecause !== null
      ? []
      : [
          actionButton(formTo(visit, `${href}/cancel`), 'Cancel', {
            tone: 'danger',
            confirm: 'Cancel this build? Its log is kept.',
          }),
        ];
  const bad = newest.filter(one => isRerunCandidate(one.buildState));
  const isOnlyThis = bad.length === 1 && bad[0]?.id === build.id;
  const failed = `/ui/projects/${build.projectId}/build_requests/${build.buildRequestId}/rerun-failed`;
  return [
    ...(bad.length > 0 && !isOnlyThis ? [actionButton(formTo(visit, failed), 'Rerun failed')] : []),
    actionButton(formTo(visit, `${href}/rerun`), 'Rerun'),
  ];
}

/** Why the build waits, or ended as it did. */
function explainState({ services, found: { build } }: BuildVisit): Html | string {
  const notice = (tone: string, text: string) => html`<p class="flash ${tone}">${text}</p>`;
  switch (build.buildState) {
    case 'enqueued': {
      const waiting = services.waiting(build);
      if (!waiting) return notice('note', 'The build starts as soon as a slot is free.');
      return notice('note', `Number ${waiting.position} in the queue: ${waiting.reason}`);
    }
    case 'running':
      return build.cancelBecause !== null
        ? notice('note', `Canceled ${build.cancelBecause}. The container is being stopped.`)
        : '';
    case 'failed':
      return notice(
        'failed',
        build.exitCode === null
          ? 'The command killed the processes that ran it, so its exit status is unknown.'
          : `The command exited with ${build.exitCode}.`,
      );
    case 'errored':
      return notice(
        'failed',
        build.error ?? 'The server could not run this build. The end of the log says why.',
      );
    case 'timed_out':
      return notice('failed', 'The build exceeded its time limit. The end of the log shows the limit.');
    case 'canceled':
      return notice(
        'note',
        `Canceled ${build.startedAt === null ? 'before it started' : 'while it was running'}, ${build.cancelBecause}.`,
      );
    default:
      return '';
  }
}

function buildProperties(
  visit: Visit<'project'>,
  build: Build,
  request: BuildRequest | undefined,
  commit: Commit | undefined,
  now: number,
): [string, Html | string][] {
  const { project } = visit.found;
  const subject = commit?.message.split('\n', 1)[0] ?? '';
  return [
    [
      'Commit',
      html`<a href="/ui/projects/${project.id}/commits/${build.commitId}"><code>${build.commitRef.slice(0, 10)}</code> ${subject}</a>${commit ? html` <span class="quiet">by ${commit.authorName}</span>` : ''}`,
    ],
    [
      'Requested',
      request
        ? html`<code>${request.commitRef}</code> ${renderStartedBy(visit, request.id)}, ${relativeTime(request.createdAt, now)}`
        : '',
    ],
    [
      build.finishedAt !== null ? 'Finished' : build.startedAt !== null ? 'Started' : 'Enqueued',
      relativeTime(build.finishedAt ?? build.startedAt ?? build.createdAt, now),
    ],
  ];
}

/** Links to the other suites of the same request. If there are many, the passed ones are collapsed. */
function renderSiblings(build: Build, newest: readonly Build[]): Html {
  const isCurrent = (one: Build) => one.suiteId === build.suiteId;
  const isCollapsed = (one: Build) =>
    newest.length > SIBLINGS_LISTED && one.buildState === 'passed' && !isCurrent(one);
  const list = (some: readonly Build[]) =>
    html`<ul>${some.map(
      one =>
        html`<li><a href="${buildHref(one)}"${isCurrent(one) ? html` aria-current="page"` : ''}>${stateMark(one.buildState)} <span>${one.suiteName}</span></a></li>`,
    )}</ul>`;
  const collapsed = newest.filter(isCollapsed);
  return html`<nav class="siblings" aria-label="Suites of this build request">${list(newest.filter(one => !isCollapsed(one)))}
${collapsed.length > 0 ? html`<details id="passed-siblings"><summary class="siblings-more">${collapsed.length} more passed</summary>${list(collapsed)}</details>` : ''}</nav>`;
}

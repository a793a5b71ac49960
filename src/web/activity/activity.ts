// The start page: what runs, what waits and what ended in all projects that the visitor sees. The filters are in the URL.

import { html, raw } from 'hono/html';
import { type BuildRequestState, buildRequestMachine, isFinishedRequest } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { countOf } from '../../domain/text/count.ts';
import {
  type ActivityFilter,
  type ActivityPage,
  type ActivityRequest,
  describeRequests,
  findWaitingBuild,
  listRecent,
  listUnfinished,
  scopeOf,
} from '../../store/activity.ts';
import { estimateSeconds } from '../../store/estimates.ts';
import { listVisibleIds, listVisibleTopics } from '../../store/project-ranking.ts';
import {
  emptyState,
  FIRST_PAGE,
  formatDuration,
  hrefWith,
  linkButton,
  pageHead,
  relativeTime,
} from '../frame/components.ts';
import { respondRedirect } from '../frame/layout.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge, stateLabel, stateMark } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { subjectOf } from '../project/frame.ts';
import { renderRequested, triggerLabel } from '../project/started-by.ts';

const PATH = '/ui/activity';

export const activityPages: Route[] = [
  page('/ui', showStart),
  page(PATH, showActivity),
  page(`${PATH}/stream`, followActivity),
];

const RECENT_PER_PAGE = 30;
const UNFINISHED_SHOWN = 20;
/** The progress of running builds has no event. */
const PROGRESS_MS = 30_000;

const finishedStates = (Object.keys(buildRequestMachine) as BuildRequestState[]).filter(isFinishedRequest);
const states = ['running', 'waiting', ...finishedStates] as const;

/** With one project its page has everything; without any, the list of projects explains how to begin. */
function showStart({ services, caller }: Visit): Response {
  const [project, another] = listVisibleIds(services.db, caller, 2);
  if (another !== undefined) return respondRedirect(PATH);
  return respondRedirect(project === undefined ? '/ui/projects' : `/ui/projects/${project}`);
}

/** Reports everything that changes what the visitor sees of the projects. */
export function followActivity(visit: Visit): Response {
  return respondChanges(visit, {
    topics: listVisibleTopics(visit.services.db, visit.caller),
    maySee: () => true,
  });
}

function readFilter({ url, account }: Visit): ActivityFilter {
  const value = (name: string) => (url.searchParams.get(name) ?? '').trim() || undefined;
  return {
    mine: value('mine') === 'true',
    email: account.email,
    state: states.find(state => state === value('state')),
    branch: value('branch'),
    project: value('project'),
  };
}

async function showActivity(visit: Visit): Promise<View> {
  const { services, caller, url } = visit;
  const { db } = services;
  const filter = readFilter(visit);
  const before = parseId(url.searchParams.get('before') ?? '');
  const after = parseId(url.searchParams.get('after') ?? '');
  const scope = scopeOf(db, caller, filter);
  const isFirst = before === undefined && after === undefined;
  const isUnfinished = filter.state === 'running' || filter.state === 'waiting';
  const { running, waiting } =
    isFirst && (filter.state === undefined || isUnfinished)
      ? listUnfinished(db, scope)
      : { running: [], waiting: [] };
  const newer =
    after === undefined
      ? undefined
      : await listRecent(db, scope, { limit: RECENT_PER_PAGE, from: after, direction: 'newer' });
  const recent = isUnfinished
    ? undefined
    : newer?.hasNewer
      ? newer
      : await listRecent(db, scope, {
          limit: RECENT_PER_PAGE,
          from: after === undefined ? before : undefined,
          direction: 'older',
        });
  const shown = {
    running: filter.state === 'waiting' ? [] : running,
    waiting: filter.state === 'running' ? [] : waiting,
  };
  const isFiltered =
    filter.mine || [filter.state, filter.branch, filter.project].some(value => value !== undefined);
  const isEmpty = shown.running.length + shown.waiting.length + (recent?.ids.length ?? 0) === 0;
  return {
    title: 'Activity',
    section: 'activity',
    styles: ['activity.css'],
    scripts: ['project.js'],
    body: html`${renderChanges(visit, `${PATH}/stream`, `${PATH}${url.search}`)}${pageHead('Activity', {
      actions: linkButton('/ui/wall', 'Wall screen'),
    })}
${renderFilters(filter, isFiltered)}
<div id="activity" data-live>
${renderUnfinished(visit, 'Running', shown.running, renderRunning)}
${renderUnfinished(visit, 'Waiting', shown.waiting, renderWaiting, 'waiting')}
${recent ? renderRecent(visit, recent) : ''}
${isEmpty && !recent?.continueBefore ? renderEmpty(isFiltered) : ''}
</div>`,
  };
}

function renderFilters(filter: ActivityFilter, isFiltered: boolean): Html {
  const option = (value: string, label: string) =>
    html`<option value="${value}"${value === (filter.state ?? '') ? raw(' selected') : ''}>${label}</option>`;
  const field = (name: 'branch' | 'project', label: string, hint: string) =>
    html`<label>${label} <input name="${name}" type="search" value="${filter[name] ?? ''}" placeholder="${hint}" autocomplete="off" spellcheck="false" autocapitalize="off"></label>`;
  return html`<form class="activity-filters" method="get" action="${PATH}" role="search" aria-label="Filter activity">
${field('project', 'Project', 'Part of the name')}
${field('branch', 'Branch', 'Any')}
<label>State <select name="state">${option('', 'Any')}${states.map(state => option(state, stateLabel(state)))}</select></label>
<label class="check"><input name="mine" type="checkbox" value="true"${filter.mine ? raw(' checked') : ''}> Only mine</label>
<button class="button plain" type="submit">Filter</button>
${isFiltered ? html`<a href="${PATH}">Clear filters</a>` : ''}
</form>`;
}

const renderEmpty = (isFiltered: boolean) =>
  isFiltered
    ? emptyState({ title: 'Nothing matches', text: 'No build request matches these filters.' })
    : emptyState({
        title: 'No builds yet',
        text: 'Running, waiting and finished builds of all your projects appear here.',
        action: linkButton('/ui/projects', 'Projects', 'primary'),
      });

function renderUnfinished(
  visit: Visit,
  title: string,
  ids: readonly bigint[],
  renderProgress: (visit: Visit, row: ActivityRequest) => Html,
  state?: string,
): Html | string {
  if (ids.length === 0) return '';
  const id = `activity-${title.toLowerCase()}`;
  const rows = describeRequests(visit.services.db, ids.slice(0, UNFINISHED_SHOWN));
  return html`<section aria-labelledby="${id}" data-poll="${PROGRESS_MS}"><h2 id="${id}">${title} <span class="count">${ids.length}</span></h2>
<ul class="activity-list">${rows.map(row => renderRow(row, renderProgress(visit, row), visit.services.db.now(), state))}</ul>
${ids.length > rows.length ? html`<p class="quiet">Showing ${rows.length} of ${ids.length}.</p>` : ''}</section>`;
}

function renderRecent(visit: Visit, recent: ActivityPage): Html | string {
  const { db } = visit.services;
  const now = db.now();
  const { ids, hasOlder, hasNewer, continueBefore } = recent;
  const href = (name: 'before' | 'after', id: bigint | undefined) =>
    hrefWith(visit.url, { ...FIRST_PAGE, [name]: id?.toString() });
  const links = [
    ...(hasNewer ? [linkButton(href('after', ids[0]), 'Newer')] : []),
    ...(hasOlder && ids.length > 0 ? [linkButton(href('before', ids.at(-1)), 'Older')] : []),
    ...(continueBefore === undefined
      ? []
      : [linkButton(href('before', continueBefore), 'Search further back')]),
  ];
  if (ids.length === 0 && links.length === 0) return '';
  return html`<section aria-labelledby="activity-recent"><h2 id="activity-recent">Recent</h2>
${ids.length === 0 ? '' : html`<ul class="activity-list">${describeRequests(db, ids).map(row => renderRow(row, renderEnd(row, now), now))}</ul>`}
${continueBefore === undefined ? '' : html`<p class="quiet">No more matches among the latest build requests.</p>`}
${links.length === 0 ? '' : html`<nav class="older buttons" aria-label="Pages of recent builds">${links}</nav>`}</section>`;
}

function renderRow(
  row: ActivityRequest,
  progress: Html,
  now: number,
  state: string = row.request.buildState,
): Html {
  const { request, project, commit } = row;
  const path = `/ui/projects/${project.id}`;
  const requested = renderRequested({ isLocal: request.local, ref: request.commitRef });
  return html`<li class="activity-row">
<div class="activity-state">${stateBadge(state)}</div>
<div class="activity-what"><div class="activity-project"><a class="name" href="${path}">${project.name}</a> ${requested}${request.local ? html` <span class="tag">local run</span>` : ''}</div>
${
  commit
    ? html`<a class="subject" href="${path}/commits/${commit.id}">${subjectOf(commit)}</a>`
    : html`<span class="quiet">${request.error ?? 'The commit has not been fetched yet.'}</span>`
}
<div class="second">${commit ? html`<code>${commit.ref.slice(0, 10)}</code> ${commit.authorName} · ` : ''}${startedBy(row)} ${relativeTime(request.createdAt, now)}</div></div>
<div class="activity-suites">${renderSuites(row, path)}</div>
<div class="activity-time">${progress}</div>
</li>`;
}

/** "push “Main” (ada)" or "started by ada@example.org". */
function startedBy({ request }: ActivityRequest): string {
  const { trigger, pushedBy, createdBy } = request;
  if (trigger === null || trigger === 'local') return `started by ${createdBy}`;
  return `${triggerLabel(request)}${pushedBy === null ? '' : ` (${pushedBy})`}`;
}

/** A mark for each suite, those that did not pass first. */
function renderSuites({ builds, suites }: ActivityRequest, path: string): Html | string {
  if (builds.length === 0) return '';
  const rest = suites - builds.length;
  return html`<ul class="suite-marks">${builds.map(
    ({ id, suiteName, buildState }) =>
      html`<li><a href="${path}/builds/${id}" title="${suiteName}: ${stateLabel(buildState)}"><span class="sr">${suiteName}</span> ${stateMark(buildState)}</a></li>`,
  )}${rest > 0 ? html`<li class="quiet">+${rest}</li>` : ''}</ul>`;
}

function renderRunning({ services: { db } }: Visit, row: ActivityRequest): Html {
  const { request, suites, finishedSuites } = row;
  const now = db.now();
  const progress = progressOf(row, build => estimateSeconds(db, build), now);
  return html`${progress ? html`<progress max="1" value="${progress.done.toFixed(3)}" aria-label="Progress"></progress>` : ''}<div class="second">${request.buildState === 'fetching' ? 'Fetching the commit' : html`${finishedSuites} of ${countOf(suites, 'suite')} done${progress?.leftMs === undefined ? '' : `, about ${formatDuration(progress.leftMs)} left`}`}</div>`;
}

/** How far the builds are, as a share of their estimated time, and how long they still take if no other build waits. */
export function progressOf(
  { builds, suites, finishedSuites }: ActivityRequest,
  estimate: (build: ActivityRequest['builds'][number]) => number | undefined,
  now: number,
): { done: number; leftMs: number | undefined } | undefined {
  if (suites === 0) return undefined;
  let running = 0;
  let leftMs: number | undefined = builds.some(({ buildState }) => buildState === 'enqueued') ? undefined : 0;
  for (const build of builds) {
    if (build.buildState !== 'running' || build.startedAt === null) continue;
    const estimatedMs = (estimate(build) ?? 0) * 1000;
    if (estimatedMs === 0) {
      leftMs = undefined;
      continue;
    }
    const elapsedMs = now - build.startedAt;
    running += Math.min(0.99, elapsedMs / estimatedMs);
    if (leftMs !== undefined) leftMs = Math.max(leftMs, estimatedMs - elapsedMs);
  }
  return { done: (finishedSuites + running) / suites, leftMs: leftMs === 0 ? undefined : leftMs };
}

function renderWaiting({ services }: Visit, { request }: ActivityRequest): Html {
  const build = findWaitingBuild(services.db, request.id);
  const waiting = build && services.waiting(build);
  if (waiting)
    return html`<div class="second">Number ${waiting.position} in the queue: ${waiting.reason}</div>`;
  return html`<div class="second">${request.buildState === 'enqueued' ? 'Waiting for the commit to be fetched' : 'Waiting for a free slot'}</div>`;
}

function renderEnd({ request: { createdAt, finishedAt } }: ActivityRequest, now: number): Html {
  if (finishedAt === null) return html``;
  return html`<div class="number">${formatDuration(finishedAt - createdAt)}</div><div class="second">ended ${relativeTime(finishedAt, now)}</div>`;
}

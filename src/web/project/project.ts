// The overview of a project: the matrix of commits and suites, the build requests, and a form to start one.

import { html } from 'hono/html';
import { builds } from '../../api/builds.ts';
import { lastEventIdHeader, streamEvents } from '../../api/firehose.ts';
import { streamResponse } from '../../api/http/stream.ts';
import type { presentBuildRequest } from '../../contract/records/build.ts';
import { presentNotification } from '../../contract/records/notification.ts';
import { isFinishedRequest } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { listBuildRequests } from '../../store/builds.ts';
import { listNotifications } from '../../store/notifications.ts';
import { findProject, findVisibleProject } from '../../store/projects.ts';
import { listTriggers } from '../../store/trigger/triggers.ts';
import { emptyState, olderLink, relativeTime } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { openPageStream } from '../frame/page-stream.ts';
import { action, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, perform, performPage, type View } from '../frame/visit.ts';
import { receiverOf } from './deliveries.ts';
import { type ProjectVisit, projectPath, projectView } from './frame.ts';
import { renderHistory } from './history.ts';
import { renderCommits } from './matrix.ts';
import { renderRequested, renderStartedBy } from './started-by.ts';
import { renderSteps } from './steps.ts';

const PATH = '/ui/projects/:project_id';

type RequestRecord = ReturnType<typeof presentBuildRequest>;

export const projectPages: Route[] = [
  page(PATH, showProject),
  page(`${PATH}/stream`, followProject),
  page(`${PATH}/build_requests`, showRequests),
  action(`${PATH}/build_requests`, builds.createRequest, {
    showForm: showProject,
    done: (visit, request) => ({
      to: projectPath(visit),
      message: `Build of ${request.commit_ref} started.`,
    }),
  }),
  action(`${PATH}/build_requests/:build_request_id/cancel`, builds.cancelRequest, {
    showForm: showProject,
    done: (visit, request) => ({
      to: projectPath(visit),
      message: `Build of ${request.commit_ref} canceled.`,
    }),
  }),
];

const REQUESTS_IN_OVERVIEW = 8;
const LOCAL_RUNS_IN_OVERVIEW = 3;

async function showProject(visit: ProjectVisit): Promise<View> {
  const list = (local: boolean, limit: number) =>
    perform(visit, builds.listRequests, { query: { limit: String(limit), local: String(local) } });
  const { items, next } = await list(false, REQUESTS_IN_OVERVIEW);
  const localRuns = await list(true, LOCAL_RUNS_IN_OVERVIEW);
  return projectView(visit, {
    tab: 'overview',
    live: projectPath(visit, visit.request.method === 'GET' ? visit.url.search : ''),
    styles: ['results.css'],
    body: html`<div id="disabled" data-live>${renderDisabled(visit)}</div>
<div id="steps" data-live>${renderSteps(visit)}</div>
<div class="overview">
<section class="start panel" aria-labelledby="start-build"><h2 id="start-build">Start a build</h2>${renderStart(visit)}${renderTriggerHint(visit)}</section>
<section class="commits" id="commits" data-live aria-labelledby="commits-head">${await renderCommits(visit)}</section>
<section class="requests" id="requests" data-live aria-labelledby="requests-head"><h2 id="requests-head">Build requests</h2>
${
  items.length === 0
    ? html`<p class="quiet">No build requests yet. Each build that you start is listed here with its result.</p>`
    : renderRequests(visit, items)
}
${next === undefined ? '' : html`<p><a href="${projectPath(visit, '/build_requests')}">All build requests</a></p>`}
${localRuns.items.length === 0 ? '' : renderLocalRuns(visit, localRuns)}
</section>
<section class="trends" id="trends" data-live aria-labelledby="trends-head">${await renderHistory(visit)}</section>
</div>`,
  });
}

function renderLocalRuns(
  visit: ProjectVisit,
  { items, next }: { items: readonly RequestRecord[]; next: bigint | undefined },
): Html {
  return html`<h2 class="local-runs">Local runs</h2>${renderRequests(visit, items)}
${next === undefined ? '' : html`<p><a href="${projectPath(visit, '/build_requests?local=true')}">All local runs</a></p>`}`;
}

/** Notifications that a response disabled: nobody would notice that they are missing. */
function renderDisabled(visit: ProjectVisit): Html[] {
  const { db } = visit.services;
  return listNotifications(db, visit.found.project.id, { limit: 100, before: undefined })
    .filter(({ enabled }) => !enabled)
    .map(presentNotification)
    .map(
      ({ id_str, options, error }) =>
        html`<p class="flash failed">Nothing is sent to ${receiverOf(options)}: ${error}. <a href="${projectPath(visit, `/notifications/${id_str}${options.forge ? '/edit' : ''}`)}">${options.forge ? 'Change the token' : 'Open the notification'}</a></p>`,
    );
}

function renderStart(visit: ProjectVisit): Html {
  const newest = { limit: 1, before: undefined };
  const [last] = listBuildRequests(visit.services.db, visit.found.project.id, newest, { local: false });
  const start = formTo(visit, projectPath(visit, '/build_requests'), {
    commit_ref: last?.commitRef ?? 'main',
  });
  return renderForm(start, {
    className: 'form start-form',
    fields: textField(start, {
      name: 'commit_ref',
      label: 'Branch, tag or commit',
      required: true,
      code: true,
    }),
    submit: submitButton('Start build'),
  });
}

function renderTriggerHint(visit: ProjectVisit): Html | string {
  const [trigger] = listTriggers(visit.services.db, visit.found.project.id, { limit: 1, before: undefined });
  if (trigger) return '';
  return html`<p class="hint trigger-hint">Builds start only by hand. <a href="${projectPath(visit, '/triggers/new')}">Start them by pushes, polling or a schedule</a></p>`;
}

function renderRequests(visit: ProjectVisit, requests: readonly RequestRecord[]): Html {
  const requested = (request: RequestRecord) =>
    renderRequested({ isLocal: request.trigger === 'local', ref: request.commit_ref });
  return html`<ul class="request-list">${requests.map(
    request => html`<li>
<div class="request-head">${stateBadge(request.build_state)} ${
      request.commit_id_str === ''
        ? requested(request)
        : html`<a href="${projectPath(visit, `/commits/${request.commit_id_str}`)}">${requested(request)}</a>`
    }${isFinishedRequest(request.build_state) ? '' : renderCancel(visit, request)}</div>
${request.error === undefined ? '' : html`<p class="why">${request.error}</p>`}
<div class="second words">${relativeTime(Date.parse(request.created_at))} ${renderStartedBy(visit, BigInt(request.id_str))}</div>
</li>`,
  )}</ul>`;
}

const renderCancel = (visit: ProjectVisit, request: RequestRecord) =>
  actionButton(formTo(visit, projectPath(visit, `/build_requests/${request.id_str}/cancel`)), 'Cancel', {
    confirm: 'Stop all builds of this request? Their logs are kept.',
    yes: 'Stop builds',
    no: 'Keep running',
  });

const noRequests = { title: 'No build requests yet', text: 'Each build that you start is listed here.' };
const noLocalRuns = {
  title: 'No local runs yet',
  text: html`<code>assay run --local</code> builds your working tree as it is. Each run is listed here.`,
};

async function showRequests(visit: ProjectVisit): Promise<View> {
  const isLocal = visit.url.searchParams.get('local') === 'true';
  const { items, next } = await performPage(visit, builds.listRequests, 50, isLocal ? { local: 'true' } : {});
  return projectView(visit, {
    tab: 'overview',
    live: projectPath(visit, `/build_requests${visit.url.search}`),
    subpage: { heading: isLocal ? 'Local runs' : 'Build requests' },
    body: html`<div id="requests" data-live>${
      items.length === 0 ? emptyState(isLocal ? noLocalRuns : noRequests) : renderRequests(visit, items)
    }</div>${olderLink(visit.url, next, isLocal ? 'Older local runs' : 'Older build requests')}`,
  });
}

/** Streams the project's events, so that its pages reload what changed. */
function followProject(visit: ProjectVisit): Response {
  const { services, found, request, url } = visit;
  const { db } = services;
  const stream = openPageStream(visit, caller => findVisibleProject(db, caller.accountId, found.project.id));
  streamEvents(
    services,
    stream,
    found.project.id,
    () => ({ build_state: findProject(db, found.project.id)?.buildState }),
    parseId(lastEventIdHeader(request)) ?? parseId(url.searchParams.get('after') ?? ''),
    // A page requests what it shows: the body, with its record of the commit, would be much larger.
    () => '{}',
  );
  return streamResponse();
}

// The frame around the tabs of a build: its heading, its state and the reason for it, its actions, and the tabs.

import { html } from 'hono/html';
import { isFinishedBuild, isRerunCandidate } from '../../domain/build.ts';
import { HOST_IMAGE } from '../../domain/names.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import { formatCount } from '../../domain/text/count.ts';
import { shellQuote } from '../../domain/text/shell.ts';
import {
  type Build,
  type BuildLink,
  type BuildRequest,
  type Commit,
  findBuildRequest,
  findCommit,
  listBuildLinks,
} from '../../store/builds.ts';
import { estimateSeconds } from '../../store/estimates.ts';
import { findSuite, type Suite } from '../../store/suites.ts';
import {
  copyText,
  formatDuration,
  navItem,
  pageHead,
  propertyList,
  relativeTime,
} from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { stateBadge, stateMark } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { renderEventStream } from '../project/frame.ts';
import { renderLocalNotice, renderRequested, renderStartedBy } from '../project/started-by.ts';
import { watchButton } from '../watch.ts';

export type BuildVisit = Visit<'project' | 'build'>;

type Tab = 'log' | 'tests' | 'artifacts' | 'changes';

const paths: Record<Tab, string> = { log: '', tests: '/tests', artifacts: '/artifacts', changes: '/changes' };
const labels: Record<Tab, string> = {
  log: 'Log',
  tests: 'Tests',
  artifacts: 'Artifacts',
  changes: 'Changes',
};
const SIBLINGS_LISTED = 12;
const ATTEMPTS_AROUND = 2;

export const buildHref = (build: Pick<Build, 'projectId' | 'id'>, tab: Tab = 'log') =>
  `/ui/projects/${build.projectId}/builds/${build.id}${paths[tab]}`;

/** The newest build of each suite of a request, which alone decides its state; in the order of their ids. */
export function newestBuilds(builds: readonly BuildLink[]): BuildLink[] {
  return [...new Map(builds.map(build => [build.suiteId, build])).values()];
}

/**
 * A tab of a build. The heading and the tab's `body` are loaded again when the build changes, except on the log, which
 * log.js keeps current: it requests `?part=head`, and every element of `body` that is marked `data-live`.
 */
export function buildView(
  visit: BuildVisit,
  options: { tab: Tab; body: Html | string; scripts?: readonly string[]; styles?: readonly string[] },
): View {
  const { project, build } = visit.found;
  const { tab, body } = options;
  const isLive = tab !== 'log' && !isFinishedBuild(build.buildState);
  return {
    title: [...(tab === 'log' ? [] : [labels[tab]]), build.suiteName, project.name].join(' · '),
    section: 'projects',
    state: build.buildState,
    scripts: [...(isLive ? ['project.js'] : []), ...(options.scripts ?? [])],
    styles: ['results.css', ...(options.styles ?? [])],
    body: html`<div id="build-head" data-live>${renderHead(visit, tab)}</div>
${isLive ? renderEventStream(visit, buildHref(build, tab) + visit.url.search) : ''}
${tab === 'log' ? body : html`<section id="build-tab" data-live aria-label="${labels[tab]}">${body}</section>`}`,
  };
}

function renderHead(visit: BuildVisit, tab: Tab): Html {
  const { services, found } = visit;
  const { project, build } = found;
  const now = services.db.now();
  const request = findBuildRequest(services.db, project.id, build.buildRequestId);
  const commit = findCommit(services.db, project.id, build.commitId);
  const all = listBuildLinks(services.db, build.buildRequestId);
  const newest = newestBuilds(all);
  const later = newest.find(one => one.suiteId === build.suiteId && one.id !== build.id);
  const suite = findSuite(services.db, project.id, build.suiteId);
  const projectHref = `/ui/projects/${project.id}`;
  return html`${pageHead(build.suiteName, {
    trail: [
      { href: '/ui/projects', label: 'Projects' },
      { href: projectHref, label: project.name },
      { href: `${projectHref}/commits/${build.commitId}`, label: build.commitRef.slice(0, 10) },
      { href: suite && `${projectHref}/suites/${suite.id}`, label: build.suiteName },
      { href: buildHref(build, tab), label: 'Build' },
    ],
    // Above the log, Cancel is in the bar that stays in sight.
    actions: tab === 'log' && !isFinishedBuild(build.buildState) ? [] : buildButtons(visit, newest),
    subtitle: html`${stateBadge(build.buildState)} ${durationOf(build, now)}`,
  })}
${renderLocalNotice(request)}${explainState(visit, tab)}
${later ? html`<p class="flash">This suite has run again since. <a href="${buildHref(later, tab)}">Go to the newest build</a></p>` : ''}
${propertyList(buildProperties(visit, build, request, commit, now))}
${renderAttempts(build, all, tab)}${tab === 'log' && suite && !build.local ? renderLocally(suite) : ''}
${newest.length > 1 ? renderSiblings(build, newest, tab) : ''}
${renderTabs(build, tab)}`;
}

function renderTabs(build: Build, current: Tab): Html {
  const counts: Partial<Record<Tab, Html | string>> = {
    tests: build.tests ? countTests(build.tests) : '',
    artifacts: build.artifacts > 0 ? countBadge(formatCount(build.artifacts)) : '',
  };
  return html`<nav class="tabs" aria-label="Build"><ul>${(Object.keys(paths) as Tab[]).map(tab =>
    navItem(
      buildHref(build, tab),
      html`${labels[tab]}${counts[tab] ?? ''}`,
      tab === current,
      tab === 'log' && tab !== current ? 'l' : '',
    ),
  )}</ul></nav>`;
}

/** New failures are what a reader looks for; without any, how many tests there are. */
function countTests({ passed, failed, errored, skipped, newFailures }: TestCounts): Html {
  return newFailures > 0
    ? countBadge(`${formatCount(newFailures)} new`, 'bad')
    : countBadge(formatCount(passed + failed + errored + skipped));
}

const countBadge = (text: string, tone = '') => html` <span class="count ${tone}">${text}</span>`;

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

function buildButtons(visit: BuildVisit, newest: readonly BuildLink[]): Html[] {
  const { build } = visit.found;
  const href = buildHref(build);
  if (!isFinishedBuild(build.buildState))
    return build.cancelBecause !== null
      ? [watchButton(href)]
      : [
          watchButton(href),
          actionButton(formTo(visit, `${href}/cancel`), 'Cancel', {
            tone: 'danger',
            ...stopQuestion(build),
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

/**
 * What a build does now: its state, the time so far and the time that it probably takes, and Cancel. log.js keeps the
 * time and the bar moving.
 */
export function renderNow(visit: BuildVisit): Html {
  const { db } = visit.services;
  const { build } = visit.found;
  const estimateMs = (estimateSeconds(db, build) ?? 0) * 1000;
  const isRunning = build.buildState === 'running' && build.startedAt !== null;
  const elapsedMs = Math.max(0, (build.finishedAt ?? db.now()) - (build.startedAt ?? db.now()));
  const isCancelable = !isFinishedBuild(build.buildState) && build.cancelBecause === null;
  const about = estimateMs > 0 ? `about ${formatDuration(estimateMs)}` : '';
  const time = isRunning
    ? html`${about ? html`<progress max="${estimateMs}" value="${Math.min(elapsedMs, estimateMs)}" data-running-until="${estimateMs}" aria-label="Build"></progress>` : ''}
<span><span class="number" data-running-ms="${elapsedMs}">${formatDuration(elapsedMs)}</span>${about ? ` of ${about}` : ''}</span>`
    : build.startedAt !== null
      ? html`<span class="number">${formatDuration(elapsedMs)}</span>`
      : isCancelable && about
        ? html`<span>takes ${about}</span>`
        : '';
  return html`<div class="log-state" id="log-state" data-live>${stateBadge(build.buildState)} ${time}
${isCancelable ? buildButtons(visit, []) : ''}</div>`;
}

/** Which run of the suite for this request it is, with links to the ones before and after. */
function renderAttempts(build: Build, all: readonly BuildLink[], tab: Tab): Html | string {
  const attempts = all.filter(one => one.suiteId === build.suiteId);
  if (attempts.length < 2) return '';
  const at = attempts.findIndex(one => one.id === build.id);
  const link = (to: number) => {
    const attempt = attempts[to];
    return attempt
      ? html`<li><a href="${buildHref(attempt, tab)}"${to === at ? html` aria-current="page"` : ''}>${stateMark(attempt.buildState)} <span>Attempt ${to + 1}</span></a></li>`
      : '';
  };
  // Of many, the first, the newest and those around this one.
  const shown = attempts
    .map((_, to) => to)
    .filter(to => to === 0 || to === attempts.length - 1 || Math.abs(to - at) <= ATTEMPTS_AROUND);
  return html`<nav class="siblings attempts" aria-label="Attempts"><p>Attempt ${at + 1} of ${attempts.length}</p><ul>${shown.map(link)}</ul></nav>`;
}

/** How to run the suite on one's own machine: through Assay, and in an image alone. */
function renderLocally({ name, image, command }: Suite): Html {
  const isNamed = image !== null && image !== HOST_IMAGE;
  return html`<details class="locally" id="locally"><summary>Run this locally</summary>
<p>In your checkout, with your changes. <a href="/ui/client">Install the command line</a> if you do not have it yet.</p>
${copyText(`assay run --local ${wordOf(name)}`, 'Copy')}
${
  isNamed
    ? html`<p>Or without Assay, if Docker on your machine has the image. The variables and dependencies of the suite are not available there.</p>
${copyText(`docker run --rm -it -v "$PWD":/srv/project -w /srv/project ${wordOf(image)} sh -c ${shellQuote(command)}`, 'Copy')}`
    : html`<p>The command of the suite:</p>${copyText(command, 'Copy')}`
}</details>`;
}

/** A word of a shell, quoted only if needed. */
const wordOf = (text: string) => (/^[\w./:@-]+$/.test(text) ? text : shellQuote(text));

/** What is asked before a build is canceled. */
export const stopQuestion = ({ buildState, suiteName }: Pick<Build, 'buildState' | 'suiteName'>) =>
  buildState === 'enqueued'
    ? { confirm: `Cancel ${suiteName} before it starts?`, yes: 'Cancel build', no: 'Keep waiting' }
    : { confirm: `Stop ${suiteName}? Its log is kept.`, yes: 'Stop build', no: 'Keep running' };

/** Whether a reader asks why it did not pass. */
export const hasFailed = ({ buildState }: Pick<Build, 'buildState'>) =>
  buildState === 'failed' || buildState === 'errored' || buildState === 'timed_out';

/** Why the build waits, or ended as it did. */
function explainState({ services, found: { build } }: BuildVisit, tab: Tab): Html | string {
  const changes =
    hasFailed(build) && tab !== 'changes'
      ? html` <a href="${buildHref(build, 'changes')}">What changed since it passed?</a>`
      : '';
  const notice = (tone: string, text: string) => html`<p class="flash ${tone}">${text}${changes}</p>`;
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
        ? html`${renderRequested({ isLocal: request.local, ref: request.commitRef })} ${renderStartedBy(visit, request.id)}, ${relativeTime(request.createdAt, now)}`
        : '',
    ],
    [
      build.finishedAt !== null ? 'Finished' : build.startedAt !== null ? 'Started' : 'Enqueued',
      relativeTime(build.finishedAt ?? build.startedAt ?? build.createdAt, now),
    ],
    ...(build.node === null ? [] : [['Node', html`<code>${build.node}</code>`] satisfies [string, Html]]),
  ];
}

/** Links to the same tab of the other suites of the request. If there are many, the passed ones are collapsed. */
function renderSiblings(build: Build, newest: readonly BuildLink[], tab: Tab): Html {
  const isCurrent = (one: BuildLink) => one.suiteId === build.suiteId;
  const isCollapsed = (one: BuildLink) =>
    newest.length > SIBLINGS_LISTED && one.buildState === 'passed' && !isCurrent(one);
  const list = (some: readonly BuildLink[]) =>
    html`<ul>${some.map(
      one =>
        html`<li><a href="${buildHref(one, tab)}"${isCurrent(one) ? html` aria-current="page"` : ''}>${stateMark(one.buildState)} <span>${one.suiteName}</span></a></li>`,
    )}</ul>`;
  const collapsed = newest.filter(isCollapsed);
  return html`<nav class="siblings" aria-label="Suites of this build request">${list(newest.filter(one => !isCollapsed(one)))}
${collapsed.length > 0 ? html`<details id="passed-siblings"><summary class="siblings-more">${collapsed.length} more passed</summary>${list(collapsed)}</details>` : ''}</nav>`;
}

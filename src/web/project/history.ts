// The history of a project: how its latest build requests ended, and which suites fail or take longest. A short form of it is
// on the overview.

import { html } from 'hono/html';
import { countRuns, figuresOf } from '../../domain/result/history.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import {
  type BriefRun,
  listBranchedRuns,
  listProjectBranches,
  listRequestRuns,
  listSuiteRuns,
  rankSuites,
  type SuiteOrder,
  type SuiteRuns,
  suiteOrders,
} from '../../store/result/runs.ts';
import { countFlakyTests } from '../../store/result/tests.ts';
import { findRepositoryBranch } from '../../store/trigger/firings.ts';
import {
  emptyState,
  FIRST_PAGE,
  formatDuration,
  hrefWith,
  linkButton,
  relativeTime,
  sparkline,
  table,
} from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html, View } from '../frame/visit.ts';
import { formatRate } from '../result/chart.ts';
import {
  chosenBranch,
  defaultBranch,
  HISTORY_RUNS,
  renderBranches,
  renderCharts,
  renderFigureHelp,
  renderFigures,
} from '../result/history.ts';
import { type ProjectVisit, projectPath, projectView } from './frame.ts';

const SUITES_PER_PAGE = 25;
const SUITES_IN_OVERVIEW = 6;
const RUNS_IN_SPARKLINE = 12;
/** How many builds of each suite a list of suites covers. The page of a suite has more. */
export const RUNS_OF_LISTED_SUITE = 20;

const orderLabels: Record<SuiteOrder, string> = { failing: 'Failing most', slowest: 'Slowest' };

export const projectHistoryPages: Route[] = [page('/ui/projects/:project_id/history', showHistory)];

async function showHistory(visit: ProjectVisit): Promise<View> {
  const { services, found, url } = visit;
  const { db } = services;
  const { project } = found;
  const now = db.now();
  const branch = chosenBranch(url);
  const runs = listRequestRuns(db, project.id, { branch, limit: HISTORY_RUNS });
  const branches = listProjectBranches(db, project.id);
  const isEmpty = runs.length === 0 && branch === undefined;
  return projectView(visit, {
    tab: 'overview',
    subpage: { heading: 'History' },
    live: projectPath(visit, `/history${url.search}`),
    styles: ['results.css'],
    body: html`<div id="history" data-live>${
      isEmpty
        ? emptyState({
            title: 'No build request has finished yet',
            text: 'After the first one, this page shows how the build requests of this project end, how fast failures are fixed, and which suites fail or take longest.',
            action: linkButton(projectPath(visit), 'Start a build'),
          })
        : html`${renderBranches(url, branches, defaultBranch(findRepositoryBranch(db, project), branches))}
${
  runs.length === 0
    ? html`<p class="quiet">No build request has finished on the branch <code>${branch}</code>.</p>`
    : html`<section aria-labelledby="figures-head"><h2 id="figures-head" class="sr">Figures</h2>${renderFigures(
        figuresOf(runs),
        { noun: 'build request', now, durationNote: 'From the request to its end' },
      )}</section>
<section aria-labelledby="requests-head"><h2 id="requests-head">Latest build requests</h2>
${renderCharts(
  runs.map(run => ({
    ...run,
    href: projectPath(visit, `/commits/${run.commitId}`),
    label: /^[0-9a-f]{40}$/.test(run.commitRef) ? run.commitRef.slice(0, 10) : run.commitRef,
  })),
  { noun: 'build request', now },
)}</section>
${renderFigureHelp('build request')}`
}
${await renderSuites(visit)}`
    }</div>`,
  });
}

async function renderSuites(visit: ProjectVisit): Promise<Html> {
  const { services, found, url } = visit;
  const { db } = services;
  const order = suiteOrders.find(one => one === url.searchParams.get('sort')) ?? 'failing';
  const offset = Math.max(0, Number.parseInt(url.searchParams.get('after') ?? '', 10) || 0);
  const ranked = rankSuites(db, found.project.id, { order, limit: SUITES_PER_PAGE + 1, offset });
  const suites = await listBranchedRuns(db, ranked.slice(0, SUITES_PER_PAGE), RUNS_OF_LISTED_SUITE);
  return html`<section class="suite-histories" aria-labelledby="suites-head"><h2 id="suites-head">Suites</h2>
<nav class="pills" aria-label="Order of the suites"><ul>${suiteOrders.map(
    one =>
      html`<li><a href="${hrefWith(url, { ...FIRST_PAGE, sort: one })}"${one === order ? html` aria-current="true"` : ''}>${orderLabels[one]}</a></li>`,
  )}</ul></nav>
${table({
  caption: `Suites, sorted by: ${orderLabels[order]}`,
  columns: ['Suite', 'Last result', 'Success rate', 'Duration', 'Time to fix', 'Flaky tests'],
  rows: suites.map(suite => ({
    cells: suiteCells(visit, suite, countFlakyTests(db, { suiteId: suite.id })),
  })),
  empty: { title: 'No suites', text: 'All suites of this project were deleted.' },
})}
${ranked.length > SUITES_PER_PAGE ? html`<p class="older"><a class="button plain" href="${hrefWith(url, { ...FIRST_PAGE, after: String(offset + SUITES_PER_PAGE) })}">More suites</a></p>` : ''}
<p class="hint">Each row covers the last ${RUNS_OF_LISTED_SUITE} builds of the suite on all branches. The order follows the latest builds of the project.</p></section>`;
}

function suiteCells(visit: ProjectVisit, { id, name, runs }: SuiteRuns, flaky: number): (Html | string)[] {
  const { timeToFix } = figuresOf(runs);
  const path = projectPath(visit, `/suites/${id}`);
  return [
    html`<a class="name" href="${path}">${name}</a>`,
    renderLastResult(visit, runs),
    renderRate(runs),
    renderSparkline(runs),
    timeToFix
      ? html`<span class="number">${formatDuration(timeToFix.medianMs)}</span>`
      : html`<span class="quiet">—</span>`,
    flaky === 0
      ? html`<span class="quiet">0</span>`
      : html`<a href="${path}/tests?sort=flaky">${formatCount(flaky)}</a>`,
  ];
}

/** The result of the newest run, with a link to it. */
export function renderLastResult(visit: ProjectVisit, runs: readonly BriefRun[]): Html {
  const last = runs.at(-1);
  if (!last) return html`<span class="quiet">No build yet</span>`;
  const { db } = visit.services;
  return html`<a href="${projectPath(visit, `/builds/${last.id}`)}">${stateBadge(last.state)}</a> <span class="second">${last.finishedAt === null ? '' : relativeTime(last.finishedAt, db.now())}</span>`;
}

/** How many of the runs passed. */
export function renderRate(runs: readonly BriefRun[]): Html {
  const { counted, passed } = countRuns(runs);
  if (counted === 0) return html`<span class="quiet">—</span>`;
  return html`<span class="number">${formatRate(passed / counted)}</span> <span class="second">${passed} of ${counted}</span>`;
}

export const renderSparkline = (runs: readonly BriefRun[]) =>
  sparkline(
    runs.slice(-RUNS_IN_SPARKLINE).map(({ startedAt, finishedAt, state }) => ({
      ms: (finishedAt ?? 0) - (startedAt ?? finishedAt ?? 0),
      state,
    })),
  );

/** The suites that fail most, in the overview of a project. Empty if nothing has run yet. */
export async function renderHistory(visit: ProjectVisit): Promise<Html | string> {
  const { db } = visit.services;
  const { project } = visit.found;
  const ranked = rankSuites(db, project.id, { order: 'failing', limit: SUITES_IN_OVERVIEW, offset: 0 });
  const suites = (await listSuiteRuns(db, ranked, RUNS_OF_LISTED_SUITE)).filter(
    ({ runs }) => runs.length > 0,
  );
  if (suites.length === 0) return '';
  const flakyCount = countFlakyTests(db, { projectId: project.id });
  return html`<h2 id="trends-head">History</h2>
<ul class="trend-list">${suites.map(suite => renderSuite(visit, suite, countFlakyTests(db, { suiteId: suite.id })))}</ul>
<p class="history-links"><a href="${projectPath(visit, '/history')}">History of all suites</a>${flakyCount === 0 ? '' : html` <a href="${projectPath(visit, '/flaky')}">${countOf(flakyCount, 'flaky test')}</a>`}</p>`;
}

function renderSuite(visit: ProjectVisit, { id, name, runs }: SuiteRuns<BriefRun>, flaky: number): Html {
  const { counted, passed } = countRuns(runs);
  const rate = counted === 0 ? '' : `${formatRate(passed / counted)} passed`;
  return html`<li><div class="trend-head"><a class="name" href="${projectPath(visit, `/suites/${id}`)}">${name}</a> <span class="second">${[rate, ...(flaky > 0 ? [`${formatCount(flaky)} flaky`] : [])].filter(Boolean).join(', ')}</span></div>
<div class="trend-lines">${renderSparkline(runs)}</div></li>`;
}

// How suites develop from build to build: charts of duration and pass rate for one suite, and the suites of a project
// at a glance.

import { html } from 'hono/html';
import { listTrends, type Run, type Trend } from '../../store/result/runs.ts';
import { countFlakyTests } from '../../store/result/tests.ts';
import { countOf, formatCount, formatDuration, relativeTime, sparkline, table } from '../frame/components.ts';
import { stateBadge, stateLabel } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from '../project/frame.ts';
import { barChart, formatRate, rateChart, rateSparkline } from './chart.ts';

const SUITES_IN_OVERVIEW = 6;
const RUNS_IN_OVERVIEW = 12;

export const runMs = ({ startedAt, finishedAt }: Run) =>
  startedAt === null || finishedAt === null ? undefined : Math.max(0, finishedAt - startedAt);

const testCount = ({ tests }: Run) =>
  tests ? tests.passed + tests.failed + tests.errored + tests.skipped : undefined;

/** The share of tests that passed, without skipped ones; undefined if there were none. */
function passRate({ tests }: Run): number | undefined {
  const ran = tests ? tests.passed + tests.failed + tests.errored : 0;
  return tests && ran > 0 ? tests.passed / ran : undefined;
}

/** Charts of the latest runs of a suite, oldest first, and a table with the same values. */
export function renderCharts(visit: ProjectVisit, runs: readonly Run[], branch: string | undefined): Html {
  const now = visit.services.db.now();
  const timeOf = ({ finishedAt }: Run) => relativeTime(finishedAt ?? now, now);
  const [first, last] = [runs[0], runs.at(-1)];
  if (!first || !last)
    return html`<p class="quiet">No build of this suite has ended yet${branch === undefined ? '' : html` on the branch <code>${branch}</code>`}.</p>`;
  const ends = runs.length > 1 ? ([timeOf(first), timeOf(last)] as const) : undefined;
  const href = ({ id }: Run) => projectPath(visit, `/builds/${id}`);
  const rated = runs.filter(run => passRate(run) !== undefined);
  const common = ends && { ends };
  return html`<div class="charts">
${barChart({
  id: 'durations',
  title: 'Duration',
  summary: describeDurations(runs),
  format: formatDuration,
  points: runs.map(run => ({
    href: href(run),
    state: run.buildState,
    value: runMs(run),
    label: [stateLabel(run.buildState), formatDuration(runMs(run) ?? 0), run.commitRef.slice(0, 10)].join(
      ', ',
    ),
  })),
  ...common,
})}
${
  rated.length === 0
    ? ''
    : rateChart({
        id: 'rates',
        title: 'Pass rate',
        summary: describeRates(rated),
        format: formatRate,
        points: runs.map(run => ({
          href: href(run),
          state: run.buildState,
          value: passRate(run),
          label: [describeTests(run), run.commitRef.slice(0, 10)].join(', '),
        })),
        ...common,
      })
}
</div>
<details class="chart-table"><summary>Show these builds as a table</summary>
${table({
  caption: 'Latest builds of the suite, newest first',
  columns: ['Build', 'Commit', 'Duration', 'Tests', 'Pass rate'],
  isDense: true,
  rows: runs.toReversed().map(run => ({
    cells: [
      html`<a href="${href(run)}">${stateBadge(run.buildState)}</a> <span class="quiet">${timeOf(run)}</span>`,
      html`<code>${run.commitRef.slice(0, 10)}</code>`,
      html`<span class="number">${formatDurationOf(run)}</span>`,
      html`<span class="number">${testCount(run) === undefined ? '—' : countOf(testCount(run) ?? 0, 'test')}</span>`,
      html`<span class="number">${passRate(run) === undefined ? '—' : formatRate(passRate(run) ?? 0)}</span>`,
    ],
  })),
})}</details>`;
}

const formatDurationOf = (run: Run) => {
  const ms = runMs(run);
  return ms === undefined ? '—' : formatDuration(ms);
};

function describeDurations(runs: readonly Run[]): string {
  const sorted = runs.flatMap(run => runMs(run) ?? []).toSorted((a, b) => a - b);
  const passed = runs.filter(({ buildState }) => buildState === 'passed').length;
  const builds = runs.length === 1 ? '1 build' : `${runs.length} builds`;
  const middle = sorted[Math.floor(sorted.length / 2)];
  return [
    ...(middle === undefined
      ? []
      : [`Median ${formatDuration(middle)}, longest ${formatDuration(sorted.at(-1) ?? middle)}.`]),
    `${passed} of ${builds} passed.`,
  ].join(' ');
}

function describeRates(rated: readonly Run[]): string {
  const rates = rated.map(run => passRate(run) ?? 0);
  const whole = rates.filter(rate => rate === 1).length;
  return `Newest ${formatRate(rates.at(-1) ?? 0)}, lowest ${formatRate(Math.min(...rates))}. All tests passed in ${whole} of ${rates.length}.`;
}

function describeTests(run: Run): string {
  const rate = passRate(run);
  if (!run.tests || rate === undefined) return 'No test results';
  return `${formatRate(rate)} of ${formatCount(testCount(run) ?? 0)} tests passed`;
}

/** The latest runs of some suites at a glance, in the overview of a project. Empty if nothing has run yet. */
export function renderTrends(visit: ProjectVisit): Html | string {
  const { db } = visit.services;
  const { project } = visit.found;
  const trends = listTrends(db, project.id, { suites: SUITES_IN_OVERVIEW, runs: RUNS_IN_OVERVIEW });
  if (trends.length === 0) return '';
  const flaky = countFlakyTests(db, project.id);
  const flakyCount = [...flaky.values()].reduce((sum, count) => sum + count, 0);
  return html`<h2 id="trends-head">Trends</h2>
<ul class="trend-list">${trends.map(trend => renderTrend(visit, trend, flaky.get(trend.id)))}</ul>
${flakyCount === 0 ? '' : html`<p><a href="${projectPath(visit, '/flaky')}">${countOf(flakyCount, 'flaky test')}</a></p>`}`;
}

function renderTrend(visit: ProjectVisit, { id, name, runs }: Trend, flaky = 0): Html {
  const newest = runs.findLast(({ tests }) => tests);
  const counts = [
    ...(newest ? [countOf(testCount(newest) ?? 0, 'test')] : []),
    ...(flaky > 0 ? [`${formatCount(flaky)} flaky`] : []),
  ];
  return html`<li><div class="trend-head"><a class="name" href="${projectPath(visit, `/suites/${id}/tests`)}">${name}</a> <span class="second">${counts.join(', ')}</span></div>
<div class="trend-lines">${sparkline(runs.map(run => ({ ms: runMs(run) ?? 0, state: run.buildState })))}${
    newest ? rateSparkline(runs.map(passRate), formatRate) : ''
  }</div></li>`;
}

// What the histories of suites and projects share: the figures, the charts with a table of the same values, and the choice
// of a branch.

import { html } from 'hono/html';
import { durationOf, type Figures, type HistoryRun, isFailedRun } from '../../domain/result/history.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import { FIRST_PAGE, formatDuration, hrefWith, relativeTime, table } from '../frame/components.ts';
import { stateBadge, stateLabel } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { barChart, formatRate, rateChart } from './chart.ts';

/** How many builds a history covers. */
export const HISTORY_RUNS = 50;

const BRANCHES_NAMED = 3;

export const chosenBranch = (url: URL) => url.searchParams.get('branch') || undefined;

/** `known` is what a look at the repository has found. Otherwise the likeliest of the branches that were built. */
export const defaultBranch = (known: string | undefined, branches: readonly string[]) =>
  known ?? ['main', 'master'].find(name => branches.includes(name)) ?? branches[0];

/** Links to all branches and the default one, and a field for another. It offers those built last; any can be typed. */
export function renderBranches(url: URL, branches: readonly string[], primary: string | undefined): Html {
  const chosen = chosenBranch(url);
  const link = (branch: string | undefined, label: Html | string) =>
    html`<li><a href="${hrefWith(url, { ...FIRST_PAGE, branch })}"${branch === chosen ? html` aria-current="true"` : ''}>${label}</a></li>`;
  const others = branches.filter(branch => branch !== primary);
  const kept = [...url.searchParams].filter(([name]) => !['branch', 'before', 'after'].includes(name));
  return html`<div class="branches"><nav class="pills" aria-label="Branch"><ul>${link(undefined, 'All branches')}${
    primary === undefined ? '' : link(primary, html`<code>${primary}</code>`)
  }</ul></nav>
${
  branches.length === 0 && chosen === undefined
    ? ''
    : html`<form class="branch-form" method="get">${kept.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}<label class="sr" for="branch">Other branch</label>
<input id="branch" name="branch" value="${chosen === primary ? '' : (chosen ?? '')}" placeholder="Other branch" list="branches" autocomplete="off" autocapitalize="off" spellcheck="false"><datalist id="branches">${others.map(
        branch => html`<option value="${branch}"></option>`,
      )}</datalist> <button class="button plain" type="submit">Show</button></form>`
}</div>`;
}

type Figure = { label: string; value: Html | string; note: Html | string };

/** The figures of a history as tiles. `noun` is what it consists of: build, build request. */
export function renderFigures(
  { counted, passed, medianMs, timeToFix, failing }: Figures,
  options: { noun: string; now: number; durationNote?: Html | string; others?: readonly Figure[] },
): Html {
  const { noun, now } = options;
  const tiles: Figure[] = [
    {
      label: 'Success rate',
      value: counted === 0 ? '—' : formatRate(passed / counted),
      note: counted === 0 ? `No ${noun} passed or failed` : `${passed} of ${countOf(counted, noun)} passed`,
    },
    {
      label: 'Median duration',
      value: medianMs === undefined ? '—' : formatDuration(medianMs),
      note: options.durationNote ?? '',
    },
    {
      label: 'Time to fix',
      value: timeToFix ? formatDuration(timeToFix.medianMs) : '—',
      note: timeToFix
        ? `${timeToFix.count === 1 ? '1 failure' : `Median of ${timeToFix.count} failures`}, last ${formatDuration(timeToFix.lastMs)}`
        : failing.length > 0
          ? 'No failure is fixed yet'
          : 'No failure on a branch',
    },
    ...(options.others ?? []),
  ];
  return html`<dl class="figures">${tiles.map(
    ({ label, value, note }) =>
      html`<div><dt>${label}</dt><dd><strong>${value}</strong> <span class="second">${note}</span></dd></div>`,
  )}</dl>
${failing.length === 0 ? '' : renderFailing(failing, now)}`;
}

function renderFailing(failing: Figures['failing'], now: number): Html {
  const more = failing.length - BRANCHES_NAMED;
  return html`<p class="failing-now">${stateBadge('failing')} ${failing
    .slice(0, BRANCHES_NAMED)
    .map(
      ({ branch, since }, at) =>
        html`${at === 0 ? '' : ', '}<code>${branch}</code> first failed ${relativeTime(since, now)}`,
    )}${more <= 0 ? '' : `, and ${more === 1 ? '1 more branch' : `${more} more branches`}`}</p>`;
}

export function renderFigureHelp(noun: string): Html {
  return html`<details class="figure-help"><summary>How are these figures computed?</summary>
<div><p>They cover the ${noun}s shown here, at most ${HISTORY_RUNS}. Local runs and canceled ${noun}s never count. One that is errored is shown, but does not count: Assay could not run it, which says nothing about the code.</p>
<ul><li>Success rate: how many passed, of those that passed, failed or timed out.</li>
<li>Median duration: of those that passed.</li>
<li>Time to fix: from the end of the first failed ${noun} to the end of the next one that passed on the same branch. Tags, hashes and pull requests of forks are on no branch.</li></ul></div></details>`;
}

export type ChartRun = HistoryRun & {
  href: string;
  /** What was built, such as the hash of the commit. */
  label: string;
  tests?: TestCounts | null;
};

const testCount = (tests: TestCounts) => tests.passed + tests.failed + tests.errored + tests.skipped;

/** The share of tests that passed, without skipped ones; undefined if there were none. */
export function passRate(tests: TestCounts | null | undefined): number | undefined {
  const ran = tests ? tests.passed + tests.failed + tests.errored : 0;
  return tests && ran > 0 ? tests.passed / ran : undefined;
}

/** Charts of the latest runs, oldest first, and a table with the same values. There is at least one. */
export function renderCharts(runs: readonly ChartRun[], options: { noun: string; now: number }): Html {
  const { noun, now } = options;
  const timeOf = ({ finishedAt }: ChartRun) => relativeTime(finishedAt ?? now, now);
  const [first, last] = [runs[0], runs.at(-1)];
  const common = first && last && runs.length > 1 && { ends: [timeOf(first), timeOf(last)] as const };
  const rated = runs.filter(({ tests }) => passRate(tests) !== undefined);
  return html`<div class="charts">
${barChart({
  id: 'durations',
  title: 'Duration',
  summary: describeDurations(runs, noun),
  format: formatDuration,
  points: runs.map(run => ({
    href: run.href,
    state: run.state,
    value: durationOf(run),
    label: [
      stateLabel(run.state),
      formatDurationOf(run),
      run.label,
      ...(run.branch ? [run.branch] : []),
    ].join(', '),
  })),
  ...common,
})}
${
  rated.length === 0
    ? ''
    : rateChart({
        id: 'rates',
        title: 'Pass rate of tests',
        summary: describeRates(rated),
        format: formatRate,
        points: runs.map(run => ({
          href: run.href,
          state: run.state,
          value: passRate(run.tests),
          label: [describeTests(run), run.label].join(', '),
        })),
        ...common,
      })
}
</div>
<details class="chart-table"><summary>Show these ${noun}s as a table</summary>
${table({
  caption: `Latest ${noun}s, newest first`,
  columns: ['Result', 'Commit', 'Branch', 'Duration', ...(rated.length === 0 ? [] : ['Tests', 'Pass rate'])],
  isDense: true,
  rows: runs.toReversed().map(run => ({
    cells: [
      html`<a href="${run.href}">${stateBadge(run.state)}</a> <span class="quiet">${timeOf(run)}</span>`,
      html`<code>${run.label}</code>`,
      run.branch === '' ? html`<span class="quiet">none</span>` : html`<code>${run.branch}</code>`,
      html`<span class="number">${formatDurationOf(run)}</span>`,
      ...(rated.length === 0 ? [] : testCells(run)),
    ],
  })),
})}</details>`;
}

const testCells = ({ tests }: ChartRun) => {
  const rate = passRate(tests);
  return [
    html`<span class="number">${tests ? countOf(testCount(tests), 'test') : '—'}</span>`,
    html`<span class="number">${rate === undefined ? '—' : formatRate(rate)}</span>`,
  ];
};

const formatDurationOf = (run: HistoryRun) => {
  const ms = durationOf(run);
  return ms === undefined ? '—' : formatDuration(ms);
};

function describeDurations(runs: readonly HistoryRun[], noun: string): string {
  const longest = Math.max(0, ...runs.flatMap(run => durationOf(run) ?? []));
  const count = (state: string, matches: (run: HistoryRun) => boolean) => {
    const found = runs.filter(matches).length;
    return found === 0 ? [] : [`${found} ${state}`];
  };
  const results = [
    ...count('passed', ({ state }) => state === 'passed'),
    ...count('failed', isFailedRun),
    ...count('errored', ({ state }) => state === 'errored'),
  ];
  return `Last ${countOf(runs.length, noun)}: ${results.join(', ')}. Longest ${formatDuration(longest)}.`;
}

function describeRates(rated: readonly ChartRun[]): string {
  const rates = rated.map(({ tests }) => passRate(tests) ?? 0);
  const whole = rates.filter(rate => rate === 1).length;
  return `Newest ${formatRate(rates.at(-1) ?? 0)}, lowest ${formatRate(Math.min(...rates))}. All tests passed in ${whole} of ${rates.length}.`;
}

function describeTests({ tests }: ChartRun): string {
  const rate = passRate(tests);
  if (!tests || rate === undefined) return 'No test results';
  return `${formatRate(rate)} of ${formatCount(testCount(tests))} tests passed`;
}

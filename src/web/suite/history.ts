// The history of a suite, with which its page opens: how its latest builds ended, how long they took and how fast failures
// were fixed, the slowest steps, and the flaky tests.

import { html } from 'hono/html';
import { figuresOf, medianSteps } from '../../domain/result/history.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import { compareWeeks, listBranches, listRuns, listSteps, type Run } from '../../store/result/runs.ts';
import { countFlakyTests, listFlakyTests } from '../../store/result/tests.ts';
import { findRepositoryBranch } from '../../store/trigger/firings.ts';
import { emptyState, formatDuration, linkButton } from '../frame/components.ts';
import type { Html, View } from '../frame/visit.ts';
import { projectPath, type SuiteVisit, suitePath } from '../project/frame.ts';
import {
  chosenBranch,
  defaultBranch,
  HISTORY_RUNS,
  renderBranches,
  renderCharts,
  renderFigureHelp,
  renderFigures,
} from '../result/history.ts';
import { testName } from '../result/test-text.ts';
import { suiteView } from './frame.ts';

/** A smaller difference between two weeks is noise. */
const MIN_CHANGE = 0.05;
const FLAKY_SHOWN = 5;

export function showSuiteHistory(visit: SuiteVisit): View {
  const { services, found, url } = visit;
  const { db } = services;
  const branch = chosenBranch(url);
  const runs = listRuns(db, found.suite.id, { branch, limit: HISTORY_RUNS });
  const branches = listBranches(db, found.suite.id);
  const primary = defaultBranch(findRepositoryBranch(db, found.project), branches);
  return suiteView(visit, {
    tab: 'history',
    live: suitePath(visit, url.search),
    body: html`<div id="history" data-live>${
      runs.length === 0 && branch === undefined
        ? emptyState({
            title: 'No build has ended yet',
            text: 'After the first build of this suite, this page shows how its builds end, how long they and their steps take, and how fast failures are fixed.',
            action: linkButton(projectPath(visit), 'Start a build'),
          })
        : html`${renderBranches(url, branches, primary)}${runs.length === 0 ? html`<p class="quiet">No build of this suite has ended on the branch <code>${branch}</code>.</p>` : renderRuns(visit, runs, branch)}`
    }</div>`,
  });
}

function renderRuns(visit: SuiteVisit, runs: readonly Run[], branch: string | undefined): Html {
  const { db } = visit.services;
  const { suite } = visit.found;
  const now = db.now();
  const flaky = countFlakyTests(db, { suiteId: suite.id });
  return html`<section aria-labelledby="figures-head"><h2 id="figures-head" class="sr">Figures</h2>
${renderFigures(figuresOf(runs), {
  noun: 'build',
  now,
  durationNote: describeWeeks(visit, branch),
  others: [
    {
      label: 'Flaky tests',
      value: flaky === 0 ? '0' : html`<a href="${suitePath(visit, '/tests?sort=flaky')}">${flaky}</a>`,
      note: 'in the last 14 days',
    },
  ],
})}</section>
<section aria-labelledby="builds-head"><h2 id="builds-head">Latest builds</h2>
${renderCharts(
  runs.map(run => ({
    ...run,
    href: projectPath(visit, `/builds/${run.id}`),
    label: run.commitRef.slice(0, 10),
  })),
  { noun: 'build', now },
)}</section>
<div class="history-lists">
<section aria-labelledby="steps-head"><h2 id="steps-head">Slowest steps</h2>${renderSteps(visit, runs)}</section>
${flaky === 0 ? '' : html`<section aria-labelledby="flaky-head"><h2 id="flaky-head">Flaky tests</h2>${renderFlaky(visit, flaky)}</section>`}
</div>
${renderFigureHelp('build')}`;
}

const stepLabels: Record<string, string> = {
  wait: 'Waiting in the queue',
  prepare: 'Preparing the container',
  checkout: 'Checkout',
  command: 'Command',
  collect: 'Artifacts and test results',
};

/** The median of each step, of the builds that passed. */
function renderSteps(visit: SuiteVisit, runs: readonly Run[]): Html {
  const passed = runs.filter(({ state }) => state === 'passed');
  const known = listSteps(
    visit.services.db,
    passed.map(({ id }) => id),
  );
  if (known.length === 0)
    return html`<p class="quiet">Appears after the next build that passes: how long it waits, and how long the checkout, the command and other steps take.</p>`;
  const waits = passed.map(({ createdAt, startedAt }) => ({
    wait: Math.max(0, (startedAt ?? createdAt) - createdAt),
  }));
  const steps = medianSteps([...known, ...waits]);
  const longest = Math.max(1, ...steps.map(({ medianMs }) => medianMs));
  return html`<ol class="slow-steps">${steps.map(
    ({ name, medianMs }) =>
      html`<li><span class="slow-name">${stepLabels[name] ?? name.replace(/^launch /, 'Launch of ')}</span>
<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="${Math.max(0.5, Math.round((medianMs / longest) * 1000) / 10)}" height="8"/></svg>
<span class="number">${formatDuration(medianMs)}</span></li>`,
  )}</ol>
<p class="hint">The median of each step, of the builds above that passed.</p>`;
}

function renderFlaky(visit: SuiteVisit, count: number): Html {
  const { project, suite } = visit.found;
  const shown = listFlakyTests(visit.services.db, project.id, FLAKY_SHOWN, suite.id);
  return html`<ul class="flaky-list">${shown.map(test => html`<li>${testName(visit, test)}</li>`)}</ul>
${count <= FLAKY_SHOWN ? '' : html`<p><a href="${suitePath(visit, '/tests?sort=flaky')}">All ${formatCount(count)} flaky tests</a></p>`}`;
}

/** How the durations of the last seven days compare with those of the seven days before. */
function describeWeeks(visit: SuiteVisit, branch: string | undefined): string {
  const [thisWeek, lastWeek] = compareWeeks(visit.services.db, visit.found.suite.id, branch);
  if (!thisWeek) return 'No build passed in the last 7 days';
  if (!lastWeek)
    return `${formatDuration(thisWeek.medianMs)} in ${countOf(thisWeek.builds, 'build')} of the last 7 days`;
  const change = lastWeek.medianMs === 0 ? 0 : thisWeek.medianMs / lastWeek.medianMs - 1;
  const before = `the week before (${formatDuration(lastWeek.medianMs)})`;
  if (Math.abs(change) < MIN_CHANGE) return `Last 7 days: about the same as ${before}`;
  return `Last 7 days: ${Math.round(Math.abs(change) * 100)} % ${change > 0 ? 'slower' : 'faster'} than ${before}`;
}

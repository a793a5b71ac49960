// The page with the tests of a suite: how duration and pass rate develop.

import { html } from 'hono/html';
import { listBranches, listRuns } from '../../store/result/runs.ts';
import { page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { projectView, type SuiteVisit, suitePath } from '../project/frame.ts';
import { renderCharts } from './trends.ts';

const RUNS_SHOWN = 100;

export const suiteTestsPages: Route[] = [
  page('/ui/projects/:project_id/suites/:suite_id/tests', showSuiteTests),
];

function showSuiteTests(visit: SuiteVisit): View {
  const { db } = visit.services;
  const { suite } = visit.found;
  const branch = visit.url.searchParams.get('branch') || undefined;
  const runs = listRuns(db, suite.id, { branch, limit: RUNS_SHOWN });
  return projectView(visit, {
    tab: 'suites',
    live: suitePath(visit, `/tests${visit.url.search}`),
    styles: ['results.css'],
    subpage: {
      heading: `Tests of ${suite.name}`,
      parent: { href: suitePath(visit), label: suite.name },
      actions: renderBranches(visit, branch),
    },
    body: html`<section id="charts" data-live aria-labelledby="charts-head"><h2 id="charts-head">Latest builds</h2>${renderCharts(visit, runs, branch)}</section>`,
  });
}

/** Chooses the branch whose builds are shown. */
function renderBranches(visit: SuiteVisit, chosen: string | undefined): Html {
  const known = listBranches(visit.services.db, visit.found.suite.id);
  const branches = chosen === undefined || known.includes(chosen) ? known : [chosen, ...known];
  const option = (value: string, label: string, isChosen: boolean) =>
    html`<option value="${value}"${isChosen ? html` selected` : ''}>${label}</option>`;
  return html`<form class="branch-form" method="get"><label for="branch">Branch</label>
<select id="branch" name="branch">${option('', 'All branches', chosen === undefined)}${branches.map(branch =>
    option(branch, branch, branch === chosen),
  )}</select> <button class="button plain" type="submit">Show</button></form>`;
}

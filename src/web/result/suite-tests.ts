// The page with the tests of a suite: how duration and pass rate develop, and which tests are flaky, slow, failing or new.

import { html } from 'hono/html';
import { parseId } from '../../domain/id.ts';
import { listBranches, listRuns } from '../../store/result/runs.ts';
import {
  listSuiteTests,
  STATISTICS_BUILDS,
  type SuiteTest,
  type TestOrder,
  testOrders,
} from '../../store/result/suite-tests.ts';
import { linkButton, olderLink, table } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { projectView, type SuiteVisit, suitePath } from '../project/frame.ts';
import { formatTestDuration, resultBadge, testName } from './test-text.ts';
import { renderCharts } from './trends.ts';

const RUNS_SHOWN = 100;
const TESTS_PER_PAGE = 50;

const orderLabels: Record<TestOrder, string> = {
  flaky: 'Flaky',
  slowest: 'Slowest',
  failing: 'Failing',
  newest: 'Newest',
};

export const suiteTestsPages: Route[] = [
  page('/ui/projects/:project_id/suites/:suite_id/tests', showSuiteTests),
];

async function showSuiteTests(visit: SuiteVisit): Promise<View> {
  const { services, found, url } = visit;
  const { db } = services;
  const { suite } = found;
  const branch = url.searchParams.get('branch') || undefined;
  const order = testOrders.find(one => one === url.searchParams.get('sort')) ?? 'failing';
  const runs = listRuns(db, suite.id, { branch, limit: RUNS_SHOWN });
  const { items, next } = await listSuiteTests(
    db,
    suite,
    { order, branch },
    { limit: TESTS_PER_PAGE, before: parseId(url.searchParams.get('before') ?? '') },
  );
  return projectView(visit, {
    tab: 'suites',
    styles: ['results.css'],
    subpage: {
      heading: `Tests of ${suite.name}`,
      parent: { href: suitePath(visit), label: suite.name },
      actions: renderBranches(visit, branch, order),
    },
    body: html`<section aria-labelledby="charts-head"><h2 id="charts-head">Latest builds</h2>${renderCharts(visit, runs, branch)}</section>
<section aria-labelledby="tests-head"><h2 id="tests-head">Tests</h2>
${renderOrders(visit, order, branch)}
${table({
  caption: `Tests of the latest ${STATISTICS_BUILDS} builds, sorted by: ${orderLabels[order]}`,
  columns: ['Test', 'Newest result', 'Latest runs', 'Median duration'],
  isDense: true,
  rows: items.map(item => ({ cells: testCells(visit, item) })),
  empty: {
    title: 'No test results',
    text: html`Let the command of the suite write JUnit XML to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the test reports of the suite to the files that it writes in the checkout. <a href="/ui/manual/tests">More about test results</a>`,
    action: linkButton(suitePath(visit), 'Settings of the suite'),
  },
})}
${olderLink(url, next, 'More tests')}</section>`,
  });
}

function testCells(visit: SuiteVisit, { test, result, failures, runs, medianMs }: SuiteTest): Html[] {
  return [
    testName(visit, test),
    resultBadge(result),
    html`<span class="number">${failures} of ${runs} failed</span>`,
    formatTestDuration(medianMs),
  ];
}

function renderOrders(visit: SuiteVisit, order: TestOrder, branch: string | undefined): Html {
  return html`<nav class="pills" aria-label="Order of the tests"><ul>${testOrders.map(
    one =>
      html`<li><a href="${suitePath(visit, `/tests?${new URLSearchParams({ sort: one, ...(branch && { branch }) }).toString()}`)}"${one === order ? html` aria-current="true"` : ''}>${orderLabels[one]}</a></li>`,
  )}</ul></nav>`;
}

/** Chooses the branch whose builds are shown. */
function renderBranches(visit: SuiteVisit, chosen: string | undefined, order: TestOrder): Html {
  const known = listBranches(visit.services.db, visit.found.suite.id);
  const branches = chosen === undefined || known.includes(chosen) ? known : [chosen, ...known];
  const option = (value: string, label: string, isChosen: boolean) =>
    html`<option value="${value}"${isChosen ? html` selected` : ''}>${label}</option>`;
  return html`<form class="branch-form" method="get"><input type="hidden" name="sort" value="${order}"><label for="branch">Branch</label>
<select id="branch" name="branch">${option('', 'All branches', chosen === undefined)}${branches.map(branch =>
    option(branch, branch, branch === chosen),
  )}</select> <button class="button plain" type="submit">Show</button></form>`;
}

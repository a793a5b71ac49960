// The tests of a suite: which are flaky, slow, failing or new.

import { html } from 'hono/html';
import { parseId } from '../../domain/id.ts';
import { listBranches } from '../../store/result/runs.ts';
import {
  listSuiteTests,
  STATISTICS_BUILDS,
  type SuiteTest,
  type TestOrder,
  testOrders,
} from '../../store/result/suite-tests.ts';
import { findRepositoryBranch } from '../../store/trigger/firings.ts';
import { FIRST_PAGE, hrefWith, linkButton, olderLink, table } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { type SuiteVisit, suitePath } from '../project/frame.ts';
import { suiteView } from '../suite/frame.ts';
import { chosenBranch, defaultBranch, renderBranches } from './history.ts';
import { formatTestDuration, resultBadge, testName } from './test-text.ts';

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
  const branch = chosenBranch(url);
  const order = testOrders.find(one => one === url.searchParams.get('sort')) ?? 'failing';
  const branches = listBranches(db, suite.id);
  const { items, next } = await listSuiteTests(
    db,
    suite,
    { order, branch },
    { limit: TESTS_PER_PAGE, before: parseId(url.searchParams.get('before') ?? '') },
  );
  return suiteView(visit, {
    tab: 'tests',
    body: html`${renderBranches(url, branches, defaultBranch(findRepositoryBranch(db, found.project), branches))}
<section aria-labelledby="tests-head"><h2 id="tests-head" class="sr">Tests</h2>
${renderOrders(visit, order)}
${table({
  caption: `Tests of the latest ${STATISTICS_BUILDS} builds, sorted by: ${orderLabels[order]}`,
  columns: ['Test', 'Newest result', 'Latest runs', 'Median duration'],
  isDense: true,
  rows: items.map(item => ({ cells: testCells(visit, item) })),
  empty: {
    title: 'No test results',
    text: html`Let the command of the suite write JUnit XML to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the test reports of the suite to the files that it writes in the checkout. <a href="/ui/manual/tests">More about test results</a>`,
    action: linkButton(suitePath(visit, '/settings'), 'Settings of the suite'),
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

function renderOrders({ url }: SuiteVisit, order: TestOrder): Html {
  return html`<nav class="pills" aria-label="Order of the tests"><ul>${testOrders.map(
    one =>
      html`<li><a href="${hrefWith(url, { ...FIRST_PAGE, sort: one })}"${one === order ? html` aria-current="true"` : ''}>${orderLabels[one]}</a></li>`,
  )}</ul></nav>`;
}

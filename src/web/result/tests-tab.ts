// The tab of a build with the results of its tests: failing ones first, filtered by result and text, in pages.

import { html } from 'hono/html';
import { isFinishedBuild } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { type TestCounts, type TestResult, testResults } from '../../domain/result/test-result.ts';
import { formatCount } from '../../domain/text/count.ts';
import { type BuildTest, findReport, listBuildTests } from '../../store/result/build-tests.ts';
import { findSuite } from '../../store/suites.ts';
import { emptyState, formatDuration, linkButton, olderLink, table } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import { stateLabel } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildHref, buildView } from './build-frame.ts';
import { renderBase } from './new-failures.ts';
import { failureMessage, flakyReason, formatTestDuration, resultBadge, testName } from './test-text.ts';

const TESTS_PER_PAGE = 50;
const MAX_QUERY = 200;

export const testsTabPages: Route[] = [
  page('/ui/projects/:project_id/builds/:build_id/tests', async visit =>
    buildView(visit, {
      tab: 'tests',
      body: visit.found.build.tests
        ? await renderTests(visit, visit.found.build.tests)
        : renderNoTests(visit),
    }),
  ),
];

type Filter = { result: TestResult | undefined; isNew: boolean; text: string };

function filterOf({ url: { searchParams: query } }: BuildVisit): Filter {
  return {
    result: testResults.find(result => result === query.get('result')),
    isNew: query.get('new') === 'true',
    text: (query.get('q') ?? '').trim().slice(0, MAX_QUERY),
  };
}

async function renderTests(visit: BuildVisit, counts: TestCounts): Promise<Html> {
  const { services, found, url } = visit;
  const filter = filterOf(visit);
  const { items, next } = await listBuildTests(
    services.db,
    found.build,
    { ...filter, text: filter.text || undefined },
    { limit: TESTS_PER_PAGE, before: parseId(url.searchParams.get('before') ?? '') },
  );
  const report = findReport(services.db, found.build.id);
  return html`${report?.malformed ? html`<p class="flash failed">A test report could not be read to its end, so results may be missing: ${report.malformed}</p>` : ''}
<div class="test-filters">${renderChoices(visit, counts, filter)}${renderSearch(visit, filter)}</div>
<p class="second">${report ? html`The tests took <span class="number">${formatDuration(report.durationMs)}</span>. ` : ''}${renderBase(visit)}</p>
${table({
  caption: 'Tests of this build',
  columns: ['Test', 'Result', 'Duration'],
  isDense: true,
  rows: items.map(item => ({ cells: testCells(visit, item) })),
  empty: {
    title: 'No matching tests',
    text: 'No test of this build matches the filter.',
    action: linkButton(buildHref(found.build, 'tests'), 'All tests'),
  },
})}
${olderLink(url, next, 'More tests')}`;
}

function testCells(visit: BuildVisit, { test, result, change, durationMs, ...failure }: BuildTest): Html[] {
  const reason = flakyReason(visit, test);
  return [
    html`${testName(visit, test)}${failureMessage(`failure-${test.id}`, failure)}${
      reason === '' || change === undefined || change === 'fixed'
        ? ''
        : html`<p class="second flaky-reason">Flaky: ${reason}</p>`
    }`,
    resultBadge(result, change),
    formatTestDuration(durationMs),
  ];
}

/** Links that choose a result, with the number of tests that have it. */
function renderChoices(visit: BuildVisit, counts: TestCounts, filter: Filter): Html {
  const { passed, failed, errored, skipped } = counts;
  const isAll = filter.result === undefined && !filter.isNew;
  const choices: [label: string, count: number, query: Record<string, string>, isCurrent: boolean][] = [
    ['All', passed + failed + errored + skipped, {}, isAll],
    ['New failures', counts.newFailures, { new: 'true' }, filter.isNew],
    ...testResults
      .toSorted((a, b) => orderOf(a) - orderOf(b))
      .map((result): (typeof choices)[number] => [
        stateLabel(result),
        counts[result],
        { result },
        filter.result === result,
      ]),
  ];
  const href = (query: Record<string, string>) => {
    const search = new URLSearchParams({ ...query, ...(filter.text && { q: filter.text }) }).toString();
    return buildHref(visit.found.build, 'tests') + (search && `?${search}`);
  };
  return html`<nav class="pills" aria-label="Results"><ul>${choices
    .filter(([, count, , isCurrent], at) => at === 0 || count > 0 || isCurrent)
    .map(
      ([label, count, query, isCurrent]) =>
        html`<li><a href="${href(query)}"${isCurrent ? html` aria-current="true"` : ''}>${label} <span class="number">${formatCount(count)}</span></a></li>`,
    )}</ul></nav>`;
}

const orderOf = (result: TestResult) => ['failed', 'errored', 'skipped', 'passed'].indexOf(result);

function renderSearch(visit: BuildVisit, { result, isNew, text }: Filter): Html {
  return html`<form class="test-search" method="get" action="${buildHref(visit.found.build, 'tests')}" role="search">
${result ? html`<input type="hidden" name="result" value="${result}">` : ''}${isNew ? html`<input type="hidden" name="new" value="true">` : ''}
<label class="sr" for="test-query">Find tests by name</label>
<input id="test-query" name="q" type="search" value="${text}" placeholder="Find tests by name" autocomplete="off" spellcheck="false" maxlength="${MAX_QUERY}">
<button class="button plain" type="submit">Find</button></form>`;
}

function renderNoTests({ services, found: { project, build } }: BuildVisit): Html {
  if (!isFinishedBuild(build.buildState))
    return emptyState({
      title: 'No test results yet',
      text: 'They appear here when the build has finished and its test reports were read.',
    });
  const suite = findSuite(services.db, project.id, build.suiteId);
  return emptyState({
    title: 'No test results',
    text: html`The build wrote no test report that could be read. Let the command write JUnit XML to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the test reports of the suite to the files that it writes in the checkout. <a href="/ui/manual/tests">More about test results</a>`,
    ...(suite && {
      action: linkButton(`/ui/projects/${project.id}/suites/${suite.id}/settings`, 'Settings of the suite'),
    }),
  });
}

// The page of a test: what it is, why it is flaky, and its history as a picture and as a table. And the flaky tests of a project.

import { html } from 'hono/html';
import { parseId } from '../../domain/id.ts';
import { findBuild } from '../../store/builds.ts';
import {
  isFlaky,
  listFlakyTests,
  listTestHistory,
  type Test,
  type TestRun,
} from '../../store/result/tests.ts';
import { findSuite } from '../../store/suites.ts';
import {
  formatDuration,
  linkedTime,
  olderLink,
  propertyList,
  relativeTime,
  table,
} from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge, stateLabel } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { type ProjectVisit, projectPath, projectView } from '../project/frame.ts';
import { barChart } from './chart.ts';
import { failureMessage, flakyReason, formatTestDuration, resultBadge, testName } from './test-text.ts';

type TestVisit = Visit<'project' | 'test'>;

const RUNS_SHOWN = 30;
const FLAKY_SHOWN = 100;

export const testPages: Route[] = [
  page('/ui/projects/:project_id/tests/:test_id', showTest),
  page('/ui/projects/:project_id/flaky', showFlakyTests),
];

async function showTest(visit: TestVisit): Promise<View> {
  const { services, found, url } = visit;
  const { test } = found;
  const suite = findSuite(services.db, found.project.id, test.suiteId);
  const { items, next } = await listTestHistory(services.db, test, {
    limit: RUNS_SHOWN,
    before: parseId(url.searchParams.get('before') ?? ''),
  });
  const [newest] = items;
  return projectView(visit, {
    tab: 'suites',
    styles: ['results.css'],
    subpage: {
      heading: test.name || '(no name)',
      ...(suite && {
        parent: { href: projectPath(visit, `/suites/${suite.id}/tests`), label: `Tests of ${suite.name}` },
      }),
      subtitle: html`${newest ? resultBadge(newest.result) : html`<span>Not in the latest builds</span>`}${
        isFlaky(test, services.db.now()) ? html` <span class="tag flaky">flaky</span>` : ''
      }`,
    },
    body: html`${renderReason(flakyReason(visit, test))}
${propertyList(testProperties(visit, items))}
<section class="test-history" aria-labelledby="history"><h2 id="history">History</h2>
${items.length === 0 ? html`<p class="quiet">None of the latest builds has run it.</p>` : renderHistory(visit, items)}
${olderLink(url, next, 'Older builds')}</section>`,
  });
}

const renderReason = (reason: Html | string) =>
  reason === ''
    ? ''
    : html`<p class="flash warn"><strong>Flaky.</strong> ${reason} It counts as flaky for 14 days, or until it has run 100 times without changing its result.</p>`;

function testProperties(visit: TestVisit, runs: readonly TestRun[]): [string, Html | string][] {
  const { test, project } = visit.found;
  const { db } = visit.services;
  const first = findBuild(db, project.id, test.firstBuildId);
  const durations = runs.flatMap(({ durationMs }) => durationMs ?? []).toSorted((a, b) => a - b);
  const medianMs = durations[Math.floor(durations.length / 2)];
  return [
    ['Class', test.classname === '' ? '' : html`<code>${test.classname}</code>`],
    ['File', test.file === null ? '' : html`<code>${test.file}</code>`],
    [
      'First seen',
      first
        ? html`<a href="${projectPath(visit, `/builds/${first.id}`)}">${linkedTime(first.createdAt, db.now())}</a>`
        : '',
    ],
    ['Median duration', medianMs === undefined ? '' : formatTestDuration(medianMs)],
  ];
}

/** `runs` are newest first. */
function renderHistory(visit: TestVisit, runs: readonly TestRun[]): Html {
  const now = visit.services.db.now();
  const href = ({ buildId }: TestRun) => projectPath(visit, `/builds/${buildId}/tests`);
  const timeOf = ({ finishedAt, createdAt }: TestRun) => relativeTime(finishedAt ?? createdAt, now);
  const oldestFirst = runs.toReversed();
  const [oldest, newest] = [oldestFirst[0], oldestFirst.at(-1)];
  return html`${barChart({
    id: 'runs',
    title: 'Results and durations',
    summary: describeRuns(runs),
    format: formatDuration,
    points: oldestFirst.map(run => ({
      href: href(run),
      state: run.result,
      value: run.durationMs,
      label: [
        stateLabel(run.result),
        ...(run.durationMs === undefined ? [] : [formatDuration(run.durationMs)]),
        run.commitRef.slice(0, 10),
        run.branch,
      ]
        .filter(Boolean)
        .join(', '),
    })),
    ...(oldest && newest && oldest !== newest && { ends: [timeOf(oldest), timeOf(newest)] as const }),
  })}
${table({
  caption: 'Builds that ran this test, newest first',
  columns: ['Result', 'Commit', 'Branch', 'Duration', 'When'],
  isDense: true,
  rows: runs.map(run => ({
    cells: [
      html`<a href="${href(run)}">${stateBadge(run.result)}</a>${run.change === 'flaky' ? html` <span class="tag flaky">flaky</span>` : ''}${failureMessage(`failure-${run.buildId}`, run)}`,
      html`<a href="${projectPath(visit, `/commits/${run.commitId}`)}"><code>${run.commitRef.slice(0, 10)}</code></a>`,
      run.branch === '' ? '—' : html`<code>${run.branch}</code>`,
      formatTestDuration(run.durationMs),
      timeOf(run),
    ],
  })),
})}`;
}

function describeRuns(runs: readonly TestRun[]): string {
  const failed = runs.filter(({ result }) => result === 'failed' || result === 'errored').length;
  const flaky = runs.filter(({ change }) => change === 'flaky').length;
  const repeated = flaky === 0 ? '' : ` Passed only when repeated in ${flaky}.`;
  if (runs.length === 1) return failed === 0 ? 'No failure in the only build.' : 'Failed in the only build.';
  return failed === 0 && flaky === 0
    ? `No failure in the latest ${runs.length} builds.`
    : `Failed in ${failed} of the latest ${runs.length} builds.${repeated}`;
}

function showFlakyTests(visit: ProjectVisit): View {
  const { services, found } = visit;
  const { db } = services;
  const rows = listFlakyTests(db, found.project.id, FLAKY_SHOWN + 1);
  const suiteNames = new Map<bigint, string | undefined>();
  const nameOf = ({ suiteId }: Test) => {
    if (!suiteNames.has(suiteId)) suiteNames.set(suiteId, findSuite(db, found.project.id, suiteId)?.name);
    return suiteNames.get(suiteId);
  };
  return projectView(visit, {
    tab: 'overview',
    live: projectPath(visit, '/flaky'),
    styles: ['results.css'],
    subpage: { heading: 'Flaky tests' },
    body: html`<p class="lead">A test is flaky if it failed and then passed in one build, or failed in one build and passed in another of the same commit with the same command, image and dependencies. It stops counting as flaky after 14 days, or after 100 runs without a change.</p>
<div id="flaky" data-live>${table({
      caption: 'Flaky tests, the latest first',
      columns: ['Test', 'Suite', 'Why'],
      rows: rows.slice(0, FLAKY_SHOWN).map(test => ({
        cells: [
          testName(visit, test),
          nameOf(test) === undefined
            ? html`<span class="quiet">deleted</span>`
            : html`<a href="${projectPath(visit, `/suites/${test.suiteId}/tests?sort=flaky`)}">${nameOf(test) ?? ''}</a>`,
          // One element, because a narrow page lays out the elements of a cell beside each other.
          html`<span>${flakyReason(visit, test)}</span>`,
        ],
      })),
      empty: {
        title: 'No flaky tests',
        text: 'None of the tests of this project was flaky in the last 14 days.',
      },
    })}
${rows.length > FLAKY_SHOWN ? html`<p class="quiet">There are more than ${FLAKY_SHOWN}. The page of each suite lists its own.</p>` : ''}</div>`,
  });
}

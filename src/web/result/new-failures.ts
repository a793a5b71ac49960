// What a reader of a build wants to know first about its tests: which of them fail that did not fail before.

import { html } from 'hono/html';
import { countOf, formatCount } from '../../domain/text/count.ts';
import { findBuild } from '../../store/builds.ts';
import { findReport, listBuildTests } from '../../store/result/build-tests.ts';
import { stateMark } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildHref } from './build-frame.ts';
import { failureMessage, flakyReason, formatTestDuration, testName } from './test-text.ts';

const FAILURES_SHOWN = 10;

/** Empty for a build without failed tests. */
export async function renderNewFailures(visit: BuildVisit): Promise<Html | string> {
  const { db } = visit.services;
  const { build } = visit.found;
  const { tests } = build;
  if (!tests || tests.failed + tests.errored === 0) return '';
  const all = buildHref(build, 'tests');
  const failing = tests.failed + tests.errored;
  if (tests.newFailures === 0)
    return html`<p class="flash note">${failing === 1 ? '1 test fails' : `${formatCount(failing)} tests fail`}, as before. <a href="${all}">Show the tests</a></p>`;
  const { items } = await listBuildTests(
    db,
    build,
    { isNew: true },
    { limit: FAILURES_SHOWN, before: undefined },
  );
  return html`<section class="panel new-failures" aria-labelledby="new-failures">
<h2 id="new-failures">${countOf(tests.newFailures, 'new failure')}</h2>
<ul class="failure-list">${items.map(
    ({ test, result, durationMs, ...failure }) => html`<li>
<div class="failure-head">${stateMark(result)}<div class="failure-words">${testName(visit, test)}</div>${formatTestDuration(durationMs)}</div>
${failureMessage(`failure-${test.id}`, failure)}
${renderReason(flakyReason(visit, test))}</li>`,
  )}</ul>
<p class="second">${tests.newFailures > items.length ? html`<a href="${all}?new=true">All ${formatCount(tests.newFailures)} new failures</a>. ` : html`<a href="${all}">All tests</a>. `}${renderBase(visit)}</p>
</section>`;
}

const renderReason = (reason: Html | string) =>
  reason === '' ? '' : html`<p class="second flaky-reason">Known to be flaky. ${reason}</p>`;

/** Which build the results were compared with. */
export function renderBase({ services, found }: BuildVisit): Html | string {
  const { project, build } = found;
  const report = findReport(services.db, build.id);
  if (!report) return '';
  if (report.baseBuildId === null) return 'There was no earlier build to compare with.';
  const base = findBuild(services.db, project.id, report.baseBuildId);
  if (!base) return 'The build that it was compared with is deleted.';
  return html`Compared with <a href="${buildHref(base, 'tests')}">the build of <code>${base.commitRef.slice(0, 10)}</code></a>.`;
}

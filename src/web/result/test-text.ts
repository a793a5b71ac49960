// How tests are shown on all pages: name and class, result, why a test is flaky, and the message of a failure.

import { html } from 'hono/html';
import type { TestChange, TestResult } from '../../domain/result/test-result.ts';
import { findBuild } from '../../store/builds.ts';
import { isFlaky, type Test } from '../../store/result/tests.ts';
import { formatDuration, relativeTime } from '../frame/components.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from '../project/frame.ts';
import { plainText } from '../project/log-view.ts';

const MAX_FIRST_LINE = 300;

const testHref = (visit: ProjectVisit, test: Pick<Test, 'id'>) => projectPath(visit, `/tests/${test.id}`);

/** The name, which links to the test's page, and the class below it. */
export function testName(visit: ProjectVisit, test: Test): Html {
  return html`<a class="test-name" href="${testHref(visit, test)}">${test.name || '(no name)'}</a> ${flakyTag(visit, test)}${
    test.classname === '' ? '' : html`<div class="second test-class">${test.classname}</div>`
  }`;
}

const flakyTag = (visit: ProjectVisit, test: Test) =>
  isFlaky(test, visit.services.db.now()) ? html`<span class="tag flaky">flaky</span>` : '';

const changeLabels: Record<TestChange, string> = {
  new: 'new',
  still: '',
  fixed: 'fixed',
  flaky: 'passed on retry',
};

export function resultBadge(result: TestResult, change?: TestChange): Html {
  const label = change ? changeLabels[change] : '';
  return html`${stateBadge(result)}${label === '' ? '' : html` <span class="tag">${label}</span>`}`;
}

export const formatTestDuration = (ms: number | undefined) =>
  html`<span class="number">${ms === undefined ? '—' : formatDuration(ms)}</span>`;

/** Why a test is flaky, with links to the builds that show it. Empty if it is not. */
export function flakyReason(visit: ProjectVisit, test: Test): Html | string {
  const { db } = visit.services;
  const { flakyAt, flakyFailedBuildId: failedId, flakyPassedBuildId: passedId } = test;
  if (!isFlaky(test, db.now()) || flakyAt === null) return '';
  const link = (id: bigint | null, label: string) =>
    id !== null && findBuild(db, visit.found.project.id, id)
      ? html`<a href="${projectPath(visit, `/builds/${id}`)}">${label}</a>`
      : label;
  return failedId === passedId
    ? html`It failed and then passed in ${link(failedId, 'one build')}, ${relativeTime(flakyAt, db.now())}.`
    : html`It ${link(failedId, 'failed in one build')} and ${link(passedId, 'passed in another')} of the same commit with the same inputs, ${relativeTime(flakyAt, db.now())}.`;
}

/** The first line of a failure's message, which opens to all of it. `id` is unique on the page, and keeps it open when the page is updated. */
export function failureMessage(id: string, failure: { message: string; details: string }): Html | string {
  const message = plainText(failure.message).trim();
  const details = plainText(failure.details).trimEnd();
  const [first = ''] = (message || details).split('\n', 1);
  if (first === '') return '';
  // Many reports repeat the message at the beginning of the details.
  const whole = details.includes(message) ? details : [message, details].filter(Boolean).join('\n\n');
  if (whole === first && first.length <= MAX_FIRST_LINE) return html`<p class="failure-line">${first}</p>`;
  return html`<details class="failure" id="${id}"><summary><span class="failure-line">${shorten(first)}</span></summary><pre>${whole}</pre></details>`;
}

const shorten = (line: string) =>
  line.length <= MAX_FIRST_LINE ? line : `${line.slice(0, MAX_FIRST_LINE - 1)}…`.toWellFormed();

// The pages of a suite with very many tests: each stays small, and links to the rest.
import assert from 'node:assert/strict';
import { get } from 'node:https';
import { after, before, test } from 'node:test';
import { createSession } from '../../../src/store/accounts.ts';
import type { Build } from '../../../src/store/builds.ts';
import { findProject, type Project } from '../../../src/store/projects.ts';
import { addReport, reported } from '../../store/result/reported.ts';
import { bootApp, type TestApp } from '../../support/app.ts';

const TESTS = 20_000;
const FAILURES = 60;
const TESTS_PER_PAGE = 50;
const MAX_PAGE_BYTES = 300_000;

let app: TestApp;
let project: Project;
let suiteId: bigint;
let build: Build;
let cookie: string;

before(async () => {
  app = await bootApp();
  const { db, people } = app;
  cookie = `__Host-assay-session=${createSession(db, people.owner.account.id)}`;
  const planted = app.plant();
  suiteId = planted.suite_id;
  project = findProject(db, planted.project_id) as Project;
  const run = (failures: number, ref: string) =>
    addReport(
      db,
      project,
      suiteId,
      Array.from({ length: TESTS }, (_, at) =>
        at < failures
          ? reported(`case ${at}`, 'failed', { details: 'at the end of a long trace\n'.repeat(120) })
          : reported(`case ${at}`, 'passed', { durationMs: at % 977 }),
      ),
      { ref },
    );
  await run(0, 'd'.repeat(40));
  build = await run(FAILURES, 'e'.repeat(40));
});
after(() => app.close());

async function look(path: string): Promise<string> {
  const { hostname, port } = new URL(app.url);
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  get({ hostname, port, path, ca: app.client.ca, headers: { cookie } }, async incoming => {
    const text = (await incoming.toArray()).join('');
    if (incoming.statusCode === 200) resolve(text);
    else reject(new Error(`${path}: ${incoming.statusCode} ${text}`));
  }).on('error', reject);
  const text = await promise;
  assert.ok(text.length < MAX_PAGE_BYTES, `${path} has ${text.length} bytes`);
  return text;
}

const testsOn = (text: string) => [...text.matchAll(/class="test-name"/g)].length;

test('the page of a build shows some new failures and links to all of them', async () => {
  const text = await look(`/ui/projects/${project.id}/builds/${build.id}`);
  assert.equal(testsOn(text), 10);
  assert.match(text, /href="[^"]*\/tests\?new=true">All 60 new failures</);
});

test('the tests of a build and of a suite come in pages', async () => {
  const at = `/ui/projects/${project.id}`;
  const paths = [
    ...['', '?result=passed', '?q=case+77', '?result=failed&q=case'].map(
      query => `${at}/builds/${build.id}/tests${query}`,
    ),
    ...['flaky', 'slowest', 'failing', 'newest'].map(sort => `${at}/suites/${suiteId}/tests?sort=${sort}`),
  ];
  for (const path of paths) {
    const text = await look(path);
    assert.equal(testsOn(text), TESTS_PER_PAGE, path);
    const [, next = ''] = /href="([^"]*)">More tests</.exec(text) ?? [];
    assert.ok(testsOn(await look(next.replaceAll('&amp;', '&'))) > 0, path);
  }
});

test('the page of a test shows its history', async () => {
  const text = await look(`/ui/projects/${project.id}/builds/${build.id}`);
  const [, href = ''] = /class="test-name" href="([^"]*)"/.exec(text) ?? [];
  assert.match(await look(href), /Failed in 1 of the latest 2 builds/);
});

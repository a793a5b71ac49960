// The pages of test results: new failures of a build, its tests, the history of a test, the tests of a suite, and flaky tests.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ReportedTest } from '../../../src/domain/result/test-result.ts';
import { type Build, findBuild, rerunBuild } from '../../../src/store/builds.ts';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import { deleteSuite, type Suite } from '../../../src/store/suites.ts';
import { finishBuild, reported } from '../../store/result/reported.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const trace = (name: string) =>
  [
    `AssertionError: expected ${name} to be <b>42</b>`,
    '+ actual - expected',
    '\x1b[31m- 41\x1b[0m',
    `    at ${name} (src/checkout/price.test.ts:17:9)`,
    `    at run (${'node_modules/runner/lib/'.repeat(12)}run.js:301:5)`,
  ].join('\n');

const failing = (name: string, others: Partial<ReportedTest> = {}) =>
  reported(name, 'failed', {
    message: `expected ${name} to be <b>42</b>`,
    details: trace(name),
    durationMs: 1_250,
    ...others,
  });

describe('the pages of test results', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Tested');
  });
  after(() => fixture?.close());

  const makeSuite = (name: string) => fixture.makeSuites(project, name)[0] as Suite;
  const enqueue = (suite: Suite, message = 'Change the price') => {
    const commit = fixture.makeCommit(project, message, [suite]);
    return (listLatestBuilds(fixture.db, commit.id).get(suite.id) as { id: bigint }).id;
  };
  const report = (suite: Suite, tests: Iterable<ReportedTest>, options = {}) =>
    finishBuild(fixture.db, enqueue(suite), tests, options);
  const hrefOf = (build: Build) => `/ui/projects/${project.id}/builds/${build.id}`;
  const passing = Array.from({ length: 120 }, (_, at) =>
    reported(`adds ${at} to the cart`, 'passed', { durationMs: at * 7, classname: `shop.Cart${at % 4}` }),
  );

  it('begins the page of a build with its new failures, as soon as it has ended', async () => {
    const suite = makeSuite('Unit tests');
    await report(suite, [...passing, failing('keeps failing'), reported('rounds prices', 'passed')]);
    const id = enqueue(suite);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/builds/${id}`);
    await page.getByRole('heading', { name: 'Unit tests' }).waitFor();
    const build = await finishBuild(fixture.db, id, [
      ...passing,
      failing('keeps failing'),
      failing('rounds prices', { file: 'src/checkout/price.test.ts' }),
      reported('loads the library', 'errored', { message: 'cannot open libprice.so', details: '' }),
      reported('waits for stock', 'skipped'),
    ]);
    const failures = page.getByRole('region', { name: '2 new failures' });
    await failures.getByText('cannot open libprice.so').waitFor();
    assert.equal(await failures.getByText('keeps failing').count(), 0, 'it failed before');
    await failures.locator('summary', { hasText: 'expected rounds prices to be <b>42</b>' }).focus();
    await page.keyboard.press('Enter');
    await failures.getByText('- 41', { exact: false }).waitFor();
    assert.doesNotMatch((await failures.textContent()) ?? '', /\x1b|\[31m/);
    await page.getByRole('link', { name: 'Tests 2 new' }).waitFor();
    await person.inspect('new-failures');
    await failures.getByRole('link', { name: /^the build of/ }).waitFor();
    await failures.getByRole('link', { name: 'rounds prices' }).click();
    await page.getByRole('heading', { name: 'rounds prices' }).waitFor();
    await person.go(hrefOf(build));
    await page.getByRole('link', { name: 'All tests' }).click();
    await page.getByRole('navigation', { name: 'Results' }).waitFor();
    await person.go(`/ui/projects/${project.id}/commits/${build.commitId}`);
    await person.inspect('commit-tests');
    await page.getByRole('link', { name: '2 new test failures, 1 known' }).click();
    await page.waitForURL(`**/builds/${build.id}/tests`);
    await person.close();
  });

  it('says that failures are not new, and nothing about tests that pass', async () => {
    const suite = makeSuite('Contract tests');
    await report(suite, [failing('keeps failing'), reported('passes', 'passed')]);
    const again = await report(suite, [failing('keeps failing'), reported('passes', 'passed')]);
    const fixed = await report(suite, [reported('keeps failing', 'passed'), reported('passes', 'passed')]);
    const person = await fixture.arrive('collaborator', { scripts: false });
    await person.go(hrefOf(again));
    await person.page.getByText('1 test fails, as before.').waitFor();
    await person.go(hrefOf(fixed));
    assert.equal((await person.page.locator('#build-findings').textContent())?.trim(), '');
    await person.go(`${hrefOf(fixed)}/tests`);
    await person.page.getByRole('row', { name: /keeps failing.*Passed.*fixed/ }).waitFor();
    await person.close();
  });

  it('says that results may be missing if a report could not be read, and keeps old pages of a deleted suite', async () => {
    const suite = makeSuite('Broken tests');
    const build = await report(suite, [failing('is cut off')]);
    const malformed = 'report.xml: line 12: <unclosed>';
    fixture.db.sqlite
      .prepare('UPDATE build_reports SET malformed = ? WHERE build_id = ?')
      .run(malformed, build.id);
    deleteSuite(fixture.db, suite);
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go(`${hrefOf(build)}/tests`);
    await page.getByText(`so results may be missing: ${malformed}`).waitFor();
    await page.getByRole('link', { name: 'is cut off' }).click();
    await page.getByRole('heading', { name: 'is cut off' }).waitFor();
    await page.getByRole('figure').getByText('Failed in the only build.').first().waitFor();
    await person.close();
  });

  it('lists the tests of a build, failing ones first, by result and by text, in pages', async () => {
    const suite = makeSuite('Integration tests');
    const build = await report(suite, [
      ...passing,
      failing('a very long name '.repeat(20).trim(), { classname: 'NoSpaceAtAll'.repeat(20) }),
      reported('loads the library', 'errored'),
      reported('wavers', 'passed', { isFlaky: true, message: 'timed out once', details: '' }),
      reported('waits for stock', 'skipped', { durationMs: undefined }),
    ]);
    for (const dark of [false, true]) {
      const person = await fixture.arrive('owner', { dark });
      const { page } = person;
      await person.go(`${hrefOf(build)}/tests`);
      const results = page.getByRole('navigation', { name: 'Results' });
      assert.deepEqual(
        (await results.getByRole('link').allTextContents()).map(text => text.replace(/\s+/g, ' ')),
        ['All 124', 'New failures 2', 'Failed 1', 'Errored 1', 'Skipped 1', 'Passed 121'],
      );
      const rows = page.getByRole('table', { name: 'Tests of this build' }).getByRole('row');
      assert.match((await rows.nth(1).textContent()) ?? '', /a very long name/);
      assert.match((await rows.nth(3).textContent()) ?? '', /wavers.*passed on retry/s);
      assert.equal(await rows.count(), 51);
      await person.inspect('tests-tab');
      await person.close();
    }
    const person = await fixture.arrive('collaborator', { scripts: false });
    const { page } = person;
    await person.go(`${hrefOf(build)}/tests`);
    const shown = async () => {
      const names: (string | null)[] = [];
      for (;;) {
        names.push(...(await page.locator('.test-name').allTextContents()));
        const more = page.getByRole('link', { name: 'More tests' });
        if ((await more.count()) === 0) return names;
        await person.follow(more);
      }
    };
    const all = await shown();
    assert.equal(all.length, 124);
    assert.equal(new Set(all).size, 124, 'each test is on one page');
    await person.follow(page.getByRole('link', { name: /^Skipped/ }));
    assert.deepEqual(await shown(), ['waits for stock']);
    await person.follow(page.getByRole('link', { name: /^Passed/ }));
    await page.getByLabel('Find tests by name').fill('ADDS 11');
    await person.follow(page.getByRole('button', { name: 'Find' }));
    assert.equal((await shown()).length, 11, '11 and 110 to 119');
    await page.getByLabel('Find tests by name').fill('no such test');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.getByText('No matching tests').waitFor();
    await page.getByRole('link', { name: 'All tests' }).click();
    await page.getByText('wavers').waitFor();
    await person.close();
  });

  it('shows the history of a test, and why it is flaky with both builds', async () => {
    const suite = makeSuite('Browser tests');
    for (let at = 0; at < 28; at += 1)
      await report(suite, [
        at % 9 === 4
          ? failing('opens the menu', { durationMs: 900 + at * 10 })
          : reported('opens the menu', at % 9 === 7 ? 'skipped' : 'passed', { durationMs: 300 + at * 25 }),
        reported('closes the menu', 'passed'),
      ]);
    const failed = await report(suite, [failing('opens the menu')], { digest: 'same' });
    const { id } = rerunBuild(fixture.db, failed, suite);
    const passed = await finishBuild(fixture.db, id, [reported('opens the menu', 'passed')], {
      digest: 'same',
    });
    for (const dark of [false, true]) {
      const person = await fixture.arrive('owner', { dark });
      const { page } = person;
      await person.go(`${hrefOf(failed)}/tests?q=opens`);
      await page.getByRole('link', { name: 'opens the menu' }).click();
      await page.getByText('Flaky.', { exact: true }).waitFor();
      await page.getByRole('img', { name: /Failed in 4 of the latest 30 builds/ }).waitFor();
      await person.inspect('test');
      assert.equal(await page.getByRole('table').getByRole('row').count(), 31);
      await page.getByRole('link', { name: 'failed in one build' }).click();
      await page.waitForURL(`**/builds/${failed.id}`);
      await page.getByText('Known to be flaky.').waitFor();
      await page.getByRole('link', { name: 'passed in another' }).click();
      await page.waitForURL(`**/builds/${passed.id}`);
      await person.close();
    }
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    await page.getByRole('link', { name: /^\d flaky tests?$/ }).click();
    await page.getByRole('row', { name: /opens the menu.*Browser tests.*failed in one build/ }).waitFor();
    const why = page.locator('td[data-label=Why]').first();
    assert.equal(await why.locator('> *').count(), 1, 'a narrow page shows the sentence as one text');
    await person.inspect('flaky-tests');
    await person.close();
  });

  it('sorts the tests of a suite, and shows those of one branch', async () => {
    const suite = makeSuite('Slow tests');
    await report(suite, [
      reported('is slow', 'passed', { durationMs: 61_000 }),
      reported('is fast', 'passed', { durationMs: 2 }),
      failing('is broken'),
    ]);
    await report(suite, [
      reported('is slow', 'passed', { durationMs: 62_000 }),
      reported('is fast', 'passed', { durationMs: 3 }),
      failing('is broken'),
      reported('is new', 'passed', { isFlaky: true }),
    ]);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/suites/${suite.id}/tests`);
    const first = async (order: string) => {
      await page
        .getByRole('navigation', { name: 'Order of the tests' })
        .getByRole('link', { name: order })
        .click();
      await page.locator('.pills [aria-current]', { hasText: order }).waitFor();
      return page.locator('.test-name').first().textContent();
    };
    assert.equal(await first('Slowest'), 'is slow');
    assert.equal(await first('Flaky'), 'is new');
    assert.equal(await first('Newest'), 'is new');
    assert.equal(await first('Failing'), 'is broken');
    await page.getByRole('row', { name: /is broken.*Failed.*2 of 2 failed.*1\.3 s/ }).waitFor();
    await person.inspect('suite-tests');
    await page.getByRole('navigation', { name: 'Branch' }).getByRole('link', { name: 'main' }).click();
    await page.waitForURL(/branch=main/);
    assert.equal(await page.locator('.test-name').count(), 4);
    await person.go(`/ui/projects/${project.id}/suites/${suite.id}/tests?branch=other&sort=slowest`);
    await page.getByText('No test results').waitFor();
    await person.close();
  });

  it('does not exist for strangers, nor below another project', async () => {
    const suite = makeSuite('Secret tests');
    const build = await report(suite, [failing('is secret')]);
    const person = await fixture.arrive();
    await person.go(`${hrefOf(build)}/tests`);
    const test = (await person.page.locator('.test-name').getAttribute('href')) ?? '';
    assert.match(test, /\/tests\/\d+$/);
    const other = fixture.makeProject('Other');
    const elsewhere = test.replace(`/${project.id}/`, `/${other.id}/`);
    assert.equal((await person.context.request.get(elsewhere)).status(), 404);
    await person.close();
    const stranger = await fixture.arrive('stranger');
    for (const path of [
      test,
      `${hrefOf(build)}/tests`,
      `/ui/projects/${project.id}/flaky`,
      `/ui/projects/${project.id}/suites/${suite.id}/tests`,
    ])
      assert.equal((await stranger.context.request.get(path)).status(), 404, path);
    await stranger.close();
    assert.ok(findBuild(fixture.db, project.id, build.id));
  });
});

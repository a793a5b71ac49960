// How suites develop: the charts on the page of a suite's tests, and the trends in the overview of a project.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

describe('the trends of suites', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Trending');
  });
  after(() => fixture?.close());

  /** Runs a suite `count` times: every seventh build fails with some failed tests, every thirteenth is errored. */
  const runMany = (suite: Suite, count: number, hasTests: boolean) =>
    Array.from({ length: count }, (_, at) => {
      const { id } = fixture.makeCommit(project, `Commit ${at}`, [suite]);
      const build = listLatestBuilds(fixture.db, id).get(suite.id);
      assert.ok(build);
      moveBuild(fixture.db, build.id, 'start');
      const end = at % 13 === 12 ? 'error' : at % 7 === 6 ? 'fail' : 'pass';
      const failed = end === 'fail' ? 1 + (at % 5) : 0;
      const finishedAt = Date.now() - (count - at) * 3_600_000;
      moveBuild(fixture.db, build.id, end, {
        startedAt: finishedAt - 20_000 - 400 * at - 9_000 * (at % 4),
        finishedAt,
        ...(hasTests &&
          end !== 'error' && {
            tests: {
              passed: 1_240 + at - failed,
              failed,
              errored: 0,
              skipped: 3,
              newFailures: failed,
              fixed: 0,
              flaky: 0,
            },
          }),
      });
      return build.id;
    });

  it('are charts of duration and pass rate, with links to the builds and a table', async () => {
    const [suite] = fixture.makeSuites(project, 'Unit tests');
    assert.ok(suite);
    const ids = runMany(suite, 104, true);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/suites/${suite.id}`);
    await page.getByRole('link', { name: 'Tests and trends' }).click();
    const durations = page.getByRole('figure', { name: /^Duration/ });
    await durations.getByRole('img', { name: /^Duration Median .* passed\.$/ }).waitFor();
    await page.getByRole('img', { name: /^Pass rate Newest .* lowest 99/ }).waitFor();
    await person.inspect('suite-charts');

    assert.equal(await durations.locator('a').count(), 100);
    await page.getByText('Show these builds as a table').click();
    assert.equal(await page.getByRole('table').getByRole('row').count(), 101);
    await page
      .getByRole('cell', { name: /^99\.\d+ %$/ })
      .first()
      .waitFor();
    await durations.locator('a').nth(3).hover();
    await durations.locator('a').nth(3).click();
    await page.waitForURL(`**/builds/${ids[7]}`);

    const dark = await fixture.arrive('collaborator', { dark: true });
    await dark.go(`/ui/projects/${project.id}/suites/${suite.id}/tests?branch=main`);
    await dark.inspect('suite-charts');
    await dark.page.getByLabel('Branch').selectOption('');
    await dark.page.getByRole('button', { name: 'Show' }).click();
    await dark.page.waitForURL(/[?&]branch=$/);
    await dark.go(`/ui/projects/${project.id}/suites/${suite.id}/tests?branch=gone%3Cb%3E`);
    await dark.page.getByText('No build of this suite has ended yet on the branch gone<b>.').waitFor();
    await dark.close();
    await person.close();
  });

  it('are shown at a glance in the overview, and stay current', async () => {
    const [plain, fresh] = fixture.makeSuites(project, 'Lint', 'Packaging for all distributions');
    assert.ok(plain && fresh);
    runMany(plain, 12, false);
    const commit = fixture.makeCommit(project, 'The newest', [fresh]);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const trends = page.getByRole('region', { name: 'Trends' });
    await trends.getByRole('img', { name: /^Pass rate of the last \d+ runs: newest/ }).waitFor();
    await trends.getByText('1,345 tests').waitFor();
    await trends.getByRole('img', { name: /^Last 12 runs, newest 51 s, 1 did not pass$/ }).waitFor();
    assert.equal(await trends.getByRole('link', { name: fresh.name }).count(), 0, 'it has not run yet');
    fixture.end(commit, 'pass');
    await trends.getByRole('link', { name: fresh.name }).waitFor();
    await person.inspect('project-trends');
    await trends.getByRole('link', { name: 'Lint' }).click();
    await page.getByRole('heading', { name: 'Tests of Lint' }).waitFor();
    assert.equal(await page.getByRole('figure').count(), 1, 'there is no pass rate without test results');
    await person.close();
    const dark = await fixture.arrive('owner', { dark: true });
    await dark.go(`/ui/projects/${project.id}`);
    await dark.inspect('project-trends');
    await dark.close();
  });
});

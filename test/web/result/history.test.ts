// The history of a suite and of a project: figures, charts, branches, and the order of suites.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

describe('the history of suites', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Trending');
  });
  after(() => fixture?.close());

  const hrefOf = (suite: Suite) => `/ui/projects/${project.id}/suites/${suite.id}`;

  /** Runs a suite `count` times, hourly: every seventh build fails with some failed tests, every thirteenth is errored. */
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
          at % 2 === 0 && {
            steps: { prepare: 210, checkout: 900, 'launch PostgreSQL': 2_400, command: 41_000, collect: 350 },
          }),
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
  const moveToBranch = (buildId: bigint | undefined, branch: string) =>
    fixture.db.sqlite
      .prepare(
        'UPDATE build_requests SET branch = ? WHERE id = (SELECT build_request_id FROM builds WHERE id = ?)',
      )
      .run(branch, buildId);

  it('opens the page of a suite: figures, and charts whose builds are reached by pointer and keyboard', async () => {
    const [suite] = fixture.makeSuites(project, 'Unit tests');
    assert.ok(suite);
    const ids = runMany(suite, 56, true);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(hrefOf(suite));
    const tile = (label: string) => page.locator('.figures > div', { hasText: label });
    assert.match((await tile('Success rate').textContent()) ?? '', /82\.6 % *38 of 46 builds passed/);
    assert.match((await tile('Median duration').textContent()) ?? '', /\d+ s .*of the last 7 days/);
    assert.match((await tile('Time to fix').textContent()) ?? '', /1 h 0 min.*Median of 7 failures, last/);
    const durations = page.getByRole('figure', { name: /^Duration/ });
    await durations
      .getByRole('img', { name: /^Duration Last 50 builds: 38 passed, 8 failed, 4 errored\. Longest/ })
      .waitFor();
    await page.getByRole('img', { name: /^Pass rate of tests Newest .* lowest 99/ }).waitFor();
    const steps = page.getByRole('region', { name: 'Slowest steps' }).getByRole('listitem');
    assert.match((await steps.nth(0).textContent()) ?? '', /Command\s+41 s/);
    assert.match((await steps.nth(1).textContent()) ?? '', /Launch of PostgreSQL\s+2\.4 s/);
    await person.inspect('suite-history');

    assert.equal(await durations.locator('a').count(), 50);
    await durations.locator('a').nth(3).hover();
    await durations.locator('a').nth(3).click();
    await page.waitForURL(`**/builds/${ids[9]}`);

    await page.goBack();
    await page.getByText('Show these builds as a table').focus();
    await page.keyboard.press('Enter');
    assert.equal(await page.getByRole('table').getByRole('row').count(), 51);
    await page
      .getByRole('cell', { name: /^99\.\d+ %$/ })
      .first()
      .waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/builds/${ids.at(-1)}`);
    await person.close();
  });

  it('shows one branch, with the default branch one click away, and keeps the choice in the address', async () => {
    const [suite] = fixture.makeSuites(project, 'Branches');
    assert.ok(suite);
    const ids = runMany(suite, 8, false);
    moveToBranch(ids[0], 'topic/one');
    moveToBranch(ids[6], 'topic/one');
    const dark = await fixture.arrive('collaborator', { dark: true });
    const { page } = dark;
    await dark.go(hrefOf(suite));
    const builds = () => page.getByRole('figure').locator('a').count();
    assert.equal(await builds(), 8);
    await page.getByText(/topic\/one first failed/).waitFor();
    await page.getByRole('navigation', { name: 'Branch' }).getByRole('link', { name: 'main' }).click();
    await page.waitForURL(/\?branch=main$/);
    assert.equal(await builds(), 6);
    assert.equal(await page.locator('.failing-now').count(), 0);
    await page.getByLabel('Other branch').fill('topic/one');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.waitForURL(/\?branch=topic%2Fone$/);
    assert.equal(await builds(), 2);
    await dark.inspect('suite-history-branch');
    await page.getByRole('link', { name: 'All branches' }).click();
    await page.waitForURL(new RegExp(`${suite.id}$`));
    await dark.go(`${hrefOf(suite)}?branch=gone%3Cb%3E`);
    await page.getByText('No build of this suite has ended on the branch gone<b>.').waitFor();
    await dark.close();
  });

  it('says what will appear before the first build, and shows the build as soon as it ends', async () => {
    const [suite] = fixture.makeSuites(project, 'Fresh');
    assert.ok(suite);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(hrefOf(suite));
    await page.getByText('No build has ended yet').waitFor();
    await person.inspect('suite-history-empty');
    const commit = fixture.makeCommit(project, 'First', [suite]);
    fixture.end(commit, 'fail');
    await page.getByText('0 of 1 build passed').waitFor();
    await page.getByText('No failure is fixed yet').waitFor();
    await page.getByText('Appears after the next build that passes').waitFor();
    const tabs = page.getByRole('navigation', { name: 'Suite' });
    await tabs.getByRole('link', { name: 'Settings' }).click();
    await page.getByRole('button', { name: 'Save suite' }).waitFor();
    await tabs.getByRole('link', { name: 'Tests' }).click();
    await page.getByText('No test results').waitFor();
    await tabs.getByRole('link', { name: 'History' }).click();
    await page.getByText('0 of 1 build passed').waitFor();
    await person.close();
  });

  it('is on the overview of the project, its own page, and the list of suites', async () => {
    const other = fixture.makeProject('Compared');
    const mine = project;
    project = other;
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${other.id}/history`);
    await page.getByText('No build request has finished yet').waitFor();
    await person.inspect('project-history-empty');
    const [plain, fresh] = fixture.makeSuites(other, 'Lint', 'Packaging for all distributions');
    assert.ok(plain && fresh);
    runMany(plain, 12, false);
    const commit = fixture.makeCommit(other, 'The newest', [fresh]);
    await person.go(`/ui/projects/${other.id}`);
    const panel = page.getByRole('region', { name: 'History' });
    await panel.getByRole('img', { name: /^Last 12 runs, newest 51 s, 1 did not pass$/ }).waitFor();
    await panel.getByText('91.6 % passed').waitFor();
    assert.equal(await panel.getByRole('link', { name: fresh.name }).count(), 0, 'it has not run yet');
    fixture.end(commit, 'fail');
    await panel.getByText('0 % passed', { exact: true }).waitFor();
    await person.inspect('project-overview-history');
    await panel.getByRole('link', { name: 'History of all suites' }).click();
    await page.getByText('11 of 13 build requests passed').waitFor();
    const rows = page.getByRole('table', { name: /^Suites/ }).getByRole('row');
    assert.match((await rows.nth(1).textContent()) ?? '', /Packaging.*Failed.*0 % 0 of 1/s, 'it fails now');
    await person.inspect('project-history');
    await page.getByRole('link', { name: 'Slowest' }).click();
    await page.waitForURL(/sort=slowest/);
    assert.match((await rows.nth(1).textContent()) ?? '', /Lint.*Passed.*91\.6 % 11 of 12.*1 h 0 min/s);
    await page.getByRole('navigation', { name: 'Branch' }).getByRole('link', { name: 'main' }).click();
    await page.waitForURL(/sort=slowest&branch=main/);
    await rows.getByRole('link', { name: 'Lint' }).click();
    await page.getByText('11 of 12 builds passed').waitFor();
    assert.equal(await page.getByRole('figure').count(), 1, 'there is no pass rate without test results');
    await page.getByRole('navigation', { name: 'Project' }).getByRole('link', { name: 'Suites' }).click();
    await page.getByRole('row', { name: /Lint make lint.*Passed.*91\.6 % 11 of 12.*51 s/ }).waitFor();
    await person.inspect('suites');
    await person.close();
    const dark = await fixture.arrive('owner', { dark: true });
    for (const [path, name] of [
      ['', 'project-overview-history'],
      ['/history', 'project-history'],
      ['/suites', 'suites'],
    ]) {
      await dark.go(`/ui/projects/${other.id}${path}`);
      await dark.inspect(name ?? '');
    }
    await dark.close();
    project = mine;
  });
});

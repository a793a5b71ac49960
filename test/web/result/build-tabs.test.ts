// The tabs of a build: counts, what an empty tab says, live updates, and keyboard use.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

describe('the tabs of a build', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Tabbed');
  });
  after(() => fixture?.close());

  const enqueue = (...names: string[]) => {
    const suites = fixture.makeSuites(project, ...names);
    const { id } = fixture.makeCommit(project, 'Fix the roof', suites);
    const builds = listLatestBuilds(fixture.db, id);
    return suites.map(suite => {
      const build = builds.get(suite.id);
      assert.ok(build);
      return { id: build.id, href: `/ui/projects/${project.id}/builds/${build.id}` };
    });
  };
  const counts = { passed: 1_200, failed: 4, errored: 1, skipped: 2, newFailures: 3, fixed: 1, flaky: 0 };

  it('lead from the log to tests, artifacts and changes, which explain what to do when they are empty', async () => {
    const [build] = enqueue('Unit tests', 'Lint');
    assert.ok(build);
    moveBuild(fixture.db, build.id, 'start');
    moveBuild(fixture.db, build.id, 'pass', { exitCode: 0 });
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(build.href);
    const tabs = page.getByRole('navigation', { name: 'Build', exact: true });
    assert.deepEqual(await tabs.getByRole('link').allInnerTexts(), ['Log', 'Tests', 'Artifacts', 'Changes']);
    assert.equal(await tabs.locator('[aria-current]').textContent(), 'Log');
    await person.inspect('build-tabs-log');
    for (const [label, title] of [
      ['Tests', 'No test results'],
      ['Artifacts', 'No artifacts'],
      ['Changes', 'Nothing to compare with'],
    ] as const) {
      await tabs.getByRole('link', { name: label }).focus();
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: title }).waitFor();
      assert.equal(await tabs.locator('[aria-current]').textContent(), label);
      assert.match(await page.title(), new RegExp(`^Passed · ${label} · Unit tests · Tabbed`));
      await person.inspect(`build-tab-${label.toLowerCase()}-empty`);
    }
    await page.getByRole('link', { name: 'Lint' }).click();
    await page.getByRole('heading', { name: 'Lint' }).waitFor();
    assert.match(page.url(), /\/changes$/, 'another suite opens on the same tab');
    await person.close();
  });

  it('show how many new failures and artifacts there are as soon as the build has ended', async () => {
    const [build] = enqueue('Integration tests');
    assert.ok(build);
    moveBuild(fixture.db, build.id, 'start');
    const person = await fixture.arrive('owner', { dark: true });
    const { page } = person;
    await person.go(`${build.href}/tests`);
    await page.getByRole('heading', { name: 'No test results yet' }).waitFor();
    const log = await person.context.newPage();
    await log.goto(build.href);
    await log.getByRole('button', { name: 'Follow' }).waitFor();
    moveBuild(fixture.db, build.id, 'fail', {
      exitCode: 1,
      tests: counts,
      artifacts: 12,
      artifactsBytes: 99,
    });
    for (const one of [page, log]) {
      await one.getByRole('link', { name: 'Tests 3 new' }).waitFor();
      await one.getByRole('link', { name: 'Artifacts 12' }).waitFor();
      assert.match(await one.title(), /^Failed · /);
    }
    await person.inspect('build-tabs-counts');
    await person.close();
  });

  it('show the number of tests when no failure is new', async () => {
    const [build] = enqueue('Smoke tests');
    assert.ok(build);
    moveBuild(fixture.db, build.id, 'start');
    moveBuild(fixture.db, build.id, 'fail', { exitCode: 1, tests: { ...counts, newFailures: 0 } });
    const person = await fixture.arrive('collaborator', { scripts: false });
    await person.go(build.href);
    await person.page.getByRole('link', { name: 'Tests 1,207' }).waitFor();
    await person.close();
  });

  it('do not exist for strangers', async () => {
    const [build] = enqueue('Private tests');
    assert.ok(build);
    const stranger = await fixture.arrive('stranger');
    for (const tab of ['tests', 'artifacts', 'changes'])
      assert.equal((await stranger.context.request.get(`${build.href}/${tab}`)).status(), 404, tab);
    await stranger.close();
  });
});

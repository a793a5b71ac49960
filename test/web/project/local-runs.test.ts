// Local runs on the pages: whose they are, where to find them, and that nothing else shows them.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { findProject, type Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { addSnapshot } from '../../store/fixture.ts';
import { commitFields } from '../../support/app.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

describe('local runs', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture?.close());

  /** A local run of the collaborator, whose working tree is on main. */
  function runLocally(project: Project, suite: Suite, end: 'start' | 'fail') {
    const { db, people } = fixture;
    const { id: accountId, email } = people.collaborator.account;
    const snapshotId = addSnapshot(db, { projectId: project.id, accountId });
    const request = createBuildRequest(db, project, 'main', email, { trigger: 'local', snapshotId });
    moveRequest(db, request.id, 'fetch');
    const commit = recordCommit(db, project.id, {
      ...commitFields(`${snapshotId.toString(16)}`.padEnd(40, 'f')),
      message: 'Working tree of main',
      branches: '[]',
      local: true,
    });
    const decision = { suiteId: suite.id, suiteName: suite.name, runs: true, rules: [] };
    enqueueBuilds(db, request.id, commit, '', [decision]);
    const [build] = listBuildsOfRequest(db, request.id);
    assert.ok(build);
    moveBuild(db, build.id, 'start');
    if (end === 'fail') moveBuild(db, build.id, 'fail', { exitCode: 2 });
    return { build, commit };
  }

  it('are listed apart on the page of the project, with their state and by whom', async () => {
    const project = fixture.makeProject('Website');
    const [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    fixture.end(fixture.makeCommit(project, 'Fix the footer', [suite]), 'pass');
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    assert.equal(await page.getByRole('heading', { name: 'Local runs' }).count(), 0);

    const { build } = runLocally(project, suite, 'start');
    await page.getByRole('heading', { name: 'Local runs' }).waitFor();
    const runs = page.locator('.local-runs + .request-list');
    await runs.getByText('Building').waitFor();
    await runs.getByText('by collaborator@example.org').waitFor();
    assert.equal(await page.title(), 'Passed · Website · Assay');
    assert.equal(await page.getByRole('row', { name: /Working tree/ }).count(), 0);
    assert.equal(await page.getByLabel('Branch, tag or commit').inputValue(), 'main');
    moveBuild(fixture.db, build.id, 'pass');
    await runs.getByText('Passed').waitFor();
    for (let more = 0; more < 3; more += 1) runLocally(project, suite, 'fail');
    await page.getByRole('link', { name: 'All local runs' }).waitFor();
    await person.inspect('project-local-runs');
    await page.getByRole('link', { name: 'All local runs' }).click();
    await page.getByRole('heading', { name: 'Local runs', level: 1 }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'working tree of main' }).count(), 4);
    await person.inspect('local-runs');
    await person.close();
  });

  it('say on their own pages whose they are, and cannot be deployed', async () => {
    const project = fixture.makeProject('Shop');
    const [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    const { build, commit } = runLocally(project, suite, 'fail');
    const notice = 'Local run by collaborator@example.org: working tree of main.';
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/builds/${build.id}`);
    await page.getByText(notice).waitFor();
    await person.inspect('local-build');
    await page.getByRole('link', { name: /Working tree of main/ }).click();
    await page.getByText(notice).waitFor();
    assert.equal(await page.getByRole('heading', { name: 'Deploy this commit' }).count(), 0);
    assert.equal(await page.getByText('Branches', { exact: true }).count(), 0);
    await person.inspect('local-commit');
    await person.go(`/ui/projects/${project.id}/deploys`);
    assert.equal(await page.getByText(commit.ref.slice(0, 10)).count(), 0);
    await person.close();

    const dark = await fixture.arrive('owner', { dark: true });
    await dark.go(`/ui/projects/${project.id}/builds/${build.id}`);
    await dark.inspect('local-build');
    await dark.go(`/ui/projects/${project.id}`);
    await dark.inspect('project-local-runs');
    await dark.close();
  });

  it('of collaborators get variables if the owner says so in the settings', async () => {
    const project = fixture.makeProject('Secrets');
    const person = await fixture.arrive();
    const { page } = person;
    const path = `/ui/projects/${project.id}/settings`;
    const box = page.getByLabel('Variables in local runs');
    for (const isOn of [true, false]) {
      await person.go(path);
      await box.setChecked(isOn);
      await page.getByRole('button', { name: 'Save settings' }).click();
      await page.getByText('Settings saved.').waitFor();
      assert.equal(await box.isChecked(), isOn);
      assert.equal(findProject(fixture.db, project.id)?.localVariables, isOn);
    }
    await person.inspect('settings-local-variables');
    await person.close();
  });
});

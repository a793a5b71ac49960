import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createBuildRequest } from '../../../src/store/builds.ts';
import { PROJECTS_RANKED } from '../../../src/store/project-ranking.ts';
import { findVisibleProject, type Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim();

describe('The page Activity', () => {
  let fixture: ProjectFixture;
  let website: Project;
  let backend: Project;
  let suites: Suite[];
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture.close());

  it('is the start page for people with more than one project; others start at their project or the list', async () => {
    const owner = await fixture.arrive();
    const startsAt = async () => {
      await owner.go('/ui');
      return new URL(owner.page.url()).pathname;
    };
    assert.equal(await startsAt(), '/ui/projects');
    await owner.page.getByText('No projects yet').waitFor();
    website = fixture.makeProject('Website');
    assert.equal(await startsAt(), `/ui/projects/${website.id}`);
    backend = fixture.makeProject('Backend');
    suites = fixture.makeSuites(website, 'Unit tests', 'Browser tests', 'Lint');
    assert.equal(await startsAt(), '/ui/activity');
    await owner.page.getByText('No builds yet').waitFor();
    assert.equal(await owner.page.locator('.top nav a').first().textContent(), 'Activity');
    await owner.inspect('activity-empty');
    await owner.close();
  });

  it('shows what runs, waits and ended in all projects, and nothing to a stranger', async () => {
    fixture.end(fixture.makeCommit(website, 'Paint the door', suites), 'pass', 'pass', 'pass');
    fixture.end(fixture.makeCommit(backend, 'Open the window', suites), 'pass', 'pass', 'fail');
    fixture.end(fixture.makeCommit(website, 'Polish the floor', suites), 'pass', 'start');
    fixture.makeCommit(backend, 'Clean the roof', suites);
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go('/ui/activity');
    const rowsOf = async (name: string) =>
      (
        await page
          .getByRole('region', { name: new RegExp(`^${name}`) })
          .getByRole('listitem')
          .filter({ has: page.locator('.name') })
          .allInnerTexts()
      ).map(squeezed);
    const [running = '', ...otherRunning] = await rowsOf('Running');
    assert.match(running, /Building Website main Polish the floor .*Ada · started by owner@example\.org/);
    assert.match(running, /1 of 3 suites done/);
    assert.deepEqual(otherRunning, []);
    const [waiting = ''] = await rowsOf('Waiting');
    assert.match(waiting, /Backend main Clean the roof .*Waiting for a free slot/);
    const recent = await rowsOf('Recent');
    assert.equal(recent.length, 2);
    assert.match(recent[0] ?? '', /^Failed Backend main Open the window .*ended just now/);
    const marks = page.getByRole('listitem').filter({ hasText: 'Open the window' }).locator('.suite-marks a');
    assert.deepEqual((await marks.allInnerTexts()).map(squeezed), [
      'Lint Failed',
      'Unit tests Passed',
      'Browser tests Passed',
    ]);
    await person.inspect('activity');
    await marks.first().click();
    await page.waitForURL(/\/builds\/\d+$/);
    await person.close();

    const stranger = await fixture.arrive('stranger');
    await stranger.go('/ui/activity');
    await stranger.page.getByText('No builds yet').waitFor();
    await stranger.close();
  });

  it('filters by the URL, also without scripts, and keeps filters on older pages', async () => {
    fixture.db.write(() => {
      for (let n = 1; n <= 35; n += 1)
        fixture.end(
          fixture.makeCommit(backend, `Change ${n}`, suites.slice(0, 1)),
          n === 2 ? 'fail' : 'pass',
        );
    });
    const person = await fixture.arrive('owner', { scripts: false });
    const { page } = person;
    const subjects = () => page.locator('.activity-row .subject').allInnerTexts();
    await person.go('/ui/activity');
    await page.getByLabel('State').selectOption('Failed');
    await person.follow(page.getByRole('button', { name: 'Filter' }));
    assert.deepEqual(await subjects(), ['Change 2', 'Open the window']);
    await page.getByLabel('Project').fill('back');
    await page.getByLabel('State').selectOption('Passed');
    await page.getByLabel('Branch').fill('main');
    await page.getByLabel('Only mine').check();
    await person.follow(page.getByRole('button', { name: 'Filter' }));
    assert.equal((await subjects())[0], 'Change 35');
    assert.equal((await subjects()).length, 30);
    await person.follow(page.getByRole('link', { name: 'Older' }));
    assert.deepEqual(await subjects(), ['Change 5', 'Change 4', 'Change 3', 'Change 1']);
    assert.equal(new URL(page.url()).searchParams.get('project'), 'back');
    await person.follow(page.getByRole('link', { name: 'Newer' }));
    assert.equal((await subjects())[0], 'Change 35');
    await page.getByLabel('Branch').fill('release');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText('Nothing matches').waitFor();
    await person.follow(page.getByRole('link', { name: 'Clear filters' }));
    assert.equal(new URL(page.url()).search, '');
    await person.close();
  });

  it('follows changes without a reload', async () => {
    const commit = fixture.makeCommit(website, 'Move the lamp', suites.slice(0, 1));
    const person = await fixture.arrive();
    const { page } = person;
    await person.go('/ui/activity');
    const row = (section: string) =>
      page
        .getByRole('region', { name: section })
        .getByRole('listitem')
        .filter({ hasText: 'Move the lamp' })
        .first();
    await row('Waiting').waitFor();
    fixture.end(commit, 'start');
    // Before the page looks by itself, as it does for the progress of running builds.
    await row('Running').waitFor({ timeout: 20_000 });
    fixture.end(commit, 'fail');
    await row('Recent').getByText('Failed', { exact: true }).first().waitFor();
    const failed = createBuildRequest(fixture.db, website, 'no-such-branch', 'owner@example.org', {
      trigger: 'push',
      triggerName: 'Forge',
      pushedBy: 'ada',
    });
    await page.getByText('push “Forge” (ada)').waitFor();
    assert.ok(failed);
    await person.close();
  });

  it('lists failing and running projects first, then the most recently active, a page at a time', async () => {
    const lint = suites.slice(0, 1);
    fixture.makeCommit(website, 'Keep going', lint);
    const calm = fixture.makeProject('Calm');
    fixture.end(fixture.makeCommit(calm, 'Make it pass', lint), 'pass');
    const quiet = fixture.makeProject('Quiet');
    const broken = fixture.makeProject('Broken');
    fixture.end(fixture.makeCommit(broken, 'Break it', lint), 'fail');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go('/ui/projects');
    const names = async () => page.locator('#projects .name').allInnerTexts();
    assert.deepEqual(await names(), ['Broken', 'Website', 'Backend', 'Calm', 'Quiet']);
    fixture.end(fixture.makeCommit(quiet, 'Wake up', lint), 'pass');
    await page.locator('#projects tr', { hasText: 'Wake up' }).waitFor();
    assert.deepEqual(await names(), ['Broken', 'Website', 'Backend', 'Quiet', 'Calm']);
    await person.inspect('projects-ranked');
    fixture.db.write(() => {
      for (let n = 1; n <= 50; n += 1) fixture.makeProject(`Idle ${n}`);
    });
    await person.go('/ui/projects?q=e');
    assert.equal((await names()).length, 50);
    await person.follow(page.getByRole('link', { name: 'Next' }));
    await page.getByText('Page 2 of 2').waitFor();
    assert.deepEqual(await names(), ['Idle 5', 'Idle 4', 'Idle 3', 'Idle 2', 'Idle 1']);
    await person.follow(page.getByRole('link', { name: 'Previous' }));
    assert.equal((await names())[0], 'Broken');
    await person.close();
  });

  it('shows the projects that were active last to people with more projects than can be ranked', async () => {
    const ownerId = fixture.people.stranger.account.id;
    fixture.db.write(() => {
      for (let n = 1; n <= PROJECTS_RANKED + 1; n += 1) fixture.makeProject(`Many ${n}`, ownerId);
    });
    const [first] = fixture.db.sqlite
      .prepare('SELECT * FROM projects WHERE owner_id = ? ORDER BY id LIMIT 1')
      .all(ownerId) as Project[];
    const oldest = findVisibleProject(fixture.db, ownerId, first?.id as bigint) as Project;
    fixture.end(fixture.makeCommit(oldest, 'Still alive', suites.slice(0, 1)), 'pass');
    const person = await fixture.arrive('stranger');
    const { page } = person;
    await person.go('/ui/projects');
    assert.deepEqual(await page.locator('#active-projects .name').allInnerTexts(), ['Many 1']);
    assert.equal(await page.locator('#projects .name').first().textContent(), `Many ${PROJECTS_RANKED + 1}`);
    await person.follow(page.getByRole('link', { name: 'Older projects' }));
    assert.equal(await page.locator('#projects .name').count(), 50);
    await person.go('/ui/projects?q=many+7');
    assert.equal(await page.locator('#projects .name').first().textContent(), 'Many 799');
    await person.go('/ui/activity?state=passed');
    assert.deepEqual(await page.locator('.activity-row .subject').allInnerTexts(), ['Still alive']);
    await person.close();
  });
});

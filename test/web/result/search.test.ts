// The search in logs on the page: over all projects that a person sees, by keyboard, without scripts; and the block on the
// page of a build that says whether its failure was seen before.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { buildLogPath } from '../../../src/store/data/paths.ts';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import { recordFailureLines } from '../../../src/store/result/failure-lines.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

describe('the search in logs', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let website: Project;
  let shop: Project;
  const suitesOf = new Map<Project, Suite>();
  before(async () => {
    fixture = await openProjectFixture();
    [website, shop] = ['Website', 'Shop'].map(name => fixture.makeProject(name)) as [Project, Project];
    for (const project of [website, shop])
      suitesOf.set(project, fixture.makeSuites(project, 'Unit tests')[0] as Suite);
  });
  after(() => fixture?.close());

  async function addBuild(project: Project, log: string, end: 'pass' | 'fail' = 'fail') {
    const suite = suitesOf.get(project) as Suite;
    const commit = fixture.makeCommit(project, 'Fix the roof', [suite]);
    fixture.end(commit, end);
    const id = listLatestBuilds(fixture.db, commit.id).get(suite.id)?.id as bigint;
    await fixture.writeLog(id, log);
    const build = { id, projectId: project.id };
    if (end === 'fail') await recordFailureLines(fixture.db, build, buildLogPath(fixture.data, id));
    return { id, href: `/ui/projects/${project.id}/builds/${id}` };
  }
  const filler = Array.from({ length: 300 }, (_, at) => `line ${at + 1} of the log`).join('\n');

  it('finds lines in all projects, and leads to the line in its log', async () => {
    await addBuild(website, `start\nError: the <b>database</b> refused the connection\n`);
    const other = await addBuild(shop, `${filler}\nerror: The <B>Database</B> refused it\n`);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go('/ui/dependencies');
    await page.keyboard.press('/');
    await page.getByRole('heading', { name: 'Search logs' }).waitFor();
    await page.getByRole('heading', { name: 'Search the logs of all builds' }).waitFor();
    await person.inspect('search-empty');
    await page.keyboard.type('the <b>database');
    await page.keyboard.press('Enter');
    await page.getByText('2 lines in 2 builds').waitFor();
    assert.deepEqual(await page.locator('.search-hits h2').allInnerTexts(), [
      'Shop › Unit tests',
      'Website › Unit tests',
    ]);
    assert.deepEqual(await page.locator('.search-hits mark').allInnerTexts(), [
      'The <B>Database',
      'the <b>database',
    ]);
    await person.inspect('search-results');
    await page.getByRole('link', { name: 'Line 301: error: The <B>Database</B> refused it' }).click();
    await page.waitForURL(`**${other.href}#L301`);
    await page.locator('#L301.picked').waitFor();
    await person.close();
  });

  it('selects by project, suite, branch, state, day and case', async () => {
    await addBuild(website, 'gamma one\n', 'pass');
    await addBuild(shop, 'Gamma two\n');
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    const shown = async () => {
      await person.follow(page.getByRole('button', { name: 'Search', exact: true }));
      return (await page.locator('.search-hits code mark').allInnerTexts()).length;
    };
    await person.go('/ui/search?q=gamma');
    assert.equal(await shown(), 2);
    await page.getByLabel('Project').selectOption('Website');
    assert.equal(await shown(), 1);
    await page.getByLabel('Suite').selectOption('Unit tests');
    assert.equal(await shown(), 1);
    await page.getByLabel('State').selectOption('failed');
    assert.equal(await shown(), 0);
    await person.go('/ui/search?q=gamma&case=true');
    assert.equal(await shown(), 1);
    await page.getByLabel('Match case').uncheck();
    await page.getByLabel('Branch').fill('next');
    assert.equal(await shown(), 0);
    await page.getByText('Every log that matches the filters was searched').waitFor();
    await person.close();
  });

  it('offers the chosen project even if the person sees too many to offer all', async () => {
    // As many as are offered, all newer than Website.
    for (let count = 0; count < 500; count += 1) fixture.makeProject(`Service ${count}`);
    const person = await fixture.arrive('owner');
    await person.go(`/ui/search?q=gamma&project=${website.id}`);
    const choice = person.page.getByLabel('Project');
    assert.equal(await choice.inputValue(), `${website.id}`);
    assert.equal(await choice.locator('option').count(), 502, 'all projects, Website, and 500 newer ones');
    await person.close();
  });

  it('shows nobody the logs of projects that they do not see', async () => {
    await addBuild(website, 'delta is private\n');
    const person = await fixture.arrive('stranger');
    await person.go('/ui/search?q=delta+is');
    await person.page.getByText('Nothing found').waitFor();
    await person.go(`/ui/search?q=delta+is&project=${website.id}`);
    await person.page.getByText('This project does not exist').waitFor();
    await person.close();
  });

  it('says what is wrong with a text, and continues with older builds', async () => {
    for (let at = 0; at < 11; at += 1) await addBuild(shop, 'epsilon\n'.repeat(6));
    const person = await fixture.arrive();
    const { page } = person;
    await person.go('/ui/search?q=ab');
    await page.getByText('Enter 3 to 200 characters').waitFor();
    await person.go('/ui/search?q=epsilon');
    await page.getByText('50 lines in 10 builds').waitFor();
    await page.getByRole('link', { name: 'Search older builds' }).click();
    await page.getByText('55 lines in 11 builds').waitFor();
    assert.equal(await page.locator('.search-hits > li').count(), 11);
    await person.close();
    const plain = await fixture.arrive('owner', { scripts: false });
    await plain.go('/ui/search?q=epsilon');
    await plain.page.getByRole('link', { name: 'Search older builds' }).click();
    await plain.page.getByText('5 lines in 1 build').waitFor();
    await plain.close();
  });

  it('is offered by the page of a failed build, which says when the failure was seen', async () => {
    const reason = (at: number) => `start\n[${at} ms] Error: zeta cannot be reached on port ${at}\n`;
    const first = await addBuild(website, reason(1));
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(first.href);
    await page.getByText('is in no other build of this project.').waitFor();
    for (let at = 2; at < 5; at += 1) await addBuild(website, reason(at * 100));
    const last = await addBuild(website, reason(5_000));
    await person.go(last.href);
    await page.getByRole('heading', { name: 'Seen before' }).waitFor();
    await page.getByText(/First seen just now on main, 3 times since, last just now on main\./).waitFor();
    await person.inspect('build-seen-before');
    await page.getByRole('link', { name: 'Search logs for this line' }).click();
    await page.getByRole('heading', { name: 'Search logs' }).waitFor();
    await page.getByText('5 lines in 5 builds').waitFor();
    await person.go(first.href);
    await page.getByText(/First seen in this build, 4 times since/).waitFor();
    await person.close();
  });
});

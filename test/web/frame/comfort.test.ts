// What every page offers to people who know their way: keyboard shortcuts, the quick switcher and notifications.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { updateAccount } from '../../../src/store/accounts.ts';
import type { Commit } from '../../../src/store/builds.ts';
import { listBuildsOfCommit } from '../../../src/store/builds.ts';
import { createProject, findProject, type Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import type { Person } from '../../support/browser.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const newest = { limit: 10, before: undefined };

describe('comfort', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let person: Person;
  let page: Page;
  let project: Project;
  let commits: Commit[];
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Website');
    const suites = fixture.makeSuites(project, 'Unit tests', 'Lint');
    commits = ['Lay the floor', 'Raise the roof'].map(message =>
      fixture.makeCommit(project, message, suites),
    );
    fixture.end(commits[0] as Commit, 'pass', 'fail');
    person = await fixture.arrive();
    page = person.page;
    await person.go('/');
  });
  after(async () => {
    await person?.close();
    await fixture?.close();
  });

  const here = () => new URL(page.url()).pathname;
  const projectHref = () => `/ui/projects/${project.id}`;
  const buildHref = () => {
    const [build] = listBuildsOfCommit(fixture.db, (commits[1] as Commit).id, newest);
    assert.ok(build);
    return `${projectHref()}/builds/${build.id}`;
  };
  const focusedText = () => page.evaluate('document.activeElement.textContent.trim()');
  const help = () => page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  const shortcutsShown = () => help().locator('dl > div').allInnerTexts();

  async function press(...keys: string[]): Promise<void> {
    for (const key of keys) await page.keyboard.press(key);
  }

  describe('keyboard shortcuts', () => {
    it('lead to the sections of the site', async () => {
      for (const [key, path] of [
        ['d', '/ui/dependencies'],
        ['m', '/ui/manual'],
        ['s', '/ui/search'],
      ] as const) {
        await person.go(projectHref());
        await Promise.all([page.waitForURL(`**${path}`), press('g', key)]);
      }
      // The search has the focus, so this is text.
      await press('g', 'p');
      assert.equal(await page.locator('#search-q').inputValue(), 'gp');
      await page.locator('h1').click();
      await Promise.all([page.waitForURL('**/ui/projects'), press('g', 'p')]);
    });

    it('move through the rows of a list, and open one', async () => {
      await person.go(projectHref());
      await press('j');
      assert.equal(await focusedText(), 'Raise the roof');
      await press('j');
      assert.equal(await focusedText(), 'Lay the floor');
      await press('j');
      assert.equal(await focusedText(), 'Lay the floor', 'it is the last one');
      await press('k');
      assert.equal(await focusedText(), 'Raise the roof');
      await Promise.all([page.waitForURL(`**/commits/${commits[1]?.id}`), press('Enter')]);
    });

    it('focus the filter of a page, or lead to the search', async () => {
      await person.go('/ui/projects');
      await press('/');
      await page.keyboard.type('web?');
      assert.equal(await page.getByLabel('Filter projects').inputValue(), 'web?');
      await person.go(`${projectHref()}/settings`);
      await Promise.all([page.waitForURL('**/ui/search'), press('/')]);
    });

    it('follow the log and go to its end', async () => {
      await person.go(buildHref());
      const follow = page.getByRole('button', { name: 'Follow' });
      await follow.waitFor();
      const isFollowing = await follow.getAttribute('aria-pressed');
      assert.equal(await follow.getAttribute('aria-keyshortcuts'), 'f');
      await press('f');
      assert.notEqual(await follow.getAttribute('aria-pressed'), isFollowing);
      await Promise.all([page.waitForURL('**/tests'), page.getByRole('link', { name: /^Tests/ }).click()]);
      await Promise.all([page.waitForURL(`**${buildHref()}`), press('l')]);
    });

    it('are listed for the page at hand, and can be switched off', async () => {
      await person.go(projectHref());
      await press('?');
      const onProject = (await shortcutsShown()).map(text => text.replace(/\s+/g, ' '));
      assert.ok(onProject.includes('j Next row'), onProject.join());
      assert.ok(onProject.includes('g p Projects'), onProject.join());
      assert.ok(!onProject.some(text => text.startsWith('f ')), 'there is no log here');
      await person.inspect('shortcuts');
      await press('j');
      assert.equal(await focusedText(), 'Close', 'a dialog is open');
      await press('Escape');
      await help().waitFor({ state: 'detached' });
      await press('Control+j', 'Alt+k');
      assert.notEqual(await focusedText(), 'Raise the roof', 'these are not ours');

      await page.getByRole('button', { name: 'Keyboard shortcuts' }).click();
      await page.getByLabel('Use shortcuts of a single key').uncheck();
      await help().getByRole('button', { name: 'Close' }).click();
      await press('g', 'd', '?', 'j');
      assert.equal(here(), projectHref());
      assert.equal(await help().count(), 0);
      await person.go('/ui/projects');
      assert.equal(await page.getByLabel('Filter projects').getAttribute('aria-keyshortcuts'), null);
      await press('?');
      assert.equal(await help().count(), 0, 'the browser keeps the setting');
      await page.getByRole('button', { name: 'Keyboard shortcuts' }).click();
      await page.getByLabel('Use shortcuts of a single key').check();
      await press('Escape', '?');
      await help().waitFor();
      await press('Escape');
    });
  });

  describe('quick switcher', () => {
    const dialog = () => page.getByRole('dialog', { name: 'Go to' });
    const input = () => dialog().getByRole('combobox');
    const options = () => dialog().getByRole('option');
    const chosen = () => dialog().locator('[aria-selected=true] .switch-name').textContent();

    before(() => {
      fixture.makeSuites(fixture.makeProject('Warehouse'), 'Lint', 'Stock count');
      const account = fixture.people.stranger.account.id;
      const { description, repositoryUrl, badge, cancelSuperseded } = project;
      const secret = createProject(fixture.db, {
        ...{
          ownerId: account,
          name: 'Lint of strangers',
          description,
          repositoryUrl,
          badge,
          cancelSuperseded,
        },
        keyPair: generateKeyPair('assay'),
      });
      fixture.makeSuites(secret, 'Lint everything', 'Website of strangers');
    });

    it('finds projects, suites and builds by words, and opens one with the keyboard', async () => {
      await person.go('/ui/manual');
      await press('Control+k');
      await input().fill('lint ware');
      await dialog().getByRole('group', { name: 'Suites' }).waitFor();
      assert.equal(await chosen(), 'Lint');
      assert.deepEqual(await options().locator('.switch-note').allInnerTexts(), ['Warehouse']);
      await Promise.all([page.waitForURL('**/suites/*'), press('Enter')]);
      await page.getByRole('link', { name: 'Go to', exact: true }).click();
      await input().fill('lin');
      await dialog().getByRole('group', { name: 'Latest builds' }).waitFor();
      const found = await options().allInnerTexts();
      assert.ok(
        found.some(text => text.includes('Website')),
        found.join(),
      );
      assert.ok(!found.some(text => text.includes('strangers') || text.includes('everything')), found.join());
      await press('ArrowUp', 'ArrowDown', 'ArrowDown');
      const active = await input().getAttribute('aria-activedescendant');
      assert.equal(active, 'switch-1');
      assert.equal(await page.locator(`#${active}`).getAttribute('aria-selected'), 'true');
      await person.inspect('switcher');
      await input().fill('nothing of that name');
      await dialog().getByText('Nothing found.').waitFor();
      assert.equal(await input().getAttribute('aria-expanded'), 'false');
      await press('Escape', 'Escape');
      await dialog().waitFor({ state: 'detached' });
    });

    it('shows what was visited last, and opens a new tab', async () => {
      await person.go('/ui/manual');
      await press('Control+k');
      assert.match((await chosen()) ?? '', /Lint · Warehouse$/, 'from the test before');
      await press('ArrowDown');
      await input().fill('web');
      await dialog().getByText('Website', { exact: true }).first().waitFor();
      const [tab] = await Promise.all([person.context.waitForEvent('page'), press('Control+Enter')]);
      await tab.waitForURL(`**${projectHref()}`);
      await tab.close();
      await press('Escape', 'Escape');
      assert.equal(here(), '/ui/manual');
    });

    it('is a page without scripts, and shows nothing of strangers', async () => {
      const plain = await fixture.arrive('collaborator', { scripts: false });
      await plain.go('/');
      await plain.page.getByRole('link', { name: 'Go to', exact: true }).click();
      await plain.page.getByRole('searchbox').fill('lint');
      await plain.page.getByRole('button', { name: 'Find' }).click();
      const section = plain.page.locator('section', {
        has: plain.page.getByRole('heading', { name: 'Suites' }),
      });
      assert.deepEqual(
        (await section.getByRole('link').allInnerTexts()).map(text => text.replace(/\s+/g, ' ')),
        ['Lint Warehouse', 'Lint Website'],
      );
      await plain.close();
      const stranger = await fixture.arrive('stranger', { scripts: false });
      await stranger.go('/ui/switch?q=web');
      assert.deepEqual(await stranger.page.getByRole('main').locator('.switch-name').allTextContents(), [
        'Website of strangers',
      ]);
      await stranger.close();
    });
  });

  describe('notifications', () => {
    /** Keeps what is shown, because a headless browser shows nothing. */
    async function arriveRecording(permission: 'granted' | 'denied') {
      const watcher = await fixture.arrive();
      await watcher.context.addInitScript(`
        let permission = 'default';
        window.Notification = class {
          static get permission() { return localStorage.getItem('permission') ?? permission; }
          static async requestPermission() {
            localStorage.setItem('asked', 'yes');
            localStorage.setItem('permission', '${permission}');
            return '${permission}';
          }
          constructor(title, { body }) {
            localStorage.setItem('shown', (localStorage.getItem('shown') ?? '') + title + ' ' + body + '|');
            window.shown = this;
          }
          close() {}
        };`);
      return watcher;
    }
    const read = (tab: Page, name: string) => tab.evaluate(`localStorage.getItem('${name}')`);
    async function untilShown(tab: Page, text: string): Promise<void> {
      const deadline = performance.now() + 60_000;
      while ((await read(tab, 'shown')) !== text)
        assert.ok(performance.now() < deadline, `${await read(tab, 'shown')} is not ${text}`);
    }

    it('are shown when a watched build and a watched commit end, on whatever page is open', async () => {
      const suites = fixture.makeSuites(fixture.makeProject('Watched'), 'Slow', 'Slower');
      const found = suites[0] as Suite;
      const watchedProject = findProject(fixture.db, found.projectId) as Project;
      const commit = fixture.makeCommit(watchedProject, 'Dig the pool', suites);
      const [slower, slow] = listBuildsOfCommit(fixture.db, commit.id, newest);
      assert.ok(slower && slow);
      const watcher = await arriveRecording('granted');
      const tab = watcher.page;
      const button = tab.getByRole('button', { name: 'Notify me' });
      const commitHref = `/ui/projects/${watchedProject.id}/commits/${commit.id}`;
      await watcher.go(commitHref);
      assert.equal(await read(tab, 'asked'), null, 'it asks only after a click');
      await button.click();
      await tab.locator('[data-watch][aria-pressed=true]').waitFor();
      await watcher.go(`/ui/projects/${watchedProject.id}/builds/${slow.id}`);
      await button.click();
      await tab.locator('[data-watch][aria-pressed=true]').waitFor();
      await watcher.inspect('notify');
      await tab.reload();
      await tab.locator('[data-watch][aria-pressed=true]').waitFor();
      // Another page shows it.
      await watcher.go('/ui/manual');
      moveBuild(fixture.db, slow.id, 'start');
      moveBuild(fixture.db, slow.id, 'fail', { exitCode: 1, finishedAt: Date.now() });
      await untilShown(tab, 'Failed: Slow Watched|');
      const [opened] = await Promise.all([
        watcher.context.waitForEvent('page'),
        tab.evaluate('window.shown.onclick()'),
      ]);
      await opened.waitForURL(`**/builds/${slow.id}`);
      assert.equal(await opened.getByRole('button', { name: 'Notify me' }).count(), 0, 'it has ended');
      await opened.close();
      moveBuild(fixture.db, slower.id, 'start');
      moveBuild(fixture.db, slower.id, 'pass', { exitCode: 0, finishedAt: Date.now() });
      await untilShown(tab, 'Failed: Slow Watched|Failed: Dig the pool Watched|');
      await watcher.close();
    });

    it('explain themselves if the browser blocks them', async () => {
      const watcher = await arriveRecording('denied');
      const tab = watcher.page;
      await watcher.go(buildHref());
      await tab.getByRole('button', { name: 'Notify me' }).click();
      await tab.getByText('Your browser blocks notifications of this site.').waitFor();
      assert.equal(await tab.locator('[data-watch]').getAttribute('aria-pressed'), 'false');
      await watcher.inspect('notify-blocked');
      await watcher.close();
    });

    it('say nothing about builds of strangers', async () => {
      const stranger = await fixture.arrive('stranger');
      const of = `/ui/watched?of=${encodeURIComponent(buildHref())}&of=nonsense`;
      const answer = await stranger.context.request.get(of);
      assert.deepEqual(await answer.json(), { watched: [] });
      const own = (await (await person.context.request.get(of)).json()) as { watched: { name: string }[] };
      assert.deepEqual(
        own.watched.map(({ name }) => name),
        ['Lint'],
      );
      await stranger.close();
    });
  });

  it('the navigation of an administrator takes one line, and two on a phone', async () => {
    updateAccount(fixture.db, fixture.people.collaborator.account.id, { admin: true });
    const admin = await fixture.arrive('collaborator');
    const tab = admin.page;
    const height = () => tab.evaluate("document.querySelector('.top').offsetHeight");
    await admin.go('/ui/manual');
    assert.ok(Number(await height()) < 60, `${await height()} px at 1280 px`);
    await tab.setViewportSize({ width: 390, height: 844 });
    assert.ok(Number(await height()) < 90, `${await height()} px at 390 px`);
    await tab.getByText('More', { exact: true }).click();
    await tab.getByRole('link', { name: 'Administration' }).click();
    await tab.waitForURL('**/ui/admin');
    await admin.close();
  });
});

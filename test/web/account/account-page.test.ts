// The account page in a browser: sessions, API key, theme, and without scripts.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { bootApp, type TestApp } from '../../support/app.ts';
import { basic } from '../../support/client.ts';
import { launchSignedIn, PASSWORD, type SignedIn } from '../signed-in.ts';

const NEW_PASSWORD = 'a longer sentence';

describe('the account page', { timeout: 600_000 }, () => {
  let app: TestApp;
  let people: SignedIn;
  before(async () => {
    app = await bootApp();
    people = await launchSignedIn(app);
  });
  after(async () => {
    await people?.close();
    await app?.close();
  });

  it('is reached from the header, and signs the other browser out while it watches a page', async () => {
    const { project_id } = app.plant(app.people.stranger);
    const [person, other] = [
      await people.arrive({}, 'stranger'),
      await people.arrive({ dark: true }, 'stranger'),
    ];
    await other.go(`/ui/projects/${project_id}`);
    const { page } = person;
    await person.go('/');
    await page.getByRole('link', { name: 'stranger@example.org' }).click();
    await page.getByRole('heading', { name: 'Account' }).waitFor();
    await person.inspect('account');
    await page.getByRole('button', { name: 'End all other sessions' }).click();
    const left = other.page.waitForResponse(
      response =>
        response.url().endsWith('/ui/sign-in') || response.status() === 204 || response.status() === 303,
    );
    await page.getByRole('dialog').getByRole('button', { name: 'End sessions' }).click();
    await page.getByText('ended.').waitFor();
    await left;
    await other.go('/ui');
    assert.equal(new URL(other.page.url()).pathname, '/ui/sign-in');
    await Promise.all([person.close(), other.close()]);
  });

  it('creates an API key, shows it once, and ends the old one, after a question', async () => {
    const { stranger } = app.people;
    const person = await people.arrive({}, 'stranger');
    const { page } = person;
    const whoami = async (as: string) => (await app.client.get('/whoami', as)).status;
    await person.go('/ui/account');
    await page.getByRole('button', { name: 'New API key' }).click();
    await page.keyboard.press('Escape');
    assert.equal(await whoami(stranger.as), 200);
    await page.getByRole('button', { name: 'New API key' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Create new API key' }).click();
    await page.getByText('It is not shown again.').waitFor();
    const key = (await page.locator('.copy-text').first().textContent()) ?? '';
    await person.inspect('api-key');
    assert.deepEqual(
      [await whoami(basic('stranger@example.org', key)), await whoami(stranger.as)],
      [200, 401],
    );
    await person.follow(page.getByRole('link', { name: 'Done' }));
    assert.ok(!(await page.content()).includes(key));
    await person.close();
  });

  it('applies the chosen theme on every page, whatever the system says', async () => {
    const { project_id, build_id } = app.plant();
    const pages = [
      '/ui/account',
      '/ui/projects',
      `/ui/projects/${project_id}`,
      `/ui/projects/${project_id}/builds/${build_id}`,
      '/ui/manual',
    ];
    for (const [theme, dark] of [
      ['dark', false],
      ['light', true],
    ] as const) {
      const person = await people.arrive({ dark }, 'collaborator');
      const { page } = person;
      await person.go('/ui/account');
      await page.getByLabel('Theme').selectOption(theme);
      await page.getByRole('region', { name: 'Display' }).getByRole('button', { name: 'Save' }).click();
      await page.getByText('Display settings saved.').waitFor();
      await person.inspect(`account-${theme}`);
      for (const path of pages) {
        await person.go(path);
        const background = await page.evaluate('getComputedStyle(document.body).backgroundColor');
        assert.equal(
          background,
          theme === 'dark' ? 'rgb(21, 20, 18)' : 'rgb(250, 249, 246)',
          `${theme} ${path}`,
        );
      }
      await person.inspect(`manual-${theme}`);
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.waitForURL(/sign-in/);
      const background = await page.evaluate('getComputedStyle(document.body).backgroundColor');
      assert.equal(
        background,
        dark ? 'rgb(21, 20, 18)' : 'rgb(250, 249, 246)',
        'the sign-in page follows the system',
      );
      await person.close();
    }
  });

  it('changes password and theme without scripts', async () => {
    const person = await people.arrive({ scripts: false }, 'unpaid');
    const { page } = person;
    await person.go('/ui/account');
    await page.getByLabel('Theme').selectOption('dark');
    await page.getByLabel('Time zone').fill('Europe/Berlin');
    await page.getByRole('region', { name: 'Display' }).getByRole('button').click();
    await page.getByText('Display settings saved.').waitFor();
    await page.getByLabel('Current password').fill(PASSWORD);
    await page.getByLabel('New password').fill(NEW_PASSWORD);
    await page.getByRole('button', { name: 'Change password' }).click();
    await page.getByText('Password changed. All other sessions were ended.').waitFor();
    await person.close();
  });

  const setTimes = (createdAt: string, timeZone: string) =>
    app.db.sqlite
      .prepare('UPDATE accounts SET created_at = ?, time_zone = ? WHERE email = ?')
      .run(Date.parse(createdAt), timeZone, 'admin@example.org');

  it('shows exact times in the zone of the browser or the chosen one, by keyboard and by touch', async () => {
    const person = await people.arrive({ timeZone: 'America/St_Johns', touch: true }, 'admin');
    const { page } = person;
    const time = page.locator('.properties time');
    const bubble = page.locator('.exact-time');
    for (const [at, zone, shown] of [
      ['2026-01-01T00:00:00Z', '', /^Wed,? 31 Dec 2025, 20:30:00 /],
      ['2026-01-01T00:00:00Z', 'Asia/Kolkata', /^Thu,? 1 Jan 2026, 05:30:00 GMT\+5:30$/],
      ['2026-03-29T00:59:59Z', 'Europe/Berlin', /^Sun,? 29 Mar 2026, 01:59:59 CET$/],
      ['2026-03-29T01:00:00Z', 'Europe/Berlin', /^Sun,? 29 Mar 2026, 03:00:00 CEST$/],
    ] as const) {
      setTimes(at, zone);
      await person.go('/ui/account');
      await page.waitForFunction("document.querySelector('time').title.includes('UTC') === false");
      assert.match((await time.getAttribute('title')) ?? '', shown);
      assert.match((await time.textContent()) ?? '', /ago$|month/);
    }
    await time.tap();
    assert.match((await bubble.textContent()) ?? '', /CEST$/);
    assert.equal(await bubble.isVisible(), true, 'after a tap');
    await page.getByRole('heading', { name: 'Account' }).tap();
    assert.equal(await bubble.isVisible(), false);
    await page.locator('#content').focus();
    await page.keyboard.press('Tab');
    await bubble.waitFor();
    await person.inspect('exact-time');
    await page.keyboard.press('Escape');
    assert.equal(await bubble.isVisible(), false);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Shift+Tab');
    await bubble.waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await bubble.isVisible(), false, 'the focus has left');
    await person.close();
  });

  it('shows the exact time of a tapped time in UTC without scripts', async () => {
    setTimes('2026-03-29T01:00:00Z', '');
    const person = await people.arrive({ scripts: false, touch: true }, 'admin');
    const { page } = person;
    await person.go('/ui/account');
    const time = page.locator('.properties time');
    const width = async () => (await time.boundingBox())?.width ?? 0;
    assert.equal(await time.getAttribute('title'), '2026-03-29 01:00:00 UTC');
    const before = await width();
    await time.tap();
    assert.ok((await width()) > before + 50, 'it is beside the relative time');
    await person.close();
  });
});

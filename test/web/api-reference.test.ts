// The API reference as a person reads it in a browser: wide and narrow, in both themes, by keyboard, without scripts.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { bootApp, type TestApp } from '../support/app.ts';
import { launchBrowser, openBrowser } from '../support/browser.ts';

const ENTRY = 'postProjectsByProjectIdDeployStrategies';

describe('the API reference', { timeout: 300_000 }, () => {
  let app: TestApp;
  let browser: Browser;
  before(async () => {
    app = await bootApp();
    browser = await launchBrowser();
  });
  after(async () => {
    await browser?.close();
    await app?.close();
  });

  for (const dark of [false, true])
    test(`the page with an open entry holds in the ${dark ? 'dark' : 'light'} theme, wide and narrow`, async () => {
      const person = await openBrowser(browser, app.url, { dark });
      // The whole page takes axe half a minute: one theme shows it, the other one has the same elements in fewer entries.
      await person.go(`/ui/api${dark ? '?q=strategies' : ''}#${ENTRY}`);
      await person.page.locator(`#${ENTRY}[open]`).waitFor();
      await person.inspect('api-reference');
      await person.close();
    });

  test('by keyboard: filtered by words in any order, opened, linked to', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    await person.go('/ui/api');
    await page.keyboard.press('/');
    await page.keyboard.type('strategies post');
    const shown = page.locator('.endpoint:visible');
    assert.deepEqual(await shown.locator('summary code').allTextContents(), [
      '/projects/<project_id>/deploy_strategies',
    ]);
    assert.equal(await page.getByRole('heading', { name: 'Credentials' }).isVisible(), false);
    await page.keyboard.press('Tab');
    await page.locator('summary:visible').focus();
    await page.keyboard.press('Enter');
    await page.getByText('Response 201: DeployStrategy').waitFor();
    await shown.getByRole('link', { name: 'Link to this entry' }).press('Enter');
    assert.match(page.url(), new RegExp(`#${ENTRY}$`));
    await page.getByRole('searchbox').fill('no-such-endpoint');
    await page.getByText('Nothing found.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: 'Credentials' }).waitFor();
    await person.close();
  });

  test('the basics have the address of this server, and every link of the page leads to a part of it', async () => {
    const person = await openBrowser(browser, app.url);
    await person.go('/ui/api');
    await person.page.getByText(`A=${app.url}`).waitFor();
    const missing = await person.page.evaluate(
      '[...document.querySelectorAll("a[href^=\\"#\\"]")].map(a => a.hash.slice(1)).filter(id => !document.getElementById(id))',
    );
    assert.deepEqual(missing, []);
    const ids = await person.page.evaluate('[...document.querySelectorAll("[id]")].map(one => one.id)');
    assert.equal(new Set(ids as string[]).size, (ids as string[]).length);
    await person.close();
  });

  test('no field of a PUT is required', async () => {
    const person = await openBrowser(browser, app.url);
    await person.go('/ui/api');
    const changes = person.page.locator('.endpoint', { has: person.page.locator('.method.put') });
    assert.ok((await changes.count()) >= 5);
    assert.equal(await changes.locator('td', { hasText: /^required$/ }).count(), 0);
    assert.ok((await changes.locator('td', { hasText: /^not blank$/ }).count()) >= 5);
    await person.close();
  });

  test('without scripts the server filters', async () => {
    const person = await openBrowser(browser, app.url, { scripts: false });
    await person.go('/ui/api?q=email+whoami');
    assert.deepEqual(await person.page.locator('.endpoint summary > code').allTextContents(), ['/whoami']);
    await person.close();
  });
});

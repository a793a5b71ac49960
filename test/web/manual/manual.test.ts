// The manual in a browser: signed in or not, wide and narrow, in both themes, by keyboard and without scripts; and all
// of its links.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { APIRequestContext, Browser } from 'playwright-core';
import { type App, startApp } from '../../../src/app.ts';
import { readSettings } from '../../../src/config.ts';
import { hashPassword } from '../../../src/domain/secret.ts';
import { createLog } from '../../../src/log.ts';
import { createAccount } from '../../../src/store/accounts.ts';
import { render } from '../../../src/web/manual/html.ts';
import { listTopics, parseTopic, type Topic } from '../../../src/web/manual/manual.ts';
import { topicNames } from '../../../src/web/manual/topics.ts';
import { launchBrowser, openBrowser, signIn } from '../../support/browser.ts';

const PASSWORD = 'correct horse battery';
const EMAIL = 'ada@example.org';

describe('the manual', { timeout: 300_000 }, () => {
  let data: string;
  let app: App;
  let browser: Browser;
  let stranger: APIRequestContext;

  before(async () => {
    data = await mkdtemp(join(tmpdir(), 'assay-web-'));
    const { settings } = readSettings(
      new Map([
        ['--data', data],
        ['--listen', '127.0.0.1:0'],
        ['--min-free-disk', '1MiB'],
      ]),
      { DOCKER_HOST: `unix://${data}/no-docker.sock` },
    );
    app = await startApp(
      settings,
      createLog(() => {}, {}),
    );
    const passwordHash = await hashPassword(PASSWORD);
    createAccount(app.db, { email: EMAIL, kind: 'user', admin: true, passwordHash, apiKey: null });
    browser = await launchBrowser();
    stranger = (await browser.newContext({ ignoreHTTPSErrors: true })).request;
  });
  after(async () => {
    await browser?.close();
    await app?.close();
    await rm(data, { recursive: true, force: true });
  });

  /** A page without an account. */
  const pageAt = async (path: string) => {
    const answer = await fetchPage(path);
    assert.equal(answer.status, 200, path);
    return answer.text;
  };
  const fetchPage = async (path: string) => {
    const answer = await stranger.get(app.url + path);
    return { status: answer.status(), text: await answer.text(), headers: answer.headers() };
  };

  test('every topic is reachable from the list, without signing in, under the strict policy', async () => {
    const list = await pageAt('/ui/manual');
    for (const name of topicNames) assert.ok(list.includes(`href="/ui/manual/${name}"`), name);
    for (const { name, title } of listTopics()) {
      const { status, text, headers } = await fetchPage(`/ui/manual/${name}`);
      assert.equal(status, 200, name);
      assert.match(
        headers['content-security-policy'] ?? '',
        /^default-src 'none'; style-src 'self'; script-src 'self'/,
      );
      assert.ok(text.includes(`<h1>${title}</h1>`), name);
      assert.doesNotMatch(text, /style="|<script>|onclick=/);
    }
    assert.equal((await fetchPage('/ui/manual/no-such-topic')).status, 404);
    assert.equal((await fetchPage('/ui/manual/..%2f..%2fstyle')).status, 404);
  });

  test('every link points to a topic, to a heading of one, or to a page of the product', async () => {
    const topics = new Map(listTopics().map(topic => [topic.name, topic]));
    let count = 0;
    for (const topic of topics.values())
      for (const [, href = ''] of render(topic).matchAll(/<a href="([^"]*)"/g)) {
        count += 1;
        const [, name = topic.name, id] = /^(?:\/ui\/manual\/([^#]+))?(?:#(.+))?$/.exec(href) ?? [];
        if (!/^(\/ui\/manual\/|#)/.test(href)) await pageAt(href);
        else {
          assert.ok(topics.has(name), `${topic.name}: ${href}`);
          const headings = (topics.get(name) as Topic).sections.map(section => section.id);
          assert.ok(id === undefined || headings.includes(id), `${topic.name}: ${href}`);
        }
      }
    assert.ok(count > 10);
  });

  test('raw HTML of the Markdown is shown as text', () => {
    const text = render(
      parseTopic('one', '# One\n\n<script>x()</script>\n\nA <b>b</b> `<i>` ![p](x.png).\n\n## <u>\n'),
    );
    assert.doesNotMatch(text, /<(script|b|i|u|img)\b/);
    assert.match(text, /&lt;script&gt;x\(\)&lt;\/script&gt;/);
  });

  test('the list and topics of every form pass all checks, wide and narrow', async () => {
    const person = await openBrowser(browser, app.url);
    for (const path of ['', '/settings', '/troubleshooting', '/cookbook', '/postgresql']) {
      await person.go(`/ui/manual${path}`);
      await person.inspect(`manual${path.replace('/', '-')}`);
    }
    await person.close();
  });

  test('the sign-in page and the navigation link to it', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    await person.go('/ui/sign-in');
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Manual' }).click();
    await page.waitForURL('**/ui/manual');
    await signIn(person, EMAIL, PASSWORD);
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Manual' }).click();
    await page.waitForURL('**/ui/manual');
    await page.getByRole('link', { name: 'Webhooks', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Webhooks' }).waitFor();
    assert.equal(
      await page.getByRole('navigation', { name: 'Topics' }).locator('[aria-current]').textContent(),
      'Webhooks',
    );
    await person.close();
  });

  test('can be searched by keyboard, and opens at the heading', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    await person.go('/ui/manual');
    await page.getByRole('searchbox', { name: 'Search the manual' }).focus();
    await page.keyboard.type('retries');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/ui/manual?q=retries');
    const first = page.getByRole('link', { name: 'Webhooks: Responses and retries' });
    await first.focus();
    await page.keyboard.press('Enter');
    await page.waitForURL('**/ui/manual/webhooks#responses-and-retries');
    await page.locator('.anchor').first().focus();
    await page.keyboard.press('Enter');
    assert.match(page.url(), /webhooks#create-one$/);
    await person.close();
  });

  test('a code block has a button that copies it', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    await person.context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await person.go('/ui/manual/caches');
    await page.getByRole('button', { name: 'Copy' }).first().click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate('navigator.clipboard.readText()');
    assert.match(String(copied), /^api \$P\/suites\/SUITE_ID\/environment_variables .*ccache$/);
    await person.close();
  });

  test('can be searched and read without scripts', async () => {
    const person = await openBrowser(browser, app.url, { scripts: false });
    const { page } = person;
    await person.go('/ui/manual');
    await page.getByRole('searchbox', { name: 'Search the manual' }).fill('<b> & no-such-word');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByText('Nothing found for “<b> & no-such-word”').waitFor();
    await page.getByRole('searchbox', { name: 'Search the manual' }).fill('whsec_');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByRole('link', { name: 'Webhooks: Check the signature' }).click();
    await page.getByRole('heading', { name: 'Check the signature' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Copy' }).count(), 0);
    await person.close();
  });
});

// Signing in and out, the first visit, the one-time link, and the protection against forms of other sites.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { type App, startApp } from '../../../src/app.ts';
import { readSettings } from '../../../src/config.ts';
import { hashPassword } from '../../../src/domain/secret.ts';
import { createLog } from '../../../src/log.ts';
import {
  createAccount,
  createSignInLink,
  findAccountByEmail,
  updateAccount,
} from '../../../src/store/accounts.ts';
import { getSetUpCode } from '../../../src/store/setup.ts';
import { localPath } from '../../../src/web/frame/session.ts';
import { launchBrowser, openBrowser, signIn } from '../../support/browser.ts';

const PASSWORD = 'correct horse battery';

describe('pages before and after signing in', { timeout: 600_000 }, () => {
  let data: string;
  let app: App;
  let browser: Browser;

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
    browser = await launchBrowser();
  });
  after(async () => {
    await browser?.close();
    await app?.close();
    await rm(data, { recursive: true, force: true });
  });

  it('makes the first visitor with the code the administrator, and keeps the code after a wrong one', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    const code = getSetUpCode(app.db);
    await person.go('/');
    assert.equal(new URL(page.url()).pathname, '/ui/setup');
    await person.inspect('set-up');
    person.expectRefusals();
    await page.getByLabel('Code').fill('AAAA-AAAA');
    await page.getByLabel('Email').fill('Admin@Example.org');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Create administrator' }).click();
    await page.getByText('This is not the code').waitFor();
    assert.equal(await page.getByLabel('Email').inputValue(), 'Admin@Example.org');
    assert.equal(await page.getByLabel('Password').inputValue(), '', 'a password is never sent back');
    await person.inspect('set-up-refused');

    await page.getByLabel('Code').fill(code.toLowerCase());
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Create administrator' }).click();
    await page.getByText('Assay is set up').waitFor();
    await page.getByRole('link', { name: 'Administration' }).waitFor();
    const account = findAccountByEmail(app.db, 'admin@example.org');
    assert.deepEqual([account?.admin, account?.kind], [true, 'user']);
    await person.inspect('projects-empty');
    await person.go('/ui/projects');
    assert.equal(await page.getByText('Assay is set up').count(), 0, 'a message is shown once');
    await person.go('/ui/setup');
    assert.equal(new URL(page.url()).pathname, '/ui/projects', 'there is no second set-up');
    await person.close();
  });

  it('redirects to the sign-in and back to the requested page, and signs out', async () => {
    const person = await openBrowser(browser, app.url, { dark: true });
    const { page } = person;
    await person.go('/ui/projects/new?from=somewhere');
    assert.equal(new URL(page.url()).pathname, '/ui/sign-in');
    await person.inspect('sign-in');
    person.expectRefusals();
    await page.getByLabel('Email').fill('admin@example.org');
    await page.getByLabel('Password').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('The email or the password is wrong.').waitFor();
    assert.equal(await page.getByLabel('Email').inputValue(), 'admin@example.org');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL(`${app.url}/ui/projects/new?from=somewhere`);
    const cookies = await person.context.cookies();
    assert.deepEqual(
      cookies.map(({ name, secure, httpOnly, sameSite, path }) => [name, secure, httpOnly, sameSite, path]),
      [['__Host-assay-session', true, true, 'Lax', '/']],
    );
    const api = await person.context.request.get('/projects');
    assert.equal(api.status(), 401, 'the API takes no cookie');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(/\/ui\/sign-in/);
    await person.context.addCookies(cookies);
    await person.go('/ui');
    assert.equal(new URL(page.url()).pathname, '/ui/sign-in', 'the session itself has ended');
    await person.close();
  });

  it('creates a project from the form, shows errors next to the field, and filters the list', async () => {
    const person = await openBrowser(browser, app.url);
    const { page } = person;
    await signIn(person, 'admin@example.org', PASSWORD);
    await person.go('/ui/projects');
    await page.getByRole('link', { name: 'New project' }).click();
    await person.inspect('new-project');
    person.expectRefusals();
    await page.getByLabel('Name').fill('Website');
    await page.getByLabel('Description').fill('<b>The</b> site');
    await page.getByLabel('Repository URL').fill('https://example.org/x');
    await page.getByRole('button', { name: 'Create project' }).click();
    const field = page.getByLabel('Repository URL');
    await page.getByText('Use the form user@host:path.git').waitFor();
    assert.equal(await field.getAttribute('aria-invalid'), 'true');
    assert.equal(await page.getByLabel('Description').inputValue(), '<b>The</b> site');
    await person.inspect('new-project-refused');
    await field.fill('git@git.example.org:team/website.git');
    await page.getByLabel('Only by hand').check();
    await page.getByRole('button', { name: 'Create project' }).click();
    await page.waitForURL(/\/ui\/projects\/\d+$/);
    await page.getByText('ssh-ed25519').waitFor();
    assert.equal(await page.title(), 'New · Website · Assay');
    await page.getByRole('button', { name: 'Copy key' }).waitFor();
    await person.inspect('project-new');
    await person.go('/ui/projects');
    await person.inspect('projects');
    await page.getByLabel('Filter projects').fill('nothing like it');
    await page.getByText('No project matches.').waitFor();
    await page.getByLabel('Filter projects').fill('site');
    assert.equal(await page.getByRole('link', { name: 'Website' }).isVisible(), true);
    await person.go('/ui/api?q=build_requests');
    await person.inspect('api');
    person.expectRefusals(2);
    await person.go('/ui/projects/1');
    await person.inspect('not-found');
    await person.go('/ui/favicon-nothing.svg');
    await person.close();
  });

  it('works as plain HTML without scripts', async () => {
    const person = await openBrowser(browser, app.url, { scripts: false });
    const { page } = person;
    await signIn(person, 'admin@example.org', PASSWORD);
    await person.go('/ui/projects');
    await page.getByRole('link', { name: 'New project' }).click();
    await page.getByLabel('Name').fill('Plain');
    await page.getByLabel('Repository URL').fill('git@git.example.org:team/plain.git');
    await page.getByLabel('Only by hand').check();
    await page.getByRole('button', { name: 'Create project' }).click();
    await page.waitForURL(/\/ui\/projects\/\d+$/);
    await person.go('/ui/projects?q=plain');
    assert.equal(await page.getByRole('rowheader').count(), 1);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(/\/ui\/sign-in/);
    await person.close();
  });

  it('sets a password with a one-time link, once', async () => {
    const account = createAccount(app.db, {
      email: 'invited@example.org',
      kind: 'collaborator',
      admin: false,
      passwordHash: null,
      apiKey: null,
    });
    const link = `/ui/welcome?link=${createSignInLink(app.db, account.id)}`;
    const person = await openBrowser(browser, app.url);
    await person.go(link);
    await person.inspect('welcome');
    await person.page.getByLabel('Password').fill(PASSWORD);
    await person.page.getByRole('button', { name: 'Set password and sign in' }).click();
    await person.page.getByText('Password set.').waitFor();
    assert.equal(await person.page.getByRole('link', { name: 'New project' }).count(), 0);
    person.expectRefusals();
    await person.go(link);
    await person.page.getByText('This link is no longer valid').waitFor();
    await person.close();
  });

  it('prevents a suspended account from signing in and from using its session', async () => {
    const passwordHash = await hashPassword(PASSWORD);
    const account = createAccount(app.db, {
      email: 'gone@example.org',
      kind: 'user',
      admin: false,
      passwordHash,
      apiKey: null,
    });
    const person = await openBrowser(browser, app.url);
    await signIn(person, 'gone@example.org', PASSWORD);
    // A live page would notice it, and be refused again.
    await person.go('/ui/api');
    updateAccount(app.db, account.id, { standing: 'suspended' });
    person.expectRefusals(2);
    await person.go('/ui/projects');
    await person.page.getByText('Your account is suspended').waitFor();
    await person.inspect('suspended');
    await person.page.getByRole('button', { name: 'Sign out' }).click();
    await person.page.getByLabel('Email').fill('gone@example.org');
    await person.page.getByLabel('Password').fill(PASSWORD);
    await person.page.getByRole('button', { name: 'Sign in' }).click();
    await person.page.getByText('This account is suspended.').waitFor();
    await person.close();
  });

  it('refuses forms without the session’s token or from another origin', async () => {
    const person = await openBrowser(browser, app.url);
    await signIn(person, 'admin@example.org', PASSWORD);
    await person.go('/ui/projects/new');
    const csrf = await person.page.locator('input[name=csrf]').first().inputValue();
    const form = { name: 'Forged', repository_url: 'git@git.example.org:a/b.git' };
    const post = (extra: Record<string, string>, headers: Record<string, string>) =>
      person.context.request.post('/ui/projects/new', {
        form: { ...form, ...extra },
        headers,
        maxRedirects: 0,
      });
    const own = { origin: app.url };
    assert.equal((await post({}, own)).status(), 403);
    assert.equal((await post({ csrf: `${csrf}x` }, own)).status(), 403);
    assert.equal((await post({ csrf }, { origin: 'https://evil.example' })).status(), 403);
    assert.equal((await post({ csrf }, { ...own, 'sec-fetch-site': 'cross-site' })).status(), 403);
    const signIns = await person.context.request.post('/ui/sign-in', {
      form: { email: 'admin@example.org', password: PASSWORD },
      headers: { origin: 'https://evil.example' },
      maxRedirects: 0,
    });
    assert.equal(signIns.status(), 403);
    assert.equal((await post({ csrf }, own)).status(), 303, 'the same with both in order is done');
    await person.close();
  });

  it('serves every page with a policy that forbids inline code and framing', async () => {
    const person = await openBrowser(browser, app.url);
    for (const path of ['/ui/sign-in', '/ui/api', '/ui/no-such-page']) {
      const headers = (await person.context.request.get(path)).headers();
      const policy = headers['content-security-policy'] ?? '';
      assert.match(policy, /default-src 'none'/);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.doesNotMatch(policy, /unsafe|data:|\*/);
      assert.equal(headers['x-frame-options'], 'DENY');
    }
    const style = await person.context.request.get('/ui/sign-in');
    const href = /href="(\/ui\/assets\/[^"]+)"/.exec(await style.text())?.[1] ?? '';
    const asset = await person.context.request.get(href);
    assert.equal(asset.headers()['cache-control'], 'public, max-age=31536000, immutable');
    await person.close();
  });
});

describe('the redirect after a sign-in', () => {
  const cases: [next: string | null, to: string][] = [
    ['/ui/projects/5?q=a', '/ui/projects/5?q=a'],
    ['/oauth2/authorize?client_id=1', '/oauth2/authorize?client_id=1'],
    ['//evil.example/ui', '/ui'],
    ['/\\evil.example/ui', '/ui'],
    ['https://evil.example/ui', '/ui'],
    ['/ui/../projects', '/ui'],
    ['/uix', '/ui'],
    ['/projects', '/ui'],
    ['javascript:alert(1)', '/ui'],
    ['/ui\t/x', '/ui'],
    [null, '/ui'],
  ];
  for (const [next, to] of cases)
    it(`goes from ${JSON.stringify(next)} to ${to}`, () => assert.equal(localPath(next), to));
});

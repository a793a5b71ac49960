// `assay login` through a real Chromium, and the page that explains how to install the client.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { signInWithBrowser } from '../../src/client/browser-sign-in.ts';
import { listTokens } from '../../src/store/applications.ts';
import { launchBrowser, openBrowser, type Person, signIn } from '../support/browser.ts';
import { type OAuthFixture, openOAuthFixture, PASSWORD } from '../web/account/oauth-fixture.ts';
import { type Running, runClient, startClient } from './fixture.ts';

const EMAIL = 'owner@example.org';

type Reply = { status: number; headers: Record<string, unknown>; text: string };

const ask = (url: string, headers: Record<string, string> = {}, method = 'GET') =>
  new Promise<Reply>((resolve, reject) => {
    get(url, { headers, method, agent: false, timeout: 20_000 }, response => {
      let text = '';
      response.setEncoding('utf8').on('data', chunk => {
        text += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text }),
      );
    }).on('error', reject);
  });

describe('signing in with the browser', { timeout: 600_000 }, () => {
  let fixture: OAuthFixture;
  let browser: Browser;
  let person: Person;
  let directory = '';
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'assay-browser-'));
    fixture = await openOAuthFixture();
    browser = await launchBrowser();
    person = await openBrowser(browser, fixture.url);
    await signIn(person, EMAIL, PASSWORD);
  });
  after(async () => {
    await browser?.close();
    await fixture?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  const env = () => ({ XDG_CONFIG_HOME: directory, BROWSER: 'true' });
  const run = (...args: string[]) => runClient(args, { env: env() });
  const tokens = () => listTokens(fixture.db, fixture.people.owner.account.id);

  /** Starts a sign-in and finds the address that it prints. */
  async function login(): Promise<{ client: Running; page: URL; back: string; state: string }> {
    const fingerprint = new X509Certificate(fixture.client.ca).fingerprint256;
    const client = await startClient(['login', fixture.url, '--fingerprint', fingerprint], { env: env() });
    await client.until('--with-key');
    const page = new URL(/https:\S+authorize\S+/.exec(client.stderr())?.[0] ?? '');
    const { searchParams } = page;
    return {
      client,
      page,
      back: searchParams.get('redirect_uri') ?? '',
      state: searchParams.get('state') ?? '',
    };
  }
  /** The browser leaves the server on purpose, which `Person` would report. */
  async function decide(page: URL, decision: 'Approve' | 'Deny', inspect = false): Promise<string> {
    const other = await person.context.newPage();
    await other.goto(page.href);
    if (inspect) {
      const text = (await other.locator('main').textContent()) ?? '';
      assert.match(
        text,
        /Assay on the command line, included with this server, asks to act for owner@example\.org/,
      );
      assert.match(text, /Continue only if you ran assay login yourself/);
    }
    await other.getByRole('button', { name: decision }).click();
    await other.waitForURL(/127\.0\.0\.1:\d+\/signed-in/);
    const shown = (await other.textContent('body')) ?? '';
    await other.close();
    return shown;
  }

  it('keeps the token of the browser, lists it, and ends it on sign-out', async () => {
    const { client, page, back } = await login();
    assert.match(back, /^http:\/\/127\.0\.0\.1:\d+\/signed-in$/);
    assert.equal(page.searchParams.get('code_challenge_method'), 'S256');
    assert.match(await decide(page, 'Approve', true), /You are signed in\. You can close this window\./);
    const { status, stdout, stderr } = await client.ended;
    assert.deepEqual([status, stdout], [0, `signed in to ${fixture.url} as ${EMAIL}\n`], stderr);
    const path = join(directory, 'assay/hosts.json');
    const [stored] = (JSON.parse(readFileSync(path, 'utf8')) as { hosts: { token: string }[] }).hosts;
    assert.ok(!`${stdout}${stderr}`.includes(stored?.token ?? '-'));
    await assert.rejects(ask(`${back}?state=x`), /ECONNREFUSED/, 'nothing listens any more');
    assert.match((await run('hosts')).stdout, /owner@example\.org {2}browser/);
    assert.equal((await run('api', 'GET', '/projects')).status, 0);
    assert.equal(tokens().length, 1);

    const second = await login();
    await decide(second.page, 'Approve');
    assert.equal((await second.client.ended).status, 0);
    assert.equal(tokens().length, 1, 'a new sign-in ends the one that it replaces');

    assert.equal((await run('logout')).status, 0);
    assert.equal(tokens().length, 0);
  });

  it('says what to do when the access was revoked, and forgets it without the server too', async () => {
    const { client, page } = await login();
    await decide(page, 'Approve');
    assert.equal((await client.ended).status, 0);
    await person.go('/ui/applications');
    await person.page.getByRole('row', { name: /Assay on the command line/ }).waitFor();
    fixture.db.sqlite.exec('DELETE FROM tokens');
    assert.equal((await run('api', 'GET', '/whoami')).status, 5);
    const builds = await run('builds', '--project', 'x');
    assert.equal(builds.status, 5);
    assert.ok(builds.stderr.includes(`"assay login ${fixture.url}" signs in`), builds.stderr);
    const path = join(directory, 'assay/hosts.json');
    writeFileSync(path, readFileSync(path, 'utf8').replaceAll(fixture.url, 'https://127.0.0.1:1'));
    const away = await run('logout');
    assert.equal(away.status, 0);
    assert.match(away.stderr, /could not end the sign-in .*: revoke it at/);
    assert.ok(!readFileSync(path, 'utf8').includes('token_'));
  });

  it('ends with 5 when the user denies it', async () => {
    const { client, page } = await login();
    assert.match(await decide(page, 'Deny'), /The sign-in was denied/);
    const { status, stderr } = await client.ended;
    assert.equal(status, 5);
    assert.match(stderr, /the sign-in was denied in the browser/);
    assert.equal(tokens().length, 0);
  });

  it('answers nothing but its own address, and only with the right state', async () => {
    const { client, page, back, state } = await login();
    const { origin, host } = new URL(back);
    for (const [url, headers, method, expected] of [
      [`${origin}/`, {}, 'GET', 404],
      [`${origin}/favicon.ico`, {}, 'GET', 404],
      [`${back}/?state=${state}&code=x`, {}, 'GET', 404],
      [`${back}?state=${state}&code=x`, {}, 'POST', 404],
      [`${back}?state=${state}&code=x`, { host: `evil.example:${new URL(back).port}` }, 'GET', 404],
      [`${back}?state=${state}&code=x`, { host: host.replace('127.0.0.1', 'localhost') }, 'GET', 404],
      [back, {}, 'GET', 400],
      [`${back}?state=wrong&code=x`, {}, 'GET', 400],
      [`${back}?state=wrong&error=access_denied`, {}, 'GET', 400],
    ] as const) {
      const reply = await ask(url, headers, method);
      assert.equal(reply.status, expected, `${method} ${url}`);
      assert.match(String(reply.headers['content-security-policy']), /^default-src 'none'/);
      assert.equal(reply.headers['x-content-type-options'], 'nosniff');
      assert.equal(reply.headers['cache-control'], 'no-store');
    }
    assert.match(await decide(page, 'Approve'), /You are signed in/, 'the sign-in still waits');
    assert.equal((await client.ended).status, 0);
  });

  it('does not accept a code that the server did not issue', async () => {
    const { client, back, state } = await login();
    const reply = await ask(`${back}?state=${state}&code=code_guessed`);
    assert.match(reply.text, /The sign-in failed\. The terminal shows why\./);
    const { status, stderr } = await client.ended;
    assert.equal(status, 5);
    assert.match(stderr, /did not accept the sign-in of the browser/);
  });

  it('stops after Ctrl-C, and after its deadline', async () => {
    const { client, back } = await login();
    client.child.kill('SIGINT');
    assert.equal((await client.ended).status, 130);
    await assert.rejects(ask(back), /ECONNREFUSED/);
    await assert.rejects(
      signInWithBrowser({ url: fixture.url, ca: fixture.client.ca }, { BROWSER: 'true' }, 20),
      /nobody signed in within/,
    );
  });

  it('explains the installation on a page that needs neither a sign-in nor scripts', async () => {
    for (const options of [{}, { dark: true }, { scripts: false }]) {
      const guest = await openBrowser(browser, fixture.url, options);
      await guest.go('/ui/manual');
      await guest.page.getByRole('contentinfo').getByRole('link', { name: 'Command line' }).click();
      await guest.page.getByRole('heading', { name: 'Command line' }).waitFor();
      await guest.inspect(`client${options.scripts === false ? '-plain' : ''}`);
      await guest.close();
    }
  });
});

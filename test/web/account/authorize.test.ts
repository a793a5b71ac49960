// OAuth in Chromium: signing in on the way, the consent page, and the redirect after each decision.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { findApplicationByClientId, listTokens } from '../../../src/store/applications.ts';
import { launchBrowser, openBrowser, type Person } from '../../support/browser.ts';
import { bodyOf, type OAuthFixture, openOAuthFixture, PASSWORD } from './oauth-fixture.ts';

const OUT_OF_BAND = 'urn:ietf:wg:oauth:2.0:oob';
const VERIFIER = 'a'.repeat(50);
const CHALLENGE = createHash('sha256').update(VERIFIER).digest('base64url');

describe('approving an application', { timeout: 600_000 }, () => {
  let fixture: OAuthFixture;
  let browser: Browser;
  before(async () => {
    fixture = await openOAuthFixture();
    browser = await launchBrowser();
  });
  after(async () => {
    await browser?.close();
    await fixture?.close();
  });

  /** A person who follows the application's request through the sign-in to the consent page. */
  async function arrive(fields: Record<string, string>, options: { scripts?: boolean; dark?: boolean } = {}) {
    const person = await openBrowser(browser, fixture.url, options);
    await person.go(fixture.authorizeUrl(fields));
    await signInHere(person);
    return person;
  }
  async function signInHere({ page }: Person) {
    assert.equal(new URL(page.url()).pathname, '/ui/sign-in');
    await page.getByLabel('Email').fill('owner@example.org');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL(/oauth2\/authorize/);
  }
  /** Submits the decision, and returns the URL that the browser is redirected to. */
  async function answer(person: Person, word: 'Approve' | 'Deny'): Promise<URL> {
    person.check();
    await person.page.getByRole('button', { name: word }).click();
    await person.page.waitForURL(url => url.href.startsWith(fixture.callback));
    const back = new URL(person.page.url());
    await person.context.close();
    return back;
  }
  const redeem = (fields: Record<string, string>) =>
    fixture.fetch('/oauth2/access_token', {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ grant_type: 'authorization_code', ...fields }),
    });
  const whoami = async (token: string) =>
    (await fixture.fetch('/whoami', { headers: { authorization: `Bearer ${token}` } })).status;

  it('asks after the sign-in, shows which application wants what, and returns a code and the state', async () => {
    const { clientId, clientSecret = '' } = fixture.register({ name: 'Dash & <b>board</b>' });
    const state = 'a b&c=d/é#';
    const request = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user,commits', state };
    const person = await arrive(request);
    const { page } = person;
    await page.getByRole('heading', { name: 'Approve Dash & <b>board</b>?' }).waitFor();
    await page.waitForLoadState();
    const text = (await page.locator('main').textContent()) ?? '';
    for (const output of [
      'admin@example.org',
      'owner@example.org',
      'see your email address',
      'see commits',
      fixture.callback,
    ])
      assert.ok(text.includes(output), `it says ${output}`);
    assert.doesNotMatch(text, /deploy/);
    await person.inspect('consent');
    const back = await answer(person, 'Approve');
    assert.equal(back.searchParams.get('state'), state);
    assert.deepEqual([...back.searchParams.keys()], ['code', 'state']);
    const code = back.searchParams.get('code') ?? '';

    const credentials = { client_id: clientId, client_secret: clientSecret };
    const wrong = await redeem({ ...credentials, client_secret: 'x', code, redirect_uri: fixture.callback });
    assert.deepEqual([wrong.status, (await bodyOf(wrong)).error], [401, 'invalid_client']);
    const right = await redeem({ ...credentials, code, redirect_uri: fixture.callback });
    const granted = await bodyOf(right);
    assert.deepEqual([right.status, granted.token_type, granted.scope], [200, 'bearer', 'user commits']);
    assert.equal(
      await whoami(granted.access_token ?? ''),
      200,
      'a failed login of the client did not use the code up',
    );
    const again = await redeem({ ...credentials, code, redirect_uri: fixture.callback });
    assert.deepEqual([again.status, (await bodyOf(again)).error], [400, 'invalid_grant']);
    assert.equal(
      await whoami(granted.access_token ?? ''),
      401,
      'a code that comes back revokes what it gave',
    );
  });

  it('returns a refusal, and grants nothing', async () => {
    const { clientId } = fixture.register();
    const person = await arrive({
      client_id: clientId,
      redirect_uri: fixture.callback,
      scope: 'user',
      state: 's',
    });
    const back = await answer(person, 'Deny');
    assert.deepEqual(Object.fromEntries(back.searchParams), { error: 'access_denied', state: 's' });
    assert.equal(listTokens(fixture.db, fixture.people.owner.account.id).length, 0);
  });

  it('asks each time, also without scripts', async () => {
    const { clientId } = fixture.register();
    const request = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user' };
    const person = await arrive(request, { scripts: false });
    await person.page.getByRole('button', { name: 'Approve' }).click();
    await person.page.waitForURL(url => url.href.startsWith(fixture.callback));
    await person.go(fixture.authorizeUrl(request));
    await person.page.getByRole('button', { name: 'Approve' }).waitFor();
    await person.context.close();
  });

  it('shows the code on a page for an application without a redirect URL', async () => {
    const { clientId, clientSecret = '' } = fixture.register({ redirectUri: OUT_OF_BAND });
    const request = { client_id: clientId, redirect_uri: OUT_OF_BAND, scope: 'user projects' };
    const person = await arrive(request, { dark: true });
    await person.page.getByRole('button', { name: 'Approve' }).click();
    const code = (await person.page.locator('.copy-text').textContent()) ?? '';
    await person.inspect('out-of-band');
    const granted = await redeem({
      client_id: clientId,
      client_secret: clientSecret,
      code,
      redirect_uri: OUT_OF_BAND,
    });
    assert.equal(granted.status, 200);
    await person.go(fixture.authorizeUrl(request));
    await person.page.getByRole('button', { name: 'Deny' }).click();
    await person.page.getByText('Denied. The application has no access.').waitFor();
    await person.close();
  });

  it('returns the token in the fragment in the implicit flow, and errors too', async () => {
    const { clientId } = fixture.register();
    const request = {
      client_id: clientId,
      redirect_uri: fixture.callback,
      scope: 'user',
      state: 'x y',
      response_type: 'token',
    };
    const back = await answer(await arrive(request), 'Approve');
    assert.equal(back.search, '');
    const given = Object.fromEntries(new URLSearchParams(back.hash.slice(1)));
    assert.deepEqual([given.token_type, given.scope, given.state], ['bearer', 'user', 'x y']);
    assert.equal(await whoami(given.access_token ?? ''), 200);
    const denied = await answer(await arrive(request), 'Deny');
    assert.deepEqual([denied.search, denied.hash], ['', '#error=access_denied&state=x+y']);
    const broken = await fixture.fetch(fixture.authorizeUrl({ ...request, scope: 'everything' }));
    assert.match(broken.headers.get('location') ?? '', /\/back#error=invalid_scope/);
  });

  it('shows a page for an unknown application or redirect URI, and does not redirect', async () => {
    const { clientId } = fixture.register();
    const right = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user' };
    const wrong: Record<string, string>[] = [
      { ...right, client_id: 'nobody' },
      { redirect_uri: fixture.callback, scope: 'user' },
      { client_id: clientId, scope: 'user' },
      { ...right, redirect_uri: `${fixture.callback}/` },
      { ...right, redirect_uri: `${fixture.callback}?x=1` },
      { ...right, redirect_uri: fixture.callback.toUpperCase() },
      { ...right, redirect_uri: 'https://evil.example/back' },
      { ...right, redirect_uri: 'javascript:alert(1)' },
      { ...right, redirect_uri: '' },
    ];
    for (const fields of wrong) {
      const refused = await fixture.fetch(fixture.authorizeUrl(fields));
      assert.deepEqual(
        [refused.status, refused.headers.get('location'), refused.headers.get('content-type')],
        [400, null, 'text/html; charset=utf-8'],
        JSON.stringify(fields),
      );
    }
    const twice = `${fixture.authorizeUrl(right)}&redirect_uri=${encodeURIComponent('https://evil.example/')}`;
    assert.match((await fixture.fetch(twice)).headers.get('location') ?? '', /\/back\?error=invalid_request/);
    const person = await openBrowser(browser, fixture.url);
    person.expectRefusals();
    await person.go(fixture.authorizeUrl({ ...right, redirect_uri: 'https://evil.example/back' }));
    await person.page.getByText('This request cannot be approved').waitFor();
    await person.inspect('authorize-refused');
    await person.close();
  });

  it('requires PKCE of public applications, and checks every challenge that was sent', async () => {
    const { clientId } = fixture.register({ isPublic: true });
    const request = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user', state: 's' };
    const errorOf = async (fields: Record<string, string>) => {
      const location = (await fixture.fetch(fixture.authorizeUrl(fields))).headers.get('location') ?? '';
      return (
        new URL(location).searchParams.get('error') ??
        new URLSearchParams(new URL(location).hash.slice(1)).get('error')
      );
    };
    assert.equal(await errorOf(request), 'invalid_request');
    assert.equal(await errorOf({ ...request, code_challenge: CHALLENGE }), 'invalid_request');
    assert.equal(
      await errorOf({ ...request, code_challenge: VERIFIER, code_challenge_method: 'plain' }),
      'invalid_request',
    );
    assert.equal(await errorOf({ ...request, response_type: 'token' }), 'unauthorized_client');
    assert.equal(await errorOf({ ...request, response_type: 'id_token' }), 'unsupported_response_type');
    assert.equal(await errorOf({ ...request, scope: '' }), 'invalid_scope');

    const fields = { ...request, code_challenge: CHALLENGE, code_challenge_method: 'S256' };
    const code = (await answer(await arrive(fields), 'Approve')).searchParams.get('code') ?? '';
    const body = { client_id: clientId, code, redirect_uri: fixture.callback };
    assert.equal((await bodyOf(await redeem(body))).error, 'invalid_grant');
    assert.equal(
      (await bodyOf(await redeem({ ...body, code_verifier: 'b'.repeat(50) }))).error,
      'invalid_grant',
    );
    assert.equal((await redeem({ ...body, code_verifier: VERIFIER })).status, 200);
  });

  it('refuses an approval that was not given on its own page, and one for a deleted application', async () => {
    const { clientId } = fixture.register();
    const request = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user' };
    const person = await arrive(request);
    const { page } = person;
    const csrf = await page.locator('input[name=csrf]').first().inputValue();
    const search = new URL(page.url()).search;
    const post = async (form: Record<string, string>, headers: Record<string, string>) =>
      (
        await person.context.request.post('/oauth2/authorize', {
          form: { request: search, decision: 'approve', ...form },
          headers,
          maxRedirects: 0,
        })
      ).status();
    assert.equal(await post({}, { origin: fixture.url }), 403);
    assert.equal(await post({ csrf }, { origin: 'https://evil.example' }), 403);
    const evil = search.replace(
      encodeURIComponent(fixture.callback),
      encodeURIComponent('https://evil.example/'),
    );
    assert.equal(await post({ csrf, request: evil }, { origin: fixture.url }), 400);
    const application = findApplicationByClientId(fixture.db, clientId);
    fixture.db.sqlite.prepare('DELETE FROM applications WHERE id = ?').run(application?.id);
    person.expectRefusals();
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('No application with this client_id is registered here.').waitFor();
    await person.close();
  });
});

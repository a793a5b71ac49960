// The applications page and the administration pages: keys and secrets that are shown once, accounts and standing.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { findAccount, findAccountByEmail } from '../../../src/store/accounts.ts';
import {
  createToken,
  findApplicationByClientId,
  listApplications,
  listTokens,
} from '../../../src/store/applications.ts';
import { findBuild, rerunBuild } from '../../../src/store/builds.ts';
import { findCache, openCache, recordCacheSize } from '../../../src/store/caches.ts';
import { findDeploy } from '../../../src/store/deploys.ts';
import { createCollaborator } from '../../../src/store/projects.ts';
import { createSuite } from '../../../src/store/suites.ts';
import { moveDependency, moveDeploy } from '../../../src/store/transition.ts';
import { launchBrowser, openBrowser, type Person, signIn } from '../../support/browser.ts';
import { basic, bearer } from '../../support/client.ts';
import { type OAuthFixture, openOAuthFixture, PASSWORD } from './oauth-fixture.ts';

describe('applications and administration', { timeout: 600_000 }, () => {
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

  async function arrive(
    who: 'owner' | 'stranger' | 'admin',
    options: { dark?: boolean } = {},
  ): Promise<Person> {
    const person = await openBrowser(browser, fixture.url, options);
    await signIn(person, `${who}@example.org`, PASSWORD);
    return person;
  }
  const accept = ({ page }: Person, name: string) =>
    page.getByRole('dialog').getByRole('button', { name }).click();
  const whoami = async (as: string) => (await fixture.client.get('/whoami', as)).status;
  const shown = async ({ page }: Person, at: number) =>
    (await page.locator('.copy-text').nth(at).textContent()) ?? '';

  it('registers an application, replaces its secret, and deletes it with its tokens', async () => {
    const person = await arrive('owner', { dark: true });
    const { page } = person;
    await person.go('/ui/applications');
    await person.inspect('applications-empty');
    await page.getByRole('link', { name: 'New application' }).click();
    person.expectRefusals(2);
    for (const bad of ['javascript:alert(1)', 'https://example.org/back#here']) {
      await page.getByLabel('Name').fill('Dashboard');
      await page.getByLabel('Redirect URL').fill(bad);
      await page.getByRole('button', { name: 'Create application' }).click();
      await page.getByText('Enter a complete address without a fragment').waitFor();
    }
    await person.inspect('application-refused');
    await page.getByLabel('Redirect URL').fill('https://app.example.org/back');
    await page.getByRole('button', { name: 'Create application' }).click();
    await page.getByRole('heading', { name: 'Dashboard registered' }).waitFor();
    const [clientId, secret] = [await shown(person, 0), await shown(person, 1)];
    await person.inspect('application-secret');
    const application = findApplicationByClientId(fixture.db, clientId);
    assert.ok(application);
    const isKnown = async (clientSecret: string) => {
      const answer = await fixture.fetch('/oauth2/revoke', {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({ client_id: clientId, client_secret: clientSecret, token: 'x' }),
      });
      return answer.status;
    };
    assert.equal(await isKnown(secret), 200);
    const { token } = createToken(fixture.db, {
      accountId: fixture.people.owner.account.id,
      applicationId: application.id,
      scopes: ['user', 'projects'],
    });
    assert.equal(await whoami(bearer(token)), 200);

    await page.getByRole('link', { name: 'Done' }).click();
    await person.inspect('applications');
    await page.getByRole('button', { name: 'New secret' }).click();
    await accept(person, 'New secret');
    await page.getByRole('heading', { name: 'New secret for Dashboard' }).waitFor();
    const renewed = await shown(person, 0);
    assert.deepEqual([await isKnown(secret), await isKnown(renewed)], [401, 200]);
    await page.getByRole('link', { name: 'Done' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await accept(person, 'Delete application');
    await page.getByText('Dashboard deleted.').waitFor();
    assert.deepEqual(listApplications(fixture.db, fixture.people.owner.account.id), []);
    assert.equal(await whoami(bearer(token)), 401);
    await person.close();
  });

  it('registers a public application without a secret', async () => {
    const person = await arrive('owner');
    const { page } = person;
    await person.go('/ui/applications/new');
    await page.getByLabel('Name').fill('Command line');
    await page.getByLabel('Redirect URL').fill('urn:ietf:wg:oauth:2.0:oob');
    await page.getByLabel('Public application').check();
    await page.getByRole('button', { name: 'Create application' }).click();
    await page.getByText('None. The application must use PKCE.').waitFor();
    await person.follow(page.getByRole('link', { name: 'Done' }));
    assert.equal(await page.getByRole('button', { name: 'New secret' }).count(), 0);
    await person.close();
  });

  it('lists granted access with its last use, and revokes it', async () => {
    const { clientId } = fixture.register({ name: 'Tracker' });
    const applicationId = findApplicationByClientId(fixture.db, clientId)?.id as bigint;
    const accountId = fixture.people.stranger.account.id;
    const { token } = createToken(fixture.db, { accountId, applicationId, scopes: ['user'] });
    const person = await arrive('stranger');
    const { page } = person;
    await person.go('/ui/applications');
    const row = page.getByRole('row', { name: /Tracker/ });
    await row.getByText('never').waitFor();
    assert.equal(await whoami(bearer(token)), 200);
    await page.reload();
    await row.getByText('just now').last().waitFor();
    await row.getByRole('button', { name: 'Revoke' }).click();
    await accept(person, 'Revoke');
    await page.getByText('Access revoked.').waitFor();
    assert.equal(await whoami(bearer(token)), 401);
    assert.deepEqual(listTokens(fixture.db, accountId), []);

    const foreign = createToken(fixture.db, {
      accountId: fixture.people.owner.account.id,
      applicationId,
      scopes: ['user'],
    });
    const csrf = await page.locator('input[name=csrf]').first().inputValue();
    for (const path of [
      `tokens/${foreign.id}/revoke`,
      `${applicationId}/delete`,
      `${applicationId}/secret`,
    ]) {
      const answer = await person.context.request.post(`/ui/applications/${path}`, {
        form: { csrf },
        headers: { origin: fixture.url },
        maxRedirects: 0,
      });
      assert.equal(answer.status(), 404, path);
    }
    assert.ok(findApplicationByClientId(fixture.db, clientId));
    assert.equal(await whoami(bearer(foreign.token)), 200);
    await person.close();
  });

  it('shows the status, the queue and the accounts to administrators only', async () => {
    const { project_id: projectId, build_id: buildId, suite_id: suiteId, ...planted } = fixture.plant();
    const build = findBuild(fixture.db, projectId, buildId);
    assert.ok(build);
    rerunBuild(fixture.db, build, { id: suiteId, name: 'Slow tests' });
    const person = await arrive('admin');
    const { page } = person;
    await page.getByRole('link', { name: 'Administration' }).click();
    for (const output of ['Version', 'Docker', 'Slots', 'Disk', 'Last backup'])
      await page.locator('dt').filter({ hasText: output }).first().waitFor();
    await page.getByRole('row', { name: /Slow tests Planted \d+ Enqueued/ }).waitFor();
    await page.getByRole('row', { name: /owner@example.org/ }).waitFor();
    await person.inspect('administration');
    rerunBuild(fixture.db, build, { id: suiteId, name: 'Late tests' });
    await page.getByRole('row', { name: /Late tests Planted \d+ Enqueued/ }).waitFor();
    const compile = page.getByRole('row', { name: /Compile of .* owner@example.org/ });
    moveDependency(fixture.db, planted.free_dependency_id, 'upload', { archiveHash: 'a'.repeat(64) });
    await compile.getByText('It starts in a moment.').waitFor();
    const queue = page.getByRole('region', { name: 'Queue' });
    assert.equal(
      await queue.getByRole('link', { name: /tests|Planted|Compile/ }).count(),
      0,
      'not their own',
    );
    await compile.getByRole('link', { name: 'owner@example.org' }).waitFor();
    await person.inspect('administration-queue');
    createCollaborator(fixture.db, projectId, fixture.people.admin.account.id);
    await page.reload();
    const row = queue.getByRole('row', { name: /Late tests/ });
    await row.getByRole('link', { name: /^Planted/ }).waitFor();
    await row.getByRole('link', { name: 'Late tests' }).click();
    await page.waitForURL(/\/builds\/\d+$/);
    await page.goBack();
    moveDependency(fixture.db, planted.free_dependency_id, 'start', { nonce: 'n' });
    await compile.getByText(/^Compiling/).waitFor();
    await person.close();
    const other = await arrive('owner');
    assert.equal(await other.page.getByRole('link', { name: 'Administration' }).count(), 0);
    other.expectRefusals();
    await other.go('/ui/admin');
    await other.page.getByText('Page not found').waitFor();
    assert.equal((await other.page.request.get('/ui/admin/stream')).status(), 404);
    await other.close();
  });

  it('lets only an administrator cancel a hanging deploy of any project', async () => {
    const { project_id: projectId, deploy_id: deployId } = fixture.plant(fixture.people.stranger);
    const own = fixture.plant(fixture.people.admin);
    moveDeploy(fixture.db, deployId, 'start');
    const person = await arrive('admin');
    const { page } = person;
    await person.go('/ui/admin');
    const deploys = page.locator('#pushing');
    const row = deploys.getByRole('row', { name: /Deploying/ });
    assert.equal(await row.getByRole('link').count(), 0, 'the administrator cannot open this project');
    await deploys.locator(`a[href="/ui/projects/${own.project_id}/deploys/${own.deploy_id}"]`).waitFor();
    await row.getByRole('button', { name: 'Cancel' }).click();
    await accept(person, 'Stop deploy');
    await row.getByText('Canceling').waitFor();
    await person.inspect('administration-deploys');
    assert.equal(findDeploy(fixture.db, projectId, deployId)?.cancelBecause, 'by admin@example.org');
    moveDeploy(fixture.db, deployId, 'cancel');
    await row.waitFor({ state: 'detached' });
    await person.close();
  });

  it('shows administrators all caches, the largest first, and empties one', async () => {
    const { suite_id: suiteId, project_id: projectId } = fixture.plant();
    const { suite_id: otherId } = fixture.plant();
    const measured = (id: bigint, sizeBytes: number) =>
      recordCacheSize(fixture.db, openCache(fixture.db, id), { sizeBytes, measuredAt: Date.now() });
    measured(suiteId, 2 << 20);
    measured(otherId, 7 << 20);
    const person = await arrive('admin');
    const { page } = person;
    await person.go('/ui/admin');
    await page.getByRole('link', { name: '9.0 MiB' }).click();
    await page.getByRole('heading', { name: 'Caches', exact: true }).waitFor();
    const rows = page.locator('#cache-list tbody tr');
    assert.deepEqual(await rows.locator('td:nth-child(3)').allTextContents(), ['7.0 MiB', '2.0 MiB']);
    await person.inspect('administration-caches');
    await rows.first().getByRole('button', { name: 'Empty' }).click();
    await accept(person, 'Empty');
    await page.getByText('Cache emptied.').waitFor();
    assert.equal(findCache(fixture.db, otherId)?.emptiedBecause, 'by admin@example.org');
    assert.equal(findCache(fixture.db, suiteId)?.emptiedAt, null);
    for (let n = 1; n <= 50; n += 1) {
      const name = `Nightly ${n}`;
      const suite = { projectId, name, description: '', command: 'true', image: null };
      measured(createSuite(fixture.db, suite).id, n << 10);
    }
    await person.go('/ui/admin/caches');
    assert.equal(await rows.count(), 50);
    await page.getByRole('link', { name: 'Next' }).click();
    await page.getByText('Page 2 of 2').waitFor();
    assert.equal(await rows.count(), 2);
    await page.getByLabel('Find caches').fill('nightly 3');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.waitForURL(/q=nightly\+3/);
    assert.equal(await rows.count(), 14);
    assert.match((await rows.first().textContent()) ?? '', /Nightly 43/);
    await page.getByLabel('Find caches').fill('no such suite');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.getByText('No cache matches “no such suite”.').waitFor();
    await person.close();
    const other = await arrive('owner');
    other.expectRefusals();
    await other.go('/ui/admin/caches');
    await other.page.getByText('Page not found').waitFor();
    await other.close();
  });

  it('creates an account with a working password and key, and resets them', async () => {
    const person = await arrive('admin');
    const { page } = person;
    await person.go('/ui/admin');
    const form = page.getByRole('region', { name: 'New account' });
    person.expectRefusals();
    await form.getByLabel('Email').fill('owner@example.org');
    await form.getByRole('button', { name: 'Create account' }).click();
    await page.getByText('An account with this email has already been added.').waitFor();
    await form.getByLabel('Email').fill('New@Example.org');
    await form.getByLabel('Kind').selectOption('collaborator');
    await form.getByRole('button', { name: 'Create account' }).click();
    await page.getByRole('heading', { name: 'Credentials of new@example.org' }).waitFor();
    const [password, key] = [await shown(person, 0), await shown(person, 1)];
    await person.inspect('account-secrets');
    assert.equal(await whoami(basic('new@example.org', key)), 200);
    assert.equal(findAccountByEmail(fixture.db, 'new@example.org')?.kind, 'collaborator');
    const newcomer = await openBrowser(browser, fixture.url);
    await signIn(newcomer, 'new@example.org', password);
    // A live page would notice the change and log an error to the console.
    await newcomer.go('/ui/api');

    await page.getByRole('link', { name: 'Done' }).click();
    await page.getByRole('link', { name: 'new@example.org' }).click();
    await page.getByRole('button', { name: 'Reset' }).click();
    await accept(person, 'Reset');
    await page.getByRole('heading', { name: 'Credentials of new@example.org' }).waitFor();
    assert.equal(await whoami(basic('new@example.org', key)), 401);
    assert.equal(await whoami(basic('new@example.org', await shown(person, 1))), 200);
    await newcomer.go('/ui/projects');
    assert.equal(new URL(newcomer.page.url()).pathname, '/ui/sign-in', 'they are signed out');
    await newcomer.close();
    await person.close();
  });

  it('changes a standing, which takes effect at once, but never the administrator’s own', async () => {
    const { stranger, admin } = fixture.people;
    const seen = await arrive('stranger');
    const person = await arrive('admin', { dark: true });
    const { page } = person;
    const account = (id: bigint) => `/ui/admin/accounts/${id}`;
    await person.go(account(stranger.account.id));
    await person.inspect('account');
    await page.getByLabel('Standing').selectOption('payment_required');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('stranger@example.org saved.').waitFor();
    assert.equal((await fixture.client.call('POST', '/projects', { as: stranger.as, form: {} })).status, 402);
    await seen.go('/ui/projects');
    await seen.page.getByText('Your account requires payment').waitFor();
    await seen.go('/ui/api');
    await person.go(account(stranger.account.id));
    await page.getByLabel('Standing').selectOption('suspended');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('row', { name: /stranger@example.org user suspended/ }).waitFor();
    assert.equal(await whoami(stranger.as), 401);
    seen.expectRefusals();
    await seen.go('/ui/projects');
    await seen.page.getByText('Your account is suspended').waitFor();
    await seen.close();

    await person.go(account(admin.account.id));
    person.expectRefusals(2);
    await page.getByLabel('Standing').selectOption('suspended');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('You cannot change your own standing.').waitFor();
    await page.getByLabel('Standing').selectOption('active');
    await page.getByLabel('Administrator').uncheck();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('You cannot remove your own administrator role.').waitFor();
    await person.inspect('account-refused');
    const own = findAccount(fixture.db, admin.account.id);
    assert.deepEqual([own?.standing, own?.admin], ['active', true]);
    await person.close();
  });
});

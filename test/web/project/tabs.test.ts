// The other tabs of a project: deploys, notifications, collaborators and settings, and what only the owner sees.
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { newSigningSecret } from '../../../src/domain/webhook/signature.ts';
import { findSignInLink } from '../../../src/store/accounts.ts';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { deployLogPath } from '../../../src/store/data/paths.ts';
import { createStrategy, listDeploys, listStrategies } from '../../../src/store/deploys.ts';
import {
  createNotification,
  type Delivery,
  listDeliveries,
  listNotifications,
  type Notification,
  signingSecretOf,
} from '../../../src/store/notifications.ts';
import { disableNotification, recordAttempt } from '../../../src/store/outbox.ts';
import { findProject, listCollaborators } from '../../../src/store/projects.ts';
import { moveDeploy, moveRequest } from '../../../src/store/transition.ts';
import { commitFields } from '../../support/app.ts';
import type { Person } from '../../support/browser.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

const newest = { limit: 10, before: undefined };

describe('the other tabs of a project', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture?.close());

  const accept = ({ page }: Person, name: string) =>
    page.getByRole('dialog').getByRole('button', { name }).click();
  const strategyOf = (projectId: bigint) =>
    createStrategy(fixture.db, {
      projectId,
      name: 'Production',
      strategyType: 'git',
      repositoryUrl: 'git@git.invalid:team/live.git',
      localBranch: 'main',
      remoteBranch: 'live',
      automatic: true,
    });

  it('creates a deploy strategy, deploys a commit with it, and shows the progress of the push', async () => {
    const project = fixture.makeProject('Deployed');
    const suites = fixture.makeSuites(project, 'Unit tests');
    fixture.end(fixture.makeCommit(project, 'Fix the roof', suites), 'pass');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/deploys`);
    await page.getByText('No deploys yet').waitFor();
    await person.inspect('deploys-empty');
    await page.getByRole('link', { name: 'New deploy strategy' }).first().click();
    person.expectRefusals();
    await page.getByLabel('Name').fill('Production');
    await page.getByLabel('Repository URL').fill('git@git.invalid:team/live.git');
    await page.getByLabel('Remote branch').fill('+live');
    await page.getByLabel('Automatic').check();
    await page.getByRole('button', { name: 'Create deploy strategy' }).click();
    await page.getByText('Enter the plain name of a branch').waitFor();
    assert.equal(await page.getByLabel('Automatic').isChecked(), true);
    await person.inspect('strategy-refused');
    await page.getByLabel('Remote branch').fill('live');
    await page.getByRole('button', { name: 'Create deploy strategy' }).click();
    await page.getByText('Deploy strategy Production created.').waitFor();
    assert.deepEqual(
      listStrategies(fixture.db, project.id, newest).map(one => [one.remoteBranch, one.automatic]),
      [['live', true]],
    );

    await page.getByRole('link', { name: 'Edit Production' }).click();
    await page.getByLabel('Automatic').uncheck();
    await page.getByRole('button', { name: 'Save deploy strategy' }).click();
    await page.getByText('Deploy strategy Production saved.').waitFor();
    assert.equal(listStrategies(fixture.db, project.id, newest)[0]?.automatic, false);

    await page.getByRole('button', { name: 'Deploy', exact: true }).click();
    await page.getByText('Deploy started.').waitFor();
    const [deploy] = listDeploys(fixture.db, project.id, newest);
    assert.ok(deploy);
    assert.match(await page.title(), /^Enqueued · Deploy to Production · Deployed/);
    moveDeploy(fixture.db, deploy.id, 'start');
    await page.locator('link[href="/ui/favicon-busy.svg"]').waitFor({ state: 'attached' });
    assert.match(await page.title(), /^Deploying · /);
    await writeFile(
      deployLogPath(fixture.data, deploy.id),
      'To git.invalid:team/live.git\n <b>rejected</b>\n',
    );
    moveDeploy(fixture.db, deploy.id, 'fail', {
      error: 'The remote branch live has commits that main has not.',
    });
    await page.getByText('<b>rejected</b>').waitFor();
    await page.getByText('The remote branch live has commits that main has not.').waitFor();
    await person.inspect('deploy');
    const raw = await person.context.request.get(`/ui/projects/${project.id}/deploys/${deploy.id}/log`);
    assert.match(raw.headers()['content-type'] ?? '', /^text\/plain/);
    await page.getByRole('navigation', { name: 'Project' }).getByRole('link', { name: 'Deploys' }).click();
    await page
      .getByRole('row', { name: /Fix the roof/ })
      .getByText('Failed')
      .waitFor();
    await person.inspect('deploys');
    // A heading that breaks inside a word is higher than a line.
    const heights = await page
      .locator('table th[scope=col]')
      .evaluateAll(heads => heads.map(head => Math.round(head.getBoundingClientRect().height)));
    assert.ok(heights.length >= 5);
    assert.ok(
      heights.every(height => height < 45),
      heights.join(' '),
    );
    await page.getByRole('button', { name: 'Deploy', exact: true }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await accept(person, 'Stop deploy');
    await page.getByRole('row', { name: /Canceled/ }).waitFor();
    await page.getByRole('button', { name: 'Delete' }).click();
    await accept(person, 'Delete');
    await page.getByText('Deploy strategy Production deleted.').waitFor();
    await page.waitForLoadState();
    assert.equal(await page.getByRole('row', { name: /Fix the roof/ }).count(), 2, 'its deploys stay');
    await person.close();
  });

  it('creates a notification, shows its secret once, shows what was sent and answered, and sends it again', async () => {
    const project = fixture.makeProject('Notified');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/notifications`);
    await person.inspect('notifications-empty');
    await page.getByRole('link', { name: 'New webhook' }).click();
    person.expectRefusals();
    await page.getByLabel('URL').fill('http://127.0.0.1/hook');
    await page.getByRole('button', { name: 'Create webhook' }).click();
    await page.getByText('lists them in the setting WEBHOOK_ALLOW').waitFor();
    await person.inspect('notification-refused');
    await page.getByLabel('URL').fill('https://hooks.invalid/ci');
    await page.getByRole('button', { name: 'Create webhook' }).click();
    await page.getByText(/^whsec_/).waitFor();
    await person.inspect('notification-secret');
    await page.getByRole('link', { name: 'Done' }).click();
    await page.getByText('No deliveries yet').waitFor();
    assert.doesNotMatch(await page.content(), /whsec_/);

    await page.getByRole('button', { name: 'Send test' }).click();
    await page.getByText('The test was queued.').waitFor();
    const [notification] = listNotifications(fixture.db, project.id, newest) as [Notification];
    const [first] = listDeliveries(fixture.db, notification.id, newest);
    assert.equal(first?.eventType, 'ping');
    const late = Date.now() + 3_600_000;
    recordAttempt(fixture.db, first?.id as bigint, {
      state: 'pending',
      attempts: 1,
      responseStatus: 503,
      responseMs: 41,
      responseExcerpt: 'Down for <em>maintenance</em>',
      lastError: 'the receiver responded with 503',
      nextAttemptAt: late,
    });
    await page.getByText('the receiver responded with 503').waitFor();
    assert.equal(
      await page.locator('#deliveries').getAttribute('data-poll'),
      '60000',
      'nothing is due before the next try',
    );
    await page.getByText(/1 attempt, next attempt in \d+ minutes/).waitFor();
    await person.inspect('deliveries');
    await page.getByRole('link', { name: 'ping' }).click();
    await page.getByText('Down for <em>maintenance</em>').waitFor();
    await page.getByText(`"id": ${first?.eventId},`).waitFor();
    await person.inspect('delivery');
    await page.getByRole('button', { name: 'Redeliver' }).click();
    await page.getByText('The delivery was queued to be sent again.').waitFor();
    await page.getByText('not sent yet, due now').waitFor();
    recordAttempt(fixture.db, first?.id as bigint, {
      state: 'delivered',
      attempts: 1,
      responseStatus: 204,
      responseMs: 5,
      responseExcerpt: '',
      lastError: null,
      nextAttemptAt: null,
    });
    const delivered = page.getByRole('row', { name: /ping/ });
    await delivered.getByText('Delivered').waitFor();
    await delivered.getByText('resent just now').waitFor();
    disableNotification(fixture.db, notification.id, 'the receiver responded with 410');
    await page.reload();
    await page.getByText('Nothing is sent: the receiver responded with 410.').waitFor();
    await person.inspect('notification-off');
    await page.getByRole('button', { name: 'Enable' }).click();
    await page.getByText('Notification enabled.').waitFor();
    assert.equal(await page.getByText('Nothing is sent').count(), 0);
    await page
      .getByRole('navigation', { name: 'Project' })
      .getByRole('link', { name: 'Notifications' })
      .click();
    await person.inspect('notifications');
    await page.getByRole('button', { name: 'Delete' }).click();
    await accept(person, 'Delete');
    await page.getByText('Notification deleted.').waitFor();
    assert.deepEqual(listNotifications(fixture.db, project.id, newest), []);
    await person.close();
  });

  it('says which deliveries wait for an earlier one, and links what each is about', async () => {
    const project = fixture.makeProject('Ordered');
    const notification = createNotification(fixture.db, {
      projectId: project.id,
      name: 'webhook',
      notifiableType: 'build',
      url: 'https://hooks.invalid/ordered',
      signingSecret: newSigningSecret(),
    });
    const commit = fixture.makeCommit(project, 'Fix the roof', fixture.makeSuites(project, 'Unit tests'));
    fixture.end(commit, 'pass');
    const rows = listDeliveries(fixture.db, notification.id, newest);
    const firstOfBuild = rows.find(({ eventType }) => eventType === 'build.enqueued') as Delivery;
    recordAttempt(fixture.db, firstOfBuild.id, {
      state: 'pending',
      attempts: 1,
      responseStatus: null,
      responseMs: null,
      responseExcerpt: null,
      lastError: 'connection refused',
      nextAttemptAt: Date.now() + 3_600_000,
    });
    const path = `/ui/projects/${project.id}/notifications/${notification.id}`;
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go(path);
    const finished = page.getByRole('row', { name: /build\.finished/ });
    await finished.getByRole('link', { name: 'Unit tests' }).waitFor();
    assert.equal(await page.getByText(/next attempt .* ago/).count(), 0);
    await person.inspect('deliveries-blocked');
    await finished.getByRole('link', { name: 'waiting for an earlier delivery' }).click();
    await page.getByRole('heading', { name: 'build.enqueued' }).waitFor();
    await page.getByText('connection refused').waitFor();
    await page.getByText('"type": "build.enqueued"').waitFor();
    await page.getByText('Only the owner of the project can see it.').waitFor();
    await page.getByRole('link', { name: /Unit tests/ }).click();
    await page.waitForURL(/\/builds\/\d+$/);
    await person.close();
  });

  it('pages through many notifications', async () => {
    const project = fixture.makeProject('Noisy');
    for (let n = 0; n <= 100; n += 1)
      createNotification(fixture.db, {
        projectId: project.id,
        name: 'webhook',
        notifiableType: 'build',
        url: `https://hooks.invalid/${n}.`,
        signingSecret: newSigningSecret(),
      });
    const { page, go } = await fixture.arrive();
    await go(`/ui/projects/${project.id}/notifications`);
    await page.getByText('https://hooks.invalid/100.').waitFor();
    await page.getByRole('link', { name: 'Older notifications' }).click();
    await page.getByText('https://hooks.invalid/0.').waitFor();
    assert.equal(await page.getByText('https://hooks.invalid/').count(), 1);
  });

  it('creates commit statuses, never shows their token, shows what was reported, and changes the token', async () => {
    const project = fixture.makeProject('Reported');
    const token = 'token-of-the-forge-0123';
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/notifications`);
    await page.getByRole('link', { name: 'New commit statuses' }).click();
    await person.inspect('statuses-new');
    person.expectRefusals();
    await page.getByLabel('Forge').selectOption('GitLab');
    await page.getByLabel('Token').fill(token);
    await page.getByLabel('Address of the API').fill('https://127.0.0.1/api/v4');
    await page.getByRole('button', { name: 'Create commit statuses' }).click();
    await page.getByText('lists them in the setting WEBHOOK_ALLOW').waitFor();
    assert.ok(!(await page.content()).includes(token), 'a refused form does not show it either');
    await person.inspect('statuses-refused');
    await page.getByLabel('Token').fill(token);
    await page.getByLabel('Address of the API').fill('');
    await page.getByLabel('Repository').fill('team/website');
    await page.keyboard.press('Enter');
    await page.getByText('Commit statuses are reported from the next build on.').waitFor();
    await page.getByText('No deliveries yet').waitFor();
    assert.ok(!(await page.content()).includes(token));
    const [notification] = listNotifications(fixture.db, project.id, newest) as [Notification];
    assert.deepEqual(notification.statusOptions, {
      forge: 'gitlab',
      repository: 'team/website',
      contexts: 'both',
    });
    assert.match(notification.url, /^https:\/\/[^/]+\/api\/v4$/);

    const request = createBuildRequest(fixture.db, project, 'main', 'ada@example.org');
    moveRequest(fixture.db, request.id, 'fetch');
    const commit = recordCommit(fixture.db, project.id, commitFields('c'.repeat(40)));
    enqueueBuilds(fixture.db, request.id, commit, 'main', []);
    const [delivery] = listDeliveries(fixture.db, notification.id, newest);
    recordAttempt(fixture.db, delivery?.id as bigint, {
      state: 'failed',
      attempts: 1,
      responseStatus: 401,
      responseMs: 12,
      responseExcerpt: '{"message":"401 Unauthorized"}',
      lastError: 'the forge responded with 401',
      nextAttemptAt: null,
    });
    disableNotification(
      fixture.db,
      notification.id,
      'the forge responded with 401: it does not accept the token',
    );
    await page.reload();
    await page
      .getByRole('row', { name: /assay Commit cccccccccc Skipped/ })
      .getByText('Failed')
      .waitFor();
    await person.inspect('statuses-off');
    await page.getByRole('navigation', { name: 'Project' }).getByRole('link', { name: 'Overview' }).click();
    await page.getByText('Nothing is sent to team/website on GitLab: the forge responded with 401').waitFor();
    await person.inspect('statuses-off-overview');
    await page.getByRole('link', { name: 'Change the token' }).click();
    assert.equal(await page.getByLabel('Token').inputValue(), '');
    await person.inspect('statuses-change');
    await page.getByLabel('Token').fill('another-token-0123');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Notification saved.').waitFor();
    await page.getByText('Pending').waitFor();
    const changed = listNotifications(fixture.db, project.id, newest)[0] as Notification;
    assert.equal(changed.enabled, true);
    assert.equal(signingSecretOf(fixture.db, changed), 'another-token-0123');
    await page
      .getByRole('navigation', { name: 'Project' })
      .getByRole('link', { name: 'Notifications' })
      .click();
    await page.getByText('commit statuses: the whole request and each suite').waitFor();
    await person.inspect('statuses-list');
    await person.close();
  });

  it('adds a collaborator, shows the link of a new account once, creates another link, and removes the collaborator', async () => {
    const project = fixture.makeProject('Shared');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/collaborators`);
    await page.getByRole('row', { name: /collaborator@example.org/ }).waitFor();
    await page.getByLabel('Email').fill('stranger@example.org');
    await page.getByRole('button', { name: 'Add collaborator' }).click();
    await page.getByText('stranger@example.org added.').waitFor();
    person.expectRefusals();
    await page.getByLabel('Email').fill('stranger@example.org');
    await page.getByRole('button', { name: 'Add collaborator' }).click();
    await page.getByText('An account with this email has already been added.').waitFor();
    await page.getByLabel('Email').fill('newcomer@example.org');
    await page.getByRole('button', { name: 'Add collaborator' }).click();
    const link = (await page.locator('.copy-text').textContent()) ?? '';
    assert.match(link, /\/ui\/welcome\?link=/);
    await page.getByRole('button', { name: 'Copy link' }).waitFor();
    await person.inspect('collaborator-invited');
    await page.getByRole('link', { name: 'Done' }).click();
    await page.getByRole('row', { name: /newcomer@example.org/ }).waitFor();
    await person.inspect('collaborators');
    await page.getByRole('button', { name: 'New link' }).click();
    await page.getByRole('heading', { name: 'New link for newcomer@example.org' }).waitFor();
    const newLink = (await page.locator('.copy-text').textContent()) ?? '';
    assert.deepEqual(
      [link, newLink].map(
        one => findSignInLink(fixture.db, new URL(one).searchParams.get('link') ?? '')?.email,
      ),
      [undefined, 'newcomer@example.org'],
    );
    await page.getByRole('link', { name: 'Done' }).click();
    await page
      .getByRole('row', { name: /stranger/ })
      .getByRole('button', { name: 'Remove' })
      .click();
    await accept(person, 'Remove');
    await page.getByText('stranger@example.org removed.').waitFor();
    assert.deepEqual(
      listCollaborators(fixture.db, project.id, newest).map(({ email }) => email),
      ['newcomer@example.org', 'collaborator@example.org'],
    );
    await person.close();
  });

  it('changes settings, shows the key and the badge, and deletes only after the name is typed', async () => {
    const project = fixture.makeProject('Set');
    const person = await fixture.arrive('owner', { dark: true });
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/settings`);
    await page.getByLabel('Name', { exact: true }).fill('Settled');
    await page.getByLabel('Description').fill('A site');
    await page.getByLabel('Cancel superseded builds').check();
    await page.getByLabel('Submodules').selectOption('recursive');
    await page.getByRole('button', { name: 'Save settings' }).click();
    await page.getByText('Settings saved.').waitFor();
    const changed = findProject(fixture.db, project.id);
    assert.deepEqual(
      [changed?.name, changed?.description, changed?.cancelSuperseded, changed?.submodules],
      ['Settled', 'A site', true, 'recursive'],
    );
    await page.getByText(/^ssh-ed25519 /).waitFor();
    await page.getByLabel('Show the badge').check();
    await page.getByRole('button', { name: 'Save badge' }).click();
    await page.getByText(`badge.svg)](${fixture.url}/ui/projects/${project.id})`).waitFor();
    await page.waitForLoadState();
    const badge = page.getByAltText('The project’s badge');
    await badge.scrollIntoViewIfNeeded();
    assert.ok((await badge.evaluate(image => Reflect.get(image, 'naturalWidth'))) > 0, 'it is drawn');
    assert.equal(
      findProject(fixture.db, project.id)?.cancelSuperseded,
      true,
      'the badge’s form changes nothing else',
    );
    await person.inspect('settings');

    person.expectRefusals();
    await page.getByLabel('Type “Settled” to confirm').fill('settled');
    await page.getByRole('button', { name: 'Delete project' }).click();
    await page.getByText('Type the exact name of the project.').waitFor();
    assert.ok(findProject(fixture.db, project.id));
    await page.getByLabel('Type “Settled” to confirm').fill('Settled');
    await page.getByRole('button', { name: 'Delete project' }).click();
    await page.getByText('Project Settled deleted.').waitFor();
    assert.equal(findProject(fixture.db, project.id), undefined);
    await person.close();
  });

  it('hides what only the owner may do from a collaborator, and refuses it', async () => {
    const project = fixture.makeProject('Guarded');
    const strategy = strategyOf(project.id);
    const person = await fixture.arrive('collaborator', { scripts: false });
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/collaborators`);
    assert.equal(await page.getByRole('button', { name: 'Add collaborator' }).count(), 0);
    assert.equal(await page.getByRole('button', { name: 'Remove' }).count(), 0);
    assert.equal(await page.getByRole('link', { name: 'Settings' }).count(), 0);
    await person.go(`/ui/projects/${project.id}/deploys`);
    assert.equal(await page.getByRole('button', { name: 'Delete' }).count(), 0);
    const csrf = await page.locator('input[name=csrf]').first().inputValue();
    const post = async (path: string, form: Record<string, string>) =>
      (
        await person.context.request.post(`/ui/projects/${project.id}${path}`, {
          form: { csrf, ...form },
          headers: { origin: fixture.url },
          maxRedirects: 0,
        })
      ).status();
    assert.equal(await post('/collaborators', { email: 'x@example.org' }), 422);
    assert.equal(await post(`/deploy_strategies/${strategy.id}/delete`, {}), 422);
    assert.equal(await post('/settings', { name: 'Taken' }), 403);
    assert.equal(await post('/settings/delete', { confirm: 'Guarded' }), 403);
    assert.deepEqual(
      [findProject(fixture.db, project.id)?.name, listStrategies(fixture.db, project.id, newest).length],
      ['Guarded', 1],
    );
    person.expectRefusals();
    await person.go(`/ui/projects/${project.id}/settings`);
    await page.getByText('You do not have permission to do this.').waitFor();
    await person.close();
  });
});

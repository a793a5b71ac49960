// The triggers of a project: their forms, the setup of a forge, the first delivery, and the history in plain words.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { presentFiring, presentTrigger } from '../../../src/contract/records/trigger.ts';
import {
  defaultOptions,
  type FiringOutcome,
  ignoredReasons,
  type TriggerType,
} from '../../../src/domain/trigger/trigger.ts';
import { listBuildRequests } from '../../../src/store/builds.ts';
import type { Project } from '../../../src/store/projects.ts';
import { moveRequest, moveTrigger } from '../../../src/store/transition.ts';
import { recordFiring, recordLook, requestBuild } from '../../../src/store/trigger/firings.ts';
import {
  createTrigger,
  findTrigger,
  listFirings,
  listTriggers,
  secretsOf,
  type Trigger,
} from '../../../src/store/trigger/triggers.ts';
import { describeFiring, describeTrigger, formatSeconds } from '../../../src/web/project/trigger-text.ts';
import type { Person } from '../../support/browser.ts';
import { forges, hashOf, signed, ZEROS } from '../../support/forge-hooks.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

const newest = { limit: 100, before: undefined };
const HOSTILE = '<img src=x onerror=alert(1)>"\'&';

describe('triggers in plain words', () => {
  const triggerOf = (type: TriggerType, options: object) =>
    presentTrigger(
      {
        id: 7n,
        name: 'Any',
        triggerType: type,
        enabled: true,
        state: 'ok',
        error: null,
        options: JSON.stringify({ ...defaultOptions[type], ...options }),
        nextAt: null,
        firedAt: null,
        refusedCount: 0,
        refusedAt: null,
        createdBy: 'ada@example.org',
        createdAt: 0,
      },
      { isLate: false },
    );

  const triggers: [type: TriggerType, options: object, text: string][] = [
    ['push', {}, 'every push to any branch'],
    ['push', { branches: 'main' }, 'every push to main'],
    ['push', { branches: 'main  release/*', tags: 'v*' }, 'every push to main, release/* and tags v*'],
    ['push', { branches: '', tags: '*' }, 'every push to any tag'],
    ['push', { branches: 'a b c d e' }, 'every push to a, b, c and 2 more'],
    ['push', { branches: '' }, 'every push to nothing, because no branch and no tag is set'],
    ['poll', {}, 'checks any branch every 2 minutes'],
    ['poll', { interval: 3_600, branches: 'main' }, 'checks main every hour'],
    ['poll', { interval: 90 }, 'checks any branch every 90 seconds'],
    [
      'schedule',
      { cron: '0 3 * * *', time_zone: 'Europe/Berlin', branch: 'main' },
      'every day at 03:00 Europe/Berlin: main',
    ],
    [
      'schedule',
      { cron: '1-9/2 3 * * *', branch: 'main', only_new: true },
      '1-9/2 3 * * * UTC: main, if it has a new commit',
    ],
  ];
  for (const [type, options, text] of triggers)
    it(`describes a trigger: ${text}`, () => assert.equal(describeTrigger(triggerOf(type, options)), text));

  it('names a number of seconds in its largest unit', () => {
    assert.deepEqual([1, 60, 90, 3_600, 21_600, 86_400].map(formatSeconds), [
      '1 second',
      '1 minute',
      '90 seconds',
      '1 hour',
      '6 hours',
      '1 day',
    ]);
  });

  type Row = {
    type?: TriggerType;
    options?: object;
    event?: string;
    ref?: string | null;
    reason?: string | null;
    text: RegExp;
  };
  const main = 'refs/heads/main';
  const rows: Record<FiringOutcome, Row[]> = {
    requested: [{ text: /^$/ }, { event: 'look', text: /^The check found a new commit\.$/ }],
    unchanged: [
      { text: /^This commit of the branch main was already known, so it was not built again\.$/ },
      { ref: null, text: /^Nothing has changed since the last check\.$/ },
      { type: 'schedule', event: 'schedule', text: /no new commit since the last build of this schedule/ },
    ],
    looking: [
      { text: /^Checking the repository/ },
      { reason: 'git.invalid refused the key.', text: /will try again\. git\.invalid refused the key\.$/ },
    ],
    looked: [{ ref: null, text: /Each change has a row of its own/ }],
    failed: [
      { reason: 'git.invalid refused the key.', text: /^git\.invalid refused the key\.$/ },
      { text: /not known/ },
    ],
    ignored: [
      { reason: 'event', event: 'issues', ref: null, text: /“issues” starts no builds; only pushes do/ },
      { reason: 'ping', event: 'ping', ref: null, text: /tested the connection, and it works/ },
      { reason: 'deleted', text: /^The branch main was deleted/ },
      { reason: 'filtered', options: { branches: 'release/*' }, text: /main does not match “release\/\*”/ },
      { reason: 'filtered', ref: 'refs/tags/v1', text: /^This trigger builds no tags\./ },
      {
        reason: 'filtered',
        ref: 'refs/notes/x',
        text: /^The ref refs\/notes\/x does not match the settings/,
      },
      { reason: 'filtered', ref: 'refs/pull/7/head', text: /builds no pull requests from forks/ },
      { reason: 'first_look', ref: null, text: /first check of the repository: .* recorded, but not built/ },
      { reason: 'too_many', text: /branch main was not built\. Start its build by hand/ },
      { reason: 'still_running', type: 'schedule', text: /^The previous build had not finished\.$/ },
      { reason: 'too_late', type: 'schedule', options: { late: 120 }, text: /more than 2 hours late/ },
      { reason: 'owner_inactive', text: /owner is suspended or requires payment/ },
      { reason: 'of a later version', text: /^of a later version$/ },
    ],
  };
  for (const [outcome, list] of Object.entries(rows) as [FiringOutcome, Row[]][])
    for (const { type = 'push', options = {}, event = 'push', ref = main, reason = null, text } of list)
      it(`explains ${outcome} ${reason ?? ''} of ${event} ${ref ?? 'without a ref'}`, () => {
        const firing = presentFiring({
          id: 1n,
          triggerId: 7n,
          event,
          delivery: null,
          ref,
          before: null,
          after: null,
          pushedBy: null,
          outcome,
          reason,
          buildRequestId: null,
          plannedAt: null,
          createdAt: 0,
        });
        assert.match(describeFiring(firing, triggerOf(type, options)), text);
      });

  it('explains every reason', () => {
    const explained = new Set(rows.ignored.map(({ reason }) => reason));
    assert.deepEqual(
      ignoredReasons.filter(reason => !explained.has(reason)),
      [],
    );
  });
});

describe('the triggers tab', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture?.close());

  const makeTrigger = (project: Project, triggerType: TriggerType, options: object = {}, name = 'Main') =>
    createTrigger(fixture.db, {
      projectId: project.id,
      name,
      triggerType,
      options: { ...defaultOptions[triggerType], ...options },
      nextAt: fixture.db.now() + 3_600_000,
      ...(triggerType === 'push' && { secret: `whsec_${'s'.repeat(40)}` }),
      createdBy: 'owner@example.org',
    });
  /** Sends a push hook as GitHub does, and returns the status of the response. */
  const deliver = async ({ context }: Person, { id }: Trigger, secret: string) => {
    const change = { ref: 'refs/heads/main', before: ZEROS, after: hashOf(1) };
    const hook = signed('github', forges.github.push('team/website', change, 'ada'), secret);
    const response = await context.request.post(`/hooks/${id}`, { headers: hook.headers, data: hook.body });
    return response.status();
  };
  const nightly = { cron: '0 3 * * *', time_zone: 'Europe/Berlin', branch: 'main' };
  const only = (project: Project) => listTriggers(fixture.db, project.id, newest)[0] as Trigger;
  const accept = ({ page }: Person, name: string) =>
    page.getByRole('dialog').getByRole('button', { name }).click();

  for (const dark of [false, true])
    it(`creates a push trigger and shows its secret once (${dark ? 'dark' : 'light'})`, async () => {
      const project = fixture.makeProject(`Pushed ${dark}`);
      const person = await fixture.arrive('owner', { dark });
      const { page } = person;
      await person.go(`/ui/projects/${project.id}/triggers`);
      await page.getByText('Builds start only by hand').waitFor();
      await person.inspect('triggers-empty');
      await page.getByRole('link', { name: 'New trigger' }).click();
      await page.getByRole('heading', { name: 'How should builds start?' }).waitFor();
      await person.inspect('trigger-choice');
      await page.getByRole('link', { name: 'On every push' }).click();
      assert.equal(await page.getByLabel('Branches').inputValue(), '*');
      await page.getByLabel('Pull requests from forks').check();
      assert.equal(await page.getByLabel('Check for missed pushes').inputValue(), '21600');
      await person.inspect('trigger-new-push');
      person.expectRefusals();
      await page.getByLabel('Name').fill(' ');
      await page.getByLabel('Branches').fill('main release/*');
      await page.getByRole('button', { name: 'Create trigger' }).click();
      await page.getByText('This field is required.').waitFor();
      assert.equal(await page.getByLabel('Branches').inputValue(), 'main release/*');
      await page.getByLabel('Name').fill('Forge');
      await page.getByRole('button', { name: 'Create trigger' }).click();
      await page.getByRole('heading', { name: 'Trigger created' }).waitFor();
      const trigger = only(project);
      assert.equal(JSON.parse(trigger.options).pull_requests, true);
      const [secret = ''] = secretsOf(fixture.db, trigger);
      assert.match(secret, /^whsec_/);
      await page.locator('.copy-text', { hasText: secret }).first().waitFor();
      await page.getByText(`${fixture.url}/hooks/${trigger.id}`).first().waitFor();
      await page.getByText('Waiting for the first delivery…').waitFor();

      // The forges open one at a time, also by keyboard.
      const github = page.locator('#forge-github');
      const gitea = page.locator('#forge-gitea');
      await github.locator('summary').click();
      await page.getByText('Pushes and Pull requests').waitFor();
      await gitea.locator('summary').focus();
      await page.keyboard.press('Enter');
      await page.getByText(`ALLOWED_HOST_LIST = external,${new URL(fixture.url).hostname}`).waitFor();
      assert.equal(await github.getAttribute('open'), null);
      for (const [forge, text] of [
        ['gitlab', 'Outbound requests'],
        ['bitbucket', 'Repository: Push'],
        ['git', `X-Assay-Token: ${secret}`],
      ] as const) {
        await page.locator(`#forge-${forge} summary`).click();
        await page.locator(`#forge-${forge}`).getByText(text).first().waitFor();
      }
      await page.getByText(`${fixture.url}/hooks/${trigger.id} >/dev/null || true`).waitFor();
      await person.inspect('trigger-created');

      // The first delivery is shown live.
      assert.equal(await deliver(person, trigger, secret), 201);
      await page.getByText('Received and verified').waitFor();
      await page.getByRole('link', { name: 'Build of main' }).waitFor();
      await person.inspect('trigger-delivered');
      assert.ok((await page.content()).includes(secret), 'the live update keeps the secret');

      await page.getByRole('link', { name: 'Done' }).click();
      await page.getByRole('heading', { name: 'Forge', exact: true }).waitFor();
      for (const path of ['', `/triggers`, `/triggers/${trigger.id}`, '/build_requests']) {
        await person.go(`/ui/projects/${project.id}${path}`);
        assert.doesNotMatch(await page.content(), /whsec_/, path);
      }
      await person.close();
    });

  it('shows a call with a wrong signature while the page is open', async () => {
    const project = fixture.makeProject('Refused');
    const trigger = makeTrigger(project, 'push');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/triggers/${trigger.id}`);
    await page.getByText('Waiting for the first delivery…').waitFor();
    assert.equal(await deliver(person, trigger, 'whsec_wrong'), 401);
    await page.getByText('Received, but the signature was wrong').waitFor();
    await page.getByText('Calls with a wrong signature: 1.').waitFor();
    await page.getByText('Check that the whole secret was entered').waitFor();
    await person.inspect('trigger-refused');

    await page.getByRole('button', { name: 'New secret' }).click();
    await accept(person, 'New secret');
    await page.getByRole('heading', { name: 'New secret created' }).waitFor();
    const secrets = secretsOf(fixture.db, findTrigger(fixture.db, project.id, trigger.id) as Trigger);
    assert.equal(secrets.length, 2, 'the old one is accepted for a while');
    await page
      .locator('.copy-text', { hasText: secrets[0] as string })
      .first()
      .waitFor();
    assert.equal(await deliver(person, trigger, secrets[1] as string), 201);
    await page.getByText('Received and verified').waitFor();
    await page.getByRole('link', { name: 'Done' }).click();
    await page.getByRole('heading', { name: 'Main', exact: true }).waitFor();
    assert.doesNotMatch(await page.content(), /whsec_/);
    await person.close();
  });

  it('creates a trigger that polls, changes it, looks now, disables it and deletes it', async () => {
    const project = fixture.makeProject('Polled');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/triggers/new/poll`);
    await person.inspect('trigger-new-poll');
    await page.getByLabel('Check every').selectOption({ label: '5 minutes' });
    await page.getByLabel('Build the default branch at the first check').check();
    await page.getByRole('button', { name: 'Create trigger' }).click();
    await page.getByText('Trigger Poll created.').waitFor();
    const trigger = only(project);
    assert.deepEqual(JSON.parse(trigger.options), {
      branches: '*',
      tags: '',
      interval: 300,
      build_first: true,
    });
    await page.getByText('checks any branch every 5 minutes').waitFor();
    await page.getByText('Nothing has happened yet').waitFor();

    await page.getByLabel('Tags').fill('v*');
    await page.getByRole('button', { name: 'Save settings' }).click();
    await page.getByText('Settings saved.').waitFor();
    await page.getByText('checks any branch and tags v* every 5 minutes').waitFor();

    await page.getByRole('button', { name: 'Check now' }).click();
    await page.getByText('Checking the repository for changes.').waitFor();
    const [firing] = listFirings(fixture.db, trigger.id, newest);
    assert.deepEqual([firing?.event, firing?.outcome], ['fire', 'looking']);
    moveTrigger(fixture.db, trigger.id, 'failing', { failures: 3, error: 'git.invalid refused the key.' });
    await page.getByRole('heading', { name: 'The repository cannot be read' }).waitFor();
    await page.getByText('git.invalid refused the key.').waitFor();
    await page.getByRole('button', { name: 'Copy key' }).waitFor();
    await person.inspect('trigger-failing');
    await page.getByRole('navigation', { name: 'Project' }).getByRole('link', { name: 'Triggers' }).click();
    await page.getByRole('row', { name: /Poll/ }).getByText('Failing').waitFor();
    await page.getByRole('link', { name: 'Poll', exact: true }).click();

    await page.getByRole('button', { name: 'Disable' }).click();
    await page.getByText('Trigger disabled.').waitFor();
    await page.getByText('This trigger is disabled').waitFor();
    assert.equal(findTrigger(fixture.db, project.id, trigger.id)?.enabled, false);
    await page.getByRole('button', { name: 'Enable' }).click();
    await page.getByText('Trigger enabled.').waitFor();
    await page.getByRole('button', { name: 'Delete trigger' }).click();
    await accept(person, 'Delete trigger');
    await page.getByText('Trigger Poll deleted.').waitFor();
    assert.equal(findTrigger(fixture.db, project.id, trigger.id), undefined);
    await person.close();
  });

  for (const scripts of [true, false])
    it(`shows the next times of a schedule ${scripts ? 'while it is typed' : 'without scripts'}`, async () => {
      const project = fixture.makeProject(`Scheduled ${scripts}`);
      recordLook(fixture.db, {
        projectId: project.id,
        repositoryUrl: project.repositoryUrl,
        refsDigest: '',
        defaultBranch: 'refs/heads/trunk',
        lookedAt: Date.now(),
      });
      const person = await fixture.arrive('owner', { scripts });
      const { page } = person;
      await person.go(`/ui/projects/${project.id}/triggers/new/schedule`);
      assert.equal(await page.locator('.times li').count(), 5);
      assert.equal(await page.getByLabel('Branch', { exact: true }).inputValue(), 'trunk');
      await page.getByLabel('Cron expression').fill('30 6 24 12 *');
      await page.getByLabel('Time zone').selectOption('Europe/Berlin');
      const show = page.getByRole('button', { name: 'Show next times' });
      if (scripts) assert.equal(await show.isVisible(), false);
      else await show.click();
      await page.getByText('Next times, Europe/Berlin').waitFor();
      await page
        .getByText(/Dec \d{4}, 06:30/)
        .first()
        .waitFor();
      if (scripts) await person.inspect('trigger-new-schedule');
      person.expectRefusals();
      await page.getByLabel('Cron expression').fill('0 0 31 2 *');
      await page.getByRole('button', { name: 'Create trigger' }).click();
      await page.getByText('Enter five fields').waitFor();
      if (scripts) await person.inspect('trigger-schedule-refused');
      assert.equal(await page.getByLabel('Time zone').inputValue(), 'Europe/Berlin');
      await page.getByLabel('Cron expression').fill('0 3 * * *');
      await page.getByLabel('Only new commits').check();
      await page.getByRole('button', { name: 'Create trigger' }).click();
      await page.getByText('Trigger Nightly created.').waitFor();
      await page.getByText('every day at 03:00 Europe/Berlin: trunk, if it has a new commit').waitFor();
      assert.equal(await page.locator('#upcoming .times li').count(), 5);
      assert.deepEqual(JSON.parse(only(project).options), {
        ...nightly,
        branch: 'trunk',
        only_new: true,
        late: 60,
      });
      await page.getByRole('button', { name: 'Build now' }).click();
      await page.getByRole('link', { name: 'Build of trunk' }).waitFor();
      if (scripts) await person.inspect('trigger-schedule');
      const [request] = listBuildRequests(fixture.db, project.id, newest);
      assert.deepEqual([request?.trigger, request?.triggerName], ['schedule', 'Nightly']);
      await person.close();
    });

  it('shows the history, and follows a build that a push started', async () => {
    const project = fixture.makeProject('History');
    const trigger = makeTrigger(project, 'push', { branches: 'main' });
    const { db } = fixture;
    const hook = { event: 'push', before: hashOf(1), after: hashOf(2) };
    const reasons = ignoredReasons.filter(reason => !['still_running', 'too_late'].includes(reason));
    for (const reason of reasons)
      recordFiring(db, trigger, { ...hook, ref: 'refs/heads/topic', outcome: 'ignored', reason });
    recordFiring(db, trigger, { event: 'look', outcome: 'unchanged' });
    recordFiring(db, trigger, { ...hook, ref: 'refs/tags/v1', outcome: 'failed', reason: HOSTILE });
    recordFiring(db, trigger, { ...hook, event: HOSTILE, delivery: HOSTILE, outcome: 'looking' });
    const request = requestBuild(db, project, trigger, { commitRef: 'main', pushedBy: HOSTILE });
    recordFiring(db, trigger, {
      ...hook,
      ref: 'refs/heads/main',
      pushedBy: HOSTILE,
      delivery: '72d3162e-cc78-11e3-81ab-4c9367dc0958',
      outcome: 'requested',
      buildRequestId: request.id,
    });
    const person = await fixture.arrive('owner', { dark: true });
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/triggers/${trigger.id}`);
    await page.getByText('The branch topic does not match “main”.').waitFor();
    assert.equal(await page.locator('#history tbody tr').count(), reasons.length + 4);
    await page
      .getByRole('row', { name: /Push to main/ })
      .getByText('Enqueued')
      .waitFor();
    moveRequest(db, request.id, 'fetch');
    moveRequest(db, request.id, 'error', { error: 'The commit is gone.' });
    await page
      .getByRole('row', { name: /Push to main/ })
      .getByText('Errored')
      .waitFor();
    await person.inspect('trigger-history');
    await page
      .getByRole('row', { name: /Push to main/ })
      .getByRole('link')
      .click();
    await page.getByText('The commit is gone.').waitFor();
    await page.getByText(`by push “Main” (${HOSTILE})`).waitFor();
    await page.getByRole('link', { name: 'push “Main”' }).click();
    await page.getByRole('heading', { name: 'Main', exact: true }).waitFor();
    await person.close();
  });

  it('shows the table of triggers, also with long and hostile names', async () => {
    const project = fixture.makeProject('Many');
    const long = `${HOSTILE} ${'Weltraum'.repeat(20)}`;
    makeTrigger(project, 'push', { branches: `main ${'b'.repeat(300)}` }, long);
    const late = makeTrigger(project, 'poll', {}, 'Late');
    makeTrigger(project, 'schedule', nightly, 'Nightly');
    fixture.db.sqlite
      .prepare('UPDATE triggers SET next_at = ? WHERE id = ?')
      .run(fixture.db.now() - 600_000, late.id);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/triggers`);
    await page.getByRole('row', { name: /Late/ }).getByText('late', { exact: true }).waitFor();
    await page.getByText('every day at 03:00 Europe/Berlin: main').waitFor();
    await page.getByText(long).waitFor();
    await person.inspect('triggers');
    recordFiring(fixture.db, late, { event: 'look', outcome: 'ignored', reason: 'first_look' });
    await page.getByRole('row', { name: /Late/ }).getByText('Works').waitFor();
    await page.getByRole('link', { name: long }).click();
    await page.getByRole('heading', { name: long, exact: true }).waitFor();
    await person.inspect('trigger-long');
    await person.close();
  });

  it('says what started each build, on the pages of the project and of the commit', async () => {
    const project = fixture.makeProject('Origins');
    const suites = fixture.makeSuites(project, 'Unit tests');
    const commit = fixture.makeCommit(project, 'Fix the roof', suites);
    const push = makeTrigger(project, 'push', {}, 'Forge');
    const schedule = makeTrigger(project, 'schedule', nightly, 'Nightly');
    requestBuild(fixture.db, project, push, { commitRef: 'topic', pushedBy: 'ada' });
    requestBuild(fixture.db, project, schedule, { commitRef: 'main' });
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    await page.getByText('by push “Forge” (ada)').waitFor();
    await page.getByText('by owner@example.org').waitFor();
    assert.equal(await page.getByText('Builds start only by hand').count(), 0);
    await person.inspect('project-origins');
    fixture.db.sqlite
      .prepare(
        "UPDATE build_requests SET trigger = 'push', trigger_id = ?, trigger_name = 'Forge', pushed_by = 'ada' WHERE commit_id = ?",
      )
      .run(push.id, commit.id);
    await person.go(`/ui/projects/${project.id}/commits/${commit.id}`);
    await page.getByText('by push “Forge” (ada)').waitFor();
    await person.inspect('commit-origins');
    await page.getByRole('link', { name: 'Unit tests' }).click();
    await page.getByText('main by push “Forge” (ada)').waitFor();
    await page.getByRole('link', { name: 'push “Forge”' }).click();
    await page.getByRole('heading', { name: 'Forge', exact: true }).waitFor();
    await person.close();
  });

  it('explains the rules that compare triggers, and adds one', async () => {
    const project = fixture.makeProject('Nightly rules');
    const [suite] = fixture.makeSuites(project, 'Nightly tests');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/suites/${suite?.id}/settings`);
    const rules = page.getByRole('region', { name: 'Rules' });
    await rules.getByText('A nightly suite has the rule').waitFor();
    await rules.getByLabel('Subject').selectOption('request.trigger');
    await rules.getByLabel('Value').fill('schedule');
    await rules.getByRole('button', { name: 'Add rule' }).click();
    await page.getByText('Rule added.').waitFor();
    await page.locator('.rule-list').getByText('request.trigger', { exact: true }).waitFor();
    await person.close();
  });

  it('asks how builds should start when a project is created', async () => {
    for (const [choice, heading] of [
      ['On every push', 'New trigger: push'],
      ['By polling', 'New trigger: poll'],
      ['On a schedule', 'New trigger: schedule'],
      ['Only by hand', 'Three steps to the first build'],
    ] as const) {
      const person = await fixture.arrive();
      const { page } = person;
      await person.go('/ui/projects/new');
      assert.equal(await page.getByLabel('On every push').isChecked(), true);
      if (choice === 'On every push') await person.inspect('project-start');
      await page.getByLabel('Name').fill(`Started ${choice}`);
      await page.getByLabel(choice).check();
      person.expectRefusals();
      await page.getByLabel('Repository URL').fill('https://git.invalid/team/website');
      await page.getByRole('button', { name: 'Create project' }).click();
      await page.getByText('Use the form user@host:path.git').waitFor();
      assert.equal(await page.getByLabel(choice).isChecked(), true, 'the choice is kept');
      await page.getByLabel('Repository URL').fill('git@git.invalid:team/website.git');
      await page.getByRole('button', { name: 'Create project' }).click();
      await page.getByRole('heading', { name: heading }).waitFor();
      await person.close();
    }
  });

  it('lets a collaborator create triggers but not delete them, and refuses strangers', async () => {
    const project = fixture.makeProject('Guarded');
    const trigger = makeTrigger(project, 'push');
    const person = await fixture.arrive('collaborator', { scripts: false });
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/triggers/${trigger.id}`);
    assert.equal(await page.getByRole('button', { name: 'Delete trigger' }).count(), 0);
    assert.equal(await page.getByRole('button', { name: 'New secret' }).count(), 1);
    const csrf = await page.locator('input[name=csrf]').first().inputValue();
    const answer = await person.context.request.post(
      `/ui/projects/${project.id}/triggers/${trigger.id}/delete`,
      { form: { csrf }, headers: { origin: fixture.url }, maxRedirects: 0 },
    );
    assert.equal(answer.status(), 422);
    assert.ok(findTrigger(fixture.db, project.id, trigger.id));
    await person.close();
    const stranger = await fixture.arrive('stranger');
    for (const path of ['', '/new', '/new/push', `/${trigger.id}`, '/stream', `/${trigger.id}/stream`]) {
      const refused = await stranger.context.request.get(`/ui/projects/${project.id}/triggers${path}`);
      assert.equal(refused.status(), 404, path);
    }
    await stranger.close();
  });
});

// The page of a project and its commits: the first steps, the matrix, starting and canceling builds.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { listBuildRequests, listCommits, recordCommit } from '../../../src/store/builds.ts';
import { createStrategy, listDeploys } from '../../../src/store/deploys.ts';
import { deleteSuite, listAllSuites } from '../../../src/store/suites.ts';
import { moveRequest } from '../../../src/store/transition.ts';
import { commitFields } from '../../support/app.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

const newest = { limit: 10, before: undefined };
const squeezed = (texts: string[]) => texts.map(text => text.replace(/\s+/g, ' ').trim());

describe('the page of a project', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture?.close());

  it('guides a new user from the key and a suite to the first build, then hides the guide', async () => {
    const project = fixture.makeProject('Fresh');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    await page.getByRole('heading', { name: 'Three steps to the first build' }).waitFor();
    await page.getByRole('button', { name: 'Copy key' }).waitFor();
    await page.getByText('No commits yet').waitFor();
    assert.equal(await page.getByLabel('Branch, tag or commit').inputValue(), 'main');
    await person.inspect('project-fresh');

    await page.getByRole('link', { name: 'New suite' }).click();
    await person.inspect('suite-new');
    await page.getByLabel('Name').fill('Unit tests');
    await page.getByLabel('Command').fill('make check');
    await page.getByRole('button', { name: 'Create suite' }).click();
    await page.getByText('Suite Unit tests created.').waitFor();
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByText('Done').waitFor();
    assert.equal(await page.getByRole('link', { name: 'New suite' }).count(), 0);

    await page.getByRole('button', { name: 'Start build' }).click();
    await page.getByText('Build of main started.').waitFor();
    await page.getByText('Enqueued').waitFor();
    const [request] = listBuildRequests(fixture.db, project.id, newest);
    assert.deepEqual([request?.commitRef, request?.createdBy], ['main', 'owner@example.org']);
    moveRequest(fixture.db, request?.id as bigint, 'fetch');
    moveRequest(fixture.db, request?.id as bigint, 'error', { error: 'git.invalid refused the key.' });
    await page
      .getByText('The last build request could not fetch a commit: git.invalid refused the key.')
      .waitFor();
    await page.locator('link[href="/ui/favicon-warn.svg"]').waitFor({ state: 'attached' });
    assert.equal(await page.title(), 'Errored · Fresh · Assay');
    await person.inspect('project-refused-key');
    recordCommit(fixture.db, project.id, commitFields('9'.repeat(40)));
    await person.go(`/ui/projects/${project.id}`);
    assert.equal(await page.getByRole('heading', { name: 'Three steps' }).count(), 0);
    await person.close();
  });

  it('shows commits with a matrix of their suites, and updates it without a reload', async () => {
    const project = fixture.makeProject('Website');
    const suites = fixture.makeSuites(project, 'Unit tests', 'Lint', 'Browser tests', 'Documentation');
    const [unit, lint, browserTests, docs] = suites as [never, never, never, never];
    fixture.end(fixture.makeCommit(project, 'Lay the ground', suites), 'pass', 'pass', 'pass', 'pass');
    const second = fixture.makeCommit(project, 'Teach the parser to read dates that have an offset', suites);
    fixture.end(second, 'fail', 'pass', 'error', 'cancel');
    const third = fixture.makeCommit(project, 'Fix the roof', [unit, lint, browserTests], [docs]);
    fixture.end(third, 'start', 'pass');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    assert.equal(await page.title(), 'Building · Website · Assay');
    const row = page.getByRole('row', { name: /Fix the roof/ });
    await row.getByRole('link', { name: 'Unit tests Running' }).waitFor();
    await row.getByText('did not run').waitFor({ state: 'attached' });
    assert.equal(await page.getByRole('link', { name: 'Unit tests Failed 7.0 s' }).count(), 1);
    await person.inspect('project');

    await page.evaluate('window.sameDocument = true');
    await row.getByRole('link', { name: 'Unit tests Running' }).focus();
    fixture.end(third, '', '', 'pass');
    await row.getByRole('link', { name: /Browser tests Passed/ }).waitFor();
    assert.equal(
      await page.evaluate('document.activeElement.textContent.replace(/\\s+/g, " ").trim()'),
      'Unit tests Running',
      'the focus stays where it was',
    );
    assert.equal(await page.evaluate('window.sameDocument'), true);
    await row.getByRole('link', { name: 'Lint Passed' }).click();
    await page.waitForURL(/\/builds\/\d+$/);
    await person.close();
  });

  it('keeps fifty suites and the longest message readable, wide and narrow', async () => {
    const project = fixture.makeProject('Many');
    const suites = fixture.makeSuites(
      project,
      ...Array.from({ length: 50 }, (_, at) => `Browser tests, part ${at + 1}`),
    );
    const subject = `${'A subject that goes on '.repeat(20)}${'and_on_without_a_space_'.repeat(10)}`;
    const commit = fixture.makeCommit(
      project,
      `${subject}\n\n${'One more line.\n'.repeat(800)}`,
      suites.slice(0, 40),
      suites.slice(40),
    );
    fixture.end(commit, 'fail', ...suites.slice(2, 40).map(() => 'pass' as const), 'start');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const row = page.getByRole('row', { name: /A subject that goes on/ });
    assert.ok(((await row.boundingBox())?.height ?? 0) < 200, 'the subject is cut off after some lines');
    const frame = page.locator('.matrix-frame');
    await frame.evaluate(element => element.scrollBy({ left: 2_000, behavior: 'instant' }));
    assert.equal(
      await row.getByRole('rowheader').evaluate(element => Math.round(element.getBoundingClientRect().left)),
      await frame.evaluate(element => Math.round(element.getBoundingClientRect().left) + 1),
      'the commit stays in sight',
    );
    await person.inspect('project-many');

    const passed = page.getByRole('link', { name: '38 passed', exact: true });
    assert.ok(await passed.isHidden());
    await page.setViewportSize({ width: 390, height: 844 });
    assert.deepEqual(await row.locator('.cell a:visible').allInnerTexts().then(squeezed), [
      'Browser tests, part 1 Failed 7.0 s',
      'Browser tests, part 40 Running',
      '38 passed',
    ]);
    await passed.click();
    await page.setViewportSize({ width: 1280, height: 800 });
    const builds = await page.getByRole('heading', { name: 'Builds' }).boundingBox();
    assert.ok((builds?.y ?? Number.NaN) < 900, 'a long message leaves the builds in reach');
    await person.inspect('commit-long');
    await person.go('/ui/projects');
    const named = await page.getByRole('rowheader', { name: /^Many/ }).boundingBox();
    assert.ok((named?.width ?? 0) > 150, 'the name of a project keeps its width next to a long subject');
    await person.inspect('projects-long');
    await person.close();
  });

  it('shows suites that did not pass first if there are more suites than columns, wide and narrow', async () => {
    const project = fixture.makeProject('More than columns');
    const suites = fixture.makeSuites(project, ...Array.from({ length: 70 }, (_, at) => `Part ${at + 1}`));
    const commit = fixture.makeCommit(project, 'Change', suites);
    fixture.end(commit, ...suites.slice(0, 68).map(() => 'pass' as const), 'error', 'fail');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const names = await page.locator('.suite-name').allInnerTexts();
    assert.deepEqual(names.slice(0, 3), ['Part 69', 'Part 70', 'Part 1']);
    assert.equal(names.length, 16);
    const row = page.getByRole('row', { name: /Change/ });
    assert.ok(((await row.boundingBox())?.height ?? 0) < 100, 'no word is broken into letters');
    assert.equal(await row.locator('.counts').textContent(), '54 passed');
    await page.setViewportSize({ width: 390, height: 844 });
    assert.deepEqual(await row.locator('.cell a:visible').allInnerTexts().then(squeezed), [
      'Part 69 Errored 35 min 15 s',
      'Part 70 Failed 35 min 46 s',
      '68 passed',
    ]);
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.getByRole('link', { name: 'Show all suites' }).click();
    await page.waitForURL(/suites=all/);
    assert.equal(await page.locator('.suite-name').count(), 70);
    await person.go(`/ui/projects/${project.id}/commits/${commit.id}`);
    const button = await page.getByRole('button', { name: 'Rerun', exact: true }).first().boundingBox();
    assert.ok((button?.height ?? 0) < 40, 'the word of a button is not broken');
    await person.close();
  });

  it('shows twelve suites without scrolling, and in each failed row what failed', async () => {
    const project = fixture.makeProject('Dozen');
    const suites = fixture.makeSuites(
      project,
      ...Array.from({ length: 12 }, (_, at) => `Integration tests, part ${at + 1}`),
    );
    const passed = suites.map(() => 'pass' as const);
    fixture.end(fixture.makeCommit(project, 'Break the last one', suites), ...passed.slice(1), 'fail');
    fixture.end(fixture.makeCommit(project, 'Break the fifth', suites), ...passed.with(4, 'error' as never));
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const [wide, visible] = (await page
      .locator('.matrix-frame')
      .evaluate(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])) as [number, number];
    assert.ok(wide <= visible, `${wide} px in ${visible} px`);
    assert.ok(visible > 1200, 'the matrix has the width of the window');
    const heads = await page
      .locator('.suite-name a')
      .evaluateAll(all => all.map(one => one.getAttribute('title')));
    assert.deepEqual(
      heads.slice(0, 3),
      [5, 1, 2].map(at => `Integration tests, part ${at}`),
      'what fails is first',
    );
    for (const [subject, cell] of [
      ['Break the fifth', 'Integration tests, part 5 Errored 2 min 11 s'],
      ['Break the last one', 'Integration tests, part 12 Failed 5 min 48 s'],
    ] as const) {
      const row = page.getByRole('row', { name: new RegExp(subject) });
      const link = row.getByRole('link', { name: cell, exact: true });
      assert.ok(await link.isVisible());
      assert.ok(((await link.boundingBox())?.width ?? 0) < 40, 'a cell is an icon');
      assert.match(
        (await link.locator('[title]').getAttribute('title')) ?? '',
        /^Integration tests, part \d+: (Failed|Errored), /,
      );
      assert.equal(await row.locator('.branch').textContent(), 'main');
    }
    assert.match(
      (await page.locator('.legend').textContent()) ?? '',
      /Failed.*Errored.*Passed.*Did not run/s,
    );
    await person.inspect('project-twelve');
    await person.close();
  });

  it('filters commits by branch, author, state and text, with newer and older pages, without scripts', async () => {
    const project = fixture.makeProject('Filtered');
    const suites = fixture.makeSuites(project, 'Unit tests');
    for (let n = 1; n <= 60; n += 1)
      fixture.end(fixture.makeCommit(project, `Change ${n}`, suites), n % 2 === 0 ? 'fail' : 'pass');
    const person = await fixture.arrive('owner', { scripts: false });
    const { page } = person;
    const shown = async () =>
      (await page.locator('.matrix .subject').allInnerTexts()).map(one => Number(one.split(' ')[1]));
    const range = (from: number, to: number) =>
      Array.from({ length: (from - to) / 2 + 1 }, (_, at) => from - 2 * at);
    await person.go(`/ui/projects/${project.id}`);
    await page.getByLabel('Branch', { exact: true }).fill('main');
    await page.getByLabel('Author').fill('ADA@');
    await page.getByLabel('State').selectOption('Failed or errored');
    await person.follow(page.getByRole('button', { name: 'Filter' }));
    assert.deepEqual(await shown(), range(60, 12));
    await person.follow(page.getByRole('link', { name: 'Older commits' }));
    assert.deepEqual(await shown(), range(10, 2));
    assert.equal(await page.getByRole('link', { name: 'Older commits' }).count(), 0);
    assert.equal(await page.getByLabel('Branch', { exact: true }).inputValue(), 'main');
    await person.follow(page.getByRole('link', { name: 'Newer commits' }));
    assert.deepEqual(await shown(), range(60, 12));
    await person.follow(page.getByRole('link', { name: 'Clear' }));
    await person.follow(page.getByRole('link', { name: 'Older commits' }));
    await person.follow(page.getByRole('link', { name: 'Older commits' }));
    assert.deepEqual(await shown(), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    await person.follow(page.getByRole('link', { name: 'Newer commits' }));
    assert.deepEqual((await shown()).slice(0, 2), [35, 34]);
    await person.follow(page.getByRole('link', { name: 'Newest commits' }));
    assert.equal((await shown())[0], 60);
    await page.getByLabel('Message or hash').fill('change 1');
    await person.follow(page.getByRole('button', { name: 'Filter' }));
    assert.deepEqual(await shown(), [19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 1]);
    await page.getByLabel('Message or hash').fill('100% of_it');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText('No commit matches the filter.').waitFor();
    await person.follow(page.getByRole('link', { name: 'Show all commits' }));
    assert.equal((await shown())[0], 60);
    await person.close();
  });

  it('starts a build, shows what is wrong with a name, and cancels', async () => {
    const project = fixture.makeProject('Canceled');
    fixture.makeSuites(project, 'Unit tests');
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    person.expectRefusals();
    await page.getByLabel('Branch, tag or commit').fill('main~1');
    await page.getByRole('button', { name: 'Start build' }).click();
    await page.getByText('Enter a branch, a tag, or a commit hash').waitFor();
    assert.equal(await page.getByLabel('Branch, tag or commit').inputValue(), 'main~1');
    await page.getByLabel('Branch, tag or commit').fill('topic');
    await page.getByLabel('Branch, tag or commit').press('Enter');
    await page.getByText('Build of topic started.').waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Keep running' }).click();
    assert.equal(listBuildRequests(fixture.db, project.id, newest)[0]?.buildState, 'enqueued');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop builds' }).click();
    await page.getByText('Build of topic canceled.').waitFor();
    assert.equal(listBuildRequests(fixture.db, project.id, newest)[0]?.buildState, 'canceled');
    assert.equal(await page.getByRole('button', { name: 'Cancel' }).count(), 0);
    await person.close();
  });

  it('shows a commit with its builds and why each suite ran, reruns the failed ones and deploys', async () => {
    const project = fixture.makeProject('Committed');
    const suites = fixture.makeSuites(project, 'Unit tests', 'Lint', 'Browser tests', 'Documentation');
    const [unit, lint, browserTests, docs] = suites as [never, never, never, never];
    const commit = fixture.makeCommit(
      project,
      'Fix the roof\n\nIt rained in.',
      [unit, lint, browserTests],
      [docs],
    );
    fixture.end(commit, 'fail', 'pass', 'error');
    createStrategy(fixture.db, {
      projectId: project.id,
      name: 'Production',
      strategyType: 'git',
      repositoryUrl: 'git@git.invalid:team/live.git',
      localBranch: 'main',
      remoteBranch: 'live',
      automatic: false,
    });
    const person = await fixture.arrive('collaborator', { dark: true });
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/commits/${commit.id}`);
    assert.match(await page.title(), /^Failed · cccccc\w+ Fix the roof · Committed · Assay$/);
    await page.getByText('It rained in.').waitFor();
    await page.getByText('(exit 2)').waitFor();
    await page.getByText('The image node:26 is not there.').waitFor();
    const decided = page.getByRole('table', { name: 'Why these suites' });
    const against = decided.getByRole('row', { name: /Documentation/ });
    assert.match(
      (await against.textContent()) ?? '',
      /Does not run.*commit\.branches equals release.*Value: main/s,
    );
    await person.inspect('commit');

    await page.getByRole('button', { name: 'Rerun failed' }).click();
    await page.getByText('2 suites started again.').waitFor();
    await page.waitForLoadState();
    const builds = page.getByRole('table', { name: 'Builds' });
    assert.equal(await builds.getByText('earlier run').count(), 2);
    assert.equal(await builds.getByText('Enqueued').count(), 2);
    deleteSuite(fixture.db, listAllSuites(fixture.db, project.id)[1] as never);
    await page.getByRole('button', { name: 'Rerun all' }).click();
    await page.getByText('There is nothing to rerun.').waitFor();

    await page.getByRole('button', { name: 'Deploy', exact: true }).click();
    await page.getByText('Deploy started.').waitFor();
    const [deploy] = listDeploys(fixture.db, project.id, newest);
    assert.deepEqual([deploy?.commitId, deploy?.strategyName], [commit.id, 'Production']);
    await person.close();
  });

  it('pages through a long history', async () => {
    const project = fixture.makeProject('Long');
    const suites = fixture.makeSuites(project, 'Unit tests');
    for (let n = 1; n <= 30; n += 1) fixture.end(fixture.makeCommit(project, `Change ${n}`, suites), 'pass');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const table = page.getByRole('table', { name: 'Commits and their suites' });
    assert.equal(await table.getByRole('rowheader').count(), 25);
    await page.getByRole('link', { name: 'Older commits' }).click();
    await table.getByText('Change 5', { exact: true }).waitFor();
    await page.waitForLoadState();
    assert.equal(await table.getByRole('rowheader').count(), 5);
    await page.getByRole('link', { name: 'All build requests' }).click();
    await page.getByRole('heading', { name: 'Build requests' }).waitFor();
    await page.waitForLoadState();
    assert.equal(await page.locator('.request-list > li').count(), 30);
    await person.inspect('build-requests');
    assert.equal(listCommits(fixture.db, project.id, { limit: 100, before: undefined }).length, 30);
    await person.close();
  });

  it('does not exist for strangers, and neither does its stream', async () => {
    const project = fixture.makeProject('Private');
    const person = await fixture.arrive('stranger');
    person.expectRefusals(1);
    await person.go(`/ui/projects/${project.id}`);
    await person.page.getByText('Page not found').waitFor();
    const stream = await person.context.request.get(`/ui/projects/${project.id}/stream`);
    assert.equal(stream.status(), 404);
    await person.close();
  });

  it('updates the list of projects and its filter without a reload', async () => {
    fixture.makeProject('Quiet one');
    const project = fixture.makeProject('Watched one');
    const suites = fixture.makeSuites(project, 'Unit tests');
    const commit = fixture.makeCommit(project, 'Open the window', suites);
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go('/ui/projects');
    await page.getByLabel('Filter projects').fill('watched');
    const row = page.getByRole('row', { name: /Watched one/ });
    fixture.end(commit, 'fail');
    await row.getByText('Failed', { exact: true }).waitFor();
    assert.equal(await page.locator('#projects tbody tr:visible').count(), 1);
    await page.getByLabel('Filter projects').fill('');
    assert.ok((await page.locator('#projects tbody tr:visible').count()) > 1);
    await person.close();
  });

  it('reconnects after a proxy answered instead of the server, and shows what it missed', async () => {
    const project = fixture.makeProject('Behind a proxy');
    const suites = fixture.makeSuites(project, 'Unit tests');
    const commit = fixture.makeCommit(project, 'Open the door', suites);
    const person = await fixture.arrive();
    const { page } = person;
    const away = Promise.withResolvers<void>();
    await page.route(
      `**/ui/projects/${project.id}/stream?*`,
      async route => {
        await route.fulfill({ status: 502, body: 'Bad gateway' });
        away.resolve();
      },
      { times: 1 },
    );
    await person.go(`/ui/projects/${project.id}`);
    await away.promise;
    fixture.end(commit, 'start');
    await page.getByRole('link', { name: 'Unit tests Running' }).waitFor();
    fixture.end(commit, 'fail');
    await page.getByRole('link', { name: /Unit tests Failed/ }).waitFor();
    // The failed response is logged to the console.
    await person.context.close();
  });

  it('asks again for what it missed, if that could not be loaded either', async () => {
    const project = fixture.makeProject('Behind two proxies');
    const suites = fixture.makeSuites(project, 'Unit tests');
    const commit = fixture.makeCommit(project, 'Open the gate', suites);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const failed = Promise.withResolvers<void>();
    await page.route(
      url => url.pathname === `/ui/projects/${project.id}`,
      async route => {
        await route.fulfill({ status: 502, body: 'Bad gateway' });
        failed.resolve();
      },
      { times: 1 },
    );
    fixture.end(commit, 'start');
    await failed.promise;
    await page.getByRole('link', { name: 'Unit tests Running' }).waitFor();
    await person.context.close();
  });

  it('lists a hundred projects with their last commits and trends quickly', async () => {
    const person = await fixture.arrive();
    await person.go('/');
    await person.inspect('projects-with-trends');
    fixture.db.write(() => {
      for (let n = 1; n <= 100; n += 1) {
        const project = fixture.makeProject(`Many ${n}`);
        const suites = fixture.makeSuites(project, 'Unit tests');
        for (const end of ['pass', 'fail'] as const)
          fixture.end(fixture.makeCommit(project, `Change to ${n}`, suites), end);
      }
    });
    // The fastest of several runs, because other tests share the machine.
    let tookMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 5; tries += 1) {
      const begunAt = performance.now();
      const answer = await person.context.request.get('/ui/projects');
      tookMs = Math.min(tookMs, performance.now() - begunAt);
      assert.match(await answer.text(), /Change to 100/);
    }
    assert.ok(tookMs < 1000, `it took ${Math.round(tookMs)} ms`);
    await person.close();
  });
});

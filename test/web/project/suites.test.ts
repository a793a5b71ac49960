// The pages of suites: settings, environment variables, rules with a dry run, dependencies, cache.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { recordCommit } from '../../../src/store/builds.ts';
import { findCache, openCache, recordCacheSize } from '../../../src/store/caches.ts';
import { createDependency, setShared } from '../../../src/store/dependencies.ts';
import { recordImage } from '../../../src/store/images.ts';
import type { Project } from '../../../src/store/projects.ts';
import {
  attachDependency,
  createRule,
  findSuite,
  listAllRules,
  listAllSuites,
  listAllVariables,
  listSuiteDependencies,
  type Suite,
  updateSuite,
} from '../../../src/store/suites.ts';
import { commitFields } from '../../support/app.ts';
import type { Person } from '../../support/browser.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

describe('the suites of a project', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture?.close());

  const pathOf = (suite: Suite) => `/ui/projects/${suite.projectId}/suites/${suite.id}/settings`;
  const part = ({ page }: Person, name: string) => page.getByRole('region', { name, exact: true });
  const accept = ({ page }: Person, name: string) =>
    page.getByRole('dialog').getByRole('button', { name }).click();

  function dependency(name: string, ownerId = fixture.people.owner.account.id) {
    const instructions = {
      name,
      description: '',
      command: './configure --prefix=/opt/x && make install',
      prefix: '/opt/x',
      source: '',
      launchCommand: '',
      image: null,
    };
    return createDependency(fixture.db, ownerId, instructions, []);
  }

  it('explains what a suite is when there is none, creates one, changes it and deletes it', async () => {
    const project = fixture.makeProject('Suites');
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/suites`);
    await page.getByText('No suites yet').waitFor();
    await person.inspect('suites-empty');
    await page.getByRole('link', { name: 'New suite' }).click();
    person.expectRefusals();
    await page.getByLabel('Name').fill('Unit tests');
    await page.getByLabel('Command').fill(' ');
    await page.getByRole('button', { name: 'Create suite' }).click();
    await page.getByText('This field is required.').waitFor();
    await page.getByLabel('Command').fill('make check\nmake lint');
    await page.getByLabel('Description').fill('<i>All</i> of them');
    await page.getByRole('button', { name: 'Create suite' }).click();
    await page.getByText('Suite Unit tests created.').waitFor();
    const [suite] = listAllSuites(fixture.db, project.id) as [Suite];
    assert.equal(suite.command, 'make check\nmake lint', 'line ends are plain ones');

    recordImage(fixture.db, 'node-26', 'sha256:1');
    await page.reload();
    const settings = part(person, 'Suite');
    await settings.getByLabel('Name').fill('Everything');
    await settings.getByLabel('Image').selectOption('node-26');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Suite Everything saved.').waitFor();
    assert.equal(findSuite(fixture.db, project.id, suite.id)?.image, 'node-26');
    await settings.getByLabel('Image').selectOption('');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Suite Everything saved.').waitFor();
    assert.equal(findSuite(fixture.db, project.id, suite.id)?.image, null);

    await settings.getByLabel('Artifacts').fill('coverage/**\ndist/*.deb');
    await settings.getByLabel('Test reports').fill('build/reports/*.xml');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Suite Everything saved.').waitFor();
    const saved = findSuite(fixture.db, project.id, suite.id);
    assert.equal(saved?.artifacts, 'coverage/**\ndist/*.deb');
    assert.equal(saved.reports, 'build/reports/*.xml');
    assert.equal(await settings.getByLabel('Artifacts').inputValue(), 'coverage/**\ndist/*.deb');
    person.expectRefusals();
    await settings.getByLabel('Artifacts').fill('../other/*');
    await settings.getByLabel('Test reports').fill('');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Enter at most 50 paths, one on each line').waitFor();
    await person.inspect('suite-artifacts-refused');
    await settings.getByLabel('Artifacts').fill('');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Suite Everything saved.').waitFor();
    assert.equal(findSuite(fixture.db, project.id, suite.id)?.artifacts, '');
    assert.equal(findSuite(fixture.db, project.id, suite.id)?.reports, '');

    updateSuite(fixture.db, findSuite(fixture.db, project.id, suite.id) as Suite, { image: 'other/app:1' });
    await page.reload();
    assert.equal(await settings.getByLabel('Image').inputValue(), 'other/app:1');
    const offered = await settings.getByLabel('Image').locator('option').allTextContents();
    assert.deepEqual(offered, ['Default image (host)', 'host', 'node-26', 'other/app:1 (not imported)']);
    person.expectRefusals();
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Use host, the default image or an imported image.').waitFor();
    await person.inspect('suite-image-refused');
    await settings.getByLabel('Image').selectOption('host');
    await settings.getByRole('button', { name: 'Save suite' }).click();
    await page.getByText('Suite Everything saved.').waitFor();

    await page.getByRole('button', { name: 'Delete suite' }).click();
    await accept(person, 'Keep suite');
    assert.ok(findSuite(fixture.db, project.id, suite.id));
    await page.getByRole('button', { name: 'Delete suite' }).click();
    await accept(person, 'Delete suite');
    await page.getByText('Suite Everything deleted.').waitFor();
    assert.deepEqual(listAllSuites(fixture.db, project.id), []);
    await person.close();
  });

  it('shows the size of the cache of a suite, and empties it', async () => {
    const project = fixture.makeProject('Caches');
    const [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    const person = await fixture.arrive('collaborator');
    const { page } = person;
    const cache = part(person, 'Cache');
    await person.go(pathOf(suite));
    await cache.getByText('No build has used it yet').waitFor();
    recordCacheSize(fixture.db, openCache(fixture.db, suite.id), {
      sizeBytes: 3 << 20,
      measuredAt: Date.now(),
    });
    await person.go(pathOf(suite));
    await cache.getByText('3.0 MiB of at most 5.0 GiB').waitFor();
    await person.inspect('suite-cache');
    await cache.getByRole('button', { name: 'Empty cache' }).click();
    await accept(person, 'Empty cache');
    await page.getByText('Cache emptied').waitFor();
    await cache.getByText(/by collaborator@example\.org/).waitFor();
    assert.equal(findCache(fixture.db, suite.id)?.sizeBytes, 0);
    await person.close();
  });

  it('keeps the values of variables out of the page until one is revealed', async () => {
    const project = fixture.makeProject('Variables');
    const [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    const person = await fixture.arrive();
    const { page } = person;
    const variables = part(person, 'Environment variables');
    await person.go(pathOf(suite));
    await variables.getByLabel('Name').fill('API_TOKEN');
    await variables.getByLabel('Value').fill('hush-hush-hush\nsecond line');
    await variables.getByRole('button', { name: 'Add variable' }).click();
    await page.getByText('Variable API_TOKEN added.').waitFor();
    assert.doesNotMatch(await page.content(), /hush/);
    person.expectRefusals();
    await variables.getByLabel('Name').fill('API_TOKEN');
    await variables.getByLabel('Value').fill('other');
    await variables.getByRole('button', { name: 'Add variable' }).click();
    await page.getByText('This name is already in use (case and white space are ignored).').waitFor();
    assert.equal(await variables.getByLabel('Value').inputValue(), 'other');
    await variables.getByRole('link', { name: 'Reveal API_TOKEN' }).click();
    await variables.getByText('hush-hush-hush').waitFor();
    await person.inspect('suite-variable-revealed');
    await variables.getByRole('link', { name: 'Hide API_TOKEN' }).click();
    await variables.getByText('hush').waitFor({ state: 'detached' });

    await variables.getByRole('link', { name: 'Edit API_TOKEN' }).click();
    assert.equal(await page.getByLabel('Value').inputValue(), 'hush-hush-hush\nsecond line');
    await person.inspect('variable');
    await page.getByLabel('Value').fill('');
    await page.getByRole('button', { name: 'Save variable' }).click();
    await page.getByText('Variable API_TOKEN saved.').waitFor();
    assert.deepEqual(
      listAllVariables(fixture.db, suite.id).map(({ name, content }) => [name, content]),
      [['API_TOKEN', '']],
    );
    await variables.getByRole('button', { name: 'Remove' }).click();
    await accept(person, 'Remove');
    await page.getByText('Variable API_TOKEN removed.').waitFor();
    assert.deepEqual(listAllVariables(fixture.db, suite.id), []);
    await person.close();
  });

  it('adds rules, evaluates them for a commit without running anything, and removes them', async () => {
    const project = fixture.makeProject('Rules');
    const suites = fixture.makeSuites(project, 'Unit tests', 'Release') as [Suite, Suite];
    const [, release] = suites;
    const commit = fixture.makeCommit(project, 'Fix the roof', []);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(pathOf(release));
    const rules = part(person, 'Rules');
    await rules.getByText('No rules yet, so the suite runs for every commit.').waitFor();
    await rules.getByLabel('Subject').selectOption('commit.branches');
    await rules.getByLabel('Operator').selectOption('matches');
    await rules.getByLabel('Value').fill('release/*');
    await rules.getByRole('button', { name: 'Add rule' }).click();
    await page.getByText('Rule added.').waitFor();
    createRule(fixture.db, {
      suiteId: release.id,
      subject: 'commit.message',
      operator: 'does_not_contain',
      value: 'wip',
    });
    assert.equal(listAllRules(fixture.db, release.id)[0]?.value, 'release/*');

    await page.getByLabel('Commit').selectOption({ label: `${commit.ref.slice(0, 10)} Fix the roof` });
    await page.getByRole('button', { name: 'Test rules' }).click();
    const dryRun = page.getByRole('table', { name: 'Dry run' });
    await dryRun.getByText('Would not run').waitFor();
    await page.waitForLoadState();
    assert.match(
      (await dryRun.textContent()) ?? '',
      /Not met.*commit\.branches matches release\/\*.*Value: main.*Met.*commit\.message does not contain wip.*Value: Fix the roof/s,
    );
    await person.inspect('suite-rules');
    await page.getByRole('navigation', { name: 'Project' }).getByRole('link', { name: 'Suites' }).click();
    await page.getByRole('row', { name: /Release make release No build yet.*2 rules/ }).waitFor();
    await page.getByRole('button', { name: 'Test rules' }).click();
    await dryRun.getByRole('row', { name: /Unit tests Would run/ }).waitFor();
    await dryRun.getByRole('row', { name: /Release Would not run/ }).waitFor();
    await person.inspect('suites-dry-run');

    const large = recordCommit(fixture.db, project.id, {
      ...commitFields('d'.repeat(40)),
      files: JSON.stringify(['docs/a']),
      filesOmitted: 500,
    });
    const [unit] = suites;
    createRule(fixture.db, { suiteId: unit.id, subject: 'commit.files', operator: 'equals', value: 'src/a' });
    await person.go(`/ui/projects/${project.id}/suites?commit=${large.id}`);
    await dryRun.getByRole('row', { name: /Unit tests Undecided/ }).waitFor();
    assert.match(
      (await dryRun.textContent()) ?? '',
      /more files than are stored.*Value: docs\/a, … 500 more/s,
    );

    await person.go(pathOf(release));
    await rules.getByRole('button', { name: 'Remove' }).first().click();
    await accept(person, 'Remove');
    await page.getByText('Rule removed.').waitFor();
    assert.deepEqual(
      listAllRules(fixture.db, release.id).map(({ operator }) => operator),
      ['does_not_contain'],
    );
    await person.close();
  });

  it('attaches dependencies in order, moves one to the end and detaches one', async () => {
    const project = fixture.makeProject('Dependencies');
    const [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    const zlib = dependency('zlib');
    dependency('lua');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(pathOf(suite));
    const attached = part(person, 'Dependencies');
    person.expectRefusals();
    await attached
      .getByRole('button', { name: 'Attach' })
      .evaluate(button => Reflect.set(Reflect.get(button, 'form'), 'noValidate', true));
    await attached.getByRole('button', { name: 'Attach' }).click();
    await page.getByText('Choose a dependency.').waitFor();
    for (const name of ['zlib', 'lua']) {
      await attached.getByLabel('Attach a dependency').selectOption({ label: `${name} (/opt/x)` });
      await attached.getByRole('button', { name: 'Attach' }).click();
      await page.getByText(`${name} attached.`).waitFor();
    }
    const names = () => listSuiteDependencies(fixture.db, suite.id).map(({ name }) => name);
    assert.deepEqual(names(), ['zlib', 'lua']);
    await person.inspect('suite-dependencies');
    await attached.getByRole('button', { name: 'Move to the end' }).click();
    await page.getByText('zlib moved to the end.').waitFor();
    assert.deepEqual(names(), ['lua', 'zlib']);
    // It belongs to an owner who has left: it cannot be attached again, but stays attached.
    const gone = dependency('gone', fixture.people.stranger.account.id);
    attachDependency(fixture.db, suite.id, gone.id);
    attachDependency(fixture.db, suite.id, dependency('redis').id);
    await page.reload();
    await attached
      .getByRole('row', { name: /gone/ })
      .getByRole('button', { name: 'Move to the end' })
      .click();
    await page.getByText('gone moved to the end.').waitFor();
    assert.deepEqual(names(), ['lua', 'zlib', 'redis', 'gone']);
    for (const name of ['redis', 'gone']) {
      await attached
        .getByRole('row', { name: new RegExp(name) })
        .getByRole('button', { name: 'Detach' })
        .click();
      await accept(person, 'Detach');
      await page.getByText(`${name} detached.`).waitFor();
    }
    await attached.getByRole('row', { name: /lua/ }).getByRole('button', { name: 'Detach' }).click();
    await accept(person, 'Detach');
    await page.getByText('lua detached.').waitFor();
    assert.deepEqual(names(), [zlib.name]);
    await person.close();
  });

  it('does not offer a collaborator private dependencies that the project does not use', async () => {
    const project: Project = fixture.makeProject('Offers');
    const [suite, other] = fixture.makeSuites(project, 'Unit tests', 'Lint') as [Suite, Suite];
    dependency('private one');
    attachDependency(fixture.db, other.id, dependency('used one').id);
    const shared = dependency('shared one', fixture.people.stranger.account.id);
    setShared(fixture.db, shared, true);
    const person = await fixture.arrive('collaborator', { scripts: false });
    await person.go(pathOf(suite));
    const choices = await person.page.getByLabel('Attach a dependency').locator('option').allTextContents();
    assert.deepEqual(choices, ['Choose one', 'used one (/opt/x)', 'shared one (/opt/x)']);
    await person.close();
  });
});

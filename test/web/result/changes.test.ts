// The tab with what changed since the last build that passed, and where a failed build leads.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Locator } from 'playwright-core';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { mirrorPath } from '../../../src/store/data/paths.ts';
import type { Project } from '../../../src/store/projects.ts';
import { recordInputs } from '../../../src/store/result/build-inputs.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { finishBuild, reported } from '../../store/result/reported.ts';
import { commitFields } from '../../support/app.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { createRepository } from '../../support/repository.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const textIn = async (locator: Locator) => (await locator.textContent()) ?? '';

type Used = Parameters<typeof recordInputs>[2];
const zlib = {
  id: 5n,
  name: 'zlib',
  artifactHash: 'a'.repeat(64),
  launchCommand: '',
  environment: '',
  libraryPath: true,
};
const used: Used = {
  command: 'make check',
  image: 'host',
  imageId: 'assay/host:1',
  variables: [{ id: 1n, name: 'TOKEN', content: 'the old content' }],
  dependencies: [zlib],
  limits: { MEMORY: 2 * 1024 ** 3, TIMEOUT: 3600 },
};
const LOG = '[assay] suite Unit tests: make check\nHEAD is now at 3f78685\n12:30 compiling footer.c\n';

describe('the changes of a build', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  let suite: Suite;
  let hashes: string[];
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Website');
    [suite] = fixture.makeSuites(project, 'Unit tests') as [Suite];
    hashes = createRepository(mirrorPath(fixture.data, project.id), [
      { message: 'Add a footer', files: { 'footer.c': '1' } },
      { message: 'Show the year in the footer', author: 'Bob <bob@example.org>', files: { 'footer.c': '2' } },
      { message: 'Use a newer zlib', files: { 'src/inflate.c': '1', Makefile: 'all:' } },
    ]);
  });
  after(() => fixture?.close());

  const enqueue = (ref: string, message: string) => {
    const request = createBuildRequest(fixture.db, project, 'main', 'ada@example.org');
    moveRequest(fixture.db, request.id, 'fetch');
    const commit = recordCommit(fixture.db, project.id, { ...commitFields(ref), message });
    enqueueBuilds(fixture.db, request.id, commit, 'main', [
      { suiteId: suite.id, suiteName: suite.name, runs: true, rules: [] },
    ]);
    return listBuildsOfRequest(fixture.db, request.id)[0]?.id as bigint;
  };
  const run = async (
    at: number,
    changes: Partial<Used>,
    tests: ReturnType<typeof reported>[],
    log: string,
  ) => {
    const id = enqueue(hashes[at] as string, `Commit ${at}`);
    recordInputs(fixture.db, { id, projectId: project.id }, { ...used, ...changes });
    await fixture.writeLog(id, LOG + log);
    await finishBuild(fixture.db, id, tests);
    return { id, href: `/ui/projects/${project.id}/builds/${id}` };
  };

  it('lead from a failed build to the likeliest cause, with what was before and after', async () => {
    await run(0, {}, [reported('shows the year', 'passed'), reported('has a link', 'failed')], 'ok\n');
    const good = await run(0, {}, [reported('shows the year', 'passed')], 'all 12 tests passed\n');
    const bad = await run(
      2,
      {
        command: 'make check\nmake lint',
        dependencies: [{ ...zlib, artifactHash: 'b'.repeat(64) }],
        variables: [{ id: 1n, name: 'TOKEN', content: 'the new content' }],
        limits: { MEMORY: 1024 ** 3, TIMEOUT: 3600 },
      },
      [reported('shows the year', 'failed')],
      '\x1b[31mfooter.c:7: undefined reference to inflate\x1b[0m\n<script>alert(1)</script>\n[assay] the command exited with 2\n',
    );
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(bad.href);
    const finding = page.locator('#build-findings');
    assert.match(
      await textIn(finding),
      /Most likely cause: The dependency zlib was compiled again with a different result\. What changed/,
    );
    await person.inspect('build-likely-cause');
    await page.getByRole('link', { name: 'What changed since it passed?' }).click();
    await page.getByRole('heading', { name: 'Most likely cause' }).waitFor();
    assert.match(page.url(), /\/changes$/);
    const cause = page.getByRole('region', { name: 'Most likely cause' });
    assert.deepEqual(await cause.locator('.tag').allInnerTexts(), [
      'Dependencies',
      'Command',
      'Variables',
      'Limits',
      'Commits',
      'Tests',
      'Log',
    ]);
    const table = page.getByRole('table', { name: 'What differs between the two builds' });
    const cells = async (name: string) =>
      (await table.getByRole('row').filter({ hasText: name }).getByRole('cell').allInnerTexts()).map(text =>
        text.trim(),
      );
    assert.deepEqual(await cells('Dependency zlib'), ['a'.repeat(10), 'b'.repeat(10)]);
    assert.deepEqual(await cells('Command'), ['make check', 'make check\nmake lint']);
    assert.deepEqual(await cells('Variable TOKEN'), ['set', 'a different value']);
    assert.deepEqual(await cells('Setting MEMORY'), ['2.0 GiB', '1.0 GiB']);
    assert.deepEqual(await cells('Exit status'), ['0', '1']);
    assert.match(await textIn(page.locator('main')), /The same in both: image\./);
    assert.match(await textIn(page.getByRole('region', { name: 'Commits' })), /Use a newer zlib by Ada/);
    assert.match(
      await textIn(page.getByLabel('Different log lines')),
      /4 {2}footer\.c:7: undefined reference/,
    );
    assert.match(await textIn(page.getByLabel('Different log lines')), /<script>alert/);
    assert.ok(!(await page.content()).includes('the new content'));
    assert.equal(
      await page.getByLabel('Different log lines').getByRole('link', { name: '4' }).getAttribute('href'),
      `${bad.href}#L4`,
    );
    await page.getByText('3 files changed', { exact: true }).click();
    await page.getByText('src/inflate.c').waitFor();
    await person.inspect('build-changes');
    const dark = await fixture.arrive('collaborator', { dark: true });
    await dark.go(`${bad.href}/changes`);
    await dark.inspect('build-changes-dark');
    await dark.close();

    // Another build to compare with, by keyboard.
    await page.getByLabel('Compare with').focus();
    const failed = await page.getByRole('option', { name: /^Failed/ }).getAttribute('value');
    await page.getByLabel('Compare with').selectOption(failed as string);
    await page.getByRole('button', { name: 'Compare' }).press('Enter');
    await page.getByText('Compared with the build that you chose').waitFor();
    assert.match(page.url(), new RegExp(`against=${failed}`));
    assert.notEqual(failed, String(good.id));
    await person.close();
  });

  it('say what to do when there is nothing to compare with, and what was not recorded', async () => {
    const other = fixture.makeProject('Old');
    const [only] = fixture.makeSuites(other, 'Lint') as [Suite];
    const first = fixture.makeCommit(other, 'One', [only]);
    fixture.end(first, 'fail');
    const person = await fixture.arrive('owner', { scripts: false });
    const { page } = person;
    const hrefOf = async () => {
      await person.go(`/ui/projects/${other.id}`);
      await page.locator('#commits a[href*="/builds/"]').first().click();
      return new URL(page.url()).pathname;
    };
    const href = await hrefOf();
    assert.equal(await textIn(page.locator('#build-findings')), '');
    await person.go(`${href}/changes`);
    await page.getByRole('heading', { name: 'Nothing to compare with' }).waitFor();
    const second = fixture.makeCommit(other, 'Two', [only]);
    fixture.end(second, 'pass');
    const third = fixture.makeCommit(other, 'Three', [only]);
    fixture.end(third, 'fail');
    await person.go(`${await hrefOf()}/changes`);
    await page.getByText('were not recorded for one of these builds').waitFor();
    assert.match(await textIn(page.locator('.cause')), /The commit is different\./);
    person.expectRefusals();
    await person.go(`${href}/changes?against=1`);
    await page
      .getByRole('heading', { name: /not found/i })
      .first()
      .waitFor();
    await person.close();
  });

  it('of a running build are shown as far as they are known', async () => {
    const id = enqueue(hashes[1] as string, 'Running');
    recordInputs(fixture.db, { id, projectId: project.id }, { ...used, command: 'make other' });
    moveBuild(fixture.db, id, 'start');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}/builds/${id}/changes`);
    await page.getByText('The command of the suite changed.').waitFor();
    moveBuild(fixture.db, id, 'fail', { exitCode: 3 });
    await page.getByRole('cell', { name: '3', exact: true }).waitFor();
    await person.close();
  });
});

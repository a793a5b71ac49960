// The artifacts tab of a build: tree, viewer, downloads, keeping and deleting, and builds with very many files.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { listLatestBuilds } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import { replaceBuildArtifacts } from '../../../src/store/result/build-artifacts.ts';
import { addArtifacts, type Files, setArtifactCounts } from '../../support/artifacts.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const PIXEL = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==',
  'base64',
);

describe('the artifacts tab', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let project: Project;
  before(async () => {
    fixture = await openProjectFixture();
    project = fixture.makeProject('Website');
  });
  after(() => fixture?.close());

  async function makeBuild(name: string, files: Files) {
    const suites = fixture.makeSuites(project, name);
    const commit = fixture.makeCommit(project, 'Fix the roof', suites);
    const build = listLatestBuilds(fixture.db, commit.id).get(suites[0]?.id as bigint);
    assert.ok(build);
    fixture.end(commit, 'pass');
    if (Object.keys(files).length > 0) await addArtifacts(fixture.db, fixture.data, build.id, files);
    return { id: build.id, href: `/ui/projects/${project.id}/builds/${build.id}/artifacts` };
  }

  const files: Files = {
    'report/index.html':
      '<link rel="stylesheet" href="style.css"><h1>98 % covered</h1><script src="a.js"></script>',
    'report/style.css': 'h1 { color: rgb(1, 2, 3) }',
    'report/a.js': 'document.title = "ran"',
    'report/sub/deep/data.json': '{"lines": 98}',
    'screenshots/home.png': PIXEL,
    'app.log': 'first line\n\u001b[31mred\u001b[0m <b>bold</b>\n',
    'app.tar': Buffer.from([1, 2, 0, 4]),
    'empty.txt': '',
    'long.txt': 'x'.repeat(300_000),
  };

  it('shows a tree with sizes, and text and images in its own viewer', async () => {
    const build = await makeBuild('Unit tests', files);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(build.href);
    await page.getByText('9 files').waitFor();
    assert.match(
      (await page.locator('.artifact-bar').textContent()) ?? '',
      /not while this is the newest passed build/,
    );
    const rows = await page.locator('.tree > li').allInnerTexts();
    assert.match(rows[0] as string, /^report\/\n4 files, 1\d\d B$/);
    await person.inspect('artifacts');
    await page.getByText('report/', { exact: true }).click();
    // Directories with nothing but a directory in them are one.
    await page.getByText('sub/deep/').waitFor();
    await page.getByRole('link', { name: 'index.html', exact: true }).waitFor();
    await person.inspect('artifacts-open-directory');

    await person.follow(page.getByRole('link', { name: 'app.log', exact: true }));
    assert.equal(await page.locator('.artifact-text').textContent(), 'first line\nred <b>bold</b>\n');
    assert.match((await page.locator('.artifact-sum').textContent()) ?? '', /^SHA-256 [\da-f]{64}$/);
    await person.inspect('artifact-text');
    await page.getByRole('link', { name: 'All artifacts' }).click();
    // As a large file just after the end of its build.
    fixture.db.sqlite
      .prepare("UPDATE build_artifacts SET sha256 = '' WHERE build_id = ? AND path = 'long.txt'")
      .run(build.id);
    await page.getByRole('link', { name: 'long.txt', exact: true }).click();
    await page.getByText('The first 256 KiB are shown').waitFor();
    await page.getByText('SHA-256 is being computed').waitFor();
    await person.inspect('artifact-without-sum');
    assert.equal((await page.locator('.artifact-text').textContent())?.length, 256 * 1024);
    await person.go(build.href);
    await page.getByText('screenshots/').click();
    await page.getByRole('link', { name: 'home.png', exact: true }).click();
    await page.getByRole('img', { name: 'home.png' }).waitFor();
    assert.equal(await page.evaluate('document.querySelector(".artifact-image img").naturalWidth'), 1);
    await person.inspect('artifact-image');
    for (const [name, title] of [
      ['app.tar', 'Not a text'],
      ['empty.txt', 'The file is empty'],
    ] as const) {
      await person.go(build.href);
      await page.getByRole('link', { name, exact: true }).click();
      await page.getByRole('heading', { name: title }).waitFor();
    }
    await person.close();
    const dark = await fixture.arrive('owner', { dark: true });
    await dark.go(build.href);
    await dark.page.getByText('report/', { exact: true }).click();
    await dark.inspect('artifacts');
    await dark.close();
  });

  it('opens an HTML report with its style sheet and its scripts, and downloads single files', async () => {
    const build = await makeBuild('Coverage', files);
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(build.href);
    await page.getByText('report/', { exact: true }).click();
    const [report] = await Promise.all([
      page.waitForEvent('popup'),
      page.getByRole('link', { name: 'Open index.html in a new tab' }).click(),
    ]);
    await report.waitForLoadState();
    assert.equal(await report.title(), 'ran');
    assert.equal(
      await report.evaluate('getComputedStyle(document.querySelector("h1")).color'),
      'rgb(1, 2, 3)',
    );
    assert.equal(await report.evaluate('window.opener'), null);
    assert.equal(await report.evaluate('origin'), 'null');
    await report.close();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download app.tar' }).click(),
    ]);
    assert.equal(download.suggestedFilename(), 'app.tar');
    const [all] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download all' }).click(),
    ]);
    assert.equal(all.suggestedFilename(), `build-${build.id}.zip`);
    await person.close();
  });

  it('keeps and deletes artifacts, and other pages follow', async () => {
    const build = await makeBuild('Release', { 'app.log': 'x' });
    const person = await fixture.arrive();
    const other = await fixture.arrive('collaborator');
    await person.go(build.href);
    await other.go(build.href);
    assert.equal(await other.page.getByRole('button', { name: 'Delete' }).count(), 0);
    await person.page.getByRole('button', { name: 'Keep' }).click();
    await person.page.getByText('They are kept until somebody deletes them.').waitFor();
    await other.page.getByText('They are kept until somebody deletes them.').waitFor();
    await other.page.getByRole('button', { name: 'Stop keeping' }).click();
    await person.page.getByRole('button', { name: 'Keep', exact: true }).waitFor();
    await person.page.getByRole('button', { name: 'Delete' }).click();
    await person.page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await person.page.getByRole('heading', { name: 'No artifacts' }).waitFor();
    await other.page.getByRole('heading', { name: 'No artifacts' }).waitFor();
    await person.close();
    await other.close();
  });

  it('works without scripts', async () => {
    const build = await makeBuild('Plain', files);
    const person = await fixture.arrive('owner', { scripts: false });
    await person.go(build.href);
    await person.page.getByText('screenshots/').click();
    await person.page.getByRole('link', { name: 'home.png', exact: true }).click();
    await person.page.getByRole('img', { name: 'home.png' }).waitFor();
    await person.close();
  });

  it('stays small with ten thousand files, and leads to each of them', async () => {
    const build = await makeBuild('Many', { x: 'x' });
    const { db } = fixture;
    const entry = {
      sizeBytes: 1,
      storedBytes: 1,
      offset: 31,
      method: 0,
      crc32: 0,
      sha256: '00',
      report: false,
    };
    const paths = [
      ...Array.from({ length: 7_000 }, (_, at) => `flat/file-${String(at).padStart(5, '0')}.txt`),
      ...Array.from({ length: 2_990 }, (_, at) => `deep/${at % 50}/${at % 7}/part-${at}.txt`),
      ...Array.from({ length: 10 }, (_, at) => `top-${at}.txt`),
    ];
    await replaceBuildArtifacts(
      db,
      build.id,
      paths.map(path => ({ ...entry, path })),
    );
    setArtifactCounts(db, build.id, { artifacts: 10_000, artifactsBytes: 10_000, artifactsTruncated: true });
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(build.href);
    await page.getByText('10,000 files').waitFor();
    await page.getByText('Files were left out because of a limit.').waitFor();
    const rows = () => page.locator('.tree-row').count();
    assert.ok((await rows()) <= 1_000);
    assert.ok((await page.content()).length < 1_000_000);
    await person.inspect('artifacts-many');
    await page.getByRole('link', { name: 'flat/' }).click();
    await page.getByRole('link', { name: 'file-00999.txt', exact: true }).waitFor();
    assert.equal(await rows(), 1_000);
    for (let at = 1; at < 7; at += 1) {
      await page.getByRole('link', { name: /^Next 1,000 of 7,000$/ }).click();
      await page.getByRole('link', { name: `file-0${at}999.txt`, exact: true }).waitFor();
    }
    assert.equal(await page.getByRole('link', { name: /^Next/ }).count(), 0);
    await person.close();
  });
});

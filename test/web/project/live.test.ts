// What survives while a page of a project keeps itself current, and how much that costs.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { renderLiveParts } from '../../../src/web/frame/live-parts.ts';
import { openProjectFixture, type ProjectFixture } from './fixture.ts';

describe('a live page', () => {
  let fixture: ProjectFixture;
  before(async () => {
    fixture = await openProjectFixture();
  });
  after(() => fixture.close());

  it('keeps scroll positions, focus, selected text and open details while builds run', async () => {
    const project = fixture.makeProject('Scrolled');
    const suites = fixture.makeSuites(
      project,
      ...Array.from({ length: 40 }, (_, at) => `Browser tests, part ${at + 1}`),
    );
    const first = fixture.makeCommit(project, 'Lay the ground', suites);
    fixture.end(first, ...suites.map(() => 'pass' as const));
    const commit = fixture.makeCommit(project, 'Fix the roof', suites);
    fixture.end(commit, 'start', 'start', 'start');
    const person = await fixture.arrive();
    const { page } = person;
    await page.setViewportSize({ width: 800, height: 500 });
    await person.go(`/ui/projects/${project.id}`);
    await page.evaluate(`
      document.querySelector('.matrix-frame').scrollLeft = 150;
      window.focused = document.querySelector('#commits tbody a[href*="/builds/"]');
      focused.focus({ preventScroll: true });
      window.subject = [...document.querySelectorAll('a.subject')].find(one => one.textContent === 'Lay the ground');
      getSelection().setBaseAndExtent(subject.firstChild, 4, subject.firstChild, 7);
      scrollTo(0, 120);
    `);
    const state = () =>
      page.evaluate(`({
        left: document.querySelector('.matrix-frame').scrollLeft,
        top: scrollY,
        focused: document.activeElement === focused && focused.isConnected,
        selected: String(getSelection()),
        same: subject.isConnected,
      })`);
    const kept = await state();
    fixture.end(commit, '', '', '', 'fail');
    await page.getByRole('link', { name: /^Browser tests, part 4 Failed/ }).waitFor();
    assert.deepEqual(await state(), kept);
    assert.deepEqual(kept, { left: 150, top: 120, focused: true, selected: 'the', same: true });

    // A commit that is new moves the rows below it.
    fixture.makeCommit(project, 'Paint the door', suites);
    await page.getByRole('link', { name: 'Paint the door' }).waitFor();
    const { focused, selected, same } = (await state()) as typeof kept & Record<string, unknown>;
    assert.deepEqual({ focused, selected, same }, { focused: true, selected: 'the', same: true });

    // The tests of a build that runs: its heading lists the builds that passed in details.
    fixture.end(commit, ...suites.map((_, at) => (at > 3 && at < 30 ? ('pass' as const) : ('' as const))));
    await page.getByRole('link', { name: 'Browser tests, part 1 Running' }).click();
    await page.getByRole('link', { name: 'Tests', exact: true }).click();
    await page.getByText('26 more passed').click();
    await page.getByRole('link', { name: 'Passed Browser tests, part 9', exact: true }).waitFor();
    fixture.end(commit, ...suites.map((_, at) => (at === 30 ? ('pass' as const) : ('' as const))));
    await page.getByText('27 more passed').waitFor();
    assert.ok(
      await page.getByRole('link', { name: 'Passed Browser tests, part 9', exact: true }).isVisible(),
    );
    await person.close();
  });

  it('sends only the parts that changed, and nothing but the title while nobody looks', async () => {
    const project = fixture.makeProject('Frugal');
    const suites = fixture.makeSuites(project, ...Array.from({ length: 12 }, (_, at) => `Part ${at + 1}`));
    for (let n = 1; n <= 25; n += 1)
      fixture.end(fixture.makeCommit(project, `Change ${n}`, suites), ...suites.map(() => 'pass' as const));
    const commit = fixture.makeCommit(project, 'Open the window', suites);
    const person = await fixture.arrive();
    const { page } = person;
    const sizes: { asked: string; bytes: number }[] = [];
    page.on('requestfinished', async request => {
      const asked = request.headers()['assay-live'];
      if (asked !== undefined)
        sizes.push({ asked, bytes: (await (await request.response())?.body())?.length ?? 0 });
    });
    await person.go(`/ui/projects/${project.id}`);
    const whole = (await (await person.context.request.get(`/ui/projects/${project.id}`)).body()).length;
    for (let at = 0; at < 3; at += 1) {
      fixture.end(commit, ...Array.from({ length: at }, () => '' as const), 'start');
      await page.getByRole('link', { name: `Part ${at + 1} Running` }).waitFor();
    }
    assert.ok(sizes.length >= 2 && sizes.length <= 4, `${sizes.length} refreshes`);
    const last = sizes.at(-1)?.bytes ?? Number.NaN;
    assert.ok(last < whole / 8, `a refresh has ${last} bytes, the page ${whole}`);
    person.check();

    // Headless pages are never hidden: the page is made to believe it.
    await page.evaluate(`
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.isAway });
      window.isAway = true;
    `);
    fixture.end(commit, ...suites.map((_, at) => (at < 3 ? ('' as const) : ('fail' as const))));
    await page.waitForRequest(request => request.headers()['assay-live'] === 'head');
    assert.equal(await page.getByRole('link', { name: /^Part 12 Failed/ }).count(), 0);
    await page.evaluate(`window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))`);
    await page.getByRole('link', { name: /^Part 12 Failed/ }).waitFor();
    await person.close();
  });

  it('names its changes on the stream without their bodies', async () => {
    const project = fixture.makeProject('Terse');
    const suites = fixture.makeSuites(project, 'Unit tests');
    const person = await fixture.arrive();
    const { page } = person;
    await person.go(`/ui/projects/${project.id}`);
    const data = page.evaluate(`new Promise(resolve => {
      const { stream } = document.querySelector('[data-stream]').dataset;
      new EventSource(stream).addEventListener('build.enqueued', event => resolve(event.data));
    })`);
    fixture.makeCommit(project, 'Change', suites);
    assert.equal(await data, '{}');
    await person.close();
  });
});

describe('the live parts of a page', () => {
  const page = (count: number, words = 'now') => `<h1>Title</h1><section id="list" data-live><h2>List</h2><ul>
<li id="one" data-live>First <ul><li>nested</li></ul></li><li id="two" data-live>${count} <time datetime="t">${words}</time><input type="hidden" name="csrf" value="${words}"></li></ul></section>
<p title="not data-live either">Text</p><div id="foot" class="a" data-live data-poll="9"></div>`;
  const hashes = (text: string) => [...text.matchAll(/data-hash="([^"]*)"/g)].map(([, hash = '']) => hash);

  it('are sent with hashes, and left out if the reader has them', () => {
    const whole = renderLiveParts(page(1), new Set());
    assert.equal(hashes(whole).length, 4);
    assert.doesNotMatch(whole, /Title|Text/);
    const unchanged = renderLiveParts(page(1, 'a minute ago'), new Set(hashes(whole)));
    assert.equal(
      unchanged,
      '<section id="list" data-live data-same></section>\n<div id="foot" class="a" data-live data-poll="9" data-same></div>',
    );
    const changed = renderLiveParts(page(2), new Set(hashes(whole)));
    assert.match(changed, /<h2>List<\/h2>/);
    assert.match(
      changed,
      /<li id="one" data-live data-same><\/li><li id="two" data-live data-hash="[^"]+">2 /,
    );
  });
});

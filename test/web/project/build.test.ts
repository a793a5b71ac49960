// The page of a build: the growing log, its colours, folds, links and search; cancel and rerun.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { type Build, findBuild, recordNode, rerunBuild } from '../../../src/store/builds.ts';
import { markLogsDeleted } from '../../../src/store/cleanup/sweep.ts';
import { type LogWriter, openLog } from '../../../src/store/data/log-file.ts';
import { buildLogPath } from '../../../src/store/data/paths.ts';
import { deleteCollaborator, findCollaborator } from '../../../src/store/projects.ts';
import { createSuite, findSuite } from '../../../src/store/suites.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { plainText } from '../../../src/web/project/log-view.ts';
import { bootApp, type Planted, type TestApp } from '../../support/app.ts';
import { openBrowser, type Person, signIn } from '../../support/browser.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { launchSignedIn, PASSWORD, type SignedIn } from '../signed-in.ts';

/** Whether an element is visible in the viewport. */
async function isInSightNow(page: Page, selector: string): Promise<boolean> {
  const box = await page.locator(selector).boundingBox();
  return box !== null && box.y >= 0 && box.y + box.height <= (page.viewportSize()?.height ?? 0);
}

/** Scrolling takes time: true as soon as it is visible, false if it never is. */
async function isInSight(page: Page, selector: string): Promise<boolean> {
  const deadline = performance.now() + 20_000;
  while (performance.now() < deadline) if (await isInSightNow(page, selector)) return true;
  return false;
}

const atBottom = 'document.querySelector(".log-lines").getBoundingClientRect().bottom <= innerHeight';

/** A wheel movement continues for a while, and only while frames are drawn. */
const hasComeToRest =
  'new Promise(done => { const from = scrollY; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(scrollY === from))), 300); })';

/** Waits until an expression is true on the page. Not page.waitForFunction, which the page's policy forbids. */
async function until(page: Page, expression: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await page.evaluate(expression))) {
    if (performance.now() < deadline) continue;
    const position = await page.evaluate(
      '({ scrollY, innerHeight, bottom: document.querySelector(".log-lines")?.getBoundingClientRect().bottom, follow: document.querySelector("[data-log-follow]")?.ariaPressed })',
    );
    assert.fail(`on the page it never came to ${expression}: ${JSON.stringify(position)}`);
  }
}

const numbered = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, n) => `line ${first + n}\n`).join('');

/** A connection between browser and application that can be cut. */
async function openWire(to: URL): Promise<{ url: string; cut(): void; close(): void }> {
  const ends = new Set<Socket>();
  const server = createServer(near => {
    const far = connect(Number(to.port), to.hostname);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      ends.add(one);
      one.pipe(other);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        ends.delete(one);
        other.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = () => {
    for (const end of ends) end.destroy();
  };
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    close: () => {
      server.close();
      cut();
    },
  };
}

/** The processor time of the browser's pages from now on, by process, so that one that ends is not subtracted. */
async function measureProcessor(browser: Browser): Promise<{ spentMs(): Promise<number> }> {
  const session = await browser.newBrowserCDPSession();
  const read = async () => {
    const { processInfo } = await session.send('SystemInfo.getProcessInfo');
    const pages = processInfo.filter(({ type }) => type === 'renderer');
    return new Map(pages.map(({ id, cpuTime }) => [id, cpuTime * 1000]));
  };
  const before = await read();
  return {
    spentMs: async () => [...(await read())].reduce((sum, [id, ms]) => sum + ms - (before.get(id) ?? 0), 0),
  };
}

describe('the page of a build', { timeout: 600_000 }, () => {
  let app: TestApp;
  let signedIn: SignedIn;
  let planted: Planted;

  before(async () => {
    app = await bootApp();
    planted = app.plant();
    signedIn = await launchSignedIn(app);
  });
  after(async () => {
    await signedIn?.close();
    await app?.close();
  });

  const arrive: SignedIn['arrive'] = (...given) => signedIn.arrive(...given);
  const planBuild = (from = planted): Build => {
    const build = findBuild(app.db, from.project_id, from.build_id) as Build;
    const suite = findSuite(app.db, from.project_id, from.suite_id);
    assert.ok(suite);
    return rerunBuild(app.db, build, suite);
  };
  const startBuild = (): Build => {
    const { id } = planBuild();
    return moveBuild(app.db, id, 'start', { nonce: 'n' }) as Build;
  };
  const finishBuild = (state: 'passed' | 'failed'): Build => {
    const { id } = startBuild();
    return moveBuild(app.db, id, state === 'passed' ? 'pass' : 'fail', {
      exitCode: state === 'passed' ? 0 : 1,
    }) as Build;
  };
  const hrefOf = (build: Build) => `/ui/projects/${build.projectId}/builds/${build.id}`;
  /** Writes the log of a build like the runner, and notifies the readers. */
  const openLogOf = async (build: Build) => {
    const log: LogWriter = await openLog({ path: buildLogPath(app.data, build.id), limitBytes: 1e9 });
    const reported = async (write: Promise<number>) => {
      await write;
      app.db.write(() => app.db.touch(`log:build:${build.id}`));
    };
    return {
      line: (text: string) => reported(log.line(text)),
      print: (text: string) => reported(log.append(Buffer.from(text), 0)),
      close: () => log.finish(),
    };
  };
  const isWhole = (person: Person) => person.page.locator('[data-log][data-whole]').waitFor();

  it('shows a waiting build, then its growing log, and its result, without a reload', async () => {
    const build = planBuild();
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await page.getByText('The build starts as soon as a slot is free.').waitFor();
    await page.getByText('The log appears here as soon as the build prints something.').waitFor();
    assert.equal(await page.title(), 'Enqueued · Unit tests · Planted 1 · Assay');
    await person.inspect('build-enqueued');

    moveBuild(app.db, build.id, 'start', { nonce: 'n' });
    await page.getByText('Running').first().waitFor();
    await until(page, 'document.title.startsWith("Running")');
    assert.equal(await page.getByText('Node', { exact: true }).count(), 0);
    recordNode(app.db, build.id, 'builder-2');
    await page.getByText('builder-2').waitFor();
    const log = await openLogOf(build);
    await log.line('checkout of aaaaaaa');
    await log.print('HEAD is now at aaaaaaa\n');
    await log.line('launch redis: redis-server --daemonize yes');
    await log.line('suite Unit tests: make check');
    await log.print(
      '\x1b[1mrunning 3 tests\x1b[0m\n\x1b[32mok\x1b[0m 1 - adds\n\x1b[31mnot ok\x1b[0m 2 - subtracts\n',
    );
    await page.getByText('not ok').waitFor();
    await log.print('progress 10 %\rprogress 90 %');
    await page.getByText('progress 90 %').waitFor();
    await log.print('\rdone         \nsee https://example.org/report?id=1.\n');
    await page.getByRole('link', { name: 'https://example.org/report?id=1' }).waitFor();
    assert.equal(await page.getByText('progress').count(), 0, 'the last state of a line wins');
    assert.equal(await page.locator('#L8').textContent(), '8done         ');
    await person.inspect('build-running');

    await log.line('the command exited with 1');
    await log.close();
    moveBuild(app.db, build.id, 'fail', { exitCode: 1 });
    await page.getByText('The command exited with 1.').waitFor();
    await isWhole(person);
    assert.match(await page.title(), /^Failed · /);
    assert.match((await page.locator('link[rel=icon]').getAttribute('href')) ?? '', /favicon-bad\.svg$/);
    assert.equal(await page.getByRole('button', { name: 'Rerun', exact: true }).count(), 1);
    assert.equal(await page.getByRole('button', { name: 'Cancel' }).count(), 0);
    assert.deepEqual(
      await page.evaluate('[...document.querySelectorAll(".log-lines details")].map(part => part.open)'),
      [false, false, true],
      'what went well is folded, the failing part is open',
    );
    await page.locator('.took').nth(2).waitFor();
    await person.inspect('build-failed');
    await person.close();
  });

  it('follows the end of the log, stops when scrolled up, and continues with “Follow”', async () => {
    const build = startBuild();
    const person = await arrive();
    const { page } = person;
    await app.writeLog(build.id, numbered(1, 300));
    await person.go(hrefOf(build));
    await page.locator('#L300').waitFor();
    const follow = page.getByRole('button', { name: 'Follow' });
    await until(page, atBottom);
    assert.equal(await follow.getAttribute('aria-pressed'), 'true');
    await app.writeLog(build.id, numbered(301, 400));
    await page.locator('#L400').waitFor();
    await until(page, atBottom);
    assert.equal(await isInSight(page, '#L400'), true, 'the newest line is in sight');

    await page.mouse.move(600, 400);
    await page.mouse.wheel(0, -900);
    await page.locator('[data-log-follow][aria-pressed=false]').waitFor();
    await until(page, `!(${atBottom})`);
    await until(page, hasComeToRest);
    const before = await page.evaluate('scrollY');
    await app.writeLog(build.id, numbered(401, 500));
    await page.locator('#L500').waitFor({ state: 'attached' });
    assert.equal(await page.evaluate('scrollY'), before, 'what is being read stays where it is');

    await follow.click();
    await until(page, atBottom);
    await app.writeLog(build.id, numbered(501, 520));
    await page.locator('#L520').waitFor();
    await until(page, atBottom);
    await person.close();
  });

  it('never follows again by itself after the reader has stopped it, in 50 rounds', async () => {
    const build = startBuild();
    const person = await arrive();
    const { page } = person;
    let written = 300;
    const isShown = (line: number) => until(page, `document.querySelector("#L${line}") !== null`);
    const write = async (count: number) => {
      await app.writeLog(build.id, numbered(written + 1, written + count));
      written += count;
    };
    await app.writeLog(build.id, numbered(1, written));
    await person.go(hrefOf(build));
    await isShown(written);
    const follow = page.getByRole('button', { name: 'Follow' });
    const isOff = 'document.querySelector("[data-log-follow]").ariaPressed === "false"';
    const nextFrames =
      'new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))';
    // Presses the button after the page has moved by itself, and before its scroll event.
    const pressAfterMove = `void (window.pressed = new Promise(done => {
      const from = scrollY;
      const look = () => requestAnimationFrame(() => setTimeout(() => {
        if (scrollY === from) return look();
        document.querySelector('[data-log-follow]').click();
        done();
      }));
      look();
    }))`;
    const ways: [name: string, stop: () => Promise<unknown>][] = [
      [
        'a click before the scroll event',
        async () => {
          // It must look at the page before the page moves.
          await page.evaluate(pressAfterMove);
          await write(5);
          await page.evaluate('window.pressed');
        },
      ],
      ['a click', () => follow.click()],
      ['Shift+Space', () => page.keyboard.press('Shift+Space')],
      ['PageUp', () => page.keyboard.press('PageUp')],
      ['the wheel', () => page.mouse.wheel(0, -300)],
    ];
    for (let round = 0; round < 50; round += 1) {
      const [name, stop] = ways[round % ways.length] as (typeof ways)[number];
      await until(page, `!(${isOff}) && ${atBottom}`);
      await page.evaluate('document.activeElement.blur()');
      await page.mouse.move(600, 400);
      await stop();
      await write(5);
      await isShown(written);
      if (!name.includes('click')) await until(page, `!(${atBottom})`);
      await page.evaluate(nextFrames);
      assert.equal(await page.evaluate(isOff), true, `it stays off after ${name}, round ${round + 1}`);
      await follow.click();
    }
    await page.keyboard.press('PageUp');
    await until(page, isOff);
    await page.keyboard.press('End');
    await until(page, `!(${isOff})`);
    await person.close();
  });

  it('keeps to the end of the log when the page above it grows or the window shrinks', async () => {
    const build = startBuild();
    const person = await arrive();
    const { page } = person;
    await app.writeLog(build.id, numbered(1, 300));
    await person.go(hrefOf(build));
    await until(page, `document.querySelector("#L300") !== null && ${atBottom}`);
    await page.evaluate(
      'document.querySelector("main").insertAdjacentHTML("afterbegin", "<p id=taller></p>"); taller.style.height = "900px"; taller.style.overflowAnchor = "none"',
    );
    await until(page, atBottom);
    await page.setViewportSize({ width: 1280, height: 300 });
    await until(page, atBottom);
    assert.equal(await page.getByRole('button', { name: 'Follow' }).getAttribute('aria-pressed'), 'true');
    await person.close();
  });

  it('links to one line or several, and opens there', async () => {
    const build = finishBuild('passed');
    await app.writeLog(
      build.id,
      `[assay] checkout of a\n${numbered(2, 600)}[assay] suite Unit tests: make\n${numbered(602, 1500)}`,
    );
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await isWhole(person);
    await page.locator('a[href="#L603"]').click();
    assert.equal(new URL(page.url()).hash, '#L603');
    await page.locator('a[href="#L605"]').click({ modifiers: ['Shift'] });
    assert.equal(new URL(page.url()).hash, '#L603-L605');
    assert.equal(await page.locator('.picked').count(), 3);
    await page.goto('about:blank');
    await person.go(`${hrefOf(build)}#L1200-L1203`);
    await isWhole(person);
    assert.equal(await isInSight(page, '#L1200'), true);
    assert.deepEqual(await page.evaluate('[...document.querySelectorAll(".picked")].map(row => row.id)'), [
      'L1200',
      'L1201',
      'L1202',
      'L1203',
    ]);
    await page.evaluate('location.hash = "#L300"');
    await until(
      page,
      'document.querySelector(".log-lines details").open && document.querySelector("#L300 > .n") !== null',
    );
    assert.equal(await isInSight(page, '#L300'), true, 'a fold opens for the line that is asked for');
    await person.close();
  });

  it('folds the groups that a command prints, for GitHub Actions, GitLab and Buildkite', async () => {
    const build = startBuild();
    const log = await openLogOf(build);
    await log.line('checkout of aaaaaaa');
    await log.print('HEAD is now at aaaaaaa\n');
    await log.line('suite Unit tests: make check');
    await log.print(
      [
        '::group::Install \x1b[32mpackages\x1b[0m <b>', // 4
        'npm ci',
        '::group::Inside',
        'deep',
        '::endgroup::',
        '::endgroup::',
        '\x1b[0Ksection_start:1560896352:lint[collapsed=true]\r\x1b[0KLint the code', // 10
        'linted',
        'section_end:1560896353:lint\r\x1b[0Ksection_start:1560896353:unit\r\x1b[0KUnit tests',
        'tested',
        '\x1b[0Ksection_end:1560896354:unit\r\x1b[0K',
        '~~~ Prepare', // 15
        'quiet',
        '+++ Important',
        'loud',
        '--- a/file.c',
        '+++ b/file.c', // 20
        '--- PASS: TestGo (0.00s)',
        '--- Build',
        'cc -c file.c',
        '--- Test',
        'not ok 1', // 25
        '',
      ].join('\n'),
    );
    await log.line('the command exited with 1');
    await log.close();
    moveBuild(app.db, build.id, 'fail', { exitCode: 1 });
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await isWhole(person);
    const readFolds = `[...document.querySelectorAll('.log-lines details')].map(fold => {
      let depth = 0;
      for (let up = fold.parentElement.closest('details'); up; up = up.parentElement.closest('details')) depth += 1;
      return [depth, fold.querySelector('summary > span').textContent, fold.open];
    })`;
    assert.deepEqual(await page.evaluate(readFolds), [
      [0, '[assay] checkout of aaaaaaa', false],
      [0, '[assay] suite Unit tests: make check', true],
      [1, 'Install packages <b>', false],
      [2, 'Inside', false],
      [1, 'Lint the code', false],
      [1, 'Unit tests', true],
      [1, 'Prepare', false],
      [1, 'Important', true],
      [1, 'Build', false],
      [1, 'Test', true],
    ]);
    assert.equal(
      await page.locator('#L13').textContent(),
      '13tested',
      'the numbers are those of the raw log',
    );
    assert.equal(await page.locator('#L25').textContent(), '25not ok 1');
    assert.equal(await page.locator('.log-lines b').count(), 0);
    assert.deepEqual(await page.locator('summary.bad > span:first-child').allTextContents(), [
      '[assay] suite Unit tests: make check',
      'Test',
    ]);
    await page.locator('.took').nth(9).waitFor({ state: 'attached' });
    await person.inspect('build-groups');

    await page.keyboard.press('x');
    assert.equal(await isInSight(page, '#L24'), true, 'the failed step is one key away');
    await page.evaluate('location.hash = "#L7"');
    await until(page, 'document.querySelector("#L7.picked > .n") !== null');
    assert.equal(await isInSight(page, '#L7'), true, 'a link to a line opens all groups around it');
    await page.locator('#L4 summary').first().focus();
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('#L4 > details').getAttribute('open'), null);
    await page.getByRole('button', { name: 'Collapse all' }).click();
    assert.equal(await page.locator('.log-lines details[open]').count(), 0);
    await page.getByRole('button', { name: 'Expand all' }).click();
    assert.equal(await page.locator('.log-lines details:not([open])').count(), 0);

    const full = page.getByRole('button', { name: 'Full screen' });
    await full.focus();
    await page.keyboard.press('Enter');
    await page.locator('h1').waitFor({ state: 'hidden' });
    await page.keyboard.press('Escape');
    await page.locator('h1').waitFor();
    assert.equal(await full.getAttribute('aria-pressed'), 'false');
    await person.close();
  });

  it('stays fast and safe with 100,000 groups that never end', async () => {
    const build = finishBuild('failed');
    const marks = ['::group::g', '--- g', 'section_start:1:s\r\x1b[0Kg', '+++ g', '[assay] suite g'];
    await app.writeLog(
      build.id,
      Array.from({ length: 100_000 }, (_, n) => `${marks[n % marks.length]} ${n}\x00\x07\n`).join(''),
    );
    const person = await arrive();
    const processor = await measureProcessor(signedIn.browser);
    await person.page.goto(hrefOf(build), { waitUntil: 'commit' });
    await isWhole(person);
    const workedMs = await processor.spentMs();
    assert.ok(workedMs < 8_000, `the page has worked for ${workedMs} ms`);
    assert.ok((await person.page.locator('.log-lines details').count()) <= 2_000);
    await person.page.locator('#L100000').waitFor({ state: 'attached' });
    await person.close();
  });

  it('shows time, estimate, Cancel and the number of new lines in a bar that stays in sight', async () => {
    const passed = startBuild();
    moveBuild(app.db, passed.id, 'pass', { exitCode: 0, startedAt: 1_000, finishedAt: 91_000 });
    const build = startBuild();
    await app.writeLog(build.id, numbered(1, 300));
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await page.locator('#L300').waitFor();
    await until(page, atBottom);
    const bar = page.locator('.log-now');
    assert.match((await bar.textContent()) ?? '', /Running[\s\S]* of about \d/);
    assert.equal(await bar.getByRole('progressbar').count(), 1);
    assert.equal(
      await isInSight(page, '.log-now form button'),
      true,
      'Cancel is in sight at the end of the log',
    );
    await page.keyboard.press('PageUp');
    await page.locator('[data-log-follow][aria-pressed=false]').waitFor();
    await app.writeLog(build.id, numbered(301, 312));
    await page.getByRole('button', { name: '12 new lines' }).waitFor();
    await person.inspect('build-new-lines');
    await page.getByRole('button', { name: '12 new lines' }).click();
    await until(page, atBottom);
    await page.getByRole('button', { name: 'End', exact: true }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Follow' }).getAttribute('aria-pressed'), 'true');
    await person.close();
  });

  it('has a path to every page above, numbered attempts with links, and the command to run it locally', async () => {
    const own = app.plant();
    const first = findBuild(app.db, own.project_id, own.build_id) as Build;
    const second = planBuild(own);
    const third = planBuild(own);
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(second));
    const trail = page.getByRole('navigation', { name: 'Breadcrumb' });
    assert.deepEqual(await trail.getByRole('link').allTextContents(), [
      'Projects',
      (await page.title()).split(' · ').at(-2),
      second.commitRef.slice(0, 10),
      second.suiteName,
      'Build',
    ]);
    for (const link of await trail.getByRole('link').all())
      assert.equal((await person.context.request.get((await link.getAttribute('href')) ?? '')).status(), 200);
    const attempts = page.getByRole('navigation', { name: 'Attempts' });
    await attempts.getByText('Attempt 2 of 3').waitFor();
    await attempts.getByRole('link', { name: 'Attempt 1' }).click();
    await page.waitForURL(`**${hrefOf(first)}`);
    await attempts.getByRole('link', { name: 'Attempt 3' }).click();
    await page.waitForURL(`**${hrefOf(third)}`);
    await page.getByText('Run this locally').click();
    await page.getByText(`assay run --local '${third.suiteName}'`, { exact: true }).waitFor();
    await person.inspect('build-attempts');
    await person.close();
  });

  it('says that a log was removed after its retention, with and without scripts', async () => {
    const build = finishBuild('passed');
    const kept = finishBuild('passed');
    markLogsDeleted(app.db, build.id);
    for (const scripts of [true, false]) {
      const person = await arrive({ scripts });
      const readLog = async (of: Build) => {
        await person.go(hrefOf(of));
        if (scripts) await isWhole(person);
        const note = person.page.locator(scripts ? '[data-log-note]' : 'noscript .log-note');
        assert.equal(await note.isVisible(), true);
        return (await note.textContent()) ?? '';
      };
      assert.match(
        await readLog(build),
        /The log was removed\. This server keeps logs for 90 days, and the build finished on 20/,
      );
      assert.match(await readLog(kept), /The build printed nothing\./);
      await person.close();
    }
  });

  it('finds text, and moves to the next and the previous match', async () => {
    const build = finishBuild('passed');
    await app.writeLog(
      build.id,
      `${numbered(1, 100)}A \x1b[31mNee\x1b[0mdle\n${numbered(102, 200)}needle and needle\n`,
    );
    const person = await arrive({ dark: true });
    const { page } = person;
    await person.go(hrefOf(build));
    await isWhole(person);
    await page.keyboard.press('/');
    const box = page.getByLabel('Search log');
    await until(page, "document.activeElement.id === 'log-search'");
    await page.keyboard.insertText('needle');
    await page.getByText('1 of 3', { exact: true }).waitFor();
    assert.equal(await isInSight(page, '#L101'), true, 'also where a colour begins inside the word');
    await page.keyboard.press('Enter');
    await page.getByText('2 of 3', { exact: true }).waitFor();
    assert.equal(await isInSight(page, '#L201'), true);
    await person.inspect('build-search');
    await page.keyboard.press('Shift+Enter');
    await page.getByText('1 of 3', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Previous match' }).click();
    await page.getByText('3 of 3', { exact: true }).waitFor();
    await box.fill('nothing like it');
    await page.getByText('None', { exact: true }).waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await box.inputValue(), '');
    await person.close();
  });

  it('applies colours, overwriting and erasing, and never interprets output as markup', async () => {
    const build = finishBuild('passed');
    const lines: [printed: string, shown: string][] = [
      [
        '\x1b[38;5;208morange\x1b[0m \x1b[38;2;10;20;30mdark\x1b[0m \x1b[7mback to front\x1b[27m',
        'orange dark back to front',
      ],
      ['\x1b[1;4;31;47mloud\x1b[m \x1b[2mdim\x1b[22m \x1b[9mgone\x1b[29m', 'loud dim gone'],
      ['[=>   ] 20 %\r[===> ] 70 %\r[=====] 100 %', '[=====] 100 %'],
      ['long text\rshort\x1b[K', 'short'],
      ['abc\b\bXY', 'aXY'],
      ['\x1b]0;a title\x07after', 'after'],
      ['<img src=x onerror=alert(1)> & <b>', '<img src=x onerror=alert(1)> & <b>'],
      [
        'javascript:alert(1) http://a.example/x, (https://b.example/y_(z)).',
        'javascript:alert(1) http://a.example/x, (https://b.example/y_(z)).',
      ],
      ['\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07', 'click'],
      ['\x1b]8;;https://c.example/\x1b\\named\x1b]8;;\x1b\\', 'named'],
      ['naïve 🙂 日本語', 'naïve 🙂 日本語'],
      ['\x1b[48;2;248mred without green and blue\x1b[0m', 'red without green and blue'],
    ];
    await app.writeLog(build.id, `${lines.map(([printed]) => printed).join('\r\n')}\n`);
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await isWhole(person);
    await page.locator('#L12 > .n').waitFor();
    const shown = await page.evaluate(
      '[...document.querySelectorAll(".l")].map(row => row.textContent.slice(row.querySelector(".n").textContent.length))',
    );
    assert.deepEqual(
      shown,
      lines.map(([, text]) => text),
    );
    assert.deepEqual(
      await page.evaluate(
        '[...document.querySelectorAll(".l a:not(.n)")].map(a => [a.href, a.rel, a.target])',
      ),
      ['http://a.example/x', 'https://b.example/y_(z)', 'https://c.example/'].map(href => [
        href,
        'noopener noreferrer',
        '_blank',
      ]),
    );
    assert.equal(await page.locator('.log-lines img, .log-lines b').count(), 0);
    const background = await page.evaluate(
      'getComputedStyle(document.querySelector("#L12 > span")).backgroundColor',
    );
    assert.equal(background, 'rgb(248, 0, 0)');
    await person.inspect('build-colours');
    await person.close();
  });

  it('shows times next to the lines and wraps long ones on demand, and remembers both', async () => {
    const build = startBuild();
    const log = await openLogOf(build);
    await log.line('checkout of aaaaaaa');
    await log.print(`${'long '.repeat(100)}\n`);
    await log.line('suite Unit tests: make');
    await log.print('ok\n');
    await log.close();
    moveBuild(app.db, build.id, 'pass', { exitCode: 0 });
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await isWhole(person);
    await page.getByRole('button', { name: 'Timestamps' }).click();
    await page.locator('#L4 > .n[data-at]').waitFor();
    assert.match((await page.locator('#L4 > .n').getAttribute('data-at')) ?? '', /^\d\d:\d\d:\d\d$/);
    assert.match((await page.locator('#L4 > .n').getAttribute('data-since')) ?? '', /^\+0:0\d$/);
    await page.locator('.log-lines summary').first().click();
    const height = async () => (await page.locator('#L2').boundingBox())?.height ?? 0;
    const before = await height();
    await page.getByRole('button', { name: 'Wrap' }).click();
    assert.ok((await height()) > before);
    await person.inspect('build-wrapped');
    await page.reload();
    await isWhole(person);
    assert.equal(await page.getByRole('button', { name: 'Wrap' }).getAttribute('aria-pressed'), 'true');
    await page.locator('#L4 > .n[data-at]').waitFor();
    await person.close();
  });

  it('continues after a broken connection, without a lost or repeated byte', async () => {
    const build = startBuild();
    const wire = await openWire(new URL(app.url));
    after(() => wire.close());
    const person = await openBrowser(signedIn.browser, wire.url);
    await signIn(person, 'owner@example.org', PASSWORD);
    const { page } = person;
    await app.writeLog(build.id, `${numbered(1, 2000)}half a li`);
    await person.go(hrefOf(build));
    await page.getByText('half a li').waitFor();
    wire.cut();
    await app.writeLog(build.id, `ne, naïvely\n${numbered(2002, 2500)}`);
    await page.locator('#L2500').waitFor({ state: 'attached' });
    const texts = await page.evaluate(
      '[...document.querySelectorAll(".l")].map(row => [...row.childNodes].filter(node => node.className !== "n").map(node => node.textContent).join(""))',
    );
    assert.deepEqual(
      texts,
      `${numbered(1, 2000)}half a line, naïvely\n${numbered(2002, 2500)}`.trimEnd().split('\n'),
    );
    // The broken connection is logged to the console, so that is not checked.
    await person.context.close();
  });

  it('shows the newest state even if a request for it failed and an older response arrived late', async () => {
    const build = planBuild();
    const person = await arrive();
    const { page } = person;
    const held = Promise.withResolvers<void>();
    let asked = 0;
    await page.route('**/builds/*?part=head', async route => {
      asked += 1;
      if (asked === 1) return route.abort();
      const answer = await route.fetch();
      // Read by the server while the build runs, received by the page when it has ended.
      if (asked === 2) await held.promise;
      return route.fulfill({ response: answer });
    });
    await person.go(hrefOf(build));
    await page.getByText('The build starts as soon as a slot is free.').waitFor();
    moveBuild(app.db, build.id, 'start', { nonce: 'n' });
    const deadline = performance.now() + 30_000;
    while (asked < 2) {
      assert.ok(performance.now() < deadline, 'it was asked for again');
      await page.evaluate('new Promise(done => setTimeout(done, 100))');
    }
    moveBuild(app.db, build.id, 'pass', { exitCode: 0 });
    await page.locator('[data-log][data-whole]').waitFor();
    held.resolve();
    await until(page, 'document.title.startsWith("Passed")');
    await page.locator('#build-head .below').getByText('Passed').waitFor();
    // The failed request is logged to the console.
    await person.context.close();
  });

  it('submits a form even if the page was updated while it asked for confirmation', async () => {
    const build = planBuild();
    const person = await arrive();
    const { page } = person;
    const asked = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    await page.route('**/builds/*?part=head', async route => {
      const answer = await route.fetch();
      asked.resolve();
      await held.promise;
      return route.fulfill({ response: answer });
    });
    await person.go(hrefOf(build));
    moveBuild(app.db, build.id, 'start', { nonce: 'n' });
    await asked.promise;
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').waitFor();
    held.resolve();
    await page.getByText('Running').first().waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel build' }).click();
    await page.getByText('Canceled by owner@example.org. The container is being stopped.').waitFor();
    await person.close();
  });

  it('asks before it stops a build: the focus is on the answer that keeps it, as is Escape', async () => {
    const build = planBuild();
    moveBuild(app.db, build.id, 'start', { nonce: 'n' });
    const person = await arrive();
    const { page } = person;
    const stateNow = () => findBuild(app.db, build.projectId, build.id);
    const dialog = page.getByRole('dialog', { name: /^Stop .* Its log is kept.$/ });
    const focused = 'document.activeElement.textContent';
    const cancel = page.locator(`form[action="${hrefOf(build)}/cancel"] button`);
    for (const href of [hrefOf(build), `/ui/projects/${build.projectId}/commits/${build.commitId}`]) {
      await person.go(href);
      await cancel.click();
      assert.deepEqual(await dialog.getByRole('button').allTextContents(), ['Keep running', 'Stop build']);
      assert.equal(await page.evaluate(focused), 'Keep running');
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      assert.equal(await page.evaluate(focused), 'Cancel');
      await page.keyboard.press('Enter');
      await page.keyboard.press('Enter');
      await dialog.waitFor({ state: 'detached' });
      assert.equal(stateNow()?.cancelBecause, null, 'nothing was sent');
    }
    await cancel.click();
    await dialog.getByRole('button', { name: 'Stop build' }).click();
    await page.getByText('The container is being stopped.').waitFor();
    assert.equal(stateNow()?.cancelBecause, 'by owner@example.org');
    await person.close();
  });

  it('cancels after a confirmation, and reruns a suite', async () => {
    const build = planBuild();
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(build));
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel build' }).click();
    await page.getByText('Canceled before it started, by owner@example.org.').waitFor();
    assert.equal(findBuild(app.db, build.projectId, build.id)?.buildState, 'canceled');
    await person.inspect('build-canceled');
    await page.getByRole('button', { name: 'Rerun' }).click();
    await page.getByText('Suite started again.').waitFor();
    const [newest] = listBuildsOfRequest(app.db, build.buildRequestId);
    assert.equal(new URL(page.url()).pathname, hrefOf(newest as Build));
    await person.go(hrefOf(build));
    await page.getByRole('link', { name: 'Go to the newest build' }).click();
    await page.waitForURL(`**${hrefOf(newest as Build)}`);
    await person.close();
  });

  it('reruns the failed builds of a request, and navigates between suites', async () => {
    const own = app.plant();
    const [first] = listBuildsOfRequest(app.db, own.build_request_id);
    assert.ok(first);
    const others = ['Lint', 'Docs'].map(name =>
      createSuite(app.db, { projectId: own.project_id, name, description: '', command: 'make', image: null }),
    );
    const failed = others.map(suite => rerunBuild(app.db, first, suite));
    for (const { id } of failed) {
      moveBuild(app.db, id, 'start', { nonce: 'n' });
      moveBuild(app.db, id, 'fail', { exitCode: 2 });
    }
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(first));
    const suites = page.getByRole('navigation', { name: 'Suites of this build request' });
    await person.inspect('build-siblings');
    await suites.getByRole('link', { name: 'Lint' }).click();
    await page.getByText('The command exited with 2.').waitFor();
    await page.getByRole('button', { name: 'Rerun failed' }).click();
    await page.getByText('2 suites started again.').waitFor();
    assert.deepEqual(
      listBuildsOfRequest(app.db, own.build_request_id).map(build => [build.suiteName, build.buildState]),
      [
        ['Docs', 'enqueued'],
        ['Lint', 'enqueued'],
        ['Docs', 'failed'],
        ['Lint', 'failed'],
        ['Unit tests', 'passed'],
      ],
    );
    await person.close();
  });

  it('handles many suites and long names without hiding the log', async () => {
    const own = app.plant();
    const [first] = listBuildsOfRequest(app.db, own.build_request_id);
    assert.ok(first);
    const long = 'ATestOfSomethingWhoseNameHasNoSpaceAndGoesOn'.repeat(4);
    const names = [...Array.from({ length: 40 }, (_, at) => `Part ${at + 1}`), long];
    for (const name of names) {
      const fields = { projectId: own.project_id, name, description: '', command: 'make', image: null };
      const { id } = rerunBuild(app.db, first, createSuite(app.db, fields));
      moveBuild(app.db, id, 'start', { nonce: 'n' });
      moveBuild(app.db, id, name === long ? 'fail' : 'pass', { exitCode: name === long ? 1 : 0 });
    }
    await app.writeLog(first.id, '[assay] suite Unit tests: curl https://example.org/ | sh\nfine\n');
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(first));
    await isWhole(person);
    const suites = page.getByRole('navigation', { name: 'Suites of this build request' });
    assert.deepEqual(
      (await suites.locator('a:visible').allInnerTexts()).map(text => text.replace(/\s+/g, ' ').trim()),
      ['Passed Unit tests', `Failed ${long}`],
    );
    assert.ok(((await page.getByLabel('Search log').boundingBox())?.y ?? Number.NaN) < 600);
    await person.inspect('build-many-siblings');
    await suites.getByText('40 more passed').click();
    await suites.getByRole('link', { name: 'Part 17' }).click();
    await page.waitForURL(url => url.pathname !== hrefOf(first));
    await page.getByRole('heading', { name: 'Part 17' }).waitFor();
    await person.close();
  });

  it('shows the end of the log as plain text without scripts, with links to the raw log and a download', async () => {
    const build = finishBuild('failed');
    await app.writeLog(build.id, `${'x'.repeat(79)}\n`.repeat(3_000));
    await app.writeLog(build.id, '\x1b[31mred <b>\x1b[0m\n10 %\r100 %\n');
    const person = await arrive({ scripts: false });
    const { page } = person;
    await person.go(hrefOf(build));
    const text = (await page.locator('.log-plain').textContent()) ?? '';
    assert.match(text, /^x{79}\n[\s\S]*\nred <b>\n100 %\n$/);
    assert.ok(text.length < 140_000);
    assert.match(
      (await page.locator('.log-note').last().textContent()) ?? '',
      /The first \d+ KiB are not shown here/,
    );
    await person.inspect('build-plain');
    assert.equal(await page.getByRole('button', { name: 'Follow' }).isVisible(), false);
    await page.getByRole('link', { name: 'Raw log' }).click();
    await page.waitForURL('**/log');
    const raw = await person.context.request.get(`${hrefOf(build)}/log`, { headers: { range: 'bytes=0-9' } });
    assert.deepEqual([raw.status(), await raw.text()], [206, 'x'.repeat(10)]);
    const kept = await person.context.request.get(`${hrefOf(build)}/log?download=yes`);
    assert.equal(kept.headers()['content-disposition'], `attachment; filename="build-${build.id}.log"`);
    await person.close();
  });

  it('does not exist for strangers, and ends the stream of a removed collaborator', async () => {
    const own = app.plant();
    const build = planBuild(own);
    moveBuild(app.db, build.id, 'start', { nonce: 'n' });
    const stranger = await arrive({}, 'stranger');
    for (const rest of ['', '/log', '/stream', '/times'])
      assert.equal((await stranger.context.request.get(hrefOf(build) + rest)).status(), 404, rest);
    await stranger.close();

    const person = await arrive({}, 'collaborator');
    const streamed = person.context.request.get(`${hrefOf(build)}/stream`, { timeout: 60_000 });
    await person.go(hrefOf(build));
    await person.page.getByRole('button', { name: 'Follow' }).waitFor();
    const collaborator = findCollaborator(app.db, own.project_id, own.collaborator_id);
    assert.ok(collaborator);
    deleteCollaborator(app.db, collaborator);
    assert.match(await (await streamed).text(), /event: state/, 'the stream has ended');
    await person.context.close();
  });

  it('says so when the reader has signed out in another tab, and stops requesting', async () => {
    const build = startBuild();
    await app.writeLog(build.id, 'printed before\n');
    const person = await arrive();
    await person.go(hrefOf(build));
    await person.page.getByText('printed before').waitFor();
    const tab = await person.context.newPage();
    await tab.goto('/ui/projects');
    await tab.getByRole('button', { name: 'Sign out' }).click();
    await person.page.getByText('You have signed out, or may no longer see this log').waitFor();
    await person.page.getByText('printed before').waitFor();
    await person.close();
  });

  it('shows 100,000 lines after a few seconds of processor time, and searches them', async () => {
    const build = finishBuild('passed');
    const printed = Array.from({ length: 100_000 }, (_, n) =>
      n % 10 === 0
        ? `\x1b[32mok\x1b[0m ${n + 1} - a test that passed in \x1b[2m${n % 97} ms\x1b[0m`
        : `make[2]: entering directory /srv/project/source/part-${n % 13}, step ${n + 1} of many`,
    ).join('\n');
    await app.writeLog(build.id, `${printed}\n`);
    const person = await arrive();
    const { page } = person;
    const processor = await measureProcessor(signedIn.browser);
    await page.goto(hrefOf(build), { waitUntil: 'commit' });
    await isWhole(person);
    // Processor time instead of wall time, because other tests share the machine.
    const workedMs = await processor.spentMs();
    assert.ok(workedMs > 0, 'the page was measured');
    assert.ok(workedMs < 4_000, `the page has worked for ${workedMs} ms`);
    await page.locator('#L100000').waitFor({ state: 'attached' });
    await page.keyboard.press('/');
    await until(page, "document.activeElement.id === 'log-search'");
    await page.keyboard.insertText('step 54322 of');
    await page.getByText('1 of 1', { exact: true }).waitFor();
    assert.equal(await isInSight(page, '#L54322'), true);
    await page.evaluate('location.hash = "#L99000"');
    await until(page, 'document.querySelector("#L99000.picked > .n") !== null');
    assert.equal(await isInSight(page, '#L99000'), true);
    await person.close();
  });
});

describe('a log as plain text', () => {
  const cases: [printed: string, shown: string][] = [
    ['\x1b[31mred\x1b[0m', 'red'],
    ['10 %\r20 %\r30 %\nnext', '30 %\nnext'],
    ['windows\r\nlines\r\n', 'windows\nlines\n'],
    ['\x1b]8;;https://x\x07link\x1b]8;;\x07', 'link'],
    ['a\x07b', 'ab'],
  ];
  for (const [printed, shown] of cases)
    it(`shows ${JSON.stringify(printed)} as ${JSON.stringify(shown)}`, () =>
      assert.equal(plainText(printed), shown));
});

// A real Chromium, and the checks for every page: no console error, no request to other hosts, no horizontal scrolling
// at 390 px, no serious finding of axe. With SCREENSHOTS=DIRECTORY, each page is saved as a picture.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Browser, type BrowserContext, chromium, type Locator, type Page } from 'playwright-core';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const screenshots = process.env.SCREENSHOTS;
const DEADLINE_MS = 60_000;
/** Caused by the machine: other tests create and remove Docker networks. */
const networkChange = /ERR_NETWORK_CHANGED|interrupted by another navigation/;

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    // Starts with half the processor time of the whole browser.
    executablePath: '/usr/bin/chromium-headless-shell',
    args: [
      '--no-sandbox',
      '--disable-dev-shm-usage',
      '--disable-gpu',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--no-first-run',
    ],
  });
}

export type Person = {
  page: Page;
  context: BrowserContext;
  /** Opens a path of the application and waits until it has loaded. */
  go(path: string): Promise<void>;
  /** Clicks a link or button that leads to another page, and waits until that has loaded. */
  follow(target: Locator): Promise<void>;
  /** Runs all checks on the current page, wide and narrow. `name` is the name of the screenshots. */
  inspect(name: string): Promise<void>;
  /** The same in both themes, and no finding of axe is minor enough to be allowed. */
  inspectThemes(name: string): Promise<void>;
  /** Fails if there was a console error or a request to another host. Called by `inspect` and `close`. */
  check(): void;
  /** Allows one console error for each expected response of 400 or more. */
  expectRefusals(count?: number): void;
  close(): Promise<void>;
};

/** A separate browser context: no cookies, no storage. */
export async function openBrowser(
  browser: Browser,
  url: string,
  options: { dark?: boolean; scripts?: boolean; timeZone?: string; touch?: boolean } = {},
): Promise<Person> {
  const context = await browser.newContext({
    baseURL: url,
    // The certificate is signed by the server's own CA, which no browser trusts.
    ignoreHTTPSErrors: true,
    viewport: { width: 1280, height: 800 },
    colorScheme: options.dark ? 'dark' : 'light',
    reducedMotion: 'reduce',
    javaScriptEnabled: options.scripts ?? true,
    hasTouch: options.touch ?? false,
    ...(options.timeZone && { timezoneId: options.timeZone }),
  });
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  const problems: string[] = [];
  let refusals = 0;
  page.on('console', message => {
    if (message.type() !== 'error' || networkChange.test(message.text())) return;
    if (refusals > 0 && /status of 4\d\d/.test(message.text())) refusals -= 1;
    else problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', error => problems.push(`script: ${error.message}`));
  page.on('request', request => {
    if (!request.url().startsWith(`${url}/`)) problems.push(`request to another host: ${request.url()}`);
  });
  const inspectSizes = async (name: string, theme: 'light' | 'dark', checks: AxeChecks) => {
    await page.waitForLoadState();
    for (const [width, height] of [
      [1280, 800],
      [390, 844],
    ] as const) {
      await page.setViewportSize({ width, height });
      if (screenshots !== undefined)
        await page.screenshot({
          path: join(screenshots, `${name}-${width}${theme === 'dark' ? '-dark' : ''}.png`),
          fullPage: true,
        });
      if (options.scripts === false) continue;
      const wide = await page.evaluate('document.documentElement.scrollWidth');
      assert.ok(
        (wide as number) <= width,
        `${name} scrolls horizontally at ${width} px: it is ${wide} px wide`,
      );
      assert.deepEqual(await findingsOf(page, checks), [], `axe, ${name} at ${width} px, ${theme}`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });
  };
  const person: Person = {
    page,
    context,
    async go(path) {
      for (let tries = 1; ; tries += 1) {
        try {
          await page.goto(path, { waitUntil: 'load' });
          return;
        } catch (error) {
          if (tries === 5 || !networkChange.test((error as Error).message)) throw error;
        }
      }
    },
    async follow(target) {
      await Promise.all([page.waitForEvent('load'), target.click()]);
    },
    async inspect(name) {
      await inspectSizes(name, options.dark ? 'dark' : 'light', { counts: severe });
      person.check();
    },
    async inspectThemes(name) {
      for (const theme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme: theme });
        const rules = theme === 'dark' ? { only: COLOUR_RULES } : {};
        await inspectSizes(name, theme, { counts: () => true, ...rules });
      }
      person.check();
    },
    check: () => assert.deepEqual(problems.splice(0), []),
    expectRefusals(count = 1) {
      refusals += count;
    },
    async close() {
      await context.close();
      person.check();
    },
  };
  return person;
}

type Finding = { id: string; impact: string | null; nodes: { html: string; failureSummary?: string }[] };

type AxeChecks = { counts: (finding: Finding) => boolean; only?: readonly string[] };

/** The rules whose result depends on the theme. */
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

const severe = ({ impact }: Finding) => impact === 'serious' || impact === 'critical';

/** Evaluated over the debugger, which bypasses the Content-Security-Policy of the page. */
async function findingsOf(page: Page, { counts, only }: AxeChecks): Promise<string[]> {
  const hasAxe = await page.evaluate("typeof axe === 'object'");
  if (!hasAxe) await page.evaluate(axeSource);
  const options = { resultTypes: ['violations'], preload: false, ...(only && { runOnly: only }) };
  const found = (await page.evaluate(
    `axe.run(document, ${JSON.stringify(options)}).then(result => result.violations)`,
  )) as Finding[];
  return found
    .filter(counts)
    .flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.html} ${node.failureSummary ?? ''}`));
}

/** The start page leads to Activity, to the list of projects or to the only project. */
const isSignedIn = ({ pathname }: URL) => /^\/ui\/(activity|projects)/.test(pathname);

/** Signs in through the form. */
export async function signIn(person: Person, email: string, password: string): Promise<void> {
  const { page } = person;
  for (let tries = 1; ; tries += 1) {
    await person.go('/ui/sign-in');
    if (isSignedIn(new URL(page.url()))) return;
    try {
      await page.getByLabel('Email').fill(email);
      await page.getByLabel('Password').fill(password);
      await Promise.all([page.waitForURL(isSignedIn), page.getByRole('button', { name: 'Sign in' }).click()]);
      return;
    } catch (error) {
      if (tries === 3 || !networkChange.test((error as Error).message)) throw error;
    }
  }
}

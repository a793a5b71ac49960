// What the pages cost a browser: bytes over the wire and the time to the first paint, in an installation with 1,000
// projects and 200 suites in one of them, compared with a small one; a project page that is opened for the first time; and
// a project page that stays open during a build of 12 suites. Rounds alternate, so that a busy machine affects both sides.
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { type Account, createSession, findAccountByEmail } from '../../src/store/accounts.ts';
import {
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  recordCommit,
} from '../../src/store/builds.ts';
import { openData } from '../../src/store/data/data.ts';
import type { Db } from '../../src/store/database/db.ts';
import { createProject } from '../../src/store/projects.ts';
import { createSuite } from '../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { runAssay, type Serving, serve } from '../cli/program.ts';
import { commitFields } from '../support/app.ts';
import { clearDocker, makeData } from '../support/appliance.ts';
import { launchBrowser } from '../support/browser.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { basic, createClient } from '../support/client.ts';
import { createJourney } from '../support/journey.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';
import { exitStatus, instanceIn, median, report, showLoad } from './support.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: 'string', default: '9' } },
});
const rounds = Number(options.rounds);
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);
const EMAIL = 'bench@example.org';
const SIZES = { small: { projects: 12, suites: 12 }, large: { projects: 1_000, suites: 200 } };
const COMMITS = 30;
const LIVE_SUITES = 12;
const DEADLINE_MS = 120_000;
const KB = 1000;

type Installation = {
  data: string;
  server: Serving;
  url: string;
  key: string;
  session: string;
  pages: Record<string, string>;
};

const keyPair = generateKeyPair('assay');
const sshd = await startSshd();
const browser = await launchBrowser();
const installations: Installation[] = [];
try {
  const small = await install(SIZES.small, sshd);
  showLoad('before');
  if (wanted('sizes')) await compare(browser, small, await install(SIZES.large, sshd));
  if (wanted('open')) await keepOpen(browser, small, sshd);
  showLoad('after');
} finally {
  await browser.close();
  for (const { data, server } of installations) {
    await server.end('SIGTERM');
    await clearDocker(instanceIn(data));
    rmSync(data, { recursive: true, force: true });
  }
  await sshd.close();
}
process.exitCode = exitStatus();

async function install(size: (typeof SIZES)['small'], host: TestSshd): Promise<Installation> {
  const data = makeData(host);
  const added = await runAssay(['user', 'add', EMAIL, '--json', '--data', data]);
  const { api_key: key } = JSON.parse(added.stdout) as { api_key: string };
  const db = openData(data);
  const account = findAccountByEmail(db, EMAIL) as Account;
  const session = createSession(db, account.id);
  for (let at = 1; at < size.projects; at += 1) addProject(db, account, `Project ${at}`, 1, 1);
  const { projectId, buildId } = addProject(db, account, 'Website', size.suites, COMMITS);
  db.close();
  const server = await serve(data, { env: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' } });
  const project = `/ui/projects/${projectId}`;
  const pages = { Activity: '/ui/activity', project, build: `${project}/builds/${buildId}` };
  const made = { data, server, url: `https://127.0.0.1:${server.port}`, key, session, pages };
  installations.push(made);
  return made;
}

/** A project whose commits were all built: one suite in seven failed. */
function addProject(db: Db, account: Account, name: string, suiteCount: number, commitCount: number) {
  return db.write(() => {
    const project = createProject(db, {
      ownerId: account.id,
      name,
      description: '',
      repositoryUrl: 'git@git.invalid:team/website.git',
      badge: false,
      cancelSuperseded: false,
      keyPair,
    });
    const decisions = Array.from({ length: suiteCount }, (_, at) => {
      const suiteName = `Suite ${at}`;
      const suite = createSuite(db, {
        projectId: project.id,
        name: suiteName,
        description: '',
        command: 'make check',
        image: null,
      });
      return { suiteId: suite.id, suiteName, runs: true, rules: [] };
    });
    let buildId = 0n;
    for (let at = 0; at < commitCount; at += 1) {
      const request = createBuildRequest(db, project, 'main', account.email);
      const commit = recordCommit(db, project.id, {
        ...commitFields(at.toString(16).padStart(8, 'c').padEnd(40, 'e')),
        message: `Change ${at}`,
        committedDate: new Date().toISOString(),
      });
      moveRequest(db, request.id, 'fetch');
      enqueueBuilds(db, request.id, commit, 'main', decisions);
      while (enqueueSomeBuilds(db));
      for (const [which, build] of listBuildsOfRequest(db, request.id).entries()) {
        moveBuild(db, build.id, 'start');
        if (which % 7 === 0) moveBuild(db, build.id, 'fail', { exitCode: 1 });
        else moveBuild(db, build.id, 'pass', { exitCode: 0 });
        buildId = build.id;
      }
    }
    return { projectId: project.id, buildId };
  });
}

async function openPage(of: Browser, { url, session }: Installation) {
  const context = await of.newContext({ baseURL: url, ignoreHTTPSErrors: true });
  context.setDefaultTimeout(DEADLINE_MS);
  await context.addCookies([{ name: '__Host-assay-session', value: session, url, secure: true }]);
  const page = await context.newPage();
  return { context, page, received: await countBytes(page) };
}

/** Counts the bytes of all responses, with their headers, as they arrived. Streams count while they are open. */
async function countBytes(page: Page): Promise<() => { bytes: number; parts: Map<string, number> }> {
  const devtools = await page.context().newCDPSession(page);
  const sizes = new Map<string, number>();
  const paths = new Map<string, string>();
  const add = (id: string, bytes: number) => sizes.set(id, (sizes.get(id) ?? 0) + bytes);
  devtools.on('Network.responseReceived', ({ requestId, response }) => {
    paths.set(requestId, new URL(response.url).pathname.replace(/\/\d+(?=\/|$)/g, '/:id'));
    add(requestId, response.encodedDataLength);
  });
  // Where a chunk of a stream has no size of its own on the wire, its content counts.
  devtools.on('Network.dataReceived', ({ requestId, dataLength, encodedDataLength }) =>
    add(requestId, encodedDataLength || (paths.get(requestId)?.endsWith('/stream') ? dataLength : 0)),
  );
  devtools.on('Network.loadingFinished', ({ requestId, encodedDataLength }) =>
    sizes.set(requestId, encodedDataLength),
  );
  await devtools.send('Network.enable');
  return () => {
    const parts = new Map<string, number>();
    for (const [id, bytes] of sizes) {
      const path = paths.get(id) ?? '';
      parts.set(path, (parts.get(path) ?? 0) + bytes);
    }
    return { bytes: [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0), parts };
  };
}

/** Opens a page in a browser that knows nothing of the server. */
async function openCold(of: Browser, installation: Installation, path: string) {
  const { context, page, received } = await openPage(of, installation);
  await page.goto(path, { waitUntil: 'load' });
  const paintedMs = (await page.evaluate(`new Promise(resolve =>
    new PerformanceObserver((list, observer) => {
      for (const { name, startTime } of list.getEntries()) {
        if (name !== 'first-contentful-paint') continue;
        observer.disconnect();
        resolve(startTime);
      }
    }).observe({ type: 'paint', buffered: true }))`)) as number;
  // A browser without a window does not load the icon.
  await page.evaluate('fetch(document.querySelector("link[rel=icon]").href).then(answer => answer.text())');
  const cost = received();
  await context.close();
  return { ...cost, paintedMs };
}

async function compare(of: Browser, small: Installation, large: Installation): Promise<void> {
  for (const [name, path] of Object.entries(small.pages)) {
    const paints = { small: [] as number[], large: [] as number[] };
    const bytes = { small: 0, large: 0 };
    for (let round = 0; round < rounds; round += 1)
      for (const [size, installation] of [
        ['small', small],
        ['large', large],
      ] as const) {
        const opened = await openCold(of, installation, installation.pages[name] ?? path);
        paints[size].push(opened.paintedMs);
        bytes[size] = opened.bytes;
        if (round > 0 || name !== 'project') continue;
        const shown = [...opened.parts].map(([part, size]) => `${part} ${size}`);
        console.log(`${name} page, ${size}: ${shown.join(', ')}`);
      }
    const weights = [bytes.small, bytes.large].map(size => (size / KB).toFixed(1));
    const times = [median(paints.small), median(paints.large)].map(Math.round);
    console.log(`${name} page: ${weights.join(' and ')} KB, first paint after ${times.join(' and ')} ms`);
    report(`${name} page: bytes, large to small`, bytes.large / bytes.small, '≤', 1.3);
    report(
      `${name} page: first paint, large to small`,
      median(paints.large) / median(paints.small),
      '≤',
      1.3,
    );
    if (name === 'project')
      report('project page, large, opened for the first time', bytes.large / KB, '≤', 40, ' KB');
  }
}

/** A real build while its project's page is open and visible. */
async function keepOpen(of: Browser, installation: Installation, host: TestSshd): Promise<void> {
  const ca = readFileSync(join(installation.data, 'tls', 'ca.pem'), 'utf8');
  const client = createClient(installation.url, ca);
  const as = basic(EMAIL, installation.key);
  const journey = createJourney({ client, as, sshd: host, waitMs: DEADLINE_MS });
  try {
    const project = await journey.project(undefined, { name: 'Open page' });
    for (let at = 0; at < LIVE_SUITES; at += 1)
      await project.suite({ name: `Suite ${at}`, command: 'sleep 1; echo done' });
    const { context, page, received } = await openPage(of, installation);
    await page.goto(`/ui${project.path}`, { waitUntil: 'load' });
    const before = received();
    const request = await project.finishedRequest(await project.request());
    if (request.build_state !== 'passed') throw new Error(`the build is ${request.build_state}`);
    // The page has shown the end of it.
    await page.locator('#project-head', { hasText: 'Passed' }).waitFor();
    const cost = received();
    const shown = [...cost.parts].map(
      ([part, bytes]) => `${part} ${((bytes - (before.parts.get(part) ?? 0)) / KB).toFixed(1)} KB`,
    );
    console.log(`open project page: ${shown.filter(text => !text.endsWith(' 0.0 KB')).join(', ')}`);
    report(
      `project page that is open during a build of ${LIVE_SUITES} suites`,
      (cost.bytes - before.bytes) / KB,
      '≤',
      200,
      ' KB',
    );
    await context.close();
  } finally {
    client.close();
  }
}

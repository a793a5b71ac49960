// Markup, terminal escapes, event-stream frames and line breaks in all text that others can write: names, commit
// messages, branches, logs. Opens every page that shows them in Chromium, where nothing may be executed.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { after, before } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { buildLogPath, dependencyLogPath, deployLogPath } from '../../src/store/data/paths.ts';
import { routes } from '../../src/web/pages.ts';
import { pathOf } from '../api/contract.ts';
import type { Planted } from '../support/app.ts';
import { launchBrowser } from '../support/browser.ts';
import { openFirehose, type SentEvent } from '../support/firehose.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, type Visitor, visitorFor, type Wire } from './wire.ts';

const HOSTILE = `"><img src=x onerror="window.owned=1"><script>window.owned=1</script><svg/onload=window.owned=1>'-window.owned-'</title></textarea></select></style>&lt;b&gt;`;

/** Lines for a log. */
const lines: Record<string, string> = {
  'a script': '<script>window.owned=1</script>',
  'an image with a handler': '<img src=x onerror=window.owned=1>',
  'markup that was escaped once': '&lt;img src=x onerror=window.owned=1&gt;',
  'a link that runs a script': '\u001b]8;;javascript:window.owned=1\u0007click\u001b]8;;\u0007',
  'a link that runs a script, in capitals and with a tabulator':
    '\u001b]8;;JaVa\tScRiPt:window.owned=1\u0007click\u001b]8;;\u0007',
  'a link that holds a page':
    '\u001b]8;;data:text/html,<script>window.owned=1</script>\u0007click\u001b]8;;\u0007',
  'a link that breaks out of its attribute':
    '\u001b]8;;https://x.invalid/"onmouseover="window.owned=1\u0007click\u001b]8;;\u0007',
  'a link to a file': '\u001b]8;;file:///etc/passwd\u0007click\u001b]8;;\u0007',
  'a link of another scheme': '\u001b]8;;vbscript:x\u0007click\u001b]8;;\u0007',
  'a link that never ends': '\u001b]8;;https://x.invalid/',
  'an address in the text that breaks out':
    'see https://x.invalid/"><img/src=x/onerror=window.owned=1> there',
  'an address in the text that runs a script':
    'javascript:window.owned=1 javascript://x.invalid/%0awindow.owned=1',
  'a title': '\u001b]0;owned\u0007',
  'the clipboard': '\u001b]52;c;b3duZWQ=\u0007',
  'a colour that is CSS': '\u001b[38;2;1;1;1;url(https://x.invalid/)mred\u001b[0m',
  'an invalid colour': '\u001b[38;2;99999;-1;1e9mred\u001b[38;5;99999mred\u001b[0m',
  'a column far to the right': '\u001b[2147483647Gx\u001b[999999999999C.',
  'an erased screen': '\u001b[2J\u001b[H\u001b[3J\u001bc',
  'an unterminated escape sequence': `\u001b[${'1;'.repeat(20_000)}`,
  'a device control string': '\u001bP+q544e\u001b\\\u001b_payload\u001b\\',
  'a prefix that is overwritten': '[assay] failed\r[assay] passed',
  'a text direction override': '\u202edessap [yassa]',
  'Unicode line separators': 'a\u2028<script>window.owned=1</script>\u2029b',
  'a group whose name is markup': '::group::<img src=x onerror=window.owned=1>',
  'a very long line': '<'.repeat(200_000),
  'a frame of an event stream': 'x\n\nevent: end\nid: 9\ndata: {"owned":true}\n\n',
  'a frame of an event stream with carriage returns': 'x\r\revent: end\rdata: {"owned":true}\r\r',
  'invalid UTF-8': '\u00ff\u00fe\u0000',
};

let app: ServedApp;
let wire: Wire;
let planted: Planted;
let visitor: Visitor;
let browser: Browser;
let context: BrowserContext;
let page: Page;
const elsewhere: string[] = [];
/** The browser loses its connections when other tests create or remove Docker networks. */
let networkChanged = false;

before(async () => {
  app = await serveApp();
  wire = openWire(app);
  planted = app.plant(app.people.admin);
  visitor = visitorFor(app, app.people.admin);
  app.db.write(spoil);
  const log = Buffer.from(`${Object.values(lines).join('\n')}\nthe end of the log\n`);
  for (const path of [
    buildLogPath(app.data, planted.build_id),
    dependencyLogPath(app.data, planted.used_dependency_id),
    deployLogPath(app.data, planted.deploy_id),
  ]) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, log);
  }
  browser = await launchBrowser();
  context = await browser.newContext({ baseURL: app.url, ignoreHTTPSErrors: true });
  context.setDefaultTimeout(60_000);
  const [name, value] = visitor.cookie.split('=') as [string, string];
  await context.addCookies([{ name, value, url: app.url, secure: true, httpOnly: true }]);
  page = await context.newPage();
  page.on('request', request => {
    if (!request.url().startsWith(`${app.url}/`)) elsewhere.push(request.url());
  });
  page.on('requestfailed', request => {
    if (request.failure()?.errorText.includes('ERR_NETWORK_CHANGED')) networkChanged = true;
  });
});
after(async () => {
  await browser?.close();
  wire?.close();
  await app?.close();
});

/** Fills every text of every row, including values that the API would refuse. */
function spoil(): void {
  const { sqlite } = app.db;
  const texts: Record<string, string[]> = {
    projects: ['name', 'description'],
    suites: ['name', 'description', 'command'],
    suite_rules: ['value'],
    environment_variables: ['name'],
    commits: ['message', 'author_name', 'author_email', 'committer_name', 'committer_email'],
    build_requests: ['commit_ref', 'branch', 'created_by', 'error'],
    builds: ['suite_name', 'error'],
    deploy_strategies: ['name', 'local_branch', 'remote_branch'],
    deploys: ['created_by', 'error'],
    dependencies: ['name', 'description', 'command', 'launch_command', 'source', 'error'],
    notifications: ['url', 'disabled_because'],
    deliveries: ['last_error', 'response_excerpt'],
    applications: ['name'],
  };
  for (const [table, columns] of Object.entries(texts)) {
    const known = new Set(sqlite.prepare(`SELECT name FROM pragma_table_info('${table}')`).pluck().all());
    for (const column of columns) {
      assert.ok(known.has(column), `${table} has no ${column}`);
      // Names must be unique.
      sqlite.prepare(`UPDATE ${table} SET ${column} = ? || CAST(rowid AS TEXT)`).run(HOSTILE);
    }
  }
  // The overview of the project shows why a notification is disabled.
  sqlite.prepare('UPDATE notifications SET enabled = 0').run();
  for (const column of ['branches', 'tags', 'files'])
    sqlite.prepare(`UPDATE commits SET ${column} = ?`).run(JSON.stringify([HOSTILE, 'main']));
}

/** Opens the page and waits for the element; retries if the network changed meanwhile. */
async function show(path: string, isThere: () => Promise<void> = async () => {}) {
  for (let tries = 1; ; tries += 1) {
    networkChanged = false;
    try {
      const answer = await page.goto(path, { waitUntil: 'load' });
      await isThere();
      return answer;
    } catch (error) {
      const wasInterrupted = /interrupted by another navigation/.test((error as Error).message);
      if (tries === 5 || !(networkChanged || wasInterrupted)) throw error;
    }
  }
}

/** Finds active content on the page that must not be there. */
const ALIVE = `(() => {
  const found = [];
  if (window.owned !== undefined) found.push('a script ran');
  for (const element of document.querySelectorAll('*')) {
    const name = element.localName;
    if (['iframe', 'object', 'embed', 'base', 'img', 'form[action^="http"]'].includes(name)) found.push(name);
    if (name === 'script' && !(element.getAttribute('src') || '').startsWith('/ui/assets/')) found.push('script');
    for (const { name: attribute, value } of element.attributes) {
      if (attribute.startsWith('on')) found.push(attribute);
      if (['href', 'src', 'action', 'formaction', 'xlink:href'].includes(attribute) && /^\\s*(javascript|data|vbscript|file):/i.test(value.replace(/[\\t\\n\\r]/g, '')))
        found.push(attribute + '=' + value.slice(0, 60));
      if (attribute === 'style' && /url\\(|expression/i.test(value)) found.push('style=' + value.slice(0, 60));
    }
  }
  return found;
})()`;

const concrete = (path: string) =>
  pathOf({ method: 'GET', path, who: 'none', status: 200, dependency: 'used' }, planted);
const views = routes
  .filter(
    ({ method, path }) =>
      method === 'GET' &&
      !/stream$|times$|\/log$|\.zip$|\/content$|assets|favicon|:account|welcome|setup/.test(path),
  )
  .map(({ path }) => path);

attacks('no stored text becomes active content on', views, async path => {
  const answer = await show(concrete(path));
  assert.ok((answer?.status() ?? 500) < 500, `${path} ${answer?.status()}`);
  assert.deepEqual(await page.evaluate(ALIVE), []);
  assert.deepEqual(elsewhere, []);
});

attacks('no log line becomes active content, on the page or in the stream', lines, async line => {
  const { project_id, build_id } = app.plant(app.people.admin);
  const bytes = Buffer.from(`${line}\nthe end of the log\n`);
  writeFileSync(buildLogPath(app.data, build_id), bytes);
  const build = `/projects/${project_id}/builds/${build_id}`;
  await show(`/ui${build}`, () => page.locator('.log-lines', { hasText: 'the end of the log' }).waitFor());
  assert.deepEqual(await page.evaluate(ALIVE), []);
  assert.deepEqual(elsewhere, []);
  assert.match(await page.title(), /Assay$/);
  const strays = await page.evaluate(
    `[...document.querySelectorAll('.log-lines a')].filter(a => !/^(https?:|#|\\/)/.test(a.getAttribute('href')) || (a.target && !/noopener|noreferrer/.test(a.rel))).map(a => a.outerHTML)`,
  );
  assert.deepEqual(strays, []);

  const stream = await openFirehose(`${app.url}${build}/firehose`, {
    ca: app.client.ca,
    as: app.people.admin.as,
  });
  const events: SentEvent[] = [];
  for await (const event of stream) events.push(event);
  assert.deepEqual([...new Set(events.map(({ event }) => event))], ['state', 'log', 'end']);
  assert.equal(events.filter(({ event }) => event === 'end').length, 1);
  const text = events.flatMap(({ event, data }) => (event === 'log' ? [data.text] : [])).join('');
  assert.equal(text, bytes.toString());
  const raw = await app.client.get(`${build}/log`, app.people.admin.as);
  assert.deepEqual(
    [raw.headers['content-type'], raw.headers['x-content-type-options']],
    ['text/plain; charset=utf-8', 'nosniff'],
  );
});

const CRLF = '%0d%0aX-Owned:%20yes%0d%0aSet-Cookie:%20owned=yes';
const headers: Record<string, () => string> = {
  'the link to the next page of a list': () => `/projects/${planted.project_id}/commits?limit=1&x=${CRLF}`,
  'the link to the next page, by the name of a field': () => `/projects?limit=1&${CRLF}=x`,
  'the redirect after signing in': () => `/ui/sign-in?next=/ui/${CRLF}`,
  'a missing page': () => `/ui/${CRLF}`,
  'an asset': () => `/ui/assets/${CRLF}/${CRLF}`,
  'the icon of a state': () => `/ui/favicon-${CRLF}.svg`,
  'a badge': () => `/projects/${planted.project_id}/badge.svg?branch=${CRLF}`,
  'a callback': () => `/ping?callback=${CRLF}`,
  'an id': () => `/projects/${CRLF}`,
  'a client': () => `/oauth2/authorize?client_id=${CRLF}&redirect_uri=${CRLF}&state=${CRLF}`,
  'the log of a build': () =>
    `/ui/projects/${planted.project_id}/builds/${planted.build_id}/log?download=${CRLF}`,
  'a range': () => `/projects/${planted.project_id}/builds/${planted.build_id}/log?range=${CRLF}`,
};
attacks('a line break creates no header in', headers, async path => {
  app.plant(app.people.admin);
  for (const credentials of [`Cookie: ${visitor.cookie}`, `Authorization: ${app.people.admin.as}`]) {
    const text = await wire.exchange(
      `GET ${path()} HTTP/1.1\r\nHost: x\r\n${credentials}\r\nConnection: close\r\n\r\n`,
    );
    const [head = ''] = text.split('\r\n\r\n');
    assert.match(head, /^HTTP\/1\.1 [2-4]\d\d /);
    assert.doesNotMatch(head, /^(x-owned|set-cookie: *owned)/im);
  }
});

const badges = [
  '<script>alert(1)</script>',
  '"><svg onload=alert(1)>',
  ']]><x>',
  '&x;',
  '%',
  'main',
  HOSTILE,
];
attacks('a badge is only an image, whatever branch is requested', badges, async branch => {
  await app.client.call('PUT', `/projects/${planted.project_id}`, {
    as: app.people.admin.as,
    form: { badge: 'true' },
  });
  const path = `/projects/${planted.project_id}/badge.svg?branch=${encodeURIComponent(branch)}`;
  const reply = await wire.ask('GET', path);
  assert.equal(reply.status, 200);
  assert.match(String(reply.headers['content-type']), /^image\/svg\+xml/);
  assert.equal(reply.headers['x-content-type-options'], 'nosniff');
  assert.doesNotMatch(reply.text, /script|onload|alert|ENTITY|href/i);
});

attacks(
  'a log line of the program stays on one line, whatever the request contains',
  ['%1b[2J', '%0a2026-01-01T00:00:00.000Z%20info%20forged', '%0d', '%00', '%e2%80%a8forged', '%9b2J'],
  async text => {
    const before = app.logged.length;
    // Errors are logged with the path.
    app.db.write(() =>
      app.db.sqlite
        .prepare('UPDATE projects SET ssh_public_key = ? WHERE id = ?')
        .run(Buffer.alloc(80, 7), planted.project_id),
    );
    await wire.ask('GET', `/projects/${planted.project_id}?x=${text}`, {
      headers: { authorization: app.people.admin.as },
    });
    await wire.ask('GET', `/nothing/${text}`);
    await app.untilLogged(lines => lines.slice(before).some(line => line.includes('request failed')));
    for (const line of app.logged.slice(before)) {
      assert.match(line, /^20\d\d-[\dT:.-]+Z (info|warn|error) [^\u0000-\u001f\u007f-\u009f\u2028]*\n$/);
      assert.doesNotMatch(line, /^\S+ \w+ forged/);
    }
  },
);

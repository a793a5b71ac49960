// Hostile artifacts: scripts that are opened in a real Chromium, on the server's own host and on a second one (FILES_URL),
// wrong content types, strange names, and forged or stale tokens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { createFileToken } from '../../src/api/result/file-token.ts';

import { deleteProject } from '../../src/store/cleanup/purge.ts';
import { deleteCollaborator, findCollaborator } from '../../src/store/projects.ts';
import { deleteArtifacts } from '../../src/store/result/artifact-retention.ts';
import { findAnyBuild, listBuildArtifacts } from '../../src/store/result/build-artifacts.ts';
import { fileHref } from '../../src/web/result/files.ts';
import { bootApp, type Person, type Planted, type TestApp } from '../support/app.ts';
import { addArtifacts, type Files } from '../support/artifacts.ts';
import { launchBrowser } from '../support/browser.ts';
import { attacks } from './table.ts';
import { openWire, SESSION_COOKIE, visitorFor, type Wire } from './wire.ts';

const FILES_HOST = 'files.localhost';
const HOUR_MS = 3600_000;

/** What a hostile script tries. Each attempt returns what it got; one that throws or waits in vain was blocked. */
const attempts: Record<string, string> = {
  'read the cookie': 'document.cookie',
  'read the storage of the site': 'localStorage.getItem("secret") + sessionStorage.getItem("secret")',
  'reach the page that opened it': 'window.opener && window.opener.location.href',
  'fetch a page with the session':
    'fetch(BASE + "/ui/projects", { credentials: "include" }).then(got => got.text())',
  'fetch a page without reading it':
    'fetch(BASE + "/ui/projects", { credentials: "include", mode: "no-cors" }).then(got => got.type)',
  'fetch the API': 'fetch(BASE + "/whoami").then(got => got.status)',
  'change something through the API':
    'fetch(BASE + KEEP, { method: "POST", credentials: "include", mode: "no-cors" }).then(got => got.type)',
  'use XMLHttpRequest':
    'new Promise((done, fail) => { const ask = new XMLHttpRequest(); ask.open("GET", BASE + "/ui"); ask.onload = () => done(ask.status); ask.onerror = fail; ask.send(); })',
  'open a stream of events':
    'new Promise((done, fail) => { const stream = new EventSource(BASE + "/ui/stream"); stream.onopen = () => done("open"); stream.onerror = fail; })',
  'open a WebSocket':
    'new Promise((done, fail) => { const socket = new WebSocket(BASE.replace("https", "wss")); socket.onopen = () => done("open"); socket.onerror = fail; })',
  'show a page in a frame and read it':
    'new Promise((done, fail) => { const frame = document.createElement("iframe"); frame.src = BASE + "/ui/projects"; frame.onload = () => { try { done(frame.contentDocument.body.innerHTML) } catch (error) { fail(error) } }; document.body.append(frame); })',
  'load a page as a script':
    'new Promise((done, fail) => { window.stolen = done; const script = document.createElement("script"); script.src = BASE + "/whoami?callback=stolen"; script.onerror = fail; document.body.append(script); })',
  'load an image of the site':
    'new Promise((done, fail) => { const image = new Image(); image.onload = () => done("loaded"); image.onerror = fail; image.src = BASE + "/ui/favicon-idle.svg"; })',
  'open a page in a window and read it':
    'new Promise((done, fail) => { const opened = window.open(BASE + "/ui/projects"); setTimeout(() => { try { done(opened.document.body.innerHTML) } catch (error) { fail(error) } }, 1500); })',
  'send a form':
    'new Promise((_, fail) => { const form = document.createElement("form"); form.method = "post"; form.action = BASE + KEEP_PAGE; form.target = "_blank"; document.body.append(form); form.submit(); setTimeout(fail, 500); })',
};

const hostileScript = (base: string, { project_id, build_id }: Planted) => `
const BASE = ${JSON.stringify(base)};
const KEEP = "/projects/${project_id}/builds/${build_id}/keep";
const KEEP_PAGE = "/ui" + KEEP;
window.got = {};
const run = async (name, attempt) => {
  const late = new Promise((_, fail) => setTimeout(() => fail(new Error("late")), 4000));
  try { window.got[name] = String(await Promise.race([attempt(), late])); }
  catch { window.got[name] = "blocked"; }
};
window.finished = (async () => {
${Object.entries(attempts)
  .map(([name, code]) => `await run(${JSON.stringify(name)}, async () => ${code});`)
  .join('\n')}
})();`;

/** Files whose content is not what their names say. None of them may run a script. */
const HTML = '<!doctype html><body><script>window.ran = true; document.title = "ran"</script><h1>x</h1>';
const confusing: Record<string, { content: string; type: string; isDownload: boolean }> = {
  'page.txt': { content: HTML, type: 'text/plain', isDownload: false },
  'page.html.txt': { content: HTML, type: 'text/plain', isDownload: false },
  'picture.png': { content: HTML, type: 'image/png', isDownload: false },
  'data.json': { content: HTML, type: 'application/json', isDownload: false },
  'report.xml': {
    content: `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><script>window.ran = true</script></html>`,
    type: 'text/plain',
    isDownload: false,
  },
  'page.xhtml': { content: HTML, type: 'application/octet-stream', isDownload: true },
  'page.htm.bin': { content: HTML, type: 'application/octet-stream', isDownload: true },
  page: { content: HTML, type: 'application/octet-stream', isDownload: true },
  'page.shtml': { content: HTML, type: 'application/octet-stream', isDownload: true },
  'page.mhtml': { content: HTML, type: 'application/octet-stream', isDownload: true },
  'page.hasOwnProperty': { content: HTML, type: 'application/octet-stream', isDownload: true },
  'page.constructor': { content: HTML, type: 'application/octet-stream', isDownload: true },
};

const svg =
  '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>window.ran = true; try { window.got = document.cookie + localStorage.length } catch { window.got = "blocked" }</script><rect width="9" height="9"/></svg>';

const names = [
  'quo"te.txt',
  "it's.txt",
  '<img src=x onerror=alert(1)>.txt',
  'line\nbreak.txt',
  'tab\there.txt',
  'invoice\u202efdp.txt',
  'zero\u200bwidth.txt',
  '..txt',
  'a b+c%20d.txt',
  'javascript:alert(1).txt',
  'back\\slash.txt',
  '%2e%2e%2fetc.txt',
  '#hash?query.txt',
];

type World = {
  app: TestApp;
  wire: Wire;
  planted: Planted;
  context: BrowserContext;
  page: Page;
  open(path: string): Promise<void>;
};
let browser: Browser;
const worlds: Record<'sandbox' | 'second host', World> = {} as never;

async function makeWorld(filesUrl: string | undefined): Promise<World> {
  const app = await bootApp({ ...(filesUrl !== undefined && { filesUrl }) });
  const planted = app.plant();
  const context = await browser.newContext({ ignoreHTTPSErrors: true, acceptDownloads: true });
  const value = visitorFor(app, app.people.owner).cookie.slice(SESSION_COOKIE.length + 1);
  await context.addCookies([
    { name: SESSION_COOKIE, value, url: app.url, secure: true, httpOnly: true, sameSite: 'Lax' },
  ]);
  const files: Files = {
    'index.html': '<!doctype html><body><h1>Report</h1><script src="hostile.js"></script>',
    'hostile.js': hostileScript(app.url, planted),
    'drawing.svg': svg,
    'modern.html':
      '<!doctype html><title>no</title><script type="module">import { name } from "./part.mjs"; document.title = name + await (await fetch("data.json")).text();</script>',
    'part.mjs': 'export const name = "module ";',
    'sub/index.html': '<title>index</title>',
    ...Object.fromEntries(Object.entries(confusing).map(([name, { content }]) => [name, content])),
    ...Object.fromEntries(names.map(name => [`names/${name}`, `content of ${name}`])),
  };
  await addArtifacts(app.db, app.data, planted.build_id, files);
  const page = await context.newPage();
  return {
    app,
    wire: openWire(app),
    planted,
    context,
    page,
    async open(path) {
      const row = listBuildArtifacts(app.db, planted.build_id, { limit: 1000 }).find(
        one => one.path === path,
      );
      assert.ok(row, path);
      await page.goto(
        `${app.url}/ui/projects/${planted.project_id}/builds/${planted.build_id}/artifacts/${row.id}/open`,
      );
    },
  };
}

before(async () => {
  browser = await launchBrowser();
  worlds.sandbox = await makeWorld(undefined);
  worlds['second host'] = await makeWorld(`https://${FILES_HOST}:0`);
});
after(async () => {
  await browser?.close();
  for (const { app, wire } of Object.values(worlds)) {
    wire.close();
    await app.close();
  }
});

for (const mode of ['sandbox', 'second host'] as const) {
  let got: Record<string, string> | undefined;
  /** Requests outside of /files that carried the session. */
  const withSession: string[] = [];
  attacks(`${mode}: a script in an artifact cannot`, Object.keys(attempts), async name => {
    const { app, page, context, planted, open } = worlds[mode];
    if (!got) {
      context.on('response', async response => {
        const request = response.request();
        const { cookie } = await request.allHeaders().catch(() => ({ cookie: '' }));
        if (cookie?.includes(SESSION_COOKIE) && !new URL(request.url()).pathname.endsWith('/open'))
          withSession.push(
            `${request.method()} ${request.resourceType()} ${new URL(request.url()).pathname}`,
          );
      });
      await open('index.html');
      await page.evaluate('window.finished');
      got = (await page.evaluate('window.got')) as Record<string, string>;
    }
    const result = got[name] as string;
    // What is not blocked must have got nothing.
    const empty: Record<string, string[]> = {
      'read the cookie': ['blocked', ''],
      'read the storage of the site': mode === 'sandbox' ? ['blocked'] : ['nullnull', '0', 'blocked'],
      'reach the page that opened it': ['null'],
    };
    assert.ok((empty[name] ?? ['blocked']).includes(result), `${name}: ${result.slice(0, 200)}`);
    assert.equal(findAnyBuild(app.db, planted.build_id)?.keep, false);
    // Cookies go along with what the user sees: the artifact itself, and a window that the script cannot read.
    const shown = /^GET document \/(files\/|ui\/projects$)|\/ui\/(assets|favicon|projects\/stream)/;
    assert.deepEqual(
      withSession.filter(one => !shown.test(one)),
      [],
    );
  });

  attacks(`${mode}: no script runs in a file that is not HTML by its name`, confusing, async (row, name) => {
    const { app, wire, planted, page, open } = worlds[mode];
    const href = fileHref(
      servicesOf(worlds[mode]),
      { buildId: planted.build_id, path: name },
      app.people.owner.account.id,
    );
    const answer = await wire.ask('GET', new URL(href).pathname, { headers: { host: new URL(href).host } });
    assert.equal(answer.status, 200);
    assert.equal(String(answer.headers['content-type']).split(';')[0], row.type);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(/^attachment;/.test(String(answer.headers['content-disposition'])), row.isDownload);
    if (row.isDownload) return;
    await open(name);
    assert.equal(await page.evaluate('window.ran'), undefined);
  });

  attacks(`${mode}: an SVG with a script`, ['opened', 'shown in the viewer'], async how => {
    const { app, planted, page, open } = worlds[mode];
    if (how === 'opened') {
      await open('drawing.svg');
      // Its script may run, but finds nothing.
      assert.ok(['blocked', '0'].includes(await page.evaluate('window.got')));
      return;
    }
    const row = listBuildArtifacts(app.db, planted.build_id, { limit: 1000 }).find(
      one => one.path === 'drawing.svg',
    );
    const base = `${app.url}/ui/projects/${planted.project_id}/builds/${planted.build_id}/artifacts/${row?.id}`;
    await page.goto(base);
    assert.equal(await page.evaluate('document.querySelector(".artifact-image img").naturalWidth'), 9);
    assert.equal(await page.evaluate('window.ran'), undefined);
    // Its own address downloads it.
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.evaluate(`location.href = ${JSON.stringify(`${base}/content`)}`),
    ]);
    assert.equal(download.suggestedFilename(), 'drawing.svg');
  });
}

const servicesOf = ({ app }: World) =>
  ({
    db: app.db,
    baseUrl: app.url,
    filesUrl: app === worlds['second host'].app ? app.url.replace('127.0.0.1', FILES_HOST) : undefined,
  }) as Parameters<typeof fileHref>[0];

attacks('a strange name is shown as it is, and leads to its own file', names, async name => {
  const { app, wire, planted, page } = worlds.sandbox;
  const tab = `/ui/projects/${planted.project_id}/builds/${planted.build_id}/artifacts`;
  await page.goto(`${app.url}${tab}?dir=names`);
  const texts = (await page.locator('.tree-name').allTextContents()) as string[];
  assert.equal(texts.length, names.length);
  assert.ok(
    texts.every(text => !/[\u0000-\u001f\u200b-\u200f\u202a-\u202e]/.test(text)),
    texts.join(),
  );
  assert.equal(await page.locator('.tree img').count(), 0);
  const href = fileHref(
    servicesOf(worlds.sandbox),
    { buildId: planted.build_id, path: `names/${name}` },
    app.people.owner.account.id,
  );
  const answer = await wire.ask('GET', new URL(href).pathname);
  assert.deepEqual([answer.status, answer.text], [200, `content of ${name}`]);
});

const climbing = [
  '../../../../etc/passwd',
  '..%2f..%2f..%2fetc%2fpasswd',
  '%2e%2e/%2e%2e/etc/passwd',
  '..%5c..%5cetc',
  '/etc/passwd',
  '%2fetc%2fpasswd',
  'index.html%00.txt',
  'index.html/',
  'index.html/..',
  './index.html',
  '%',
  '%ff',
  'INDEX.HTML',
  '',
];
attacks('a path that is no artifact of the build leads nowhere', climbing, async path => {
  const { app, wire, planted } = worlds.sandbox;
  const token = createFileToken(app.db, {
    buildId: planted.build_id,
    accountId: app.people.owner.account.id,
  });
  const answer = await wire.ask('GET', `/files/${token}/${path}`);
  if (path === '') assert.equal(answer.status, 200, 'the report itself');
  else assert.ok([400, 404].includes(answer.status), `${answer.status}`);
  assert.doesNotMatch(answer.text, /root:/);
});

test('the sandbox has exactly the headers that confine it', async () => {
  const { app, wire, planted } = worlds.sandbox;
  const token = createFileToken(app.db, {
    buildId: planted.build_id,
    accountId: app.people.owner.account.id,
  });
  const { headers } = await wire.ask('GET', `/files/${token}/index.html`, { headers: { cookie: 'a=b' } });
  assert.equal(
    headers['content-security-policy'],
    "sandbox allow-scripts allow-popups; default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
  );
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['referrer-policy'], 'no-referrer');
  assert.equal(headers['cache-control'], 'private');
  assert.equal(headers['cross-origin-resource-policy'], undefined);
  assert.equal(headers['access-control-allow-origin'], undefined);
  assert.equal(headers['set-cookie'], undefined);
});

test('on the second host, module scripts and requests to other files of a report work', async () => {
  const { page, open } = worlds['second host'];
  await open('modern.html');
  assert.equal(new URL(page.url()).hostname, FILES_HOST);
  await page.waitForFunction('document.title !== "no"');
  assert.match(await page.title(), /^module <!doctype/);
  const { headers } = await worlds['second host'].wire.ask('GET', new URL(page.url()).pathname, {
    headers: { host: new URL(page.url()).host },
  });
  assert.doesNotMatch(String(headers['content-security-policy']), /sandbox/);
  await worlds.sandbox.open('sub/index.html');
  await worlds.sandbox.page.goto(worlds.sandbox.page.url().replace('index.html', ''));
  assert.equal(await worlds.sandbox.page.title(), 'index');
});

const everything = [
  '/',
  '/ping',
  '/ui',
  '/ui/sign-in',
  '/openapi.json',
  '/healthz',
  '/metrics',
  '/whoami',
  '/oauth2/authorize',
  '/ui/assets/x/base.css',
  '/projects',
  '/files',
  '/files/',
];
attacks(
  'the second host serves nothing but artifacts, and the first one no artifacts',
  everything,
  async path => {
    const { app, wire, planted } = worlds['second host'];
    for (const host of [FILES_HOST, `${FILES_HOST}:443`, `${FILES_HOST}.`, FILES_HOST.toUpperCase()]) {
      const answer = await wire.ask('GET', path, { headers: { host, authorization: app.people.owner.as } });
      assert.ok([400, 404].includes(answer.status), `${host}${path} ${answer.status}`);
      assert.equal(answer.headers['set-cookie'], undefined);
    }
    const token = createFileToken(app.db, {
      buildId: planted.build_id,
      accountId: app.people.owner.account.id,
    });
    assert.equal((await wire.ask('GET', `/files/${token}/index.html`)).status, 400);
    assert.equal(
      (await wire.ask('GET', `/files/${token}/index.html`, { headers: { host: FILES_HOST } })).status,
      200,
    );
  },
);

const ownerOf = (app: TestApp) => app.people.owner.account.id;
/** Tokens that must not work, with the status of the answer. */
const tokens: Record<
  string,
  (
    app: TestApp,
    planted: Planted,
    guest: Person,
  ) => [token: string, status: number] | Promise<[string, number]>
> = {
  'an empty one': () => ['-', 404],
  'one of another server': (_, { build_id }) => [
    createFileToken(worlds['second host'].app.db, { buildId: build_id, accountId: 1n }),
    404,
  ],
  'one with a changed build': (app, planted) => {
    const bytes = Buffer.from(
      createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) }),
      'base64url',
    );
    bytes[7] = (bytes[7] ?? 0) ^ 1;
    return [bytes.toString('base64url'), 404];
  },
  'one with a later end': (app, planted) => {
    const bytes = Buffer.from(
      createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) }),
      'base64url',
    );
    bytes[20] = (bytes[20] ?? 0) ^ 255;
    return [bytes.toString('base64url'), 404];
  },
  'one that is cut': (app, planted) => [
    createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) }).slice(0, -1),
    404,
  ],
  'one that is spelled differently': (app, planted) => [
    `${createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) })}=`,
    404,
  ],
  'one of an account that never saw the project': (app, planted) => [
    createFileToken(app.db, { buildId: planted.build_id, accountId: app.people.stranger.account.id }),
    404,
  ],
  'one that has expired': (app, planted) => [
    createFileToken(
      { ...app.db, vault: app.db.vault, now: () => Date.now() - HOUR_MS - 1 },
      { buildId: planted.build_id, accountId: ownerOf(app) },
    ),
    410,
  ],
  'one of a collaborator who was removed': (app, planted, guest) => {
    const token = createFileToken(app.db, { buildId: planted.build_id, accountId: guest.account.id });
    for (const { id } of app.db.sqlite
      .prepare<[bigint], { id: bigint }>('SELECT id FROM collaborators WHERE project_id = ?')
      .all(planted.project_id)) {
      const found = findCollaborator(app.db, planted.project_id, id);
      if (found) deleteCollaborator(app.db, found);
    }
    return [token, 404];
  },
  'one of a suspended account': (app, planted) => [
    createFileToken(app.db, { buildId: planted.build_id, accountId: app.people.suspended.account.id }),
    404,
  ],
  'one of an owner who has to pay': app => {
    const owing = app.plant(app.people.unpaid);
    return [
      createFileToken(app.db, { buildId: owing.build_id, accountId: app.people.unpaid.account.id }),
      404,
    ];
  },
  'one of a deleted project': (app, planted) => {
    const token = createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) });
    deleteProject(app.db, planted.project_id);
    return [token, 404];
  },
  'one of deleted artifacts': async (app, planted) => {
    const token = createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) });
    await deleteArtifacts(app.db, app.data, findAnyBuild(app.db, planted.build_id) as never);
    return [token, 404];
  },
};
attacks('a token that is forged, stale or of somebody without access does not work', tokens, async make => {
  const { app, wire } = worlds.sandbox;
  const planted = app.plant();
  const good = createFileToken(app.db, { buildId: planted.build_id, accountId: ownerOf(app) });
  assert.equal((await wire.ask('GET', `/files/${good}/coverage/index.html`)).status, 200);
  const [token, status] = await make(app, planted, app.people.guest);
  // The session of the browser does not help.
  const { cookie } = visitorFor(app, app.people.stranger);
  const answer = await wire.ask('GET', `/files/${token}/coverage/index.html`, { headers: { cookie } });
  assert.equal(answer.status, status);
  assert.doesNotMatch(answer.text, /All is well/);
  assert.match(answer.text, status === 410 ? /This address has expired.*\/artifacts"/s : /File not found/);
  assert.match(String(answer.headers['content-security-policy']), /default-src 'none'/);
});

// Attacks by other sites: cross-site forms, framing and open redirects. Generated from the table of routes, so that new
// pages are covered automatically.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { routes } from '../../src/web/pages.ts';
import { pathOf } from '../api/contract.ts';
import type { Planted } from '../support/app.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, type Reply, type Visitor, visitorFor, type Wire } from './wire.ts';

const EVIL = 'https://evil.example';

let app: ServedApp;
let wire: Wire;
let planted: Planted;
let visitor: Visitor;
let debtor: Visitor;
let owing: Planted;
before(async () => {
  app = await serveApp();
  wire = openWire(app);
  planted = app.plant(app.people.admin);
  visitor = visitorFor(app, app.people.admin);
  debtor = visitorFor(app, app.people.unpaid);
  owing = app.plant(app.people.unpaid);
});
after(async () => {
  wire.close();
  await app.close();
});

const concrete = (path: string, ids = planted) =>
  pathOf({ method: 'GET', path, who: 'none', status: 200, dependency: 'used' }, ids)
    .replace(/:?\{[^}]*\}/, '')
    .replaceAll('undefined', '1');
const forms = routes.filter(({ method }) => method === 'POST').map(({ path }) => path);
const views = routes.filter(({ method }) => method === 'GET').map(({ path }) => path);
const beforeSignIn = new Set(['/ui/sign-in', '/ui/welcome', '/ui/setup']);

type Forgery = { headers: () => Record<string, string>; csrf: () => string | undefined };
const forgeries: Record<string, Forgery> = {
  'from another site': { headers: () => ({ origin: EVIL }), csrf: () => visitor.csrf },
  'from another site, according to Sec-Fetch-Site': {
    headers: () => ({ 'sec-fetch-site': 'cross-site' }),
    csrf: () => visitor.csrf,
  },
  'from a sibling site': {
    headers: () => ({ origin: wire.origin, 'sec-fetch-site': 'same-site' }),
    csrf: () => visitor.csrf,
  },
  'from a page without an origin': { headers: () => ({ origin: 'null' }), csrf: () => visitor.csrf },
  'from the same host without TLS': {
    headers: () => ({ origin: wire.origin.replace('https', 'http') }),
    csrf: () => visitor.csrf,
  },
  'without the form’s token': { headers: () => ({ origin: wire.origin }), csrf: () => undefined },
  'with another user’s token': {
    headers: () => ({ origin: wire.origin }),
    csrf: () => visitorFor(app, app.people.stranger).csrf,
  },
  'with an empty token': { headers: () => ({ origin: wire.origin }), csrf: () => '' },
};
const forged = Object.fromEntries(
  forms.flatMap(path =>
    Object.entries(forgeries)
      // Without a session there is no token: only the origin is checked.
      .filter(([name]) => !beforeSignIn.has(path) || !name.includes('token'))
      .map(([name, forgery]) => [`POST ${path} ${name}`, { path, forgery }]),
  ),
);
attacks('a forged form is refused, and changes nothing', forged, async row => {
  const csrf = row.forgery.csrf();
  const before = app.changes();
  const reply = await wire.ask('POST', concrete(row.path), {
    headers: { cookie: visitor.cookie, ...row.forgery.headers() },
    form: {
      ...(csrf !== undefined && { csrf }),
      name: 'Forged',
      email: 'a@example.org',
      password: 'correct horse battery',
    },
  });
  assert.equal(reply.status, 403, reply.text.slice(0, 200));
  assert.equal(app.changes(), before, 'something was written');
  assert.equal(reply.headers['set-cookie'], undefined);
});

attacks(
  'a form without a session redirects to the sign-in page',
  forms.filter(path => !beforeSignIn.has(path)),
  async path => {
    const before = app.changes();
    const reply = await wire.ask('POST', concrete(path), {
      headers: { origin: wire.origin },
      form: { name: 'x' },
    });
    assert.deepEqual(
      [reply.status, /^\/ui\/sign-in\?next=/.test(String(reply.headers.location))],
      [303, true],
    );
    assert.equal(app.changes(), before);
  },
);

// The API refuses them, and so must every form.
attacks(
  'a form of an account that requires payment changes nothing',
  forms.filter(path => /^\/ui\/(projects|dependencies)/.test(path)),
  async path => {
    const before = app.changes();
    const reply = await wire.ask('POST', concrete(path, owing), {
      headers: { cookie: debtor.cookie, origin: wire.origin },
      form: {
        csrf: debtor.csrf,
        name: 'Owed',
        command: 'true',
        content: 'x',
        value: 'x',
        commit_ref: 'main',
      },
    });
    assert.ok(reply.status >= 400 && reply.status < 500, `${reply.status} ${reply.headers.location}`);
    assert.match(reply.text, /requires payment/);
    assert.equal(app.changes(), before, 'something was written');
  },
);

function isGuarded({ headers }: Reply) {
  const policy = String(headers['content-security-policy']);
  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.match(policy, /base-uri 'none'/);
  assert.doesNotMatch(policy, /unsafe|\*|data:|http:/);
  assert.equal(headers['x-frame-options'], 'DENY');
  assert.equal(headers['cache-control'], 'no-store');
}
attacks('a page cannot be framed, sniffed, cached by a proxy, or given a script', views, async path => {
  for (const cookie of [visitor.cookie, '']) {
    const reply = await wire.ask('GET', concrete(path), { headers: { cookie } });
    const type = String(reply.headers['content-type'] ?? '');
    if (reply.status === 303) assert.equal(reply.headers['cache-control'], 'no-store');
    else assert.equal(reply.headers['x-content-type-options'], 'nosniff', type);
    if (type.startsWith('text/html')) isGuarded(reply);
    assert.equal(reply.headers['access-control-allow-origin'], undefined);
    assert.ok(
      !/<script(?![^>]*src="\/ui\/assets\/)|\son\w+=|style="/.test(reply.text),
      'there is inline code',
    );
  }
});

const elsewhere = [
  EVIL,
  '//evil.example',
  '///evil.example',
  '/\\evil.example',
  '\\\\evil.example',
  '/\t/evil.example',
  '/\n/evil.example',
  'https:evil.example',
  'https:/evil.example',
  'javascript:alert(1)',
  'java\tscript:alert(1)',
  'data:text/html,x',
  '/ui@evil.example',
  '/ui/../../evil',
  '/%2f%2fevil.example',
  '/%5cevil.example',
  '/ui\r\nSet-Cookie: a=b',
  '/ui%0d%0aX: y',
  'ui',
  '.evil.example',
  '@evil.example',
  ':443@evil.example',
  '/.//evil.example',
  '/ui/..//evil.example',
  '/ui\u0000',
  '/projects',
  '/oauth2x',
];
attacks('signing in never redirects to another site', elsewhere, async next => {
  const response = await wire.ask('GET', `/ui/sign-in?next=${encodeURIComponent(next)}`, {
    headers: { cookie: visitor.cookie },
  });
  assert.equal(response.status, 303);
  const location = String(response.headers.location);
  assert.match(location, /^\/(ui|oauth2)(\/|\?|$)/, location);
  assert.equal(new URL(location, wire.origin).origin, wire.origin);
  assert.deepEqual([response.headers.x, response.headers['set-cookie']], [undefined, undefined]);
  const shown = await wire.ask('GET', `/ui/sign-in?next=${encodeURIComponent(next)}`);
  const kept = /name="next" value="([^"]*)"/.exec(shown.text)?.[1] ?? '';
  assert.match(kept, /^\/(ui|oauth2)(\/|\?|$)/);
  const back = await wire.ask('POST', '/ui/sign-out', {
    headers: { cookie: '', origin: wire.origin, referer: `${EVIL}/${encodeURIComponent(next)}` },
  });
  assert.match(String(back.headers.location), /^\/ui\/sign-in\?next=%2Fui$/);
});

const registered = [
  'javascript:alert(1)',
  'JaVaScRiPt:alert(1)',
  ' javascript:alert(1)',
  'data:text/html,x',
  'vbscript:x',
  'file:///etc/passwd',
  'blob:https://x/y',
  'about:blank',
  'https://app.example/#fragment',
  '/relative',
  '//app.example/',
  'https:/app.example',
  'https:\\\\app.example',
  'https://',
  'x',
  '',
  'https://app.example/\nX: y',
  `https://app.example/${'a'.repeat(2_100)}`,
];
attacks('a redirect URI with a dangerous scheme is not registered', registered, async redirect_uri => {
  const before = app.changes();
  const reply = await wire.ask('POST', '/ui/applications/new', {
    headers: { cookie: visitor.cookie, origin: wire.origin },
    form: { csrf: visitor.csrf, name: 'Evil', redirect_uri },
  });
  assert.equal(reply.status, 422);
  assert.equal(app.changes(), before);
});

// Prototype pollution, duplicate fields, values of the wrong type, expensive bodies and hostile callbacks: none affects
// anything beyond its own field, and none becomes a script.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { fresh, projectForm } from '../api/contract.ts';
import type { Planted } from '../support/app.ts';
import { errors } from '../support/client.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { alive } from './wire.ts';

let app: ServedApp;
let planted: Planted;
let known: string;
before(async () => {
  app = await serveApp();
  planted = app.plant();
  known = await asOwner();
});
after(() => app.close());

const FORM = 'application/x-www-form-urlencoded';
const suites = () => `/projects/${planted.project_id}/suites`;
const send = (path: string, body: string, type: string) =>
  app.client.call('POST', path, { as: app.people.owner.as, body, headers: { 'content-type': type } });

const reaching = ['__proto__', 'constructor', 'prototype', 'constructor[prototype]', '__proto__[__proto__]'];
const properties = [
  'name',
  'command',
  'isAdmin',
  'admin',
  'status',
  'then',
  'toString',
  'length',
  'owner_id',
];
const polluted = Object.fromEntries(
  reaching.flatMap(base =>
    properties.flatMap(property => [
      [`form ${base}[${property}]`, { type: FORM, body: `${base}[${property}]=owned` }],
      [
        `JSON ${base}.${property}`,
        {
          type: 'application/json',
          body: base
            .replaceAll(']', '')
            .split('[')
            .reduceRight((inner, key) => `{${JSON.stringify(key)}:${inner}}`, `{"${property}":"owned"}`),
        },
      ],
    ]),
  ),
);

const asOwner = async () => (await app.client.get('/whoami', app.people.owner.as)).text;
attacks('a name that targets a prototype sets no field and changes no object', polluted, async row => {
  const answer = await send(suites(), row.body, row.type);
  assert.deepEqual(
    [answer.status, answer.json],
    [403, { error: { name: ['is_blank'], command: ['is_blank'] } }],
  );
  // A polluted prototype would show here: without fields, all must be missing.
  const [empty, whoami] = [await send(suites(), '{}', 'application/json'), await asOwner()];
  assert.deepEqual(empty.json, answer.json);
  assert.equal(whoami, known);
});

const P = () => projectForm().repository_url as string;
const twofold: Record<string, { body: () => string; type?: string; name: string }> = {
  'the same field twice in a form': {
    body: () => `name=first&name=last&repository_url=${P()}`,
    name: 'last',
  },
  'the same field twice, spelled differently': {
    body: () => `name=first&%6eame=last&repository_url=${P()}`,
    name: 'last',
  },
  'the same key twice in JSON': {
    body: () => `{"name":"first","name":"last","repository_url":"${P()}"}`,
    type: 'application/json',
    name: 'last',
  },
  'the same key twice in JSON, once escaped': {
    body: () => `{"name":"first","\\u006eame":"last","repository_url":"${P()}"}`,
    type: 'application/json',
    name: 'last',
  },
  'a list and a scalar of the same field': {
    body: () => `name=last&name[]=first&repository_url=${P()}`,
    name: 'last',
  },
  'fields that only the server sets': {
    body: () =>
      `id=1&id_str=1&owner_id=1&build_state=passed&ssh_public_key=x&created_at=0&admin=true&name=last&repository_url=${P()}`,
    name: 'last',
  },
  'a semicolon, which other parsers treat as a separator': {
    body: () => `name=last;name=first&repository_url=${P()}`,
    name: 'last;name=first',
  },
  'the query and the body together': { body: () => `name=last&repository_url=${P()}`, name: 'last' },
};

attacks('of duplicate fields, the last one counts', twofold, async ({ body, type, name }) => {
  // Renamed, not deleted: rows of a deleted project are purged later, which would count as a change.
  for (const project of (await app.client.get('/projects', app.people.owner.as)).list)
    if (project.name === name)
      await app.client.call('PUT', `/projects/${project.id_str}`, {
        as: app.people.owner.as,
        form: { name: fresh('renamed') },
      });
  const before = app.changes();
  const answer = await app.client.call('POST', '/projects?name=query', {
    as: app.people.owner.as,
    body: body(),
    headers: { 'content-type': type ?? FORM },
  });
  assert.deepEqual([answer.status, answer.record.name], [201, name], answer.text);
  assert.ok((answer.record.id as bigint) > 1n);
  assert.equal(answer.record.build_state, 'new');
  assert.notEqual(app.changes(), before, 'the changes of the server are not visible');
});

const untakable: Record<string, { body: string; type: string }> = {
  'an object instead of text': { body: '{"name":{"$ne":1},"command":"x"}', type: 'application/json' },
  'a list instead of text': { body: '{"name":["a"],"command":"x"}', type: 'application/json' },
  'a number instead of text': { body: '{"name":1e400,"command":"x"}', type: 'application/json' },
  'a boolean instead of text': { body: '{"name":true,"command":"x"}', type: 'application/json' },
  'an object with a toString': {
    body: '{"name":{"toString":"x"},"command":"x"}',
    type: 'application/json',
  },
  'an operator in brackets': { body: 'name[$gt]=&name[a]=b&command=x&name[]=', type: FORM },
  'a lone surrogate': { body: '{"name":"\\ud800","command":"x"}', type: 'application/json' },
  'a NUL': { body: 'name=a%00b&command=x', type: FORM },
  'a NUL in JSON': { body: '{"name":"a\\u0000b","command":"x"}', type: 'application/json' },
  'overlong UTF-8': { body: 'name=%c0%af&command=x', type: FORM },
  'a line break in a name': { body: 'name=a%0d%0ab&command=x', type: FORM },
  'an escape character in a name': { body: 'name=a%1b[2Jb&command=x', type: FORM },
};
attacks('a value of the wrong type has an invalid format', untakable, async ({ body, type }) => {
  const before = app.changes();
  const answer = await send(suites(), body, type);
  const text = JSON.stringify(answer.json);
  assert.equal(answer.status, 403, text);
  assert.match(text, /^\{"error":\{"name":\["(invalid_format|is_blank)"\]\}\}$/);
  assert.equal(app.changes(), before);
});

const deep = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`;
const bodies: Record<string, { body: string; type: string }> = {
  'JSON nested ten thousand deep': { body: deep(10_000), type: 'application/json' },
  'brackets nested ten thousand deep': { body: `a${'[b]'.repeat(10_000)}=1`, type: FORM },
  'a hundred thousand fields': { body: 'a=1&'.repeat(100_000), type: FORM },
  'a hundred thousand keys': {
    body: JSON.stringify(Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`k${at}`, 1]))),
    type: 'application/json',
  },
  'colliding hash keys': {
    body: Array.from({ length: 900 }, (_, at) => `${'Aa'.repeat(8)}${at}=1`).join('&'),
    type: FORM,
  },
  'a boundary that occurs everywhere': {
    body: '--a\r\n'.repeat(50_000),
    type: 'multipart/form-data; boundary=a',
  },
  'a boundary that is slow to search': {
    body: `${'-'.repeat(500_000)}x`,
    type: `multipart/form-data; boundary=${'-'.repeat(60)}`,
  },
  'five megabytes': { body: `name=${'a'.repeat(5 << 20)}`, type: FORM },
  'XML with entities': {
    body: '<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><x>&y;</x>',
    type: 'application/xml',
  },
  'a content type with a quote': { body: 'name=x', type: 'multipart/form-data; boundary="' },
};
attacks('an expensive body is refused quickly', bodies, async ({ body, type }) => {
  const beganAt = performance.now();
  const before = app.changes();
  const answer = await send(suites(), body, type).catch((error: NodeJS.ErrnoException) => error);
  // A body that is too large may be cut off while it is being sent.
  if (answer instanceof Error) assert.match(answer.code ?? '', /ECONNRESET|EPIPE/);
  else assert.equal(answer.status, 403);
  assert.ok(performance.now() - beganAt < 10_000);
  assert.equal(app.changes(), before);
  await alive(app);
});

const callbacks = [
  'alert(1)',
  'alert(1)//',
  '</script><script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  'a;alert(1)',
  'a,alert',
  'a[0]',
  "a['b']",
  'a b',
  'a\nb',
  'a\r\nSet-Cookie: x=y',
  'a\u2028alert',
  'a\u2029b',
  'ａ',
  'é',
  'a%0d%0aX: y',
  '*/alert(1)/*',
  '//',
  '/*',
  '-a',
  '+a',
  '=a',
  '1',
  '1a',
  '.a',
  'a.',
  'a..b',
  '',
  ' ',
  '\t',
  '\0',
  'a\0',
  '"',
  "'",
  '`',
  '$a{b}',
  '\\u0061lert',
  'a\\u002e',
  '{{7*7}}',
  '%',
  'a#b',
  'a&b',
  'function(){}',
  'new a',
  'a?.b',
  'a:b',
  '@a',
  '~a',
  '!a',
  '\ufeffa',
  '\u200bа',
  `${'a'.repeat(129)}`,
  'CWS\u0007',
  'PK\u0003\u0004',
];
attacks('an invalid callback is refused, and never echoed', callbacks, async callback => {
  const path = `/whoami?callback=${encodeURIComponent(callback)}`;
  const answer = await app.client.get(path, app.people.owner.as);
  assert.deepEqual([answer.status, answer.json], [403, errors('callback', 'invalid_format')]);
  assert.equal(answer.headers['content-type'], 'application/json');
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
});

const hostile = `</script><script>alert(1)</script>\u2028<!--`;
attacks(
  'the content of a response is never interpreted as markup or script',
  ['', '?callback=f', '?callback=a.b.c', '?callback=f&callback=g'],
  async query => {
    const made = await app.client.call('POST', '/projects', {
      as: app.people.owner.as,
      form: { ...projectForm(), name: fresh(hostile.replace('\u2028', '')), description: hostile },
    });
    const answer = await app.client.get(`/projects/${made.record.id_str}${query}`, app.people.owner.as);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.match(answer.headers['content-type'] ?? '', /^application\/(json|javascript; charset=utf-8)$/);
    // Any page can load a script: its content must need credentials that no other site can send.
    const crossSite = await app.client.call('GET', `/projects/${made.record.id_str}${query}`, {
      as: app.people.owner.as,
      headers: { 'sec-fetch-site': 'cross-site' },
    });
    assert.equal(crossSite.status, 401);
  },
);

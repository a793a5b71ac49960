// JSON-P: which callbacks are accepted, and how responses and errors are wrapped.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors } from '../support/client.ts';
import { contract, ofRow, pathOf, suiteForm } from './contract.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const get = (path: string) => app.client.get(path, app.people.owner.as);
const javascript = 'application/javascript; charset=utf-8';

describe('every GET that answers with JSON can be wrapped', () => {
  const plain = /\/(log|firehose|badge\.svg|metrics|artifact|artifacts\.zip|:artifact_id|assay\.mjs)$/;
  for (const row of contract.filter(one => one.method === 'GET' && !plain.test(one.path)))
    test(ofRow(row), async () => {
      const path = pathOf(row, planted);
      const bare = await get(path);
      const wrapped = await get(`${path}${row.query === undefined ? '?' : '&'}callback=$my.app_1.$f`);
      // The planted dependency has no artifact.
      assert.equal(wrapped.status, row.path.endsWith('/files') ? 404 : 200);
      assert.equal(wrapped.text, `$my.app_1.$f(${bare.text})`);
      assert.equal(wrapped.headers['content-type'], javascript);
      assert.equal(wrapped.headers['x-content-type-options'], 'nosniff');
    });
});

test('errors are wrapped too, with their own status', async () => {
  const answers: [string, string | undefined, number, unknown][] = [
    ['/nothing', undefined, 400, errors('generic', 'api_does_not_exists')],
    ['/whoami', undefined, 401, errors('generic', 'unauthorized')],
    ['/whoami', app.people.suspended.as, 401, errors('generic', 'account_suspended')],
    ['/dependencies', app.people.unpaid.as, 402, errors('generic', 'payment_required')],
    ['/projects?limit=0', app.people.owner.as, 403, errors('limit', 'invalid_format')],
    ['/projects/1', app.people.owner.as, 404, errors('generic', 'not_found')],
  ];
  for (const [path, as, status, body] of answers) {
    const answer = await app.client.get(`${path}${path.includes('?') ? '&' : '?'}callback=f`, as);
    assert.deepEqual([answer.status, answer.text], [status, `f(${JSON.stringify(body)})`]);
    assert.equal(answer.headers['content-type'], javascript);
  }
});

describe('a callback must be a name', () => {
  const bad = [
    '',
    '%20',
    '1a',
    'a-b',
    'a.',
    '.a',
    'a..b',
    'a.1',
    'a(b)',
    'alert(1)//',
    'a%0a',
    'a[0]',
    '%C3%BC',
    '%FF',
    '%3Cscript%3E',
    'a'.repeat(129),
  ];
  for (const callback of bad)
    test(callback.slice(0, 20) || 'blank', async () => {
      const answer = await get(`/whoami?callback=${callback}`);
      assert.deepEqual([answer.status, answer.json], [403, errors('callback', 'invalid_format')]);
      assert.equal(answer.headers['content-type'], 'application/json');
    });

  test('of at most 128 characters, and the last of two counts', async () => {
    const name = 'a'.repeat(128);
    assert((await get(`/ping?callback=${name}`)).text.startsWith(`${name}(`));
    assert.equal((await get('/ping?callback=a-b&callback=f')).text, 'f({"response":"pong"})');
    assert.equal((await get('/ping?callback=f&callback=a-b')).status, 403);
  });

  test('and is checked last', async () => {
    assert.equal((await app.client.get('/whoami?callback=1')).status, 401);
    assert.equal((await get('/projects/1?callback=1')).status, 404);
    assert.deepEqual((await get('/projects?limit=0&callback=1')).json, errors('limit', 'invalid_format'));
    assert.equal(
      (await get('/nothing?callback=1')).text,
      JSON.stringify(errors('generic', 'api_does_not_exists')),
    );
  });
});

test('an endpoint without JSON wraps its errors, and ignores an invalid callback otherwise', async () => {
  const project = `/projects/${planted.project_id}`;
  const notFound = JSON.stringify(errors('generic', 'not_found'));
  for (const path of [
    `${project}/builds/1/log`,
    `${project}/deploys/1/log`,
    '/dependencies/1/log',
    '/projects/1/badge.svg',
  ]) {
    const wrapped = await get(`${path}?callback=f`);
    assert.deepEqual([wrapped.status, wrapped.text], [404, `f(${notFound})`], path);
    assert.equal(wrapped.headers['content-type'], javascript);
    assert.equal((await get(`${path}?callback=1`)).text, notFound, path);
  }
  const stranger = await app.client.get(`${project}/builds/${planted.build_id}/log?callback=f`);
  assert.deepEqual(
    [stranger.status, stranger.text],
    [401, `f(${JSON.stringify(errors('generic', 'unauthorized'))})`],
  );
});

test('a callback is ignored for other methods, plain text and the firehose', async () => {
  const project = `/projects/${planted.project_id}`;
  for (const callback of ['f', '1'] as const) {
    const created = await app.client.call('POST', `${project}/suites?callback=${callback}`, {
      as: app.people.owner.as,
      form: suiteForm(),
    });
    assert.equal(created.status, 201);
    assert.equal(created.headers['content-type'], 'application/json');
    const refused = await app.client.call('POST', `${project}/suites?callback=${callback}`, {
      as: app.people.owner.as,
    });
    assert(refused.text.startsWith('{"error"'));
    const removed = await app.client.call(
      'DELETE',
      `${project}/suites/${created.record.id}?callback=${callback}`,
      {
        as: app.people.owner.as,
      },
    );
    assert.equal(removed.text, '{"response":{"destroyed":true}}');
    const log = await get(`${project}/builds/${planted.build_id}/log?callback=${callback}`);
    assert.deepEqual([log.status, log.headers['content-type']], [200, 'text/plain; charset=utf-8']);
    const stream = await get(`${project}/firehose?callback=${callback}`);
    assert.deepEqual(
      [stream.status, stream.headers['content-type']],
      [200, 'text/event-stream; charset=utf-8'],
    );
    const missing = await get(`${project}/builds/1/firehose?callback=${callback}`);
    assert.equal(missing.text, JSON.stringify(errors('generic', 'not_found')));
  }
});

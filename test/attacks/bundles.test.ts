// Hostile bundles over HTTP: each is refused, changes nothing and leaves nothing behind.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { hostileBundles, smallBundle } from '../support/bundle.ts';
import { errors } from '../support/client.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const upload = (body: Buffer, query = '') =>
  app.client.call('POST', `/projects/${planted.project_id}/snapshots${query}`, {
    as: app.people.collaborator.as,
    body,
  });
const leftovers = () => ['snapshots', 'uploads'].flatMap(name => readdirSync(join(app.data, name)));

describe('A bundle is refused, nothing changes and nothing is left, if it', () => {
  for (const [what, bytes] of Object.entries(hostileBundles()))
    test(what, async () => {
      const before = app.changes();
      const answer = await upload(bytes);
      assert.deepEqual([answer.status, answer.json], [403, errors('bundle', 'invalid_format')]);
      assert.equal(app.changes(), before, 'something changed');
      assert.deepEqual(leftovers(), []);
    });
});

test('The log of the server says why, and the answer has no path of the server', async () => {
  const [bomb] = Object.entries(hostileBundles()).filter(([what]) => what.startsWith('becomes')) as [
    [string, Buffer],
  ];
  const answer = await upload(bomb[1]);
  assert.ok(!answer.text.includes(app.data));
  assert.ok(app.logged.some(line => line.includes('bundle refused') && line.includes('over limit')));
});

test('A base is a hash and nothing that git could take for an option or another name', async () => {
  for (const base of ['--upload-pack=x', 'HEAD', 'main', '../x', '1'.repeat(39), 'A'.repeat(40)]) {
    const answer = await upload(smallBundle, `?base=${encodeURIComponent(base)}`);
    assert.deepEqual([answer.status, answer.json], [403, errors('base', 'invalid_format')], base);
  }
});

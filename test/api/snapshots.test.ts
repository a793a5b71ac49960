// Uploads of working trees, and build requests for them: records, refusals, and what ends with a project.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { mirrorPath, snapshotPath } from '../../src/store/data/paths.ts';
import { deleteSnapshot, findSnapshot } from '../../src/store/snapshots.ts';
import { clearSnapshots, sweepSnapshots } from '../../src/work/source/snapshots.ts';
import { bootApp, type Person, type Planted, type TestApp } from '../support/app.ts';
import { bundleOf, smallBundle } from '../support/bundle.ts';
import { errors, type Fields } from '../support/client.ts';
import { createRepository } from '../support/repository.ts';

let app: TestApp;
let planted: Planted;
let base: string;
let mirror: string;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  mirror = mirrorPath(app.data, planted.project_id);
  [base = ''] = createRepository(mirror, [{ message: 'First\n', files: { a: 'a\n' } }]);
});
after(() => app.close());

const upload = (body: Buffer, query = '', as = app.people.owner.as) =>
  app.client.call('POST', `/projects/${planted.project_id}/snapshots${query}`, { as, body });
const request = (form: Fields, as: Person = app.people.owner) =>
  app.client.call('POST', `/projects/${planted.project_id}/build_requests`, { as: as.as, form });
const drafts = () =>
  ['snapshots', 'uploads'].flatMap(name => readdirSync(join(app.data, name))).filter(isDraft);
const isDraft = (name: string) => name.startsWith('.');

test('A bundle on a known base becomes a snapshot, which can be read', async () => {
  const { ref, bytes } = bundleOf(mirror, { files: { b: 'b\n' } });
  const { status, record } = await upload(bytes, `?base=${base}`, app.people.collaborator.as);
  assert.equal(status, 201);
  assert.deepEqual([record.ref, record.size_bytes], [ref, bytes.length]);
  const path = `/projects/${planted.project_id}/snapshots/${record.id_str}`;
  const read = await app.client.call('GET', path, { as: app.people.owner.as });
  assert.deepEqual(read.record, record);
  assert.ok(existsSync(join(snapshotPath(app.data, BigInt(record.id_str as string)), 'HEAD')));
  assert.deepEqual(drafts(), []);
});

test('An unknown base is not found, named or only in the bundle', async () => {
  const unknown = await upload(smallBundle, `?base=${'1'.repeat(40)}`);
  assert.deepEqual([unknown.status, unknown.json], [404, errors('base', 'not_found')]);
  const other = app.plant();
  const path = `/projects/${other.project_id}/snapshots`;
  // The other project was never fetched.
  for (const query of [`?base=${base}`, '']) {
    const answer = await app.client.call('POST', path + query, {
      as: app.people.owner.as,
      body: bundleOf(mirror, { files: { b: 'b\n' } }).bytes,
    });
    assert.deepEqual([answer.status, answer.json], [404, errors('base', 'not_found')]);
  }
});

test('An empty body, a bundle of more than 256 MiB and a full disk are refused', async () => {
  const empty = await upload(Buffer.alloc(0));
  assert.deepEqual([empty.status, empty.json], [403, errors('bundle', 'is_blank')]);
  const large = Buffer.concat([smallBundle, Buffer.alloc(256 * 1024 ** 2)]);
  const refused = await upload(large);
  assert.deepEqual([refused.status, refused.json], [403, errors('bundle', 'invalid_format')]);
  app.hasFreeSpace = false;
  const full = await upload(smallBundle);
  app.hasFreeSpace = true;
  assert.deepEqual([full.status, full.json], [403, errors('generic', 'resource_temporary_unavailable')]);
  assert.deepEqual(drafts(), []);
});

test('An unknown base is refused before the body is asked for', async () => {
  const url = new URL(`/projects/${planted.project_id}/snapshots?base=${'1'.repeat(40)}`, app.url);
  const headers = { authorization: app.people.owner.as, expect: '100-continue', 'content-length': 1_000_000 };
  const sent = https.request(url, { method: 'POST', headers, ca: app.client.ca });
  let isAsked = false;
  sent.on('continue', () => {
    isAsked = true;
  });
  sent.flushHeaders();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  assert.deepEqual([response.statusCode, isAsked], [404, false]);
  sent.destroy();
});

test('A build request takes a snapshot of its sender, and names suites of the project', async () => {
  const { record } = await upload(smallBundle);
  const snapshot_id = record.id_str as string;
  const created = await request({ snapshot_id, 'suites[]': [String(planted.suite_id)] });
  assert.equal(created.status, 201, created.text);
  assert.deepEqual(
    [created.record.trigger, created.record.snapshot_id_str, created.record.commit_ref],
    ['local', snapshot_id, 'HEAD'],
  );
  assert.equal(created.record.trigger_id, undefined);
  const named = await request({ snapshot_id, commit_ref: 'topic', 'suites[]': '' });
  assert.equal(named.record.commit_ref, 'topic');

  const other = app.plant();
  const notFound: [Fields, string][] = [
    [{ snapshot_id: String(other.snapshot_id) }, 'snapshot_id'],
    [{ snapshot_id: '1' }, 'snapshot_id'],
    [{ snapshot_id, 'suites[]': [String(planted.suite_id), String(other.suite_id)] }, 'suites[]'],
  ];
  for (const [form, field] of notFound) {
    const answer = await request(form);
    assert.deepEqual([answer.status, answer.json], [404, errors(field, 'not_found')]);
  }
  const foreign = await request({ snapshot_id }, app.people.collaborator);
  assert.deepEqual([foreign.status, foreign.json], [404, errors('snapshot_id', 'not_found')]);

  const invalid: [Fields, string, 'is_blank' | 'invalid_format'][] = [
    [{}, 'commit_ref', 'is_blank'],
    [{ commit_ref: '' }, 'commit_ref', 'is_blank'],
    [{ commit_ref: 'main', 'suites[]': [String(planted.suite_id)] }, 'suites[]', 'invalid_format'],
    [{ snapshot_id: 'x' }, 'snapshot_id', 'invalid_format'],
    [{ snapshot_id, commit_ref: '--all' }, 'commit_ref', 'invalid_format'],
  ];
  for (const [form, field, code] of invalid) {
    const answer = await request(form);
    assert.deepEqual([answer.status, answer.json], [403, errors(field, code)], JSON.stringify(form));
  }
});

test('Snapshots end with their project and after seven days; a start removes what has no row or no repository', async () => {
  const made = async () => BigInt((await upload(smallBundle)).record.id_str as string);
  const [kept, expired, lost] = [await made(), await made(), await made()];
  const { db, data } = app;
  const pathOf = (id: bigint) => snapshotPath(data, id);
  db.sqlite.prepare('UPDATE snapshots SET created_at = created_at - 604800001 WHERE id = ?').run(expired);
  await sweepSnapshots(db, data);
  assert.deepEqual(
    [kept, expired].map(id => findSnapshot(db, planted.project_id, id) !== undefined),
    [true, false],
  );
  // Its repository is removed by a later sweep: a younger one may belong to a row that is not written yet.
  await sweepSnapshots(db, data, { graceMs: 0 });
  assert.deepEqual([existsSync(pathOf(kept)), existsSync(pathOf(expired))], [true, false]);

  // The repository of a running build stays until it ends.
  const used = await made();
  db.write(() => {
    db.sqlite
      .prepare('UPDATE build_requests SET snapshot_id = ? WHERE id = ?')
      .run(used, planted.build_request_id);
    db.sqlite.prepare("UPDATE builds SET build_state = 'running' WHERE id = ?").run(planted.build_id);
    deleteSnapshot(db, used);
  });
  await sweepSnapshots(db, data, { graceMs: 0 });
  assert.ok(existsSync(pathOf(used)));
  db.sqlite.prepare("UPDATE builds SET build_state = 'passed' WHERE id = ?").run(planted.build_id);
  await sweepSnapshots(db, data, { graceMs: 0 });
  assert.ok(!existsSync(pathOf(used)));

  mkdirSync(pathOf(1n));
  mkdirSync(join(data, 'snapshots', '.draft-x'));
  app.db.write(() => app.db.sqlite.prepare('UPDATE snapshots SET id = 7 WHERE id = ?').run(lost));
  await clearSnapshots(db, data);
  assert.equal(findSnapshot(db, planted.project_id, 7n), undefined);
  assert.deepEqual(
    [1n, lost, kept].map(id => existsSync(pathOf(id))),
    [false, false, true],
  );
  assert.deepEqual(drafts(), []);

  await app.client.call('DELETE', `/projects/${planted.project_id}`, { as: app.people.owner.as });
  app.changes();
  await sweepSnapshots(db, data, { graceMs: 0 });
  assert.deepEqual(readdirSync(join(data, 'snapshots')), []);
});

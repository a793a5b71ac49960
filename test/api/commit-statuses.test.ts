// Commit statuses in the API: their fields, their defaults, and a token that is never shown nor sent elsewhere.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../src/store/builds.ts';
import { findNotification, type Notification, signingSecretOf } from '../../src/store/notifications.ts';
import { disableNotification } from '../../src/store/outbox.ts';
import { findProject } from '../../src/store/projects.ts';
import { moveRequest } from '../../src/store/transition.ts';
import { bootApp, commitFields, type Planted, type TestApp } from '../support/app.ts';
import type { Fields } from '../support/client.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const TOKEN = 'token-of-the-forge-0123';
const path = () => `/projects/${planted.project_id}/notifications`;
const call = (method: 'GET' | 'POST' | 'PUT', where: string, form?: Fields) =>
  app.client.call(method, where, { as: app.people.owner.as, ...(form && { form }) });
const statuses = (more: Fields = {}): Fields => ({
  notifiable_type: 'build',
  name: 'commit_status',
  'options[forge]': 'gitea',
  'options[token]': TOKEN,
  ...more,
});
const stored = (id: unknown) =>
  findNotification(app.db, planted.project_id, BigInt(String(id))) as Notification;

test('the defaults follow from the repository, and the token is in no record', async () => {
  const created = await call('POST', path(), statuses());
  assert.equal(created.status, 201, created.text);
  const options = {
    url: 'https://git.invalid/api/v1',
    forge: 'gitea',
    repository: 'team/website',
    contexts: 'both',
    token_set: true,
  };
  assert.deepEqual(created.record.options, options);
  assert.equal('signing_secret' in created.record, false);
  assert.equal(signingSecretOf(app.db, stored(created.record.id_str)), TOKEN);
  const listed = await call('GET', path());
  assert.deepEqual(listed.list.find(({ id_str }) => id_str === created.record.id_str)?.options, options);
  for (const { text } of [created, listed]) assert.ok(!text.includes(TOKEN));
});

test('a field that is missing or cannot be used is named, and changes nothing', async () => {
  const table: [Fields, Record<string, string[]>][] = [
    [
      { 'options[forge]': '', 'options[token]': '' },
      { 'options[forge]': ['is_blank'], 'options[token]': ['is_blank'] },
    ],
    [{ 'options[forge]': 'svn' }, { 'options[forge]': ['invalid_format'] }],
    [{ 'options[token]': 'two words' }, { 'options[token]': ['invalid_format'] }],
    [{ 'options[token]': 'Grüße' }, { 'options[token]': ['invalid_format'] }],
    [{ 'options[token]': 'x'.repeat(1025) }, { 'options[token]': ['invalid_format'] }],
    [{ 'options[contexts]': 'all' }, { 'options[contexts]': ['invalid_format'] }],
    [{ 'options[repository]': 'website' }, { 'options[repository]': ['invalid_format'] }],
    [{ 'options[repository]': '../website' }, { 'options[repository]': ['invalid_format'] }],
    [{ 'options[url]': 'http://127.0.0.1/api/v1' }, { 'options[url]': ['invalid_format'] }],
    [{ 'options[url]': 'https://git.example.org/api/v1?a=b' }, { 'options[url]': ['invalid_format'] }],
    [{ notifiable_type: 'dependency' }, { notifiable_type: ['invalid_format'] }],
  ];
  for (const [more, error] of table) {
    const before = app.changes();
    const answer = await call('POST', path(), statuses(more));
    assert.deepEqual([answer.status, answer.json], [403, { error }], JSON.stringify(more));
    assert.equal(app.changes(), before);
  }
});

test('a repository whose name does not follow from its address has to be given', async () => {
  const project = await call('POST', '/projects', {
    name: 'Deep',
    repository_url: 'git@git.example.org:srv/git/website.git',
  });
  const where = `/projects/${project.record.id_str}/notifications`;
  const answer = await call('POST', where, statuses());
  assert.deepEqual(answer.json, { error: { 'options[repository]': ['is_blank'] } });
  assert.equal((await call('POST', where, statuses({ 'options[repository]': 'team/website' }))).status, 201);
  const gitlab = await call('POST', where, statuses({ 'options[forge]': 'gitlab' }));
  assert.deepEqual(gitlab.record.options, {
    url: 'https://git.example.org/api/v4',
    forge: 'gitlab',
    repository: 'srv/git/website',
    contexts: 'both',
    token_set: true,
  });
});

test('a change keeps what it does not send, and a token never goes to another host', async () => {
  const { record } = await call('POST', path(), statuses({ 'options[contexts]': 'rollup' }));
  const one = `${path()}/${record.id_str}`;
  const changed = await call('PUT', one, { 'options[repository]': 'team/shop' });
  assert.equal(changed.status, 200, changed.text);
  assert.deepEqual(changed.record.options, { ...(record.options as object), repository: 'team/shop' });
  assert.equal(signingSecretOf(app.db, stored(record.id_str)), TOKEN);

  for (const elsewhere of [
    { 'options[url]': 'https://evil.example.org/api/v1' },
    { 'options[url]': 'http://git.invalid/api/v1' },
    { 'options[url]': 'https://git.invalid:8443/api/v1' },
    { 'options[forge]': 'github' },
  ]) {
    const before = app.changes();
    const answer = await call('PUT', one, elsewhere);
    assert.deepEqual(answer.json, { error: { 'options[token]': ['is_blank'] } }, JSON.stringify(elsewhere));
    assert.equal(app.changes(), before);
  }
  const moved = await call('PUT', one, { 'options[forge]': 'github', 'options[token]': 'another-token' });
  assert.deepEqual(moved.record.options, {
    url: 'https://git.invalid/api/v3',
    forge: 'github',
    repository: 'team/shop',
    contexts: 'rollup',
    token_set: true,
  });
  assert.equal(signingSecretOf(app.db, stored(record.id_str)), 'another-token');

  // Another address of the project does not move the token either.
  await call('PUT', `/projects/${planted.project_id}`, {
    repository_url: 'git@evil.example.org:team/website.git',
  });
  const { record: kept } = await call('PUT', one, { 'options[contexts]': 'both' });
  assert.equal((kept.options as Fields).url, 'https://git.invalid/api/v3');
  await call('PUT', `/projects/${planted.project_id}`, {
    repository_url: 'git@git.invalid:team/website.git',
  });
});

test('a disabled notification says why, and a new token enables it', async () => {
  const { record } = await call('POST', path(), statuses());
  const one = `${path()}/${record.id_str}`;
  disableNotification(
    app.db,
    BigInt(record.id_str as string),
    'the forge responded with 401: it does not accept the token',
  );
  const unchanged = await call('PUT', one, { 'options[contexts]': 'both' });
  assert.deepEqual(
    [unchanged.record.enabled, unchanged.record.error],
    [false, 'the forge responded with 401: it does not accept the token'],
  );
  const enabled = await call('PUT', one, { 'options[token]': TOKEN });
  assert.equal('enabled' in enabled.record || 'error' in enabled.record, false);
});

test('a delivery says which context of which commit it reports, and a test needs a build', async () => {
  const { record: project } = await call('POST', '/projects', {
    name: 'Fresh',
    repository_url: 'git@git.example.org:team/fresh.git',
  });
  const where = `/projects/${project.id_str}/notifications`;
  const { record } = await call('POST', where, statuses());
  const refused = await call('POST', `${where}/${record.id_str}/test`, {});
  assert.deepEqual(refused.json, { error: { generic: ['resource_temporary_unavailable'] } });

  const found = findProject(app.db, BigInt(project.id_str as string));
  assert.ok(found);
  const request = createBuildRequest(app.db, found, 'main', 'owner@example.org');
  moveRequest(app.db, request.id, 'fetch');
  const commit = recordCommit(app.db, found.id, commitFields('d'.repeat(40)));
  enqueueBuilds(app.db, request.id, commit, 'main', [
    { suiteId: 1n, suiteName: 'Unit tests', runs: true, rules: [] },
  ]);
  const { list } = await call('GET', `${where}/${record.id_str}/deliveries`);
  assert.deepEqual(
    list.map(({ event, state, commit_status }) => ({ event, state, commit_status })),
    ['assay/Unit tests', 'assay'].map(context => ({
      event: 'build.enqueued',
      state: 'pending',
      commit_status: { context, commit_ref: 'd'.repeat(40), state: 'pending' },
    })),
  );
  assert.equal((await call('POST', `${where}/${record.id_str}/test`, {})).status, 201);
});

test('a webhook can be given another URL, which keeps its secret', async () => {
  const { record } = await call('POST', path(), {
    notifiable_type: 'build',
    name: 'webhook',
    'options[url]': 'https://hooks.example.org/old',
  });
  const { record: changed } = await call('PUT', `${path()}/${record.id_str}`, {
    'options[url]': 'https://hooks.example.org/new',
    'options[token]': TOKEN,
  });
  assert.deepEqual(changed.options, { url: 'https://hooks.example.org/new' });
  assert.equal(signingSecretOf(app.db, stored(record.id_str)), record.signing_secret);
});

// Records: which fields each record has, in every response that contains it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findSignInLink, setPassword } from '../../src/store/accounts.ts';
import { recordImage } from '../../src/store/images.ts';
import { recordAttempt } from '../../src/store/outbox.ts';
import { moveBuild, moveDependency, moveDeploy, moveRequest } from '../../src/store/transition.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors, type Fields, type Wire } from '../support/client.ts';
import {
  dependencyForm,
  fresh,
  notificationForm,
  projectForm,
  ruleForm,
  strategyForm,
  suiteForm,
  variableForm,
} from './contract.ts';
import { ok, plain, takeTime } from './shape.ts';
import { compileAll } from './states.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const owner = () => app.people.owner.as;
const get = (path: string) => app.client.get(path, owner());
const post = (path: string, form: Fields = {}) => app.client.call('POST', path, { as: owner(), form });
const put = (path: string, form: Fields = {}) => app.client.call('PUT', path, { as: owner(), form });
const project = () => `/projects/${planted.project_id}`;
const suite = () => `${project()}/suites/${planted.suite_id}`;

test('IDs are larger than 53 bits, increase, and are written as exact integers', async () => {
  const answer = ok(await post('/projects', projectForm()), 201);
  const [, digits] = /^\{"response":\{"id":(\d+),"id_str":"(\d+)",/.exec(answer.text) ?? [];
  assert(digits && BigInt(digits) > 2n ** 53n, answer.text);
  assert.equal(answer.record.id_str, digits);
  const next = ok(await post('/projects', projectForm()), 201);
  assert((next.record.id as bigint) > BigInt(digits));
});

test('ping returns a string, and whoami an email address', async () => {
  assert.equal(ok(await app.client.get('/ping')).text, '{"response":"pong"}');
  assert.equal(ok(await get('/whoami')).text, '{"response":{"email":"owner@example.org"}}');
});

test('a project is the same record when it is created, fetched, listed and changed', async () => {
  const form = projectForm();
  const created = ok(await post('/projects', form), 201).record;
  const { ssh_public_key, ...rest } = plain(created);
  assert.match(ssh_public_key as string, /^ssh-ed25519 \S+/);
  assert.deepEqual(rest, { ...form, description: '', build_state: 'new', owned: true });
  const path = `/projects/${created.id}`;
  assert.deepEqual(ok(await get(path)).record, created);
  assert.deepEqual(ok(await get('/projects')).list[0], created);
  const changed = ok(await put(path, { description: 'A site' })).record;
  assert.deepEqual(changed, { ...created, description: 'A site' });
  const destroyed = ok(await app.client.call('DELETE', path, { as: owner() }));
  assert.equal(destroyed.text, '{"response":{"destroyed":true}}');
  assert.equal((await get(path)).status, 404);
});

test('the comment of a project’s key names the project and this server, also for older keys', async () => {
  const created = ok(await post('/projects', { ...projectForm(), name: 'Straße: 7\u00a0x' }), 201).record;
  assert.match(created.ssh_public_key as string, /^ssh-ed25519 \S+ assay-Stra-e-7-x@127\.0\.0\.1$/);
  const renamed = ok(await put(`/projects/${created.id}`, { name: 'Café' })).record;
  assert.equal(
    renamed.ssh_public_key,
    (created.ssh_public_key as string).replace('assay-Stra-e-7-x@', 'assay-Cafe@'),
  );
  const unnamed = ok(await put(`/projects/${created.id}`, { name: '名前' })).record;
  assert.match(unnamed.ssh_public_key as string, new RegExp(` assay-project-${created.id}@127`));
  // Created with a key whose stored comment is just "assay".
  const { name, ssh_public_key } = ok(await get(project())).record;
  const words = (name as string).replaceAll(' ', '-');
  assert.match(ssh_public_key as string, new RegExp(`^ssh-ed25519 \\S+ assay-${words}@127\\.0\\.0\\.1$`));
});

test('submodules is shown only while it is not off, and stays when it is not sent', async () => {
  const created = ok(await post('/projects', { ...projectForm(), submodules: 'off' }), 201).record;
  assert(!('submodules' in created));
  const path = `/projects/${created.id}`;
  assert.equal(ok(await put(path, { submodules: 'recursive' })).record.submodules, 'recursive');
  assert.equal(ok(await put(path, { description: 'x' })).record.submodules, 'recursive');
  assert(!('submodules' in ok(await put(path, { submodules: 'off' })).record));
});

test('badge and cancel_superseded are shown only while they are on', async () => {
  const created = ok(await post('/projects', { ...projectForm(), badge: 'true' }), 201).record;
  assert.equal(created.badge, true);
  assert(!('cancel_superseded' in created));
  const changed = ok(await put(`/projects/${created.id}`, { badge: 'false', cancel_superseded: '1' })).record;
  assert(!('badge' in changed));
  assert.equal(changed.cancel_superseded, true);
});

test('a project is owned by its owner and not by its collaborators', async () => {
  const { collaborator, guest, unpaid } = app.people;
  assert.equal(ok(await get(project())).record.owned, true);
  for (const { as } of [collaborator, guest, unpaid]) {
    assert.equal(ok(await app.client.get(project(), as)).record.owned, false);
    assert.deepEqual(
      ok(await app.client.get('/projects', as)).list.map(one => one.id),
      [planted.project_id],
    );
  }
});

test('a collaborator has an ID and an email address, and a sign-in link only when the account is new', async () => {
  const path = `${project()}/collaborators`;
  const known = ok(await post(path, { email: 'Stranger@Example.org' }), 201).record;
  assert.deepEqual(plain(known), { email: 'stranger@example.org' });
  const invited = ok(await post(path, { email: 'new.one@example.org' }), 201).record;
  const { sign_in_url, ...rest } = plain(invited);
  assert.deepEqual(rest, { email: 'new.one@example.org' });
  assert((sign_in_url as string).startsWith(`${app.url}/ui/`), sign_in_url as string);
  const { list } = ok(await get(path));
  assert.deepEqual(
    list.slice(0, 2).map(one => plain(one)),
    [rest, plain(known)],
  );
  for (const { id } of [known, invited])
    ok(await app.client.call('DELETE', `${path}/${id}`, { as: owner() }));
});

test('whoever invited a person can create new links until there is a password, each of which ends the previous one; nobody else can', async () => {
  const path = `${project()}/collaborators`;
  const email = 'renewed@example.org';
  const linkOf = (record: Record<string, unknown>) =>
    new URL(record.sign_in_url as string).searchParams.get('link') as string;
  const invited = ok(await post(path, { email }), 201).record;
  const renewal = `${path}/${invited.id}/invitation`;
  const renewed = ok(await post(renewal, {}), 201).record;
  assert.deepEqual(Object.keys(renewed), ['id', 'id_str', 'email', 'sign_in_url']);
  assert.equal(renewed.id, invited.id);
  assert.equal(findSignInLink(app.db, linkOf(invited)), undefined);
  assert.equal(findSignInLink(app.db, linkOf(renewed))?.email, email);

  // Another owner who adds the same person gets no link, and cannot create one.
  const other = app.people.stranger;
  const others = `/projects/${app.plant(other).project_id}/collaborators`;
  const added = ok(await app.client.call('POST', others, { as: other.as, form: { email } }), 201).record;
  assert.equal('sign_in_url' in added, false);
  const refused = await app.client.call('POST', `${others}/${added.id}/invitation`, { as: other.as });
  assert.deepEqual([refused.status, refused.json], [404, errors('generic', 'not_found')]);
  assert.equal(findSignInLink(app.db, linkOf(renewed))?.email, email);

  // Removed and added again, the person still has no password and needs a link.
  ok(await app.client.call('DELETE', `${path}/${invited.id}`, { as: owner() }));
  const again = ok(await post(path, { email }), 201).record;
  const account = findSignInLink(app.db, linkOf(again));
  assert.equal(account?.email, email);

  setPassword(app.db, account.id, 'a hash');
  assert.equal(findSignInLink(app.db, linkOf(again)), undefined);
  assert.equal((await post(`${path}/${again.id}/invitation`, {})).status, 404);
  ok(await app.client.call('DELETE', `${path}/${again.id}`, { as: owner() }));
});

test('a build request has no commit until it is fetched, and then the fields of the commit', async () => {
  const created = ok(await post(`${project()}/build_requests`, { commit_ref: 'v1.0' }), 201).record;
  const path = `${project()}/build_requests/${created.id}`;
  assert.deepEqual(ok(await get(path)).record, created);
  assert.deepEqual(ok(await get(`${project()}/build_requests`)).list[0], created);
  const rest = plain(created);
  takeTime(rest, 'created_at');
  assert.deepEqual(rest, {
    build_state: 'enqueued',
    commit_ref: 'v1.0',
    commit_id: null,
    commit_id_str: '',
    created_by: 'owner@example.org',
  });
  const fetched = ok(await get(`${project()}/build_requests/${planted.build_request_id}`)).record;
  assert.equal(fetched.commit_id, planted.commit_id);
  assert.equal(fetched.commit_id_str, String(planted.commit_id));
  assert(!('error' in fetched));
  app.db.write(() => moveRequest(app.db, created.id as bigint, 'error', { error: 'No such branch.' }));
  assert.equal(ok(await get(path)).record.error, 'No such branch.');
});

test("a commit has five fields in a list, and all of them, with git's time offsets, when it is fetched", async () => {
  const [item] = ok(await get(`${project()}/commits`)).list;
  assert.deepEqual(Object.keys(item as Wire), ['id', 'id_str', 'version', 'ref', 'build_state']);
  const fetched = ok(await get(`${project()}/commits/${planted.commit_id}`)).record;
  assert.equal(fetched.version, 1);
  assert.match(fetched.ref as string, /^[0-9a-f]{40}$/);
  assert.deepEqual(fetched, {
    ...item,
    message: 'Fix the roof\n\nIt rained in.',
    scm_author_name: 'Ada',
    scm_author_email: 'ada@example.org',
    scm_authored_date: '2026-01-02T03:04:05+02:00',
    scm_committer_name: 'Bob',
    scm_committer_email: 'bob@example.org',
    scm_committed_date: '2026-01-02T04:05:06-05:00',
  });
});

test('a build has the same fields in the list of its commit and alone', async () => {
  const fetched = ok(await get(`${project()}/builds/${planted.build_id}`)).record;
  const { list } = ok(await get(`${project()}/commits/${planted.commit_id}/builds`));
  assert.deepEqual(list, [fetched]);
  const rest = plain(fetched, {
    id: 'id_str',
    suite_id: 'suite_id_str',
    commit_id: 'commit_id_str',
    build_request_id: 'build_request_id_str',
  });
  for (const name of ['created_at', 'started_at', 'finished_at']) takeTime(rest, name);
  const tests = { passed: 1, failed: 0, errored: 0, skipped: 0, new_failures: 0, fixed: 0, flaky: 0 };
  assert.deepEqual(rest, { build_state: 'passed', exit_code: 0, artifacts: 1, artifacts_bytes: 21, tests });

  const again = ok(await post(`${project()}/builds/${planted.build_id}/rerun`), 201).record;
  assert.deepEqual([again.exit_code, again.started_at, again.finished_at], [null, null, null]);
  moveBuild(app.db, again.id as bigint, 'error', { error: 'The image is gone.' });
  assert.equal(ok(await get(`${project()}/builds/${again.id}`)).record.error, 'The image is gone.');
});

test('a build request has its commit and the states of its suites if details are wanted', async () => {
  const path = `${project()}/build_requests`;
  const plainRecord = ok(await get(`${path}/${planted.build_request_id}`)).record;
  const { commit, suites, branch, finished_at, ...rest } = ok(
    await get(`${path}/${planted.build_request_id}?details=true`),
  ).record;
  assert.deepEqual(rest, plainRecord);
  assert.equal(branch, 'main');
  assert(finished_at === null || typeof finished_at === 'string');
  const { ref, ...others } = commit as Wire;
  assert.match(ref as string, /^[0-9a-f]{40}$/);
  assert.deepEqual(others, { subject: 'Fix the roof', scm_author_name: 'Ada' });
  const newest = ok(await get(`${path}/${planted.build_request_id}/builds`)).list[0] as Wire;
  const isBad = newest.build_state === 'errored';
  assert.deepEqual(suites, {
    enqueued: 0,
    running: 0,
    passed: isBad ? 0 : 1,
    failed: 0,
    errored: isBad ? 1 : 0,
    timed_out: 0,
    canceled: 0,
    not_passed: isBad ? [newest.suite] : [],
  });
  const listed = ok(await get(`${path}?details=true`)).list.find(({ id }) => id === plainRecord.id);
  assert.deepEqual(listed?.suites, suites);
  const narrow = app.token(app.people.owner, 'build_requests');
  assert.equal((await app.client.get(path, narrow)).status, 200);
  assert.equal((await app.client.get(`${path}?details=true`, narrow)).status, 401);
});

test('a commit shows why each suite ran or not', async () => {
  const [decision] = ok(await get(`${project()}/commits/${planted.commit_id}/suites`)).list;
  assert.deepEqual(
    plain(decision as Wire, {
      suite_id: 'suite_id_str',
      build_request_id: 'build_request_id_str',
    }),
    { suite: 'Unit tests', runs: true, rules: [] },
  );
});

test('a suite, its rules and its variables are the same record wherever they appear', async () => {
  const form = suiteForm();
  const created = ok(await post(`${project()}/suites`, form), 201).record;
  assert.deepEqual(plain(created), { ...form, description: '' });
  const path = `${project()}/suites/${created.id}`;
  assert.deepEqual(ok(await get(path)).record, created);
  assert.deepEqual(ok(await get(`${project()}/suites`)).list[0], created);
  recordImage(app.db, 'debian:12', 'sha256:1');
  assert.deepEqual(ok(await put(path, { image: 'debian:12' })).record, { ...created, image: 'debian:12' });
  assert.deepEqual(ok(await put(path, { image: '' })).record, created);

  const rule = ok(await post(`${path}/rules`, ruleForm()), 201).record;
  assert.deepEqual(plain(rule), ruleForm());
  assert.deepEqual(ok(await get(`${path}/rules`)).list, [rule]);

  const variable = variableForm();
  const set = ok(await post(`${path}/environment_variables`, variable), 201).record;
  assert.deepEqual(plain(set), variable);
  assert.deepEqual(ok(await get(`${path}/environment_variables`)).list, [set]);
  const emptied = ok(await put(`${path}/environment_variables/${set.id}`, { content: '' })).record;
  assert.deepEqual(emptied, { ...set, content: '' });
});

test("a suite's dependency has id_ref, name, prefix and launch_command, when attached and when listed", async () => {
  const form: Fields = { ...dependencyForm(), launch_command: 'redis-server --daemonize yes' };
  const { id } = ok(await post('/dependencies', form), 201).record;
  const attached = ok(await post(`${suite()}/dependencies`, { dependency_id: String(id) }), 201).record;
  assert.deepEqual(plain(attached, { id: 'id_ref' }), {
    name: form.name,
    prefix: '/srv/dependency',
    launch_command: form.launch_command,
  });
  assert.equal(attached.id, id);
  assert.deepEqual(ok(await get(`${suite()}/dependencies`)).list.at(-1), attached);
});

test('a dependency is private with id_ref when it is created, and has more fields with id_str when it is fetched', async () => {
  const form = { ...dependencyForm(), source: 'zlib-1.3', description: 'Compression' };
  const created = ok(await post('/dependencies', form), 201).record;
  const common = { ...form, prefix: '/srv/dependency', launch_command: '' };
  assert.deepEqual(plain(created, { id: 'id_ref' }), { ...common, marketplace_state: 'private' });

  const path = `/dependencies/${created.id}`;
  const extended = {
    ...common,
    archive_content_type: null,
    archive_file_size: null,
    related_dependencies: [],
    marketplace_state: 'waiting_archive_upload',
  };
  const fetched = ok(await get(path)).record;
  assert.deepEqual(plain(fetched), extended);
  assert.deepEqual(ok(await get('/dependencies')).list[0], fetched);
  assert.deepEqual(ok(await put(path)).record, fetched);

  const other = ok(await post('/dependencies', dependencyForm()), 201).record;
  const related = ok(await put(path, { 'related_dependencies[]': [String(other.id)] })).record;
  assert.deepEqual(related.related_dependencies, [
    { id: other.id, id_ref: String(other.id), name: other.name, prefix: '/srv/dependency' },
  ]);

  const tar = Buffer.from('1f8b08', 'hex');
  const uploaded = await app.client.call('POST', `${path}/archive`, { as: owner(), body: tar });
  assert.deepEqual(plain(ok(uploaded, 202).record), {
    ...common,
    archive_file_size: 3,
    marketplace_state: 'enqueued_for_compile',
  });
  const after = ok(await get(path)).record;
  assert.deepEqual(
    [after.archive_content_type, after.archive_file_size, after.marketplace_state],
    ['application/gzip', 3, 'enqueued_for_compile'],
  );
  moveDependency(app.db, created.id as bigint, 'fail', { error: 'make: not found' });
  assert.equal(ok(await get(path)).record.error, 'make: not found');
});

test('share, unshare and cancel return the fetched record of a dependency', async () => {
  const { id } = ok(await post('/dependencies', dependencyForm()), 201).record;
  compileAll(app.db, id as bigint);
  const path = `/dependencies/${id}`;
  const compiled = ok(await get(path)).record;
  assert.equal(compiled.marketplace_state, 'compiled');
  assert.deepEqual(ok(await post(`${path}/cancel`)).record, compiled);
  assert.deepEqual(ok(await post(`${path}/share`)).record, { ...compiled, marketplace_state: 'shared' });
  assert.deepEqual(ok(await post(`${path}/unshare`)).record, compiled);
});

test('moving a dependency of a suite to the end returns its record in the list', async () => {
  const suite = ok(await post(`${project()}/suites`, suiteForm()), 201).record;
  const path = `${project()}/suites/${suite.id}/dependencies`;
  const listed = async () => ok(await get(path)).list;
  for (let n = 0; n < 3; n += 1) {
    const { id } = ok(await post('/dependencies', dependencyForm()), 201).record;
    ok(await post(path, { dependency_id: String(id) }), 201);
  }
  const [first, second, third] = await listed();
  assert.deepEqual(ok(await post(`${path}/${first!.id}/last`)).record, first);
  assert.deepEqual(await listed(), [second, third, first]);
  assert.deepEqual(ok(await post(`${path}/${first!.id}/last`)).record, first);
  assert.deepEqual(await listed(), [second, third, first]);
});

test('a deploy strategy has its options when it is fetched, but not in a list', async () => {
  const name = fresh('Live');
  const created = ok(await post(`${project()}/deploy_strategies`, { ...strategyForm(), name }), 201).record;
  const options = {
    repository_url: 'git@git.example.org:team/live.git',
    local_branch: 'main',
    remote_branch: 'live',
  };
  assert.deepEqual(plain(created), { name, strategy_type: 'git', options });
  const path = `${project()}/deploy_strategies/${created.id}`;
  assert.deepEqual(ok(await get(path)).record, created);
  const { options: _, ...item } = created;
  assert.deepEqual(ok(await get(`${project()}/deploy_strategies`)).list[0], item);
  const automatic = ok(await put(path, { 'options[automatic]': 'true' })).record;
  assert.deepEqual(automatic, { ...created, options: { ...options, automatic: true } });
});

test('a deploy has four fields when created and listed, and all of them when fetched or canceled', async () => {
  const created = ok(
    await post(`${project()}/deploys`, {
      deploy_strategy_id: String(planted.deploy_strategy_id),
      commit_id: String(planted.commit_id),
    }),
    201,
  ).record;
  assert.deepEqual(plain(created), { state: 'enqueued', created_by: 'owner@example.org' });
  assert.deepEqual(ok(await get(`${project()}/deploys`)).list[0], created);
  const path = `${project()}/deploys/${created.id}`;
  const full = {
    ...created,
    deploy_strategy_id: planted.deploy_strategy_id,
    deploy_strategy_id_str: String(planted.deploy_strategy_id),
    commit_id: planted.commit_id,
    commit_id_str: String(planted.commit_id),
    deploy_started_at: null,
    deploy_finished_at: null,
  };
  assert.deepEqual(ok(await get(path)).record, full);
  moveDeploy(app.db, created.id as bigint, 'start');
  const started = ok(await post(`${path}/cancel`)).record;
  takeTime(started, 'deploy_started_at');
  assert.equal(started.state, 'deploying');
  moveDeploy(app.db, created.id as bigint, 'fail', { error: 'Not a fast-forward.' });
  const failed = ok(await get(path)).record;
  takeTime(failed, 'deploy_finished_at');
  assert.deepEqual([failed.state, failed.error], ['failed', 'Not a fast-forward.']);
});

test('a notification has its secret when it is created, and its project when it is listed', async () => {
  const path = `${project()}/notifications`;
  const created = ok(await post(path, notificationForm()), 201).record;
  const { signing_secret, ...rest } = created;
  assert.match(signing_secret as string, /^whsec_[A-Za-z0-9+/]+=*$/);
  assert.deepEqual(plain(rest), {
    name: 'webhook',
    options: { url: 'https://hooks.example.org/ci' },
    notifiable_type: 'build',
  });
  const [item] = ok(await get(path)).list;
  assert.deepEqual(item, {
    ...rest,
    project_id: planted.project_id,
    project_id_str: String(planted.project_id),
  });
  app.db.sqlite.prepare('UPDATE notifications SET enabled = 0 WHERE id = ?').run(created.id);
  assert.equal(ok(await get(path)).list[0]?.enabled, false);
  assert.deepEqual(ok(await post(`${path}/${created.id}/enable`)).record, item);
  assert.deepEqual(ok(await get(path)).list[0], item);
});

test('a delivery describes its event and its attempts', async () => {
  const path = `${project()}/notifications/${planted.notification_id}/deliveries`;
  const item = ok(await get(path)).list.find(one => one.id === planted.delivery_id) as Wire;
  assert.deepEqual(ok(await post(`${path}/${item.id}/redeliver`)).record.id, item.id);
  const rest = plain(item, { id: 'id_str', event_id: 'event_id_str' });
  takeTime(rest, 'created_at');
  takeTime(rest, 'next_attempt_at');
  const { response_ms: _, response_excerpt: __, ...reported } = rest;
  assert.deepEqual(reported, {
    event: 'ping',
    state: 'pending',
    attempts: 0,
    response_status: null,
    last_error: null,
    resent_at: null,
  });
});

test('the response of a receiver is shown to the owner only; others see status and timing', async () => {
  const { project_id, notification_id, delivery_id } = app.plant();
  const settled = {
    state: 'pending',
    attempts: 1,
    responseStatus: 500,
    responseMs: 7,
    responseExcerpt: 'internal page',
    lastError: 'the receiver responded with 500',
    nextAttemptAt: Date.now() + 3600_000,
  } as const;
  const path = `/projects/${project_id}/notifications/${notification_id}`;
  const shownTo = async (as: string) => {
    recordAttempt(app.db, delivery_id, settled);
    const listed = ok(await app.client.get(`${path}/deliveries`, as)).list.find(
      ({ id }) => id === delivery_id,
    ) as Wire;
    const redelivered = ok(
      await app.client.call('POST', `${path}/deliveries/${delivery_id}/redeliver`, { as }),
    ).record;
    return [listed, redelivered].map(one => [one.response_status, one.response_ms, one.response_excerpt]);
  };
  assert.deepEqual(await shownTo(app.people.collaborator.as), [
    [500, 7, null],
    [500, 7, null],
  ]);
  assert.deepEqual(await shownTo(owner()), [
    [500, 7, 'internal page'],
    [500, 7, 'internal page'],
  ]);
});

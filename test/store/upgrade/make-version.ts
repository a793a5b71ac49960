// Keeps a data directory of this version, for the test that later versions upgrade it (upgrade.test.ts).
//
//   PATH=$PWD/node_modules/.bin:$PATH node test/store/upgrade/make-version.ts
//
// Run it once on the commit of a release, as root and with a Docker Engine; add the archive that it writes. It serves the
// program of this checkout, fills every table through the API, the pages and the command line, records what the API
// answers, and makes a backup. Accounts, keys and repositories are made for the archive alone. A kept archive is never
// made again: it is what that version wrote.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startGitHost } from '../../../src/demo/git-host.ts';
import { identityOf } from '../../../src/store/appliance.ts';
import { codeCachePath, databasePath, tlsDirectory } from '../../../src/store/data/paths.ts';
import { openSqlite } from '../../../src/store/database/db.ts';
import { steps } from '../../../src/store/database/migrations.ts';
import { version } from '../../../src/version.ts';
import { runAssay, serve } from '../../cli/program.ts';
import { clearDocker, docker } from '../../support/appliance.ts';
import { bundleOf } from '../../support/bundle.ts';
import { basic, bearer, type Client, createClient, type Wire } from '../../support/client.ts';
import { createJourney } from '../../support/journey.ts';
import { makeAppliance, plantDependency } from '../../support/planted-dependency.ts';
import { createRepository } from '../../support/repository.ts';
import { openDependencies, tarOf } from '../../work/dependencies/fixture.ts';
import {
  archiveOf,
  BACKUP,
  createVisitor,
  DATA,
  type KeptAccount,
  RECORDING,
  type RecordedAnswer,
} from './kept-version.ts';

const GIT_HOST = 'git.example.org';
const IMAGE = 'assay-kept-version-tools';
const OUT_OF_BAND = 'urn:ietf:wg:oauth:2.0:oob';

const place = mkdtempSync(join(tmpdir(), 'assay-make-version-'));
const data = join(place, DATA);
const run = async (...args: string[]) => {
  const { status, stdout, stderr } = await runAssay([...args, '--data', data]);
  assert.equal(status, 0, `assay ${args.join(' ')}: ${stderr}`);
  return stdout;
};

const repositories = join(place, 'repositories');
mkdirSync(repositories);
const gitHost = await startGitHost(repositories);
const receiver = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    if (request.url === '/gone') response.writeHead(410).end();
    else response.end('received');
  });
}).listen(0, '127.0.0.1');
let instance = '';
try {
  await make();
} finally {
  receiver.close();
  receiver.closeAllConnections();
  await gitHost.close();
  if (instance !== '') await clearDocker(instance);
  await docker('image', 'rm', '--force', `${IMAGE}:1`).catch(() => {});
  rmSync(place, { recursive: true, force: true });
}

async function make(): Promise<void> {
  const owner = await addAccount('owner@example.org', '--admin');
  const member = await addAccount('member@example.org');
  await addAccount('suspended@example.org');
  await run('user', 'set', 'suspended@example.org', '--standing', 'suspended', '--trial-ends', '2099-01-31');
  mkdirSync(join(place, 'root/etc'), { recursive: true });
  writeFileSync(join(place, 'root/etc/motd'), 'Tools\n');
  execFileSync('tar', ['-cf', join(place, 'tools.tar'), '-C', join(place, 'root'), '.']);
  await run('image', 'import', join(place, 'tools.tar'), '--name', `${IMAGE}:1`);
  await importDependency();
  mkdirSync(join(data, 'ssh'), { recursive: true, mode: 0o700 });
  writeFileSync(join(data, 'ssh/config'), gitHost.clientConfig(GIT_HOST));
  instance = readDatabase(sqlite =>
    sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get(),
  ) as string;

  const server = await serve(data, {
    env: {
      ASSAY_NETWORK: 'none',
      ASSAY_MIN_FREE_DISK: '1MiB',
      ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8',
      ASSAY_ANY_IMAGE: 'on',
    },
  });
  const origin = `https://127.0.0.1:${server.port}`;
  const ca = readFileSync(join(tlsDirectory(data), 'ca.pem'), 'utf8');
  const client = createClient(origin, ca);
  const as = basic(owner.email, owner.apiKey as string);
  const memberAs = basic(member.email, member.apiKey as string);
  let answers: RecordedAnswer[];
  const invited: KeptAccount[] = [];
  try {
    invited.push(...(await fill(client, as, memberAs)));
    const token = await grantToken(origin, ca, owner);
    answers = await crawl(client, [undefined, as, memberAs, bearer(token)]);
    await run('backup', join(place, BACKUP), '--with-key');
  } finally {
    client.close();
    await server.end('SIGTERM');
  }
  readDatabase(sqlite => {
    const tables = sqlite
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
      .pluck()
      .all() as string[];
    const empty = tables.filter(
      table => Number(sqlite.prepare(`SELECT count(*) FROM ${table}`).pluck().get()) === 0,
    );
    // A canceled request is in this table only until its builds have ended.
    assert.deepEqual(empty, ['request_cancels']);
  });
  const recording = {
    version,
    schema: steps.length,
    instance,
    accounts: [owner, member, ...invited],
    answers,
  };
  writeFileSync(join(place, RECORDING), JSON.stringify(recording, null, 1));
  rmSync(codeCachePath(data), { force: true });
  checkNothingOfThisMachine();
  const archive = archiveOf(`${version}-schema-${steps.length}`);
  execFileSync(
    'sh',
    [
      '-c',
      'tar --sort=name --owner=0 --group=0 --numeric-owner --exclude=lock.db* -cf - "$@" | gzip -9n',
      'sh',
      DATA,
      BACKUP,
      RECORDING,
    ],
    { cwd: place, stdio: ['ignore', openSync(archive, 'w'), 'inherit'] },
  );
  process.stdout.write(`${archive}: ${statSync(archive).size} bytes, ${answers.length} answers\n`);
}

/** From another appliance, which is then trusted. */
async function importDependency(): Promise<void> {
  const other = join(place, 'other');
  const appliance = makeAppliance(other);
  await plantDependency(appliance, other, { name: 'Imported' });
  const { fingerprint } = identityOf(appliance.db);
  appliance.db.close();
  const file = join(place, 'imported.assay');
  const exported = await runAssay(['dependency', 'export', 'Imported', file, '--data', other]);
  assert.equal(exported.status, 0, exported.stderr);
  await run('dependency', 'import', file, '--trust', fingerprint, '--owner', 'owner@example.org');
}

async function addAccount(email: string, ...flags: string[]): Promise<KeptAccount> {
  const { password, api_key: apiKey } = JSON.parse(await run('user', 'add', email, '--json', ...flags));
  return { email, password, apiKey };
}

/** One of everything, in as many states as end by themselves; the accounts of those who were invited. */
async function fill(client: Client, as: string, memberAs: string): Promise<KeptAccount[]> {
  const journey = createJourney({
    waitMs: 240_000,
    client,
    as,
    sshd: {
      repositoriesDirectory: repositories,
      urlFor: name => `git@${GIT_HOST}:${name}`,
      addKey: gitHost.allow,
    },
  });
  const { ask } = journey;
  const { port } = receiver.address() as AddressInfo;
  const hook = (path: string) => `http://127.0.0.1:${port}/${path}`;

  const dependencies = openDependencies({ ...journey, client });
  const library = await dependencies.compiled(tarOf({ 'greeting.txt': 'hello\n' }), {
    name: 'library',
    description: 'Text that the tool prints.',
    command: 'mkdir -p /srv/library && cp greeting.txt /srv/library',
    prefix: '/srv/library',
  });
  const tool = await dependencies.compiled(
    tarOf({ 'tool-1.0/tool': '#!/bin/sh\ncat /srv/library/greeting.txt\n' }),
    {
      name: 'Tool',
      command: 'mkdir -p /srv/dependency/bin && cp tool /srv/dependency/bin && echo compiled',
      source: 'tool-1.0',
      launch_command: 'touch /tmp/launched',
      'related_dependencies[]': [library],
    },
  );
  await ask('POST', `/dependencies/${library}/share`);
  await dependencies.compile(tarOf({ x: 'x' }), {
    name: 'broken tool',
    command: 'echo this fails; test /srv/dependency = 1',
  });
  await dependencies.create({ name: 'waits for its archive' });

  const repository = journey.repository(
    { message: 'Begin\n', files: { 'README.md': 'Hello\n', 'src/a.c': 'int a;\n' } },
    { message: 'Add documents\n\nAnd say why.\n', files: { 'docs/a.md': '# A\n' } },
    { message: 'Wait\n', branch: 'slow', parent: 'main', files: { wait: 'x\n' } },
    { message: 'Pass\n', branch: 'green', parent: 'main', files: { pass: 'x\n' } },
  );
  repository.git('tag', 'v1.0', repository.hashes[0] as string);
  const project = await journey.project(repository, {
    name: 'Website',
    description: 'Kept for upgrades.\nTwo lines.',
    badge: 'true',
  });
  for (const [type, path] of [
    ['build', 'build'],
    ['build', 'gone'],
    ['dependency', 'dependency'],
  ] as const)
    await project.ask('POST', '/notifications', {
      notifiable_type: type,
      name: 'webhook',
      'options[url]': hook(path),
    });
  const onMain: [string, string, string] = ['commit.branches', 'contains', 'main'];
  const unit = await project.suite({
    name: 'Unit tests',
    command: 'tool && test -e /tmp/launched && echo "token $TOKEN" && echo "$GREETING"',
    variables: { TOKEN: 'not-for-the-log-4711', GREETING: 'Grüße\nin two lines' },
    rules: [onMain],
  });
  await project.ask('POST', `/suites/${unit}/dependencies`, { dependency_id: tool });
  await project.suite({
    name: 'Fails',
    command: `echo '<testsuite><testcase name="adds"/><testcase name="divides"><failure message="not 2"/></testcase></testsuite>' >"$ASSAY_ARTIFACTS/tests.xml"; echo 'Error: no'; exit 3`,
    rules: [onMain],
  });
  await project.suite({
    name: 'Another image',
    command: 'true',
    image: 'registry.example.org/team/absent:1',
    rules: [onMain, ['commit.message', 'does_not_contain', 'skip']],
  });
  await project.suite({
    name: 'Imported image',
    command: 'true',
    image: `${IMAGE}:1`,
    rules: [['commit.files', 'matches', 'never/*']],
  });
  await project.suite({
    name: 'Slow',
    command: 'echo waiting; sleep 600',
    rules: [['commit.message', 'contains', 'Wait']],
  });

  await project.suite({ name: 'Green', command: 'true', rules: [['commit.message', 'contains', 'Pass']] });

  const strategy = (name: string, branch: string, automatic: string) =>
    project.ask('POST', '/deploy_strategies', {
      name,
      strategy_type: 'git',
      'options[repository_url]': `git@${GIT_HOST}:${branch}.git`,
      'options[local_branch]': 'main',
      'options[remote_branch]': branch,
      automatic,
    });
  createRepository(join(repositories, 'live.git'));
  createRepository(join(repositories, 'diverged.git'), [{ branch: 'diverged', files: { other: 'x\n' } }]);
  const live = await strategy('Production', 'live', 'true');
  const diverged = await strategy('Diverged', 'diverged', 'false');

  // None of them is due later, because an upgraded server must answer as this one did.
  const push = await project.ask('POST', '/triggers', {
    name: 'Push',
    trigger_type: 'push',
    'options[reconcile]': '0',
  });
  await project.ask('POST', `/triggers/${push.id_str}/secret`);
  await project.ask('POST', `/triggers/${push.id_str}/fire`);
  for (const fields of [
    { name: 'Poll', trigger_type: 'poll' },
    { name: 'Nightly', trigger_type: 'schedule', 'options[cron]': '0 3 * * *', 'options[branch]': 'main' },
  ]) {
    const { id_str: id } = await project.ask('POST', '/triggers', fields);
    await project.ask('PUT', `/triggers/${id}`, { enabled: 'false' });
  }

  const ran = await project.run('main');
  assert.deepEqual(ran.builds.map(build => build.build_state).sort(), ['errored', 'failed', 'passed']);
  assert.equal((await project.run('green')).state, 'passed');
  await project.run('v1.0');
  await project.run('no-such-branch');
  const { bytes: body } = bundleOf(repository.directory, { files: { 'docs/b.md': '# B\n' } });
  const snapshot = await client.call('POST', `${project.path}/snapshots`, { as, body });
  assert.equal(snapshot.status, 201, snapshot.text);
  const localRun = await project.ask('POST', '/build_requests', {
    snapshot_id: snapshot.record.id_str as string,
    commit_ref: 'main',
    'suites[]': [unit],
  });
  assert.equal((await project.finishedRequest(localRun.id_str as string)).build_state, 'passed');
  const slow = await project.request('slow');
  const slowBuild = (await project.buildOf(slow)).id_str as string;
  await project.logHas(slowBuild, 'waiting');
  await project.cancel(`builds/${slowBuild}`);
  await project.finishedRequest(slow);

  const states: unknown[] = [];
  for (const chosen of [live, diverged]) {
    const { id_str: id } = await project.ask('POST', '/deploys', {
      deploy_strategy_id: chosen.id_str as string,
      commit_id: ran.request.commit_id_str as string,
    });
    const deploy = await project.until(async () => {
      const found = await project.ask('GET', `/deploys/${id}`);
      return found.deploy_finished_at !== null && found;
    });
    states.push(deploy.state);
  }
  assert.equal(states[0], 'deployed');
  assert.equal(states[1], 'failed');

  const unused = { repository_url: `git@${GIT_HOST}:unused.git` };
  await ask('POST', '/projects', { ...unused, name: 'Shop' });
  await ask('POST', '/projects', { ...unused, name: 'Grüße' });
  const ofMember = await client.call('POST', '/projects', {
    as: memberAs,
    form: { ...unused, name: 'Website' },
  });
  assert.equal(ofMember.status, 201, ofMember.text);
  // The member keeps using the version that was shared, with the one that it relates to.
  await ask('POST', `/dependencies/${tool}/share`);
  const memberProject = `/projects/${ofMember.record.id_str}`;
  const asMember = async (path: string, form: Record<string, string>) => {
    const answer = await client.call('POST', `${memberProject}${path}`, { as: memberAs, form });
    assert.equal(answer.status, 201, answer.text);
    return answer.record.id_str;
  };
  const memberSuite = await asMember('/suites', { name: 'Uses the tool', command: 'tool' });
  await asMember(`/suites/${memberSuite}/dependencies`, { dependency_id: tool });
  await ask('POST', `/dependencies/${tool}/unshare`);

  const invite = async (email: string) =>
    new URL((await project.ask('POST', '/collaborators', { email })).sign_in_url as string);
  await project.ask('POST', '/collaborators', { email: 'member@example.org' });
  await invite('invited@example.org');
  const joined = { email: 'joined@example.org', password: randomBytes(12).toString('base64url') };
  const welcome = await invite(joined.email);
  const { status } = await createVisitor(client.origin, client.ca).post('/ui/welcome', {
    link: welcome.searchParams.get('link') ?? '',
    password: joined.password,
  });
  assert.equal(status, 303);

  const notifications = (await ask('GET', `${project.path}/notifications`)) as unknown as Wire[];
  for (const { id_str: id, enabled } of notifications)
    if (enabled !== false) await project.ask('POST', `/notifications/${id}/test`);
  for (const { id_str: id } of notifications)
    for (;;) {
      const deliveries = (await project.ask('GET', `/notifications/${id}/deliveries`)) as unknown as Wire[];
      if (!deliveries.some(({ state }) => state === 'pending')) break;
      await sleep(100);
    }
  return [joined, { email: 'invited@example.org' }];
}

/** An access token of an application that the owner approved; a second code stays unused. */
async function grantToken(origin: string, ca: string, owner: KeptAccount): Promise<string> {
  const application = JSON.parse(
    await run('app', 'add', 'Dashboard', '--owner', owner.email, '--redirect-uri', OUT_OF_BAND, '--json'),
  );
  await run(
    'app',
    'add',
    'Public',
    '--owner',
    owner.email,
    '--redirect-uri',
    'https://app.example.org/back',
    '--public',
  );
  const visitor = createVisitor(origin, ca);
  const { email, password = '' } = owner;
  assert.equal((await visitor.post('/ui/sign-in', { email, password })).status, 303);
  const query = `?${new URLSearchParams({
    client_id: application.client_id,
    redirect_uri: OUT_OF_BAND,
    scope: 'user projects commits',
  })}`;
  const approve = async () => {
    const { text: asking } = await visitor.get(`/oauth2/authorize${query}`);
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(asking) ?? [];
    const { text } = await visitor.post('/oauth2/authorize', { csrf, request: query, decision: 'approve' });
    const [, code] = /([A-Za-z0-9_-]{30,})<\/code>/.exec(text) ?? [];
    assert.ok(code, text);
    return code;
  };
  await approve();
  const { text: links } = await visitor.get('/ui/wall/links');
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(links) ?? [];
  assert.equal((await visitor.post('/ui/wall/links', { csrf, name: 'Screen in the kitchen' })).status, 200);
  const { text } = await visitor.post('/oauth2/access_token', {
    grant_type: 'authorization_code',
    code: await approve(),
    redirect_uri: OUT_OF_BAND,
    client_id: application.client_id,
    client_secret: application.client_secret,
  });
  return JSON.parse(text).access_token;
}

/** Every GET whose answer stays the same while nothing happens. */
async function crawl(
  client: Client,
  [nobody, as, memberAs, tokenAs]: (string | undefined)[],
): Promise<RecordedAnswer[]> {
  const answers: RecordedAnswer[] = [];
  const record = async (path: string, by = as) => {
    const { status, text } = await client.get(path, by);
    assert.equal(status, 200, `${path}: ${text}`);
    answers.push({ path, ...(by !== undefined && { as: by }), status, body: text });
    return text;
  };
  const each = async (path: string, visit: (below: string) => Promise<void>) => {
    const { response } = JSON.parse(await record(path));
    for (const { id_str, id_ref } of response) await visit(`${path.split('?')[0]}/${id_str ?? id_ref}`);
  };
  const all = async (...paths: string[]) => {
    for (const path of paths) await record(path);
  };

  for (const by of [as, memberAs, tokenAs]) await record('/whoami', by);
  await record('/projects', memberAs);
  await record('/projects', tokenAs);
  await record('/dependencies?shared=true', memberAs);
  await each('/dependencies', below => all(below, `${below}/log`));
  await each('/projects', async project => {
    await all(project, `${project}/collaborators`, `${project}/events?limit=1000`);
    await each(`${project}/suites`, suite =>
      all(suite, `${suite}/rules`, `${suite}/dependencies`, `${suite}/environment_variables`),
    );
    await each(`${project}/build_requests`, below => all(below));
    await each(`${project}/commits`, async commit => {
      await all(commit, `${commit}/suites`);
      const { response } = JSON.parse(await record(`${commit}/builds`));
      for (const { id_str, artifacts, tests } of response) {
        const build = `${project}/builds/${id_str}`;
        await all(build, `${build}/log`, `${build}/similar`);
        if (artifacts) await each(`${build}/artifacts`, below => all(below));
        if (tests) await record(`${build}/tests`);
      }
    });
    await each(`${project}/deploy_strategies`, below => all(below));
    await each(`${project}/deploys`, below => all(below, `${below}/log`));
    await each(`${project}/notifications`, below => all(`${below}/deliveries?limit=1000`));
    await each(`${project}/triggers`, below => all(below, `${below}/firings`));
  });
  const { response } = JSON.parse(
    answers.find(({ path, as: by }) => path === '/projects' && by === as)?.body ?? '',
  );
  for (const { id_str, badge } of response) if (badge) await record(`/projects/${id_str}/badge.svg`, nobody);
  return answers;
}

function readDatabase<T>(read: (sqlite: ReturnType<typeof openSqlite>) => T): T {
  const sqlite = openSqlite(databasePath(data));
  try {
    return read(sqlite);
  } finally {
    sqlite.close();
  }
}

/** No path and no host name: they are of no use elsewhere. */
function checkNothingOfThisMachine(): void {
  for (const entry of readdirSync(place, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || path.startsWith(repositories) || path.includes('/root/') || path.endsWith('.tar'))
      continue;
    const content = readFileSync(path);
    // A short host name is found in any compressed file.
    for (const word of [`${tmpdir()}/assay`, process.cwd(), ...(hostname().length > 5 ? [hostname()] : [])])
      assert.ok(!content.includes(word), `${path} holds ${word}`);
  }
}

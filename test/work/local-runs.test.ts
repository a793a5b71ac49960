// Local runs: suites on the snapshot of a working tree, from the upload to the verdict.
import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { newSecret } from '../../src/domain/secret.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createCollaborator } from '../../src/store/projects.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import { bundleOf } from '../support/bundle.ts';
import { basic, type Fields, type Wire } from '../support/client.ts';
import type { ProjectJourney } from '../support/journey.ts';
import type { CommitDescription } from '../support/repository.ts';

let assay: Appliance;
before(async () => {
  assay = await startAppliance({ concurrency: 2 });
});
after(() => assay.close());

const ask = async (method: string, path: string, form: Fields = {}, credentials = as()): Promise<Wire> => {
  const answer = await assay.client.call(method, path, { as: credentials, form });
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
  return answer.record;
};
const as = () => `Basic ${Buffer.from(assay.token).toString('base64')}`;

async function upload(project: ProjectJourney, commit: CommitDescription, credentials = as()): Promise<Wire> {
  const { ref, bytes } = bundleOf(project.repository.directory, commit);
  const call = { as: credentials, body: bytes };
  const answer = await assay.client.call('POST', `${project.path}/snapshots`, call);
  assert.equal(answer.status, 201, answer.text);
  assert.equal(answer.record.ref, ref);
  assert.equal(answer.record.size_bytes, bytes.length);
  return answer.record;
}

async function runLocally(project: ProjectJourney, snapshot: Wire, fields: Fields = {}, credentials = as()) {
  const sent = { snapshot_id: snapshot.id_str as string, commit_ref: 'main', ...fields };
  const request = await ask('POST', `${project.path}/build_requests`, sent, credentials);
  const finished = await project.finishedRequest(request.id_str as string);
  const builds = await project.buildsOf(request.id_str as string);
  const log = builds[0] ? await project.log(builds[0].id_str as string) : '';
  return { request: finished, builds, log };
}

test('A working tree runs as a build with a real repository, its history and the remote branches', async () => {
  const project = await assay.project();
  const { repository } = project;
  await project.suite({
    command: [
      'set -e',
      'cat README.md new',
      'git log --format=%s',
      'git status --porcelain',
      'git rev-parse HEAD origin/main',
      'git fsck --connectivity-only',
      'echo "$ASSAY_TRIGGER|$ASSAY_BRANCH|$ASSAY_COMMIT"',
      'cat .git/objects/info/alternates',
      'ls /srv/.assay/snapshot',
    ].join('\n'),
    rules: [['commit.branches', 'equals', 'main']],
  });
  await project.run();
  const snapshot = await upload(project, { files: { 'README.md': 'Changed\n', new: 'untracked\n' } });
  // Nothing is fetched: the remote may be down.
  rmSync(repository.directory, { recursive: true });
  const { request, builds, log } = await runLocally(project, snapshot);
  assert.equal(request.build_state, 'passed', `${request.error} ${log}`);
  assert.deepEqual(
    [request.trigger, request.snapshot_id_str, request.commit_ref],
    ['local', snapshot.id_str, 'main'],
  );
  assert.ok(log.includes('Changed\nuntracked\nWorking tree\nFirst\n'), log);
  assert.ok(log.includes(`\n${snapshot.ref}\n${repository.hashes[0]}\n`), log);
  assert.ok(log.includes(`\nlocal||${snapshot.ref}\n`), log);
  assert.ok(log.endsWith('\n/srv/.assay/mirror/objects\n/srv/.assay/snapshot\npack\n'), log);

  // Again, as long as the snapshot is there.
  const [first] = builds as [Wire];
  const rerun = await ask('POST', `${project.path}/builds/${first.id_str}/rerun`);
  const again = await project.finishedBuild(rerun.id_str as string);
  assert.equal(again.build_state, 'passed');

  // Afterwards not.
  assay.app.db.sqlite.prepare('UPDATE snapshots SET created_at = 0').run();
  rmSync(join(assay.data, 'snapshots', `${snapshot.id_str}.git`), { recursive: true });
  const late = await ask('POST', `${project.path}/builds/${first.id_str}/rerun`);
  const gone = await project.finishedBuild(late.id_str as string);
  assert.equal(gone.build_state, 'errored');
  assert.equal(gone.error, 'The working tree was deleted after 7 days: run it again.');
  const unread = await runLocally(project, snapshot);
  assert.equal(unread.request.build_state, 'errored');
  assert.equal(unread.request.error, gone.error);
});

test('Rules see the branch and the changed files, and named suites run whatever their rules', async () => {
  const project = await assay.project();
  const onBranch = await project.suite({ command: 'true', rules: [['commit.branches', 'equals', 'topic']] });
  const onFile = await project.suite({ command: 'true', rules: [['commit.files', 'contains', 'new']] });
  const never = await project.suite({ command: 'true', rules: [['request.trigger', 'equals', 'push']] });
  await project.run();
  const snapshot = await upload(project, { files: { new: 'untracked\n' } });
  const suitesOf = ({ builds }: { builds: Wire[] }) => builds.map(build => build.suite_id_str).sort();
  const byRules = await runLocally(project, snapshot, { commit_ref: 'topic' });
  assert.deepEqual(suitesOf(byRules), [onBranch, onFile].sort());
  const detached = await runLocally(project, snapshot, { commit_ref: '' });
  assert.deepEqual([detached.request.commit_ref, suitesOf(detached)], ['HEAD', [onFile]]);
  const named = await runLocally(project, snapshot, { 'suites[]': [never] });
  assert.deepEqual(suitesOf(named), [never]);
  const [commit] = (await ask(
    'GET',
    `${project.path}/commits/${named.request.commit_id_str}/suites`,
  )) as unknown as Wire[];
  assert.ok(commit);
  const stored = assay.app.db.sqlite
    .prepare('SELECT branches, local FROM commits WHERE ref = ?')
    .get(snapshot.ref as string);
  assert.deepEqual(stored, { branches: '[]', local: 1n });
  assert.deepEqual(
    readdirSync(join(assay.data, 'uploads')).filter(name => name.startsWith('.upload-')),
    [],
  );
});

const described = (modules: Record<string, string>) =>
  Object.entries(modules)
    .map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`)
    .join('');

test('Submodules of a submodule are fetched only if its commit is on a branch: a host may have commits of forks', async () => {
  const secret = assay.repository({ files: { text: 'secret\n' } });
  const lib = assay.repository({ files: { text: 'lib\n' } });
  const [head = ''] = lib.hashes;
  const submodules = { in: secret.hashes[0] as string };
  const [ofFork = ''] = lib.add({ files: { '.gitmodules': described({ in: secret.url }) }, submodules });
  lib.git('update-ref', 'refs/heads/main', head);
  const repository = assay.repository({
    files: { '.gitmodules': described({ lib: lib.url }) },
    submodules: { lib: head },
  });
  const project = await assay.project(repository, { submodules: 'recursive' });
  await project.suite({ command: 'cat lib/text lib/in/text' });
  await project.run();
  const hostile = await runLocally(project, await upload(project, { submodules: { lib: ofFork } }));
  assert.ok(!hostile.log.includes('secret'), hostile.log);
  assert.ok(hostile.log.includes('submodules of lib are not fetched, because no branch contains its commit'));
  // Somebody with the right to push has it on a branch.
  lib.git('update-ref', 'refs/heads/main', ofFork);
  repository.add({ message: 'Move\n', submodules: { lib: ofFork } });
  await project.run();
  const trusted = await runLocally(project, await upload(project, { files: { new: '' } }));
  assert.ok(trusted.log.includes('lib\nsecret\n'), trusted.log);
});

test('Submodules are fetched if the base has their URLs; others are left out, and the log names them', async () => {
  const lib = assay.repository({ files: { text: 'lib\n' } });
  const secret = assay.repository({ files: { text: 'secret\n' } });
  const repository = assay.repository({
    files: { '.gitmodules': described({ lib: lib.url }) },
    submodules: { lib: lib.hashes[0] as string },
  });
  const project = await assay.project(repository, { submodules: 'on' });
  await project.suite({ command: 'cat lib/text; cat other/text; cat again/text; git status --porcelain' });
  await project.run();
  const [newer = ''] = lib.add({ message: 'Newer\n', files: { text: 'newer lib\n' } });
  const urls = { lib: lib.url, other: secret.url, again: lib.url };
  const snapshot = await upload(project, {
    files: { '.gitmodules': described(urls) },
    submodules: { lib: newer, other: secret.hashes[0] as string, again: lib.hashes[0] as string },
  });
  const { log } = await runLocally(project, snapshot);
  assert.ok(
    log.includes('submodules are not fetched (other), because the commit that the working tree builds on'),
    log,
  );
  assert.match(log, /\nnewer lib\n(?:cat: .*\n)lib\n/);
  assert.ok(!log.includes('secret'), log);
});

test('A working tree without a common commit runs, although the repository was never fetched', async () => {
  const project = await assay.project();
  await project.suite({ command: 'cat only; git log --format=%s; git status --porcelain' });
  const { bytes } = bundleOf(
    project.repository.directory,
    { files: { only: 'alone\n' }, parent: 'none' },
    '',
  );
  const answer = await assay.client.call('POST', `${project.path}/snapshots`, { as: as(), body: bytes });
  assert.equal(answer.status, 201, answer.text);
  rmSync(project.repository.directory, { recursive: true });
  const { request, log } = await runLocally(project, answer.record);
  assert.equal(request.build_state, 'passed', `${request.error} ${log}`);
  assert.ok(log.includes('alone\nWorking tree\n'), log);
});

test('A local run of a collaborator gets no variables and keeps no cache, unless the owner allows variables', async () => {
  const { db } = assay.app;
  const project = await assay.project();
  await project.suite({
    command: 'echo "secret: [$TOKEN] cache: [$(cat /srv/cache/mark)]"; date > /srv/cache/mark',
    variables: { TOKEN: 'abcd1234' },
  });
  await project.run();
  const apiKey = newSecret('api_key');
  const fields = { kind: 'collaborator', admin: false, passwordHash: null, apiKey } as const;
  const helper = createAccount(db, { email: 'helper@example.org', ...fields });
  createCollaborator(db, BigInt(project.id), helper.id);
  const asHelper = basic(helper.email, apiKey);
  const run = async (credentials: string) => {
    const snapshot = await upload(project, { files: { new: 'untracked\n' } }, credentials);
    return runLocally(project, snapshot, {}, credentials);
  };
  const withMask = (log: string) => /^secret: \[(.*?)\] cache: \[(.*?)\]/m.exec(log)?.slice(1);
  const owners = await run(as());
  assert.deepEqual(withMask(owners.log), ['***', ''], owners.log);
  const helpers = await run(asHelper);
  assert.deepEqual(withMask(helpers.log), ['', ''], helpers.log);
  const reason = 'the variables of the suite are not set, because this is a local run of a collaborator: ';
  assert.ok(helpers.log.includes(reason), helpers.log);
  await ask('PUT', project.path, { local_variables: 'true' });
  const allowed = await run(asHelper);
  assert.deepEqual(withMask(allowed.log), ['***', ''], allowed.log);
  assert.ok(!allowed.log.includes('local run of a collaborator'), allowed.log);
});

test('A local run is compared with the commit that its working tree started from', async () => {
  const project = await assay.project();
  const { repository } = project;
  const suite = await project.suite({
    command: 'cp report.xml result.xml; test ! -e broken',
    reports: 'result.xml',
  });
  const report = (...failed: string[]) =>
    `<testsuite>${['a', 'b', 'c'].map(name => `<testcase classname="x" name="${name}">${failed.includes(name) ? '<failure/>' : ''}</testcase>`).join('')}</testsuite>`;
  const [base] = repository.add({ files: { 'report.xml': report('a') } }) as [string];
  const first = await project.run();
  repository.add({ files: { 'report.xml': report('b') } });
  await project.run();
  const { ref, bytes } = bundleOf(
    repository.directory,
    { files: { 'report.xml': report('b', 'c'), broken: '' }, parent: base },
    base,
  );
  const answer = await assay.client.call('POST', `${project.path}/snapshots`, { as: as(), body: bytes });
  assert.equal(answer.status, 201, answer.text);
  const { builds } = await runLocally(project, answer.record);
  const [build] = builds as [Wire];
  assert.deepEqual(
    [build.build_state, (build.tests as Wire).new_failures, (build.tests as Wire).fixed],
    ['failed', 2, 1],
  );
  const diff = await ask('GET', `${project.path}/builds/${build.id_str}/diff`);
  assert.equal(diff.chosen, 'ancestor');
  assert.equal((diff.against as Wire).id_str, first.of(suite).build.id_str);
  assert.deepEqual(
    ((diff.commits as Wire).list as Wire[]).map(commit => commit.ref),
    [ref],
  );
});

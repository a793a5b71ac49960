// Local runs: suites on the snapshot of a working tree, from the upload to the verdict.
import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import { bundleOf } from '../support/bundle.ts';
import type { Fields, Wire } from '../support/client.ts';
import type { ProjectJourney } from '../support/journey.ts';
import type { CommitDescription } from '../support/repository.ts';

let assay: Appliance;
before(async () => {
  assay = await startAppliance({ concurrency: 2 });
});
after(() => assay.close());

const ask = async (method: string, path: string, form: Fields = {}): Promise<Wire> => {
  const answer = await assay.client.call(method, path, { as: as(), form });
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
  return answer.record;
};
const as = () => `Basic ${Buffer.from(assay.token).toString('base64')}`;

async function upload(project: ProjectJourney, commit: CommitDescription): Promise<Wire> {
  const { ref, bytes } = bundleOf(project.repository.directory, commit);
  const answer = await assay.client.call('POST', `${project.path}/snapshots`, { as: as(), body: bytes });
  assert.equal(answer.status, 201, answer.text);
  assert.equal(answer.record.ref, ref);
  assert.equal(answer.record.size_bytes, bytes.length);
  return answer.record;
}

async function runLocally(project: ProjectJourney, snapshot: Wire, fields: Fields = {}) {
  const sent = { snapshot_id: snapshot.id_str as string, commit_ref: 'main', ...fields };
  const request = await ask('POST', `${project.path}/build_requests`, sent);
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

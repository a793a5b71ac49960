// Deploys to a real remote over SSH: pushed once, never forced, and completed after a crash.
import assert from 'node:assert/strict';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { runAssay, type Serving, serve } from '../cli/program.ts';
import { type Appliance, makeData, startAppliance } from '../support/appliance.ts';
import { basic, createClient, type Fields, type Wire } from '../support/client.ts';
import { directoryUntil } from '../support/directory.ts';
import { createJourney, type Journey, type ProjectJourney, type Repository } from '../support/journey.ts';
import { startSshd } from '../support/sshd.ts';

function hook(remote: Repository, name: string, script: string): void {
  const path = join(remote.directory, 'hooks', name);
  mkdirSync(join(remote.directory, 'hooks'), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
}

/** Counts the pushes that changed something. */
function countPushes(remote: Repository): () => string[] {
  const file = join(remote.directory, 'pushes');
  writeFileSync(file, '');
  hook(remote, 'post-receive', `cat >>${file}`);
  return () => readFileSync(file, 'utf8').split('\n').filter(Boolean);
}

const headOf = (remote: Repository, branch: string) =>
  remote.git('for-each-ref', '--format=%(objectname)', `refs/heads/${branch}`);

async function strategyFor(project: Pick<ProjectJourney, 'ask'>, remote: Repository, fields: Fields = {}) {
  const made = await project.ask('POST', '/deploy_strategies', {
    name: `Strategy ${Math.random()}`,
    strategy_type: 'git',
    'options[repository_url]': remote.url,
    'options[local_branch]': 'main',
    'options[remote_branch]': 'live',
    ...fields,
  });
  return made.id_str as string;
}

async function deploy(project: Pick<ProjectJourney, 'ask'>, strategyId: string, commitId: unknown) {
  const made = await project.ask('POST', '/deploys', {
    deploy_strategy_id: strategyId,
    commit_id: commitId as string,
  });
  return made.id_str as string;
}

const finished = (project: Pick<ProjectJourney, 'until' | 'ask'>, deployId: string): Promise<Wire> =>
  project.until(async () => {
    const found = await project.ask('GET', `/deploys/${deployId}`);
    return !['enqueued', 'deploying'].includes(found.state as string) && found;
  });

describe('A deploy', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 2 });
  });
  after(() => assay.close());

  const logOf = async (project: ProjectJourney, deployId: string) =>
    (await assay.client.call('GET', `${project.path}/deploys/${deployId}/log`, { as: assay.as })).text;

  /** A project whose commits are known without a container, and an empty remote. */
  async function prepared(journey: Journey = assay, commits = 2) {
    const repository = journey.repository(
      ...Array.from({ length: commits }, (_, index) => ({
        message: `Commit ${index}\n`,
        files: { a: String(index) },
      })),
    );
    const project = await journey.project(repository);
    const remote = journey.repository({ message: 'Unrelated\n', branch: 'unrelated', parent: 'none' });
    const commitIds: string[] = [];
    for (const hash of repository.hashes)
      commitIds.push((await project.run(hash)).request.commit_id_str as string);
    return { project, repository, remote, commitIds };
  }

  test("pushes exactly its commit to the branch, with the remote's output in its log", async () => {
    const { project, repository, remote, commitIds } = await prepared();
    const pushes = countPushes(remote);
    hook(remote, 'pre-receive', 'echo welcome to the stage at /var/www/stage');
    const strategyId = await strategyFor(project, remote);
    const deployId = await deploy(project, strategyId, commitIds[0]);
    const record = await finished(project, deployId);
    assert.equal(record.state, 'deployed');
    assert.equal(headOf(remote, 'live'), repository.hashes[0]);
    assert.equal(pushes().length, 1);
    const log = await logOf(project, deployId);
    assert.match(log, /welcome to the stage at \/var\/www\/stage/);
    assert.match(log, /\[assay\] deployed\n$/);
    const second = await finished(project, await deploy(project, strategyId, commitIds[1]));
    assert.equal(second.state, 'deployed');
    assert.equal(headOf(remote, 'live'), repository.hashes[1]);
    assert.equal(pushes().length, 2);
    const back = await finished(project, await deploy(project, strategyId, commitIds[0]));
    assert.equal(back.state, 'failed', 'an ancestor changes nothing');
    assert.match(back.error as string, /already contains the commit and is ahead of it/);
    assert.equal(headOf(remote, 'live'), repository.hashes[1]);
  });

  test("is deployed if it arrived, even if the remote's output could not be written", async t => {
    const { project, repository, remote, commitIds } = await prepared();
    hook(remote, 'pre-receive', 'echo output that is not written; sleep 0.2; echo output that is written');
    const probe = await open(join(remote.directory, 'HEAD'));
    const files = Object.getPrototypeOf(probe) as FileHandle;
    await probe.close();
    const write = files.write as (bytes: Buffer, ...more: unknown[]) => Promise<unknown>;
    t.mock.method(files, 'write', function (this: FileHandle, bytes: Buffer, ...more: unknown[]) {
      if (!bytes.includes('output that is not written')) return write.call(this, bytes, ...more);
      return Promise.reject(Object.assign(new Error('no space left on device'), { code: 'ENOSPC' }));
    });
    const deployId = await deploy(project, await strategyFor(project, remote), commitIds[0]);
    assert.equal((await finished(project, deployId)).state, 'deployed');
    assert.equal(headOf(remote, 'live'), repository.hashes[0]);
    assert.match(await logOf(project, deployId), /output that is written\n(.*\n)*\[assay\] deployed\n$/);
  });

  test('fails with a clear message, and leaves the remote unchanged, if it is not a fast-forward', async () => {
    const { project, remote, commitIds } = await prepared();
    remote.git('branch', 'live', 'unrelated');
    const before = headOf(remote, 'live');
    const record = await finished(
      project,
      await deploy(project, await strategyFor(project, remote), commitIds[0]),
    );
    assert.equal(record.state, 'failed');
    assert.match(record.error as string, /never forced/);
    assert.equal(headOf(remote, 'live'), before);
  });

  test('fails with the reason if the key or a hook refuses it, or the branch lacks the commit', async () => {
    const { project, repository, remote, commitIds } = await prepared();
    const strategyId = await strategyFor(project, remote);
    hook(remote, 'pre-receive', 'echo "not on a Friday"; exit 1');
    const deployId = await deploy(project, strategyId, commitIds[0]);
    const rejected = await finished(project, deployId);
    assert.equal(rejected.state, 'failed');
    assert.match(rejected.error as string, /pre-receive hook declined/);
    assert.match(await logOf(project, deployId), /not on a Friday/);
    assert.equal(headOf(remote, 'live'), '');

    const other = await strategyFor(project, remote, { 'options[local_branch]': 'release' });
    repository.git('branch', 'release', repository.hashes[0] as string);
    const missing = await finished(project, await deploy(project, other, commitIds[1]));
    assert.equal(missing.state, 'failed');
    assert.match(missing.error as string, /The branch release does not contain the commit/);

    assay.sshd.removeKey(project.key);
    const refused = await finished(project, await deploy(project, strategyId, commitIds[0]));
    assert.equal(refused.state, 'failed');
    assert.match(refused.error as string, /refused the project's key/);
    assay.sshd.addKey(project.key);
  });

  test('checks the repository first: a commit that was removed from the branch is not deployed', async () => {
    const { project, repository, remote, commitIds } = await prepared();
    const strategyId = await strategyFor(project, remote);
    repository.git('update-ref', 'refs/heads/main', repository.hashes[0] as string);
    const withdrawn = await finished(project, await deploy(project, strategyId, commitIds[1]));
    assert.equal(withdrawn.state, 'failed');
    assert.match(withdrawn.error as string, /The branch main does not contain the commit/);
    assert.equal(headOf(remote, 'live'), '');

    renameSync(repository.directory, `${repository.directory}.away`);
    const unknown = await finished(project, await deploy(project, strategyId, commitIds[0]));
    renameSync(`${repository.directory}.away`, repository.directory);
    assert.equal(unknown.state, 'failed', 'the state of the branch is unknown');
    assert.match(unknown.error as string, /repository/);
    assert.equal(headOf(remote, 'live'), '');

    const held = await finished(project, await deploy(project, strategyId, commitIds[0]));
    assert.equal(held.state, 'deployed', String(held.error));
    assert.equal(headOf(remote, 'live'), repository.hashes[0]);
  });

  test('runs one at a time for a project, in order of creation, and can be canceled before it starts', async () => {
    const { project, repository, remote, commitIds } = await prepared(assay, 3);
    const pushes = countPushes(remote);
    const gate = join(remote.directory, 'gate');
    hook(remote, 'pre-receive', `while ! test -e ${gate}; do sleep 0.05; done`);
    const strategyId = await strategyFor(project, remote);
    const first = await deploy(project, strategyId, commitIds[0]);
    const second = await deploy(project, strategyId, commitIds[1]);
    const third = await deploy(project, strategyId, commitIds[2]);
    await project.until(async () => (await project.ask('GET', `/deploys/${first}`)).state === 'deploying');
    assert.equal((await project.ask('GET', `/deploys/${second}`)).state, 'enqueued');
    assert.equal((await project.cancel(`deploys/${second}`)).state, 'canceled');
    appendFileSync(gate, '');
    assert.equal((await finished(project, first)).state, 'deployed');
    assert.equal((await finished(project, third)).state, 'deployed');
    assert.deepEqual(
      pushes().map(line => line.split(' ')[1]),
      [repository.hashes[0], repository.hashes[2]],
    );
  });

  test('canceled while its push hangs is canceled, and is not pushed again', async () => {
    const { project, repository, remote, commitIds } = await prepared();
    const begun = join(remote.directory, 'begun');
    const gate = join(remote.directory, 'gate');
    hook(remote, 'pre-receive', `touch ${begun}; while ! test -e ${gate}; do sleep 0.05; done; exit 1`);
    const strategyId = await strategyFor(project, remote);
    const hanging = await deploy(project, strategyId, commitIds[0]);
    await waitForFile(begun);
    await project.cancel(`deploys/${hanging}`);
    const record = await finished(project, hanging);
    assert.equal(record.state, 'canceled');
    assert.equal(record.error, undefined);
    const log = await logOf(project, hanging);
    assert.match(log, /\[assay\] canceled by owner@example\.org\n\[assay\] the remote has no branch live/);
    assert.equal(headOf(remote, 'live'), '');
    appendFileSync(gate, '');
    rmSync(join(remote.directory, 'hooks', 'pre-receive'));
    const next = await finished(project, await deploy(project, strategyId, commitIds[1]));
    assert.equal(next.state, 'deployed', String(next.error));
    assert.equal(headOf(remote, 'live'), repository.hashes[1]);
    assert.equal((await project.cancel(`deploys/${hanging}`)).state, 'canceled', 'it has ended');
  });

  test('canceled after its push arrived is deployed', async () => {
    const { project, repository, remote, commitIds } = await prepared();
    const begun = join(remote.directory, 'begun');
    const gate = join(remote.directory, 'gate');
    hook(remote, 'post-receive', `touch ${begun}; while ! test -e ${gate}; do sleep 0.05; done`);
    const hanging = await deploy(project, await strategyFor(project, remote), commitIds[0]);
    await waitForFile(begun);
    await project.cancel(`deploys/${hanging}`);
    const record = await finished(project, hanging);
    appendFileSync(gate, '');
    assert.equal(record.state, 'deployed');
    assert.equal(headOf(remote, 'live'), repository.hashes[0]);
    assert.match(await logOf(project, hanging), /the push had arrived\n\[assay\] deployed\n$/);
  });

  test('canceled before the login is canceled without a push', async () => {
    const { project, remote, commitIds } = await prepared();
    const begun = join(remote.directory, 'begun');
    assay.sshd.addKey(
      project.key,
      `case "$SSH_ORIGINAL_COMMAND" in *receive-pack*) touch ${begun}; exec cat >/dev/null;; *) exec sh -c "$SSH_ORIGINAL_COMMAND";; esac`,
    );
    const hanging = await deploy(project, await strategyFor(project, remote), commitIds[0]);
    await waitForFile(begun);
    await project.cancel(`deploys/${hanging}`);
    const record = await finished(project, hanging);
    assert.equal(record.state, 'canceled');
    assert.match(await logOf(project, hanging), /\[assay\] canceled by owner@example\.org\n$/);
  });

  test('in progress ends with its project, and so does its connection', async () => {
    const { project, remote, commitIds } = await prepared();
    const begun = join(remote.directory, 'begun');
    const gone = join(remote.directory, 'gone');
    assay.sshd.addKey(
      project.key,
      `case "$SSH_ORIGINAL_COMMAND" in *receive-pack*) touch ${begun}; cat >/dev/null; touch ${gone};; *) exec sh -c "$SSH_ORIGINAL_COMMAND";; esac`,
    );
    await deploy(project, await strategyFor(project, remote), commitIds[0]);
    await waitForFile(begun);
    await project.ask('DELETE', '');
    await waitForFile(gone);
  });

  test('is created automatically for a commit that passed, once, and only for its branch', async () => {
    const project = await assay.project();
    const remote = assay.repository({ branch: 'unrelated', parent: 'none' });
    const pushes = countPushes(remote);
    await project.suite({ command: 'test "$(cat README.md)" = Hello' });
    await strategyFor(project, remote, { 'options[automatic]': 'true' });
    const ran = await project.run();
    assert.equal(ran.state, 'passed');
    const list = async () => (await project.ask('GET', '/deploys')) as unknown as Wire[];
    const made = await project.until(async () => {
      const [one] = await list();
      return one?.state === 'deployed' && one;
    });
    assert.equal(made.created_by, 'owner@example.org');
    assert.equal(headOf(remote, 'live'), project.repository.hashes[0]);
    assert.equal((await project.run()).state, 'passed');
    assert.equal((await list()).length, 1, 'a commit is deployed once');
    project.repository.add({ message: 'Bad\n', files: { 'README.md': 'bad' } });
    assert.equal((await project.run()).state, 'failed');
    project.repository.add({
      message: 'Aside\n',
      branch: 'aside',
      parent: project.repository.hashes[0] as string,
      files: { x: '' },
    });
    assert.equal((await project.run('aside')).state, 'passed');
    assert.equal((await list()).length, 1);
    assert.equal(pushes().length, 1);
  });

  test('is created once for each version of a commit that passed, even if an amended one keeps its record', async () => {
    const author = { author: 'Ada <ada@example.org>', authoredAt: '1700000000 +0200' };
    const repository = assay.repository({ message: 'Base\n', files: { a: '1' } });
    repository.add({ message: 'Draft\n', files: { a: '2' }, ...author });
    const project = await assay.project(repository);
    const remote = assay.repository({ branch: 'unrelated', parent: 'none' });
    await project.suite({ command: 'cat a' });
    await strategyFor(project, remote, { 'options[automatic]': 'true' });
    const ended = (count: number) =>
      project.until(async () => {
        const list = (await project.ask('GET', '/deploys')) as unknown as Wire[];
        assert.ok(list.length <= count, 'each is deployed once');
        const isOver = list.every(({ state }) => state === 'deployed' || state === 'failed');
        return list.length === count && isOver && list.map(({ state }) => state);
      });

    hook(remote, 'pre-receive', 'echo "not on a Friday"; exit 1');
    const first = await project.run();
    assert.deepEqual(await ended(1), ['failed']);
    assert.equal((await project.run()).state, 'passed');
    assert.deepEqual(await ended(1), ['failed'], 'what failed is not tried again');
    rmSync(join(remote.directory, 'hooks', 'pre-receive'));

    const [amended] = repository.add({
      message: 'Done\n',
      files: { a: '3' },
      parent: repository.hashes[0] as string,
      ...author,
    });
    const second = await project.run();
    assert.equal(second.request.commit_id_str, first.request.commit_id_str);
    assert.deepEqual(await ended(2), ['deployed', 'failed']);
    assert.equal(headOf(remote, 'live'), amended);

    const old = first.builds[0]?.id_str as string;
    assert.equal((await project.finishedBuild(await project.rerun(old))).build_state, 'passed');
    assert.deepEqual(await ended(2), ['deployed', 'failed'], 'the draft passed again, not what replaced it');
  });
});

describe('A deploy that a crash interrupts', () => {
  for (const [name, place] of [
    ['before its push has arrived', 'pre-receive'],
    ['after its push has arrived', 'post-receive'],
  ] as const)
    test(`${name} is completed after the restart, with one push`, async () => {
      const sshd = await startSshd();
      const data = makeData(sshd);
      let server: Serving | undefined;
      try {
        const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
        const { email, api_key: key } = JSON.parse(added.stdout);
        const start = async () => {
          server = await serve(data, { env: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' } });
          const ca = readFileSync(join(data, 'tls', 'ca.pem'), 'utf8');
          const client = createClient(`https://127.0.0.1:${server.port}`, ca);
          return { client, journey: createJourney({ client, as: basic(email, key), sshd }) };
        };
        const { client, journey } = await start();
        const project = await journey.project();
        const remote = journey.repository({ branch: 'unrelated', parent: 'none' });
        const count = join(remote.directory, 'pushes');
        const begun = join(remote.directory, 'begun');
        const gate = join(remote.directory, 'gate');
        writeFileSync(count, '');
        const wait = `touch ${begun}; while ! test -e ${gate}; do sleep 0.05; done`;
        hook(remote, place, wait);
        // Not counted by post-receive, which git skips when the client is gone by then.
        hook(
          remote,
          'reference-transaction',
          `[ "$1" != committed ] || grep refs/heads/live >>${count} || true`,
        );
        const { request } = await project.run();
        const strategyId = await strategyFor(project, remote);
        const deployId = await deploy(project, strategyId, request.commit_id_str);
        // The hook creates a file when it waits.
        await waitForFile(begun);
        client.close();
        await server?.end('SIGKILL');
        rmSync(begun);
        const again = await start();
        if (place === 'pre-receive') await waitForFile(begun);
        writeFileSync(gate, '');
        const record = await finished(again.journey.knownProject(project.id), deployId);
        assert.equal(record.state, 'deployed', String(record.error));
        assert.equal(headOf(remote, 'live'), project.repository.hashes[0]);
        await waitForLine(count);
        const lines = readFileSync(count, 'utf8').split('\n').filter(Boolean);
        assert.equal(lines.length, 1, lines.join('\n'));
        again.client.close();
      } finally {
        await server?.end('SIGKILL');
        await sshd.close();
        rmSync(data, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
      }
    });
});

const waitForFile = (path: string) =>
  directoryUntil(dirname(path), names => names.includes(basename(path)), `there is no ${path}`);

const waitForLine = (path: string) =>
  directoryUntil(dirname(path), () => readFileSync(path, 'utf8').includes('\n'), `nothing is in ${path}`);

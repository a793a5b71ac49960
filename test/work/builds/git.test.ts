// From a ref to a commit: what is fetched, what is refused and with which message, and git inside a suite.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';
import { directoryUntil } from '../../support/directory.ts';
import type { ProjectJourney } from '../../support/journey.ts';

describe('A build request', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3 });
  });
  after(() => assay.close());

  test('is errored with a reason for an unknown ref, and makes the project errored', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const { request } = await project.run('nowhere');
    assert.equal(request.build_state, 'errored');
    assert.equal(request.error, 'The repository has no branch, tag or commit nowhere.');
    assert.equal(request.commit_id, null);
    assert.equal((await project.ask('GET', '')).build_state, 'errored');
  });

  test('is errored with a reason when the repository refuses the key', async () => {
    const project = await assay.project();
    assay.sshd.removeKey(project.key);
    const { request } = await project.run();
    assert.equal(request.build_state, 'errored');
    assert.match(request.error as string, /refused the project's key: install the project's SSH public key/);
  });

  test('is errored with a reason after 15 s when the host does not answer, and delays nobody meanwhile', async () => {
    const callers = new Set<Socket>();
    const silent = createServer(socket => callers.add(socket.on('error', () => {}))).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as { port: number };
    const config = join(assay.data, 'ssh', 'config');
    // Replaced atomically: the fetch of another test may be reading it.
    writeFileSync(
      `${config}.new`,
      `${assay.sshd.clientConfig}\nHost silent.assay.test\n  HostName 127.0.0.1\n  Port ${port}\n`,
    );
    renameSync(`${config}.new`, config);
    try {
      const record = await assay.ask('POST', '/projects', {
        name: 'Silent',
        repository_url: 'git@silent.assay.test:x.git',
      });
      const path = `/projects/${record.id_str}/build_requests`;
      const { id_str: requestId } = await assay.ask('POST', path, { commit_ref: 'main' });
      const { id_str: canceledId } = await assay.ask('POST', path, { commit_ref: 'other' });
      const other = await assay.project();
      assert.equal((await other.runOne({ command: 'true' })).build.build_state, 'passed');
      const meanwhile = await assay.ask('GET', `${path}/${requestId}`);
      assert.equal(meanwhile.build_state, 'fetching', 'another project does not wait for it');
      assert.equal((await assay.ask('POST', `${path}/${canceledId}/cancel`)).build_state, 'canceled');
      const request = await assay.until(record.id_str as string, async () => {
        const found = await assay.ask('GET', `${path}/${requestId}`);
        return found.build_state === 'errored' && found;
      });
      assert.match(request.error as string, /silent\.assay\.test did not answer within 15 s/);
    } finally {
      silent.close();
      for (const socket of callers) socket.destroy();
    }
  });

  test('canceled while it is fetched stays canceled, and leaves no waiting commit', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    // The host blocks the fetch until the test releases it.
    const gate = join(assay.data, 'gate');
    assay.sshd.addKey(
      project.key,
      `while test ! -e ${gate}; do sleep 0.05; done; exec sh -c "$SSH_ORIGINAL_COMMAND"`,
    );
    const requestId = await project.request();
    await assay.committed(
      async () => (await project.requestRecord(requestId)).build_state === 'fetching' || undefined,
    );
    assert.equal((await project.cancel(`build_requests/${requestId}`)).build_state, 'canceled');
    writeFileSync(gate, '');
    const { state } = await project.run();
    assert.equal(state, 'passed');
    assert.equal((await project.requestRecord(requestId)).build_state, 'canceled');
    assert.equal(((await project.ask('GET', '/commits')) as unknown as Wire[]).length, 1);
    rmSync(gate);
  });

  /** A host that accepts the login and then sends nothing; `gone` exists once the client has disconnected. */
  function hang(project: ProjectJourney) {
    const directory = mkdtempSync(join(assay.data, 'hang-'));
    const [begun, gone] = [join(directory, 'begun'), join(directory, 'gone')];
    assay.sshd.addKey(project.key, `touch ${begun}; cat >/dev/null; touch ${gone}`);
    const waitFor = (path: string) =>
      directoryUntil(directory, names => names.includes(basename(path)), `there is no ${path}`);
    return { begun: () => waitFor(begun), gone: () => waitFor(gone) };
  }

  test('canceled while its host hangs ends the fetch at once, and the next one starts', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const host = hang(project);
    const [first, second] = [await project.request(), await project.request('other')];
    await host.begun();
    await project.cancel(`build_requests/${first}`);
    await project.cancel(`build_requests/${second}`);
    await host.gone();
    assay.sshd.addKey(project.key);
    assert.equal((await project.run()).state, 'passed');
    assert.equal((await project.requestRecord(first)).build_state, 'canceled');
  });

  test('ends with its project while its host hangs', async () => {
    const project = await assay.project();
    const host = hang(project);
    await project.request();
    await host.begun();
    await project.ask('DELETE', '');
    await host.gone();
  });

  test('resolves a branch before a tag before a hash, and short and full hashes in either case', async () => {
    const repository = assay.repository(
      { message: 'One\n', files: { a: '1' } },
      { message: 'Two\n', files: { a: '2' } },
      { message: 'Three\n', files: { a: '3' } },
    );
    const [one, two, three] = repository.hashes as [string, string, string];
    repository.git('tag', 'v1', one);
    repository.git('tag', '-a', '-m', 'annotated', 'v2', two);
    repository.git('branch', 'twice', two);
    repository.git('tag', 'twice', one);
    repository.git('branch', one.slice(0, 8), three);
    const project = await assay.project(repository);
    await project.suite({ command: 'echo "on <$ASSAY_BRANCH> $(git rev-parse HEAD)"' });
    const refs: [ref: string, branch: string, hash: string][] = [
      ['main', 'main', three],
      ['v1', '', one],
      ['v2', '', two],
      ['twice', 'twice', two],
      [one, '', one],
      [two.slice(0, 7).toUpperCase(), '', two],
      [one.slice(0, 8), one.slice(0, 8), three],
    ];
    const ids = await Promise.all(refs.map(([ref]) => project.request(ref)));
    for (const [index, [ref, branch, hash]] of refs.entries()) {
      const request = await project.finishedRequest(ids[index] as string);
      assert.equal(request.build_state, 'passed', ref);
      const [build] = await project.buildsOf(request.id_str as string);
      assert.match(await project.log(build?.id_str as string), new RegExp(`on <${branch}> ${hash}`), ref);
      const commit = await project.ask('GET', `/commits/${request.commit_id_str}`);
      assert.equal(commit.ref, hash);
      assert.equal(commit.version, 1);
    }
    assert.equal(((await project.ask('GET', '/commits')) as unknown as Wire[]).length, 3);
  });

  test('is evaluated on all files of its commit, however many, and shows what decided', async () => {
    const names = Array.from({ length: 10_500 }, (_, index) => `f${String(index).padStart(5, '0')}`);
    const repository = assay.repository({
      files: Object.fromEntries([...names, 'the-last'].map(name => [name, ''])),
    });
    const project = await assay.project(repository);
    await project.suite({ command: 'true', rules: [['commit.files', 'equals', 'the-last']] });
    await project.suite({ command: 'true', rules: [['commit.files', 'does_not_match', '*-last']] });
    const { request, builds } = await project.run();
    assert.equal(request.build_state, 'passed');
    assert.equal(builds.length, 1);
    const path = `/commits/${request.commit_id_str}/suites`;
    const decided = (await project.ask('GET', path)) as unknown as Wire[];
    const evaluated = decided.map(({ runs, rules }) => {
      const [rule] = rules as [Wire];
      return [runs, rule.holds, ...(rule.saw as string[]).slice(-2)];
    });
    assert.deepEqual(evaluated, [
      [false, false, 'the-last', '… 10451 more'],
      [true, true, 'the-last', '… 10451 more'],
    ]);
  });

  test('keeps a commit that an amend and a force push replaced: same ID, higher version, old builds readable', async () => {
    const author = { author: 'Ada <ada@example.org>', authoredAt: '1700000000 +0200' };
    const repository = assay.repository({ message: 'Base\n', files: { a: '1' } });
    repository.add({ message: 'Work in progress\n', files: { a: '2' }, ...author });
    const project = await assay.project(repository);
    await project.suite({ command: 'cat a' });
    const first = await project.run();
    const old = first.builds[0] as Wire;
    const [base] = repository.hashes as [string];
    const [amended] = repository.add({
      message: 'Work\n',
      files: { a: 'amended' },
      parent: base,
      ...author,
      committedAt: '1700000999 +0000',
    });
    const second = await project.run();
    assert.equal(second.request.commit_id_str, first.request.commit_id_str);
    const commit = await project.ask('GET', `/commits/${second.request.commit_id_str}`);
    assert.equal(commit.version, 2);
    assert.equal(commit.ref, amended);
    assert.equal(commit.message, 'Work');
    assert.match(await project.log(second.builds[0]?.id_str as string), /amended$/);
    assert.equal((await project.buildRecord(old.id_str as string)).build_state, 'passed');
    assert.match(await project.log(old.id_str as string), /\n2$/);
    const again = await project.finishedBuild(await project.rerun(old.id_str as string));
    assert.equal(again.build_state, 'passed', 'a rerun of the old build still finds its commit');
    assert.match(await project.log(again.id_str as string), /\n2$/);
  });

  test('gives the suite full history and tags, and a working git', async () => {
    const repository = assay.repository(
      { message: 'One\n', files: { a: '1', '.gitattributes': '* text=auto filter=evil\n' } },
      { message: 'Two\n', files: { a: '2' } },
    );
    repository.git('tag', 'v1', repository.hashes[0] as string);
    repository.git('branch', 'other', repository.hashes[0] as string);
    const project = await assay.project(repository);
    const { log, build } = await project.runOne({
      command: [
        'set -e',
        'git status --porcelain --branch',
        'git log --format=%s',
        'git describe --tags',
        'git branch -r',
        'git fsck --no-progress 2>&1 | grep -v dangling || true',
        'git diff --stat HEAD~1 | tail -1',
        'git -c user.name=x -c user.email=x@x commit -q --allow-empty -m Three && git log -1 --format=%s',
        'git checkout -q v1 && cat a',
      ].join('\n'),
    });
    assert.equal(build.build_state, 'passed', log);
    const output = log.split('\n').slice(2).join('\n');
    assert.match(
      output,
      /^## main\.\.\.origin\/main\nTwo\nOne\nv1-1-g[0-9a-f]{7}\n {2}origin\/main\n {2}origin\/other\n 1 file changed.*\nThree\n1$/,
    );
  });

  test('cancels the older ones of its branch only if the project wants it', async () => {
    const project = await assay.project(undefined, { cancel_superseded: 'true' });
    await project.suite({ command: 'test "$(cat README.md)" = last || exec sleep 1000' });
    const older = await project.request();
    const { id_str: olderBuild } = await project.buildOf(older);
    await project.buildWhen(olderBuild as string, build => build.build_state === 'running');
    project.repository.add({ message: 'Last\n', files: { 'README.md': 'last' } });
    const newer = await project.run();
    assert.equal(newer.state, 'passed');
    assert.equal((await project.finishedRequest(older)).build_state, 'canceled');
    assert.match(
      await project.log(olderBuild as string),
      /\[assay\] canceled because a newer build of main has begun\n$/,
    );

    const patient = await assay.project();
    await patient.suite({
      command:
        'test "$(cat README.md)" = last || test -e /srv/cache/go || { while ! test -e /srv/cache/go; do sleep 0.1; done; }; touch /srv/cache/go',
    });
    const first = await patient.request();
    const { id_str: firstBuild } = await patient.buildOf(first);
    await patient.buildWhen(firstBuild as string, build => build.build_state === 'running');
    patient.repository.add({ message: 'Last\n', files: { 'README.md': 'last' } });
    assert.equal((await patient.run()).state, 'passed');
    assert.equal((await patient.finishedRequest(first)).build_state, 'passed');
  });
});

test('A build whose mirror was lost, as after a restore, fetches its commit again; users see no path of the server', async () => {
  const assay = await startAppliance({ concurrency: 2 });
  try {
    const author = { author: 'Ada <ada@example.org>', authoredAt: '1700000000 +0200' };
    const repository = assay.repository({ message: 'Base\n', files: { a: '1' } });
    repository.add({ message: 'Draft\n', files: { a: 'draft' }, ...author });
    const project = await assay.project(repository);
    await project.suite({ command: 'cat a' });
    const first = await project.run();
    const old = first.builds[0]?.id_str as string;
    const mirror = join(assay.data, 'mirrors', `${project.id}.git`);

    rmSync(mirror, { recursive: true });
    const again = await project.finishedBuild(await project.rerun(old));
    assert.equal(again.build_state, 'passed', String(again.error));
    assert.match(
      await project.log(again.id_str as string),
      /^\[assay\] the commit is no longer on this server: fetching it again\n(?:.*\n)*draft$/,
    );

    // No branch contains it any more, but the host still has it.
    repository.add({
      message: 'Done\n',
      files: { a: 'done' },
      parent: repository.hashes[0] as string,
      ...author,
    });
    rmSync(mirror, { recursive: true });
    const unreachable = await project.finishedBuild(await project.rerun(old));
    assert.equal(unreachable.build_state, 'passed', String(unreachable.error));

    repository.git('reflog', 'expire', '--expire=now', '--all');
    repository.git('gc', '--quiet', '--prune=now');
    rmSync(mirror, { recursive: true });
    const gone = await project.finishedBuild(await project.rerun(old));
    assert.equal(gone.build_state, 'errored');
    assert.match(
      gone.error as string,
      /^The commit could not be fetched: The repository no longer has the commit [0-9a-f]{40}/,
    );

    assay.sshd.removeKey(project.key);
    assay.sshd.endSessions();
    rmSync(mirror, { recursive: true });
    const refused = await project.finishedBuild(await project.rerun(old));
    assert.match(refused.error as string, /refused the project's key/);
    for (const build of [gone, refused]) {
      const seen = `${build.error} ${await project.log(build.id_str as string)}`;
      assert.ok(!seen.includes(assay.data), seen);
    }
  } finally {
    await assay.close();
  }
});

test('A build that waits for its commit to be fetched again can be canceled, and uses no slot meanwhile', async () => {
  const assay = await startAppliance({ concurrency: 1 });
  try {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const { builds } = await project.run();
    const other = await assay.project();
    await other.suite({ command: 'true' });
    rmSync(join(assay.data, 'mirrors', `${project.id}.git`), { recursive: true });
    assay.sshd.addKey(project.key, 'exec cat >/dev/null');
    assay.sshd.endSessions();
    const waiting = await project.rerun(builds[0]?.id_str as string);
    assert.equal((await other.run()).state, 'passed');
    await project.cancel(`builds/${waiting}`);
    assert.equal((await project.finishedBuild(waiting)).build_state, 'canceled');
    assert.match(await project.log(waiting), /\[assay\] canceled by owner@example\.org\n$/);
  } finally {
    await assay.close();
  }
});

test('Any number of hosts that hang after the login delay nobody else', async () => {
  const assay = await startAppliance();
  try {
    const hosts = Array.from({ length: 6 }, (_, index) => `slow-${index}.assay.test`);
    const { port } = assay.sshd;
    appendFileSync(
      join(assay.data, 'ssh', 'config'),
      `Host ${hosts.join(' ')}\n  HostName 127.0.0.1\n  Port ${port}\n`,
    );
    const slow: string[] = [];
    for (const host of hosts) {
      const project = await assay.project(undefined, {
        repository_url: assay.repository().url.replace(/@[^:]+:/, `@${host}:`),
      });
      assay.sshd.addKey(project.key, 'exec cat >/dev/null');
      slow.push(`${project.path}/build_requests/${await project.request()}`);
    }
    const good = await assay.project();
    await good.suite({ command: 'true' });
    assert.equal((await good.run()).state, 'passed');
    for (const path of slow)
      assert.match((await assay.ask('GET', path)).build_state as string, /^(fetching|enqueued)$/);
  } finally {
    await assay.close();
  }
});

test('A changed host key fails the request with a clear message, and nothing is sent', async () => {
  const assay = await startAppliance();
  try {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    assert.equal((await project.run()).state, 'passed');
    await assay.sshd.changeHostKey();
    const { request } = await project.run();
    assert.equal(request.build_state, 'errored');
    assert.match(request.error as string, /host key of \S+ has changed.*known_hosts/);
    rmSync(join(assay.data, 'ssh', 'known_hosts'));
    assert.equal((await project.run()).state, 'passed', 'once the line is removed it works again');
  } finally {
    await assay.close();
  }
});

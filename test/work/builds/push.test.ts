// From `git push` over SSH to the verdict: a bare repository with the post-receive hook that the pages and the manual
// show.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { hookTokenFile, postReceiveScript } from '../../../src/domain/trigger/post-receive.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

let appliance: Appliance;
const place = mkdtempSync(join(tmpdir(), 'assay-push-'));
let counter = 0;

before(async () => {
  appliance = await startAppliance();
  const key = generateKeyPair('developer');
  appliance.sshd.addKey(key.publicKey);
  writeFileSync(join(place, 'key'), key.privateKey, { mode: 0o600 });
  writeFileSync(join(place, 'config'), appliance.sshd.clientConfig);
});
after(async () => {
  await appliance?.close();
  rmSync(place, { recursive: true, force: true });
});

/** A developer's clone. `git` returns what it printed, the messages of the hook included. */
async function cloneOf(url: string) {
  const directory = join(place, `clone-${++counter}`);
  const ssh = [
    `ssh -F ${join(place, 'config')} -i ${join(place, 'key')} -o IdentitiesOnly=yes -o BatchMode=yes`,
    `-o StrictHostKeyChecking=no -o LogLevel=ERROR -o UserKnownHostsFile=${join(place, 'known_hosts')}`,
  ].join(' ');
  // Not a synchronous call: the server that the hook calls is in this process.
  const git = async (...args: string[]): Promise<string> => {
    const { stdout, stderr } = await promisify(execFile)('git', args, {
      cwd: args[0] === 'clone' ? place : directory,
      env: {
        PATH: process.env.PATH,
        HOME: place,
        LC_ALL: 'C',
        GIT_SSH_COMMAND: ssh,
        GIT_AUTHOR_NAME: 'Ada',
        GIT_AUTHOR_EMAIL: 'ada@example.test',
        GIT_COMMITTER_NAME: 'Ada',
        GIT_COMMITTER_EMAIL: 'ada@example.test',
      },
      timeout: 60_000,
    });
    return (stdout + stderr).trim();
  };
  await git('clone', '--quiet', url, directory);
  return {
    git,
    /** Returns the hash. */
    async commit(message: string, content = `${++counter}`): Promise<string> {
      writeFileSync(join(directory, 'content'), content);
      await git('add', '--all');
      await git('commit', '--quiet', '--message', message);
      return git('rev-parse', 'HEAD');
    },
  };
}

const COMMAND =
  'echo "$ASSAY_TRIGGER, $ASSAY_TRIGGER_NAME, $ASSAY_BRANCH, $ASSAY_TAG, $ASSAY_COMMIT"; ! grep -q broken content';

/** A project with a suite and a trigger that has looked at the repository once, and a clone. */
async function start() {
  const project = await appliance.project();
  const suiteId = await project.suite({ command: COMMAND });
  const trigger = await project.ask('POST', '/triggers', { name: 'Push', trigger_type: 'push' });
  const firings = () =>
    project.ask('GET', `/triggers/${trigger.id_str}/firings`) as unknown as Promise<Wire[]>;
  /** The firing of that ref and hash once it has ended. */
  const firingOf = (ref: string, hash: string | null) =>
    appliance.committed(async () =>
      (await firings()).find(one => one.ref === ref && one.after === hash && one.outcome !== 'looking'),
    );
  const tokenPath = join(place, `token-${trigger.id_str}`);
  writeFileSync(tokenPath, hookTokenFile(trigger.secret as string), { mode: 0o600 });
  const script = postReceiveScript(trigger.url as string, join(appliance.data, 'tls/ca.pem'), tokenPath);
  writeFileSync(join(project.repository.directory, 'hooks/post-receive'), script, { mode: 0o755 });
  await appliance.committed(async () => (await firings()).find(({ reason }) => reason === 'first_look'));
  const requests = () => project.ask('GET', '/build_requests') as unknown as Promise<Wire[]>;
  /** What that push of a branch became: the request and, if it was built, the build and its log. */
  const built = async (ref: string, hash: string) => {
    const firing = await firingOf(ref, hash);
    assert.equal(firing.outcome, 'requested', String(firing.reason));
    const request = await project.finishedRequest(firing.build_request_id_str as string);
    const [build] = await project.buildsOf(request.id_str as string);
    return { firing, request, build, log: build ? await project.log(build.id_str as string) : '' };
  };
  return {
    project,
    suiteId,
    trigger,
    firings,
    firingOf,
    requests,
    built,
    clone: await cloneOf(project.repository.url),
  };
}

test('git push starts a build through the hook, and the pusher sees nothing of it', async () => {
  const { trigger, clone, built, requests } = await start();
  const good = await clone.commit('Good');
  assert.equal(await clone.git('push', '--quiet'), '');
  const passed = await built('refs/heads/main', good);
  assert.deepEqual(
    [passed.request.build_state, passed.request.trigger, passed.request.trigger_id_str],
    ['passed', 'push', trigger.id_str],
  );
  assert.ok(passed.log.includes(`push, Push, main, , ${good}\n`), passed.log);
  const bad = await clone.commit('Bad', 'broken');
  await clone.git('push', '--quiet');
  assert.equal((await built('refs/heads/main', bad)).request.build_state, 'failed');
  assert.equal((await requests()).length, 2);
});

test('one push of several branches builds each, a deleted branch builds nothing, a forced push builds the new commit', async () => {
  const { clone, built, firingOf, requests } = await start();
  const first = await clone.commit('First');
  await clone.git('branch', 'copy');
  await clone.git('switch', '--quiet', '--create', 'feature/a');
  const second = await clone.commit('Second');
  await clone.git('push', '--quiet', 'origin', 'main', 'copy', 'feature/a');
  for (const [branch, hash] of [
    ['main', first],
    ['copy', first],
    ['feature/a', second],
  ] as const) {
    const { request, log } = await built(`refs/heads/${branch}`, hash);
    assert.deepEqual([request.build_state, request.commit_ref], ['passed', branch]);
    assert.ok(log.includes(`push, Push, ${branch}, , ${hash}\n`), log);
  }
  await clone.git('push', '--quiet', 'origin', ':copy');
  const deleted = await firingOf('refs/heads/copy', null);
  assert.deepEqual([deleted.outcome, deleted.reason], ['ignored', 'deleted']);
  await clone.git('commit', '--quiet', '--amend', '--message', 'Second, again');
  const amended = await clone.git('rev-parse', 'HEAD');
  await clone.git('push', '--quiet', '--force', 'origin', 'feature/a');
  const forced = await built('refs/heads/feature/a', amended);
  assert.equal(forced.request.build_state, 'passed');
  assert.ok(forced.log.includes(`push, Push, feature/a, , ${amended}\n`), forced.log);
  assert.equal((await requests()).length, 4);
});

test('a tag is built only if the trigger names it, at the commit that it points at', async () => {
  const { project, trigger, clone, built, firings, requests } = await start();
  const hash = await clone.commit('Release');
  await clone.git('push', '--quiet');
  await built('refs/heads/main', hash);
  await clone.git('tag', 'v1.0');
  await clone.git('push', '--quiet', 'origin', 'v1.0');
  const [filtered] = await firings();
  assert.deepEqual(
    [filtered?.ref, filtered?.outcome, filtered?.reason],
    ['refs/tags/v1.0', 'ignored', 'filtered'],
  );
  assert.equal((await requests()).length, 1);
  await project.ask('PUT', `/triggers/${trigger.id_str}`, { 'options[tags]': 'v*' });
  await clone.git('tag', '--annotate', '--message', 'Version 1.1', 'v1.1');
  await clone.git('push', '--quiet', 'origin', 'v1.1');
  const { request, log } = await built('refs/tags/v1.1', hash);
  assert.equal(request.build_state, 'passed');
  assert.ok(log.includes(`push, Push, , v1.1, ${hash}\n`), log);
});

test('a commit with [skip ci] is skipped with the reason, and the next one is built', async () => {
  const { clone, built } = await start();
  const skipped = await clone.commit('Change a comment [skip ci]');
  await clone.git('push', '--quiet');
  const { request, build } = await built('refs/heads/main', skipped);
  assert.deepEqual([request.build_state, build], ['skipped', undefined]);
  assert.match(request.error as string, /\[skip ci\]/);
  const next = await clone.commit('Change the code');
  await clone.git('push', '--quiet');
  assert.equal((await built('refs/heads/main', next)).request.build_state, 'passed');
});

test('a suite with a rule about the trigger runs for a push, and not for a request of a person', async () => {
  const { project, suiteId, clone, built } = await start();
  const onPush = await project.suite({
    command: 'true',
    rules: [
      ['request.trigger', 'equals', 'push'],
      ['request.trigger_name', 'equals', 'Push'],
    ],
  });
  const hash = await clone.commit('Change');
  await clone.git('push', '--quiet');
  const { request } = await built('refs/heads/main', hash);
  const suites = (builds: Wire[]) => builds.map(build => build.suite_id_str).toSorted();
  assert.deepEqual(suites(await project.buildsOf(request.id_str as string)), [suiteId, onPush].toSorted());
  assert.deepEqual(suites((await project.run()).builds), [suiteId]);
});

test('a hook that is refused does not make the push fail, and the next look builds what it missed', async () => {
  const { project, trigger, clone, built } = await start();
  writeFileSync(join(place, `token-${trigger.id_str}`), hookTokenFile('whsec_wrong'));
  const hash = await clone.commit('Change');
  assert.match(await clone.git('push', '--quiet'), /^remote: curl: \(22\).*401/m);
  await project.ask('POST', `/triggers/${trigger.id_str}/fire`);
  assert.equal((await built('refs/heads/main', hash)).request.build_state, 'passed');
});

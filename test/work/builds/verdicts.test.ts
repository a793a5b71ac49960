// How a build ends: by its command, by the service, or by a person.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { findBuild } from '../../../src/store/builds.ts';
import { recordImage } from '../../../src/store/images.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

describe('A build', { concurrency: 4 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 4, timeoutMs: 20_000, memoryBytes: 64 * 1024 * 1024 });
  });
  after(() => assay.close());

  test('passes when its command exits with 0, and so do its request, commit and project', async () => {
    const project = await assay.project();
    const { build, log, request } = await project.runOne({ command: 'cat README.md; echo done' });
    assert.equal(build.build_state, 'passed');
    assert.equal(build.exit_code, 0);
    assert.match(log, /^\[assay\] checkout of [0-9a-f]{40}\n\[assay\] suite .*\nHello\ndone\n$/);
    assert.equal(request.build_state, 'passed');
    const commit = await project.ask('GET', `/commits/${request.commit_id_str}`);
    assert.equal(commit.build_state, 'passed');
    assert.equal((await project.ask('GET', '')).build_state, 'passed');
    const times = ['created_at', 'started_at', 'finished_at'].map(name => build[name] as string);
    assert.deepEqual(times.toSorted(), times);
  });

  test('records how long its steps took', async () => {
    const project = await assay.project();
    const { build } = await project.runOne({ command: 'sleep 1; echo a >/srv/artifacts/a' });
    const row = findBuild(assay.app.db, BigInt(project.id), BigInt(build.id_str as string));
    assert.ok(row?.steps);
    const { prepare, checkout, command, collect, ...others } = row.steps;
    assert.deepEqual(others, {});
    // A busy server sees the beginnings of two steps at once: then the first one has 0 ms.
    for (const ms of [prepare, checkout, collect]) assert.ok(Number(ms) >= 0, JSON.stringify(row.steps));
    assert.ok(Number(command) > 0, JSON.stringify(row.steps));
    const whole = Object.values(row.steps).reduce((sum, ms) => sum + ms, 0);
    assert.ok(whole <= (row.finishedAt ?? 0) - (row.startedAt ?? 0), 'they follow each other');
  });

  test('fails with the exit status of its command, and one failure fails the request', async () => {
    const project = await assay.project();
    const passing = await project.suite({ command: 'true' });
    const failing = await project.suite({ command: 'echo no >&2; exit 42' });
    const killed = await project.suite({ command: 'kill -TERM $$' });
    const ran = await project.run();
    assert.equal(ran.state, 'failed');
    assert.equal(ran.of(passing).build.build_state, 'passed');
    assert.equal(ran.of(failing).build.build_state, 'failed');
    assert.equal(ran.of(failing).build.exit_code, 42);
    assert.match(ran.of(failing).log, /no\n\[assay\] the command exited with 42\n$/);
    assert.equal(ran.of(killed).build.build_state, 'failed');
    assert.equal(ran.of(killed).build.exit_code, 128 + 15);
  });

  test('is failed, and its log says so, when its command runs out of memory', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: `python3 -c 'x = bytearray(256 * 1024 * 1024)'`,
    });
    assert.equal(build.build_state, 'failed');
    assert.equal(build.exit_code, 137);
    assert.match(log, /\[assay\] out of memory/);
  });

  test('is errored, with the reason, when its image is missing', async () => {
    const project = await assay.project();
    recordImage(assay.app.db, 'nobody/has-this:1', 'sha256:1');
    const { build, log, request } = await project.runOne({ command: 'true', image: 'nobody/has-this:1' });
    assert.equal(build.build_state, 'errored');
    assert.equal(build.exit_code, null);
    assert.match(log, /\[assay\] .*no image nobody\/has-this:1.*assay image import/);
    assert.equal(request.build_state, 'errored');
  });

  test("is errored when the checkout fails, with git's message in its log", async () => {
    const long = 'x'.repeat(300);
    const project = await assay.project(assay.repository({ files: { [long]: 'too long a name' } }));
    const { build, log } = await project.runOne({ command: 'true' });
    assert.equal(build.build_state, 'errored');
    assert.equal(build.exit_code, null);
    assert.match(log, /File name too long/);
    assert.match(log, /\[assay\] The checkout failed/);
  });

  test('stays readable when its suite is deleted, and cannot be rerun', async () => {
    const project = await assay.project();
    const { build, suiteId } = await project.runOne({ command: 'true' });
    await project.ask('DELETE', `/suites/${suiteId}`);
    assert.equal((await project.buildRecord(build.id_str as string)).build_state, 'passed');
    const path = `${project.path}/builds/${build.id_str}/rerun`;
    assert.equal((await assay.client.call('POST', path, { as: assay.as })).status, 404);
  });

  test('is canceled while it runs, and its container is removed', async () => {
    const project = await assay.project();
    await project.suite({ command: 'echo begun; exec sleep 1000' });
    const requestId = await project.request();
    const { id_str: buildId } = await project.buildOf(requestId);
    await project.logHas(buildId as string, 'begun');
    await project.cancel(`builds/${buildId}`);
    const build = await project.finishedBuild(buildId as string);
    assert.equal(build.build_state, 'canceled');
    assert.equal(build.exit_code, null);
    assert.match(await project.log(buildId as string), /begun\n\[assay\] canceled by owner@example\.org\n$/);
    assert.equal((await project.finishedRequest(requestId)).build_state, 'canceled');
    const again = await project.cancel(`builds/${buildId}`);
    assert.equal(again.build_state, 'canceled', 'canceling what has ended changes nothing');
  });

  test('is canceled with its request', async () => {
    const project = await assay.project();
    await project.suite({ command: 'echo begun; exec sleep 1000' });
    const requestId = await project.request();
    const { id_str: buildId } = await project.buildOf(requestId);
    await project.logHas(buildId as string, 'begun');
    await project.cancel(`build_requests/${requestId}`);
    assert.equal((await project.finishedRequest(requestId)).build_state, 'canceled');
    assert.equal((await project.buildRecord(buildId as string)).build_state, 'canceled');
  });

  test('is deleted with its project, including its container', async () => {
    const project = await assay.project();
    await project.suite({ command: 'echo begun; exec sleep 1000' });
    const { id_str: buildId } = await project.buildOf(await project.request());
    await project.logHas(buildId as string, 'begun');
    await project.ask('DELETE', '');
    await assay.containersUntil(names => !names.some(name => name.includes(buildId as string)));
    assert.equal((await assay.client.get(`${project.path}/builds/${buildId}`, assay.as)).status, 404);
  });

  test('is rerun on the same commit, in the same request, and the newest of a suite counts', async () => {
    const project = await assay.project();
    const flaky = await project.suite({
      command: 'test -e /srv/cache/second || { touch /srv/cache/second; exit 1; }',
    });
    const steady = await project.suite({ command: 'true' });
    const ran = await project.run();
    assert.equal(ran.state, 'failed');
    const requestId = ran.request.id_str as string;
    const again = await project.rerun(ran.of(flaky).build.id_str as string);
    assert.equal((await project.requestRecord(requestId)).build_state, 'building');
    assert.equal((await project.finishedBuild(again)).build_state, 'passed');
    assert.equal((await project.finishedRequest(requestId)).build_state, 'passed');
    const builds = await project.buildsOf(requestId);
    assert.equal(builds.length, 3, 'all of them are listed');
    assert.equal(builds[0]?.id_str, again, 'newest first');
    assert.equal(builds.filter(build => build.suite_id_str === steady).length, 1);
  });

  test('is skipped without suites, and when no rule holds; the commit records why', async () => {
    const bare = await assay.project();
    assert.equal((await bare.run()).state, 'skipped');

    const project = await assay.project(
      assay.repository({
        message: 'Fix the roof\n',
        files: { 'src/roof.c': '' },
        author: 'Ada <ada@example.org>',
      }),
    );
    const roof = await project.suite({
      name: 'roof',
      command: 'true',
      rules: [['commit.files', 'matches', 'src/*.c']],
    });
    await project.suite({
      name: 'docs',
      command: 'true',
      rules: [
        ['commit.author_name', 'equals', 'Ada'],
        ['commit.message', 'starts_with', 'Docs'],
      ],
    });
    const ran = await project.run();
    assert.equal(ran.state, 'passed');
    assert.deepEqual(
      ran.builds.map(build => build.suite_id_str),
      [roof],
    );
    const decisions = (await project.ask(
      'GET',
      `/commits/${ran.request.commit_id_str}/suites`,
    )) as unknown as Wire[];
    const docs = decisions.find(decision => decision.suite === 'docs');
    assert.equal(decisions.length, 2);
    assert.equal(docs?.runs, false);
    assert.deepEqual(
      ((docs?.rules ?? []) as Wire[]).map(rule => [rule.subject, rule.holds]),
      [
        ['commit.author_name', true],
        ['commit.message', false],
      ],
    );
    await project.ask('DELETE', `/suites/${roof}`);
    assert.equal((await project.run()).state, 'skipped');
  });

  test('sees its checkout, its variables, the reserved ones, and runs as an ordinary user', async () => {
    const project = await assay.project(undefined, { name: 'The roof' });
    const { build, log } = await project.runOne({
      name: 'Unit',
      command:
        'pwd; id -u; touch new && echo writable; for name in CI ASSAY ASSAY_PROJECT ASSAY_SUITE ASSAY_COMMIT ASSAY_BRANCH ASSAY_BUILD_ID HOME USER TERM LANG COLOUR EMPTY; do printf "%s=<%s>\\n" $name "$(printenv $name)"; done; touch $HOME/x && echo home',
      variables: { COLOUR: 'red  and\nblue', EMPTY: '' },
    });
    const hash = project.repository.hashes[0];
    const expected = `/srv/project
1000
writable
CI=<true>
ASSAY=<true>
ASSAY_PROJECT=<The roof>
ASSAY_SUITE=<Unit>
ASSAY_COMMIT=<${hash}>
ASSAY_BRANCH=<main>
ASSAY_BUILD_ID=<${build.id_str}>
HOME=</home/assay>
USER=<assay>
TERM=<dumb>
LANG=<C.UTF-8>
COLOUR=<***>
EMPTY=<>
home
`;
    assert.ok(log.endsWith(expected), log);
  });

  test('sees its own USER, TERM and LANG if its suite sets them', async () => {
    const project = await assay.project();
    const { log } = await project.runOne({
      command: '[ "$USER $TERM $LANG" = "someone xterm de_DE.UTF-8" ] && echo overridden',
      variables: { USER: 'someone', TERM: 'xterm', LANG: 'de_DE.UTF-8' },
    });
    assert.match(log, /^overridden$/m);
  });

  test('sees a variable of the greatest length, and programs see it as far as Linux allows', async () => {
    const project = await assay.project();
    const most = 131_072;
    const { build, log } = await project.runOne({
      command:
        'printf %s "$WHOLE" | wc -c; printenv FITS | wc -c; printenv WHOLE || echo not passed; printf "%s\\n" "$WHOLE"',
      variables: { WHOLE: 'w'.repeat(most), FITS: 'f'.repeat(most - 'FITS=\0'.length) },
    });
    assert.equal(build.build_state, 'passed', log.slice(-500));
    assert.ok(log.endsWith(`\n${most}\n${most - 'FITS=\0'.length + 1}\nnot passed\n***\n`), log.slice(-500));
  });
});

test('A build that takes too long is timed out, and keeps its output so far', async () => {
  const assay = await startAppliance({ timeoutMs: 10_000 });
  try {
    const project = await assay.project();
    const { build, log, request } = await project.runOne({ command: 'echo begun; sleep 1000 & wait' });
    assert.equal(build.build_state, 'timed_out');
    assert.equal(build.exit_code, null);
    assert.match(log, /begun\n\[assay\] stopped: it took longer than 10 s\n$/);
    assert.equal(request.build_state, 'errored');
  } finally {
    await assay.close();
  }
});

// Builds that triggers request: pinned commits, skip markers, tags, what suites see, and pull requests from forks.
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { TriggerOptions } from '../../../src/domain/trigger/trigger.ts';
import { findProject } from '../../../src/store/projects.ts';
import { observePull, observeRef } from '../../../src/store/trigger/firings.ts';
import { findAnyTrigger, type Trigger } from '../../../src/store/trigger/triggers.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Fields } from '../../support/client.ts';
import type { ProjectJourney, Repository } from '../../support/journey.ts';

const MAIN = 'refs/heads/main';
const SHOW =
  'echo "[$ASSAY_TRIGGER] [$ASSAY_TRIGGER_NAME] [$ASSAY_BRANCH] [$ASSAY_TAG] [$ASSAY_PULL_REQUEST]"';

suite('builds of triggers', { concurrency: 2 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 2 });
  });
  after(() => assay.close());

  /** A project with a push trigger that no forge calls. Its repository is not looked at. */
  const open = async (options: Partial<TriggerOptions['push']> = {}, repository?: Repository) => {
    const project = await assay.project(repository);
    const fields: Fields = { name: 'Forge', trigger_type: 'push', 'options[reconcile]': '0' };
    for (const [name, value] of Object.entries(options)) fields[`options[${name}]`] = String(value);
    const { id_str } = await project.ask('POST', '/triggers', fields);
    const { db } = assay.app;
    const row = findProject(db, BigInt(project.id))!;
    const trigger = findAnyTrigger(db, BigInt(id_str as string)) as Trigger;
    return {
      ...project,
      observe: (ref: string, after: string) =>
        observeRef(db, row, trigger, { ref, after }, { event: 'push' }),
      observePull: (number: number, ref: string, hash: string) =>
        observePull(db, row, trigger, { number, ref, hash }, { event: 'pull_request', pushedBy: 'mallory' }),
    };
  };
  const finished = async (project: ProjectJourney, id: bigint | null) => {
    const request = await project.finishedRequest(String(id));
    const [build] = await project.buildsOf(String(id));
    return { request, build, log: build ? await project.log(build.id_str as string) : '' };
  };

  test('a push builds the pushed commit, even if the branch has moved on', async () => {
    const project = await open();
    const pushed = project.repository.hashes[0] as string;
    project.repository.add({ message: 'Newer\n', files: { 'README.md': 'newer' } });
    await project.suite({ command: `cat README.md; ${SHOW}` });
    const { request, log } = await finished(project, project.observe(MAIN, pushed).buildRequestId);
    assert.equal(request.build_state, 'passed', log);
    assert.equal(request.trigger, 'push');
    assert.match(log, /^Hello$/m);
    assert.match(log, /^\[push\] \[Forge\] \[main\] \[\] \[\]$/m);
  });

  test('a commit that was overwritten before it could be fetched is skipped, with the reason', async () => {
    const project = await open();
    await project.suite({ command: 'true' });
    const gone = project.repository.hashes[0] as string;
    project.repository.add({ message: 'Other\n', parent: 'none', files: { 'README.md': 'other' } });
    const { request } = await finished(project, project.observe(MAIN, gone).buildRequestId);
    assert.equal(request.build_state, 'skipped');
    assert.match(request.error as string, /^main no longer contains the commit [0-9a-f]{12}: /);
    assert.equal(request.commit_id, null);
  });

  test('a marker in the message skips the push of a branch, but neither a tag nor a request of a person', async () => {
    const repository = assay.repository({ message: 'Fix a typo [skip ci]\n', files: { 'README.md': 'x' } });
    const project = await open({ tags: '*' }, repository);
    await project.suite({ command: SHOW });
    const [hash] = repository.hashes as [string];
    repository.git('tag', 'v1');
    const skipped = await finished(project, project.observe(MAIN, hash).buildRequestId);
    assert.equal(skipped.request.build_state, 'skipped');
    assert.equal(skipped.request.error, 'Skipped, because the commit message contains [skip ci].');
    const tagged = await finished(project, project.observe('refs/tags/v1', hash).buildRequestId);
    assert.equal(tagged.request.build_state, 'passed');
    assert.match(tagged.log, /^\[push\] \[Forge\] \[\] \[v1\] \[\]$/m);
    assert.equal((await project.run()).state, 'passed');
  });

  test('a rule on the trigger chooses the suites', async () => {
    const project = await open();
    const nightly = await project.suite({
      command: 'true',
      rules: [['request.trigger', 'equals', 'schedule']],
    });
    const pushed = await project.suite({
      command: 'true',
      rules: [['request.trigger_name', 'equals', 'Forge']],
    });
    const hash = project.repository.hashes[0] as string;
    const { request } = await finished(project, project.observe(MAIN, hash).buildRequestId);
    const ran = (await project.buildsOf(request.id_str as string)).map(build => build.suite_id_str);
    assert.deepEqual(ran, [pushed]);
    const schedule = await project.ask('POST', '/triggers', {
      name: 'Nightly',
      trigger_type: 'schedule',
      'options[cron]': '0 3 * * *',
      'options[branch]': 'main',
    });
    const fired = (await project.ask('POST', `/triggers/${schedule.id_str}/fire`)) as unknown as [
      { build_request_id_str: string },
    ];
    await project.finishedRequest(fired[0].build_request_id_str);
    const atNight = (await project.buildsOf(fired[0].build_request_id_str)).map(build => build.suite_id_str);
    assert.deepEqual(atNight, [nightly]);
  });

  test('a pull request from a fork gets no variables, no cache of the suite and no submodules', async () => {
    const project = await open({ pull_requests: true });
    await project.suite({
      command: `${SHOW}; echo "secret: [$TOKEN]"; ls /srv/cache; touch /srv/cache/poisoned; cat README.md`,
      variables: { TOKEN: 'only-for-members' },
    });
    const { repository } = project;
    const own = await project.run();
    assert.equal(own.state, 'passed');
    const before = repository.hashes[0] as string;
    const [hash] = repository.add({ message: 'Fork\n', files: { 'README.md': 'from the fork' } }) as [string];
    repository.git('update-ref', MAIN, before);
    repository.git('update-ref', 'refs/pull/7/head', hash);
    const firing = project.observePull(7, 'refs/pull/7/head', hash);
    const { request, log } = await finished(project, firing.buildRequestId);
    assert.equal(request.build_state, 'passed', log);
    assert.equal(request.pull_request, 7);
    assert.equal(request.pushed_by, 'mallory');
    assert.match(log, /^\[push\] \[Forge\] \[\] \[\] \[7\]$/m);
    assert.match(log, /^secret: \[\]\nfrom the fork$/m);
    assert.equal(project.observePull(7, 'refs/pull/7/head', hash).outcome, 'unchanged');
  });

  test('a pull request from a fork is built only if the trigger allows it', async () => {
    const project = await open();
    const firing = project.observePull(7, 'refs/pull/7/head', project.repository.hashes[0] as string);
    assert.deepEqual([firing.outcome, firing.reason], ['ignored', 'filtered']);
  });

  test('a pull request that the host no longer has is skipped', async () => {
    const project = await open({ pull_requests: true });
    await project.suite({ command: 'true' });
    const firing = project.observePull(8, 'refs/pull/8/head', 'f'.repeat(40));
    const { request } = await finished(project, firing.buildRequestId);
    assert.equal(request.build_state, 'skipped');
    assert.match(request.error as string, /^pull\/8 no longer contains the commit ffffffffffff: /);
  });
});

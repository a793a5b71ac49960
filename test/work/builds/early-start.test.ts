// Containers that are started while their commit is being fetched.
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { directoryUntil } from '../../support/directory.ts';
import type { ProjectJourney } from '../../support/journey.ts';

/** Only a container that was started early has this directory. */
const WAS_EARLY = 'ls /srv/.assay/begin';

describe('A container that is started early', { concurrency: 1 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 2 });
  });
  after(() => assay.close());

  /** A Git host whose fetches can be held. Before the first fetch, because its connection is kept. */
  const gateFor = (project: ProjectJourney) => {
    const gate = join(assay.data, `gate-${project.id}`);
    const open = () => writeFileSync(gate, '');
    open();
    assay.sshd.addKey(
      project.key,
      `until [ -e ${gate} ]; do sleep 0.05; done; exec sh -c "$SSH_ORIGINAL_COMMAND"`,
    );
    return { open, close: () => rmSync(gate) };
  };
  const nothingIsLeft = async () => {
    await assay.containersUntil(names => names.length === 0);
    await directoryUntil(join(assay.data, 'jobs'), names => names.length === 0, 'files of jobs are left');
  };

  test('runs what the suite and its variables are when the build starts, in the usual environment', async () => {
    const project = await assay.project();
    const git = gateFor(project);
    const command = "env | grep -vE ^'(ASSAY_BUILD_ID|HOSTNAME)=' | sort; id; pwd; git log --format=%s";
    const suite = await project.suite({ command, variables: { WORD: 'old' } });
    const before = (await project.run()).of(suite);
    project.repository.add({ message: 'Second\n', files: { a: '2' } });
    git.close();
    const requestId = await project.request();
    await assay.containersUntil(names => names.length === 1);
    const path = `/suites/${suite}/environment_variables`;
    const [variable] = (await project.ask('GET', path)) as unknown as { id_str: string }[];
    await project.ask('PUT', `${path}/${variable?.id_str}`, { content: 'new' });
    await project.ask('PUT', `/suites/${suite}`, { command: `${command}; ${WAS_EARLY}` });
    git.open();
    const request = await project.finishedRequest(requestId);
    assert.equal(request.build_state, 'passed');
    const [build] = await project.buildsOf(requestId);
    const log = await project.log(build?.id_str as string);
    assert.match(log, /^entry\npipe$/m);
    const plain = (text: string) =>
      text.replace(/^\[assay\].*\n/gm, '').replace(/^ASSAY_COMMIT=[0-9a-f]{40}$/m, 'ASSAY_COMMIT');
    const expected = plain(before.log).replace('WORD=old', 'WORD=new').replace('First', 'Second\nFirst');
    assert.equal(plain(log), `${expected}entry\npipe\n`);
    assert.match(
      log,
      new RegExp(`^ASSAY_COMMIT=${project.repository.git('rev-parse', 'main').trim()}$`, 'm'),
    );
    await nothingIsLeft();
  });

  test('is removed without having run anything if the rules of its suite do not hold', async () => {
    const project = await assay.project(
      assay.repository({ message: 'Run all\n', files: { 'README.md': 'Hello\n' } }),
    );
    const git = gateFor(project);
    const suite = await project.suite({
      command: 'echo x >>/srv/cache/runs; wc -l </srv/cache/runs',
      rules: [['commit.message', 'contains', 'Run all']],
    });
    await project.run();
    project.repository.add({ message: 'Run nothing\n', files: { a: '2' } });
    git.close();
    const requestId = await project.request();
    await assay.containersUntil(names => names.length === 1);
    git.open();
    assert.equal((await project.finishedRequest(requestId)).build_state, 'skipped');
    await nothingIsLeft();
    project.repository.add({ message: 'Run all again\n', files: { a: '3' } });
    assert.match((await project.run()).of(suite).log, /^2$/m);
  });

  test('is removed when its request is canceled or its suite deleted', async () => {
    const project = await assay.project();
    const git = gateFor(project);
    await project.suite({ command: 'true' });
    const suite = await project.suite({ command: 'true' });
    await project.run();
    git.close();
    const canceled = await project.request();
    await assay.containersUntil(names => names.length === 2);
    await project.cancel(`build_requests/${canceled}`);
    await nothingIsLeft();
    const requestId = await project.request();
    await assay.containersUntil(names => names.length === 2);
    await project.ask('DELETE', `/suites/${suite}`);
    git.open();
    assert.equal((await project.finishedRequest(requestId)).build_state, 'passed');
    assert.equal((await project.buildsOf(requestId)).length, 1);
    await nothingIsLeft();
  });

  test('gives way to builds of other projects, and its own build then gets another', async () => {
    const [slow, other] = [await assay.project(), await assay.project()];
    const git = gateFor(slow);
    const suites = [await slow.suite({ command: WAS_EARLY }), await slow.suite({ command: WAS_EARLY })];
    await slow.run();
    git.close();
    const requestId = await slow.request();
    await assay.containersUntil(names => names.length === 2);
    const gate = 'until [ -e /srv/cache/go ]; do sleep 0.05; done';
    await other.suite({ command: `echo ready; ${gate}` });
    const busy = await other.buildOf(await other.request());
    await other.logHas(busy.id_str as string, 'ready\n');
    const names = await assay.containersUntil(found => found.length === 2);
    assert.ok(names.some(name => name.endsWith(busy.id_str as string)));
    git.open();
    assert.equal((await slow.finishedRequest(requestId)).build_state, 'failed');
    const builds = await slow.buildsOf(requestId);
    const stateOf = (suite: string | undefined) =>
      builds.find(build => build.suite_id_str === suite)?.build_state;
    assert.deepEqual(suites.map(stateOf), ['passed', 'failed']);
    await other.cancel(`builds/${busy.id_str}`);
    await nothingIsLeft();
  });
});

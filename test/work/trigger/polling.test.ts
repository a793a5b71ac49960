// A repository without hooks: a push to it is noticed and built by polling alone.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { findAnyTrigger, type Trigger, updateTrigger } from '../../../src/store/trigger/triggers.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';
import { git } from '../../support/repository.ts';

let appliance: Appliance;
const directory = mkdtempSync(join(tmpdir(), 'assay-push-'));
before(async () => {
  appliance = await startAppliance();
});
after(async () => {
  await appliance.close();
  rmSync(directory, { recursive: true, force: true });
});

test('a push to a repository that is polled is built, without a hook', async () => {
  const project = await appliance.project();
  await project.suite({
    command: 'echo "$ASSAY_TRIGGER by $ASSAY_TRIGGER_NAME of $ASSAY_BRANCH"; test -f works',
  });
  const trigger = await project.ask('POST', '/triggers', {
    name: 'Watch',
    trigger_type: 'poll',
    'options[interval]': '30',
  });
  const path = `/triggers/${trigger.id_str}`;
  const firings = async () => (await project.ask('GET', `${path}/firings`)) as unknown as Wire[];
  const requested = (hash: string) =>
    appliance.committed(async () =>
      (await firings()).find(({ after, outcome }) => after === hash && outcome === 'requested'),
    );
  await appliance.committed(async () => (await firings()).find(({ reason }) => reason === 'first_look'));

  git(directory, 'clone', '--quiet', project.repository.directory, 'work');
  const push = (file: string) => {
    const work = join(directory, 'work');
    writeFileSync(join(work, file), '');
    git(work, 'add', '.');
    git(work, 'commit', '--quiet', '-m', `Add ${file}`);
    git(work, 'push', '--quiet', 'origin', 'HEAD:main');
    return git(work, 'rev-parse', 'HEAD');
  };
  const verdictOf = async (firing: Wire) => {
    const requestId = firing.build_request_id_str as string;
    const request = await project.finishedRequest(requestId);
    const [build] = await project.buildsOf(requestId);
    return { request, build: build as Wire, log: await project.log(build?.id_str as string) };
  };

  const first = push('other');
  // The interval has passed.
  const row = findAnyTrigger(appliance.app.db, BigInt(trigger.id_str as string)) as Trigger;
  updateTrigger(appliance.app.db, row, { nextAt: Date.now() });
  const failed = await verdictOf(await requested(first));
  assert.equal(failed.request.trigger, 'poll');
  assert.equal(failed.request.trigger_id_str, trigger.id_str);
  assert.equal((await project.ask('GET', `/commits/${failed.request.commit_id_str}`)).ref, first);
  assert.equal(failed.build.build_state, 'failed', failed.log);
  assert.match(failed.log, /^poll by Watch of main$/m);

  // Somebody who does not want to wait fires the trigger.
  const second = push('works');
  const fired = (await project.ask('POST', `${path}/fire`)) as unknown as Wire[];
  assert.ok(fired.some(({ after }) => after === second) || (await requested(second)));
  const passed = await verdictOf(await requested(second));
  assert.equal(passed.build.build_state, 'passed', passed.log);
  assert.equal(((await project.ask('GET', '/build_requests')) as unknown as Wire[]).length, 2);
});

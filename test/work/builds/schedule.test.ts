// A nightly suite: a schedule that is due is built in a container, and rules and commands see what started it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findAnyTrigger, updateTrigger } from '../../../src/store/trigger/triggers.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

let appliance: Appliance;
before(async () => {
  appliance = await startAppliance();
});
after(() => appliance.close());

test('a schedule builds the suites whose rules name it, and each request says what started it', async () => {
  const { db } = appliance.app;
  const project = await appliance.project();
  const nightly = await project.suite({
    name: 'nightly',
    command: 'echo "$ASSAY_TRIGGER, $ASSAY_TRIGGER_NAME, $ASSAY_BRANCH"',
    rules: [['request.trigger', 'equals', 'schedule']],
  });
  const always = await project.suite({ name: 'always', command: 'true' });
  const trigger = await project.ask('POST', '/triggers', {
    name: 'Every night',
    trigger_type: 'schedule',
    'options[cron]': '0 3 * * *',
    'options[branch]': 'main',
    'options[only_new]': 'true',
    'options[late]': '1440',
  });
  const firingsOf = () =>
    project.ask('GET', `/triggers/${trigger.id_str}/firings`) as unknown as Promise<Wire[]>;
  /** As if the planned time had just come. Returns the newest firing. */
  const makeDue = async (): Promise<Wire> => {
    const known = (await firingsOf()).length;
    const row = findAnyTrigger(db, BigInt(trigger.id_str as string))!;
    updateTrigger(db, row, { nextAt: Date.now() });
    return appliance.committed(async () => {
      const firings = await firingsOf();
      return firings.length > known ? firings[0] : undefined;
    });
  };

  const fired = await makeDue();
  assert.deepEqual(
    [fired.outcome, fired.event, fired.after],
    ['requested', 'schedule', project.repository.hashes[0]],
  );
  const requestId = fired.build_request_id_str as string;
  const request = await project.finishedRequest(requestId);
  assert.deepEqual(
    [request.build_state, request.trigger, request.trigger_id_str, request.created_by],
    ['passed', 'schedule', trigger.id_str, 'owner@example.org'],
  );
  const builds = await project.buildsOf(requestId);
  assert.deepEqual(new Set(builds.map(build => build.suite_id_str)), new Set([nightly, always]));
  const build = builds.find(({ suite_id_str }) => suite_id_str === nightly)!;
  assert.match(await project.log(build.id_str as string), /^schedule, Every night, main$/m);

  const byHand = await project.run('main');
  assert.deepEqual(
    byHand.builds.map(({ suite_id_str }) => suite_id_str),
    [always],
  );
  assert.equal((await makeDue()).outcome, 'unchanged');
});

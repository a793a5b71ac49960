// The error lines that real builds leave, and what is said about them later.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';

type SeenLine = { text: string; other_builds: number; first?: { build_id_str: string } };

describe('A build', () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 1 });
  });
  after(() => assay.close());

  test('that fails like an earlier one names it; one that passes has no error lines', async () => {
    const project = await assay.project();
    const suite = await project.suite({
      command: 'echo "$(date +%s) Error: cannot reach $SECRET_HOST"; exit $STATUS',
      variables: { SECRET_HOST: 'db.secret.example.org', STATUS: '1' },
    });
    const similarTo = async (id: unknown) =>
      (await project.ask('GET', `/builds/${id}/similar`)) as unknown as SeenLine[];
    const first = (await project.run()).of(suite).build.id_str;
    const [alone] = await similarTo(first);
    assert.equal(alone?.other_builds, 0);
    assert.match(alone?.text ?? '', /^\d+ Error: cannot reach \S+$/);
    assert.ok(!alone?.text.includes('db.secret'), 'it is masked as in the log');
    const second = (await project.run()).of(suite).build.id_str;
    const [again] = await similarTo(second);
    assert.equal(again?.other_builds, 1);
    assert.equal(again?.first?.build_id_str, first);
    const passing = await project.suite({ command: 'echo "Error: only printed"' });
    const passed = (await project.run()).of(passing).build.id_str;
    assert.deepEqual(await similarTo(passed), []);
  });
});

// `assay deploy`: the choice of strategy and commit, the question, and following the deploy.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ProjectJourney, Repository } from '../support/journey.ts';
import { type ClientWorld, startClientWorld } from './fixture.ts';

describe('assay deploy', () => {
  let world: ClientWorld;
  let project: ProjectJourney;
  let path: string;
  let target: Repository;
  const addStrategy = (name: string, url: string) =>
    project.ask('POST', '/deploy_strategies', {
      name,
      strategy_type: 'git',
      'options[repository_url]': url,
      'options[local_branch]': 'main',
      'options[remote_branch]': 'live',
    });
  const pushed = () => target.git('rev-parse', '--verify', '--quiet', 'live').trim();

  before(async () => {
    world = await startClientWorld();
    ({ project, path } = await world.checkout());
    target = world.repository();
    target.git('config', 'receive.denyCurrentBranch', 'ignore');
  });
  after(() => world.close());

  it('refuses what it cannot do, with the exit status for it', async () => {
    const none = await world.run(['deploy'], { in: path });
    assert.equal(none.status, 5);
    assert.match(none.stderr, /has no deploy strategy/);
    await addStrategy('Production', target.url);
    const unbuilt = await world.run(['deploy', '--yes'], { in: path });
    assert.equal(unbuilt.status, 5);
    assert.match(unbuilt.stderr, /no commit of the branch main has passed yet: "assay run main" builds it/);
    await project.suite({ name: 'unit', command: 'true' });
    assert.equal((await project.run()).state, 'passed');
    for (const [args, expected, message] of [
      [['deploy'], 2, /add --yes/],
      [['deploy', 'Nowhere'], 5, /no deploy strategy "Nowhere". There are:\n {2}\d+ {2}Production/],
      [['deploy', '--commit', 'no such'], 2, /is neither a hash nor a commit/],
      [['deploy', '--commit', '0123456789'], 5, /has not built the commit 0123456789/],
    ] as const) {
      const { status, stderr } = await world.run(args, { in: path });
      assert.equal(status, expected, stderr);
      assert.match(stderr, message);
    }
  });

  it('deploys the newest commit that passed, follows it, and exits with its result', async () => {
    const { status, stdout } = await world.run(['deploy', '--yes'], { in: path });
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^https:.*\/deploys\/\d+$/m);
    assert.match(stdout, /^\d\d:\d\d:\d\d Production: deployed after \d+ s$/m);
    assert.equal(pushed(), project.repository.hashes[0]);
    await addStrategy('Staging', world.sshd.urlFor('missing.git'));
    const choose = await world.run(['deploy'], { in: path });
    assert.equal(choose.status, 2);
    assert.match(choose.stderr, /choose a deploy strategy:\n {2}\d+ {2}(Staging|Production)\n/);
    const failed = await world.run(['deploy', 'staging', '--yes', '--commit', 'HEAD'], { in: path });
    assert.equal(failed.status, 1, failed.stdout);
    assert.match(failed.stdout, /Staging: failed after .*\n--- Staging\n\[assay\] deploy of /);
    const json = await world.run(['deploy', 'production', '--yes', '--json'], { in: path });
    assert.equal(JSON.parse(json.stdout.trimEnd().split('\n').at(-1) ?? '').deploy.state, 'deployed');
  });

  it('asks on a terminal, and does nothing after a no', async () => {
    const ask = async (answer: string) => {
      const running = await world.start(['deploy', 'Production', '--commit', 'HEAD'], {
        in: path,
        columns: 200,
      });
      await running.until(/Deploy \w{10} First to live of .* with Production\? \[y\/N\] /);
      running.type(answer);
      return running.ended;
    };
    const no = await ask('\n');
    assert.equal(no.status, 4);
    const yes = await ask('y\n');
    assert.equal(yes.status, 0);
    assert.match(yes.stdout, /deployed.* after \d+ s/);
  });
});

// `assay run`: what it prints through a pipe and on a terminal, its exit statuses, Ctrl-C, and remarks.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ProjectJourney } from '../support/journey.ts';
import { git } from '../support/repository.ts';
import { type ClientWorld, startClientWorld } from './fixture.ts';

/** The name of the branch decides what the suite does. */
const BY_BRANCH = `case $ASSAY_BRANCH in
fail) for i in $(seq 1 300); do echo "line $i."; done; exit 7 ;;
hang*) sleep 600 ;;
esac`;

describe('assay run', () => {
  let world: ClientWorld;
  let project: ProjectJourney;
  let path: string;
  before(async () => {
    world = await startClientWorld({ timeoutMs: 12_000, concurrency: 8 });
    const repository = world.repository();
    for (const branch of ['fail', 'hang', 'hang-2']) repository.git('branch', branch);
    ({ project, path } = await world.checkout(repository));
    await project.suite({ name: 'unit', command: BY_BRANCH });
    await project.suite({ name: 'lint', command: 'echo fine' });
  });
  after(() => world.close());

  it('exits with the status of the build', async () => {
    const empty = await world.checkout();
    const cancel = async () => {
      const running = await world.start(['run', 'hang-2'], { in: path });
      await running.until('unit: running');
      const [request] = (await project.ask('GET', '/build_requests?branch=hang-2')) as unknown as {
        id_str: string;
      }[];
      await project.cancel(`build_requests/${request?.id_str}`);
      return running.ended;
    };
    const [passed, failed, timedOut, errored, skipped, canceled] = await Promise.all([
      world.run(['run'], { in: path }),
      world.run(['run', 'fail'], { in: path }),
      world.run(['run', 'hang'], { in: path }),
      world.run(['run', 'no-such-branch'], { in: path }),
      world.run(['run'], { in: empty.path }),
      cancel(),
    ]);
    for (const [{ status, stdout, stderr }, expected, last] of [
      [passed, 0, 'main: passed'],
      [failed, 1, 'fail: failed'],
      [timedOut, 3, 'hang: errored'],
      [errored, 3, 'no-such-branch: errored ('],
      [skipped, 0, 'main: skipped (the rules of no suite match)'],
      [canceled, 4, 'hang-2: canceled'],
    ] as const) {
      assert.equal(status, expected, stdout + stderr);
      assert.match(stdout.trimEnd().split('\n').at(-1) ?? '', /^\d\d:\d\d:\d\d /);
      assert.ok(stdout.trimEnd().split('\n').at(-1)?.includes(last), stdout);
    }
    assert.match(timedOut.stdout, /unit: timed out after /);
    // Plain lines, the address of the page, then the end of the log.
    assert.doesNotMatch(failed.stdout, /[\x1b\r]/);
    assert.match(
      failed.stdout,
      new RegExp(`^${world.client.origin}/ui/projects/${project.id}/commits/\\d+$`, 'm'),
    );
    assert.match(failed.stdout, /^\d\d:\d\d:\d\d lint: passed after \d+ s$/m);
    assert.match(failed.stdout, /^\d\d:\d\d:\d\d unit: failed after \d+ s \(exit status 7\)$/m);
    assert.match(failed.stdout, /^--- unit: the end of the log; "assay logs \d+" prints all of it$/m);
    const numbers = [...failed.stdout.matchAll(/^line (\d+)\.$/gm)].map(([, number]) => Number(number));
    assert.deepEqual(
      numbers,
      Array.from({ length: numbers.length }, (_, at) => 301 - numbers.length + at),
    );
    assert.ok(numbers.length > 190 && numbers.length <= 200, `${numbers.length} lines`);
  });

  it('prints each change as JSON with --json, and nothing else', async () => {
    const { status, stdout, stderr } = await world.run(['run', 'fail', '--json'], { in: path });
    assert.equal(status, 1);
    assert.equal(stderr, '');
    const lines = stdout.trimEnd().split('\n');
    const records = lines.map(line => JSON.parse(line));
    const states = records.filter(({ suite }) => suite === 'unit').map(({ build }) => build.build_state);
    assert.equal(states.at(-1), 'failed');
    assert.ok(states.includes('running'));
    assert.equal(records.at(-1).build_request.build_state, 'failed');
    for (const line of lines) assert.match(line, /"id":(\d+),"id_str":"\1"/, 'ids are exact');
  });

  it('prints the address and leaves with --no-wait', async () => {
    const { status, stdout } = await world.run(['run', '--no-wait'], { in: path });
    assert.equal(status, 0);
    assert.equal(stdout, `${world.client.origin}/ui/projects/${project.id}/build_requests\n`);
    const json = await world.run(['run', '--no-wait', '--json'], { in: path });
    assert.equal(JSON.parse(json.stdout).commit_ref, 'main');
  });

  it('remarks that commits are not pushed', async () => {
    git(path, 'checkout', '--quiet', '-b', 'fail', 'origin/fail');
    for (const text of ['one', 'two']) {
      writeFileSync(join(path, 'new'), text);
      git(path, 'add', 'new');
      git(path, 'commit', '--quiet', '--message', text);
    }
    const ahead = await world.run(['run', '--no-wait'], { in: path });
    git(path, 'checkout', '--quiet', '-b', 'unknown');
    const unknown = await world.run(['run', '--no-wait'], { in: path });
    git(path, 'checkout', '--quiet', 'main');
    assert.match(
      ahead.stderr,
      /^assay: 2 commits of fail are not pushed: the server builds what the remote has/,
    );
    assert.match(unknown.stderr, /^assay: unknown has not been pushed from here: /);
    const outside = await world.run(['run', '--project', project.id], { in: world.directory });
    assert.equal(outside.status, 2);
    assert.match(outside.stderr, /name a branch/);
  });
});

// The queue: slots, fairness, waiting, and the cache of a suite.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { nextInTurn, type Waiting } from '../../../src/domain/fair-queue.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

test('A new job waits behind at most one job of each other project', () => {
  // Any number of jobs for any number of others; the new one comes at any moment.
  for (const others of [1, 2, 5])
    for (const before of [0, 1, 7, 50]) {
      const servedAt = new Map<string, number>();
      let served = 0;
      let id = 0n;
      const jobs = new Map(
        Array.from({ length: others }, (_, index) => [
          `other ${index}`,
          Array.from({ length: 100 }, () => ++id),
        ]),
      );
      const serve = (): string => {
        const waiting = [...jobs].flatMap(([owner, [first]]): Waiting[] =>
          first === undefined ? [] : [{ owner, enqueuedAt: first }],
        );
        const next = nextInTurn(waiting, servedAt);
        assert.ok(next);
        servedAt.set(next.owner, ++served);
        jobs.get(next.owner)?.shift();
        return next.owner;
      };
      for (let index = 0; index < before; index++) serve();
      jobs.set('newcomer', [++id]);
      const order = Array.from({ length: others + 1 }, serve);
      assert.ok(order.includes('newcomer'), `${others} others, after ${before}: ${order}`);
    }
});

describe('The queue', () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 1 });
  });
  after(() => assay.close());

  test('runs the only build of a project before the second of one with a hundred, and shows who waits and why', async () => {
    const [busy, single] = [await assay.project(), await assay.project()];
    const gate = 'while ! test -e /srv/cache/go; do sleep 0.05; done; touch /srv/cache/go';
    await busy.suite({ command: `test "$ASSAY_BRANCH" = main || exit 0; echo begun; ${gate}` });
    // Nine more suites, so that ten requests make a hundred builds.
    for (let index = 0; index < 9; index++) await busy.suite({ command: 'true' });
    await single.suite({ command: 'true' });
    busy.repository.git('branch', 'other', 'main');
    const first = await busy.request();
    const blocker = await busy.until(async () =>
      (await busy.buildsOf(first)).find(build => build.build_state === 'running'),
    );
    for (let index = 0; index < 9; index++) await busy.request('other');
    const waiting = async () =>
      ((await busy.buildsOf(first)) as Wire[]).filter(build => build.build_state === 'enqueued');
    const queued = await busy.until(async () => {
      const list = await waiting();
      return list.length === 9 && list;
    });
    const lastOne = queued[0] as Wire;
    assert.equal((lastOne.waiting as Wire).reason, 'All 1 slots are taken.');
    assert.equal((lastOne.waiting as Wire).position, 9, 'of its own project it is the ninth');

    const requestId = await single.request();
    const { id_str: buildId } = await single.buildOf(requestId);
    const { waiting: place } = await single.buildRecord(buildId as string);
    assert.deepEqual(place, { position: 2, reason: 'All 1 slots are taken.' });

    // Canceled while it waits: at once, and it never runs.
    const canceled = await busy.cancel(`builds/${lastOne.id_str}`);
    assert.equal(canceled.build_state, 'canceled');
    assert.equal(canceled.started_at, null);
    assert.equal('waiting' in canceled, false);

    await busy.cancel(`builds/${blocker.id_str}`);
    await single.finishedRequest(requestId);
    const started = (await busy.ask('GET', '/events?limit=1000')) as unknown as Wire[];
    const before = started.filter(
      event => event.type === 'build.started' && (event.build as Wire).id_str !== blocker.id_str,
    );
    const singleStarted = (await single.buildRecord(buildId as string)).started_at as string;
    const ahead = before.filter(event => ((event.build as Wire).started_at as string) < singleStarted);
    assert.ok(ahead.length <= 1, `${ahead.length} of the other's builds went first`);
    for (const request of (await busy.ask('GET', '/build_requests')) as unknown as Wire[])
      await busy.cancel(`build_requests/${request.id_str}`);
  });

  test('keeps /srv/cache between the builds of a suite, and separate from other suites', async () => {
    const project = await assay.project();
    const counting = await project.suite({
      command: 'echo x >>/srv/cache/count; wc -l </srv/cache/count',
    });
    const other = await project.suite({ command: 'ls /srv/cache | wc -l' });
    const first = await project.run();
    const second = await project.run();
    assert.match(first.of(counting).log, /\n1\n$/);
    assert.match(second.of(counting).log, /\n2\n$/);
    assert.match(second.of(other).log, /\n0\n$/);
  });
});

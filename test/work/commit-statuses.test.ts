// Commit statuses: what four stand-in forges receive, for every way a request can end, and what failures do.
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Forge, forges, type StatusOptions } from '../../src/domain/commit-status.ts';
import {
  type Build,
  type BuildRequest,
  createBuildRequest,
  enqueueBuilds,
  overwriteCommit,
  recordCommit,
  rerunBuild,
} from '../../src/store/builds.ts';
import { cancelBuild } from '../../src/store/cancels.ts';
import {
  createNotification,
  findNotification,
  pingNotification,
  redeliver,
  updateNotification,
} from '../../src/store/notifications.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { commitFields } from '../support/app.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { type StandInForge, startForge, TOKEN } from '../support/forge.ts';
import { openWebhookFixture } from '../support/webhook-fixture.ts';

const limited = { timeout: 120_000 };
const HASH = 'a'.repeat(40);
type Fixture = ReturnType<typeof openWebhookFixture>;

async function open(t: TestContext, kind: Forge, options: Partial<StatusOptions> = {}) {
  const fixture = openWebhookFixture(t);
  const forge = await startForge(kind, { onCall: fixture.noticed });
  t.after(() => forge.close());
  const notification = report(fixture, forge, kind, options);
  return { fixture, forge, notification };
}

function report(fixture: Fixture, forge: StandInForge, kind: Forge, options: Partial<StatusOptions> = {}) {
  return createNotification(fixture.db, {
    projectId: fixture.project.id,
    name: 'commit_status',
    notifiableType: 'build',
    url: forge.url,
    signingSecret: TOKEN,
    statusOptions: { forge: kind, repository: 'team/website', contexts: 'both', ...options },
  });
}

const pinned = (hash = HASH) => ({ pinned: hash, pinnedRef: 'refs/heads/main', trigger: 'push' as const });

/** The first steps of a request: its builds are queued, one for each suite. */
function begin(fixture: Fixture, suites: string[], hash = HASH): { request: BuildRequest; builds: Build[] } {
  const { db, project } = fixture;
  const request = createBuildRequest(db, project, 'main', 'ada@example.org');
  moveRequest(db, request.id, 'fetch');
  return fetched(fixture, request, suites, hash);
}

function fetched(
  { db, project }: Fixture,
  request: BuildRequest,
  suites: string[],
  hash = HASH,
  error?: string,
) {
  const commit = recordCommit(db, project.id, commitFields(hash));
  const decisions = suites.map((suiteName, at) => ({
    suiteId: BigInt(at + 1),
    suiteName,
    runs: true,
    rules: [],
  }));
  const moved = enqueueBuilds(db, request.id, commit, 'main', decisions, {
    tag: '',
    ...(error && { error }),
  });
  assert.ok(moved);
  return { request: moved, builds: listBuildsOfRequest(db, request.id).reverse() };
}

const finish = (
  { db }: Fixture,
  build: Build | undefined,
  event: 'pass' | 'fail' | 'error' | 'time_out' | 'cancel',
) => {
  assert.ok(build);
  moveBuild(db, build.id, 'start');
  moveBuild(db, build.id, event, { exitCode: event === 'fail' ? 1 : 0 });
};

/** Waits until nothing of the notification is pending. Not everything that ends a delivery is an outcome. */
async function settled(fixture: Fixture, notification: { id: bigint }): Promise<void> {
  while (fixture.deliveriesOf(notification).some(({ state }) => state === 'pending'))
    await new Promise(setImmediate);
}

/** Every way a request can end, and the last state of each context by the names of GitHub. */
const ends: Record<string, { last: Record<string, string>; run: (fixture: Fixture) => void }> = {
  'all suites pass': {
    last: { assay: 'success', 'assay/unit': 'success', 'assay/lint': 'success' },
    run: fixture => {
      for (const build of begin(fixture, ['unit', 'lint']).builds) finish(fixture, build, 'pass');
    },
  },
  'one suite fails': {
    last: { assay: 'failure', 'assay/unit': 'failure', 'assay/lint': 'success' },
    run: fixture => {
      const { builds } = begin(fixture, ['unit', 'lint']);
      finish(fixture, builds[0], 'fail');
      finish(fixture, builds[1], 'pass');
    },
  },
  'a suite errors': {
    last: { assay: 'error', 'assay/unit': 'error' },
    run: fixture => finish(fixture, begin(fixture, ['unit']).builds[0], 'error'),
  },
  'a suite errors before it starts': {
    last: { assay: 'error', 'assay/unit': 'error' },
    run: fixture => {
      moveBuild(fixture.db, begin(fixture, ['unit']).builds[0]!.id, 'error', { error: 'No such image.' });
    },
  },
  'a suite times out': {
    last: { assay: 'error', 'assay/unit': 'error' },
    run: fixture => finish(fixture, begin(fixture, ['unit']).builds[0], 'time_out'),
  },
  'a running suite and a queued one are canceled': {
    last: { assay: 'error', 'assay/unit': 'error', 'assay/lint': 'error' },
    run: fixture => {
      const { builds } = begin(fixture, ['unit', 'lint']);
      finish(fixture, builds[0], 'cancel');
      cancelBuild(fixture.db, builds[1]!.id, 'by ada@example.org');
    },
  },
  'no suite runs for the commit': { last: { assay: 'success' }, run: fixture => void begin(fixture, []) },
  'the commit message skips it': {
    last: { assay: 'success' },
    run: fixture => {
      const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org', pinned());
      moveRequest(fixture.db, request.id, 'fetch');
      fetched(fixture, request, [], HASH, 'Skipped, because the commit message contains [skip ci].');
    },
  },
  'a pushed commit is gone before it is fetched': {
    last: { assay: 'success' },
    run: fixture => {
      const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org', pinned());
      moveRequest(fixture.db, request.id, 'fetch');
      moveRequest(fixture.db, request.id, 'skip', { error: 'main no longer contains the commit.' });
    },
  },
  'a pushed commit cannot be fetched': {
    last: { assay: 'error' },
    run: fixture => {
      const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org', pinned());
      moveRequest(fixture.db, request.id, 'fetch');
      moveRequest(fixture.db, request.id, 'error', { error: 'The host is down.' });
    },
  },
  'a pushed commit is canceled before it is fetched': {
    last: { assay: 'error' },
    run: fixture => {
      const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org', pinned());
      moveRequest(fixture.db, request.id, 'cancel');
    },
  },
  'it errors before its hash is known': {
    last: {},
    run: fixture => {
      const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org');
      moveRequest(fixture.db, request.id, 'error', { error: 'No such branch.' });
    },
  },
  'a failed suite passes in a rerun': {
    last: { assay: 'success', 'assay/unit': 'success', 'assay/lint': 'success' },
    run: fixture => {
      const { builds } = begin(fixture, ['unit', 'lint']);
      finish(fixture, builds[0], 'fail');
      finish(fixture, builds[1], 'pass');
      finish(fixture, rerunBuild(fixture.db, builds[0]!, { id: 1n, name: 'unit' }), 'pass');
    },
  },
  'Docker loses a build, which then runs again': {
    last: { assay: 'success', 'assay/unit': 'success' },
    run: fixture => {
      const [build] = begin(fixture, ['unit']).builds;
      moveBuild(fixture.db, build!.id, 'start');
      moveBuild(fixture.db, build!.id, 'requeue');
      finish(fixture, build, 'pass');
    },
  },
  'a later request for the same commit runs nothing, and hides no failure': {
    last: { assay: 'failure', 'assay/unit': 'failure' },
    run: fixture => {
      const { builds } = begin(fixture, ['unit']);
      const later = createBuildRequest(fixture.db, fixture.project, 'other', 'ada@example.org', pinned());
      moveRequest(fixture.db, later.id, 'fetch');
      fetched(fixture, later, []);
      finish(fixture, builds[0], 'fail');
    },
  },
  'a later request for the same commit is skipped after a failure': {
    last: { assay: 'failure', 'assay/unit': 'failure' },
    run: fixture => {
      finish(fixture, begin(fixture, ['unit']).builds[0], 'fail');
      const later = createBuildRequest(fixture.db, fixture.project, 'other', 'ada@example.org', pinned());
      moveRequest(fixture.db, later.id, 'fetch');
      fetched(fixture, later, []);
    },
  },
  'two requests for the same commit overlap, and the newer one decides': {
    last: { assay: 'failure', 'assay/unit': 'failure' },
    run: fixture => {
      const older = begin(fixture, ['unit']).builds[0];
      finish(fixture, begin(fixture, ['unit']).builds[0], 'fail');
      finish(fixture, older, 'pass');
    },
  },
};

const statesOf = (forge: StandInForge, hash = HASH) =>
  Object.fromEntries(
    [...forge.states]
      .filter(([key]) => key.startsWith(hash))
      .map(([key, states]) => [key.slice(41), states.at(-1) ?? '']),
  );

for (const [name, { last, run }] of Object.entries(ends))
  for (const kind of forges)
    test(`${kind}: every context ends when ${name}`, limited, async t => {
      const { fixture, forge, notification } = await open(t, kind);
      fixture.begin();
      run(fixture);
      await settled(fixture, notification);
      assert.deepEqual(forge.unfinished(), []);
      assert.deepEqual(Object.keys(statesOf(forge)).sort(), Object.keys(last).sort());
      if (kind === 'github' || kind === 'gitea') assert.deepEqual(statesOf(forge), last);
      assert.ok(
        fixture
          .deliveriesOf(notification)
          .every(({ state }) => state === 'delivered' || state === 'superseded'),
      );
    });

test(
  'a commit that a force push replaces while it is built still ends under its own hash',
  limited,
  async t => {
    const { fixture, forge, notification } = await open(t, 'github');
    fixture.begin();
    const { builds, request } = begin(fixture, ['unit']);
    overwriteCommit(fixture.db, request.commitId as bigint, commitFields('b'.repeat(40)));
    const newer = begin(fixture, ['unit'], 'b'.repeat(40));
    finish(fixture, newer.builds[0], 'pass');
    finish(fixture, builds[0], 'fail');
    await settled(fixture, notification);
    assert.deepEqual(statesOf(forge), { assay: 'failure', 'assay/unit': 'failure' });
    assert.deepEqual(statesOf(forge, 'b'.repeat(40)), { assay: 'success', 'assay/unit': 'success' });
  },
);

test('states arrive in order, one at a time for each context', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitlab');
  fixture.begin();
  const all = (length: number) =>
    fixture.until(() => forge.accepted.length === length).then(() => settled(fixture, notification));
  const { builds } = begin(fixture, ['unit', 'lint']);
  await all(3);
  moveBuild(fixture.db, builds[0]!.id, 'start');
  await all(5);
  moveBuild(fixture.db, builds[1]!.id, 'start');
  await all(6);
  moveBuild(fixture.db, builds[0]!.id, 'pass');
  await all(7);
  moveBuild(fixture.db, builds[1]!.id, 'fail', { exitCode: 3 });
  await all(9);
  assert.deepEqual(Object.fromEntries(forge.states), {
    [`${HASH} assay`]: ['pending', 'running', 'failed'],
    [`${HASH} assay/unit`]: ['pending', 'running', 'success'],
    [`${HASH} assay/lint`]: ['pending', 'running', 'failed'],
  });
  assert.deepEqual([...new Set(forge.answers)], [201]);
  const { projectId, commitId } = { projectId: fixture.project.id, commitId: builds[0]!.commitId };
  const [final, lint] = ['assay', 'assay/lint'].map(context =>
    forge.accepted.findLast(({ name }) => name === context),
  );
  assert.match(String(final?.description), /^1 of 2 suites passed; lint failed, \d+ s$/);
  assert.equal(final?.target_url, `https://ci.example.org/ui/projects/${projectId}/commits/${commitId}`);
  assert.match(String(lint?.description), /^Failed with exit code 3 after \d+ s$/);
  assert.equal(lint?.target_url, `https://ci.example.org/ui/projects/${projectId}/builds/${builds[1]!.id}`);
  assert.ok(forge.accepted.every(({ ref }) => ref === 'main'));
});

test('only the chosen contexts are reported', limited, async t => {
  for (const [contexts, expected] of [
    ['rollup', ['assay']],
    ['suites', ['assay/unit']],
  ] as const) {
    const { fixture, forge, notification } = await open(t, 'gitea', { contexts });
    fixture.begin();
    finish(fixture, begin(fixture, ['unit']).builds[0], 'pass');
    await settled(fixture, notification);
    assert.deepEqual(Object.keys(statesOf(forge)), expected);
    await fixture.stop();
  }
});

for (const kind of forges)
  test(
    `${kind}: a forge that was down gets one call for each context, and older states are superseded`,
    limited,
    async t => {
      const { fixture, forge: down, notification } = await open(t, kind);
      await down.close();
      fixture.begin();
      const { builds } = begin(fixture, ['unit', 'lint']);
      await fixture.until(() => fixture.outcomes.length > 0);
      for (const build of builds) finish(fixture, build, 'pass');
      const tried = () => fixture.deliveriesOf(notification).filter(({ attempts }) => attempts > 0);
      await fixture.until(() => tried().length >= 2);

      const up = await startForge(kind, { port: down.port, onCall: fixture.noticed });
      down.close = up.close;
      fixture.jump(10_000);
      await fixture.until(() => up.accepted.length === 3);
      await settled(fixture, notification);
      const passed = [kind === 'bitbucket' ? 'SUCCESSFUL' : 'success'];
      assert.deepEqual(Object.fromEntries(up.states), {
        [`${HASH} assay`]: passed,
        [`${HASH} assay/unit`]: passed,
        [`${HASH} assay/lint`]: passed,
      });
      const states = fixture.deliveriesOf(notification).map(({ state }) => state);
      assert.equal(states.filter(state => state === 'delivered').length, 3);
      assert.equal(states.filter(state => state === 'superseded').length, states.length - 3);
    },
  );

test('a pushed commit is pending before it is fetched, on the branch that was pushed', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitlab');
  fixture.begin();
  const request = createBuildRequest(fixture.db, fixture.project, 'main', 'ada@example.org', pinned());
  await settled(fixture, notification);
  assert.deepEqual(
    forge.accepted.map(({ name, state, ref, description }) => ({ name, state, ref, description })),
    [{ name: 'assay', state: 'pending', ref: 'main', description: 'Fetching the commit' }],
  );
  // The hash of a tag may be that of a tag object, which has no statuses.
  createBuildRequest(fixture.db, fixture.project, 'v1', 'ada@example.org', {
    ...pinned('b'.repeat(40)),
    pinnedRef: 'refs/tags/v1',
  });
  moveRequest(fixture.db, request.id, 'cancel');
  await settled(fixture, notification);
  assert.deepEqual(Object.fromEntries(forge.states), { [`${HASH} assay`]: ['pending', 'canceled'] });
});

test('a newer state waits for the answer to the one before it', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitea', { contexts: 'rollup' });
  const { promise, resolve: release } = Promise.withResolvers<void>();
  forge.hold = promise;
  fixture.begin();
  const { builds } = begin(fixture, ['unit']);
  await fixture.until(() => forge.arrived.length === 1);
  finish(fixture, builds[0], 'fail');
  assert.deepEqual(
    fixture.deliveriesOf(notification).map(({ state }) => state),
    ['superseded', 'superseded', 'pending'],
  );
  release();
  await settled(fixture, notification);
  assert.deepEqual(forge.arrived, ['pending', 'failure']);
  assert.deepEqual(
    fixture.deliveriesOf(notification).map(({ state }) => state),
    ['delivered', 'superseded', 'delivered'],
    'the first one arrived, although it was superseded meanwhile',
  );
});

test('GitLab refuses a state that it already has, which counts as delivered', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitlab', { contexts: 'rollup' });
  fixture.begin();
  finish(fixture, begin(fixture, ['unit']).builds[0], 'pass');
  await settled(fixture, notification);
  redeliver(fixture.db, fixture.deliveriesOf(notification)[0]!);
  await fixture.until(() => forge.answers.includes(400));
  await settled(fixture, notification);
  const newest = fixture.deliveriesOf(notification).at(-1);
  assert.deepEqual([newest?.state, newest?.responseStatus, newest?.lastError], ['delivered', 400, null]);
  assert.deepEqual(forge.states.get(`${HASH} assay`)?.at(-1), 'success', 'the newest state was sent again');
});

test('a Bitbucket that does not know CANCELLED gets FAILED', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'bitbucket', { contexts: 'rollup' });
  forge.fault = ({ state }) => (state === 'CANCELLED' ? { status: 400, body: { errors: [] } } : undefined);
  fixture.begin();
  finish(fixture, begin(fixture, ['unit']).builds[0], 'cancel');
  await settled(fixture, notification);
  assert.equal(statesOf(forge).assay, 'FAILED');
  assert.equal(fixture.deliveriesOf(notification).at(-1)?.state, 'delivered');
});

for (const status of [401, 403])
  test(`${status} disables the notification, and a new token sends what is missing`, limited, async t => {
    const { fixture, forge, notification } = await open(t, 'github');
    const current = () => findNotification(fixture.db, fixture.project.id, notification.id)!;
    forge.fault = (_, { headers }) =>
      headers.authorization === `Bearer ${TOKEN}`
        ? { status, body: { message: headers.authorization } }
        : undefined;
    fixture.begin();
    const { builds } = begin(fixture, ['unit', 'lint']);
    await settled(fixture, notification);
    assert.equal(forge.answers.length, 1, 'the forge counts failed logins');
    assert.equal(current().enabled, false);
    assert.match(current().disabledBecause ?? '', new RegExp(`^the forge responded with ${status}: `));
    for (const build of builds) finish(fixture, build, 'pass');
    redeliver(fixture.db, fixture.deliveriesOf(notification).at(-1)!);
    await settled(fixture, notification);
    assert.equal(forge.answers.length, 1, 'nothing is sent while it is disabled');
    const excerpts = fixture.deliveriesOf(notification).map(one => `${one.responseExcerpt} ${one.lastError}`);
    assert.ok(excerpts.some(text => text.includes('Bearer ***')));
    assert.ok(!excerpts.join().includes(TOKEN) && !fixture.logged.join().includes(TOKEN));

    forge.fault = (_, { headers }) => {
      assert.equal(headers.authorization, 'Bearer another-token-0123');
      headers.authorization = `Bearer ${TOKEN}`;
      return undefined;
    };
    updateNotification(fixture.db, current(), {
      url: forge.url,
      signingSecret: 'another-token-0123',
      statusOptions: current().statusOptions!,
    });
    await settled(fixture, notification);
    assert.deepEqual(statesOf(forge), { assay: 'success', 'assay/unit': 'success', 'assay/lint': 'success' });
    assert.deepEqual([current().enabled, current().disabledBecause], [true, null]);
  });

test('404 is retried for some minutes, other refusals fail at once', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitea', { contexts: 'rollup' });
  let isKnown = false;
  forge.fault = () => (isKnown ? undefined : { status: 404 });
  fixture.begin();
  begin(fixture, []);
  await fixture.until(() => fixture.outcomes.length === 1);
  assert.equal(fixture.deliveriesOf(notification)[0]?.state, 'pending');
  isKnown = true;
  fixture.jump(6_500);
  await settled(fixture, notification);
  assert.equal(statesOf(forge).assay, 'success');

  isKnown = false;
  begin(fixture, [], 'b'.repeat(40));
  for (let attempt = 1; attempt <= 5; attempt++) {
    await fixture.until(() => forge.answers.length === attempt + 2);
    await fixture.until(() => fixture.outcomes.length === attempt + 2);
    fixture.jump(800_000);
  }
  assert.equal(fixture.deliveriesOf(notification).at(-1)?.state, 'failed');

  forge.fault = () => ({ status: 422, body: { message: 'No commit found' } });
  begin(fixture, [], 'c'.repeat(40));
  await settled(fixture, notification);
  const failed = fixture.deliveriesOf(notification).at(-1);
  assert.deepEqual(
    [failed?.state, failed?.attempts, failed?.lastError],
    ['failed', 1, 'the forge responded with 422'],
  );
  assert.equal(findNotification(fixture.db, fixture.project.id, notification.id)?.enabled, true);
});

for (const [name, answer] of Object.entries({
  'Retry-After of 429': () => ({ status: 429, headers: { 'retry-after': '120' } }),
  'the reset time of GitHub with 403': () => ({
    status: 403,
    headers: {
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': String(Math.ceil(Date.now() / 1000) + 120),
    },
  }),
}))
  test(`${name} delays the next call to the forge`, limited, async t => {
    const { fixture, forge, notification } = await open(t, 'github', { contexts: 'rollup' });
    forge.fault = answer;
    fixture.begin();
    begin(fixture, []);
    await fixture.until(() => fixture.outcomes.length === 1);
    const [delivery] = fixture.deliveriesOf(notification);
    const waitMs = delivery!.nextAttemptAt! - fixture.db.now();
    assert.ok(waitMs > 60_000 && waitMs <= 121_000, `${waitMs}`);
    assert.equal(findNotification(fixture.db, fixture.project.id, notification.id)?.enabled, true);
  });

test('a test sends the newest status again, and is refused while there is none', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'github');
  fixture.begin();
  assert.throws(() => pingNotification(fixture.db, notification), /resource_temporary_unavailable/);
  assert.deepEqual(fixture.deliveriesOf(notification), []);
  finish(fixture, begin(fixture, ['unit']).builds[0], 'fail');
  await settled(fixture, notification);
  const before = forge.accepted.length;
  pingNotification(fixture.db, notification);
  await settled(fixture, notification);
  assert.deepEqual(
    forge.accepted
      .slice(before)
      .map(({ context, state }) => `${context} ${state}`)
      .sort(),
    ['assay failure', 'assay/unit failure'],
  );
});

test('the state change and its delivery are one transaction, and a new server sends it', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitlab', { contexts: 'rollup' });
  assert.throws(() =>
    fixture.db.write(() => {
      begin(fixture, ['unit']);
      throw new Error('the transaction fails');
    }),
  );
  assert.deepEqual(fixture.deliveriesOf(notification), []);
  const { builds } = begin(fixture, ['unit']);
  fixture.begin();
  await settled(fixture, notification);
  await fixture.stop();
  finish(fixture, builds[0], 'pass');
  fixture.begin();
  await settled(fixture, notification);
  assert.deepEqual(forge.states.get(`${HASH} assay`), ['pending', 'success']);
});

test('webhooks and statuses of one project do not disturb each other', limited, async t => {
  const { fixture, forge, notification } = await open(t, 'gitea');
  const { url, received } = await fixture.receiver();
  const hook = fixture.notify(url);
  fixture.begin();
  finish(fixture, begin(fixture, ['unit']).builds[0], 'pass');
  await settled(fixture, notification);
  await settled(fixture, hook);
  assert.equal(received.length, 5, 'request and build: queued, started, finished');
  assert.ok(fixture.deliveriesOf(hook).every(({ status }) => status === null));
  assert.ok(fixture.deliveriesOf(notification).every(({ status }) => status !== null));
  assert.deepEqual(forge.unfinished(), []);
});

// Commit statuses: contexts, descriptions, what each forge gets, and how its answers are classified.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type CommitStatus,
  checkForgeRepository,
  classifyForgeResponse,
  contextKey,
  defaultForgeOptions,
  describeBuild,
  describeRequest,
  descriptionOf,
  type Forge,
  forgeRequests,
  forges,
  isNewState,
  type StatusState,
  statusStates,
  suiteContext,
} from '../../src/domain/commit-status.ts';
import type { TestCounts } from '../../src/domain/result/test-result.ts';

const commit = 'a'.repeat(40);
const status = (more: Partial<CommitStatus> = {}): CommitStatus => ({
  context: 'assay/unit',
  commit,
  state: 'passed',
  description: 'Passed after 3 s',
  url: 'https://ci.example.org/ui/projects/1/builds/2',
  ref: 'refs/heads/main',
  number: '2',
  durationMs: 3_000,
  ...more,
});
const sent = (forge: Forge, one: CommitStatus) => {
  const [request] = forgeRequests(
    { forge, repository: 'team/web site', contexts: 'both' },
    { url: 'https://forge.example.org/api/', token: 'secret' },
    one,
  );
  assert.ok(request);
  return { ...request, body: JSON.parse(request.body) as Record<string, unknown> };
};

const names: Record<StatusState, [github: string, gitlab: string, bitbucket: string]> = {
  pending: ['pending', 'pending', 'INPROGRESS'],
  running: ['pending', 'running', 'INPROGRESS'],
  passed: ['success', 'success', 'SUCCESSFUL'],
  failed: ['failure', 'failed', 'FAILED'],
  errored: ['error', 'failed', 'FAILED'],
  timed_out: ['error', 'failed', 'FAILED'],
  canceled: ['error', 'canceled', 'CANCELLED'],
  skipped: ['success', 'success', 'SUCCESSFUL'],
};

test('each state has the name that each forge knows', () => {
  for (const state of statusStates)
    assert.deepEqual(
      forges.map(forge => sent(forge, status({ state })).body.state),
      [names[state][0], names[state][0], names[state][1], names[state][2]],
      state,
    );
});

test('each forge gets its own path, credentials and fields', () => {
  const common = { target_url: status().url, description: 'Passed after 3 s', state: 'success' };
  assert.deepEqual(sent('github', status()), {
    url: `https://forge.example.org/api/repos/team/web%20site/statuses/${commit}`,
    headers: { authorization: 'Bearer secret', accept: 'application/vnd.github+json' },
    body: { ...common, context: 'assay/unit' },
  });
  assert.deepEqual(sent('gitea', status()), {
    url: `https://forge.example.org/api/repos/team/web%20site/statuses/${commit}`,
    headers: { authorization: 'token secret' },
    body: { ...common, context: 'assay/unit' },
  });
  assert.deepEqual(sent('gitlab', status()), {
    url: `https://forge.example.org/api/projects/team%2Fweb%20site/statuses/${commit}`,
    headers: { 'private-token': 'secret' },
    body: { ...common, name: 'assay/unit', ref: 'main' },
  });
  assert.deepEqual(sent('bitbucket', status()), {
    url: `https://forge.example.org/api/projects/team/repos/web%20site/commits/${commit}/builds`,
    headers: { authorization: 'Bearer secret' },
    body: {
      key: 'assay/unit',
      name: 'assay/unit',
      state: 'SUCCESSFUL',
      url: status().url,
      description: 'Passed after 3 s',
      buildNumber: '2',
      ref: 'refs/heads/main',
      duration: 3_000,
    },
  });
  const bare = status({ ref: undefined, durationMs: undefined });
  assert.equal('ref' in sent('gitlab', bare).body, false);
  assert.deepEqual(Object.keys(sent('bitbucket', bare).body).includes('duration'), false);
});

test('a Bitbucket that does not know CANCELLED gets FAILED', () => {
  const options = { forge: 'bitbucket', repository: 'a/b', contexts: 'both' } as const;
  const states = (state: StatusState) =>
    forgeRequests(options, { url: 'https://x', token: 't' }, status({ state })).map(
      ({ body }) => (JSON.parse(body) as { state: string }).state,
    );
  assert.deepEqual(states('canceled'), ['CANCELLED', 'FAILED']);
  assert.deepEqual(states('failed'), ['FAILED']);
});

test('GitHub gets no emoji, which it refuses, and contexts stay distinct without them', () => {
  const of = (context: string) => sent('github', status({ context, description: '🚀 fast ✓ 👩‍🚒' })).body;
  assert.equal(of('assay/unit').description, ' fast ✓ ');
  assert.equal(of('assay/unit').context, 'assay/unit');
  assert.match(String(of('assay/🚀').context), /^assay\/~[0-9a-f]{8}$/);
  assert.notEqual(of('assay/🚀').context, of('assay/🐛').context);
  assert.equal(sent('gitea', status({ context: 'assay/🚀' })).body.context, 'assay/🚀');
});

test('a description has at most 140 characters on one line, and no part of an emoji or a letter', () => {
  assert.equal(descriptionOf('a\n b\t\u0007c '), 'a b c');
  assert.equal(descriptionOf('x'.repeat(140)), 'x'.repeat(140));
  assert.equal(descriptionOf('x'.repeat(141)), `${'x'.repeat(139)}…`);
  for (const character of ['👩‍👩‍👧‍👦', '🇩🇪', 'e\u0301', '👍🏽'])
    for (let before = 125; before <= 140; before++) {
      const cut = descriptionOf('x'.repeat(before) + character.repeat(10));
      assert.ok(cut.length <= 140 && cut.isWellFormed(), `${before} ${cut}`);
      assert.match(cut, new RegExp(`^x+(?:${character})*…$`, 'u'), `${before} ${character}`);
    }
});

test('a context has at most 255 characters, and long names of suites stay distinct', () => {
  assert.equal(suiteContext('Unit tests'), 'assay/Unit tests');
  const [one, two] = [suiteContext(`${'x'.repeat(250)}1`), suiteContext(`${'x'.repeat(250)}2`)];
  assert.ok(one.length <= 255 && two.length <= 255);
  assert.notEqual(one, two);
});

test('contexts of a commit have their own numbers, which fit into the database', () => {
  const keys = ['a', 'b'].flatMap(letter =>
    ['assay', 'assay/unit'].map(context => contextKey({ context, commit: letter.repeat(40) })),
  );
  assert.equal(new Set(keys).size, 4);
  for (const key of keys) assert.ok(key >= 0n && key < 1n << 63n);
});

test('only a change of the state is reported, and a running context does not go back to pending', () => {
  assert.equal(isNewState(undefined, 'pending'), true);
  assert.equal(isNewState('pending', 'pending'), false);
  assert.equal(isNewState('running', 'pending'), false);
  assert.equal(isNewState('passed', 'pending'), true);
  assert.equal(isNewState('pending', 'passed'), true);
});

test('defaults follow from the address of the repository', () => {
  const table: [Forge, string, string, string][] = [
    ['github', 'git@github.com:team/site.git', 'https://api.github.com', 'team/site'],
    ['github', 'git@ghe.example.org:team/site.git', 'https://ghe.example.org/api/v3', 'team/site'],
    ['gitea', 'git@git.example.org:/team/site.git', 'https://git.example.org/api/v1', 'team/site'],
    ['gitlab', 'git@git.example.org:a/b/c.git', 'https://git.example.org/api/v4', 'a/b/c'],
    ['bitbucket', 'git@bb.example.org:KEY/site.git', 'https://bb.example.org/rest/api/latest', 'KEY/site'],
  ];
  for (const [forge, address, url, repository] of table)
    assert.deepEqual(defaultForgeOptions(forge, address), { url, repository }, address);
});

test('a repository has the form that its forge uses', () => {
  for (const forge of ['github', 'gitea', 'bitbucket'] as const) {
    for (const good of ['team/site', '~ada/site']) assert.equal(checkForgeRepository(forge, good), undefined);
    for (const bad of ['', 'site', 'a/b/c', '/site', 'team/', '../site', 'team/..'])
      assert.equal(checkForgeRepository(forge, bad), 'invalid_format', bad);
  }
  for (const good of ['17', 'a/b', 'a/b/c/d']) assert.equal(checkForgeRepository('gitlab', good), undefined);
  for (const bad of ['', 'site', 'a//b', 'a/../b'])
    assert.equal(checkForgeRepository('gitlab', bad), 'invalid_format');
});

test('answers are delivered, retried or failed, and a refused token disables the notification', () => {
  const classify = (answer: { status?: number; excerpt?: string; retryAfterMs?: number }, attempts = 0) =>
    classifyForgeResponse({ responseMs: 1, excerpt: '', ...answer }, attempts);
  for (const code of [200, 201, 204]) assert.equal(classify({ status: code }).outcome, 'delivered');
  assert.equal(
    classify({ status: 400, excerpt: '{"message":"Cannot transition status via :run from :running"}' })
      .outcome,
    'delivered',
  );
  for (const code of [undefined, 408, 429, 500, 502, 503])
    assert.equal(classify(code === undefined ? {} : { status: code }).outcome, 'retry', `${code}`);
  assert.equal(classify({ status: 429, retryAfterMs: 60_000 }).retryAfterMs, 60_000);
  assert.equal(classify({ status: 403, retryAfterMs: 60_000 }).outcome, 'retry', 'a limit of GitHub');
  assert.deepEqual(
    [0, 1, 2, 3, 4].map(attempts => classify({ status: 404 }, attempts).outcome),
    ['retry', 'retry', 'retry', 'retry', 'failed'],
  );
  for (const code of [301, 400, 405, 409, 410, 413, 422]) {
    const { outcome, disableBecause } = classify({ status: code });
    assert.deepEqual([outcome, disableBecause], ['failed', undefined], `${code}`);
  }
  for (const code of [401, 403])
    assert.match(classify({ status: code }).disableBecause ?? '', new RegExp(`${code}`));
});

test('descriptions say how many suites passed, which did not, and how long it took', () => {
  const build = (suiteName: string, state: 'passed' | 'failed' | 'timed_out' | 'enqueued' | 'running') => ({
    suiteName,
    state,
    tests: null,
  });
  const request = { error: null, durationMs: 72_000 };
  assert.equal(
    describeRequest({ ...request, state: 'failed' }, [
      build('unit', 'failed'),
      build('lint', 'passed'),
      build('e2e', 'timed_out'),
    ]),
    '1 of 3 suites passed; unit failed; e2e timed out, 1 m 12 s',
  );
  assert.equal(
    describeRequest({ ...request, state: 'passed' }, [build('unit', 'passed')]),
    '1 suite passed, 1 m 12 s',
  );
  assert.equal(
    describeRequest({ ...request, state: 'building' }, [build('unit', 'enqueued')]),
    '1 suite queued',
  );
  assert.equal(
    describeRequest({ ...request, state: 'building' }, [build('unit', 'running'), build('lint', 'enqueued')]),
    'Running 2 suites',
  );
  assert.equal(describeRequest({ ...request, state: 'skipped' }, []), 'No suite runs for this commit');
  assert.equal(
    describeRequest({ ...request, state: 'skipped', error: 'Skipped by the commit message' }, []),
    'Skipped by the commit message',
  );
  const one = { suiteName: 'unit', exitCode: 2, error: null, durationMs: 3_720_000, tests: null };
  assert.equal(describeBuild({ ...one, state: 'failed' }), 'Failed with exit code 2 after 1 h 2 m');
  assert.equal(describeBuild({ ...one, state: 'errored', error: 'No image' }), 'Errored: No image');
});

test('descriptions count new test failures', () => {
  const counts = (passed: number, failed: number, errored: number, newFailures: number): TestCounts => ({
    passed,
    failed,
    errored,
    skipped: 9,
    newFailures,
    fixed: 0,
    flaky: 0,
  });
  const one = { suiteName: 'unit', exitCode: 1, error: null, durationMs: 2000 };
  const described = (state: 'passed' | 'failed' | 'timed_out' | 'errored', tests: TestCounts) =>
    describeBuild({ ...one, state, tests });
  assert.equal(
    described('failed', counts(50, 2, 1, 1)),
    'Failed with exit code 1 after 2 s: 1 new test failure, 2 known',
  );
  assert.equal(
    described('failed', counts(50, 2, 1, 3)),
    'Failed with exit code 1 after 2 s: 3 new test failures',
  );
  assert.equal(
    described('failed', counts(50, 1, 0, 0)),
    'Failed with exit code 1 after 2 s: no new test failures, 1 known',
  );
  assert.equal(
    described('failed', counts(50, 0, 0, 0)),
    'Failed with exit code 1 after 2 s: 50 tests passed',
  );
  assert.equal(described('passed', counts(1204, 0, 0, 0)), 'Passed after 2 s: 1,204 tests passed');
  assert.equal(described('timed_out', counts(1, 1, 0, 1)), 'Timed out after 2 s: 1 new test failure');
  const request = { state: 'failed' as const, error: null, durationMs: 72_000 };
  assert.equal(
    describeRequest(request, [
      { suiteName: 'unit', state: 'failed', tests: counts(5, 1, 1, 1) },
      { suiteName: 'e2e', state: 'failed', tests: counts(5, 1, 0, 1) },
      { suiteName: 'lint', state: 'passed', tests: null },
    ]),
    '1 of 3 suites passed; 2 new test failures, 1 known; unit, e2e failed, 1 m 12 s',
  );
  assert.equal(
    describeRequest(request, [{ suiteName: 'unit', state: 'failed', tests: counts(5, 0, 0, 0) }]),
    '0 of 1 suite passed; unit failed, 1 m 12 s',
  );
});

// The search in logs over the API: which lines, of which builds, in which pages, for whom.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { markLogsDeleted } from '../../../src/store/cleanup/sweep.ts';
import { buildLogPath } from '../../../src/store/data/paths.ts';
import { findProject } from '../../../src/store/projects.ts';
import { makeLogFilter } from '../../../src/store/result/log-filter.ts';
import { createLogSearch } from '../../../src/store/result/search-builds.ts';
import { createSuite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { bootApp, commitFields, type Planted, type TestApp } from '../../support/app.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { errors } from '../../support/client.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

let made = 0;
/** A build that prints the text. It is running unless it has an end. */
async function addBuild(
  text: string | Buffer,
  options: { branch?: string; suiteId?: bigint; end?: 'pass' | 'fail'; in?: Planted } = {},
): Promise<string> {
  const { db } = app;
  const where = options.in ?? planted;
  const branch = options.branch ?? 'main';
  const project = findProject(db, where.project_id);
  assert.ok(project);
  const id = db.write(() => {
    const request = createBuildRequest(db, project, branch, 'owner@example.org');
    const commit = recordCommit(db, project.id, commitFields(`${++made}`.padStart(40, 'b')));
    moveRequest(db, request.id, 'fetch');
    const suiteId = options.suiteId ?? where.suite_id;
    enqueueBuilds(db, request.id, commit, branch, [
      { suiteId, suiteName: 'Unit tests', runs: true, rules: [] },
    ]);
    const [build] = listBuildsOfRequest(db, request.id);
    assert.ok(build);
    moveBuild(db, build.id, 'start');
    return build.id;
  });
  await app.writeLog(id, text);
  if (options.end) {
    moveBuild(db, id, options.end, { exitCode: options.end === 'pass' ? 0 : 1 });
    await makeLogFilter(buildLogPath(app.data, id));
  }
  return id.toString();
}

const searchPath = (query: Record<string, string>) =>
  `/projects/${planted.project_id}/search?${new URLSearchParams(query)}`;
const search = (query: Record<string, string>, as = app.people.owner.as) =>
  app.client.get(searchPath(query), as);
async function findLines(query: Record<string, string>) {
  const answer = await search(query);
  assert.equal(answer.status, 200, answer.text);
  return answer.list.map(found => `${found.build_id_str} ${found.line} ${found.text}`);
}

describe('A search', () => {
  test('finds lines of finished and running builds, newest build first', async () => {
    const passed = await addBuild('one\nalpha: Connection refused\n', { end: 'pass' });
    const failed = await addBuild('\x1b[31mAlpha: connection\x1b[0m refused\n', {
      end: 'fail',
      branch: 'next',
    });
    const running = await addBuild('\n\nalpha: connection refused');
    const { list } = await search({ q: 'alpha: connection refused' });
    assert.deepEqual(
      list.map(({ build_id_str, line, offset, text, build_state, branch }) => [
        build_id_str,
        line,
        offset,
        text,
        build_state,
        branch,
      ]),
      [
        [running, 3, 2, 'alpha: connection refused', 'running', 'main'],
        [failed, 1, 0, 'Alpha: connection refused', 'failed', 'next'],
        [passed, 2, 4, 'alpha: Connection refused', 'passed', 'main'],
      ],
    );
  });

  test('finds a line in a long log with its filter', async () => {
    const lines = Array.from({ length: 60_000 }, (_, at) => `beta line ${at + 1} of the log`);
    lines[50_000] = 'beta found it';
    const id = await addBuild(lines.join('\n'), { end: 'fail' });
    assert.deepEqual(await findLines({ q: 'BETA FOUND' }), [`${id} 50001 beta found it`]);
    assert.deepEqual(await findLines({ q: 'BETA FOUND', case: 'true' }), []);
  });

  test('selects by suite, branch, state and time', async () => {
    const other = createSuite(app.db, {
      projectId: planted.project_id,
      name: 'Other',
      description: '',
      command: 'true',
      image: null,
    });
    const first = await addBuild('gamma', { end: 'pass', branch: 'next' });
    const second = await addBuild('gamma', { end: 'fail', suiteId: other.id });
    const buildsOf = async (query: Record<string, string>) =>
      (await search({ q: 'gamma', ...query })).list.map(found => found.build_id_str);
    assert.deepEqual(await buildsOf({}), [second, first]);
    assert.deepEqual(await buildsOf({ suite_id: `${other.id}` }), [second]);
    assert.deepEqual(await buildsOf({ branch: 'next' }), [first]);
    assert.deepEqual(await buildsOf({ state: 'failed' }), [second]);
    assert.deepEqual(await buildsOf({ since: '2020-01-01' }), [second, first]);
    assert.deepEqual(await buildsOf({ since: new Date(Date.now() + 60_000).toISOString() }), []);
  });

  test('shows at most five lines of a build, and continues with the next page', async () => {
    const ids = [
      await addBuild('delta\n'.repeat(9)),
      await addBuild('delta\n'.repeat(9)),
      await addBuild('delta'),
    ];
    const all = await search({ q: 'delta' });
    assert.equal(all.list.length, 11);
    assert.equal(all.headers.link, undefined);
    const pages: unknown[][] = [];
    for (let path: string | undefined = searchPath({ q: 'delta', limit: '5' }); path; ) {
      const answer = await app.client.get(path, app.people.owner.as);
      pages.push(answer.list.map(found => found.build_id_str));
      path = /<https:\/\/[^/]+([^>]+)>; rel="next"/.exec(answer.headers.link ?? '')?.[1];
    }
    const [first, second, third] = ids;
    assert.deepEqual(pages, [[third], Array(5).fill(second), Array(5).fill(first), []]);
    assert.equal((await search({ q: 'delta', limit: '2' })).list.length, 1);
  });

  test('refuses texts that are too short, too long or more than a line', async () => {
    for (const q of ['ab', 'a'.repeat(201), 'one\ntwo', 'a\u0000bc', '\x1b[31m'])
      assert.deepEqual((await search({ q })).json, errors('q', 'invalid_format'), JSON.stringify(q));
    assert.deepEqual((await search({ q: ' ' })).json, errors('q', 'is_blank'));
    for (const [name, value] of Object.entries({
      state: 'gone',
      since: 'yesterday',
      suite_id: 'x',
      case: 'no',
    }))
      assert.deepEqual(
        (await search({ q: 'abc', [name]: value })).json,
        errors(name, 'invalid_format'),
        name,
      );
    assert.equal((await search({ q: 'a'.repeat(200) })).status, 200);
    assert.equal((await search({ q: 'a\tb' })).status, 200);
  });

  test('finds nothing in another project, and no suite of it', async () => {
    const foreign = app.plant(app.people.stranger);
    const id = await addBuild('epsilon', { in: foreign });
    const mine = await addBuild('epsilon');
    assert.deepEqual(await findLines({ q: 'epsilon' }), [`${mine} 1 epsilon`]);
    assert.notEqual(id, mine);
    const answer = await search({ q: 'epsilon', suite_id: `${foreign.suite_id}` });
    assert.deepEqual([answer.status, answer.json], [404, errors('suite_id', 'not_found')]);
  });
});

test('a search that takes too long ends with a page that says where to continue', async () => {
  const { db, data } = app;
  const filler = Buffer.alloc(24 * 1024 * 1024, 'some text without the word that is searched\n');
  const oldest = await addBuild('zeta');
  for (let at = 0; at < 4; at += 1) await addBuild(filler);
  const started = performance.now();
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 1);
  const options = {
    text: 'zeta',
    isCaseSensitive: false,
    projectId: planted.project_id,
    limit: 10,
    mayRead: () => true,
    signal: new AbortController().signal,
  };
  const { search: run } = createLogSearch({ db, dataDirectory: data, searchMs: 1 });
  const pages = [await run(1n, options)];
  for (let next = pages[0]?.next; next !== undefined; next = pages.at(-1)?.next)
    pages.push(await run(1n, { ...options, before: next }));
  clearInterval(timer);
  assert.ok(pages.length >= 4, `${pages.length} pages`);
  assert.deepEqual(
    pages.flatMap(({ found }) => found.map(({ build }) => build.id.toString())),
    [oldest],
  );
  assert.ok(turns > 20, `${turns} turns for others in ${performance.now() - started} ms`);
  // The tests below are not to search these logs.
  markLogsDeleted(db, BigInt(await addBuild('')));
});

test('few searches run at once, others wait, and too many are refused', async () => {
  await addBuild(Buffer.alloc(1024 * 1024, 'theta\n'));
  const answers = await Promise.all(Array.from({ length: 60 }, () => search({ q: 'no such theta' })));
  const statuses = answers.map(({ status }) => status);
  assert.ok(statuses.filter(status => status === 200).length >= 2);
  for (const { status, json } of answers)
    if (status !== 200)
      assert.deepEqual([status, json], [403, errors('generic', 'resource_temporary_unavailable')]);
  assert.equal((await search({ q: 'no such theta' })).status, 200, 'the slots are free again');
});

test('a search ends when its client has gone', async () => {
  await addBuild(Buffer.alloc(4 * 1024 * 1024, 'iota\n'));
  const sent = request(`${app.url}${searchPath({ q: 'no such iota' })}`, {
    ca: app.client.ca,
    headers: { authorization: app.people.owner.as },
  });
  sent.on('error', () => {});
  sent.end();
  await once(sent, 'finish');
  sent.destroy();
  assert.equal((await search({ q: 'no such iota' })).status, 200);
});

test('builds whose logs have expired are not looked for', async () => {
  const id = await addBuild('kappa');
  assert.equal((await findLines({ q: 'kappa' })).length, 1);
  markLogsDeleted(app.db, BigInt(id));
  assert.deepEqual(await findLines({ q: 'kappa' }), []);
});

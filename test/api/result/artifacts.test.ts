// The artifacts of builds over the API: lists, content, ranges, conditions, ZIPs, keeping and deleting.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { request } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { buildFilesPath } from '../../../src/store/data/paths.ts';
import { findProject } from '../../../src/store/projects.ts';
import { listBuildArtifacts } from '../../../src/store/result/build-artifacts.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { bootApp, commitFields, type Planted, type TestApp } from '../../support/app.ts';
import { addArtifacts } from '../../support/artifacts.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { errors } from '../../support/client.ts';
import { collectGarbage } from '../../support/garbage.ts';

const text = Buffer.from('The roof is tight. '.repeat(40_000));
const noise = randomBytes(300_000);
const files = {
  'coverage/index.html': '<h1>98 %</h1>',
  'coverage-old.txt': 'old',
  'a.txt': text,
  'noise.bin': noise,
  'empty.txt': '',
  'Größe "1".txt': 'ä',
};

let app: TestApp;
let planted: Planted;
let base: string;
const sha256 = (bytes: string | Buffer) => createHash('sha256').update(bytes).digest('hex');
const get = (path: string, headers: Record<string, string> = {}) =>
  app.client.call('GET', path, { as: app.people.owner.as, headers });
const byPath = (path: string, headers: Record<string, string> = {}) =>
  get(`${base}/artifact?path=${encodeURIComponent(path)}`, headers);

before(async () => {
  app = await bootApp();
  planted = app.plant();
  base = `/projects/${planted.project_id}/builds/${planted.build_id}`;
  await addArtifacts(app.db, app.data, planted.build_id, files);
});
after(() => app.close());

test('the list has every artifact in order of path, and its pages contain each once', async () => {
  const all = await get(`${base}/artifacts`);
  const paths = all.list.map(({ path }) => path as string);
  assert.deepEqual(paths, Object.keys(files).toSorted());
  for (const { path, size, sha256: sum } of all.list) {
    const content = files[path as keyof typeof files];
    assert.deepEqual([size, sum], [Buffer.byteLength(content), sha256(content)]);
  }
  assert.equal(all.list.find(({ path }) => path === 'noise.bin')?.content_type, 'application/octet-stream');
  const paged: unknown[] = [];
  for (let next = `${base}/artifacts?limit=2`; next !== ''; ) {
    const page = await get(next);
    paged.push(...page.list.map(({ path }) => path));
    next = /<https:\/\/[^/]+([^>]+)>; rel="next"/.exec(page.headers.link ?? '')?.[1] ?? '';
  }
  assert.deepEqual(paged, paths);
});

test('a list cannot start after an artifact that the build does not have', async () => {
  const other = app.plant();
  for (const after of [String(other.artifact_id), '1', '', 'x']) {
    const answer = await get(`${base}/artifacts?after=${after}`);
    assert.deepEqual([answer.status, answer.json], [403, errors('after', 'invalid_format')]);
  }
});

test('a build shows how many artifacts it has, and their size', async () => {
  const { record } = await get(base);
  const bytes = Object.values(files).reduce((sum, content) => sum + Buffer.byteLength(content), 0);
  assert.deepEqual([record.artifacts, record.artifacts_bytes, record.keep], [6, bytes, undefined]);
});

describe('an artifact is the bytes of the file, to download and nothing else', () => {
  for (const [path, content] of Object.entries(files))
    test(path, async () => {
      const answer = await byPath(path);
      assert.equal(answer.status, 200);
      assert.deepEqual(answer.bytes, Buffer.from(content));
      assert.equal(answer.headers['content-length'], String(Buffer.byteLength(content)));
      assert.equal(answer.headers.etag, `"${sha256(content)}"`);
      assert.equal(answer.headers['content-type'], 'application/octet-stream');
      assert.equal(answer.headers['x-content-type-options'], 'nosniff');
      assert.match(answer.headers['content-disposition'] ?? '', /^attachment; filename="/);
      assert.match(answer.headers['content-security-policy'] ?? '', /sandbox/);
      assert.equal(answer.headers['content-encoding'], undefined);
      const listed = (await get(`${base}/artifacts`)).list.find(one => one.path === path);
      const byId = await get(`${base}/artifacts/${listed?.id_str}`);
      assert.deepEqual([byId.status, byId.bytes.equals(answer.bytes)], [200, true]);
    });
});

test('a path that the build does not have is not found, and a blank one is refused', async () => {
  for (const path of [
    'nothing',
    'coverage',
    'coverage/',
    '/a.txt',
    './a.txt',
    'x/../a.txt',
    'A.TXT',
    'a.txt ',
  ])
    assert.deepEqual((await byPath(path)).json, errors('generic', 'not_found'), path);
  assert.deepEqual((await byPath('')).json, errors('path', 'is_blank'));
  assert.deepEqual((await byPath('x'.repeat(1025))).json, errors('path', 'invalid_format'));
  assert.deepEqual((await byPath('a\n')).json, errors('path', 'invalid_format'));
});

test('a deflated artifact is sent as gzip to a client that accepts it, as it is in the ZIP', async () => {
  for (const accepted of ['gzip', 'br, gzip;q=0.5', '*', 'deflate, x-gzip']) {
    const answer = await byPath('a.txt', { 'accept-encoding': accepted });
    assert.equal(answer.headers['content-encoding'], 'gzip', accepted);
    assert.equal(answer.headers.vary, 'Accept-Encoding');
    assert.equal(answer.headers['content-length'], String(answer.bytes.length));
    assert.ok(answer.bytes.length < text.length / 10);
    // gunzip checks the checksum and the size in the trailer.
    assert.ok(gunzipSync(answer.bytes).equals(text));
    assert.equal(answer.headers.etag, `W/"${sha256(text)}"`);
  }
  for (const accepted of ['br', 'gzip;q=0', 'identity', '*;q=0'])
    assert.equal(
      (await byPath('a.txt', { 'accept-encoding': accepted })).bytes.length,
      text.length,
      accepted,
    );
  const stored = await byPath('noise.bin', { 'accept-encoding': 'gzip' });
  assert.deepEqual([stored.headers['content-encoding'], stored.headers.vary], [undefined, undefined]);
  assert.ok(stored.bytes.equals(noise));
});

describe('a range is that part of the file, whether it is deflated or not', () => {
  const ranges: [header: string, start: number, end: (size: number) => number][] = [
    ['bytes=0-0', 0, () => 1],
    ['bytes=10-19', 10, () => 20],
    ['bytes=250000-', 250_000, size => size],
    ['bytes=200000-299998', 200_000, () => 299_999],
    ['bytes=5-99999999', 5, size => size],
  ];
  for (const [path, content] of [
    ['a.txt', text],
    ['noise.bin', noise],
  ] as const)
    for (const [header, start, end] of ranges)
      test(`${header} of ${path}`, async () => {
        const answer = await byPath(path, { range: header, 'accept-encoding': 'gzip' });
        assert.equal(answer.status, 206);
        assert.ok(answer.bytes.equals(content.subarray(start, end(content.length))));
        const last = end(content.length) - 1;
        assert.equal(answer.headers['content-range'], `bytes ${start}-${last}/${content.length}`);
        assert.equal(answer.headers['content-length'], String(answer.bytes.length));
        assert.equal(answer.headers['content-encoding'], undefined);
      });
  test('the last bytes', async () => {
    const answer = await byPath('a.txt', { range: 'bytes=-7' });
    assert.deepEqual([answer.status, answer.text], [206, text.subarray(-7).toString()]);
  });
  test('beyond the end', async () => {
    for (const [path, range, size] of [
      ['a.txt', `bytes=${text.length}-`, text.length],
      ['noise.bin', 'bytes=300000-300001', 300_000],
      ['empty.txt', 'bytes=0-', 0],
    ] as const) {
      const answer = await byPath(path, { range });
      assert.deepEqual([answer.status, answer.headers['content-range']], [416, `bytes */${size}`]);
    }
  });
  test('several, malformed or reversed ones are ignored', async () => {
    for (const range of ['bytes=0-1,3-4', 'bytes=-', 'bytes=5-2', 'lines=1-2', 'bytes=a-b']) {
      const answer = await byPath('noise.bin', { range });
      assert.deepEqual([answer.status, answer.bytes.length], [200, noise.length], range);
    }
  });
  test('If-Range', async () => {
    const etag = `"${sha256(noise)}"`;
    for (const [condition, status] of [
      [etag, 206],
      [`W/${etag}`, 200],
      ['"other"', 200],
      ['Mon, 16 Nov 2026 02:50:04 GMT', 200],
    ] as const) {
      const answer = await byPath('noise.bin', { range: 'bytes=0-9', 'if-range': condition });
      assert.equal(answer.status, status, condition);
    }
  });
});

test('a client that has the file already gets nothing', async () => {
  const tag = `"${sha256(text)}"`;
  for (const sent of [tag, `W/${tag}`, `"x", ${tag}`, '*'])
    for (const headers of [{}, { 'accept-encoding': 'gzip' }, { range: 'bytes=0-1' }]) {
      const answer = await byPath('a.txt', { ...headers, 'if-none-match': sent });
      assert.deepEqual([answer.status, answer.bytes.length], [304, 0]);
      assert.match(answer.headers.etag ?? '', new RegExp(sha256(text)));
    }
  assert.equal((await byPath('a.txt', { 'if-none-match': '"x"' })).status, 200);
});

test('HEAD has the headers of GET and no body', async () => {
  for (const [path, headers] of [
    [`${base}/artifact?path=a.txt`, {}],
    [`${base}/artifact?path=a.txt`, { 'accept-encoding': 'gzip' }],
    [`${base}/artifact?path=noise.bin`, { range: 'bytes=1-5' }],
    [`${base}/artifacts.zip`, {}],
  ] as [string, Record<string, string>][]) {
    const options = { as: app.people.owner.as, headers };
    const whole = await app.client.call('GET', path, options);
    const head = await app.client.call('HEAD', path, options);
    assert.deepEqual([head.status, head.bytes.length], [whole.status, 0]);
    for (const name of ['content-length', 'etag', 'content-encoding', 'content-range'])
      assert.equal(head.headers[name], whole.headers[name], name);
  }
});

test('all artifacts are one ZIP, which can be resumed', async () => {
  const zip = readFileSync(buildFilesPath(app.data, planted.build_id));
  const answer = await get(`${base}/artifacts.zip`);
  assert.ok(answer.bytes.equals(zip));
  assert.equal(answer.headers['content-type'], 'application/zip');
  assert.equal(answer.headers['content-disposition'], `attachment; filename="build-${planted.build_id}.zip"`);
  const rest = await get(`${base}/artifacts.zip`, {
    range: 'bytes=1000-',
    'if-range': answer.headers.etag ?? '',
  });
  assert.equal(rest.status, 206);
  assert.ok(rest.bytes.equals(zip.subarray(1000)));
  const complete = await get(`${base}/artifacts.zip`, { range: `bytes=${zip.length}-` });
  assert.equal(complete.status, 416);
  const again = await get(`${base}/artifacts.zip`, { 'if-none-match': answer.headers.etag ?? '' });
  assert.equal(again.status, 304);
});

describe('the name of a download is safe', () => {
  const names: Record<string, string> = {
    'dir/plain.txt': 'filename="plain.txt"',
    'Größe "1".txt': `filename="Gr__e _1_.txt"; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20_1_.txt`,
    'a\\b;c%41.txt': `filename="a_b_c_41.txt"; filename*=UTF-8''a_b%3Bc%2541.txt`,
    'invoice\u202efdp.exe': 'filename="invoice_fdp.exe"',
    'x\r\nSet-Cookie: a=b': 'filename="x__Set-Cookie: a=b"',
    "it's (1)*.txt": 'filename="it\'s (1)*.txt"',
  };
  for (const [path, expected] of Object.entries(names))
    test(JSON.stringify(path), async () => {
      const { build_id, project_id } = app.plant();
      await addArtifacts(app.db, app.data, build_id, { [path]: 'x' });
      const [row] = listBuildArtifacts(app.db, build_id, { limit: 1 });
      const answer = await get(`/projects/${project_id}/builds/${build_id}/artifacts/${row?.id}`);
      assert.equal(answer.headers['content-disposition'], `attachment; ${expected}`);
      assert.equal(answer.headers['set-cookie'], undefined);
    });
});

test('artifacts whose file is gone are not found', async () => {
  const { build_id, project_id, artifact_id } = app.plant();
  await rm(buildFilesPath(app.data, build_id));
  for (const path of [`artifacts/${artifact_id}`, 'artifact?path=coverage/index.html', 'artifacts.zip']) {
    const answer = await get(`/projects/${project_id}/builds/${build_id}/${path}`);
    assert.deepEqual([answer.status, answer.json], [404, errors('generic', 'not_found')], path);
  }
});

/** A finished build of the planted suite, on a branch and with one artifact that names it. */
async function addBuild(
  { project_id, suite_id }: Planted,
  name: string,
  {
    branch = 'main',
    end = 'pass',
    pullRequest,
  }: { branch?: string; end?: 'pass' | 'fail'; pullRequest?: number } = {},
) {
  const { db } = app;
  const project = findProject(db, project_id);
  assert.ok(project);
  const build = db.write(() => {
    const started = createBuildRequest(db, project, branch, 'a@example.org', {
      pullRequest: pullRequest ?? null,
    });
    const commit = recordCommit(db, project.id, commitFields(sha256(name).slice(0, 40)));
    moveRequest(db, started.id, 'fetch');
    enqueueBuilds(db, started.id, commit, branch, [
      { suiteId: suite_id, suiteName: 'Unit tests', runs: true, rules: [] },
    ]);
    const [made] = listBuildsOfRequest(db, started.id);
    assert.ok(made);
    moveBuild(db, made.id, 'start');
    moveBuild(db, made.id, end, { exitCode: 0 });
    return made;
  });
  await addArtifacts(db, app.data, build.id, { 'name.txt': name });
  return build;
}

test('the newest passed build of a branch has the artifact', async () => {
  const place = app.plant();
  const newest = (query: string) =>
    get(`/projects/${place.project_id}/suites/${place.suite_id}/artifact?path=name.txt&${query}`);
  const first = await addBuild(place, 'first');
  const release = await addBuild(place, 'release', { branch: 'release' });
  const second = await addBuild(place, 'second');
  await addBuild(place, 'broken', { end: 'fail' });
  await addBuild(place, 'fork', { pullRequest: 7 });
  for (const [query, name, build] of [
    ['branch=main', 'second', second],
    ['branch=release', 'release', release],
    ['', 'second', second],
  ] as const) {
    const answer = await newest(query);
    assert.deepEqual([answer.status, answer.text], [200, name]);
    assert.equal(answer.headers['x-assay-build'], String(build.id));
  }
  assert.equal((await newest('branch=nothing')).status, 404);
  // A rerun of an older commit is not the newest.
  const { record } = await app.client.call('POST', `/projects/${place.project_id}/builds/${first.id}/rerun`, {
    as: app.people.owner.as,
  });
  const rerun = BigInt(record.id_str as string);
  moveBuild(app.db, rerun, 'start');
  moveBuild(app.db, rerun, 'pass', { exitCode: 0 });
  assert.equal((await newest('branch=main')).headers['x-assay-build'], String(second.id));
  // Not one of an older build, if the newest has none.
  await app.client.call('DELETE', `/projects/${place.project_id}/builds/${second.id}/artifacts`, {
    as: app.people.owner.as,
  });
  assert.equal((await newest('branch=main')).status, 404);
});

test('artifacts can be kept and released, and pages are notified', async () => {
  const { project_id, build_id } = app.plant();
  const topics = new Set<string>();
  const publish = app.db.onCommit;
  app.db.onCommit = touched => {
    for (const topic of touched) topics.add(topic);
    publish(touched);
  };
  const post = (what: string) =>
    app.client.call('POST', `/projects/${project_id}/builds/${build_id}/${what}`, {
      as: app.people.collaborator.as,
    });
  assert.equal((await post('keep')).record.keep, true);
  app.db.onCommit = publish;
  assert.ok(topics.has(`build:${build_id}`) && topics.has(`project:${project_id}`));
  assert.equal((await post('keep')).record.keep, true);
  assert.equal((await post('unkeep')).record.keep, undefined);
});

test('the owner deletes all artifacts of a build: they are gone at once, and so is the file', async () => {
  const { project_id, build_id, artifact_id } = app.plant();
  const path = `/projects/${project_id}/builds/${build_id}`;
  const remove = (as: string) => app.client.call('DELETE', `${path}/artifacts`, { as });
  assert.equal((await remove(app.people.collaborator.as)).status, 401);
  await app.client.call('POST', `${path}/keep`, { as: app.people.owner.as });
  assert.deepEqual((await remove(app.people.owner.as)).record, { destroyed: true });
  assert.equal(existsSync(buildFilesPath(app.data, build_id)), false);
  const count = app.db.sqlite.prepare('SELECT count(*) FROM build_artifacts WHERE build_id = ?').pluck();
  assert.equal(count.get(build_id), 0n);
  const { record } = await get(path);
  assert.deepEqual(
    [record.artifacts, record.artifacts_bytes, record.keep],
    [undefined, undefined, undefined],
  );
  assert.deepEqual((await get(`${path}/artifacts`)).list, []);
  for (const gone of [`artifacts/${artifact_id}`, 'artifact?path=coverage/index.html', 'artifacts.zip'])
    assert.equal((await get(`${path}/${gone}`)).status, 404);
  assert.deepEqual((await remove(app.people.owner.as)).record, { destroyed: true });
});

test('artifacts of a build that runs cannot be deleted, and are not shown before they are complete', async () => {
  const { project_id, build_id, artifact_id } = app.plant();
  const path = `/projects/${project_id}/builds/${build_id}`;
  app.db.sqlite
    .prepare("UPDATE builds SET build_state = 'running', artifacts = 0, finished_at = NULL WHERE id = ?")
    .run(build_id);
  const answer = await app.client.call('DELETE', `${path}/artifacts`, { as: app.people.owner.as });
  assert.deepEqual([answer.status, answer.json], [403, errors('generic', 'is_reserved')]);
  assert.equal(existsSync(buildFilesPath(app.data, build_id)), true);
  assert.deepEqual((await get(`${path}/artifacts`)).list, []);
  assert.equal((await get(`${path}/artifacts/${artifact_id}`)).status, 404);
});

/** How many descriptors of this process refer to the file. The server runs in it. */
const openFiles = (path: string) =>
  readdirSync('/proc/self/fd').filter(fd => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === path;
    } catch {
      return false;
    }
  }).length;

describe('a download that the client breaks off is released, and a slow one needs little memory', () => {
  const SIZE = 96 * 1024 * 1024;
  // It becomes smaller, but not so small that all of it is read at once.
  const halfNoise = noise.map((byte, at) => (at % 2 === 0 ? byte : 0));
  let path: string;
  let file: string;
  before(async () => {
    const { project_id, build_id } = app.plant();
    path = `/projects/${project_id}/builds/${build_id}`;
    file = buildFilesPath(app.data, build_id);
    await addArtifacts(app.db, app.data, build_id, {
      'half.bin': Buffer.alloc(SIZE, halfNoise),
      'noise.bin': Buffer.alloc(SIZE, noise),
    });
  });
  for (const [what, target, headers] of [
    ['inflated', 'artifact?path=half.bin', {}],
    ['inflated, a range near the end', 'artifact?path=half.bin', { range: `bytes=${SIZE - 40_000_000}-` }],
    ['stored', 'artifact?path=noise.bin', {}],
    ['the ZIP', 'artifacts.zip', {}],
  ] as [string, string, Record<string, string>][])
    test(what, async () => {
      collectGarbage();
      const before = process.memoryUsage().arrayBuffers;
      const incoming = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
        request(
          `${app.url}${path}/${target}`,
          { ca: app.client.ca, headers: { authorization: app.people.owner.as, ...headers } },
          resolve,
        )
          .on('error', reject)
          .end();
      });
      incoming.on('error', () => {});
      try {
        // The client reads nothing: the server must stop reading too.
        while (openFiles(file) === 0) await sleep(5);
        await sleep(300);
        // What was inflated and left out is garbage. V8 frees it in the background, after the collection.
        const grownMiB = () => {
          collectGarbage();
          return (process.memoryUsage().arrayBuffers - before) / 1024 / 1024;
        };
        const grown = await pollUntil(20_000, grownMiB, grown => grown < 24);
        assert.ok(grown < 24, `${Math.round(grown)} MiB`);
      } finally {
        incoming.destroy();
      }
      while (openFiles(file) > 0) await sleep(5);
    });
});

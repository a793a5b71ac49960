// The files of a dependency's artifact: lists, sizes, the tar, single files, and who may read them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { artifactIndexPath, artifactPath } from '../../src/store/data/paths.ts';
import { bootApp, type TestApp } from '../support/app.ts';
import { errors } from '../support/client.ts';
import { type ArtifactTree, storeArtifact } from '../support/dependency-artifact.ts';

const LONG = `${'long/'.repeat(40)}end`;
const HOSTILE = 'share/<img src=x onerror=alert(1)>\n"quoted".html';
const tree: ArtifactTree = [
  { path: '', type: 'directory' },
  { path: 'bin', type: 'directory' },
  { path: 'bin/tool', mode: 0o755, content: 'the program' },
  { path: 'bin/again', type: 'link', linkname: 'bin/tool' },
  { path: 'bin/sh', type: 'symlink', linkname: '/bin/sh' },
  { path: 'lib', type: 'directory' },
  { path: 'lib/big', content: Buffer.alloc(300_000, 'big ') },
  { path: LONG, content: 'at the end of a long path' },
  { path: 'share', type: 'directory' },
  { path: HOSTILE, content: '<script>alert(1)</script>' },
  { path: 'share/grün', content: 'UTF-8' },
];
const TOTAL = 11 + 300_000 + 25 + 25 + 5;

let app: TestApp;
let id: bigint;
let hash: string;
before(async () => {
  app = await bootApp();
  id = app.plant().free_dependency_id;
  hash = await storeArtifact(app, id, tree);
});
after(() => app.close());

const call = (
  rest: string,
  options: { as?: string; method?: string; headers?: Record<string, string> } = {},
) =>
  app.client.call(options.method ?? 'GET', `/dependencies/${id}${rest}`, {
    as: options.as ?? app.people.owner.as,
    ...(options.headers && { headers: options.headers }),
  });
const list = async (query = '') => {
  const answer = await call(`/files${query}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.list;
};
const file = (path: string, options = {}) => call(`/artifact?path=${encodeURIComponent(path)}`, options);

test('a directory lists its entries with types, modes, sizes, numbers of files and targets', async () => {
  const shown = (await list()).map(({ path, type, size, files }) => [path, type, size, files]);
  assert.deepEqual(shown, [
    ['bin', 'directory', 11, 3],
    ['lib', 'directory', 300_000, 1],
    ['long', 'directory', 25, 1],
    ['share', 'directory', 30, 2],
  ]);
  const inside = (await list('?path=bin')).map(({ path, type, mode, target }) => [path, type, mode, target]);
  assert.deepEqual(inside, [
    ['bin/again', 'link', '0644', 'bin/tool'],
    ['bin/sh', 'symlink', '0644', '/bin/sh'],
    ['bin/tool', 'file', '0755', undefined],
  ]);
  assert.deepEqual(
    await list('?path=%2Fbin%2F'),
    await list('?path=bin'),
    'slashes at the ends do not count',
  );
});

test('the largest come first on request, and pages follow each other', async () => {
  assert.deepEqual(
    (await list('?sort=size')).map(({ path }) => path),
    ['lib', 'share', 'long', 'bin'],
  );
  const names: unknown[] = [];
  for (let path: string | undefined = '/files?sort=size&limit=1'; path; ) {
    const { list: entries, headers } = await call(path);
    assert.equal(entries.length, 1);
    names.push(entries[0]?.path);
    const [, next] = /<[^>]*?(\/files\?[^>]*)>; rel="next"/.exec(String(headers.link ?? '')) ?? [];
    path = next;
  }
  assert.deepEqual(names, ['lib', 'share', 'long', 'bin']);
});

test('what is not there is not found, and what is malformed is refused', async () => {
  for (const rest of [
    '/files?path=none',
    '/files?path=bin%2Ftool',
    '/files?path=..',
    '/files?path=%2E%2E%2Fbin',
  ]) {
    const { status, json } = await call(rest);
    assert.deepEqual([status, json], [404, errors('generic', 'not_found')], rest);
  }
  for (const path of ['none', 'bin', 'bin/sh', '../../assay.db', '/etc/passwd'])
    assert.equal((await file(path)).status, 404, path);
  for (const query of ['sort=date', 'after=123456', 'after=x', 'limit=0', `path=${'x'.repeat(5000)}`]) {
    const { status, json } = await call(`/files?${query}`);
    assert.equal(status, 403, query);
    assert.deepEqual(json, errors(query.split('=')[0] as string, 'invalid_format'));
  }
});

test('a file is an attachment with its content, whole or in part', async () => {
  for (const [path, content] of [
    ['bin/tool', 'the program'],
    ['bin/again', 'the program'],
    [LONG, 'at the end of a long path'],
    [HOSTILE, '<script>alert(1)</script>'],
    ['share/grün', 'UTF-8'],
  ] as const) {
    const answer = await file(path);
    assert.deepEqual([answer.status, answer.text], [200, content]);
    assert.equal(answer.headers['content-type'], 'application/octet-stream');
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.match(String(answer.headers['content-disposition']), /^attachment; filename="[^"\n<>]*[^"\n]*"/);
    assert.equal(answer.headers['content-length'], String(content.length));
  }
  const big = await file('lib/big');
  assert.equal(big.bytes.length, 300_000);
  assert.deepEqual(big.bytes, Buffer.alloc(300_000, 'big '));
  const part = await file('lib/big', { headers: { range: 'bytes=299996-' } });
  assert.deepEqual([part.status, part.text], [206, 'big ']);
  const known = await file('lib/big', { headers: { 'if-none-match': String(big.headers.etag) } });
  assert.equal(known.status, 304);
});

test('the tar can be unpacked in the root directory, and has everything', async () => {
  const answer = await call('/artifact');
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['content-type'], 'application/x-tar');
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
  assert.match(String(answer.headers['content-disposition']), /^attachment; filename=".*free\.tar"/);
  const target = join(app.data, 'tmp', 'unpacked');
  execFileSync('mkdir', ['-p', target]);
  execFileSync('tar', ['-xf', '-', '-C', target, '--no-same-owner'], { input: answer.bytes });
  const root = join(target, 'srv/dependency');
  const found = execFileSync('find', ['.', '-type', 'f', '-printf', '%s\n'], { cwd: root, encoding: 'utf8' });
  const sizes = found.trim().split('\n').map(Number);
  // The hard link is counted as a file of its own here.
  assert.equal(
    sizes.reduce((sum, size) => sum + size),
    TOTAL + 11,
  );
  assert.equal(execFileSync('cat', [join(root, 'bin/again')], { encoding: 'utf8' }), 'the program');
  assert.equal(execFileSync('readlink', [join(root, 'bin/sh')], { encoding: 'utf8' }), '/bin/sh\n');
  assert.equal(execFileSync('cat', [join(root, LONG)], { encoding: 'utf8' }), 'at the end of a long path');
  rmSync(target, { recursive: true });
  const known = await call('/artifact', { headers: { 'if-none-match': String(answer.headers.etag) } });
  assert.equal(known.status, 304);
});

test('the record has the size, the number of files and the time of the artifact once it is compiled', async () => {
  const { artifact } = (await call('')).record as { artifact: Record<string, unknown> };
  assert.deepEqual([artifact.size, artifact.files], [TOTAL, 7]);
  assert.match(String(artifact.created_at), /^\d{4}-.*\+00:00$/);
  const waiting = await app.client.get(
    `/dependencies/${app.plant().free_dependency_id}`,
    app.people.owner.as,
  );
  assert.equal('artifact' in waiting.record, false);
});

test('other accounts can read it while it is shared, and nobody before it is compiled', async () => {
  const as = app.people.stranger.as;
  const paths = ['/files', '/artifact', '/artifact?path=bin/tool'];
  const statuses = () => Promise.all(paths.map(async path => (await call(path, { as })).status));
  assert.deepEqual(await statuses(), [404, 404, 404]);
  await call('/share', { method: 'POST' });
  assert.deepEqual(await statuses(), [200, 200, 200]);
  await call('/unshare', { method: 'POST' });
  assert.deepEqual(await statuses(), [404, 404, 404]);
  const { free_dependency_id: waiting } = app.plant();
  for (const rest of ['files', 'artifact'])
    assert.equal(
      (await app.client.get(`/dependencies/${waiting}/${rest}`, app.people.owner.as)).status,
      404,
      rest,
    );
});

test('an index that is missing or damaged is made again, once for all who ask', async () => {
  const path = artifactIndexPath(app.data, hash);
  assert.equal(existsSync(path), true);
  for (const spoil of [() => rmSync(path), () => truncateSync(path, 5000)]) {
    spoil();
    const sizes = await Promise.all(Array.from({ length: 5 }, async () => (await list()).length));
    assert.deepEqual(sizes, [4, 4, 4, 4, 4]);
  }
  assert.deepEqual(
    readdirSync(join(app.data, 'artifacts')).filter(name => name.endsWith('.part')),
    [],
  );
});

test('an artifact that is missing or damaged is reported, and leaves no index', async () => {
  const { free_dependency_id: other } = app.plant();
  const damaged = await storeArtifact(app, other, [{ path: 'file', content: 'x'.repeat(100_000) }]);
  truncateSync(artifactPath(app.data, damaged), 40);
  const status = async (rest: string) =>
    (await app.client.get(`/dependencies/${other}/${rest}`, app.people.owner.as)).status;
  assert.equal(await status('files'), 500);
  rmSync(artifactPath(app.data, damaged));
  for (const rest of ['files', 'artifact', 'artifact?path=file']) assert.equal(await status(rest), 404, rest);
  assert.equal(existsSync(artifactIndexPath(app.data, damaged)), false);
});

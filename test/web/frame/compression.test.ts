// What is compressed and what is not: assets, pages and JSON, for clients that accept it, and never where the size of a
// response could reveal a secret.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gunzipSync, zstdDecompressSync } from 'node:zlib';
import { build } from 'esbuild';
import { bundlePageFiles, root } from '../../../build/bundle.ts';
import { createSession } from '../../../src/store/accounts.ts';
import { createVariable } from '../../../src/store/suites.ts';
import { bootApp, type Planted, type TestApp } from '../../support/app.ts';
import { encodeForm } from '../../support/client.ts';

const BROWSER = 'gzip, deflate, br, zstd';
const DEADLINE_MS = 20_000;

let app: TestApp;
let planted: Planted;
let agent: Agent;
let cookie: string;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  agent = new Agent({ ca: app.client.ca, keepAlive: true });
  cookie = `__Host-assay-session=${createSession(app.db, app.people.owner.account.id)}`;
});
after(async () => {
  agent.destroy();
  await app.close();
});

async function ask(
  path: string,
  headers: Record<string, string>,
  options: { method?: string; form?: Record<string, string> } = {},
) {
  const body = options.form && encodeForm(options.form);
  const sent = request(`${app.url}${path}`, {
    agent,
    method: options.method ?? 'GET',
    headers: { ...headers, ...(body && { 'content-type': 'application/x-www-form-urlencoded' }) },
    signal: AbortSignal.timeout(DEADLINE_MS),
  }).end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream');
  const bytes = isStream ? Buffer.alloc(0) : Buffer.concat(await answer.toArray());
  if (isStream) answer.destroy();
  return {
    status: answer.statusCode,
    headers: answer.headers,
    coding: answer.headers['content-encoding'],
    bytes,
  };
}

const signedIn = (site: string) => ({ cookie, 'accept-encoding': BROWSER, 'sec-fetch-site': site });
const text = async (path: string) => (await ask(path, { cookie })).bytes.toString();

test('every script and style sheet of a page is one file, which a browser keeps forever', async () => {
  const page = await text(`/ui/projects/${planted.project_id}/builds/${planted.build_id}`);
  const paths = [...page.matchAll(/"(\/ui\/assets\/[^"]+)"/g)].map(([, path]) => path as string);
  assert.ok(paths.some(path => path.endsWith('/log.js')) && paths.some(path => path.endsWith('/base.css')));
  for (const path of paths) {
    const { headers, bytes } = await ask(path, {});
    assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable');
    assert.equal(headers.vary, 'Accept-Encoding');
    assert.doesNotMatch(bytes.toString(), /^\s*import\b|@import/m, `${path} loads another file`);
    const compressed = await ask(path, { 'accept-encoding': 'gzip' });
    assert.equal(compressed.coding, 'gzip');
    assert.deepEqual(gunzipSync(compressed.bytes), bytes);
  }
});

test('a module that several scripts import does nothing by itself: each script has its own copy', async () => {
  const names = [...(await bundlePageFiles()).keys()].filter(name => name.endsWith('.js'));
  const client = {
    absWorkingDir: join(root, 'src/web/client'),
    bundle: true,
    write: false,
    format: 'esm',
  } as const;
  const { metafile } = await build({ ...client, entryPoints: names, metafile: true, outdir: 'out' });
  const imported = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs));
  const shared = [...new Set(imported.filter((path, at) => imported.indexOf(path) !== at))];
  assert.ok(shared.includes('dom.js'));
  for (const path of shared) {
    const contents = `import './${path}';`;
    const alone = await build({
      ...client,
      stdin: { contents, resolveDir: client.absWorkingDir },
      minify: true,
    });
    assert.equal(alone.outputFiles[0]?.text.trim(), '', path);
  }
});

test('an asset that an older page names is sent as it is now, and not kept; one that is part of another is not there', async () => {
  const { status, headers } = await ask('/ui/assets/older/base.css', {});
  assert.deepEqual([status, headers['cache-control']], [200, 'no-store']);
  for (const name of ['style.css', 'log-lines.js', 'types.ts', 'missing.js', '..%2fpages.ts'])
    assert.equal((await ask(`/ui/assets/older/${name}`, {})).status, 404, name);
});

test('a page is compressed for a browser that opens it from here or by itself, and not for another site', async () => {
  const path = `/ui/projects/${planted.project_id}`;
  for (const site of ['same-origin', 'none']) {
    const { coding, bytes, headers } = await ask(path, signedIn(site));
    assert.equal(coding, 'zstd');
    assert.equal(headers.vary, 'Accept-Encoding');
    assert.equal(Number(headers['content-length']), bytes.length);
    assert.match(zstdDecompressSync(bytes).toString(), /<h1>.*Planted/s);
  }
  for (const site of ['cross-site', 'same-site']) {
    const { coding, bytes } = await ask(path, signedIn(site));
    assert.equal(coding, undefined);
    assert.match(bytes.toString(), /<h1>.*Planted/s);
  }
});

test('the client chooses: gzip, nothing, or what it prefers', async () => {
  const codingOf = async (accepted: string) =>
    (await ask('/ui/manual', { 'accept-encoding': accepted })).coding;
  assert.equal(await codingOf('gzip'), 'gzip');
  assert.equal(await codingOf('zstd;q=0.5, gzip'), 'gzip');
  assert.equal(await codingOf('*'), 'zstd');
  assert.equal(await codingOf('zstd;q=0, *;q=0.1'), 'gzip');
  for (const none of ['', 'identity', 'br', 'gzip;q=0', 'identity, gzip;q=0.5', 'gzip;q=x'])
    assert.equal(await codingOf(none), undefined, none);
});

test('HEAD has the headers of GET, and a range is ignored', async () => {
  const head = await ask('/ui/manual', { 'accept-encoding': 'gzip' }, { method: 'HEAD' });
  assert.deepEqual([head.status, head.coding, head.bytes.length], [200, 'gzip', 0]);
  const part = await ask('/ui/manual', { 'accept-encoding': 'gzip', range: 'bytes=0-9' });
  assert.equal(part.status, 200);
  assert.match(gunzipSync(part.bytes).toString(), /<\/html>/);
});

test('a stream is not compressed', async () => {
  const { coding, headers } = await ask(`/ui/projects/${planted.project_id}/stream`, signedIn('same-origin'));
  assert.match(String(headers['content-type']), /^text\/event-stream/);
  assert.equal(coding, undefined);
});

test('long JSON is compressed; short JSON and a call of a function that another site names are not', async () => {
  const variables = `/projects/${planted.project_id}/suites/${planted.suite_id}/environment_variables`;
  const headers = { authorization: app.people.owner.as, 'accept-encoding': BROWSER };
  assert.equal((await ask(variables, headers)).coding, undefined);
  createVariable(app.db, planted.suite_id, 'LONG', 'x'.repeat(20_000));
  const { coding, bytes, headers: answered } = await ask(variables, headers);
  assert.equal(coding, 'zstd');
  assert.equal(answered['cache-control'], 'no-store');
  assert.ok(answered['x-request-id']);
  const plain = await ask(variables, { authorization: app.people.owner.as });
  assert.deepEqual(zstdDecompressSync(bytes), plain.bytes);
  assert.equal((await ask(`${variables}?callback=show`, headers)).coding, undefined);
  assert.equal((await ask('/openapi.json', headers)).coding, 'zstd');
});

test('the token of forms is different on each page, and each is accepted; any other is refused', async () => {
  const tokenOf = (page: string) => /name="csrf" value="([^"]+)"/.exec(page)?.[1] ?? '';
  const [one, other] = [tokenOf(await text('/ui/projects')), tokenOf(await text('/ui/projects'))];
  assert.notEqual(one, other);
  const half = one.length / 2;
  assert.ok(one.slice(0, half) !== other.slice(0, half) && one.slice(half) !== other.slice(half));
  const start = async (csrf: string) =>
    (
      await ask(
        `/ui/projects/${planted.project_id}/build_requests`,
        { cookie, origin: app.url },
        // Without a branch, so that the form is shown again.
        { method: 'POST', form: { csrf } },
      )
    ).status;
  for (const token of [one, other]) assert.equal(await start(token), 422);
  const changed = Buffer.from(one, 'base64url');
  changed[40] = (changed[40] as number) ^ 1;
  for (const token of ['', `${one}x`, one.slice(0, half), changed.toString('base64url')])
    assert.equal(await start(token), 403, token);
});

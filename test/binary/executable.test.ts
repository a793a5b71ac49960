// The packed executable: its size and format, what it needs to run, and that it recovers after a kill.
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import { bundle, bundleClient } from '../../build/bundle.ts';
import { machineOf } from '../../build/strip.ts';
import { databasePath } from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { runExecutable, serveExecutable } from '../support/executable.ts';
import { freePort } from '../support/ports.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const executable = join(root, 'dist/assay');
const sizeLimitBytes = 125_000_000;
const NOBODY = 65_534;
const deadline = { timeout: 60_000 };
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
// Root runs it as another user; anybody else runs it as themselves.
const otherUser = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
let work = '';
// Read-only, and alone in its directory.
let installed = '';

const build = (...args: string[]) =>
  run(process.execPath, [join(root, 'build/main.ts'), ...args], { timeout: 300_000 });
const digestOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

before(async () => {
  work = mkdtempSync(join(tmpdir(), 'assay-binary-'));
  chmodSync(work, 0o755);
  await build();
  mkdirSync(join(work, 'alone'));
  installed = join(work, 'alone/assay');
  copyFileSync(executable, installed);
  chmodSync(installed, 0o555);
  chmodSync(join(work, 'alone'), 0o555);
});
after(() => {
  if (installed !== '') chmodSync(join(work, 'alone'), 0o755);
  rmSync(work, { recursive: true, force: true });
});

test('the executable is for this machine and under 125 MB', () => {
  assert.equal(machineOf(readFileSync(executable)), process.arch);
  assert.ok(statSync(executable).size < sizeLimitBytes);
});

test('--version takes little longer than starting Node', async () => {
  const quickest = { assay: Number.POSITIVE_INFINITY, node: Number.POSITIVE_INFINITY };
  const time = async (which: keyof typeof quickest, program: string, args: string[]) => {
    const startedAt = performance.now();
    const { stdout } = await run(program, args, deadline);
    quickest[which] = Math.min(quickest[which], performance.now() - startedAt);
    return stdout;
  };
  const isQuick = () => quickest.assay < 4 * quickest.node;
  // Alternating, with the fastest run of each: other tests may slow down the machine for a while.
  for (let round = 0; round < 7 || (round < 70 && !isQuick()); round++) {
    await time('node', process.execPath, ['-p', '1']);
    assert.ok((await time('assay', executable, ['--version'])).includes(version));
  }
  assert.ok(isQuick(), JSON.stringify(quickest));
});

test('NODE_OPTIONS is ignored', async () => {
  const env = { NODE_OPTIONS: '--require /nowhere.cjs --no-such-option' };
  const { stdout, stderr } = await run(executable, ['--version'], { ...deadline, env });
  assert.ok(stdout.includes(version));
  assert.equal(stderr, '');
});

test('it runs read-only, alone in its directory, as another user, from elsewhere, in an empty environment', async () => {
  const { stdout } = await run(installed, ['--version'], { ...deadline, ...otherUser, cwd: '/', env: {} });
  assert.ok(stdout.includes(version));
});

test('the build is reproducible', async () => {
  const again = join(work, 'again');
  await build('--force', '--output', again);
  assert.equal(digestOf(again), digestOf(executable));
});

test('the executable for the other processor has the right ELF header and the right SQLite', async () => {
  const other = process.arch === 'x64' ? 'arm64' : 'x64';
  const path = join(work, other);
  await build('--arch', other, '--output', path);
  const bytes = readFileSync(path);
  assert.equal(machineOf(bytes), other);
  assert.ok(bytes.length < sizeLimitBytes);
  const sqlite = readFileSync(join(root, `node_modules/better-sqlite3/prebuilds/linux-${other}.node`));
  assert.ok(bytes.includes(sqlite));
});

test('it serves from an empty directory as another user, is killed, recovers its data, and stops', async t => {
  const place = join(work, 'served');
  const temporary = join(place, 'tmp');
  for (const path of [place, temporary]) {
    mkdirSync(path);
    if (otherUser.uid !== undefined) chownSync(path, otherUser.uid, otherUser.gid);
  }
  const address = `127.0.0.1:${await freePort()}`;
  const env = { PATH: process.env.PATH, TMPDIR: temporary, ASSAY_DATA: join(place, 'data') };
  const options = { ...otherUser, cwd: place, env: { ...env, ASSAY_LISTEN: address } };
  const started: ChildProcess[] = [];
  t.after(() => {
    for (const child of started) child.kill('SIGKILL');
  });
  const serve = async () => {
    const child = spawn(installed, ['serve'], { ...options, stdio: ['ignore', 'pipe', 'inherit'] });
    started.push(child);
    const ended = once(child, 'exit').then(([code]) => assert.fail(`serve ended with ${code}`));
    const ready = (async () => {
      for await (const line of createInterface(child.stdout)) if (line.includes(`https://${address}`)) break;
      child.stdout.resume();
    })();
    await Promise.race([ready, ended]);
    ended.catch(() => {});
    return child;
  };

  const first = await serve();
  const added = await run(installed, ['user', 'add', 'ada@example.org', '--json'], {
    ...deadline,
    ...options,
  });
  const { api_key: apiKey } = JSON.parse(added.stdout);
  const ask = () =>
    get(`https://${address}/whoami`, `ada@example.org:${apiKey}`, join(place, 'data/tls/ca.pem'));
  assert.equal((await ask()).status, 200);
  const client = await get(`https://${address}/cli/assay.mjs`, '', join(place, 'data/tls/ca.pem'));
  assert.equal(client.body, Buffer.from(await bundleClient()).toString('utf8'));
  const killed = once(first, 'exit');
  first.kill('SIGKILL');
  await killed;

  const second = await serve();
  const answer = await ask();
  assert.equal(answer.status, 200);
  assert.match(answer.body, /ada@example\.org/);
  const stopped = once(second, 'exit');
  second.kill('SIGTERM');
  assert.deepEqual(await stopped, [0, null]);
  assert.deepEqual(readdirSync(temporary), []);
});

test('a server that writes much copies its log into the database in a thread', async t => {
  const data = join(work, 'written');
  const server = await serveExecutable(data);
  t.after(() => server.stop('SIGKILL'));
  const { api_key: apiKey } = JSON.parse(
    await runExecutable('user', 'add', 'ada@example.org', '--json', '--data', data),
  );
  using sqlite = openSqlite(databasePath(data));
  sqlite.pragma('wal_autocheckpoint = 0');
  sqlite.exec("INSERT INTO facts (name, value) VALUES ('filler', printf('%.*c', 6000000, 'x'))");
  const isCopied = () => {
    const [{ log, checkpointed }] = sqlite.pragma('wal_checkpoint(NOOP)') as [Record<string, number>];
    return log === checkpointed;
  };
  assert.ok(!isCopied());
  const endsAt = Date.now() + deadline.timeout;
  // A request that changes something.
  const sent = request(`${server.url}/projects`, {
    method: 'POST',
    auth: `ada@example.org:${apiKey}`,
    ca: readFileSync(join(data, 'tls/ca.pem')),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    signal: AbortSignal.timeout(10_000),
  }).end('name=first&repository_url=git@example.com:first.git');
  const [response] = await once(sent, 'response');
  assert.equal(response.statusCode, 201);
  response.resume();
  while (!isCopied()) {
    assert.ok(Date.now() < endsAt, `nothing was copied: ${server.printed()}`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
  assert.doesNotMatch(server.printed(), /checkpoint failed/);
  assert.equal(await server.stop(), 0);
});

test('the bundled code is ASCII, and its pages show other characters', async t => {
  const { program, files } = await bundle();
  const codes = [...files].map(([name, file]) => (name.endsWith('.zst') ? zstdDecompressSync(file) : file));
  assert.ok([program, ...codes].every(code => code.every(byte => byte < 128)));
  const data = join(work, 'shown');
  const server = await serveExecutable(data);
  t.after(() => server.stop('SIGKILL'));
  const { body } = await get(`${server.url}/ui/manual`, '', join(data, 'tls/ca.pem'));
  assert.match(body, / · Assay<\/title>/);
});

test('it contains the style sheets and scripts of the pages, compressed', async t => {
  const data = join(work, 'compressed');
  const server = await serveExecutable(data);
  t.after(() => server.stop('SIGKILL'));
  const ask = (path: string, accepted: string) =>
    get(`${server.url}${path}`, '', join(data, 'tls/ca.pem'), { 'accept-encoding': accepted });
  const { body: page } = await ask('/ui/manual', 'identity');
  const paths = [...page.matchAll(/"(\/ui\/assets\/[^"]+)"/g)].map(([, path]) => path as string);
  assert.ok(paths.length >= 3, page);
  for (const path of paths) {
    const plain = await ask(path, 'identity');
    const best = await ask(path, 'gzip, deflate, br, zstd');
    const older = await ask(path, 'gzip');
    assert.equal(best.headers['content-encoding'], 'br');
    assert.deepEqual(brotliDecompressSync(best.bytes), plain.bytes);
    assert.equal(older.headers['content-encoding'], 'gzip');
    assert.deepEqual(gunzipSync(older.bytes), plain.bytes);
    assert.ok(best.bytes.length < older.bytes.length && older.bytes.length < plain.bytes.length, path);
  }
  assert.equal((await ask('/ui/assets/x/missing.js', 'br')).status, 404);
});

async function get(url: string, auth: string, caPath: string, headers: Record<string, string> = {}) {
  const ca = readFileSync(caPath);
  const sent = request(url, { auth, ca, headers, signal: AbortSignal.timeout(10_000) }).end();
  const [response] = await once(sent, 'response');
  const bytes = Buffer.concat(await response.toArray());
  const answer = response as IncomingMessage;
  return { status: answer.statusCode, headers: answer.headers, bytes, body: bytes.toString() };
}

// assay.mjs, the client as one file: on the oldest Node that it supports and on the project's own, served by the server, and
// installed with the lines of the page.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { bundleClient, root } from '../../build/bundle.ts';
import { findOldestForClient } from '../../build/runtime.ts';
import type { Machine } from '../../build/strip.ts';
import { programPath } from '../cli/program.ts';
import { bootApp, type TestApp } from '../support/app.ts';
import { type RunOptions, runClient } from './fixture.ts';

const execute = promisify(execFile);
const EMAIL = 'owner@example.org';
const MAX_BYTES = 160_000;

describe('the client as one file', () => {
  let app: TestApp;
  let directory = '';
  let file = '';
  let oldest = '';
  before(async () => {
    app = await bootApp();
    directory = mkdtempSync(join(tmpdir(), 'assay-single-'));
    file = join(dirname(await programPath()), 'assay.mjs');
    oldest = await findOldestForClient(process.arch as Machine);
  });
  after(async () => {
    await app.close();
    rmSync(directory, { recursive: true, force: true });
  });

  const authority = () => new X509Certificate(app.client.ca).fingerprint256;

  it('runs on Node 20.0 and on the Node of the project', async () => {
    for (const [node, version] of [
      [oldest, 'v20.0.0'],
      [process.execPath, process.version],
    ] as const) {
      assert.equal((await execute(node, ['--version'])).stdout.trim(), version);
      const env = { XDG_CONFIG_HOME: join(directory, version) };
      const run = (args: readonly string[], options: RunOptions = {}) =>
        runClient(args, { ...options, program: [node, file], env: { ...env, ...options.env } });
      const packageVersion = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version as string;
      assert.deepEqual(await run(['--version']), {
        status: 0,
        stdout: `assay ${packageVersion}\n`,
        stderr: '',
      });
      const help = await run(['--help']);
      assert.equal(help.status, 0, help.stderr);
      for (const word of ['login', 'api', 'completion'])
        assert.match(help.stdout, new RegExp(`^  ${word} `, 'm'));
      assert.doesNotMatch(help.stdout, /^ {2}serve /m, 'the server is not in it');
      assert.equal((await run(['completion', 'bash'])).status, 0);
      const login = ['login', app.url, '--with-key', '--email', EMAIL, '--fingerprint', authority()];
      const signedIn = await run(login, { input: app.people.owner.key });
      assert.deepEqual([signedIn.status, signedIn.stderr], [0, '']);
      const whoami = await run(['api', 'GET', '/whoami']);
      assert.deepEqual(JSON.parse(whoami.stdout), { response: { email: EMAIL } });
      const untrusted = await run(['api', 'GET', '/whoami'], {
        env: { XDG_CONFIG_HOME: directory, ASSAY_URL: app.url, ASSAY_TOKEN: 'token' },
      });
      assert.equal(untrusted.status, 6);
      assert.match(untrusted.stderr, /shows its fingerprint and keeps it/);
      assert.deepEqual((await run(['logout'])).status, 0);
    }
  });

  it('is the same bytes each time, and small', async () => {
    const [first, second] = [await bundleClient(), await bundleClient()];
    assert.deepEqual(Buffer.from(first), Buffer.from(second));
    const text = Buffer.from(first).toString('utf8');
    assert.match(text, /^#!\/usr\/bin\/env node\n/);
    assert.ok(!text.includes(root), 'it names no path of this machine');
    assert.ok(first.length < MAX_BYTES, `${first.length} bytes`);
  });

  it('is served to anyone, and not sent again if it is the same', async () => {
    const served = await app.client.get('/cli/assay.mjs');
    assert.equal(served.status, 200);
    const sha256 = createHash('sha256').update(served.bytes).digest('hex');
    assert.deepEqual(served.bytes, Buffer.from(await bundleClient()));
    assert.equal(served.headers['content-type'], 'text/javascript; charset=utf-8');
    assert.equal(served.headers['x-content-type-options'], 'nosniff');
    assert.equal(served.headers['cache-control'], 'public, no-cache');
    assert.equal(served.headers.etag, `"${sha256}"`);
    const again = await app.client.call('GET', '/cli/assay.mjs', {
      headers: { 'if-none-match': `"${sha256}"` },
    });
    assert.deepEqual([again.status, again.bytes.length], [304, 0]);
    const other = await app.client.call('GET', '/cli/assay.mjs', { headers: { 'if-none-match': '"0"' } });
    assert.equal(other.status, 200);
    const head = await app.client.call('HEAD', '/cli/assay.mjs');
    assert.deepEqual([head.status, head.bytes.length], [200, 0]);
  });

  it('is installed by the lines of the page, unless the checksum differs', async () => {
    const ca = join(directory, 'ca.pem');
    writeFileSync(ca, app.client.ca);
    const { stdout: text } = await execute('curl', ['-fsS', '--cacert', ca, `${app.url}/ui/client`]);
    assert.ok(text.includes(authority()));
    const [, linux = ''] = /id="linux".*?<code>(.*?)<\/code>/s.exec(text) ?? [];
    const plain = linux.replaceAll('&amp;', '&').replaceAll('&#39;', "'").replaceAll('&quot;', '"');
    const programs = join(directory, 'programs');
    mkdirSync(programs);
    symlinkSync(oldest, join(programs, 'node'));
    const install = async (home: string, script: string) => {
      mkdirSync(home);
      const env = { HOME: home, PATH: `${home}/.local/bin:${programs}:${process.env.PATH}` };
      await execute('bash', ['-c', script], { env, timeout: 60_000 });
      return (await execute('assay', ['--version'], { env, timeout: 60_000 })).stdout;
    };
    assert.match(await install(join(directory, 'home'), plain), /^assay \d/);
    const wrong = plain.replace(/'[0-9a-f]{64} /, `'${'0'.repeat(64)} `);
    assert.notEqual(wrong, plain);
    await assert.rejects(install(join(directory, 'other-home'), wrong), /checksum did NOT match/);
    assert.ok(!existsSync(join(directory, 'other-home/.local/bin/assay')));
  });
});

// `assay login`, `assay logout` and `assay hosts`: certificates, API keys, what is stored, and exit statuses.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ensureCertificate } from '../../src/engine/certificate.ts';
import { bootApp, type TestApp } from '../support/app.ts';
import { type RunOptions, runClient, startClient } from './fixture.ts';

const EMAIL = 'owner@example.org';

let directory = '';
before(() => {
  directory = mkdtempSync(join(tmpdir(), 'assay-sign-in-'));
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** A user without a configuration directory. */
function newUser() {
  const config = mkdtempSync(join(directory, 'user-'));
  const path = join(config, 'assay/hosts.json');
  const env = { XDG_CONFIG_HOME: config, BROWSER: 'true' };
  const withEnv = (options: RunOptions = {}) => ({ ...options, env: { ...env, ...options.env } });
  return {
    path,
    env,
    isStored: () => existsSync(path),
    stored: () =>
      JSON.parse(readFileSync(path, 'utf8')) as { default?: string; hosts: Record<string, string>[] },
    run: (args: readonly string[], options?: RunOptions) => runClient(args, withEnv(options)),
    start: (args: readonly string[], options?: RunOptions) => startClient(args, withEnv(options)),
  };
}

const fingerprintOf = (pem: string) => new X509Certificate(pem).fingerprint256;

describe('certificates', () => {
  type Stub = { url: string; ca: string; requests: string[]; server: Server };
  const servers: { close(): unknown; closeAllConnections(): void }[] = [];
  after(() => {
    for (const server of servers) {
      server.close();
      server.closeAllConnections();
    }
  });

  const newCertificate = async (now?: Date) => {
    const made = await ensureCertificate({
      directory: mkdtempSync(join(directory, 'tls-')),
      hosts: [],
      ...(now && { now }),
    });
    const [ca = ''] = /-----BEGIN[^-]+-----[^-]+-----END[^-]+-----\n?$/.exec(made.cert) ?? [];
    return { ...made, ca };
  };

  /** As much of a server as a sign-in needs. It writes down what it was asked. */
  async function serve(now?: Date, host = '127.0.0.1', ping = '{"response":"pong"}'): Promise<Stub> {
    const { cert, key, ca } = await newCertificate(now);
    const requests: string[] = [];
    const server = createServer({ cert, key }, (request, response) => {
      requests.push(`${request.method} ${request.url} ${request.headers.authorization ?? ''}`.trim());
      response.end(request.url === '/ping' ? ping : `{"response":{"email":"${EMAIL}"}}`);
    });
    server.on('tlsClientError', () => {});
    server.listen(0, host);
    await once(server, 'listening');
    servers.push(server);
    return { url: `https://${host}:${(server.address() as AddressInfo).port}`, ca, requests, server };
  }
  const withKey = (url: string) => ['login', url, '--with-key', '--email', EMAIL];

  it('shows the authority and its fingerprint, and sends and stores nothing if the user says no', async () => {
    const { url, ca, requests } = await serve();
    for (const answer of ['n\r', '\r', '\x04']) {
      const user = newUser();
      const client = await user.start(withKey(url), { columns: 120 });
      await client.until('Trust it? [y/N]');
      assert.match(client.stdout(), /O=Assay, CN=Assay CA [0-9a-f]{8}/);
      assert.ok(client.stdout().includes(fingerprintOf(ca)));
      client.type(answer);
      const { status, stdout } = await client.ended;
      assert.equal(status, 6, stdout);
      assert.match(stdout, /was not accepted: nothing was sent or stored/);
      assert.ok(!user.isStored());
    }
    assert.deepEqual(requests, []);
  });

  it('leaves with 130 after Ctrl-C at a question', async () => {
    const { url } = await serve();
    const client = await newUser().start(withKey(url), { columns: 80 });
    await client.until('Trust it? [y/N]');
    client.type('\x03');
    assert.equal((await client.ended).status, 130);
  });

  it('keeps the authority that the user accepts, and asks again if it changes', async () => {
    const { url, ca, requests, server } = await serve();
    const user = newUser();
    const first = await user.start(withKey(url), { columns: 120 });
    await first.until('Trust it? [y/N]');
    assert.deepEqual(requests, []);
    first.type('yes\r');
    await first.until('API key');
    first.type('key_1\r');
    const signedIn = await first.ended;
    assert.equal(signedIn.status, 0, signedIn.stdout);
    assert.ok(!signedIn.stdout.includes('key_1'), 'the key does not appear on the screen');
    assert.deepEqual(requests, ['GET /ping', `GET /whoami Basic ${btoa(`${EMAIL}:key_1`)}`]);
    assert.equal(user.stored().hosts[0]?.ca, ca);

    const again = await user.run(withKey(url), { input: 'key_2\n' });
    assert.equal(again.status, 0, again.stderr);
    assert.equal(user.stored().hosts[0]?.api_key, 'key_2');

    const replaced = await newCertificate();
    server.setSecureContext({ cert: replaced.cert, key: replaced.key });
    requests.length = 0;
    const call = await user.run(['api', 'GET', '/whoami']);
    assert.equal(call.status, 6);
    assert.match(call.stderr, /has changed: it is not from the authority that you accepted/);
    const changed = await user.start(withKey(url), { columns: 120 });
    await changed.until('Trust it? [y/N]');
    assert.match(changed.stdout(), /WARNING/);
    for (const pem of [ca, replaced.ca]) assert.ok(changed.stdout().includes(fingerprintOf(pem)));
    changed.type('n\r');
    assert.equal((await changed.ended).status, 6);
    assert.equal(user.stored().hosts[0]?.ca, ca, 'the old one is still kept');
    assert.deepEqual(requests, [], 'nothing was sent to the new one');
    const accepted = await user.run([...withKey(url), '--fingerprint', fingerprintOf(replaced.ca)], {
      input: 'key_3',
    });
    assert.equal(accepted.status, 0, accepted.stderr);
    assert.equal(user.stored().hosts[0]?.ca, replaced.ca);
    assert.equal(user.stored().hosts.length, 1);
  });

  it('accepts the fingerprint of --fingerprint without a terminal, and no other', async () => {
    const { url, ca, requests } = await serve();
    const user = newUser();
    const fingerprint = fingerprintOf(ca);
    const without = await user.run(withKey(url), { input: 'key' });
    assert.equal(without.status, 2);
    assert.ok(without.stderr.includes(`--fingerprint ${fingerprint}`), without.stderr);
    const other = await user.run([...withKey(url), '--fingerprint', 'ab'.repeat(32)], { input: 'key' });
    assert.equal(other.status, 6);
    assert.ok(other.stderr.includes(fingerprint), other.stderr);
    const wrong = await user.run([...withKey(url), '--fingerprint', 'abc'], { input: 'key' });
    assert.equal(wrong.status, 2);
    assert.deepEqual(requests, []);
    assert.ok(!user.isStored());
    for (const written of [
      fingerprint,
      fingerprint.replaceAll(':', '').toLowerCase(),
      `SHA256:${fingerprint}`,
      `sha256 Fingerprint=${fingerprint}`,
    ]) {
      const { status, stderr } = await user.run([...withKey(url), '--fingerprint', written], {
        input: 'key',
      });
      assert.equal(status, 0, `${written}: ${stderr}`);
    }
  });

  it('asks nothing and keeps no authority if the machine trusts it', async () => {
    const { url, ca } = await serve();
    const user = newUser();
    const path = join(directory, 'extra.pem');
    writeFileSync(path, ca);
    const { status, stderr } = await user.run(withKey(url), {
      input: 'key',
      env: { NODE_EXTRA_CA_CERTS: path },
    });
    assert.equal(status, 0, stderr);
    assert.equal(user.stored().hosts[0]?.ca, undefined);
  });

  it('says why a certificate or a server cannot be used, without asking', async () => {
    const longAgo = new Date(Date.now() - 500 * 86_400_000);
    const plainHttp = createHttpServer((_, response) => response.end('pong'));
    plainHttp.listen(0, '127.0.0.1');
    await once(plainHttp, 'listening');
    servers.push(plainHttp);
    const httpPort = (plainHttp.address() as AddressInfo).port;
    const closed = createHttpServer().listen(0, '127.0.0.1');
    await once(closed, 'listening');
    const closedPort = (closed.address() as AddressInfo).port;
    closed.close();
    for (const [url, expected] of [
      [(await serve(longAgo)).url, /has expired/],
      [(await serve(undefined, '127.0.0.2')).url, /is not for 127\.0\.0\.2/],
      [`https://127.0.0.1:${httpPort}`, /does not use HTTPS/],
      [`https://127.0.0.1:${closedPort}`, /nothing listens there/],
    ] as const) {
      const user = newUser();
      const client = await user.start(withKey(url), { columns: 200 });
      const { status, stdout } = await client.ended;
      assert.equal(status, 6, stdout);
      assert.match(stdout, expected);
      assert.ok(!stdout.includes('Trust it?'), stdout);
      assert.ok(!user.isStored());
    }
    for (const page of ['<!doctype html><p>Welcome', '{"response":"hello"}', '{}', 'null']) {
      const { url, ca } = await serve(undefined, '127.0.0.1', page);
      const other = await newUser().run([...withKey(url), '--fingerprint', fingerprintOf(ca)], {
        input: 'key',
      });
      assert.equal(other.status, 6);
      assert.match(other.stderr, /is not an Assay server/);
    }
  });
});

describe('signing in with an API key', () => {
  let app: TestApp;
  let login: readonly string[];
  before(async () => {
    app = await bootApp();
    login = ['login', app.url, '--with-key', '--email', EMAIL, '--fingerprint', fingerprintOf(app.client.ca)];
  });
  after(() => app.close());

  it('stores the sign-in in a private file, from a pipe or a terminal', async () => {
    const { key } = app.people.owner;
    const piped = newUser();
    const { status, stdout, stderr } = await piped.run(login, { input: `${key}\n` });
    assert.deepEqual([status, stdout, stderr], [0, `signed in to ${app.url} as ${EMAIL}\n`, '']);
    assert.equal(statSync(piped.path).mode & 0o777, 0o600);
    assert.equal(statSync(join(piped.path, '..')).mode & 0o777, 0o700);
    assert.deepEqual(piped.stored(), {
      default: app.url,
      hosts: [{ url: app.url, email: EMAIL, api_key: key, ca: app.client.ca }],
    });

    const typed = newUser();
    const client = await typed.start(
      ['login', app.url, '--with-key', '--fingerprint', fingerprintOf(app.client.ca)],
      { columns: 80 },
    );
    await client.until('Email: ');
    client.type(`${EMAIL}\r`);
    await client.until('makes one): ');
    client.type(`wrong\x15${key}\r`);
    const ended = await client.ended;
    assert.equal(ended.status, 0, ended.stdout);
    assert.ok(!ended.stdout.includes(key), 'the key does not appear on the screen');
    assert.deepEqual(typed.stored(), piped.stored());
    const whoami = await typed.run(['api', 'GET', '/whoami']);
    assert.deepEqual(JSON.parse(whoami.stdout), { response: { email: EMAIL } });
  });

  it('exits with the status that the manual lists', async () => {
    const { key } = app.people.owner;
    const user = newUser();
    const email = ['--email', EMAIL];
    const trusted = { ASSAY_CA_FILE: join(directory, 'ca.pem') };
    writeFileSync(trusted.ASSAY_CA_FILE, app.client.ca);
    for (const [args, input, expected] of [
      [['login'], '', 2],
      [['login', 'http://127.0.0.1'], '', 2],
      [['login', 'https://me:secret@127.0.0.1'], '', 2],
      [['login', 'https://'], '', 2],
      [['login', app.url, ...email], '', 2],
      [['login', app.url, '--with-key'], `${key}\n`, 2],
      [['login', app.url, '--with-key', ...email], '', 2],
      [['login', app.url, '--with-key', ...email, '--api-key', key], '', 2],
      [['login', app.url, '--with-key', ...email], 'key_wrong', 5],
      [['login', app.url, '--with-key', '--email', 'nobody@example.org'], key, 5],
      [['login', app.url, '--with-key', '--email', 'suspended@example.org'], app.people.suspended.key, 5],
      [['login', 'https://127.0.0.1:1', '--with-key', ...email], key, 6],
      [['logout'], '', 5],
      [['logout', app.url], '', 5],
      [['hosts', app.url], '', 5],
      [['api', 'GET', '/whoami'], '', 5],
    ] as const) {
      const { status, stderr } = await user.run(args, { input, env: trusted });
      assert.equal(status, expected, `${args.join(' ')}: ${stderr}`);
      assert.match(stderr, /^assay: .+/, args.join(' '));
      assert.ok(!stderr.includes(key), stderr);
    }
    assert.ok(!user.isStored());
    const trustedLogin = await user.run(['login', app.url, '--with-key', ...email], {
      input: key,
      env: trusted,
    });
    assert.equal(trustedLogin.status, 0, trustedLogin.stderr);
    assert.equal(user.stored().hosts[0]?.ca, app.client.ca);
  });

  it('lists the servers without secrets, chooses the default, and signs out', async () => {
    const { key } = app.people.owner;
    const user = newUser();
    assert.equal((await user.run(['hosts'])).stdout, '');
    const second = app.url.replace('127.0.0.1', 'localhost');
    await user.run(login, { input: key });
    await user.run([...login.with(1, second)], { input: key });
    const listed = await user.run(['hosts', '--json']);
    const ca = fingerprintOf(app.client.ca);
    assert.deepEqual(
      listed.stdout
        .trim()
        .split('\n')
        .map(line => JSON.parse(line) as unknown),
      [app.url, second].map(url => ({
        url,
        email: EMAIL,
        default: url === second,
        credentials: 'api_key',
        ca_fingerprint: ca,
      })),
    );
    const chosen = await user.run(['hosts', app.url]);
    assert.equal(chosen.stdout, `*  ${app.url}  ${EMAIL}  API key\n   ${second}  ${EMAIL}  API key\n`);
    assert.ok(!`${listed.stdout}${chosen.stdout}`.includes(key));
    assert.equal(
      (await user.run(['logout'])).stdout,
      `signed out of ${app.url}\nthe default is now ${second}\n`,
    );
    assert.equal((await user.run(['logout', '--json'])).stdout, `{"url":"${second}"}\n`);
    assert.deepEqual(user.stored(), { hosts: [] });
    assert.ok(!readFileSync(user.path, 'utf8').includes(key));
  });

  it('lets variables take precedence, and says so', async () => {
    const user = newUser();
    const env = { ASSAY_URL: 'https://other.example.org', ASSAY_TOKEN: 'token_other' };
    const signedIn = await user.run(login, { input: app.people.owner.key, env });
    assert.equal(signedIn.status, 0);
    assert.match(signedIn.stderr, /ASSAY_TOKEN is set/);
    assert.match((await user.run(['hosts'], { env })).stderr, /ASSAY_URL is set/);
    const asOther = await user.run(['api', 'GET', '/whoami'], { env: { ASSAY_TOKEN: 'token_other' } });
    assert.equal(asOther.status, 5);
    const asStranger = await user.run(['api', 'GET', '/whoami'], {
      env: { ASSAY_TOKEN: `stranger@example.org:${app.people.stranger.key}` },
    });
    assert.match(asStranger.stdout, /stranger@example\.org/);
  });

  it('does not touch a file that is damaged or cannot be written', async () => {
    const user = newUser();
    await user.run(login, { input: app.people.owner.key });
    for (const [content, args] of [
      ['', login],
      ['{', ['logout']],
      ['[]', ['hosts']],
      ['{"hosts":[{}]}', ['api', 'GET', '/whoami']],
      ['{"hosts":[null]}', ['hosts', '--json']],
    ] as const) {
      writeFileSync(user.path, content);
      const { status, stderr } = await user.run(args, { input: app.people.owner.key });
      assert.equal(status, 5, `${content} ${args[0]}`);
      assert.match(stderr, /is damaged: delete it and sign in again/);
      assert.equal(readFileSync(user.path, 'utf8'), content);
    }
    writeFileSync(join(user.path, '../../file'), '');
    const { status, stderr } = await user.run(login, {
      input: app.people.owner.key,
      env: { XDG_CONFIG_HOME: join(user.path, '../../file') },
    });
    assert.equal(status, 5, stderr);
    assert.match(stderr, /cannot be (read|written)/);
  });
});

// `assay doctor`: its checks, its advice and its exit status.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { chmodSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Check } from '../../src/cli/check.ts';
import { checkIsolation } from '../../src/cli/checks.ts';
import { masterKeyPath } from '../../src/store/data/paths.ts';
import { bootApp, type TestApp } from '../support/app.ts';
import { freePort } from '../support/ports.ts';
import { runAssay, temporaryDirectory } from './program.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

async function examine(args: string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = await runAssay(['doctor', '--json', ...args], env);
  assert.equal(stderr, '');
  const report = JSON.parse(stdout) as { healthy: boolean; checks: Check[] };
  assert.equal(status, report.healthy ? 0 : 1);
  return (name: string) => report.checks.find(check => check.name === name);
}

test('next to a running server on a healthy host, every line is ok or a warning', async () => {
  const { host } = new URL(app.url);
  const { status, stdout } = await runAssay(['doctor', '--data', app.data, '--listen', host], {
    NO_COLOR: '1',
  });
  assert.equal(status, 0, stdout);
  assert.match(stdout, /^ok {4}Docker +Engine \S+, API 1\.\d+(, runc \S+)?$/m);
  assert.match(stdout, /^ok {4}data +.*the database is intact$/m);
  assert.match(stdout, /^ok {4}certificate +.*server\.pem: 39\d days left, renewed automatically; /m);
  const { fingerprint256 } = new X509Certificate(app.client.ca);
  assert.match(stdout, new RegExp(`; authority SHA-256 ${fingerprint256}$`, 'm'));
  assert.match(stdout, /^ok {4}server +answers at /m);
  for (const name of [
    'git',
    'ssh',
    'libraries',
    'key',
    'disk',
    'image',
    'other images',
    'clock',
    'limits',
    'isolation',
  ])
    assert.match(stdout, new RegExp(`^(ok {2}|warn) {2}${name} `, 'm'), stdout);
  assert.doesNotMatch(stdout, /\x1b/);
});

test('without Docker, git, ssh and a data directory it says what to install, with exit status 1', async () => {
  using place = temporaryDirectory();
  const find = await examine(
    ['--data', join(place.path, 'none'), '--listen', `127.0.0.1:${await freePort()}`],
    {
      DOCKER_HOST: `unix://${place.path}/nowhere.sock`,
      PATH: place.path,
    },
  );
  assert.equal(find('Docker')?.status, 'fail');
  assert.match(find('Docker')?.fix ?? '', /start Docker/);
  assert.match(find('git')?.fix ?? '', /apt install git/);
  assert.match(find('ssh')?.fix ?? '', /apt install openssh-client/);
  assert.match(find('data')?.found ?? '', /the first start creates it/);
  assert.match(find('server')?.found ?? '', /no server answers/);
});

test('a directory or key that others can read, a missing key and a damaged database are failures with advice', async () => {
  using place = temporaryDirectory();
  const data = join(place.path, 'data');
  const added = await runAssay(['user', 'add', 'ada@example.org', '--data', data]);
  assert.equal(added.status, 0, added.stderr);
  chmodSync(data, 0o755);
  chmodSync(masterKeyPath(data), 0o644);
  const open = await examine(['--data', data]);
  assert.equal(open('data')?.fix, `chmod 700 ${data}`);
  assert.equal(open('key')?.fix, `chmod 600 ${masterKeyPath(data)}`);

  chmodSync(data, 0o700);
  rmSync(masterKeyPath(data));
  writeFileSync(join(place.path, 'cert.pem'), 'not one');
  const lost = await examine(
    ['--data', data, '--tls-cert', join(place.path, 'cert.pem'), '--tls-key', join(place.path, 'key.pem')],
    { ASSAY_MIN_FREE_DISK: '900000GiB', ASSAY_IMAGE: 'no-such-image' },
  );
  assert.match(lost('key')?.found ?? '', /master key .* is missing/);
  assert.equal(lost('certificate')?.status, 'fail');
  assert.equal(lost('disk')?.status, 'fail');
  assert.match(lost('image')?.fix ?? '', /assay image import FILE --name no-such-image/);

  writeFileSync(join(data, 'assay.db'), Buffer.alloc(9_000, 1));
  const damaged = await examine(['--data', data]);
  assert.match(damaged('data')?.fix ?? '', /assay restore FILE/);
});

test('ANY_IMAGE=on is a warning', async () => {
  const images = async (anyImage: string) =>
    (await examine(['--data', app.data], { ASSAY_ANY_IMAGE: anyImage }))('other images');
  assert.match((await images('on'))?.fix ?? '', /switch ANY_IMAGE off/);
  assert.equal((await images('off'))?.status, 'ok');
});

test('it reports rootless Docker and user namespaces, and what does not work with them', async () => {
  using place = temporaryDirectory();
  const find = await examine(['--data', place.path]);
  assert.equal(find('isolation')?.status, 'ok');
  assert.match(
    find('isolation')?.found ?? '',
    /^neither rootless nor user namespaces: .* root access to this host$/,
  );
  const check = (engine: { rootless?: true; userNamespaces?: true; runc?: string }, network = 'bridge') => {
    const none = { rootless: false, userNamespaces: false, runc: undefined };
    const { status, found, fix } = checkIsolation({ ...none, ...engine }, network);
    return [status, found, fix].filter(Boolean).join(': ');
  };
  assert.equal(check({ userNamespaces: true, runc: '1.1.5+ds1' }), 'ok: user namespaces are on');
  assert.equal(check({ userNamespaces: true }), 'ok: user namespaces are on');
  assert.match(
    check({ userNamespaces: true, runc: '1.0.3' }),
    /^fail: .* runc 1\.0\.3 .*: runc 1\.1 or newer/,
  );
  assert.equal(check({ userNamespaces: true, runc: '1.10.0' }), 'ok: user namespaces are on');
  assert.match(check({ runc: '1.0.3' }), /^ok: neither /);
  assert.match(check({ rootless: true }), /^fail: Docker runs rootless, .*: set NETWORK to none/);
  assert.equal(check({ rootless: true }, 'none'), 'ok: Docker runs rootless');
});

test('--await exits with 0 as soon as the server answers, and with 1 when it does not answer in time', async () => {
  const { host } = new URL(app.url);
  assert.equal((await runAssay(['doctor', '--await', '10', '--listen', host])).status, 0);
  const unanswered = await runAssay(['doctor', '--await', '3', '--listen', `127.0.0.1:${await freePort()}`]);
  assert.equal(unanswered.status, 1);
  assert.match(unanswered.stderr, /after 3 s no server answers/);
});

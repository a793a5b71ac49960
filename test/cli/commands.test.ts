// The command line: help, usage errors, and the commands for accounts and applications. Each run is a separate process.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { environmentWith, mainPath, runAssay, temporaryDirectory } from './program.ts';

const concurrently = { concurrency: 2 };
const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'));

test('the command line itself', concurrently, async t => {
  await Promise.all([
    t.test('--version prints the version', async () => {
      const { status, stdout, stderr } = await runAssay(['--version']);
      assert.deepEqual([status, stdout, stderr], [0, `assay ${version}\n`, '']);
    }),
    t.test('--help, -h, help and nothing at all list the commands', async () => {
      const { status, stdout } = await runAssay(['--help']);
      assert.equal(status, 0);
      for (const name of ['serve', 'user', 'app add']) assert.match(stdout, new RegExp(`^ +${name} `, 'm'));
      assert.equal((await runAssay([])).stdout, stdout);
      assert.equal((await runAssay(['-h'])).stdout, stdout);
    }),
    t.test('serve --help lists every setting with its default', async () => {
      const { status, stdout } = await runAssay(['serve', '--help']);
      assert.equal(status, 0);
      const { settings, flagOf } = await import('../../src/config.ts');
      for (const { name, defaultValue } of settings) {
        const line = stdout.split('\n').find(one => one.includes(` ${flagOf(name)} `));
        assert.ok(line?.includes(defaultValue), name);
      }
    }),
  ]);
});

test('each command has its own help, with its usage and its flags', concurrently, async t => {
  const commands: Record<string, string[]> = {
    'user add': ['EMAIL', '--kind', '--admin', '--json', '--data'],
    'user list': ['--json', '--data'],
    'user set': ['EMAIL', '--standing', '--trial-ends', '--kind', '--admin', '--no-admin', '--data'],
    'user reset': ['EMAIL', '--json', '--data'],
    'app add': ['NAME', '--owner', '--redirect-uri', '--public', '--json', '--data'],
  };
  await Promise.all(
    Object.entries(commands).map(([name, words]) =>
      t.test(`assay ${name} --help`, async () => {
        const { status, stdout, stderr } = await runAssay([...name.split(' '), '--help']);
        assert.deepEqual([status, stderr], [0, '']);
        assert.ok(stdout.startsWith(`usage: assay ${name}`));
        for (const word of words) assert.ok(stdout.includes(word), word);
      }),
    ),
  );
});

test('a usage error is explained, exits with 2, and creates no data directory', concurrently, async t => {
  using directory = temporaryDirectory();
  const data = join(directory.path, 'data');
  const cases: [args: string[], said: RegExp][] = [
    [['serv'], /no command "serv"/],
    [['user'], /user needs one of: add, list, set, reset/],
    [['user', 'remove', 'a@example.com'], /user needs one of: add, list, set, reset/],
    [['serve', '--bogus'], /'--bogus'.*"assay serve --help"/],
    [['serve', 'extra'], /usage: assay serve/],
    [['serve', '--listen'], /--listen/],
    [['serve', '--listen', ''], /--listen is given without a value/],
    [['serve', '--timeout', '-5'], /^assay: [^\n]*--timeout[^\n]*\n$/],
    [['serve', '--listen', 'nowhere'], /--listen .*"nowhere"/],
    [['serve', '--memory', '2GB'], /--memory .*"2GB"/],
    [['user', 'add'], /usage: assay user add EMAIL/],
    [['user', 'add', 'a@example.com', '--kind', 'owner'], /--kind "owner": Choose user or collaborator\./],
    [['user', 'add', 'not an address'], /EMAIL "not an address": Enter a complete email address/],
    [['user', 'add', 'a@example.com', '--admin=yes'], /--admin/],
    [['user', 'set', 'a@example.com'], /needs --standing/],
    [
      ['user', 'set', 'a@example.com', '--standing', 'gone'],
      /--standing "gone": Choose active, suspended or/,
    ],
    [['user', 'set', 'a@example.com', '--kind', 'user'], /no database in .*: name the data directory/],
    [['user', 'reset', 'a@example.com'], /no database in .*: name the data directory/],
    [
      ['app', 'add', 'x', '--owner', 'a@example.com', '--redirect-uri', 'https://app.test/'],
      /no database in .*: name the data directory/,
    ],
    [['app', 'add', 'x'], /needs --owner EMAIL/],
    [
      ['app', 'add', 'x', '--owner', 'a@example.com', '--redirect-uri', '/back'],
      /--redirect-uri "\/back": Enter a complete/,
    ],
  ];
  await Promise.all(
    cases.map(([args, message]) =>
      t.test(`assay ${args.join(' ')}`, async () => {
        const { status, stdout, stderr } = await runAssay(args, { ASSAY_DATA: data });
        assert.deepEqual([status, stdout], [2, '']);
        assert.match(stderr, /^assay: [^\n]+\n$/);
        assert.match(stderr, message);
      }),
    ),
  );
  assert.throws(() => readFileSync(join(data, 'assay.db')), { code: 'ENOENT' });
});

test('a reader that closes the pipe early causes no error', async () => {
  const child = spawn(process.execPath, [mainPath, 'serve', '--help'], {
    env: environmentWith(),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 30_000,
  });
  child.stdout.destroy();
  const message = await child.stderr.toArray();
  const [status] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
  assert.deepEqual([status, Buffer.concat(message).toString()], [0, '']);
});

test('an account is added, listed, changed and reset', async () => {
  using directory = temporaryDirectory();
  const assay = (...args: string[]) => runAssay([...args, '--data', directory.path]);
  const list = async () => JSON.parse((await assay('user', 'list', '--json')).stdout);

  assert.match((await assay('user', 'list')).stdout, /no account yet/);
  assert.deepEqual(await list(), []);

  const added = await assay('user', 'add', 'Ada@Example.com', '--admin', '--json');
  assert.deepEqual([added.status, added.stderr], [0, '']);
  const secrets = JSON.parse(added.stdout);
  assert.deepEqual(Object.keys(secrets), ['email', 'password', 'api_key']);
  assert.equal(secrets.email, 'ada@example.com');
  assert.match(secrets.api_key, /^assay_[\w-]{43}$/);
  assert.match(secrets.password, /^[a-z2-9]{5}(-[a-z2-9]{5}){3}$/);

  const again = await assay('user', 'add', 'ada@example.COM');
  assert.equal(again.status, 2);
  assert.match(again.stderr, /EMAIL "ada@example\.COM": An account with this email has already been added/);

  const shown = await assay('user', 'add', 'bob@example.com', '--kind', 'collaborator');
  assert.equal(shown.status, 0);
  assert.match(
    shown.stdout,
    /email +bob@example\.com\npassword +\S+ .*\nAPI key +assay_\S+ .*\n.*shown only now/,
  );

  const ada = {
    email: 'ada@example.com',
    kind: 'user',
    admin: true,
    standing: 'active',
    trial_ends_at: null,
  };
  const bob = { ...ada, email: 'bob@example.com', kind: 'collaborator', admin: false };
  assert.deepEqual(await list(), [ada, bob]);

  const set = await assay(
    'user',
    'set',
    'bob@example.com',
    '--standing',
    'suspended',
    '--trial-ends',
    '2030-01-31',
  );
  assert.deepEqual([set.status, set.stdout], [0, 'bob@example.com saved.\n']);
  assert.deepEqual(await list(), [
    ada,
    { ...bob, standing: 'suspended', trial_ends_at: '2030-01-31T00:00:00.000+00:00' },
  ]);
  await assay(
    'user',
    'set',
    'bob@example.com',
    '--standing',
    'active',
    '--trial-ends',
    'never',
    '--kind',
    'user',
  );
  assert.deepEqual(await list(), [ada, { ...bob, kind: 'user' }]);

  const refused: [args: string[], said: RegExp][] = [
    [['user', 'set', 'bob@example.com'], /needs --standing, --trial-ends, --kind, --admin or --no-admin/],
    [
      ['user', 'set', 'bob@example.com', '--standing', 'gone'],
      /--standing "gone": Choose active, suspended or/,
    ],
    ...['soon', '5', '2027', '2027-02-30', 'Jan 2027', '2027-01-31 10:00', '2027-01-31T25:00Z', ''].map(
      (date): [string[], RegExp] => [
        ['user', 'set', 'bob@example.com', '--trial-ends', date],
        new RegExp(`--trial-ends "${date}": Enter a date such as 2027-01-31`),
      ],
    ),
    [['user', 'set', 'eve@example.com', '--kind', 'user'], /no account eve@example\.com/],
    [['user', 'reset', 'eve@example.com'], /no account eve@example\.com/],
  ];
  for (const [args, message] of refused) {
    const { status, stderr } = await assay(...args);
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, message);
  }
  assert.deepEqual(await list(), [ada, { ...bob, kind: 'user' }]);

  const reset = JSON.parse((await assay('user', 'reset', 'ADA@example.com', '--json')).stdout);
  assert.deepEqual(Object.keys(reset), ['email', 'password', 'api_key']);
  assert.notEqual(reset.api_key, secrets.api_key);
  assert.notEqual(reset.password, secrets.password);
});

test('an application is registered with a secret, or as a public one without; an invalid redirect URI is refused', async () => {
  using directory = temporaryDirectory();
  const assay = (...args: string[]) => runAssay([...args, '--data', directory.path]);
  await assay('user', 'add', 'ada@example.com');
  const owner = ['--owner', 'ada@example.com'];
  const redirect = ['--redirect-uri', 'https://app.example.com/callback'];

  const withSecret = JSON.parse((await assay('app', 'add', 'one', ...owner, ...redirect, '--json')).stdout);
  assert.deepEqual(Object.keys(withSecret), ['client_id', 'client_secret']);
  const open = JSON.parse(
    (await assay('app', 'add', 'two', ...owner, ...redirect, '--public', '--json')).stdout,
  );
  assert.deepEqual(Object.keys(open), ['client_id']);
  assert.notEqual(open.client_id, withSecret.client_id);
  const outOfBand = await assay(
    'app',
    'add',
    'three',
    ...owner,
    '--redirect-uri',
    'urn:ietf:wg:oauth:2.0:oob',
  );
  assert.match(outOfBand.stdout, /client id +\S+\nclient secret +\S+ +\(shown only now\)/);

  const refused: [args: string[], said: RegExp][] = [
    [[...redirect], /needs --owner EMAIL/],
    [[...owner], /--redirect-uri/],
    [['--owner', 'eve@example.com', ...redirect], /no account eve@example\.com/],
    ...['javascript:alert(1)', 'data:text/html,x', '/callback', 'https://x/#y'].map(
      (address): [string[], RegExp] => [
        [...owner, '--redirect-uri', address],
        /--redirect-uri "[^\n]*": Enter a complete address/,
      ],
    ),
  ];
  for (const [args, message] of refused) {
    const { status, stdout, stderr } = await assay('app', 'add', 'x', ...args);
    assert.deepEqual([status, stdout], [2, ''], args.join(' '));
    assert.match(stderr, message);
  }
  for (const name of ['', '  ', 'two\nlines', 'x'.repeat(256)]) {
    const { status, stdout, stderr } = await assay('app', 'add', name, ...owner, ...redirect);
    assert.deepEqual([status, stdout], [2, ''], name);
    assert.match(
      stderr,
      name.trim() === '' ? /NAME " *": This field is required/ : /NAME .*: Use one line of at most 255 bytes/,
    );
  }
});

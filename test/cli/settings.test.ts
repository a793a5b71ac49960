// Settings: formats, defaults, precedence, and the messages for invalid values.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { UsageError } from '../../src/command/command.ts';
import { flagOf, readSettings, type Settings, settings } from '../../src/config.ts';
import { runAssay, temporaryDirectory } from './program.ts';

const read = (environment: Record<string, string>, flags: Record<string, string> = {}) =>
  readSettings(new Map(Object.entries(flags)), environment);

test('without any settings, the defaults apply', () => {
  const { settings: defaults, warnings } = read({});
  assert.deepEqual(warnings, []);
  assert.deepEqual(defaults, {
    data: resolve('./assay-data'),
    listen: { host: '127.0.0.1', port: 8443 },
    baseUrl: 'https://127.0.0.1:8443',
    filesUrl: undefined,
    tlsCert: undefined,
    tlsKey: undefined,
    dockerHost: 'unix:///var/run/docker.sock',
    engine: 'single',
    shared: undefined,
    image: 'host',
    anyImage: false,
    concurrency: cpus().length,
    retryLost: true,
    compileSlots: undefined,
    timeoutMs: 3_600_000,
    memoryBytes: 2 * 1024 ** 3,
    cpus: 2,
    pids: 1024,
    shmBytes: 64 * 1024 ** 2,
    network: 'bridge',
    runAs: { uid: 1000, gid: 1000 },
    logLimitBytes: 64 * 1024 ** 2,
    artifactLimitBytes: 1024 ** 3,
    diskBytes: 0,
    cacheLimitBytes: 5 * 1024 ** 3,
    cacheTotal: { share: 0.2 },
    retentionMs: 90 * 86_400_000,
    artifactsMs: 30 * 86_400_000,
    retention: {
      eventsMs: 30 * 86_400_000,
      firingsMs: 90 * 86_400_000,
      deliveriesMs: 30 * 86_400_000,
      decisionsMs: 90 * 86_400_000,
      testsMs: 90 * 86_400_000,
    },
    minFreeDiskBytes: 1024 ** 3,
    caCerts: undefined,
    webhookAllow: [],
    pollRate: 2,
    trustedProxies: [],
  });
});

const accepted: [name: string, value: string, key: keyof Settings, expected: unknown][] = [
  ['DATA', '/srv/data', 'data', '/srv/data'],
  ['LISTEN', '0.0.0.0:443', 'listen', { host: '0.0.0.0', port: 443 }],
  ['LISTEN', '[::1]:8443', 'listen', { host: '::1', port: 8443 }],
  ['LISTEN', 'ci.example.com:1', 'listen', { host: 'ci.example.com', port: 1 }],
  ['LISTEN', '127.0.0.1:65535', 'listen', { host: '127.0.0.1', port: 65535 }],
  ['BASE_URL', 'https://ci.example.com', 'baseUrl', 'https://ci.example.com'],
  ['BASE_URL', 'https://ci.example.com/', 'baseUrl', 'https://ci.example.com'],
  ['BASE_URL', 'https://ci.example.com:8443', 'baseUrl', 'https://ci.example.com:8443'],
  ['FILES_URL', 'https://files.example.com', 'filesUrl', 'https://files.example.com'],
  ['FILES_URL', 'https://files.example.com:8443/', 'filesUrl', 'https://files.example.com:8443'],
  ['ARTIFACT_DAYS', '7', 'artifactsMs', 7 * 86_400_000],
  ['CA_CERTS', '/etc/company-ca.pem', 'caCerts', '/etc/company-ca.pem'],
  ['MEMORY', '6291456', 'memoryBytes', 6_291_456],
  ['MEMORY', '6MiB', 'memoryBytes', 6 * 1024 ** 2],
  ['MEMORY', '512 MiB', 'memoryBytes', 512 * 1024 ** 2],
  ['LOG_LIMIT', '1KiB', 'logLimitBytes', 1024],
  ['LOG_LIMIT', '3GiB', 'logLimitBytes', 3 * 1024 ** 3],
  ['ARTIFACT_LIMIT', '0', 'artifactLimitBytes', 0],
  ['ARTIFACT_LIMIT', '2GiB', 'artifactLimitBytes', 2 * 1024 ** 3],
  ['DISK', '0', 'diskBytes', 0],
  ['ENGINE', 'single', 'engine', 'single'],
  ['RETRY_LOST', 'yes', 'retryLost', true],
  ['RETRY_LOST', 'no', 'retryLost', false],
  ['CACHE_LIMIT', '0', 'cacheLimitBytes', 0],
  ['CACHE_LIMIT', '100MiB', 'cacheLimitBytes', 100 * 1024 ** 2],
  ['CACHE_TOTAL', '0', 'cacheTotal', { bytes: 0 }],
  ['CACHE_TOTAL', '50GiB', 'cacheTotal', { bytes: 50 * 1024 ** 3 }],
  ['CACHE_TOTAL', '100%', 'cacheTotal', { share: 1 }],
  ['MIN_FREE_DISK', '0', 'minFreeDiskBytes', 0],
  ['CONCURRENCY', '1', 'concurrency', 1],
  ['COMPILE_SLOTS', '3', 'compileSlots', 3],
  ['TIMEOUT', '10', 'timeoutMs', 10_000],
  ['CPUS', '0.5', 'cpus', 0.5],
  ['CPUS', '0.01', 'cpus', 0.01],
  ['PIDS', '64', 'pids', 64],
  ['POLL_RATE', '0.5', 'pollRate', 0.5],
  ['POLL_RATE', '10', 'pollRate', 10],
  ['RUN_AS', '0:0', 'runAs', { uid: 0, gid: 0 }],
  ['RUN_AS', '1001:65534', 'runAs', { uid: 1001, gid: 65534 }],
  ['RETENTION_DAYS', '1', 'retentionMs', 86_400_000],
  ...(['EVENTS', 'FIRINGS', 'DELIVERIES', 'DECISIONS', 'TESTS'] as const).map(
    (name): (typeof accepted)[number] => [
      `RETENTION_${name}_DAYS`,
      '7',
      'retention',
      { ...read({}).settings.retention, [`${name.toLowerCase()}Ms`]: 7 * 86_400_000 },
    ],
  ),
  [
    'TRUSTED_PROXIES',
    '127.0.0.1, fd00::/8',
    'trustedProxies',
    [
      { family: 4, base: 0x7f000001n, bits: 32 },
      { family: 6, base: 0xfdn << 120n, bits: 8 },
    ],
  ],
  ['NETWORK', 'none', 'network', 'none'],
  ['NETWORK', 'team_net.2', 'network', 'team_net.2'],
  ['IMAGE', 'debian:12', 'image', 'debian:12'],
  ['ANY_IMAGE', 'on', 'anyImage', true],
  ['ANY_IMAGE', 'off', 'anyImage', false],
  ['IMAGE', 'registry.example.com:5000/team/tools:2', 'image', 'registry.example.com:5000/team/tools:2'],
];
for (const [name, value, key, expected] of accepted)
  test(`${name}=${value} is accepted, as a variable and as a flag`, () => {
    assert.deepEqual(read({ [`ASSAY_${name}`]: value }).settings[key], expected);
    assert.deepEqual(read({}, { [flagOf(name)]: value }).settings[key], expected);
  });

const refused: [name: string, value: string][] = [
  ...['127.0.0.1', ':8443', 'host:', 'host:99999', 'host:80:80', '::1:8443', 'a b:80', 'host:-1'].map(
    value => ['LISTEN', value] as [string, string],
  ),
  ...['http://x', 'ci.example.com', 'https://x/path', 'https://x?y', 'https://x#y', 'ftp://x'].map(
    value => ['BASE_URL', value] as [string, string],
  ),
  // Another port of the same host shares its cookies.
  ...[
    'http://files.example.com',
    'https://files.example.com/x',
    'https://127.0.0.1',
    'https://127.0.0.1:9443',
  ].map(value => ['FILES_URL', value] as [string, string]),
  ['ARTIFACT_DAYS', '0'],
  ...['2GB', '2 gib', '-1', '1.5GiB', 'lots', '1e9', '1KiB '].map(
    value => ['MEMORY', value] as [string, string],
  ),
  // Docker requires at least 6 MiB; 0 would mean no limit.
  ['MEMORY', '0'],
  ['MEMORY', '6291455'],
  ['MEMORY', '999999999999GiB'],
  ['LOG_LIMIT', 'x'],
  ['LOG_LIMIT', '0'],
  ['DISK', 'x'],
  ['ENGINE', 'kubernetes'],
  ['RETRY_LOST', 'on'],
  // Without ENGINE=swarm.
  ['SHARED', '/srv/assay'],
  ['ARTIFACT_LIMIT', '5%'],
  ['CACHE_LIMIT', '20%'],
  ['CACHE_LIMIT', 'x'],
  ...['0%', '101%', '12.5%', '%', '1TB', '-1'].map(value => ['CACHE_TOTAL', value] as [string, string]),
  ['MIN_FREE_DISK', '1TB'],
  ['CONCURRENCY', '0'],
  ['CONCURRENCY', 'two'],
  ['COMPILE_SLOTS', '0'],
  ['COMPILE_SLOTS', 'half'],
  ['POLL_RATE', '0'],
  ['POLL_RATE', '-1'],
  ['POLL_RATE', 'fast'],
  ['TIMEOUT', '0'],
  ['TIMEOUT', '1.5'],
  ['PIDS', '0'],
  ['RETENTION_DAYS', '-1'],
  ['RETENTION_DAYS', '0'],
  ['RETENTION_EVENTS_DAYS', '0'],
  ['RETENTION_FIRINGS_DAYS', '0'],
  ['CPUS', '0'],
  ['CPUS', '-1'],
  ['CPUS', 'x'],
  ['CPUS', '0.009'],
  ...['!!', 'Debian', 'a b', '-x', 'debian:', 'https://x/y'].map(
    value => ['IMAGE', value] as [string, string],
  ),
  ...['a/b', 'host', '-x', 'container:1', 'a b', '.x'].map(value => ['NETWORK', value] as [string, string]),
  ['RUN_AS', 'root'],
  ['RUN_AS', '1000'],
  ['RUN_AS', '1000:'],
  ['RUN_AS', '-1:0'],
  ['WEBHOOK_ALLOW', '10.0.0.0/33'],
  ['WEBHOOK_ALLOW', 'localhost'],
  ['TRUSTED_PROXIES', '127.0.0.1/33'],
  ['TRUSTED_PROXIES', 'proxy.example.com'],
];
for (const [name, value] of refused)
  test(`${name}=${JSON.stringify(value)} is refused in one line that names the flag and the value`, () => {
    assert.throws(
      () => read({ [`ASSAY_${name}`]: value }),
      (error: Error) => {
        assert.ok(error instanceof UsageError);
        assert.ok(error.message.includes(flagOf(name)), error.message);
        assert.ok(error.message.includes(value.trim()), error.message);
        assert.ok(!error.message.includes('\n'));
        return true;
      },
    );
  });

const swarm = { ASSAY_ENGINE: 'swarm', ASSAY_SHARED: '/srv/assay', ASSAY_DATA: '/var/lib/assay' };

test('a Swarm takes its shared directory, and the networks bridge and none', () => {
  const { settings: chosen } = read({ ...swarm, ASSAY_SHARED: '/srv//assay/', ASSAY_DISK: '0' });
  assert.equal(chosen.engine, 'swarm');
  assert.equal(chosen.shared, '/srv/assay');
  assert.equal(chosen.network, 'bridge');
  assert.equal(read({ ...swarm, ASSAY_NETWORK: 'none' }).settings.network, 'none');
  // A common beginning of the name is no overlap.
  assert.equal(
    read({ ...swarm, ASSAY_SHARED: '/var/lib/assay-share' }).settings.shared,
    '/var/lib/assay-share',
  );
});

const refusedWithSwarm: [environment: Record<string, string>, message: RegExp][] = [
  [{ ASSAY_SHARED: '' }, /^--engine swarm needs --shared \(ASSAY_SHARED\)/],
  [{ ASSAY_SHARED: 'shared' }, /--shared .* must be an absolute path of .*, not "shared"$/],
  // Mounts and /etc/fstab would need it in another form.
  [{ ASSAY_SHARED: '/srv/our builds' }, /--shared .* not "\/srv\/our builds"$/],
  [{ ASSAY_SHARED: '/var/lib/assay' }, /--shared .* outside of the data directory \/var\/lib\/assay/],
  [{ ASSAY_SHARED: '/var/lib/assay/shared' }, /--shared .* outside of the data directory/],
  [{ ASSAY_SHARED: '/var/lib' }, /--shared .* must not contain it/],
  [{ ASSAY_SHARED: '/' }, /--shared .* must not contain it/],
  [{ ASSAY_SHARED: '/srv/../var/lib' }, /--shared .* must not contain it/],
  [{ ASSAY_DISK: '5GiB' }, /--disk .* neither limits nor measures what a container writes, not "5GiB"$/],
  [{ ASSAY_BASE_URL: 'https://[::1]:8443' }, /--base-url .*nodes cannot pull images from \[::1\]/],
  [{ ASSAY_NETWORK: 'company' }, /--network .* bridge or none with ENGINE=swarm/],
];
for (const [environment, message] of refusedWithSwarm)
  test(`with ENGINE=swarm ${JSON.stringify(environment)} is refused in one line that says why`, () => {
    assert.throws(
      () => read({ ...swarm, ...environment }),
      (error: Error) => {
        assert.ok(error instanceof UsageError);
        assert.match(error.message, message);
        assert.ok(!error.message.includes('\n'));
        return true;
      },
    );
  });

for (const host of ['unix:///run/docker.sock', 'tcp://127.0.0.1:2376', 'tcp://[::1]:2375', 'tcp://docker'])
  test(`DOCKER_HOST=${host} is accepted`, () => {
    assert.equal(read({ DOCKER_HOST: host }).settings.dockerHost, host);
  });

const noDockerHosts = [
  ...['garbage', '127.0.0.1:2375', '/run/docker.sock', 'unix://', 'unix:///', 'unix://docker.sock', 'tcp://'],
  ...['tcp://:2375', 'tcp://x:99999', 'tcp://x:1/path', 'tcp://u@x:1', 'http://x:1', 'ssh://x', 'fd://'],
];
for (const host of noDockerHosts)
  test(`DOCKER_HOST=${host} is refused in one line that names it`, () => {
    assert.throws(
      () => read({ DOCKER_HOST: host }),
      (error: Error) => {
        assert.ok(error instanceof UsageError);
        assert.equal(
          error.message,
          `DOCKER_HOST must be unix:///PATH or tcp://HOST:PORT, not ${JSON.stringify(host)}`,
        );
        return true;
      },
    );
  });

for (const args of [['serve'], ['image', 'list'], ['user', 'list'], ['doctor']])
  test(`assay ${args.join(' ')} refuses an invalid DOCKER_HOST and an invalid setting with one line and status 2`, async () => {
    using place = temporaryDirectory();
    const data = join(place.path, 'data');
    for (const extra of [{ DOCKER_HOST: 'garbage' }, { ASSAY_NETWORK: 'host' }, { ASSAY_IMAGE: '!!' }]) {
      const { status, stderr } = await runAssay([...args, '--data', data], extra);
      assert.equal(status, 2, stderr);
      assert.match(stderr, /^assay: [^\n]*(DOCKER_HOST|ASSAY_NETWORK|ASSAY_IMAGE)[^\n]*\n$/);
    }
    assert.ok(!existsSync(data), 'nothing was created');
  });

test('missing certificates for Docker are named in one line', async () => {
  using place = temporaryDirectory();
  const { status, stderr } = await runAssay(['image', 'list', '--data', join(place.path, 'data')], {
    DOCKER_HOST: 'tcp://127.0.0.1:2376',
    DOCKER_TLS_VERIFY: '1',
    DOCKER_CERT_PATH: join(place.path, 'certificates'),
  });
  assert.equal(status, 1);
  assert.match(
    stderr,
    /^assay: Docker at tcp:[^\n]*\/certificates\/ca\.pem cannot be read[^\n]*DOCKER_CERT_PATH\n$/,
  );
});

test('a flag overrides its variable, and an empty variable counts as unset', () => {
  assert.equal(read({ ASSAY_PIDS: '1' }, { '--pids': '2' }).settings.pids, 2);
  assert.equal(read({ ASSAY_PIDS: '' }).settings.pids, 1024);
});

test('every flag is refused with its name when it is empty', () => {
  for (const { name } of settings)
    assert.throws(() => read({}, { [flagOf(name)]: '' }), {
      message: `${flagOf(name)} is given without a value`,
    });
});

test('the default base URL follows the listen address', () => {
  assert.equal(read({ ASSAY_LISTEN: '[::1]:9000' }).settings.baseUrl, 'https://[::1]:9000');
});

test('systemd provides the data directory, unless a setting does', () => {
  assert.equal(read({ STATE_DIRECTORY: '/var/lib/assay' }).settings.data, '/var/lib/assay');
  assert.equal(read({ STATE_DIRECTORY: '/var/lib/assay', ASSAY_DATA: '/x' }).settings.data, '/x');
});

test('a certificate without its key is refused, and vice versa', () => {
  assert.throws(() => read({ ASSAY_TLS_CERT: 'a' }), /--tls-cert and --tls-key must be given together/);
  assert.throws(() => read({ ASSAY_TLS_KEY: 'a' }), /--tls-cert and --tls-key must be given together/);
});

test('unknown ASSAY_ variables cause a warning; those that suites see do not', () => {
  const seen = ['ASSAY_PROJECT', 'ASSAY_SUITE', 'ASSAY_COMMIT', 'ASSAY_BRANCH', 'ASSAY_ARTIFACTS'];
  const { warnings } = read({
    ...Object.fromEntries(seen.map(name => [name, 'x'])),
    ASSAY_DATAA: '/x',
    ASSAY_: 'x',
    OTHER: 'x',
  });
  assert.equal(warnings.length, 2);
  assert.ok(warnings[0]?.includes('ASSAY_DATAA'));
});

test('webhook addresses are a list of ranges', () => {
  const { webhookAllow } = read({ ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8, ::1/128' }).settings;
  assert.equal(webhookAllow.length, 2);
});

test('every setting has a form and a meaning for --help', () => {
  for (const setting of settings) assert.ok(setting.form !== '' && setting.meaning !== '', setting.name);
});

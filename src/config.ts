// The table of settings with their formats and defaults, and their parser. They are read from flags and ASSAY_… variables.

import { cpus } from 'node:os';
import { isAbsolute, relative, resolve } from 'node:path';
import { UsageError } from './command/command.ts';
import type { CacheTotal } from './domain/cache.ts';
import { checkImageName } from './domain/names.ts';
import { registryOf } from './domain/swarm.ts';
import { type Cidr, parseCidrs } from './domain/webhook/address.ts';

/** `single`: plain containers on one host. `swarm`: services on the nodes of a Docker Swarm. */
export type EngineKind = 'single' | 'swarm';

export type Settings = {
  data: string;
  listen: { host: string; port: number };
  baseUrl: string;
  /** The origin that artifacts are opened on; undefined for the own one. */
  filesUrl: string | undefined;
  tlsCert: string | undefined;
  tlsKey: string | undefined;
  dockerHost: string;
  engine: EngineKind;
  /** The directory that all nodes mount; undefined unless the engine is `swarm`. */
  shared: string | undefined;
  image: string;
  anyImage: boolean;
  /** With `swarm` it is the number for each node. */
  concurrency: number;
  /** Whether a job runs again after its container was lost. */
  retryLost: boolean;
  /** COMPILE_SLOTS; undefined for half of them. */
  compileSlots: number | undefined;
  timeoutMs: number;
  memoryBytes: number;
  cpus: number;
  pids: number;
  shmBytes: number;
  network: string;
  runAs: { uid: number; gid: number };
  logLimitBytes: number;
  artifactLimitBytes: number;
  diskBytes: number;
  cacheLimitBytes: number;
  cacheTotal: CacheTotal;
  retentionMs: number;
  /** How long artifacts of builds are kept. */
  artifactsMs: number;
  /** How long rows are kept. */
  retention: {
    eventsMs: number;
    firingsMs: number;
    deliveriesMs: number;
    decisionsMs: number;
    testsMs: number;
  };
  minFreeDiskBytes: number;
  caCerts: string | undefined;
  webhookAllow: Cidr[];
  /** Looks at repositories that may begin in a second. */
  pollRate: number;
  trustedProxies: Cidr[];
};

type Setting = { name: string; defaultValue: string; form: string; meaning: string };

const table: readonly [name: string, defaultValue: string, form: string, meaning: string][] = [
  ['DATA', './assay-data', 'DIRECTORY', 'directory that holds all data'],
  ['LISTEN', '127.0.0.1:8443', 'HOST:PORT', 'HTTPS only, HTTP/2 and HTTP/1.1'],
  ['BASE_URL', 'https:// + LISTEN', 'URL', 'address that callers use'],
  ['FILES_URL', '', 'URL', 'second host name, only for opening artifacts of builds'],
  ['TLS_CERT', 'made at first start', 'FILE', 'certificate chain, PEM'],
  ['TLS_KEY', 'made at first start', 'FILE', 'private key of TLS_CERT, PEM'],
  ['ENGINE', 'single', 'single|swarm', 'plain containers on one host, or services on a Docker Swarm'],
  ['SHARED', '', 'DIRECTORY', 'directory that all nodes mount at this path; only with ENGINE=swarm'],
  ['IMAGE', 'host', 'NAME', 'default image of containers'],
  ['ANY_IMAGE', 'off', 'on|off', 'allow images that were not imported'],
  [
    'CONCURRENCY',
    'number of cores',
    'NUMBER',
    'containers that run at the same time, with swarm on each node',
  ],
  [
    'COMPILE_SLOTS',
    'half of CONCURRENCY',
    'NUMBER',
    'how many of them may be compiles; one stays for builds',
  ],
  ['TIMEOUT', '3600', 'SECONDS', 'time limit of a suite or a compile'],
  ['RETRY_LOST', 'yes', 'yes|no', 'run a job again, at most twice, when its container was lost'],
  ['MEMORY', '2GiB', 'SIZE', 'memory limit of a container'],
  ['CPUS', '2', 'NUMBER', 'processor limit of a container'],
  ['PIDS', '1024', 'NUMBER', 'process limit of a container'],
  ['SHM', '64MiB', 'SIZE', 'size of /dev/shm in a container; counts as MEMORY'],
  ['NETWORK', 'bridge', 'NAME', "bridge (Assay's own), none, or a Docker network"],
  ['RUN_AS', '1000:1000', 'UID:GID', 'user and group in containers'],
  ['LOG_LIMIT', '64MiB', 'SIZE', 'size limit of the log of a build or compile'],
  ['ARTIFACT_LIMIT', '1GiB', 'SIZE', 'size limit of the artifacts of a build; 0 = no limit'],
  ['DISK', '0', 'SIZE', 'size limit of a workspace; 0 = no limit'],
  ['CACHE_LIMIT', '5GiB', 'SIZE', 'size limit of the cache of a suite; 0 = no limit'],
  ['CACHE_TOTAL', '20%', 'SIZE', 'size limit of all caches, or a share of the disk; 0 = no limit'],
  ['RETENTION_DAYS', '90', 'DAYS', 'how long logs, unused Git LFS files and submodules are kept'],
  ['ARTIFACT_DAYS', '30', 'DAYS', 'how long artifacts of builds are kept'],
  ['RETENTION_EVENTS_DAYS', '30', 'DAYS', 'how long events are kept'],
  ['RETENTION_FIRINGS_DAYS', '90', 'DAYS', 'how long the history of triggers is kept'],
  ['RETENTION_DELIVERIES_DAYS', '30', 'DAYS', 'how long finished webhook deliveries are kept'],
  ['RETENTION_DECISIONS_DAYS', '90', 'DAYS', 'how long the reasons why suites ran are kept'],
  ['RETENTION_TESTS_DAYS', '90', 'DAYS', 'how long test results are kept'],
  ['MIN_FREE_DISK', '1GiB', 'SIZE', 'no work starts with less free disk space'],
  ['CA_CERTS', '', 'FILE', 'more authorities that outgoing HTTPS trusts, PEM'],
  ['WEBHOOK_ALLOW', '', 'CIDRS', 'extra networks that webhooks and commit statuses may reach'],
  ['POLL_RATE', '2', 'NUMBER', 'checks for new commits per second, over all repositories'],
  ['TRUSTED_PROXIES', '', 'CIDRS', 'reverse proxies whose X-Forwarded-For and -Proto are trusted'],
];

export const settings: readonly Setting[] = table.map(([name, defaultValue, form, meaning]) => ({
  name,
  defaultValue,
  form,
  meaning,
}));

/** Variables of suites and developers that are not settings but are no mistake either. */
const notSettings = new Set([
  'ASSAY_URL',
  'ASSAY_TOKEN',
  'ASSAY_CA_FILE',
  'ASSAY_PROJECT',
  'ASSAY_SUITE',
  'ASSAY_COMMIT',
  'ASSAY_BRANCH',
  'ASSAY_TAG',
  'ASSAY_PULL_REQUEST',
  'ASSAY_TRIGGER',
  'ASSAY_TRIGGER_NAME',
  'ASSAY_BUILD_ID',
  'ASSAY_ARTIFACTS',
  'ASSAY_DEBUG',
]);

export const flagOf = (name: string) => `--${name.toLowerCase().replaceAll('_', '-')}`;

/** Absolute, because Docker needs absolute paths for mounts. `flag` is the value of --data. */
export function dataDirectoryOf(flag: string | undefined, environment: NodeJS.ProcessEnv): string {
  const [, defaultValue] = table.find(([name]) => name === 'DATA') as (typeof table)[number];
  return resolve(
    flag || environment.ASSAY_DATA || environment.STATE_DIRECTORY?.split(':')[0] || defaultValue,
  );
}

/** Flags override variables, and variables override defaults. */
export function readSettings(
  flags: ReadonlyMap<string, string>,
  environment: NodeJS.ProcessEnv,
): { settings: Settings; warnings: string[] } {
  const warnings: string[] = [];
  for (const name of Object.keys(environment))
    if (
      name.startsWith('ASSAY_') &&
      !notSettings.has(name) &&
      !settings.some(setting => `ASSAY_${setting.name}` === name)
    )
      warnings.push(`unknown setting ${name} in the environment is ignored`);

  const given = (name: string): string | undefined => {
    // An empty variable counts as not set. An empty flag is a mistake, most likely in a script.
    if (flags.get(flagOf(name)) === '') throw new UsageError(`${flagOf(name)} is given without a value`);
    return flags.get(flagOf(name)) ?? (environment[`ASSAY_${name}`] || undefined);
  };
  /** For settings whose default in the table is a value. */
  const textOf = (name: string): string =>
    given(name) ?? (settings.find(setting => setting.name === name) as Setting).defaultValue;
  const bad = (name: string, form: string): never => {
    throw new UsageError(
      `${flagOf(name)} (ASSAY_${name}) must be ${form}, not ${JSON.stringify(given(name))}`,
    );
  };
  const wholeNumber = (name: string, least: number): number => {
    const value = textOf(name);
    return /^\d{1,9}$/.test(value) && Number(value) >= least
      ? Number(value)
      : bad(name, `a whole number, ${least} or more`);
  };
  const days = (name: string): number => wholeNumber(name, 1) * 24 * 3600_000;
  const size = (name: string, least: keyof typeof leastBytes = '0'): number => {
    const bytes = parseSize(textOf(name)) ?? bad(name, 'a size: bytes, or with KiB, MiB or GiB');
    return bytes >= leastBytes[least] ? bytes : bad(name, `a size of ${least} or more`);
  };
  const cidrs = (name: string): Cidr[] => {
    const text = textOf(name);
    try {
      return parseCidrs(text);
    } catch (error) {
      throw new UsageError(`${flagOf(name)} (ASSAY_${name}): ${(error as Error).message}`);
    }
  };

  const listen = parseListen(textOf('LISTEN')) ?? bad('LISTEN', 'HOST:PORT');
  const runAs = /^(\d{1,9}):(\d{1,9})$/.exec(textOf('RUN_AS')) ?? bad('RUN_AS', 'UID:GID');
  const cpuShare = textOf('CPUS');
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(cpuShare) || Number(cpuShare) < LEAST_CPUS)
    bad('CPUS', `a number, ${LEAST_CPUS} or more`);
  const pollRate = textOf('POLL_RATE');
  if (!/^\d{1,3}(\.\d{1,2})?$/.test(pollRate) || Number(pollRate) < LEAST_POLL_RATE)
    bad('POLL_RATE', `a number, ${LEAST_POLL_RATE} or more`);
  const image = textOf('IMAGE');
  if (checkImageName(image)) bad('IMAGE', 'host or the name of an image, as debian:12');
  const anyImage = textOf('ANY_IMAGE');
  if (anyImage !== 'on' && anyImage !== 'off') bad('ANY_IMAGE', 'on or off');
  const network = textOf('NETWORK');
  // The host's network would give builds access to services on its loopback addresses.
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/.test(network) || network === 'host')
    bad('NETWORK', 'bridge, none or the name of a Docker network other than host');
  const engine = textOf('ENGINE');
  if (engine !== 'single' && engine !== 'swarm') return bad('ENGINE', 'single or swarm');
  const retryLost = textOf('RETRY_LOST');
  if (retryLost !== 'yes' && retryLost !== 'no') bad('RETRY_LOST', 'yes or no');
  const data = dataDirectoryOf(given('DATA'), environment);
  const diskBytes = size('DISK');
  const shared = given('SHARED');
  if (engine === 'single' && shared !== undefined)
    bad('SHARED', 'left out unless --engine (ASSAY_ENGINE) is swarm');
  const baseUrl = readOrigin('BASE_URL', given('BASE_URL')) ?? `https://${textOf('LISTEN')}`;
  if (engine === 'swarm') {
    try {
      registryOf(baseUrl);
    } catch (error) {
      throw new UsageError(`--base-url (ASSAY_BASE_URL): ${(error as Error).message}`);
    }
    if (shared === undefined)
      throw new UsageError(
        '--engine swarm needs --shared (ASSAY_SHARED): the directory that all nodes mount at the same path',
      );
    if (!isAbsolute(shared) || /[^\w./-]/.test(shared))
      bad('SHARED', 'an absolute path of letters, digits and . _ - /');
    // Nodes mount all of SHARED. DATA has the keys, and its links into SHARED would form a loop.
    if (isInside(shared, data) || isInside(data, shared))
      bad('SHARED', `outside of the data directory ${data}, and must not contain it`);
    if (diskBytes > 0)
      bad('DISK', '0 with ENGINE=swarm, because a Swarm neither limits nor measures what a container writes');
    if (network !== 'bridge' && network !== 'none')
      bad('NETWORK', 'bridge or none with ENGINE=swarm, because the nodes have no other networks');
  }
  if ((given('TLS_CERT') === undefined) !== (given('TLS_KEY') === undefined))
    throw new UsageError('--tls-cert and --tls-key must be given together');

  const filesUrl = readOrigin('FILES_URL', given('FILES_URL'));
  // A different port would not do: browsers send cookies to all ports of a host.
  if (filesUrl !== undefined && URL.parse(filesUrl)?.hostname === URL.parse(baseUrl)?.hostname)
    bad('FILES_URL', 'an address with another host name than BASE_URL');

  return {
    warnings,
    settings: {
      data,
      listen,
      baseUrl,
      filesUrl,
      tlsCert: given('TLS_CERT'),
      tlsKey: given('TLS_KEY'),
      dockerHost: readDockerHost(environment.DOCKER_HOST || 'unix:///var/run/docker.sock'),
      engine,
      shared: shared === undefined ? undefined : resolve(shared),
      image,
      anyImage: anyImage === 'on',
      concurrency: given('CONCURRENCY') === undefined ? cpus().length : wholeNumber('CONCURRENCY', 1),
      retryLost: retryLost === 'yes',
      compileSlots: given('COMPILE_SLOTS') === undefined ? undefined : wholeNumber('COMPILE_SLOTS', 1),
      timeoutMs: wholeNumber('TIMEOUT', 1) * 1000,
      memoryBytes: size('MEMORY', '6MiB'),
      cpus: Number(cpuShare),
      pids: wholeNumber('PIDS', 1),
      shmBytes: size('SHM', '1KiB'),
      network,
      runAs: { uid: Number(runAs[1]), gid: Number(runAs[2]) },
      logLimitBytes: size('LOG_LIMIT', '1KiB'),
      artifactLimitBytes: size('ARTIFACT_LIMIT'),
      diskBytes,
      cacheLimitBytes: size('CACHE_LIMIT'),
      cacheTotal:
        parseCacheTotal(textOf('CACHE_TOTAL')) ??
        bad('CACHE_TOTAL', 'a size (bytes, or with KiB, MiB or GiB) or a percentage from 1% to 100%'),
      retentionMs: days('RETENTION_DAYS'),
      artifactsMs: days('ARTIFACT_DAYS'),
      retention: {
        eventsMs: days('RETENTION_EVENTS_DAYS'),
        firingsMs: days('RETENTION_FIRINGS_DAYS'),
        deliveriesMs: days('RETENTION_DELIVERIES_DAYS'),
        decisionsMs: days('RETENTION_DECISIONS_DAYS'),
        testsMs: days('RETENTION_TESTS_DAYS'),
      },
      minFreeDiskBytes: size('MIN_FREE_DISK'),
      caCerts: given('CA_CERTS'),
      webhookAllow: cidrs('WEBHOOK_ALLOW'),
      pollRate: Number(pollRate),
      trustedProxies: cidrs('TRUSTED_PROXIES'),
    },
  };
}

/** 6 MiB is Docker's minimum of memory. A log below 1 KiB would hold little more than the note that it was cut. */
const leastBytes = { '0': 0, '1KiB': 1024, '6MiB': 6 * 1024 ** 2 };
/** Docker's minimum. */
const LEAST_CPUS = 0.01;
const LEAST_POLL_RATE = 0.01;

/** Whether `inner` is `outer` or a path in it. */
function isInside(inner: string, outer: string): boolean {
  const path = relative(outer, inner);
  return path !== '..' && !path.startsWith('../');
}

const units: Record<string, number> = { '': 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

function parseSize(text: string): number | undefined {
  const [, digits, unit] = /^(\d{1,12}) ?(KiB|MiB|GiB)?$/.exec(text) ?? [];
  const bytes = Number(digits) * (units[unit ?? ''] as number);
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

function parseCacheTotal(text: string): CacheTotal | undefined {
  const [, percent] = /^(\d{1,3})%$/.exec(text) ?? [];
  if (percent !== undefined)
    return Number(percent) >= 1 && Number(percent) <= 100 ? { share: Number(percent) / 100 } : undefined;
  const bytes = parseSize(text);
  return bytes === undefined ? undefined : { bytes };
}

function parseListen(text: string): { host: string; port: number } | undefined {
  const [, v6, name, port] = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text) ?? [];
  return port === undefined || Number(port) > 65535
    ? undefined
    : { host: (v6 ?? name) as string, port: Number(port) };
}

function readDockerHost(text: string): string {
  const url = URL.parse(text);
  const isSocket = /^unix:\/\/\/./.test(text);
  const isAddress = url?.protocol === 'tcp:' && url.hostname !== '' && /^tcp:\/\/[^/?#@]+\/?$/.test(text);
  if (!isSocket && !isAddress)
    throw new UsageError(`DOCKER_HOST must be unix:///PATH or tcp://HOST:PORT, not ${JSON.stringify(text)}`);
  return text;
}

function readOrigin(name: string, text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'https:' || url.search !== '' || url.hash !== '' || url.pathname !== '/')
    throw new UsageError(
      `${flagOf(name)} (ASSAY_${name}) must be https://HOST[:PORT], not ${JSON.stringify(text)}`,
    );
  return url.origin;
}

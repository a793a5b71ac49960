// The checks of `assay doctor`, one function each: what was found, whether it is good enough, and how to fix it.

import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { sizeText } from '../command/progress.ts';
import type { Settings } from '../config.ts';
import { HOST_IMAGE, taggedImage } from '../domain/names.ts';
import { loadCertificate } from '../engine/certificate.ts';
import { type DockerReport, inspectDocker } from '../engine/docker/report.ts';
import { hostSettings } from '../engine/docker/skeleton.ts';
import { type NodeProbe, OWN_BRIDGE } from '../engine/engine.ts';
import { freeBytes, isClockSynchronized, libraries, programVersion, requestHealth } from '../engine/host.ts';
import { masterKeyPath, tlsDirectory } from '../store/data/paths.ts';
import type { Inspection } from '../store/database/inspect.ts';
import { type Check, type Finding, fail, isOlder, ok, warn } from './check.ts';
import { checkSwarm } from './swarm-checks.ts';

type CheckInput = {
  settings: Settings;
  environment: NodeJS.ProcessEnv;
  stored: Inspection | Error;
  /** Runs a job on each node of a swarm; undefined if there is none, or no data directory yet. */
  probe: (() => Promise<NodeProbe[]>) | undefined;
};

const MIN_API = '1.41';
const MIN_GLIBC = '2.34';
const MIN_REMAPPED_RUNC = '1.1';
const CREDENTIAL = '/etc/credstore/assay.master.key';
const DAY_MS = 86_400_000;
const CLOCK_SLACK_MS = 60_000;
const CERTIFICATE_WARN_DAYS = 21;

export async function checkAll(subject: CheckInput): Promise<Check[]> {
  const { settings, environment, stored } = subject;
  const engine = await inspectDocker(settings.dockerHost, environment).catch((error: Error) => error);
  const inspected = stored instanceof Error ? undefined : stored;
  const lines: [string, Finding | Promise<Finding>][] = [
    ['Docker', checkEngine(engine)],
    ...(engine instanceof Error
      ? []
      : ([
          ['limits', checkLimits(engine)],
          ['isolation', checkIsolation(engine, settings.network)],
          ['image', checkImage(engine, inspected?.image ?? settings.image)],
          ['other images', checkAnyImage(settings)],
        ] as [string, Finding][])),
    ['git', checkProgram('git', '--version', 'git')],
    ['ssh', checkProgram('ssh', '-V', 'openssh-client')],
    ['libraries', checkLibraries()],
    ['data', checkData(settings.data, stored)],
    ['key', checkKey(settings.data, environment, inspected)],
    ['disk', checkDisk(settings)],
    ['certificate', checkCertificate(settings)],
    ['clock', checkClock(engine, inspected?.newestAt)],
    ['server', checkServer(settings)],
  ];
  const checks: Check[] = [];
  for (const [name, finding] of lines) checks.push({ name, ...(await finding) });
  if (settings.shared !== undefined && !(engine instanceof Error))
    checks.push(
      ...(await checkSwarm({
        settings,
        shared: settings.shared,
        environment,
        instance: inspected?.instance ?? '',
        image: inspected?.image ?? settings.image,
        probe: subject.probe,
      })),
    );
  return checks;
}

function checkEngine(engine: DockerReport | Error): Finding {
  if (engine instanceof Error)
    return fail(
      engine.message,
      'start Docker (20.10 or newer), let this user use its socket, or set DOCKER_HOST',
    );
  const found = `Engine ${engine.engine}, API ${engine.api}${engine.runc ? `, runc ${engine.runc}` : ''}`;
  return isOlder(engine.api, MIN_API)
    ? fail(found, `API ${MIN_API} is needed: install Docker 20.10 or newer`)
    : ok(found);
}

function checkLimits({ unenforced, seccomp }: DockerReport): Finding {
  if (unenforced.length > 0)
    return warn(
      `Docker cannot limit ${unenforced.join(', ')} here`,
      'enable the cgroup controllers in the kernel; without them one build can use up all resources',
    );
  return seccomp
    ? ok('memory, processors and processes are limited, system calls are filtered')
    : warn('Docker filters no system calls (seccomp is off)', 'use a kernel and a Docker with seccomp');
}

type Isolation = Pick<DockerReport, 'rootless' | 'userNamespaces' | 'runc'>;

export function checkIsolation({ rootless, userNamespaces, runc }: Isolation, network: string): Finding {
  if (rootless)
    return network === OWN_BRIDGE
      ? fail(
          "Docker runs rootless, where containers cannot be kept from the host's ports: no build will start",
          'set NETWORK to none, or to a network of your own',
        )
      : ok('Docker runs rootless');
  if (!userNamespaces)
    return ok(
      'neither rootless nor user namespaces: access to the Docker socket is root access to this host',
    );
  // Containers mount files of the data directory, which is private. Older versions of runc cannot do that.
  return runc !== undefined && isOlder(runc, MIN_REMAPPED_RUNC)
    ? fail(
        `user namespaces are on, and runc ${runc} cannot mount files of a private directory with them`,
        `runc ${MIN_REMAPPED_RUNC} or newer is needed: update it, or switch userns-remap off`,
      )
    : ok('user namespaces are on');
}

function checkImage({ images }: DockerReport, name: string): Finding {
  if (name === HOST_IMAGE) {
    const missing = ['sh', 'gcc', 'make'].filter(program => !existsSync(`/usr/bin/${program}`));
    if (missing.length > 0)
      return warn(
        `host: this server has no ${missing.join(', ')}`,
        'install the programs that builds need, or import an image',
      );
    const { leftOut } = hostSettings();
    return leftOut.length === 0
      ? ok("host: this server's own /usr")
      : warn(
          `host: left out of containers, because it may hold credentials: ${leftOut.map(name => `/etc/${name}`).join(', ')}`,
          'if suites need it, move the credentials into variables of the suites and make the file readable for all users',
        );
  }
  return images.includes(taggedImage(name))
    ? ok(name)
    : fail(`Docker has no image ${name}`, `assay image import FILE --name ${name}, or assay image use host`);
}

function checkAnyImage({ anyImage }: Settings): Finding {
  return anyImage
    ? warn(
        'ANY_IMAGE is on: whoever edits a suite can use every image that Docker has',
        'import the images that are needed, and switch ANY_IMAGE off',
      )
    : ok('suites can use host, the default and imported images');
}

async function checkProgram(program: string, flag: string, packageName: string): Promise<Finding> {
  const version = await programVersion(program, flag);
  if (version === undefined)
    return fail(`${program} is not installed`, `install it: apt install ${packageName}`);
  return ok(version);
}

function checkLibraries(): Finding {
  const { glibc, missing } = libraries();
  if (glibc === undefined || isOlder(glibc, MIN_GLIBC))
    return fail(
      `glibc ${glibc ?? 'is missing'}`,
      `glibc ${MIN_GLIBC} or newer is needed: a newer distribution`,
    );
  const found = `glibc ${glibc}, libstdc++, libatomic`;
  return missing.length === 0
    ? ok(found)
    : warn(`${missing.join(', ')} not loaded`, `install ${missing.join(', ')}`);
}

function checkData(data: string, stored: Inspection | Error): Finding {
  if (!existsSync(data)) return ok(`${data} does not exist yet: the first start creates it`);
  if (stored instanceof Error)
    return fail(`${data}: ${stored.message}`, 'run this as the user that runs the server, or as root');
  const { mode, uid } = statSync(data);
  const own = process.getuid?.() ?? 0;
  if (own !== 0 && uid !== own) return fail(`${data} belongs to user ${uid}`, `chown -R ${own} ${data}`);
  if ((mode & 0o077) !== 0)
    return fail(`${data} is open to others (mode ${(mode & 0o777).toString(8)})`, `chmod 700 ${data}`);
  if (stored.database === 'damaged' || stored.database === 'empty')
    return fail(`the database in ${data} is ${stored.database}`, 'assay restore FILE into a new directory');
  return ok(stored.database === 'absent' ? `${data}: empty so far` : `${data}: the database is intact`);
}

function checkKey(data: string, environment: NodeJS.ProcessEnv, stored: Inspection | undefined): Finding {
  const handed = environment.CREDENTIALS_DIRECTORY && join(environment.CREDENTIALS_DIRECTORY, 'master.key');
  for (const path of [handed, masterKeyPath(data), CREDENTIAL]) {
    const found = path ? statSync(path, { throwIfNoEntry: false }) : undefined;
    if (!path || !found) continue;
    const isOpen = path !== handed && (found.mode & 0o077) !== 0;
    return isOpen
      ? fail(`${path} is open to others (mode ${(found.mode & 0o777).toString(8)})`, `chmod 600 ${path}`)
      : ok(`${path}: keep a copy elsewhere`);
  }
  return stored?.database === 'sound'
    ? fail(`the master key ${masterKeyPath(data)} is missing`, 'put the file back from your copy')
    : ok('created at the first start');
}

async function checkDisk({ data, minFreeDiskBytes }: Settings): Promise<Finding> {
  const free = await freeBytes(data);
  const found = `${sizeText(free)} free on the disk of ${data}`;
  if (free < minFreeDiskBytes)
    return fail(found, `below ${sizeText(minFreeDiskBytes)} (MIN_FREE_DISK) no work starts: free some space`);
  return free < 2 * minFreeDiskBytes ? warn(found, 'soon no work will start: free some space') : ok(found);
}

async function checkCertificate({ tlsCert, tlsKey, data }: Settings): Promise<Finding> {
  const own = join(tlsDirectory(data), 'server.pem');
  try {
    const isGiven = tlsCert !== undefined && tlsKey !== undefined;
    if (!isGiven && !existsSync(own)) return ok('created at the first start');
    const read = (name: string) => new X509Certificate(readFileSync(join(tlsDirectory(data), name)));
    const { endsAt, authorityFingerprint } = isGiven
      ? await loadCertificate(tlsCert, tlsKey)
      : { endsAt: read('server.pem').validToDate, authorityFingerprint: read('ca.pem').fingerprint256 };
    const days = Math.floor((endsAt.getTime() - Date.now()) / DAY_MS);
    const found = `${isGiven ? tlsCert : own}: ${days} days left${isGiven ? '' : ', renewed automatically'}; authority SHA-256 ${authorityFingerprint}`;
    if (!isGiven) return ok(found);
    return days < CERTIFICATE_WARN_DAYS
      ? warn(found, 'replace it by a renewed one, then: systemctl reload assay (SIGHUP)')
      : ok(found);
  } catch (error) {
    return fail(
      (error as Error).message,
      'set TLS_CERT and TLS_KEY to a valid certificate and its key, or leave both out',
    );
  }
}

async function checkClock(engine: DockerReport | Error, newestAt: number | undefined): Promise<Finding> {
  const now = Date.now();
  const text = new Date(now).toISOString();
  if (newestAt !== undefined && newestAt > now + CLOCK_SLACK_MS)
    return fail(
      `${text} is before the newest record, of ${new Date(newestAt).toISOString()}`,
      'set the clock',
    );
  if (!(engine instanceof Error) && Math.abs(engine.systemTimeAt - now) > CLOCK_SLACK_MS)
    return warn(
      `${text}, but Docker's host has ${new Date(engine.systemTimeAt).toISOString()}`,
      'set both clocks',
    );
  return (await isClockSynchronized()) === false
    ? warn(`${text}, not synchronized`, 'timedatectl set-ntp true, or use another time service')
    : ok(text);
}

async function checkServer({ listen, baseUrl }: Settings): Promise<Finding> {
  const status = await requestHealth(listen, 5_000);
  if (status === undefined) return ok(`no server answers at ${listen.host}:${listen.port}`);
  return status === 200
    ? ok(`answers at ${baseUrl}`)
    : warn(`is unhealthy at ${baseUrl} (status ${status})`, 'see its log: journalctl -u assay');
}

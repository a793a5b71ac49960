// `drill network`: git hosts and receivers that refuse, hang, send slowly or send garbage, clients that disconnect,
// readers that do not read, and a firewall that is flushed. Each fault is reported clearly, delays nobody else, and
// leaves nothing behind.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from 'node:tls';
import { inspect } from 'node:util';
import { residentBytesOf } from '../../bench/support.ts';
import type { Wire } from '../../support/client.ts';
import { isFinished, type Journey, type ProjectJourney } from '../../support/journey.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import type { Random } from '../support/random.ts';
import { createTable, type Table } from '../support/table.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from '../support/workload.ts';
import {
  type BadHost,
  dripHttp,
  dripSsh,
  endless,
  garbage,
  hang,
  hangUp,
  redirect,
  startBadHost,
  startNobody,
} from './bad-hosts.ts';

export type NetworkOptions = {
  random: Random;
  command: readonly string[];
  /** Also runs what takes a minute: a host that hangs after the login. */
  includeSlow: boolean;
  /** How many clients disconnect, and how many readers do not read. */
  clients: number;
  /** How many times the firewall is flushed. */
  flushes: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

const END_MS = 150_000;
const ENGINE_BYTES = 512 * 1024 * 1024;
const GOOD_MS = 60_000;
const SLOW_HOSTS = 8;
const LOG_BYTES = 20_000_000;
const MIB = 1024 * 1024;
const MORE_BYTES = 150 * MIB;
const HOST_PORT = 4000;
/** How long running containers may reach the host after a flush. */
const OPEN_MS = 5_000;
const RULES = 4;

type Stage = {
  environment: DrillEnvironment;
  journey: Journey;
  good: ProjectJourney;
  running: Running;
  table: Table;
  options: NetworkOptions;
};

async function gitHosts(stage: Stage): Promise<void> {
  const { environment, journey, good, table, options } = stage;
  const hosts: Record<string, BadHost> = {
    refuses: await startNobody(),
    hangs: await startBadHost(hang),
    drips: await startBadHost(dripSsh),
    'talks rubbish': await startBadHost(garbage),
    'hangs up': await startBadHost(hangUp),
  };
  const name = (what: string) => `${what.replaceAll(' ', '-')}.test`;
  const aliases = Object.entries(hosts).map(
    ([what, { port }]) => `Host ${name(what)}\n  HostName 127.0.0.1\n  Port ${port}\n`,
  );
  writeFileSync(
    join(environment.data, 'ssh', 'config'),
    [environment.sshd.clientConfig, ...aliases].join(''),
  );
  const errors = new Map<string, string>();
  try {
    const bad = Object.keys(hosts).map(async what => {
      const made = await environment.ask('POST', '/projects', {
        name: what,
        repository_url: `git@${name(what)}:a/b.git`,
      });
      errors.set(what, await errorOf(environment, `/projects/${made.record.id_str}`));
    });
    const afterLogin: Record<string, string> = {
      'sends garbage after the login': 'head -c 100000 /dev/urandom',
      ...(options.includeSlow && { 'hangs after the login': 'sleep 300' }),
    };
    for (const [what, command] of Object.entries(afterLogin)) {
      const project = await journey.project();
      await project.suite({ command: 'true' });
      environment.sshd.addKey(project.key, command);
      bad.push(errorOf(environment, project.path).then(error => void errors.set(what, error)));
    }
    const startedAt = performance.now();
    const { state } = await good.run();
    table.mustBeTrue('git: a working host meanwhile builds', state === 'passed', state);
    table.atMost('git: time of the working host', performance.now() - startedAt, GOOD_MS, 'ms');
    await Promise.all(bad);
    for (const [what, error] of errors)
      table.mustBeTrue(`git: a host that ${what} is reported`, error !== '', what);
    options.say([...errors].map(([what, error]) => `a host that ${what}: ${error}`).join('\n       '));
  } finally {
    await Promise.all(Object.values(hosts).map(host => host.close()));
  }
  await environment.sshd.changeHostKey();
  const changed = await errorOf(environment, good.path);
  table.mustBeTrue('git: a changed host key is reported', /key/i.test(changed), changed);
  writeFileSync(join(environment.data, 'ssh', 'known_hosts'), '');
  const { state } = await good.run();
  table.mustBeTrue('git: accepted after the old host key is removed', state === 'passed', state);
}

/**
 * Hosts that accept the login and then send very slowly, more of them than there are slots for fetches. Other projects
 * continue, and a cancel ends the fetches.
 */
async function slowGitHosts({ environment, journey, good, table }: Stage): Promise<void> {
  const hosts = Array.from({ length: SLOW_HOSTS }, (_, index) => `slow-${index}.test`);
  const marks = join(environment.data, 'tmp', 'slow-hosts');
  mkdirSync(marks, { recursive: true });
  writeFileSync(
    join(environment.data, 'ssh', 'config'),
    `${environment.sshd.clientConfig}Host ${hosts.join(' ')}\n  HostName 127.0.0.1\n  Port ${environment.sshd.port}\n`,
  );
  const requests: string[] = [];
  for (const [index, host] of hosts.entries()) {
    const project = await journey.project(undefined, {
      repository_url: journey.repository().url.replace(/@[^:]+:/, `@${host}:`),
    });
    environment.sshd.addKey(project.key, trickleUntilLeft(join(marks, String(index))));
    requests.push(`${project.path}/build_requests/${await project.request()}`);
  }
  const startedAt = performance.now();
  const { state } = await good.run();
  table.mustBeTrue('slow git hosts: another project builds meanwhile', state === 'passed', state);
  table.atMost('slow git hosts: time of the other project', performance.now() - startedAt, GOOD_MS, 'ms');
  const under = await pollUntil(
    GOOD_MS,
    () => readdirSync(marks).filter(name => name.endsWith('.begun')),
    names => names.length === hosts.length,
  );
  table.mustBeTrue('slow git hosts: each is contacted', under.length === hosts.length, under.join());
  for (const path of requests) await environment.ask('POST', `${path}/cancel`);
  const left = await pollUntil(
    GOOD_MS,
    () => hosts.filter((_, index) => !readdirSync(marks).includes(`${index}.left`)),
    names => names.length === 0,
  );
  table.mustBeEmpty('slow git hosts: connections that outlive a cancel', left);
}

/**
 * Runs on the host instead of git: creates `FILE.begun` after the login and `FILE.left` after the client disconnects. It
 * ignores SIGPIPE, which would end it at its next write to a client that has gone.
 */
const trickleUntilLeft = (file: string) =>
  `trap '' PIPE; touch ${file}.begun; exec 3<&0; cat <&3 >/dev/null & while kill -0 $!; do printf . >&2; sleep 0.5; done; touch ${file}.left`;

/** The error of a build request of the project when it has ended; empty if it did not end or has no error. */
async function errorOf(environment: DrillEnvironment, path: string): Promise<string> {
  const requested = await environment.ask('POST', `${path}/build_requests`, { commit_ref: 'main' });
  const ended = await pollUntil(
    END_MS,
    async () => (await environment.ask('GET', `${path}/build_requests/${requested.record.id_str}`)).record,
    one => isFinished(one.build_state),
  );
  return ended.build_state === 'errored' ? String(ended.error ?? '') : '';
}

async function receivers({ environment, good, table, options }: Stage): Promise<void> {
  const hosts: Record<string, BadHost> = {
    refuses: await startNobody(),
    hangs: await startBadHost(hang),
    drips: await startBadHost(dripHttp),
    'talks rubbish': await startBadHost(garbage),
    'hangs up': await startBadHost(hangUp),
    redirects: await startBadHost(redirect),
    'never ends': await startBadHost(endless),
  };
  try {
    const notify = async (url: string) =>
      (
        await good.ask('POST', '/notifications', {
          notifiable_type: 'build',
          name: 'webhook',
          'options[url]': url,
        })
      ).id_str as string;
    const ids = new Map<string, string>();
    for (const [what, { port }] of Object.entries(hosts))
      ids.set(what, await notify(`http://127.0.0.1:${port}/hook`));
    const goodId = await notify(environment.receiver.url);
    await good.run();
    const deliveriesOf = async (id: string) =>
      (await environment.ask('GET', `${good.path}/notifications/${id}/deliveries`)).list;
    const mine = await pollUntil(
      GOOD_MS,
      () => deliveriesOf(goodId),
      list => list.length > 0 && list.every(one => one.state === 'delivered'),
    );
    table.mustBeEmpty(
      'webhooks: not delivered to a working receiver',
      mine.filter(one => one.state !== 'delivered').map(one => inspect(one)),
    );
    const reports: string[] = [];
    for (const [what, id] of ids) {
      const first = await pollUntil(
        GOOD_MS,
        async () => (await deliveriesOf(id)).at(-1) as Wire,
        one => Number(one?.attempts) > 0,
      );
      // An endless response has a good status, which is all that counts.
      const isTold = first?.state === 'delivered' || Boolean(first?.last_error);
      table.mustBeTrue(`webhooks: a receiver that ${what} is reported`, isTold, inspect(first));
      reports.push(`a receiver that ${what}: ${first?.state} ${first?.last_error ?? ''}`);
    }
    options.say(reports.join('\n       '));
    for (const id of [...ids.values(), goodId]) await good.ask('DELETE', `/notifications/${id}`);
  } finally {
    await Promise.all(Object.values(hosts).map(host => host.close()));
  }
}

async function vanishingClients({ environment, good, running, table, options }: Stage): Promise<void> {
  const files = () => readdirSync(`/proc/${running.pid}/fd`).length;
  const before = files();
  const made = await environment.ask('POST', '/dependencies', {
    name: 'half',
    command: COMPILE_COMMAND,
    prefix: PREFIX,
  });
  const id = made.record.id_ref as string;
  const archive = archiveOf(1, MIB);
  await eachClient(options.clients, async () => {
    const socket = await speak(environment, `POST /dependencies/${id}/archive HTTP/1.1`, {
      'content-length': String(archive.length),
    });
    socket.write(archive.subarray(0, options.random.between(0, archive.length - 1)));
    await delay(options.random.between(0, 200));
    socket.destroy();
  });
  await eachClient(options.clients, async () => {
    const socket = await speak(environment, `GET ${good.path}/firehose HTTP/1.1`);
    await delay(options.random.between(0, 200));
    socket.destroy();
  });
  const uploads = () => readdirSync(join(environment.data, 'uploads'));
  const left = await pollUntil(GOOD_MS, uploads, names => names.length === 0);
  table.report('clients that vanished', options.clients * 2);
  table.mustBeEmpty('  partial uploads left', left);
  const { record } = await environment.ask('GET', `/dependencies/${id}`);
  table.mustBeTrue('  the dependency is unchanged', record.archive_file_size === null, inspect(record));
  const after = await pollUntil(GOOD_MS, files, count => count <= before + 10);
  table.mustBeTrue(
    '  connections released',
    after <= before + 10,
    `${before} open files before, ${after} after`,
  );
}

async function slowReaders({ environment, good, running, table, options }: Stage): Promise<void> {
  const suiteId = await good.suite({ command: `yes 'a line of some length' | head -c ${LOG_BYTES}` });
  const ran = await good.run();
  const { build } = ran.of(suiteId);
  await good.ask('DELETE', `/suites/${suiteId}`);
  const before = residentBytesOf(running.pid);
  const path = `${good.path}/builds/${build.id_str}`;
  const sockets = await Promise.all(
    Array.from({ length: options.clients }, (_, number) =>
      speak(environment, `GET ${path}${number % 2 === 0 ? '/log' : '/firehose'} HTTP/1.1`),
    ),
  );
  for (const socket of sockets) socket.pause();
  await delay(3_000);
  const startedAt = performance.now();
  await environment.ask('GET', '/projects');
  const answerMs = performance.now() - startedAt;
  table.report('readers that do not read', sockets.length);
  table.atMost(
    '  memory they use',
    Math.max(0, residentBytesOf(running.pid) - before) / MIB,
    MORE_BYTES / MIB,
    'MiB',
  );
  table.atMost('  a response meanwhile', answerMs, 1_000, 'ms');
  for (const socket of sockets) socket.destroy();
}

/** Builds that start after a flush cannot reach the host. A build that is already running is soon blocked again. */
async function flushedFirewall({ environment, journey, table, options }: Stage): Promise<void> {
  const { engine } = environment;
  const run = (...command: string[]) => {
    const [program = '', ...args] = engine.inNetwork(...command);
    return execFileSync(program, args, { encoding: 'utf8' });
  };
  const listen = `$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => ${HOST_PORT}) or die; print "ready\n"; while ($c = $s->accept) { close $c }`;
  const [program = '', ...args] = engine.inNetwork('perl', '-MIO::Socket::INET', '-e', listen);
  const listener = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    for await (const _ of listener.stdout) break;
    const project = await journey.project();
    await project.runOne({ command: 'true' });
    const label = `label=assay.instance=${environment.instance()}`;
    const bridge = await engine.docker('network', 'ls', '--filter', label, '--format', '{{.Name}}');
    const gateway = await engine.docker(
      ...['network', 'inspect', bridge, '--format', '{{(index .IPAM.Config 0).Gateway}}'],
    );
    const connects = `timeout 2 bash -c 'exec 3<>/dev/tcp/${gateway}/${HOST_PORT}' 2>/dev/null`;
    const rules = () => run('iptables', '-S').split(`-i ${bridge} `).length - 1;
    const watching = await journey.project();
    await watching.suite({
      command: `echo begun; while ! test -e /srv/cache/go; do ${connects} && echo reached; sleep 0.05; done`,
    });
    const watchingRequest = await watching.request();
    const { id_str: watchingId } = await watching.buildOf(watchingRequest);
    await watching.logHas(watchingId as string, 'begun');

    const probe = await journey.project();
    const suiteId = await probe.suite({ command: `${connects} && echo reached; echo done` });
    const isRefused = (log: string) => /^done$/m.test(log) && !/^reached$/m.test(log);
    const reached: string[] = [];
    let longestMs = 0;
    for (let time = 0; time < options.flushes; time++) {
      await delay(options.random.between(0, 3_000));
      run('iptables', '-F');
      const flushedAt = performance.now();
      const requested = probe.run();
      const back = await pollUntil(GOOD_MS, rules, count => count === RULES, 50);
      longestMs = Math.max(longestMs, performance.now() - flushedAt);
      if (back !== RULES) reached.push(`${back} rules are back after flush ${time}`);
      const { log } = (await requested).of(suiteId);
      if (!isRefused(log)) reached.push(log);
    }
    table.report('flushes of the firewall', options.flushes);
    table.mustBeEmpty("  builds that reached the host's port", reached);
    table.atMost('  longest time that rules were missing while a build ran', longestMs, OPEN_MS, 'ms');
    await engine.docker(
      'exec',
      '--detach',
      `assay-${environment.instance()}-build-${watchingId}`,
      'touch',
      '/srv/cache/go',
    );
    const { build_state: state } = await watching.finishedRequest(watchingRequest);
    table.mustBeTrue('  a build that ran throughout passed', state === 'passed', state as string);
  } finally {
    listener.kill();
  }
}

const eachClient = (count: number, client: () => Promise<void>) =>
  Promise.all(Array.from({ length: count }, client));

/** A connection that has sent the headers of a request, and then does nothing. */
function speak(environment: DrillEnvironment, line: string, headers: Record<string, string> = {}) {
  const { origin, ca } = environment.client();
  const { hostname, port } = new URL(origin);
  return new Promise<ReturnType<typeof connect>>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), ca }, () => {
      const all = { host: `${hostname}:${port}`, authorization: environment.as, ...headers };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`${line}\r\n${lines.join('')}\r\n`);
      resolve(socket);
    });
    socket.on('error', reject);
  });
}

const scenarios = {
  'git hosts': gitHosts,
  'slow git hosts': slowGitHosts,
  receivers,
  'clients that vanish': vanishingClients,
  'slow readers': slowReaders,
  'flushed firewall': flushedFirewall,
};
type ScenarioName = keyof typeof scenarios;

export async function drillNetwork(
  options: NetworkOptions,
  chosen: readonly ScenarioName[] = Object.keys(scenarios) as ScenarioName[],
): Promise<Table> {
  const table = createTable(`drill network --seed ${options.random.seed}`, options.slack);
  const environment = await openEnvironment({
    command: options.command,
    engine: { bytes: ENGINE_BYTES, ownNetwork: true },
    environment: { ASSAY_CONCURRENCY: '2' },
  });
  let running: Running | undefined;
  try {
    running = await environment.program.start();
    const journey = environment.journey();
    const good = await journey.project();
    await good.suite({ command: 'true' });
    const stage: Stage = { environment, journey, good, running, table, options };
    for (const name of chosen) {
      if (options.signal.aborted) break;
      options.say(name);
      await scenarios[name](stage).catch(error =>
        table.mustBeTrue(`${name}: completed`, false, inspect(error)),
      );
    }
    table.mustBeTrue(
      'the program was not restarted',
      !running.hasEnded(),
      environment.program.stderr().slice(-2_000),
    );
    return table;
  } finally {
    await running?.kill();
    await environment.close();
  }
}

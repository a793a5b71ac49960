// `drill network`: git hosts and receivers that refuse, hang, drip and talk rubbish, clients that vanish in the middle,
// readers that do not read, and a firewall that is flushed. Each trouble is told in words, holds up nobody else, and leaves
// nothing behind.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from 'node:tls';
import { inspect } from 'node:util';
import { residentBytesOf } from '../bench/support.ts';
import type { Wire } from '../support/client.ts';
import { createJourney, isFinished, type ProjectJourney } from '../support/journey.ts';
import {
  type BadHost,
  dripHttp,
  dripSsh,
  endless,
  hang,
  hangUp,
  redirect,
  rubbish,
  startBadHost,
  startNobody,
} from './bad-hosts.ts';
import { lookUntil } from './look.ts';
import type { Running } from './program.ts';
import { openRoom, type Room } from './room.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from './scene.ts';
import type { Chance } from './seed.ts';
import { createTable, type Table } from './table.ts';

export type NetworkWishes = {
  chance: Chance;
  command: readonly string[];
  /** Also what takes a minute: a host that hangs after it has let the appliance in. */
  patient: boolean;
  /** How many clients vanish, and how many readers do not read. */
  clients: number;
  /** How often the firewall is flushed. */
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
/** How long containers that run may reach the host after a flush. */
const OPEN_MS = 5_000;
const RULES = 4;

type Stage = {
  room: Room;
  journey: ReturnType<typeof createJourney>;
  good: ProjectJourney;
  running: Running;
  table: Table;
  wishes: NetworkWishes;
};

async function gitHosts(stage: Stage): Promise<void> {
  const { room, journey, good, table, wishes } = stage;
  const hosts: Record<string, BadHost> = {
    refuses: await startNobody(),
    hangs: await startBadHost(hang),
    drips: await startBadHost(dripSsh),
    'talks rubbish': await startBadHost(rubbish),
    'hangs up': await startBadHost(hangUp),
  };
  const name = (what: string) => `${what.replaceAll(' ', '-')}.test`;
  const aliases = Object.entries(hosts).map(
    ([what, { port }]) => `Host ${name(what)}\n  HostName 127.0.0.1\n  Port ${port}\n`,
  );
  writeFileSync(join(room.data, 'ssh', 'config'), [room.sshd.clientConfig, ...aliases].join(''));
  const told = new Map<string, string>();
  try {
    const bad = Object.keys(hosts).map(async what => {
      const made = await room.ask('POST', '/projects', {
        name: what,
        repository_url: `git@${name(what)}:a/b.git`,
      });
      told.set(what, await errorOf(room, `/projects/${made.record.id_str}`));
    });
    const afterLogin: Record<string, string> = {
      'talks rubbish after the login': 'head -c 100000 /dev/urandom',
      ...(wishes.patient && { 'hangs after the login': 'sleep 300' }),
    };
    for (const [what, command] of Object.entries(afterLogin)) {
      const project = await journey.project();
      await project.suite({ command: 'true' });
      room.sshd.addKey(project.key, command);
      bad.push(errorOf(room, project.path).then(error => void told.set(what, error)));
    }
    const startedAt = performance.now();
    const { state } = await good.run();
    table.holds('git: a good host beside them is built', state === 'passed', state);
    table.atMost('git: the good one took', performance.now() - startedAt, GOOD_MS, 'ms');
    await Promise.all(bad);
    for (const [what, error] of told) table.holds(`git: a host that ${what} is told of`, error !== '', what);
    wishes.say([...told].map(([what, error]) => `a host that ${what}: ${error}`).join('\n       '));
  } finally {
    await Promise.all(Object.values(hosts).map(host => host.close()));
  }
  await room.sshd.changeHostKey();
  const changed = await errorOf(room, good.path);
  table.holds('git: a changed host key is told of', /key/i.test(changed), changed);
  writeFileSync(join(room.data, 'ssh', 'known_hosts'), '');
  const { state } = await good.run();
  table.holds('git: and accepted when an administrator forgets the old one', state === 'passed', state);
}

/**
 * Hosts that let the appliance in and then send a little now and then, more of them than there are places for fetches. Other
 * projects go on, and a cancel ends what is left.
 */
async function slowGitHosts({ room, journey, good, table }: Stage): Promise<void> {
  const hosts = Array.from({ length: SLOW_HOSTS }, (_, index) => `slow-${index}.test`);
  const marks = join(room.data, 'tmp', 'slow-hosts');
  mkdirSync(marks, { recursive: true });
  writeFileSync(
    join(room.data, 'ssh', 'config'),
    `${room.sshd.clientConfig}Host ${hosts.join(' ')}\n  HostName 127.0.0.1\n  Port ${room.sshd.port}\n`,
  );
  const requests: string[] = [];
  for (const [index, host] of hosts.entries()) {
    const project = await journey.project(undefined, {
      repository_url: journey.repository().url.replace(/@[^:]+:/, `@${host}:`),
    });
    room.sshd.addKey(project.key, trickleUntilLeft(join(marks, String(index))));
    requests.push(`${project.path}/build_requests/${await project.request()}`);
  }
  const startedAt = performance.now();
  const { state } = await good.run();
  table.holds('slow git hosts: another project is built beside them', state === 'passed', state);
  table.atMost('slow git hosts: the other one took', performance.now() - startedAt, GOOD_MS, 'ms');
  const under = await lookUntil(
    GOOD_MS,
    () => readdirSync(marks).filter(name => name.endsWith('.begun')),
    names => names.length === hosts.length,
  );
  table.holds('slow git hosts: each is asked', under.length === hosts.length, under.join());
  for (const path of requests) await room.ask('POST', `${path}/cancel`);
  const left = await lookUntil(
    GOOD_MS,
    () => hosts.filter((_, index) => !readdirSync(marks).includes(`${index}.left`)),
    names => names.length === 0,
  );
  table.none('slow git hosts: connections that outlive a cancel', left);
}

/** What runs at the host in place of git: `FILE.begun` when somebody is let in, `FILE.left` when they hung up. */
const trickleUntilLeft = (file: string) =>
  `touch ${file}.begun; exec 3<&0; cat <&3 >/dev/null & while kill -0 $!; do printf . >&2; sleep 0.5; done; touch ${file}.left`;

/** What a request for a build of the project says when it has ended; empty when it did not, or said nothing. */
async function errorOf(room: Room, path: string): Promise<string> {
  const asked = await room.ask('POST', `${path}/build_requests`, { commit_ref: 'main' });
  const ended = await lookUntil(
    END_MS,
    async () => (await room.ask('GET', `${path}/build_requests/${asked.record.id_str}`)).record,
    one => isFinished(one.build_state),
  );
  return ended.build_state === 'errored' ? String(ended.error ?? '') : '';
}

async function receivers({ room, good, table, wishes }: Stage): Promise<void> {
  const hosts: Record<string, BadHost> = {
    refuses: await startNobody(),
    hangs: await startBadHost(hang),
    drips: await startBadHost(dripHttp),
    'talks rubbish': await startBadHost(rubbish),
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
    const goodId = await notify(room.receiver.url);
    await good.run();
    const deliveriesOf = async (id: string) =>
      (await room.ask('GET', `${good.path}/notifications/${id}/deliveries`)).list;
    const mine = await lookUntil(
      GOOD_MS,
      () => deliveriesOf(goodId),
      list => list.length > 0 && list.every(one => one.state === 'delivered'),
    );
    table.none(
      'webhooks: not delivered to a good receiver',
      mine.filter(one => one.state !== 'delivered').map(one => inspect(one)),
    );
    const said: string[] = [];
    for (const [what, id] of ids) {
      const first = await lookUntil(
        GOOD_MS,
        async () => (await deliveriesOf(id)).at(-1) as Wire,
        one => Number(one?.attempts) > 0,
      );
      // An answer that never ends has begun well: it counts as soon as its status is there.
      const isTold = first?.state === 'delivered' || Boolean(first?.last_error);
      table.holds(`webhooks: a receiver that ${what} is told of`, isTold, inspect(first));
      said.push(`a receiver that ${what}: ${first?.state} ${first?.last_error ?? ''}`);
    }
    wishes.say(said.join('\n       '));
    for (const id of [...ids.values(), goodId]) await good.ask('DELETE', `/notifications/${id}`);
  } finally {
    await Promise.all(Object.values(hosts).map(host => host.close()));
  }
}

async function vanishingClients({ room, good, running, table, wishes }: Stage): Promise<void> {
  const files = () => readdirSync(`/proc/${running.pid}/fd`).length;
  const before = files();
  const made = await room.ask('POST', '/dependencies', {
    name: 'half',
    command: COMPILE_COMMAND,
    prefix: PREFIX,
  });
  const id = made.record.id_ref as string;
  const archive = archiveOf(1, MIB);
  await eachClient(wishes.clients, async () => {
    const socket = await speak(room, `POST /dependencies/${id}/archive HTTP/1.1`, {
      'content-length': String(archive.length),
    });
    socket.write(archive.subarray(0, wishes.chance.between(0, archive.length - 1)));
    await delay(wishes.chance.between(0, 200));
    socket.destroy();
  });
  await eachClient(wishes.clients, async () => {
    const socket = await speak(room, `GET ${good.path}/firehose HTTP/1.1`);
    await delay(wishes.chance.between(0, 200));
    socket.destroy();
  });
  const uploads = () => readdirSync(join(room.data, 'uploads'));
  const left = await lookUntil(GOOD_MS, uploads, names => names.length === 0);
  table.tell('clients that vanished', wishes.clients * 2);
  table.none('  half uploads left', left);
  const { record } = await room.ask('GET', `/dependencies/${id}`);
  table.holds('  the dependency is as it was', record.archive_file_size === null, inspect(record));
  const after = await lookUntil(GOOD_MS, files, count => count <= before + 10);
  table.holds('  connections let go of', after <= before + 10, `${before} open files before, ${after} after`);
}

async function slowReaders({ room, good, running, table, wishes }: Stage): Promise<void> {
  const suiteId = await good.suite({ command: `yes 'a line of some length' | head -c ${LOG_BYTES}` });
  const ran = await good.run();
  const { build } = ran.of(suiteId);
  await good.ask('DELETE', `/suites/${suiteId}`);
  const before = residentBytesOf(running.pid);
  const path = `${good.path}/builds/${build.id_str}`;
  const sockets = await Promise.all(
    Array.from({ length: wishes.clients }, (_, number) =>
      speak(room, `GET ${path}${number % 2 === 0 ? '/log' : '/firehose'} HTTP/1.1`),
    ),
  );
  for (const socket of sockets) socket.pause();
  await delay(3_000);
  const startedAt = performance.now();
  await room.ask('GET', '/projects');
  const answerMs = performance.now() - startedAt;
  table.tell('readers that do not read', sockets.length);
  table.atMost(
    '  memory they cost',
    Math.max(0, residentBytesOf(running.pid) - before) / MIB,
    MORE_BYTES / MIB,
    'MiB',
  );
  table.atMost('  an answer beside them', answerMs, 1_000, 'ms');
  for (const socket of sockets) socket.destroy();
}

/** Each build that is started after a flush is refused; one that runs all the while is soon refused again. */
async function flushedFirewall({ room, journey, table, wishes }: Stage): Promise<void> {
  const { engine } = room;
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
    const label = `label=assay.instance=${room.instance()}`;
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
    for (let time = 0; time < wishes.flushes; time++) {
      await delay(wishes.chance.between(0, 3_000));
      run('iptables', '-F');
      const flushedAt = performance.now();
      const requested = probe.run();
      const back = await lookUntil(GOOD_MS, rules, count => count === RULES, 50);
      longestMs = Math.max(longestMs, performance.now() - flushedAt);
      if (back !== RULES) reached.push(`${back} rules are back after flush ${time}`);
      const { log } = (await requested).of(suiteId);
      if (!isRefused(log)) reached.push(log);
    }
    table.tell('flushes of the firewall', wishes.flushes);
    table.none("  builds that reached the host's port", reached);
    table.atMost('  rules were missing while a build ran, at most', longestMs, OPEN_MS, 'ms');
    await engine.docker('exec', `assay-${room.instance()}-build-${watchingId}`, 'touch', '/srv/cache/go');
    const { build_state: state } = await watching.finishedRequest(watchingRequest);
    table.holds('  a build that ran all the while passed', state === 'passed', state as string);
  } finally {
    listener.kill();
  }
}

const eachClient = (count: number, client: () => Promise<void>) =>
  Promise.all(Array.from({ length: count }, client));

/** A connection that has sent the head of a request, and does nothing by itself. */
function speak(room: Room, line: string, headers: Record<string, string> = {}) {
  const { origin, ca } = room.client();
  const { hostname, port } = new URL(origin);
  return new Promise<ReturnType<typeof connect>>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), ca }, () => {
      const all = { host: `${hostname}:${port}`, authorization: room.as, ...headers };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`${line}\r\n${lines.join('')}\r\n`);
      resolve(socket);
    });
    socket.on('error', reject);
  });
}

const scenes = {
  'git hosts': gitHosts,
  'slow git hosts': slowGitHosts,
  receivers,
  'clients that vanish': vanishingClients,
  'slow readers': slowReaders,
  'flushed firewall': flushedFirewall,
};
type SceneName = keyof typeof scenes;

export async function drillNetwork(
  wishes: NetworkWishes,
  chosen: readonly SceneName[] = Object.keys(scenes) as SceneName[],
): Promise<Table> {
  const table = createTable(`drill network --seed ${wishes.chance.seed}`, wishes.slack);
  const room = await openRoom({
    command: wishes.command,
    engine: { bytes: ENGINE_BYTES, ownNetwork: true },
    environment: { ASSAY_CONCURRENCY: '2' },
  });
  let running: Running | undefined;
  try {
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    const good = await journey.project();
    await good.suite({ command: 'true' });
    const stage: Stage = { room, journey, good, running, table, wishes };
    for (const name of chosen) {
      if (wishes.signal.aborted) break;
      wishes.say(name);
      await scenes[name](stage).catch(error => table.holds(`${name}: to its end`, false, inspect(error)));
    }
    table.holds('the program is still the same', !running.hasEnded(), room.program.stderr().slice(-2_000));
    return table;
  } finally {
    await running?.kill();
    await room.close();
  }
}

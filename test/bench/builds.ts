// The cost of builds compared with the bare tools: request to first line, request to verdict, trivial builds per second, a
// long log, many readers. Every figure is a ratio of alternating rounds in one run, so that a busy machine affects both sides.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { parseArgs, promisify } from 'node:util';
import { HOST_IMAGE } from '../../src/domain/names.ts';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { createDockerEngine } from '../../src/engine/docker/docker-engine.ts';
import { runAssay, serve } from '../cli/program.ts';
import { pollUntil } from '../drill/support/poll.ts';
import { clearDocker, DOCKER_HOST, docker, makeData } from '../support/appliance.ts';
import { basic, createClient } from '../support/client.ts';
import { createJourney, type ProjectJourney, type Repository } from '../support/journey.ts';
import { git } from '../support/repository.ts';
import { startSshd } from '../support/sshd.ts';
import {
  cpuMsOf,
  exitStatus,
  instanceIn,
  median,
  openSocket,
  report,
  residentBytesOf,
  showLoad,
} from './support.ts';
import { monotonicMs } from './support-clock.ts';
import { startLaminar } from './support-laminar.ts';
import { watchPauses } from './support-pauses.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '15' },
    trivial: { type: 'string', default: '50' },
    'trivial-rounds': { type: 'string', default: '20' },
    readers: { type: 'string', default: '1000' },
    seconds: { type: 'string', default: '15' },
  },
});
const rounds = Number(options.rounds);
const CONCURRENCY = '4';
const MIB = 1024 * 1024;
const LINES = 1_000_000;
const PRINT = `awk 'BEGIN { for (i = 0; i < ${LINES}; i++) printf "%07d %091d\\n", i, 0 }'`;
/** Printed by the shell of the bare side, because starting a process takes this large one much longer than a shell. */
const BEGIN = 'date "+begin %s.%N"';
/** The container that holds the network of the next build. */
let sandbox = '';
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);

const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const sshd = await startSshd({ keyExchange: 'default' });
const data = makeData(sshd);
const added = await runAssay(['user', 'add', 'bench@example.org', '--json', '--data', data]);
const account = JSON.parse(added.stdout) as { email: string; api_key: string };
const as = basic(account.email, account.api_key);
const server = await serve(data, {
  env: { ASSAY_CONCURRENCY: CONCURRENCY, ASSAY_LOG_LIMIT: '256MiB', ASSAY_MIN_FREE_DISK: '1MiB' },
});
const client = createClient(
  `https://127.0.0.1:${server.port}`,
  readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'),
);
const journey = createJourney({ client, as, sshd, waitMs: 600_000 });
const image = await createDockerEngine({
  dockerHost: DOCKER_HOST,
  instance: 'bench',
  runAs: { uid: 1000, gid: 1000 },
  network: 'none',
}).prepareImage(HOST_IMAGE);

const instance = instanceIn(data);
// One build creates the server's network, which the bare tools use too.
await (await journey.project()).runOne({ command: 'true' });
const network = await docker('network', 'ls', '-q', '--filter', `label=assay.instance=${instance}`);

/** The options of every container of Assay, for the bare tools. */
const profile = [
  `--network=${network}`,
  ...[
    '--init',
    '--cap-drop=ALL',
    '--security-opt=no-new-privileges',
    '--pids-limit=1024',
    '--user=1000:1000',
  ],
  ...['--memory=2g', '--memory-swap=2g', '--cpus=2', '--entrypoint=/bin/sh'],
  ...image.mounts.map(({ source, target }) => `--mount=type=bind,source=${source},target=${target},readonly`),
];

try {
  showLoad('before');
  if (wanted('first-line')) {
    await firstLine('a small repository', { 'README.md': 'Hello\n' });
    await firstLine(
      'a repository of 100 MB',
      Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`file-${index}`, randomBytes(MIB)])),
    );
  }
  if (wanted('verdict')) await requestToVerdict();
  if (wanted('trivial')) await trivialBuilds(Number(options.trivial));
  if (wanted('long-log')) await longLog();
  if (wanted('readers')) await manyReaders(Number(options.readers), Number(options.seconds));
  showLoad('after');
} finally {
  client.close();
  await server.end('SIGTERM');
  await sshd.close();
  // After hundreds of containers Docker 20.10 may have lost count of those in the network, and keeps it until its restart.
  await clearDocker(instance).catch(error => console.error(error));
  rmSync(data, { recursive: true, force: true });
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

/** The time at which the line was printed, from the output itself: the same clock for both sides. */
function stampIn(text: string, word: 'begin' | 'stamp' = 'stamp'): number {
  const [, seconds] = new RegExp(`^${word} (\\d+\\.\\d+)$`, 'm').exec(text) ?? [];
  if (seconds === undefined) throw new Error(`no ${word} in ${text}`);
  return Number(seconds) * 1000;
}

async function firstLine(name: string, files: Record<string, string | Buffer>): Promise<void> {
  const repository = journey.repository({ message: 'First\n', files });
  const project = await journey.project(repository);
  await project.suite({ command: 'date "+stamp %s.%N"' });
  const mirror = join(work, `mirror-${name.replaceAll(' ', '-')}.git`);
  const fetchByHand = createBareFetch(repository, mirror);
  const assay: number[] = [];
  const bare: number[] = [];
  for (let round = -1; round < rounds; round++) {
    const sides = [
      async () => {
        repository.add({ message: `Round ${round}\n`, files: { counter: `mine ${round}` } });
        return await requestToFirstLine(project);
      },
      async () => {
        repository.add({ message: `Round ${round}\n`, files: { counter: `theirs ${round}` } });
        return await fetchByHand();
      },
    ] as const;
    const first = round % 2 === 0 ? 0 : 1;
    const figures = [0, 0];
    for (const side of [first, 1 - first]) {
      figures[side] = await (sides[side] as () => Promise<number>)();
      await untilQuiet(side === 0 ? 'assay' : 'bare');
    }
    // The first round creates the mirrors, the network and the caches.
    if (round < 0) continue;
    assay.push(figures[0] as number);
    bare.push(figures[1] as number);
  }
  const [own, raw] = [median(assay), median(bare)];
  console.log(
    `request to first line, ${name}: ${own.toFixed(0)} ms; git fetch + checkout + docker create + start: ${raw.toFixed(0)} ms`,
  );
  report(`request to first line, ${name}`, own / raw, '≤', 0.55);
}

/**
 * The server removes containers when nobody waits for it, and then sets up the network of the next one. Neither must
 * disturb what is measured next.
 */
async function untilQuiet(after: 'assay' | 'bare'): Promise<void> {
  const list = (...filters: string[]) =>
    docker(
      ...['ps', '--all', '--quiet', '--filter', `label=assay.instance=${instance}`],
      ...filters.flatMap(filter => ['--filter', filter]),
    );
  await pollUntil(
    60_000,
    () => list('label=assay.kind=build'),
    found => found === '',
    50,
  );
  // A build has used the one before.
  const isReady = (found: string) => found !== '' && (after === 'bare' || found !== sandbox);
  sandbox = await pollUntil(60_000, () => list('label=assay.kind=sandbox', 'status=running'), isReady, 50);
}

async function requestToFirstLine(project: ProjectJourney): Promise<number> {
  const startedAt = Date.now();
  const requestId = await project.request();
  const { build_state: state } = await project.finishedRequest(requestId);
  const [build] = await project.buildsOf(requestId);
  if (state !== 'passed' || !build) throw new Error(`a build ended ${state}`);
  return stampIn(await project.log(build.id_str as string)) - startedAt;
}

/**
 * From the request and from the end of the command to the event of the verdict, which is on disk by then; compared with a
 * line of shell, by hand and as a job of Laminar.
 */
async function requestToVerdict(): Promise<void> {
  const repository = journey.repository({ message: 'First\n', files: { 'README.md': 'Hello\n' } });
  const project = await journey.project(repository);
  await project.suite({ command: 'date "+stamp %s.%N"' });
  const byHand = createShellLine(repository, join(work, 'clone'));
  const forLaminar = createShellLine(repository, join(work, 'clone-of-laminar'));
  const { directory, env, line } = forLaminar;
  const laminar = await startLaminar(
    join(work, 'laminar'),
    `cd ${directory} && export GIT_SSH_COMMAND='${env.GIT_SSH_COMMAND}' && ${line}`,
  );
  const afterExit: number[] = [];
  const runBuild = async (isFirst: boolean) => {
    const firehose = await project.firehose('');
    const startedAt = Date.now();
    await project.request();
    for await (const { event, data } of firehose) {
      if (event !== 'build.finished') continue;
      const finishedAt = Date.now();
      const { id_str: buildId, build_state: state } = data.build as { id_str: string; build_state: string };
      if (state !== 'passed') throw new Error(`a build ended ${state}`);
      if (!isFirst) afterExit.push(finishedAt - stampIn(await project.log(buildId)));
      return finishedAt - startedAt;
    }
    throw new Error('the firehose ended');
  };
  const runLine = async () => {
    const { stdout } = await promisify(execFile)('sh', ['-c', `${BEGIN} && ${byHand.line}`], {
      cwd: byHand.directory,
      env: byHand.env,
    });
    stampIn(stdout);
    return Date.now() - stampIn(stdout, 'begin');
  };
  const sides: { name: 'assay' | 'bare' | 'laminar'; run(isFirst: boolean): Promise<number> }[] = [
    { name: 'assay', run: runBuild },
    { name: 'bare', run: runLine },
  ];
  if (laminar)
    sides.push({
      name: 'laminar',
      async run() {
        const begin = stampIn(await laminar.run(BEGIN), 'begin');
        return Date.now() - begin;
      },
    });
  const times = { assay: [] as number[], bare: [] as number[], laminar: [] as number[] };
  for (let round = -1; round < rounds; round++)
    for (const { name, run } of round % 2 === 0 ? sides : sides.toReversed()) {
      repository.add({ message: `Round ${round}\n`, files: { counter: `${name} ${round}` } });
      const took = await run(round < 0);
      await untilQuiet(name === 'assay' ? 'assay' : 'bare');
      // The first round creates the mirror and the clones.
      if (round >= 0) times[name].push(took);
    }
  await laminar?.end();
  const [own, raw] = [median(times.assay), median(times.bare)];
  console.log(
    `request to verdict: ${own.toFixed(0)} ms; git fetch && git checkout && docker run --rm: ${raw.toFixed(0)} ms`,
  );
  report('request to verdict', own / raw, '≤', 0.8);
  report('end of the command to the verdict', median(afterExit), '≤', 30, ' ms');
  if (!laminar) {
    console.log('not compared with Laminar, because laminard and laminarc are not installed');
    return;
  }
  const ofLaminar = median(times.laminar);
  console.log(
    `Laminar running that line: ${ofLaminar.toFixed(0)} ms, ${(ofLaminar / raw).toFixed(2)} of the line by hand`,
  );
  report('request to verdict, ratio to Laminar', own / ofLaminar, '≤', 1);
}

/** What a person would type in a clone: fetch, check out, run. */
function createShellLine(
  repository: Repository,
  clone: string,
): { directory: string; env: NodeJS.ProcessEnv; line: string } {
  const env = createGitEnvironment(clone);
  git(work, 'init', '--quiet', clone);
  git(clone, 'remote', 'add', 'origin', repository.url);
  const run = `docker run --rm ${profile.join(' ')} --volume ${clone}:/srv/project --workdir /srv/project ${image.reference}`;
  return {
    directory: clone,
    env,
    line: `git fetch --quiet && git checkout --quiet --detach origin/main && ${run} -c 'date "+stamp %s.%N"'`,
  };
}

/** Gives git a key of its own for the Git host. The files are next to `path`. */
function createGitEnvironment(path: string): NodeJS.ProcessEnv {
  const { publicKey, privateKey } = generateKeyPair('bench');
  sshd.addKey(publicKey);
  const key = `${path}.key`;
  const config = `${path}.config`;
  writeFileSync(key, privateKey, { mode: 0o600 });
  writeFileSync(
    config,
    `IdentityFile ${key}\nIdentitiesOnly yes\nUserKnownHostsFile ${path}.hosts\nStrictHostKeyChecking accept-new\n${sshd.clientConfig}`,
  );
  return { ...process.env, GIT_SSH_COMMAND: `ssh -F ${config}` };
}

/** What a person would type: fetch, check out, create, start. */
function createBareFetch(repository: Repository, mirror: string): () => Promise<number> {
  const env = createGitEnvironment(mirror);
  mkdirSync(mirror);
  git(mirror, 'init', '--quiet', '--bare');
  const create = `docker create ${profile.join(' ')} --volume "$0:/srv/project" --workdir /srv/project ${image.reference}`;
  const lines = [
    BEGIN,
    `git fetch --quiet ${repository.url} '+refs/heads/*:refs/heads/*' '+refs/tags/*:refs/tags/*'`,
    `git clone --quiet --shared --branch main ${mirror} "$0"`,
    `id=$(${create} -c 'date "+stamp %s.%N"')`,
    'docker start --attach "$id"',
    'docker rm "$id"',
  ];
  return async () => {
    const workspace = mkdtempSync(join(work, 'workspace-'));
    const script = ['-c', lines.join(' && '), workspace];
    const { stdout } = await promisify(execFile)('sh', script, { cwd: mirror, env });
    rmSync(workspace, { recursive: true });
    return stampIn(stdout) - stampIn(stdout, 'begin');
  };
}

/** In short rounds, because the speed of a machine drifts. */
async function trivialBuilds(count: number): Promise<void> {
  const project = await journey.project();
  for (let index = 0; index < count; index++) await project.suite({ command: 'true' });
  const pid = server.child.pid as number;
  let cpuMs = 0;
  const loop = `seq ${count} | xargs -P ${CONCURRENCY} -I{} docker run --rm ${profile.join(' ')} ${image.reference} -c true`;
  const runAssayOnce = async () => {
    const before = cpuMsOf(pid);
    await passedRequest(project);
    cpuMs += cpuMsOf(pid) - before;
  };
  const runBareOnce = () => promisify(execFile)('sh', ['-c', loop]);
  const rounds = Number(options['trivial-rounds']);
  const ratios: number[] = [];
  const totalMs = { assay: 0, bare: 0 };
  await passedRequest(project);
  for (let round = 0; round < rounds; round++) {
    const tookMs = { assay: 0, bare: 0 };
    for (const side of round % 2 === 0 ? (['assay', 'bare'] as const) : (['bare', 'assay'] as const)) {
      const startedAt = performance.now();
      await (side === 'assay' ? runAssayOnce() : runBareOnce());
      tookMs[side] = performance.now() - startedAt;
      totalMs[side] += tookMs[side];
      await untilQuiet(side);
    }
    ratios.push(tookMs.bare / tookMs.assay);
  }
  const perSecond = (ms: number) => ((rounds * count * 1000) / ms).toFixed(2);
  console.log(
    `the server's share: ${(cpuMs / count / rounds).toFixed(0)} ms of processor time per build; rounds: ${ratios.map(ratio => ratio.toFixed(2)).join(' ')}`,
  );
  console.log(
    `${rounds * count} trivial builds, ${CONCURRENCY} at once: ${perSecond(totalMs.assay)} per second; docker run: ${perSecond(totalMs.bare)} per second`,
  );
  report('trivial builds', median(ratios), '≥', 1);
}

async function longLog(): Promise<void> {
  const project = await journey.project();
  await project.suite({ command: PRINT });
  const pid = server.child.pid as number;
  const assay: number[] = [];
  const bare: number[] = [];
  let grown = 0;
  for (let round = 0; round < 3; round++) {
    for (const side of round % 2 === 0 ? [0, 1] : [1, 0]) {
      if (side === 0) {
        const before = residentBytesOf(pid);
        const watch = setInterval(() => {
          grown = Math.max(grown, residentBytesOf(pid) - before);
        }, 20);
        const { took, buildId } = await startToEnd(project);
        clearInterval(watch);
        assay.push(took);
        requireEveryLine(await project.log(buildId));
      } else {
        const file = join(work, 'output');
        const startedAt = performance.now();
        await promisify(execFile)('sh', [
          '-c',
          `exec docker run --rm ${profile.join(' ')} ${image.reference} -c "$0" >${file}`,
          PRINT,
        ]);
        bare.push(performance.now() - startedAt);
        if (statSync(file).size !== LINES * 100) throw new Error('docker run lost lines');
      }
    }
  }
  const [own, raw] = [median(assay), median(bare)];
  console.log(
    `${LINES} lines, 100 MB: ${own.toFixed(0)} ms; docker run > file: ${raw.toFixed(0)} ms; all lines arrived in order`,
  );
  report('a log of 100 MB', own / raw, '≤', 1.1);
  report('memory of the server during that', grown / 1e6, '≤', 60, ' MB');
}

/** Waits for a single event, so that waiting costs nothing. */
async function passedRequest(project: ProjectJourney): Promise<void> {
  const firehose = await project.firehose('');
  await project.request();
  for await (const { event, data } of firehose) {
    if (event !== 'build_request.finished') continue;
    const { build_state: state } = data.build_request as { build_state: string };
    if (state === 'passed') return;
    throw new Error(`a request ended ${state}`);
  }
}

/** From the claim to the verdict, according to the project's events. */
async function startToEnd(project: ProjectJourney): Promise<{ took: number; buildId: string }> {
  const firehose = await project.firehose('');
  await project.request();
  let startedAt = 0;
  for await (const { event, data } of firehose) {
    if (event === 'build.started') startedAt = performance.now();
    if (event !== 'build.finished') continue;
    const build = data.build as { id_str: string; build_state: string };
    if (build.build_state !== 'passed') throw new Error(`a build ended ${build.build_state}`);
    return { took: performance.now() - startedAt, buildId: build.id_str };
  }
  throw new Error('the firehose ended');
}

function requireEveryLine(log: string): void {
  let expected = 0;
  for (let at = log.indexOf('0000000 '); at < log.length; at += 100, expected++)
    if (Number(log.slice(at, at + 7)) !== expected)
      throw new Error(`line ${expected} is missing or out of order`);
  if (expected !== LINES) throw new Error(`${expected} lines, not ${LINES}`);
}

/** One build that prints 100 lines per second with the time, to many readers. */
async function manyReaders(readers: number, seconds: number): Promise<void> {
  const count = seconds * 100;
  const project = await journey.project();
  await project.suite({
    command: `python3 -uc '
import time
open("/srv/cache/begun", "w")
print("ready")
while time.sleep(0.1) or not __import__("os").path.exists("/srv/cache/go"): pass
begin = time.time()
for i in range(${count}):
    time.sleep(max(0, begin + i / 100 - time.time()))
    print("stamp %07d %.6f" % (i, time.time()))
'`,
  });
  const { id_str: buildId } = await project.buildOf(await project.request());
  await project.logHas(buildId as string, 'ready\n');
  const latencies = new Float64Array(readers * count);
  const arrivals = new Float64Array(readers * count);
  const sockets: TLSSocket[] = [];
  const STAMP_LENGTH = 'stamp 0000000 1700000000.000000'.length;
  const request = `GET ${project.path}/builds/${buildId}/firehose HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${as}\r\n\r\n`;
  let lines = 0;
  const ended: Promise<unknown>[] = [];
  const BATCH = 25;
  for (let opened = 0; opened < readers; opened += BATCH)
    await Promise.all(
      Array.from({ length: Math.min(BATCH, readers - opened) }, async () => {
        const socket = await openSocket(server.port, client.ca);
        sockets.push(socket);
        let rest = '';
        let read = 0;
        ended.push(
          new Promise<void>(resolve => {
            socket.setEncoding('latin1').on('data', (part: string) => {
              const now = Date.now();
              const arrivedAt = monotonicMs();
              const text = rest + part;
              let from = 0;
              let at = text.indexOf('stamp ');
              for (; at >= 0 && at + STAMP_LENGTH <= text.length; at = text.indexOf('stamp ', from)) {
                from = at + STAMP_LENGTH;
                const stamp = text.slice(at, from);
                if (Number(stamp.slice(6, 13)) !== read++)
                  throw new Error(`lost or out of order: ${stamp} is line ${read} of a reader`);
                arrivals[lines] = arrivedAt;
                latencies[lines++] = now - Number(stamp.slice(14)) * 1000;
              }
              if (text.includes('event: end')) resolve();
              rest = text.slice(at >= 0 ? at : Math.max(from, text.length - STAMP_LENGTH));
            });
            socket.on('close', resolve);
          }),
        );
        socket.write(request);
        await once(socket, 'data');
      }),
    );
  const containers = await docker('ps', '--format', '{{.Names}}', '--filter', `name=build-${buildId}`);
  const before = { server: cpuMsOf(server.child.pid as number), own: process.cpuUsage() };
  const pauses = await watchPauses();
  await docker('exec', '--detach', containers, 'touch', '/srv/cache/go');
  await Promise.all(ended);
  const own = process.cpuUsage(before.own);
  const share = (cpuMs: number) => `${Math.round(cpuMs / seconds / 10)}%`;
  console.log(
    `of a core: server ${share(cpuMsOf(server.child.pid as number) - before.server)}, readers ${share((own.user + own.system) / 1000)}`,
  );
  for (const socket of sockets) socket.destroy();
  const expected = readers * count;
  if (lines !== expected) throw new Error(`${lines} lines arrived at the readers, not ${expected}`);
  await pauses.read();
  const unpaused = latencies.map((ms, line) => {
    const arrivedAt = arrivals[line] as number;
    return ms - pauses.within(arrivedAt - ms, arrivedAt);
  });
  await pauses.end();
  const at = (part: number, sorted: Float64Array) => sorted[Math.floor(sorted.length * part)] as number;
  latencies.sort();
  unpaused.sort();
  console.log(
    `${readers} readers, 100 lines per second: median ${at(0.5, latencies).toFixed(0)} ms, p99 ${at(0.99, latencies).toFixed(0)} ms with pauses of the machine, all ${lines} lines arrived in order`,
  );
  report('p99 of a line to a reader', at(0.99, unpaused), '≤', 100, ' ms');
}

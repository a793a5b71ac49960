// Whether pages and endpoints stay fast when there is much of everything: every page and every GET endpoint of an
// installation with 1,000 projects, 1,000,000 builds, 200 suites in one project, 100,000 commits and 10,000,000 events,
// compared with one of 1,000 builds. Then a backup of the large one, and a delete of a project with 100,000 builds, while
// requests are timed. Both sides are asked in turn, and the ratio is the median of the ratios of these rounds, so that a
// busy machine affects both.
//
//   scripts/bench scale [pages] [backup] [delete] [--rounds N] [--only TEXT] [--keep DIRECTORY]
//
// --keep uses the data in DIRECTORY, and creates it there the first time. --only measures the paths that contain TEXT.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { endpoints } from '../../src/api/endpoints.ts';
import { codeCachePath, databasePath } from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { routes } from '../../src/web/pages.ts';
import { programPath } from '../cli/program.ts';
import { freePort } from '../support/ports.ts';
import {
  type Child,
  exitStatus,
  median,
  report,
  residentBytesOf,
  showLoad,
  startChild,
  untilCodeIsKept,
} from './support.ts';
import { monotonicMs } from './support-clock.ts';
import { describe as describeStall, type LongestStall, longestStall, watchPauses } from './support-pauses.ts';
import { type Installation, openInstallation, sizes } from './support-scale-data.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    keep: { type: 'string' },
    rounds: { type: 'string', default: '7' },
    only: { type: 'string', default: '' },
    profile: { type: 'string' },
  },
});
const ROUNDS = Number(options.rounds);
/** Every path is measured in each of them. The first is not counted: the servers compile their code in it. */
const PASSES = 4;
const WARM_UPS = 1;
const GOAL_RATIO = 1.3;
/** A difference of less than this counts as none: it is as large as the noise of a request. */
const FLOOR_MS = 1;
const LIST_LENGTH = '25';
const PACE_MS = 10;
const DEADLINE_MS = 600_000;
const BASELINE_MS = 5_000;
const MB = 1e6;
const isEqual = ({ small, large, ratio }: Measured) => ratio <= GOAL_RATIO || large - small < FLOOR_MS;
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);
const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

/** Files that never change, and pages that only a swarm has. */
const notMeasured = [/^\/ui\/assets\//, /favicon/, /^\/ui\/admin\/nodes/];

/** In addition to each path as it is: filters and pages that need another index or another id. */
const variants: Record<string, string[]> = {
  '/projects/:project_id/build_requests': [
    '?state=failed',
    '?branch=feature-4',
    '?branch=none',
    '?before=:commit_id',
  ],
  '/projects/:project_id/commits': ['?before=:commit_id'],
  '/projects/:project_id/events': ['?after=:commit_id'],
  '/projects/:project_id/suites/:suite_id/tests': ['?sort=slowest', '?sort=flaky'],
  '/ui/activity': ['?state=errored', '?branch=main', '?mine=1', '?project=service'],
  '/ui/projects': ['?q=service', '?page=2'],
  '/ui/switch': ['?q=suite', '?q=service+9'],
  '/ui/projects/:project_id': ['?state=failed', '?branch=feature-4', '?q=change'],
  '/ui/projects/:project_id/history': ['?sort=slowest'],
  '/ui/search': ['?q=compiling&project=:project_id'],
};
const searches: Record<string, string> = {
  '/projects/:project_id/search': '?q=compiling',
  '/projects/:project_id/builds/:build_id/artifact': '?path=coverage/index.html',
  '/projects/:project_id/suites/:suite_id/artifact': '?path=coverage/index.html',
  '/dependencies/:dependency_id/artifact': '?path=bin/tool',
  '/ui/search': '?q=compiling',
};

type Target = Installation & { name: string; data: string; server: Child; agent: Agent };
type Wait = { fromMs: number; toMs: number; queuedMs: number };
type Measurement = { name: string; path: string; of: 'wide' | 'ordinary' };
type Samples = { small: number[]; large: number[]; statuses: Set<number> };
type Measured = { name: string; small: number; large: number; ratio: number; answers: string };

const directory = options.keep ? resolve(options.keep) : mkdtempSync(join(tmpdir(), 'assay-bench-'));
mkdirSync(directory, { recursive: true });
const targets: Target[] = [];
const pauses = await watchPauses();
try {
  const [small, large] = [await open('small'), await open('large')];
  showLoad('before');
  if (wanted('pages')) await comparePages(small, large);
  if (wanted('backup') || wanted('delete'))
    reportDuring('nothing (baseline)', await during(large, () => sleep(BASELINE_MS)), 50);
  if (wanted('backup')) await measureBackup(large);
  if (wanted('delete')) await measureDelete(large);
  showLoad('after');
} finally {
  for (const { agent, server } of targets) {
    agent.destroy();
    await server.end();
  }
  await pauses.end();
  if (!options.keep) rmSync(directory, { recursive: true, force: true });
}
process.exitCode = exitStatus();

async function open(name: 'small' | 'large'): Promise<Target> {
  const data = join(directory, name);
  const startedAt = performance.now();
  const installation = await openInstallation(data, sizes[name]);
  console.log(
    `${name}: ${describe(data)}; ready after ${((performance.now() - startedAt) / 1000).toFixed(0)} s`,
  );
  // Data that was kept may have it of another version.
  rmSync(codeCachePath(data), { force: true });
  const port = await freePort();
  const server = await startChild(
    [
      process.execPath,
      ...(options.profile ? ['--cpu-prof', `--cpu-prof-dir=${join(options.profile, name)}`] : []),
      ...['--import', join(import.meta.dirname, 'support-stall-meter.ts'), await programPath(), 'serve'],
    ],
    {
      port,
      ipc: true,
      ready: /assay is serving/,
      env: {
        ASSAY_DATA: data,
        ASSAY_LISTEN: `127.0.0.1:${port}`,
        ASSAY_MIN_FREE_DISK: '1MiB',
        DOCKER_HOST: `unix://${data}/no-docker.sock`,
      },
    },
  );
  const ca = readFileSync(join(data, 'tls/ca.pem'), 'utf8');
  await untilCodeIsKept(data);
  const target = { ...installation, name, data, server, agent: new Agent({ keepAlive: true, ca }) };
  targets.push(target);
  return target;
}

function describe(data: string): string {
  using sqlite = openSqlite(databasePath(data), { readonly: true });
  const count = (table: string) =>
    Number(sqlite.prepare(`SELECT count(*) FROM ${table}`).pluck().get()).toLocaleString('en');
  const bytes = Number(
    sqlite.prepare('SELECT page_count * page_size FROM pragma_page_count, pragma_page_size').pluck().get(),
  );
  return `${['projects', 'builds', 'commits', 'events'].map(table => `${count(table)} ${table}`).join(', ')}, ${(bytes / MB).toFixed(0)} MB`;
}

/** Every GET route, with its variants, for the wide project and an ordinary one. Without a project in the path, once. */
function listPaths(): Measurement[] {
  const isList = new Map<string, boolean>();
  for (const { method, path, response } of endpoints)
    if (method === 'GET')
      isList.set(path, 'list' in response && (!('paged' in response) || path.endsWith('events')));
  for (const { method, path } of routes)
    if (method === 'GET' && !notMeasured.some(pattern => pattern.test(path))) isList.set(path, false);
  return [...isList]
    .flatMap(([path, list]) => {
      const withQuery = (query: string) => {
        const limit = list ? `${query === '' ? '?' : '&'}limit=${LIST_LENGTH}` : '';
        return path + query + limit;
      };
      const whole = withQuery(searches[path] ?? '');
      const paths = [whole, ...(variants[path] ?? []).map(withQuery)];
      // The files of only one build are there.
      if (path.includes('/builds/:build_id') && !/artifact_id|artifacts.zip|artifact$/.test(path))
        paths.push(whole.replace(':build_id', ':failed_build_id'));
      const projects = path.includes('_id') ? (['wide', 'ordinary'] as const) : (['wide'] as const);
      return projects.flatMap(of =>
        paths.map(one => ({ name: projects.length > 1 ? `${one} (${of})` : one, path: one, of })),
      );
    })
    .filter(({ name }) => name.includes(options.only));
}

function addressOf(target: Target, { path, of }: Measurement): string {
  const filled = path.replaceAll(/:([a-z_]+)/g, (_, name: string) => target[of][name] ?? `no-${name}`);
  return filled + (target.queries[path] ?? '');
}

async function comparePages(small: Target, large: Target): Promise<void> {
  const memory = (target: Target) => (residentBytesOf(target.server.process.pid as number) / MB).toFixed(0);
  const before = memory(large);
  const paths = listPaths();
  const samples = new Map(paths.map(one => [one, noSamples()]));
  for (let pass = 0; pass < PASSES; pass += 1)
    for (const [one, ofPath] of samples)
      await compare(one, small, large, ROUNDS, pass === 0 ? noSamples() : ofPath);
  // A busy machine affects a while. What is slow is slow again later.
  for (const [one, ofPath] of samples) {
    if (isEqual(summarize(one, ofPath))) continue;
    const again = noSamples();
    await compare(one, small, large, 3 * ROUNDS * (PASSES - 1), again);
    samples.set(one, again);
  }
  const all = [...samples].map(([one, ofPath]) => summarize(one, ofPath));
  const isAnswered = ({ answers }: Measured) => /^[23]\d\d$/.test(answers);
  const measured = all.filter(isAnswered);
  const failed = all.filter(one => !isAnswered(one)).map(({ name, answers }) => `${name}: ${answers}`);
  printTable(measured);
  if (failed.length > 0) console.log(`not compared because of the status:\n  ${failed.join('\n  ')}`);
  // A delay that is the same in both, such as one of the network, is seen only here.
  const timeOf = (path: string) => measured.find(({ name }) => name === path)?.large ?? Number.NaN;
  const log = '/projects/:project_id/builds/:build_id/log (ordinary)';
  if (all.some(({ name }) => name === log))
    report(
      'download of a short log, ratio to the record',
      timeOf(log) / timeOf(log.replace('/log', '')),
      '≤',
      10,
    );
  const missed = measured.filter(one => !isEqual(one)).length + failed.length;
  report(`of ${measured.length} pages and endpoints, slower in the large installation`, missed, '≤', 0, ' ');
  console.log(
    `memory: large ${before} MB before and ${memory(large)} MB after, small ${memory(small)} MB after`,
  );
}

function noSamples(): Samples {
  return { small: [], large: [], statuses: new Set() };
}

/** Asks both sides in turn, and adds the times to the samples. */
async function compare(
  one: Measurement,
  small: Target,
  large: Target,
  rounds: number,
  samples: Samples,
): Promise<void> {
  for (let round = 0; round < WARM_UPS + rounds; round += 1)
    for (const [times, target] of [
      [samples.small, small],
      [samples.large, large],
    ] as const) {
      // So that a connection is open: the end of a stream closes it.
      await ask(target, '/ping');
      const startedAt = performance.now();
      samples.statuses.add(await ask(target, addressOf(target, one)));
      if (round >= WARM_UPS) times.push(performance.now() - startedAt);
    }
}

function summarize({ name }: Measurement, { small, large, statuses }: Samples): Measured {
  return {
    name,
    small: median(small),
    large: median(large),
    ratio: median(large.map((ms, round) => ms / (small[round] as number))),
    answers: [...statuses].join(' and '),
  };
}

function printTable(measured: readonly Measured[]): void {
  console.log(
    `\nGoal: ratio ≤ ${GOAL_RATIO}; a difference below ${FLOOR_MS} ms counts as equal. Medians of ${ROUNDS * (PASSES - 1)} rounds;\nwhat missed the goal was measured again in three times as many rounds, which count.`,
  );
  console.log('small ms  large ms  ratio');
  for (const one of measured.toSorted((a, b) => b.ratio - a.ratio)) {
    const { name, small, large, ratio, answers } = one;
    const figures = [
      small.toFixed(1).padStart(8),
      large.toFixed(1).padStart(8),
      ratio.toFixed(2).padStart(5),
    ];
    const remarks = [...(answers === '200' ? [] : [`(${answers})`]), ...(isEqual(one) ? [] : ['MISSED'])];
    console.log([...figures, name, ...remarks].join('  '));
  }
}

/** From the request to the end of the response, and how long one of the two processes was ready but did not run. */
async function time(target: Target, path: string): Promise<Wait> {
  const pids = [process.pid, target.server.process.pid as number];
  const queuedMs = () => pids.reduce((sum, pid) => sum + queuedMsOf(pid), 0);
  const queuedBefore = queuedMs();
  const fromMs = monotonicMs();
  await ask(target, path);
  const toMs = monotonicMs();
  return { fromMs, toMs, queuedMs: queuedMs() - queuedBefore };
}

/** How long the main thread of a process has waited for a processor so far. */
function queuedMsOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1').split(' ')[1]) / 1e6;
}

function ask(target: Target, path: string, method = 'GET'): Promise<number> {
  const { agent, server, email, key, session } = target;
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        agent,
        host: '127.0.0.1',
        port: server.port,
        method,
        path,
        timeout: DEADLINE_MS,
        headers: /^\/(ui|oauth2)\b/.test(path)
          ? { cookie: `__Host-assay-session=${session}` }
          : { authorization: `Basic ${Buffer.from(`${email}:${key}`).toString('base64')}` },
      },
      answer => {
        const status = answer.statusCode ?? 0;
        if (answer.headers['content-type']?.startsWith('text/event-stream')) {
          answer.on('error', () => {});
          answer.once('data', () => {
            resolve(status);
            outgoing.destroy();
          });
        } else answer.resume().on('end', () => resolve(status));
      },
    );
    outgoing.on('error', reject);
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no response to ${method} ${path}`)));
    outgoing.end();
  });
}

/**
 * Runs the work while a record is requested at a fixed pace. Time in which the machine was paused or ran something else
 * does not count.
 */
async function during(
  target: Target,
  work: () => Promise<unknown>,
): Promise<{ stall: LongestStall; latencies: number[]; seconds: number; rss: number[] }> {
  const path = `/projects/${target.ordinary.project_id}`;
  for (let warmUp = 0; warmUp < 20; warmUp += 1) await ask(target, path);
  await longestStall(target.server.process, pauses);
  const waits: Wait[] = [];
  const rss = [residentBytesOf(target.server.process.pid as number)];
  const startedAt = performance.now();
  let isDone = false;
  const finished = work().finally(() => {
    isDone = true;
  });
  while (!isDone) {
    waits.push(await time(target, path));
    await sleep(PACE_MS);
  }
  await finished;
  rss.push(residentBytesOf(target.server.process.pid as number));
  return {
    stall: await longestStall(target.server.process, pauses),
    latencies: waits.map(({ fromMs, toMs, queuedMs }) =>
      Math.max(0.1, toMs - fromMs - Math.max(queuedMs, pauses.within(fromMs, toMs))),
    ),
    seconds: (performance.now() - startedAt) / 1000,
    rss,
  };
}

function reportDuring(
  name: string,
  { stall, latencies, seconds, rss }: Awaited<ReturnType<typeof during>>,
  goalMs: number,
): void {
  report(`${name}: longest wait of ${latencies.length} requests`, Math.max(...latencies), '≤', goalMs, ' ms');
  report(`${name}: longest stall of the server`, stall.ms, '≤', goalMs, ' ms');
  console.log(
    `  it took ${seconds.toFixed(0)} s; stall: ${describeStall(stall)}; median of the requests ${median(latencies).toFixed(1)} ms; memory ${rss.map(bytes => (bytes / MB).toFixed(0)).join(' → ')} MB`,
  );
}

async function measureBackup(target: Target): Promise<void> {
  const file = join(directory, 'backup.tar.zst');
  const run = promisify(execFile);
  const program = await programPath();
  try {
    const figures = await during(target, () =>
      run(process.execPath, [program, 'backup', file, '--data', target.data], { maxBuffer: 1e8 }),
    );
    reportDuring('backup of the large installation', figures, 100);
  } finally {
    rmSync(file, { force: true });
  }
}

async function measureDelete(target: Target): Promise<void> {
  const { deleted, data } = target;
  using sqlite = openSqlite(databasePath(data), { readonly: true });
  const count = sqlite.prepare('SELECT count(*) FROM projects WHERE id = ?').pluck();
  const figures = await during(target, async () => {
    const status = await ask(target, `/projects/${deleted}`, 'DELETE');
    if (status !== 200) throw new Error(`the project was not deleted: ${status}`);
    while (Number(count.get(BigInt(deleted ?? 0))) > 0) await sleep(100);
  });
  reportDuring('delete of a project with 100,000 builds', figures, 50);
}

// The cost of the client: `run --local` compared with a run of a pushed commit, and `logs` compared with curl. Every figure is
// a ratio of alternating rounds in one run, so that a busy machine affects both sides. Startup of the program counts.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { environmentWith, programPath, runAssay, serve } from '../cli/program.ts';
import { clearDocker, makeData } from '../support/appliance.ts';
import { basic, createClient } from '../support/client.ts';
import { createJourney, type ProjectJourney } from '../support/journey.ts';
import { git } from '../support/repository.ts';
import { startSshd } from '../support/sshd.ts';
import { exitStatus, instanceIn, median, report, showLoad } from './support.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: 'string', default: '9' } },
});
const rounds = Number(options.rounds);
const MIB = 1024 * 1024;
const LINES = 1_000_000;
const PRINT = `awk 'BEGIN { for (i = 0; i < ${LINES}; i++) printf "%07d %091d\\n", i, 0 }'`;
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);

const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const sshd = await startSshd();
const data = makeData(sshd);
const added = await runAssay(['user', 'add', 'bench@example.org', '--json', '--data', data]);
const account = JSON.parse(added.stdout) as { email: string; api_key: string };
const server = await serve(data, {
  env: { ASSAY_CONCURRENCY: '2', ASSAY_LOG_LIMIT: '256MiB', ASSAY_MIN_FREE_DISK: '1MiB' },
});
const caFile = join(data, 'tls', 'ca.pem');
const origin = `https://127.0.0.1:${server.port}`;
const client = createClient(origin, readFileSync(caFile, 'utf8'));
const journey = createJourney({
  client,
  as: basic(account.email, account.api_key),
  sshd,
  waitMs: 600_000,
});
const environment = environmentWith({
  ASSAY_URL: origin,
  ASSAY_TOKEN: `${account.email}:${account.api_key}`,
  ASSAY_CA_FILE: caFile,
  XDG_CONFIG_HOME: work,
});
const program = await programPath();

try {
  showLoad('before');
  if (wanted('local')) await localRuns();
  if (wanted('logs')) await longLog();
  showLoad('after');
} finally {
  client.close();
  await server.end('SIGTERM');
  await sshd.close();
  await clearDocker(instanceIn(data));
  rmSync(data, { recursive: true, force: true });
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

/** Runs a program to its end. What it prints goes nowhere unless it is read. */
async function execute(command: readonly string[], directory: string, isRead = false): Promise<string> {
  const child = spawn(command[0] as string, command.slice(1), {
    cwd: directory,
    env: environment,
    stdio: ['ignore', isRead ? 'pipe' : 'ignore', 'inherit'],
  });
  let printed = '';
  child.stdout?.setEncoding('utf8').on('data', text => {
    printed += text;
  });
  const [status] = await once(child, 'close');
  if (status !== 0) throw new Error(`${command.join(' ')} ended with ${status}: ${printed}`);
  return printed;
}

/** Alternates the sides and returns their medians. The first round creates mirrors, networks and caches. */
async function alternate(sides: readonly ((round: number) => Promise<number>)[]): Promise<number[]> {
  const measured = sides.map(side => ({ side, figures: [] as number[] }));
  for (let round = -1; round < rounds; round++)
    for (const { side, figures } of round % 2 === 0 ? measured : measured.toReversed()) {
      const figure = await side(round);
      if (round >= 0) figures.push(figure);
    }
  return measured.map(({ figures }) => median(figures));
}

async function localRuns(): Promise<void> {
  const repository = journey.repository({
    message: 'First\n',
    files: Object.fromEntries(
      Array.from({ length: 100 }, (_, index) => [`file-${index}`, randomBytes(MIB)] as const),
    ),
  });
  const project = await journey.project(repository);
  await project.suite({ command: 'date "+stamp %s.%N"' });
  const checkout = join(work, 'checkout');
  git(work, 'clone', '--quiet', repository.directory, checkout);
  git(checkout, 'remote', 'set-url', 'origin', repository.url);
  letTimePass(checkout);
  const [local = 0, pushed = 0, known = 0] = await alternate([
    round => {
      writeFileSync(join(checkout, 'file-7'), `local ${round}\n`);
      return firstLine(project, checkout, ['run', '--local', '--json']);
    },
    round => {
      repository.add({ message: `Round ${round}\n`, files: { counter: `${round}` } });
      return firstLine(project, checkout, ['run', '--json']);
    },
    () => firstLine(project, checkout, ['run', '--json', repository.hashes[0] as string]),
  ]);
  console.log(
    `run --local of a repository of 100 MB with one changed file, to the first line: ${local.toFixed(0)} ms; run of a commit that was just pushed: ${pushed.toFixed(0)} ms; run of a commit that the server has: ${known.toFixed(0)} ms`,
  );
  report('run --local, compared with a commit that was just pushed', local / pushed, '≤', 1.2);
  report('run --local, compared with a commit that the server has', local / known, '≤', 1.2);
}

/** Git reads files again that are as new as the index. Nobody works in a checkout for long where all of them are. */
function letTimePass(checkout: string): void {
  const anHourAgo = Date.now() / 1000 - 3600;
  for (const name of readdirSync(checkout)) utimesSync(join(checkout, name), anHourAgo, anHourAgo);
  git(checkout, 'status');
}

/** From the start of the program to the time that the first line of the suite contains. */
async function firstLine(
  project: ProjectJourney,
  checkout: string,
  args: readonly string[],
): Promise<number> {
  const startedAt = Date.now();
  const printed = await execute([process.execPath, program, ...args], checkout, true);
  const [, buildId] = /"build":\{"id":\d+,"id_str":"(\d+)"/.exec(printed) ?? [];
  if (buildId === undefined) throw new Error(`no build in ${printed}`);
  const [, seconds] = /^stamp (\d+\.\d+)$/m.exec(await project.log(buildId)) ?? [];
  if (seconds === undefined) throw new Error('no stamp in the log');
  return Number(seconds) * 1000 - startedAt;
}

async function longLog(): Promise<void> {
  const project = await journey.project();
  await project.suite({ command: PRINT });
  const { builds } = await project.run();
  const buildId = builds[0]?.id_str as string;
  const checkout = join(work, 'log');
  git(work, 'clone', '--quiet', project.repository.directory, checkout);
  git(checkout, 'remote', 'set-url', 'origin', project.repository.url);
  const curl = join(work, 'curl');
  writeFileSync(curl, `user = "${account.email}:${account.api_key}"\ncacert = "${caFile}"\nsilent\nfail\n`);
  const timed = async (command: readonly string[]) => {
    const startedAt = performance.now();
    await execute(command, checkout);
    return performance.now() - startedAt;
  };
  const [own = 0, raw = 0] = await alternate([
    () => timed([process.execPath, program, 'logs', buildId]),
    () => timed(['curl', '--config', curl, `${origin}${project.path}/builds/${buildId}/log`]),
  ]);
  console.log(`logs of 100 MB: ${own.toFixed(0)} ms; curl: ${raw.toFixed(0)} ms`);
  report('a log of 100 MB, compared with curl', own / raw, '≤', 1.3);
}

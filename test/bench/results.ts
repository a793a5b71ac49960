// The cost of what follows a build: keeping its artifacts, compared with `docker cp` of the same files, reading its test
// reports, compared with the bare XML parser, and searching its log, compared with `grep -r`. Ratios are of alternating
// rounds in one run, so that a busy machine affects both sides.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { HOST_IMAGE } from '../../src/domain/names.ts';
import { createDockerEngine } from '../../src/engine/docker/docker-engine.ts';
import { buildFilesPath } from '../../src/store/data/paths.ts';
import { runAssay, serve } from '../cli/program.ts';
import { clearDocker, DOCKER_HOST, docker, makeData } from '../support/appliance.ts';
import { basic, createClient, type Wire } from '../support/client.ts';
import { createJourney } from '../support/journey.ts';
import { startSshd } from '../support/sshd.ts';
import {
  exitStatus,
  instanceIn,
  median,
  report,
  residentBytesOf,
  showLoad,
  startChild,
  writeToMemory,
} from './support.ts';
import { benchReports } from './support-reports.ts';
import { benchSearch } from './support-search.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: 'string', default: '5' } },
});
const rounds = Number(options.rounds);
const MIB = 1024 * 1024;
const SAMPLE_MS = 20;
const wanted = (part: string) => positionals.length === 0 || positionals.includes(part);

writeToMemory();
const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const sshd = await startSshd();
const data = makeData(sshd);
const added = await runAssay(['user', 'add', 'bench@example.org', '--json', '--data', data]);
const account = JSON.parse(added.stdout) as { email: string; api_key: string };
const as = basic(account.email, account.api_key);
const server = await serve(data, {
  env: { ASSAY_NETWORK: 'none', ASSAY_ARTIFACT_LIMIT: '2GiB', ASSAY_MIN_FREE_DISK: '1MiB' },
});
const pid = server.child.pid as number;
const client = createClient(
  `https://127.0.0.1:${server.port}`,
  readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'),
);
const journey = createJourney({ client, as, sshd, waitMs: 600_000 });
const engine = createDockerEngine({
  dockerHost: DOCKER_HOST,
  instance: 'bench',
  runAs: { uid: 1000, gid: 1000 },
  network: 'none',
});
const image = await engine.prepareImage(HOST_IMAGE);

try {
  showLoad('before');
  if (wanted('random'))
    await compare('1 GiB that does not compress', 1.3, 'head -c 1073741824 /dev/urandom >big');
  if (wanted('text'))
    await compare(
      '1 GiB of log lines',
      1.3,
      `awk 'BEGIN { for (i = 0; i < 10500000; i++) printf "%09d %016x line of a log, module %d passed in %d ms and so on and on ...\\n", i, i * 2654435761, i % 97, i % 1013 }' | head -c 1073741824 >big`,
    );
  if (wanted('small'))
    await compare(
      '10,000 small files',
      2,
      'for d in $(seq 100); do mkdir $d; for f in $(seq 100); do echo "<p>page $f of $d</p> <p>covered: line $f</p>" >$d/$f.html; done; done',
    );
  if (wanted('reports')) await benchReports();
  if (wanted('cases')) await buildWithCases();
  if (wanted('search')) await benchSearch();
  showLoad('after');
} finally {
  client.close();
  await server.end('SIGTERM');
  await sshd.close();
  await clearDocker(instanceIn(data));
  engine.close();
  rmSync(data, { recursive: true, force: true });
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

/** A build whose report has 100,000 test cases, to its verdict: how long others wait, and memory. */
async function buildWithCases(): Promise<void> {
  const project = await journey.project();
  const command = `awk 'BEGIN { print "<testsuite>"; for (i = 0; i < 100000; i++) printf "<testcase classname=\\"com.example.module%d.CartTest\\" name=\\"test_total_%d\\" time=\\"0.0%d\\">%s</testcase>\\n", i / 100, i, i % 90, i % 50 ? "" : "<failure message=\\"expected 1 but was 2\\">at Cart.java</failure>"; print "</testsuite>" }' >/srv/artifacts/report.xml; date "+stamp %s.%N"`;
  await project.suite({ command });
  const waits: number[] = [];
  const grown: number[] = [];
  const caller = await startChild(
    [
      process.execPath,
      join(import.meta.dirname, 'support-ping.ts'),
      String(server.port),
      join(data, 'tls', 'ca.pem'),
    ],
    { port: server.port, ready: /ready/, ipc: true },
  );
  const longestWait = async (): Promise<number> => {
    const answered = once(caller.process, 'message', { signal: AbortSignal.timeout(60_000) });
    caller.process.send('longest');
    return (await answered)[0];
  };
  for (let round = 0; round < rounds; round++) {
    const { id_str: id } = await project.buildOf(await project.request());
    await project.logHas(id as string, 'stamp ');
    const idleBytes = residentBytesOf(pid);
    let peakBytes = idleBytes;
    await longestWait();
    const sampling = setInterval(() => {
      peakBytes = Math.max(peakBytes, residentBytesOf(pid));
    }, SAMPLE_MS);
    const { tests } = (await project.finishedBuild(id as string)) as { tests?: { passed: number } };
    clearInterval(sampling);
    if (tests?.passed !== 98_000) throw new Error(`the tests were not recorded: ${JSON.stringify(tests)}`);
    waits.push(await longestWait());
    grown.push(peakBytes - idleBytes);
  }
  await caller.end();
  console.log(`100,000 test cases of a build: longest wait for /ping ${waits.map(Math.round).join(', ')} ms`);
  report(
    '100,000 test cases of a build: longest wait of another request',
    Math.max(...waits),
    '≤',
    50,
    ' ms',
  );
  report(
    "100,000 test cases of a build: growth of the server's memory",
    median(grown) / MIB,
    '≤',
    60,
    ' MiB',
  );
}

/** SHA-256 of large files is computed after the verdict, and must not disturb what is measured next. */
async function hashedArtifacts(path: string): Promise<void> {
  for (;;) {
    const [first] = (await client.get(path, as)).list as { sha256: string | null }[];
    if (first?.sha256) return;
    await new Promise(resolve => setTimeout(resolve, SAMPLE_MS));
  }
}

/** Runs the command in a container, as a build does, and returns how long `docker cp` of its files takes. */
async function timeToCopy(command: string): Promise<number> {
  const mounts = image.mounts.map(
    ({ source, target }) => `--mount=type=bind,source=${source},target=${target},readonly`,
  );
  const container = await docker(
    ...['create', '--network=none', '--user=1000:1000', '--workdir=/srv/artifacts', '--entrypoint=/bin/sh'],
    ...[...mounts, image.reference, '-c', command],
  );
  const target = join(work, 'copy');
  try {
    execFileSync('docker', ['start', '--attach', container], { stdio: 'inherit', timeout: 300_000 });
    const startedAt = performance.now();
    execFileSync('docker', ['cp', `${container}:/srv/artifacts`, target], { timeout: 300_000 });
    return performance.now() - startedAt;
  } finally {
    rmSync(target, { recursive: true, force: true });
    await docker('rm', '--force', container);
  }
}

/** The command makes the files in /srv/artifacts. */
async function compare(name: string, limit: number, command: string): Promise<void> {
  const madeAndSynced = `cd /srv/artifacts\n${command}\nsync`;
  const project = await journey.project();
  await project.suite({ command: `${madeAndSynced}\ndate "+stamp %s.%N"` });
  const kept: number[] = [];
  const copied: number[] = [];
  const grown: number[] = [];
  let build: Wire | undefined;
  let zipBytes = 0;
  for (let round = 0; round < rounds; round++) {
    copied.push(await timeToCopy(madeAndSynced));
    execFileSync('sync');

    const request = await project.request();
    const { id_str: id } = await project.buildOf(request);
    const log = await project.logHas(id as string, 'stamp ');
    const idleBytes = residentBytesOf(pid);
    let peakBytes = idleBytes;
    const sampling = setInterval(() => {
      peakBytes = Math.max(peakBytes, residentBytesOf(pid));
    }, SAMPLE_MS);
    build = await project.finishedBuild(id as string);
    clearInterval(sampling);
    const endedAt = Number(/^stamp (\d+\.\d+)$/m.exec(log)?.[1]) * 1000;
    kept.push(Date.parse(build.finished_at as string) - endedAt);
    grown.push(peakBytes - idleBytes);
    await hashedArtifacts(`/projects/${project.id}/builds/${id}/artifacts`);
    const zip = buildFilesPath(data, BigInt(id as string));
    zipBytes = statSync(zip).size;
    rmSync(zip);
    execFileSync('sync');
  }
  const show = (values: readonly number[]) => values.map(value => Math.round(value)).join(', ');
  console.log(
    `${name}: ${build?.artifacts} artifacts, ${build?.artifacts_bytes} bytes, ${zipBytes} in the ZIP; kept in ${show(kept)} ms, docker cp ${show(copied)} ms`,
  );
  report(`${name}: end of the command to verdict ÷ docker cp`, median(kept) / median(copied), '≤', limit);
  report(`${name}: growth of the server's memory`, median(grown) / MIB, '≤', 60, ' MiB');
}

// The search over 1,000 builds with logs of 1 MiB, compared with `grep -r` over the same files: the time of a search, the
// memory of the server, and the longest stall of its event loop.
import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../src/store/builds.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { buildLogPath } from '../../src/store/data/paths.ts';
import { createProject } from '../../src/store/projects.ts';
import { createSuite } from '../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { programPath } from '../cli/program.ts';
import { commitFields } from '../support/app.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { freePort } from '../support/ports.ts';
import { askOnce, median, openSocket, report, requestBytes, residentBytesOf, startChild } from './support.ts';
import { longestStall, watchPauses } from './support-pauses.ts';

const BUILDS = 1_000;
const LOG_BYTES = 1024 * 1024;
const ROUNDS = 7;
const root = join(import.meta.dirname, '../..');
const apiKey = 'assay_benchmark';
const auth = `bench@example.com:${apiKey}`;
const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

/** In three of the logs, in all of them, and in none, although its words are like those of the logs. */
const texts = {
  rare: 'ECONNREFUSED 127.0.0.1:5432',
  common: 'assertion failed',
  absent: 'too many open files',
};

/** The output of a project's tests: the same lines in each build, with other times and numbers. */
function createLog(build: number, titles: readonly string[], files: readonly string[]): string {
  let seed = build + 1;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  const lines: string[] = [];
  const start = Date.UTC(2026, 0, 1) + build * 3_600_000;
  for (let bytes = 0; bytes < LOG_BYTES; ) {
    const at = lines.length;
    const [title, file] = [titles[at % titles.length], files[random(files.length)]];
    const line =
      at === 5_000
        ? `Error: ${texts.common} in ${file}:${random(500)}`
        : at === 6_000 && build % 400 === 7
          ? `Error: connect ${texts.rare}`
          : at % 3 === 0
            ? `${new Date(start + at * 17).toISOString()} INFO ${file} ${title}`
            : at % 3 === 1
              ? `✔ ${title} (${random(100_000) / 1000}ms)`
              : `  cc -O2 -c ${file} -o build/${random(2 ** 32).toString(16)}.o`;
    lines.push(line);
    bytes += Buffer.byteLength(line) + 1;
  }
  return Buffer.from(`${lines.join('\n')}\n`).toString('utf8', 0, LOG_BYTES);
}

function seed(data: string): bigint {
  const paths = globSync('test/**/*.test.ts', { cwd: root });
  const titles = paths.flatMap(path =>
    [...readFileSync(join(root, path), 'utf8').matchAll(/^ *test\('([^']+)'/gm)].map(
      ([, title]) => title as string,
    ),
  );
  const files = globSync('src/**/*.ts', { cwd: root });
  createDataDirectory(data);
  const db = openData(data);
  const account = createAccount(db, {
    email: 'bench@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey,
  });
  const project = createProject(db, {
    ownerId: account.id,
    name: 'Bench',
    description: '',
    repositoryUrl: 'git@git.invalid:team/website.git',
    badge: false,
    cancelSuperseded: false,
    keyPair: generateKeyPair('bench'),
  });
  const suite = createSuite(db, {
    projectId: project.id,
    name: 'Unit tests',
    description: '',
    command: 'make check',
    image: null,
  });
  for (let at = 0; at < BUILDS; at += 1) {
    const id = db.write(() => {
      const request = createBuildRequest(db, project, 'main', account.email);
      const commit = recordCommit(db, project.id, commitFields(`${at}`.padStart(40, 'c')));
      moveRequest(db, request.id, 'fetch');
      enqueueBuilds(db, request.id, commit, 'main', [
        { suiteId: suite.id, suiteName: suite.name, runs: true, rules: [] },
      ]);
      const id = listBuildsOfRequest(db, request.id)[0]?.id as bigint;
      moveBuild(db, id, 'start');
      moveBuild(db, id, 'fail', { exitCode: 1 });
      return id;
    });
    writeFileSync(buildLogPath(data, id), createLog(at, titles, files));
  }
  db.close();
  return project.id;
}

export async function benchSearch(): Promise<void> {
  const data = mkdtempSync(join(tmpdir(), 'assay-bench-'));
  try {
    const projectId = seed(data);
    const port = await freePort();
    const meter = ['--import', join(import.meta.dirname, 'support-stall-meter.ts')];
    const server = await startChild([process.execPath, ...meter, await programPath(), 'serve'], {
      port,
      env: { ASSAY_DATA: data, ASSAY_LISTEN: `127.0.0.1:${port}` },
      ready: /assay is serving/,
      ipc: true,
    });
    const pid = server.process.pid as number;
    const pauses = await watchPauses();
    const stallMsOf = async () => (await longestStall(server.process, pauses)).ms;
    try {
      const logs = join(data, 'logs');
      const startedAt = performance.now();
      await stallMsOf();
      while (readdirSync(logs).length < 2 * BUILDS) await sleep(100);
      console.log(`filters of ${BUILDS} logs: ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
      report('  longest stall meanwhile', await stallMsOf(), '≤', 50, ' ms');

      const socket = await openSocket(port, readFileSync(join(data, 'tls/ca.pem'), 'utf8'));
      await askOnce(socket, requestBytes('/ping', auth));
      const before = residentBytesOf(pid);
      let highest = before;
      let stallMs = 0;
      for (const [name, text] of Object.entries(texts)) {
        // As many lines as the search page asks for.
        const path = `/projects/${projectId}/search?limit=50&q=${encodeURIComponent(text)}`;
        const searchTimes: number[] = [];
        const grepTimes: number[] = [];
        let found = 0;
        for (let round = 0; round <= ROUNDS; round += 1) {
          // Not while grep runs.
          await stallMsOf();
          const searchedAt = performance.now();
          const answer = await askOnce(socket, requestBytes(path, auth));
          const searchMs = performance.now() - searchedAt;
          stallMs = Math.max(stallMs, await stallMsOf());
          highest = Math.max(highest, residentBytesOf(pid));
          found = answer.toString().split('"offset"').length - 1;
          const greppedAt = performance.now();
          // With /dev/null as its output, grep would stop at the first match.
          spawnSync('grep', ['-r', '--include=*.log', text, logs], { maxBuffer: 2 ** 30 });
          const grepMs = performance.now() - greppedAt;
          // The first round reads the files.
          if (round === 0) continue;
          searchTimes.push(searchMs);
          grepTimes.push(grepMs);
        }
        const [searchMs, grepMs] = [median(searchTimes), median(grepTimes)];
        console.log(`search for a ${name} text: ${found} lines, grep -r ${grepMs.toFixed(0)} ms`);
        report('  time', searchMs, '≤', 1_000, ' ms');
        report('  times faster than grep -r', grepMs / searchMs, '≥', 5);
      }
      report('longest stall during searches', stallMs, '≤', 50, ' ms');
      report('memory that searches add', (highest - before) / 2 ** 20, '≤', 60, ' MiB');
      socket.destroy();
    } finally {
      await server.end();
      await pauses.end();
    }
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
}

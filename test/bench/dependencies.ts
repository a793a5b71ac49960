// The cost of dependencies: the start of a suite with a large one or with several, an upload, a compile, an export and an
// import, compared with the bare operation. Every figure is a ratio of alternating rounds in one run, so that a busy machine affects both sides.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ARCHIVE_FILE, PROJECT_DIRECTORY } from '../../src/domain/container/container-plan.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { identityOf } from '../../src/store/appliance.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { archivePath, artifactPath } from '../../src/store/data/paths.ts';
import { createDependency, findDependency } from '../../src/store/dependencies.ts';
import { openFixture } from '../engine/docker/fixture.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import type { ProjectJourney } from '../support/journey.ts';
import { makeAppliance, plantDependency } from '../support/planted-dependency.ts';
import { freePort } from '../support/ports.ts';
import { openDependencies, PREFIX, tarOf } from '../work/dependencies/fixture.ts';
import {
  type Child,
  exitStatus,
  installExecutable,
  median,
  report,
  residentBytesOf,
  startChild,
} from './support.ts';

const { values: options } = parseArgs({
  options: {
    /** `uploads`, `transfers`, `compiles`, `several` or `suites`: runs only that part. */
    only: { type: 'string', default: '' },
    'suite-rounds': { type: 'string', default: '31' },
    'upload-rounds': { type: 'string', default: '5' },
    'compile-rounds': { type: 'string', default: '3' },
    'artifact-mib': { type: 'string', default: '2048' },
    'upload-mib': { type: 'string', default: '1024' },
    'transfer-rounds': { type: 'string', default: '3' },
    'transfer-mib': { type: 'string', default: '1024' },
  },
});
const rounds = (name: 'suite-rounds' | 'upload-rounds' | 'compile-rounds' | 'transfer-rounds') =>
  Number(options[name]);
const MIB = 1 << 20;
const SEVERAL = 6;

/** The time from the request to the first output of a suite with the command `date +%s%N`. */
async function startTime(project: ProjectJourney, suiteId: string): Promise<number> {
  const requestedAt = Date.now();
  const { build, log } = (await project.run()).of(suiteId);
  assert.equal(build.build_state, 'passed', log);
  const [, nanoseconds] = /^(\d{19})$/m.exec(log) ?? [];
  return Number(BigInt(nanoseconds as string) / 1_000n) / 1_000 - requestedAt;
}

/** The results of both, measured in turns after a first one of each that does not count. */
async function alternate(
  one: () => Promise<number>,
  other: () => Promise<number>,
): Promise<[number[], number[]]> {
  const results: [number[], number[]] = [[], []];
  for (let round = 0; round <= rounds('suite-rounds'); round++) {
    const pair = [await one(), await other()] as const;
    if (round > 0) for (const at of [0, 1] as const) results[at].push(pair[at]);
  }
  return results;
}

/** The start of a suite with six dependencies, each with a prefix of its own, compared with one that has one. */
async function measureSeveral(appliance: Appliance): Promise<void> {
  const dependencies = openDependencies(appliance);
  const ids: string[] = [];
  for (let number = 1; number <= SEVERAL; number++) {
    const prefix = `/opt/bench-${number}`;
    const command = `mkdir -p ${prefix}/bin ${prefix}/lib && head -c ${MIB} /dev/urandom >${prefix}/lib/data && cp file ${prefix}/bin`;
    ids.push(await dependencies.compiled(tarOf({ file: String(number) }), { name: prefix, prefix, command }));
  }
  const repository = appliance.repository();
  const attached = async (chosen: readonly string[]) => {
    const project = await appliance.project(repository);
    const suiteId = await project.suite({ command: 'date +%s%N' });
    for (const id of chosen)
      await project.ask('POST', `/suites/${suiteId}/dependencies`, { dependency_id: id });
    return () => startTime(project, suiteId);
  };
  const [one, several] = await alternate(await attached(ids.slice(0, 1)), await attached(ids));
  console.log(`suites start after ${median(one).toFixed(0)} and ${median(several).toFixed(0)} ms`);
  report(
    `start of a suite with ${SEVERAL} dependencies to one with one`,
    median(several) / median(one),
    '≤',
    1.1,
  );
}

async function measureSuites(appliance: Appliance): Promise<void> {
  const dependencies = openDependencies(appliance);
  const files = Number(options['artifact-mib']);
  const startedAt = performance.now();
  const large = await dependencies.compiled(tarOf({ file: 'x' }), {
    name: 'large',
    command: `head -c ${MIB} /dev/urandom >block; for i in $(seq ${files}); do cat block >${PREFIX}/$i; done`,
  });
  console.log(`${files} MiB compiled and kept in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  const command = 'date +%s%N';
  const repository = appliance.repository();
  const plain = await appliance.project(repository);
  const plainSuite = await plain.suite({ command });
  const loaded = await appliance.project(repository);
  const loadedSuite = await loaded.suite({ command });
  await loaded.ask('POST', `/suites/${loadedSuite}/dependencies`, { dependency_id: large });
  const [without, withIt] = await alternate(
    () => startTime(plain, plainSuite),
    () => startTime(loaded, loadedSuite),
  );
  console.log(`suites start after ${median(without).toFixed(0)} and ${median(withIt).toFixed(0)} ms`);
  report(
    `start of a suite with a ${files} MiB dependency to one with none`,
    median(withIt) / median(without),
    '≤',
    1.05,
  );
}

/** The time from enqueued to compiled, compared with the same container started by hand. */
async function measureCompiles(appliance: Appliance): Promise<void> {
  const dependencies = openDependencies(appliance);
  const docker = await openFixture();
  const by: Record<'hand' | 'assay', number[]> = { hand: [], assay: [] };
  const command = `make && make install PREFIX=${PREFIX}`;
  try {
    for (let round = 0; round < rounds('compile-rounds'); round++) {
      const archive = sourceTar(round);
      const { id, state, log } = await dependencies.compile(archive, { command });
      assert.equal(state, 'compiled', log);
      const row = findDependency(appliance.app.db, BigInt(id));
      by.assay.push((row?.finishedAt ?? 0) - (row?.enqueuedAt ?? 0));
      const volume = `assay-${docker.instance}-prefix-${round}`;
      const owner = { instance: docker.instance, kind: 'prefix', id: String(round) };
      await docker.engine.createVolume({ name: volume, owner });
      await docker.engine.claimVolume(volume);
      const startedAt = performance.now();
      const { exit } = await docker.run(`cd ${PROJECT_DIRECTORY} && tar -xf ${ARCHIVE_FILE} && ${command}`, {
        memoryBytes: 2048 * MIB,
        environment: { MAKEFLAGS: '-j2' },
        mounts: [
          {
            type: 'bind',
            source: archivePath(appliance.data, row?.archiveHash as string),
            target: ARCHIVE_FILE,
            readOnly: true,
          },
          { type: 'volume', source: volume, target: PREFIX, readOnly: false, copy: false },
        ],
      });
      assert.equal(exit?.kind === 'exit' && exit.status, 0);
      by.hand.push(performance.now() - startedAt);
    }
  } finally {
    await docker.close();
  }
  console.log(
    `a compile takes ${median(by.hand).toFixed(0)} ms by hand, ${median(by.assay).toFixed(0)} ms by Assay`,
  );
  report('compile to the same command by hand', median(by.assay) / median(by.hand), '≤', 1.15);
}

/** A library that differs each time, so that no earlier artifact is used. */
function sourceTar(round: number): Buffer {
  const modules = Array.from({ length: 16 }, (_, index) => `m${index}`);
  const body = (name: string) =>
    Array.from(
      { length: 120 },
      (_, index) =>
        `int ${name}_${index}(int *a, int n) { int s = ${round}; for (int i = 0; i < n; i++) { s += a[i] * ${index + 1}; if (s % ${index + 3} == 0) s ^= a[n - i - 1]; a[i] = s; } return s; }`,
    ).join('\n');
  return tarOf({
    ...Object.fromEntries(modules.map(name => [`${name}.c`, `${body(name)}\n`])),
    Makefile: `OBJECTS = ${modules.map(name => `${name}.o`).join(' ')}\nlibm.a: $(OBJECTS)\n\t$(AR) rc $@ $(OBJECTS)\n%.o: %.c\n\t$(CC) -O2 -c $< -o $@\ninstall: libm.a\n\tmkdir -p $(PREFIX)/lib && cp libm.a $(PREFIX)/lib\n`,
  });
}

/** Streams the body, and resolves when it is acknowledged. */
function send(port: number, ca: string, path: string, authorization: string): Promise<number> {
  const block = randomBytes(MIB);
  // A gzip header: an upload of anything else is refused at once.
  const first = Buffer.concat([Buffer.from([0x1f, 0x8b, 0x08]), block.subarray(3)]);
  const count = Number(options['upload-mib']);
  const startedAt = performance.now();
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        host: '127.0.0.1',
        port,
        ca,
        method: 'POST',
        path,
        headers: { authorization, 'content-length': String(count * MIB) },
      },
      answer => {
        answer.resume().on('end', () => resolve(performance.now() - startedAt));
        if ((answer.statusCode ?? 0) >= 300)
          reject(new Error(`the upload was answered ${answer.statusCode}`));
      },
    );
    outgoing.on('error', reject);
    (async () => {
      for (let index = 0; index < count; index++)
        if (!outgoing.write(index === 0 ? first : block))
          await new Promise(resolve => outgoing.once('drain', resolve));
      outgoing.end();
    })();
  });
}

async function peakWhile(child: Child, work: () => Promise<unknown>): Promise<number> {
  const pid = child.process.pid as number;
  const before = residentBytesOf(pid);
  let peak = before;
  const timer = setInterval(() => {
    peak = Math.max(peak, residentBytesOf(pid));
  }, 20);
  await work().finally(() => clearInterval(timer));
  return peak - before;
}

async function measureUploads(): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
  const data = join(work, 'data');
  createDataDirectory(data);
  const db = openData(data);
  const apiKey = 'assay_benchmark';
  const account = createAccount(db, {
    email: 'bench@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey,
  });
  const blank = {
    description: '',
    command: `: ${PREFIX}`,
    prefix: PREFIX,
    source: '',
    launchCommand: '',
    image: null,
  };
  const ids = Array.from({ length: rounds('upload-rounds') + 1 }, (_, index) =>
    createDependency(db, account.id, { ...blank, name: `upload ${index}` }, []),
  ).map(({ id }) => id);
  db.close();
  const authorization = `Basic ${Buffer.from(`bench@example.com:${apiKey}`).toString('base64')}`;
  const children: Child[] = [];
  try {
    const port = await freePort();
    const assay = await startChild(
      [await installExecutable(work), 'serve', '--data', data, '--listen', `127.0.0.1:${port}`],
      // The uploads are not compiled meanwhile.
      { port, env: { DOCKER_HOST: `unix://${work}/no-docker.sock` }, ready: /https:/ },
    );
    children.push(assay);
    const tls = join(data, 'tls');
    const barePort = await freePort();
    const bare = await startChild(
      [
        process.execPath,
        join(import.meta.dirname, 'support-baseline-upload.ts'),
        join(work, 'bare'),
        join(tls, 'server.pem'),
        join(tls, 'server.key'),
        String(barePort),
      ],
      { port: barePort, ready: /ready/ },
    );
    children.push(bare);
    const ca = readFileSync(join(tls, 'ca.pem'), 'utf8');
    const times: Record<'assay' | 'bare', number[]> = { assay: [], bare: [] };
    const grown: number[] = [];
    for (const [round, id] of ids.entries()) {
      let ms = 0;
      const bytes = await peakWhile(assay, async () => {
        ms = await send(port, ca, `/dependencies/${id}/archive`, authorization);
      });
      const bareMs = await send(barePort, ca, '/', authorization);
      // The first round is a warm-up; its memory counts.
      grown.push(bytes);
      if (round === 0) continue;
      times.assay.push(ms);
      times.bare.push(bareMs);
    }
    console.log(
      `${options['upload-mib']} MiB are uploaded in ${median(times.bare).toFixed(0)} ms to a bare server, ${median(times.assay).toFixed(0)} ms to Assay`,
    );
    report('upload to a bare server', median(times.assay) / median(times.bare), '≤', 1.3);
    report('memory that an upload adds', Math.max(...grown) / 1e6, '≤', 80, ' MB');
  } finally {
    for (const child of children) await child.end();
    rmSync(work, { recursive: true, force: true });
  }
}

/** Runs a program to its end. `peak` is the largest memory it had. */
async function runProgram(command: readonly string[]): Promise<{ ms: number; peakBytes: number }> {
  const startedAt = performance.now();
  const child = spawn(command[0] as string, command.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] });
  let peakBytes = 0;
  const timer = setInterval(() => {
    try {
      peakBytes = Math.max(peakBytes, residentBytesOf(child.pid as number) || 0);
    } catch {
      // It has ended.
    }
  }, 20);
  const [status] = await once(child, 'close');
  clearInterval(timer);
  assert.equal(status, 0, command.join(' '));
  return { ms: performance.now() - startedAt, peakBytes };
}

/** Export and import of a dependency, compared with `cp` of the same bytes and `sha256sum` of the copy. */
async function measureTransfers(): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
  try {
    const [from, to, file, copy] = ['from', 'to', 'exported', 'copy'].map(name => join(work, name)) as [
      string,
      string,
      string,
      string,
    ];
    const source = makeAppliance(from);
    const entries = function* (mebibytes: number) {
      for (let at = 0; at < mebibytes; at++) yield { name: `volume/${at}`, content: randomBytes(MIB) };
    };
    const mebibytes = Number(options['transfer-mib']);
    await plantDependency(source, from, { name: 'small', entries: entries(1) });
    const large = await plantDependency(source, from, { name: 'large', entries: entries(mebibytes) });
    const artifact = artifactPath(from, large.artifactHash as string);
    const { fingerprint } = identityOf(source.db);
    source.db.close();
    makeAppliance(to).db.close();
    const assay = [await installExecutable(work), 'dependency'];
    const exported = (name: string) => runProgram([...assay, 'export', name, file, '--data', from]);
    const imported = (round: string) =>
      runProgram([...assay, 'import', file, '--name', round, '--trust', fingerprint, '--data', to]);
    // The program itself and its threads. V8 keeps up to 64 MB of used buffers on top of that.
    await exported('small');
    const smallBytes = Math.max((await exported('small')).peakBytes, (await imported('small')).peakBytes);
    const times: Record<'bare' | 'fast' | 'out' | 'in', number[]> = { bare: [], fast: [], out: [], in: [] };
    const peaks: number[] = [];
    for (let round = 0; round < rounds('transfer-rounds'); round++) {
      const copied = await runProgram(['cp', artifact, copy]);
      const hashed = await runProgram(['sha256sum', copy]);
      const hashedFast = await runProgram(['openssl', 'dgst', '-sha256', copy]);
      rmSync(copy);
      const out = await exported('large');
      const into = await imported(`round ${round}`);
      rmSync(file);
      times.bare.push(copied.ms + hashed.ms);
      times.fast.push(copied.ms + hashedFast.ms);
      times.out.push(out.ms);
      times.in.push(into.ms);
      peaks.push(out.peakBytes, into.peakBytes);
    }
    const [bare, fast, out, into] = [times.bare, times.fast, times.out, times.in].map(median) as [
      number,
      number,
      number,
      number,
    ];
    console.log(
      `${mebibytes} MiB: cp and sha256sum ${bare.toFixed(0)} ms, cp and openssl ${fast.toFixed(0)} ms, export ${out.toFixed(0)} ms, import ${into.toFixed(0)} ms`,
    );
    console.log(
      `compared with openssl, which hashes with instructions of the processor: export ${(out / fast).toFixed(2)}, import ${(into / fast).toFixed(2)}`,
    );
    report('export to cp and sha256sum', out / bare, '≤', 1.3);
    report('import to cp and sha256sum', into / bare, '≤', 1.3);
    report(
      'memory that a large export or import adds',
      (Math.max(...peaks) - smallBytes) / 1e6,
      '≤',
      100,
      ' MB',
    );
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

const wants = (part: string) => options.only === '' || options.only === part;
if (wants('uploads')) await measureUploads();
if (wants('transfers')) await measureTransfers();
const appliance = await startAppliance({ timeoutMs: 600_000 });
try {
  if (wants('compiles')) await measureCompiles(appliance);
  if (wants('several')) await measureSeveral(appliance);
  if (wants('suites')) await measureSuites(appliance);
} finally {
  await appliance.close();
}
process.exitCode = exitStatus();

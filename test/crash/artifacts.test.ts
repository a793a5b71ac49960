// A server that is killed while it collects the artifacts and test results of a build, in each phase: the next one collects them again, and
// nothing is lost or doubled.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { buildFilesPath, buildLogPath, databasePath, jobDirectory } from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { runAssay, type Serving, serve } from '../cli/program.ts';
import { clearDocker, containersUntil, docker, makeData } from '../support/appliance.ts';
import { basic, type Client, createClient, type Wire } from '../support/client.ts';
import { directoryUntil } from '../support/directory.ts';
import { createJourney, type Journey } from '../support/journey.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';

let sshd: TestSshd;
let data: string;
let server: Serving;
let client: Client;
let journey: Journey;
let as: string;
let instance: string;

const start = async () => {
  server = await serve(data, { env: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' } });
  client = createClient(
    `https://127.0.0.1:${server.port}`,
    readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'),
  );
  journey = createJourney({ client, as, sshd });
};

before(async () => {
  sshd = await startSshd();
  data = makeData(sshd);
  const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
  const { email, api_key: key } = JSON.parse(added.stdout);
  as = basic(email, key);
  using sqlite = openSqlite(databasePath(data), { readonly: true });
  instance = sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get() as string;
});
after(async () => {
  await sshd.close();
  await clearDocker(instance);
  rmSync(data, { recursive: true, force: true });
});

/** Kills the server inside a sync of the file, before the kernel executes it. Returns once strace is attached. */
async function killAtSync(path: string, count = 1): Promise<void> {
  const tracer = spawn('strace', [
    ...['-f', '-o', '/dev/null', '-p', String(server.child.pid), '-P', path],
    ...['-e', 'trace=fsync,fdatasync', '-e', `inject=fsync,fdatasync:signal=SIGKILL:when=${count}`],
  ]);
  await once(tracer.stderr, 'data');
}

/** What kills the server, prepared while the command waits. */
const phases: Record<string, (build: bigint, container: string) => Promise<void>> = {
  'when the container has ended': async (_, container) => {
    docker('wait', container).then(() => server.child.kill('SIGKILL'));
  },
  'while files are read': async build => {
    const directory = jobDirectory(data, 'build', build);
    const appeared = directoryUntil(directory, names => names.includes('artifacts.zip'), 'there is no ZIP');
    appeared.then(() => server.child.kill('SIGKILL'));
  },
  'after the ZIP got its name': () => killAtSync(join(data, 'files')),
  'while the index is inserted': () => killAtSync(`${databasePath(data)}-wal`),
  'before the verdict': build => killAtSync(buildLogPath(data, build)),
  'while reports are marked': () => killAtSync(`${databasePath(data)}-wal`, 2),
  'while tests are inserted': () => killAtSync(`${databasePath(data)}-wal`, 3),
  'while messages of failed tests are inserted': () => killAtSync(`${databasePath(data)}-wal`, 4),
  'inside the transaction of the verdict': () => killAtSync(`${databasePath(data)}-wal`, 5),
};

test('a server that is killed in any phase of a collection loses and doubles nothing', async t => {
  mkdirSync(join(data, 'files'), { recursive: true });
  await start();
  const command = [
    'echo x >>/srv/cache/runs; mkdir -p coverage /srv/artifacts/sub; seq 100000 >/srv/artifacts/sub/numbers',
    'head -c 8M /dev/urandom >/srv/artifacts/random; echo page >coverage/index.html; echo waiting',
    // A test that is known and fails, and a new one.
    'name="run $(wc -l </srv/cache/runs)"',
    "echo \"<testsuite><testcase name='known'><failure/></testcase><testcase name='$name'/></testsuite>\" >/srv/artifacts/junit.xml",
    'until [ -e /tmp/go ]; do sleep 0.05; done; echo "runs: $(wc -l </srv/cache/runs)"',
  ].join('\n');
  const { id } = await journey.project();
  await journey.knownProject(id).suite({ command, artifacts: 'coverage/**' });
  let runs = 0;
  for (const [phase, prepare] of Object.entries(phases))
    await t.test(phase, async () => {
      const project = journey.knownProject(id);
      const request = await project.request();
      const build = BigInt((await project.buildOf(request)).id_str as string);
      await project.logHas(String(build), 'waiting');
      const container = `assay-${instance}-build-${build}`;
      const gone = once(server.child, 'close');
      await prepare(build, container);
      await docker('exec', '--detach', container, 'touch', '/tmp/go');
      await gone;
      client.close();
      await start();
      const again = journey.knownProject(id);
      await again.finishedRequest(request);
      const record = await again.buildRecord(String(build));
      const log = await again.log(String(build));
      runs += 1;
      assert.equal(record.build_state, 'passed', log);
      assert.equal(record.artifacts, 4);
      assert.equal(
        log.split('\n').filter(line => /^\[assay\] kept 4 artifacts, \d+ bytes$/.test(line)).length,
        1,
        log,
      );
      assert.match(log, new RegExp(`^runs: ${runs}$`, 'm'));
      execFileSync('unzip', ['-tq', buildFilesPath(data, build)]);
      using sqlite = openSqlite(databasePath(data), { readonly: true });
      assert.deepEqual(
        sqlite
          .prepare('SELECT path FROM build_artifacts WHERE build_id = ? ORDER BY path')
          .pluck()
          .all(build),
        ['coverage/index.html', 'junit.xml', 'random', 'sub/numbers'],
      );
      const count = (table: string) => sqlite.prepare(`SELECT count(*) FROM ${table}`).pluck().get();
      assert.equal(count('builds'), runs);
      assert.deepEqual(
        [count('tests'), count('build_reports'), count('test_failures')],
        [runs + 1, runs, runs],
      );
      const { passed, failed, new_failures } = record.tests as Wire;
      assert.deepEqual([passed, failed, new_failures], [1, 1, runs === 1 ? 1 : 0]);
      assert.match(log, /^\[assay\] tests: 1 passed, 1 failed; /m);
    });
  await containersUntil(instance, names => names.length === 0);
  assert.equal(readdirSync(join(data, 'files')).length, runs);
  await directoryUntil(join(data, 'jobs'), names => names.length === 0, 'files of a job are left');
  client.close();
  await server.end('SIGTERM');
});

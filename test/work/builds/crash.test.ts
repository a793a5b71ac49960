// A server that is killed in the middle of builds, and the next one that resumes them.
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { residentBytesOf } from '../../bench/support.ts';
import { runAssay, type Serving, serve } from '../../cli/program.ts';
import { clearDocker, containersUntil, docker, makeData } from '../../support/appliance.ts';
import { basic, type Client, createClient, type Wire } from '../../support/client.ts';
import { createJourney, type Journey } from '../../support/journey.ts';
import { startSshd, type TestSshd } from '../../support/sshd.ts';

/** Prints numbered lines, each with a secret, and marks each run of the command in the cache. */
const NUMBERED = (lines: number, pause: string) =>
  `echo x >>/srv/cache/runs; i=0; while [ $i -lt ${lines} ]; do echo "line $i $TOKEN"; i=$((i+1)); ${pause}; done; echo "runs: $(wc -l </srv/cache/runs)"`;

const WAIT_FOR_FILE = 'until [ -e /tmp/go ]; do sleep 0.05; done';

const expectedLines = (lines: number) =>
  `${Array.from({ length: lines }, (_, i) => `line ${i} ***\n`).join('')}runs: 1\n`;

describe('A server that is killed', () => {
  let sshd: TestSshd;
  let data: string;
  let server: Serving;
  let client: Client;
  let journey: Journey;
  let as: string;
  let instance: string;
  const env = {
    ASSAY_NETWORK: 'none',
    ASSAY_CONCURRENCY: '4',
    ASSAY_MIN_FREE_DISK: '1MiB',
    ASSAY_LOG_LIMIT: '4MiB',
  };

  const start = async () => {
    server = await serve(data, { env });
    const ca = readFileSync(join(data, 'tls', 'ca.pem'), 'utf8');
    client = createClient(`https://127.0.0.1:${server.port}`, ca);
    journey = createJourney({ client, as, sshd });
  };
  const kill = async () => {
    client.close();
    await server.end('SIGKILL');
  };

  before(async () => {
    sshd = await startSshd();
    data = makeData(sshd);
    const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
    const { email, api_key: key } = JSON.parse(added.stdout);
    as = basic(email, key);
    await start();
  });
  after(async () => {
    await kill();
    await sshd.close();
    if (instance) await clearDocker(instance);
    rmSync(data, { recursive: true, force: true });
  });

  test('continues builds that run or ended meanwhile: every line once, the command run once', async () => {
    const project = await journey.project();
    const variables = { TOKEN: 'supersecretvalue' };
    const options = [
      // Keeps printing during and after the kill.
      NUMBERED(300, 'sleep 0.01'),
      // Ends while no server runs.
      `${NUMBERED(40, ':')}; ${WAIT_FOR_FILE}`,
      // Prints as fast as it can.
      NUMBERED(20_000, ':'),
      // Fails while no server runs.
      `${NUMBERED(20, ':')}; ${WAIT_FOR_FILE}; exit 7`,
    ];
    const suites: string[] = [];
    for (const command of options) suites.push(await project.suite({ command, variables }));
    const requestId = await project.request();
    const builds: string[] = [];
    for (const suite of suites) builds.push((await project.buildOf(requestId, suite)).id_str as string);
    await Promise.all(builds.map(buildId => project.logHas(buildId, 'line 5 ')));
    // Changed while it runs: the old value, which the container has, stays masked.
    const changed = `/suites/${suites[0]}/environment_variables`;
    const [variable] = (await project.ask('GET', changed)) as unknown as Wire[];
    await project.ask('PUT', `${changed}/${variable?.id_str}`, { content: 'something else' });
    await kill();
    const names = (await docker('ps', '-a', '--format', '{{.Names}}')).split('\n');
    instance =
      /^assay-([0-9a-f]+)-build-/.exec(names.find(name => name.includes(builds[1] as string)) ?? '')?.[1] ??
      '';
    assert.notEqual(instance, '', 'containers go on without the server');
    for (const buildId of [builds[1], builds[3]]) {
      const name = `assay-${instance}-build-${buildId}`;
      await docker('exec', '--detach', name, 'touch', '/tmp/go');
      await docker('wait', name);
    }
    await start();
    const again = journey.knownProject(project.id);
    const request = await again.finishedRequest(requestId);
    assert.equal(request.build_state, 'failed');
    const counts = [300, 40, 20_000, 20];
    for (const [index, buildId] of builds.entries()) {
      const log = await again.log(buildId);
      const printed = log
        .split('\n')
        .filter(line => !line.startsWith('[assay]'))
        .join('\n');
      assert.equal(printed, expectedLines(counts[index] as number), `suite ${index}`);
      const build = await again.buildRecord(buildId);
      assert.equal(build.build_state, index === 3 ? 'failed' : 'passed');
      assert.equal(build.exit_code, index === 3 ? 7 : 0);
    }
    await containersUntil(instance, left => left.length === 0);
  });

  test('while a container waits for its commit starts the build again: the command runs once', async () => {
    const project = await journey.project();
    const gate = join(data, 'gate');
    writeFileSync(gate, '');
    sshd.addKey(project.key, `until [ -e ${gate} ]; do sleep 0.05; done; exec sh -c "$SSH_ORIGINAL_COMMAND"`);
    const suite = await project.suite({
      command: NUMBERED(3, ':'),
      variables: { TOKEN: 'supersecretvalue' },
    });
    await project.ask('POST', `/suites/${suite}/rules`, {
      subject: 'commit.message',
      operator: 'does_not_contain',
      value: 'First',
    });
    assert.equal((await project.run()).state, 'skipped');
    const [rule] = (await project.ask('GET', `/suites/${suite}/rules`)) as unknown as Wire[];
    await project.ask('DELETE', `/suites/${suite}/rules/${rule?.id_str}`);
    rmSync(gate);
    const requestId = await project.request();
    const [waiting] = await containersUntil(instance, names => names.length === 1);
    await kill();
    writeFileSync(gate, '');
    await start();
    const again = journey.knownProject(project.id);
    assert.equal((await again.finishedRequest(requestId)).build_state, 'passed');
    const [build] = await again.buildsOf(requestId);
    assert.match(await again.log(build?.id_str as string), /^line 2 \*\*\*\nruns: 1$/m);
    assert.ok(!waiting?.endsWith(build?.id_str as string), 'it was started for another build');
    await containersUntil(instance, left => left.length === 0);
  });

  test('repeatedly still loses nothing', async () => {
    const project = await journey.project();
    const suite = await project.suite({
      command: NUMBERED(400, 'sleep 0.01'),
      variables: { TOKEN: 'supersecretvalue' },
    });
    const requestId = await project.request();
    const buildId = (await project.buildOf(requestId, suite)).id_str as string;
    for (const at of [20, 90, 160]) {
      await journey.knownProject(project.id).logHas(buildId, `line ${at} `);
      await kill();
      await start();
    }
    const known = journey.knownProject(project.id);
    assert.equal((await known.finishedRequest(requestId)).build_state, 'passed');
    const log = await known.log(buildId);
    assert.equal(
      log
        .split('\n')
        .filter(line => !line.startsWith('[assay]'))
        .join('\n'),
      expectedLines(400),
    );
  });

  test('before its builds could start leaves them to the next one, and repeats a fetch', async () => {
    const project = await journey.project();
    await project.suite({ command: 'echo ran' });
    const requestIds = await Promise.all([project.request(), project.request()]);
    await kill();
    await start();
    const known = journey.knownProject(project.id);
    for (const requestId of requestIds) {
      assert.equal((await known.finishedRequest(requestId)).build_state, 'passed');
      assert.equal((await known.buildsOf(requestId)).length, 1);
    }
  });

  test('finds that containers are gone, and runs their builds again', async () => {
    const project = await journey.project();
    const suite = await project.suite({
      command:
        'echo x >>/srv/cache/runs; echo "run $(wc -l </srv/cache/runs)"; test "$(wc -l </srv/cache/runs)" = 2 || exec sleep 1000',
    });
    const requestId = await project.request();
    const buildId = (await project.buildOf(requestId, suite)).id_str as string;
    await project.logHas(buildId, 'run 1');
    await kill();
    await docker('rm', '-f', `assay-${instance}-build-${buildId}`);
    await start();
    const known = journey.knownProject(project.id);
    assert.equal((await known.finishedRequest(requestId)).build_state, 'passed');
    assert.match(
      await known.log(buildId),
      /run 1\n\[assay\] .*The build is run again\.\n(\[assay\] .*\n)*run 2\n$/,
    );
  });

  test('stopped with SIGTERM leaves containers running, and continues with them', async () => {
    const project = await journey.project();
    const suite = await project.suite({
      command: NUMBERED(150, 'sleep 0.01'),
      variables: { TOKEN: 'supersecretvalue' },
    });
    const requestId = await project.request();
    const buildId = (await project.buildOf(requestId, suite)).id_str as string;
    await project.logHas(buildId, 'line 10 ');
    client.close();
    assert.deepEqual(await server.end('SIGTERM'), [0, null]);
    await start();
    const known = journey.knownProject(project.id);
    assert.equal((await known.finishedRequest(requestId)).build_state, 'passed');
    const log = await known.log(buildId);
    assert.equal(
      log
        .split('\n')
        .filter(line => !line.startsWith('[assay]'))
        .join('\n'),
      expectedLines(150),
    );
  });

  test('or not, keeps its memory flat while a suite prints 1 GB on one line', async () => {
    const pid = server.child.pid as number;
    const project = await journey.project();
    // The memory that a first build needs once does not count.
    const warming = await project.runOne({ command: 'seq 1 1000' });
    await project.ask('DELETE', `/suites/${warming.suiteId}`);
    await project.suite({ command: 'head -c 1000000000 /dev/zero | tr "\\0" x' });
    const before = residentBytesOf(pid);
    let most = before;
    const watch = setInterval(() => {
      most = Math.max(most, residentBytesOf(pid));
    }, 20);
    const { state } = await project.run();
    clearInterval(watch);
    assert.equal(state, 'passed');
    const grownMib = (most - before) / 1024 / 1024;
    // The garbage that the collector leaves is the same for 200 MB and for 3 GB.
    assert.ok(grownMib < 200, `it grew by ${Math.round(grownMib)} MiB`);
  });
});

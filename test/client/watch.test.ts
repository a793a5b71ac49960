// `assay watch` and `assay run` on a terminal: what the screen shows, Ctrl-C, resizing; and over an interruption of the server.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { findAccountByEmail, replaceApiKey } from '../../src/store/accounts.ts';
import { openData } from '../../src/store/data/data.ts';
import { instanceOf } from '../../src/store/database/stored-values.ts';
import { programPath, runAssay, type Serving, serve } from '../cli/program.ts';
import { clearDocker, docker, makeData } from '../support/appliance.ts';
import { basic, type Client, createClient, type Wire } from '../support/client.ts';
import { createJourney, type ProjectJourney } from '../support/journey.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';
import { createTerminalScreen } from '../support/terminal-screen.ts';
import { type ClientWorld, type RunOptions, startClient, startClientWorld } from './fixture.ts';

const CTRL_C = '\x03';

/** What is on the screen after all of this was printed. */
function screenOf(output: string, columns = 80) {
  const screen = createTerminalScreen(columns, 40);
  screen.write(output);
  return screen;
}

describe('A build on a terminal', () => {
  let world: ClientWorld;
  let project: ProjectJourney;
  let path: string;
  const newestOf = async (ref: string) => {
    const list = (await project.ask('GET', `/build_requests?branch=${ref}`)) as unknown as {
      id_str: string;
    }[];
    return list[0]?.id_str as string;
  };
  const stateOf = async (ref: string) => project.finishedRequest(await newestOf(ref));
  const inTerminal = (fields: Partial<RunOptions> = {}): RunOptions => ({
    in: path,
    columns: 80,
    ...fields,
    env: { LANG: 'C.UTF-8', ...fields.env },
  });
  before(async () => {
    world = await startClientWorld({ concurrency: 8 });
    const repository = world.repository();
    for (const branch of ['hang', 'hang-2', 'hang-3', 'hang-4']) repository.git('branch', branch);
    ({ project, path } = await world.checkout(repository));
    await project.suite({
      name: 'unit',
      command: 'case $ASSAY_BRANCH in hang*) sleep 600;; esac; printf "\\033[31moh no"; exit 5',
    });
    await project.suite({ name: 'lint', command: 'true' });
  });
  after(() => world.close());

  it('ends with the address, the log of what failed and a clean table', async () => {
    const { status, stdout } = await world.run(['run'], inTerminal({ columns: 120 }));
    assert.equal(status, 1);
    const screen = screenOf(stdout, 120);
    const lines = screen.all();
    assert.equal(screen.isCursorVisible(), true);
    const at = lines.findIndex(line => /^unit: failed after \d+ s \(exit status 5\)$/.test(line));
    assert.match(lines[at + 1] ?? '', /^the end of the log; "assay logs \d+" prints all of it$/);
    assert.match(lines[at + 2] ?? '', /^\[assay\] suite unit: case/);
    assert.ok(lines.includes('oh no'), lines.join('\n'));
    const last = lines.slice(-7);
    assert.match(last.join(''), new RegExp(`^${world.client.origin}/ui/projects/${project.id}/commits/`));
    assert.match(
      last.join('\n'),
      /✘ failed {5}unit {2}\d+ s +exit status 5\n✔ passed {5}lint {2}\d+ s\n\n✘ failed after \d+ s: 1 failed, 1 passed$/,
    );
    assert.equal(lines.filter(line => line.startsWith('https://')).length, 1, lines.join('\n'));
  });

  it('is plain with TERM=dumb, has no colours with NO_COLOR, and is shown at once when it has ended', async () => {
    const id = await newestOf('main');
    const [dumb, colourless, coloured, json] = await Promise.all([
      world.run(['watch', id], inTerminal({ env: { TERM: 'dumb' } })),
      world.run(['watch', id], inTerminal({ env: { NO_COLOR: '1' } })),
      world.run(['watch'], inTerminal()),
      world.run(['watch', '--json'], { in: path }),
    ]);
    for (const { status } of [dumb, colourless, coloured, json]) assert.equal(status, 1);
    assert.doesNotMatch(dumb.stdout.replace('\x1b[31moh no', ''), /\x1b/);
    assert.match(dumb.stdout, /\d\d:\d\d:\d\d unit: failed after /);
    assert.doesNotMatch(colourless.stdout.replace('\x1b[31moh no', ''), /\x1b\[[1-9]\d*m/);
    assert.match(coloured.stdout, /\x1b\[32m✔ passed/);
    assert.deepEqual(
      json.stdout
        .trimEnd()
        .split('\n')
        .map(line => Object.keys(JSON.parse(line))[0]),
      ['suite', 'suite', 'url'],
    );
    assert.equal((await world.run(['watch', '--branch', 'nowhere'], { in: path })).status, 5);
  });

  it('asks at Ctrl-C whether to cancel, cancels after a yes, and goes on after a no', async () => {
    const interrupt = async (ref: string, answer: string) => {
      const running = await world.start(['run', ref], inTerminal());
      await running.until(/running.*unit/);
      running.type(CTRL_C);
      await running.until('Cancel the build? [y/N] ');
      running.type(answer);
      const ended = await running.ended;
      assert.equal(ended.status, 130);
      return screenOf(ended.stdout);
    };
    const [yes, no, twice] = await Promise.all([
      interrupt('hang', 'y\n'),
      interrupt('hang-2', '\n'),
      interrupt('hang-3', CTRL_C),
    ]);
    assert.match(
      yes.all().join('\n'),
      /running +unit .*\n[\s\S]*\nCancel the build\? \[y\/N\] y\nassay: the build is being canceled$/,
    );
    assert.equal(yes.isCursorVisible(), true);
    assert.equal((await stateOf('hang')).build_state, 'canceled');
    for (const screen of [no, twice]) {
      assert.match(
        screen.all().at(-1) ?? '',
        /^assay: the build goes on; "assay watch \d+" follows it again$/,
      );
      assert.equal(screen.isCursorVisible(), true);
    }
    const watching = await world.start(['watch', '--branch', 'hang-2'], inTerminal());
    await watching.until(/running.*unit/);
    watching.type(CTRL_C);
    const left = await watching.ended;
    assert.equal(left.status, 130);
    assert.match(screenOf(left.stdout).all().at(-1) ?? '', /^assay: the build goes on/);
    for (const ref of ['hang-2', 'hang-3'])
      assert.equal(
        ((await project.ask('GET', `/build_requests?branch=${ref}&state=building`)) as unknown as []).length,
        1,
      );
  });

  it('is canceled at a signal with --cancel-on-interrupt, without a terminal, and otherwise goes on', async () => {
    const running = await world.start(['run', 'hang-4', '--cancel-on-interrupt'], { in: path });
    await running.until('unit: running');
    running.child.kill('SIGTERM');
    const canceled = await running.ended;
    assert.equal(canceled.status, 130);
    assert.match(canceled.stderr, /the build is being canceled/);
    assert.equal((await stateOf('hang-4')).build_state, 'canceled');
    const watching = await world.start(['watch', '--branch', 'hang-2'], { in: path });
    await watching.until('unit: running');
    watching.child.kill('SIGINT');
    assert.equal((await watching.ended).status, 130);
  });

  it('fits the terminal after resizing', async () => {
    const ttyFile = join(world.directory, 'tty');
    const program = ['sh', '-c', `tty >'${ttyFile}'; exec "$@"`, 'sh', process.execPath, await programPath()];
    const watching = await world.start(
      ['watch', '--branch', 'hang-2'],
      inTerminal({ columns: 120, program }),
    );
    await watching.until(/running.*unit/);
    const screen = screenOf(watching.stdout(), 120);
    const before = watching.stdout().length;
    const tty = readFileSync(ttyFile, 'utf8').trim();
    execFileSync('stty', ['-F', tty, 'cols', '30', 'rows', '12'], { timeout: 10_000 });
    await watching.until(/https:[^\r]*…/);
    watching.type(CTRL_C);
    const { stdout } = await watching.ended;
    screen.resize(30, 12);
    screen.write(stdout.slice(before));
    const lines = screen.all().slice(0, -1);
    assert.equal(lines.filter(line => line.startsWith('https://')).length, 1, lines.join('\n'));
    assert.match(lines[0] ?? '', /^https:.*…$/);
    assert.equal(lines.filter(line => /running +unit/.test(line)).length, 1, lines.join('\n'));
  });

  it('is left with the exit status for it when the sign-in is revoked meanwhile', async () => {
    const watching = await world.start(['watch', '--branch', 'hang-2'], { in: path });
    await watching.until('unit: running');
    const { db } = world.app;
    replaceApiKey(db, findAccountByEmail(db, 'owner@example.org')?.id as bigint);
    const { status, stderr } = await watching.ended;
    assert.equal(status, 5);
    assert.match(stderr, /you are not signed in to .*"assay login https:/);
  });
});

describe('A build that is followed while the server is killed', () => {
  let sshd: TestSshd;
  let data: string;
  let server: Serving;
  let project: ProjectJourney;
  let token: string;
  let client: Client;
  let instance: string;
  const env = { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' };
  const caFile = () => join(data, 'tls', 'ca.pem');
  let pinned: string;

  before(async () => {
    sshd = await startSshd();
    data = makeData(sshd);
    const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
    const { email, api_key: key } = JSON.parse(added.stdout);
    token = `${email}:${key}`;
    const db = openData(data);
    instance = instanceOf(db);
    db.close();
    server = await serve(data, { env });
    pinned = mkdtempSync(join(tmpdir(), 'assay-pinned-'));
    execFileSync('cp', [caFile(), join(pinned, 'ca.pem')]);
    client = createClient(`https://127.0.0.1:${server.port}`, readFileSync(caFile(), 'utf8'));
    const journey = createJourney({ client, as: basic(email, key), sshd });
    project = await journey.project();
    await project.suite({
      name: 'unit',
      command:
        'for i in $(seq 1 150); do echo "line $i."; sleep 0.02; done; until [ -e /tmp/go ]; do sleep 0.05; done; exit 3',
    });
  });
  after(async () => {
    client.close();
    await server.end('SIGKILL');
    await sshd.close();
    await clearDocker(instance);
    rmSync(data, { recursive: true, force: true });
    rmSync(pinned, { recursive: true, force: true });
  });
  const start = (columns?: number) =>
    startClient(['run', 'main', '--project', project.id], {
      ...(columns !== undefined && { columns }),
      env: {
        ASSAY_URL: `https://127.0.0.1:${server.port}`,
        ASSAY_TOKEN: token,
        ASSAY_CA_FILE: join(pinned, 'ca.pem'),
      },
    });
  const restart = async () => {
    const { port } = server;
    await server.end('SIGKILL');
    return async () => {
      server = await serve(data, { env, port });
    };
  };
  const finishBuilds = async () => {
    const filter = `name=assay-${instance}-build-`;
    const names = await docker('ps', '--format', '{{.Names}}', '--filter', filter);
    for (const name of names.split('\n')) await docker('exec', '--detach', name, 'touch', '/tmp/go');
  };

  it('goes on when it is there again: every line of the log is printed once', async () => {
    const [piped, shown] = await Promise.all([start(), start(100)]);
    await Promise.all([piped.until('unit: running'), shown.until(/running.*unit/)]);
    // A build is running shortly before its container is.
    for (const { id_str: id } of (await project.ask('GET', '/build_requests')) as unknown as Wire[])
      await project.logHas((await project.buildOf(id as string)).id_str as string, 'line 5.');
    const again = await restart();
    await Promise.all([
      piped.until('assay: connection lost, trying again'),
      shown.until('assay: connection lost, trying again'),
    ]);
    await again();
    await Promise.all([piped.until('assay: connected again'), shown.until('assay: connected again')]);
    await finishBuilds();
    const ended = await piped.ended;
    assert.equal(ended.status, 1, ended.stdout + ended.stderr);
    const lines = [...ended.stdout.matchAll(/^line (\d+)\.$/gm)].map(([, number]) => Number(number));
    assert.deepEqual(
      lines,
      Array.from({ length: 150 }, (_, at) => at + 1),
    );
    assert.equal(ended.stdout.split('unit: failed').length, 2);
    const { stdout, status } = await shown.ended;
    assert.equal(status, 1);
    const rows = screenOf(stdout, 100).all();
    assert.equal(rows.filter(row => /^line \d+\.$/.test(row)).length, 150);
    assert.match(rows.at(-1) ?? '', /failed after /);
  });

  it('is left with the exit status for it if the certificate is another one then', async () => {
    const running = await start();
    await running.until('unit: running');
    const again = await restart();
    rmSync(join(data, 'tls'), { recursive: true });
    await again();
    const { status, stderr } = await running.ended;
    assert.equal(status, 6);
    assert.match(stderr, /the certificate of https:\S+ has changed/);
  });
});

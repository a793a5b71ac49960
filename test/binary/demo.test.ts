// `assay demo`, run from the sources with its own temporary directory, which the tests inspect.
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { startGitHost } from '../../src/demo/git-host.ts';
import { createRepository, headOf } from '../../src/demo/repository.ts';
import { history } from '../../src/demo/sample.ts';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { openSqlite } from '../../src/store/database/db.ts';

const main = join(import.meta.dirname, '../../src/main.ts');
const work = mkdtempSync(join(tmpdir(), 'assay-demo-test-'));
after(() => rmSync(work, { recursive: true, force: true }));
const run = promisify(execFile);

type Demo = {
  child: ChildProcess;
  temporary: string;
  lines: string[];
  /** The first line that matches; fails if the demo ends without it. */
  line(form: RegExp): Promise<string>;
  /** The exit status, after all output was read. */
  ended: Promise<number | null>;
  errors: Promise<string>;
};

let counter = 0;

function startDemo(args: string[], environment: NodeJS.ProcessEnv = {}): Demo {
  const temporary = join(work, `tmp-${++counter}`);
  mkdirSync(temporary);
  const child = spawn(process.execPath, [main, 'demo', '--listen', '127.0.0.1:0', ...args], {
    env: { ...process.env, TMPDIR: temporary, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  after(() => child.kill('SIGKILL'));
  const lines: string[] = [];
  const looks = new Set<() => void>();
  createInterface(child.stdout).on('line', line => {
    lines.push(line);
    for (const look of looks) look();
  });
  const errors = text(child.stderr);
  const ended = once(child, 'close').then(([status]) => status as number | null);
  const line = (form: RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const found = lines.find(one => form.test(one));
        if (found !== undefined) resolve(found);
      };
      looks.add(look);
      look();
      ended.then(async () => reject(new Error(`no ${form} in:\n${lines.join('\n')}\n${await errors}`)));
    });
  return { child, temporary, lines, line, ended, errors };
}

/** The ID that labels everything the demo has in Docker. */
async function instanceOf(demo: Demo): Promise<string> {
  await demo.line(/Git host: /);
  const [place] = readdirSync(demo.temporary).filter(name => name.startsWith('assay-demo-'));
  const sqlite = openSqlite(join(demo.temporary, place as string, 'data/assay.db'));
  try {
    return sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get() as string;
  } finally {
    sqlite.close();
  }
}

/** What Docker has with the label of that instance. */
async function tracesOf(instance: string): Promise<string[]> {
  assert.match(instance, /^[0-9a-f]+$/);
  const filter = ['--quiet', '--filter', `label=assay.instance=${instance}`];
  const lists = [
    ['ps', '--all'],
    ['volume', 'ls'],
    ['network', 'ls'],
  ].map(what => run('docker', [...what, ...filter], { timeout: 20_000 }));
  return (await Promise.all(lists)).flatMap(({ stdout }) => stdout.split('\n').filter(line => line !== ''));
}

async function assertNothingLeft(demo: Demo, instance: string): Promise<void> {
  assert.deepEqual(readdirSync(demo.temporary), []);
  assert.deepEqual(await tracesOf(instance), []);
  const processes = readdirSync('/proc').filter(name => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`).includes(demo.temporary);
    } catch {
      return false;
    }
  });
  assert.deepEqual(processes, []);
}

test('with --once, it compiles, builds, builds what is pushed, deploys and notifies, prints a table, exits with 0 and leaves nothing behind', async () => {
  const demo = startDemo(['--once']);
  const instance = await instanceOf(demo);
  assert.equal(await demo.ended, 0, [...demo.lines, await demo.errors].join('\n'));
  assert.equal(await demo.errors, '');
  for (const row of [
    /Compile linkcheck +\d+\.\d s {2}compiled/,
    /main: Unit tests +\d+\.\d s {2}passed: 4 tests/,
    /main: Site +\d+\.\d s {2}passed: its secret is masked in the log, 5 artifacts/,
    /main: Docs +not run: rule commit\.files starts with docs\//,
    /v1\.0: Docs +\d+\.\d s {2}passed/,
    /redesign: Unit tests .*failed, as expected: not ok \d+ - pages\/index\.md links to news\.md/,
    /push to redesign: Unit tests +\d+\.\d s {2}passed: 5 tests, 1 fixed/,
    /Deploy main +\d+\.\d s {2}deployed/,
    /Webhooks +(\d+) of \1 received/,
  ])
    assert.ok(
      demo.lines.some(line => row.test(line)),
      `no ${row} in:\n${demo.lines.join('\n')}`,
    );
  assert.ok(!demo.lines.join('\n').includes('\x1b'), 'a pipe is not a terminal');
  await assertNothingLeft(demo, instance);
});

test('without --once, it keeps serving with the credentials that it prints, and builds what is pushed, until it is interrupted', async () => {
  const demo = startDemo([]);
  const instance = await instanceOf(demo);
  const value = async (name: string) =>
    (await demo.line(new RegExp(`^  ${name} `))).trim().split(/ +/).at(-1) as string;
  await demo.line(/^Ctrl-C stops the demo/);
  const url = new URL(await value('Project')).origin;
  const ca = readFileSync(/--cacert (\S+)/.exec(await demo.line(/--cacert/))?.[1] as string);
  const auth = `${await value('Email')}:${await value('API key')}`;
  const sent = request(`${url}/projects`, { ca, auth, signal: AbortSignal.timeout(10_000) }).end();
  const [answer] = await once(sent, 'response');
  assert.match(await text(answer), /"repository_url":"git@demo\.assay:website\.git"/);
  assert.notDeepEqual(await tracesOf(instance), []);

  const stream = request(`${await value('Project')}/firehose`.replace('/ui/', '/'), { ca, auth }).end();
  const [events] = await once(stream, 'response');
  await once(events, 'data');
  const clone = join(work, `clone-${counter}`);
  mkdirSync(clone);
  const shown = demo.lines.filter(line => /^ {2}(git|cd) /.test(line));
  assert.equal(shown.length, 3);
  const who = { NAME: 'Ada', EMAIL: 'ada@example.org' };
  await run('sh', ['-ec', shown.join('\n')], {
    cwd: clone,
    timeout: 30_000,
    env: {
      ...process.env,
      ...Object.fromEntries(
        Object.entries(who).flatMap(([name, text]) => [
          [`GIT_AUTHOR_${name}`, text],
          [`GIT_COMMITTER_${name}`, text],
        ]),
      ),
    },
  });
  let received = '';
  for await (const chunk of events) {
    received += chunk;
    if (/^event: build_request\.finished$/m.test(received) && received.endsWith('\n\n')) break;
  }
  assert.match(
    received,
    /"commit_ref":"main"[^\n]*"build_state":"passed"|"build_state":"passed"[^\n]*"commit_ref":"main"/,
  );
  assert.match(received, /"trigger":"push"/);
  demo.child.kill('SIGINT');
  assert.equal(await demo.ended, 0, await demo.errors);
  await assertNothingLeft(demo, instance);
});

test('stopped in the middle of a build, it says so and leaves nothing behind', async () => {
  const demo = startDemo(['--once']);
  const instance = await instanceOf(demo);
  await demo.line(/main: Unit tests: running/);
  demo.child.kill('SIGTERM');
  assert.equal(await demo.ended, 1);
  assert.match(await demo.errors, /stopped before the end/);
  await assertNothingLeft(demo, instance);
});

test('it names each missing program, and how to install it', async () => {
  const demo = startDemo(['--once'], { PATH: '/nowhere', DOCKER_HOST: 'unix:///nowhere.sock' });
  assert.equal(await demo.ended, 1);
  const errors = await demo.errors;
  for (const form of [
    /is Docker running\?/,
    /apt-get install git\b/,
    /apt-get install openssh-client/,
    /apt-get install curl\b/,
    /gcc/,
  ])
    assert.match(errors, form);
  assert.deepEqual(readdirSync(demo.temporary), []);
});

test('an invalid setting is a usage error', async () => {
  const demo = startDemo(['--once', '--concurrency', 'many']);
  assert.equal(await demo.ended, 2);
  assert.match(await demo.errors, /--concurrency/);
});

test('its Git host accepts one key, only to fetch from and push to its repositories', async t => {
  const place = join(work, 'git-host');
  const repositories = join(place, 'repositories');
  await createRepository(join(repositories, 'website.git'), history);
  await createRepository(join(place, 'outside.git'), history);
  const host = await startGitHost(repositories);
  t.after(() => host.close());
  const [own, other] = [generateKeyPair('own'), generateKeyPair('other')];
  host.allow(own.publicKey);
  writeFileSync(join(place, 'own'), own.privateKey, { mode: 0o600 });
  writeFileSync(join(place, 'other'), other.privateKey, { mode: 0o600 });
  const options = (key: string) => [
    ...['-F', '/dev/null', '-i', join(place, key), '-p', String(host.port)],
    ...['IdentitiesOnly=yes', 'BatchMode=yes', 'StrictHostKeyChecking=no', 'LogLevel=ERROR'].flatMap(one => [
      '-o',
      one,
    ]),
    ...['-o', `UserKnownHostsFile=${join(place, 'known_hosts')}`],
  ];
  const ssh = (key: string, user: string, command: string) =>
    run('ssh', [...options(key), `${user}@127.0.0.1`, command], { timeout: 20_000 });
  const git = (args: string[]) =>
    run('git', args, {
      timeout: 20_000,
      env: { ...process.env, GIT_SSH_COMMAND: `ssh ${options('own').join(' ')}` },
    });

  const head = await headOf(join(repositories, 'website.git'), 'main');
  const copy = join(place, 'copy');
  await git(['clone', '--quiet', 'git@127.0.0.1:website.git', copy]);
  assert.equal((await git(['-C', copy, 'rev-parse', 'HEAD'])).stdout.trim(), head);
  await git(['-C', copy, 'push', '--quiet', 'origin', 'HEAD:refs/heads/copied']);
  assert.equal(await headOf(join(repositories, 'website.git'), 'copied'), head);

  await assert.rejects(ssh('other', 'git', "git-upload-pack 'website.git'"), /Permission denied/);
  await assert.rejects(ssh('own', 'root', "git-upload-pack 'website.git'"), /Permission denied/);
  for (const command of [
    'id',
    "git-upload-pack '../outside.git'",
    "git-upload-pack 'website.git'; id",
    "git-upload-archive 'website.git'",
    "git-upload-pack '--help.git'",
  ])
    await assert.rejects(ssh('own', 'git', command), (error: { code?: number; stdout?: string }) => {
      assert.equal(error.stdout, '', command);
      return error.code !== 0;
    });
});

// The release archive: its content, and installing, upgrading, rolling back and uninstalling it below a temporary
// directory. A script that starts and stops the real server replaces systemd.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inspectData } from '../../src/store/database/inspect.ts';
import { createPrivateEngine } from '../drill/support/engine.ts';
import { freePort } from '../support/ports.ts';

const repository = join(import.meta.dirname, '../..');
const { version } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'));
const name = `assay-${version}-linux-${process.arch}`;
let work = '';
let released = '';

before(() => {
  work = mkdtempSync(join(tmpdir(), 'assay-release-'));
  execFileSync(process.execPath, [join(repository, 'scripts/release.ts'), '--output', work], {
    timeout: 300_000,
  });
  execFileSync('tar', ['-xzf', join(work, `${name}.tar.gz`), '-C', work]);
  released = join(work, name);
});
after(() => rmSync(work, { recursive: true, force: true }));

const SYSTEMCTL = `#!/bin/sh
pid=$ROOT/run/assay.pid
lives() { [ -f "$pid" ] && [ -d "/proc/$(cat "$pid")" ] && ! grep -q '^State:.Z' "/proc/$(cat "$pid")/status"; }
case $* in
  'start assay')
    # Like systemd after StartLimitBurst= failures: refuses to start until reset-failed.
    [ ! -f "$ROOT/run/start-limit-hit" ] || exit 1
    set -a; . "$ROOT/etc/assay/assay.env"; ASSAY_DATA=$ROOT/var/lib/assay; set +a
    "$ROOT/usr/local/bin/assay" serve >>"$ROOT/run/log" 2>&1 </dev/null &
    echo $! >"$pid" ;;
  'stop assay' | 'disable --quiet --now assay')
    if lives; then kill "$(cat "$pid")"; while lives; do sleep 0.05; done; fi
    rm -f "$pid" ;;
  'is-active --quiet assay') lives ;;
  'reset-failed assay') rm "$ROOT/run/start-limit-hit" ;;
esac
`;

type Scratch = {
  root: string;
  listen: string;
  run(script: string, ...args: string[]): Promise<{ status: number; output: string }>;
} & AsyncDisposable;

/** A file tree to install into, with or without the scripted systemd. */
async function scratch(
  hasSystemd: boolean,
  dockerHost = 'unix:///nonexistent/docker.sock',
): Promise<Scratch> {
  const root = mkdtempSync(join(work, 'root-'));
  const listen = `127.0.0.1:${await freePort()}`;
  mkdirSync(join(root, 'etc/assay'), { recursive: true });
  mkdirSync(join(root, hasSystemd ? 'run/systemd/system' : 'run'), { recursive: true });
  mkdirSync(join(root, 'bin'));
  // No Docker, so that nothing of other tests can be touched.
  const lines = ['# mine', `  ASSAY_LISTEN="${listen}" `, `DOCKER_HOST=${dockerHost}`, ''];
  writeFileSync(join(root, 'etc/assay/assay.env'), lines.join('\n'));
  writeFileSync(join(root, 'bin/systemctl'), SYSTEMCTL, { mode: 0o755 });
  const env = { ROOT: root, PATH: `${root}/bin:${process.env.PATH}`, PATIENCE: '20', TMPDIR: tmpdir() };
  const run: Scratch['run'] = (script, ...args) =>
    new Promise(resolve => {
      execFile(script, args, { env, timeout: 120_000 }, (error, stdout, stderr) =>
        resolve({ status: error ? Number(error.code ?? 255) : 0, output: stdout + stderr }),
      );
    });
  return {
    root,
    listen,
    run,
    async [Symbol.asyncDispose]() {
      await run(join(root, 'bin/systemctl'), 'stop', 'assay');
      rmSync(root, { recursive: true, force: true });
    },
  };
}

/** Another release whose executable is this script. REAL is replaced by the path of the working executable. */
function otherRelease(script: string): string {
  const directory = mkdtempSync(join(work, 'other-'));
  for (const file of readdirSync(released))
    if (file !== 'assay') cpSync(join(released, file), join(directory, file), { recursive: true });
  writeFileSync(join(directory, 'assay'), script.replaceAll('REAL', join(released, 'assay')), {
    mode: 0o755,
  });
  const lines = (readdirSync(directory, { recursive: true }) as string[])
    .filter(file => file !== 'SHA256SUMS' && file !== 'man')
    .map(file => `${digestOf(join(directory, file))}  ${file}\n`);
  writeFileSync(join(directory, 'SHA256SUMS'), lines.join(''));
  return directory;
}

const digestOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');
const newer = '#!/bin/sh\n[ "$1" = --version ] && { echo assay 9.9.9; exit; }\nexec REAL "$@"\n';

test('the release has the executable, unit, settings, scripts, man pages, completions, checksums, components and licences', () => {
  assert.deepEqual(readdirSync(released).sort(), [
    ...['CHANGELOG.md', 'LICENSE', 'LICENSES.txt', 'README.md', 'SHA256SUMS', 'assay', 'assay.bash'],
    ...['assay.env', 'assay.fish', 'assay.service', 'assay.zsh', 'install.sh', 'man', 'sbom.cdx.json'],
    'uninstall.sh',
  ]);
  const pages = readdirSync(join(released, 'man'));
  for (const page of ['assay.1', 'assay-serve.1', 'assay-image.1']) assert.ok(pages.includes(page), page);
  execFileSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: released });
  const bill = JSON.parse(readFileSync(join(released, 'sbom.cdx.json'), 'utf8'));
  const parts = bill.components.map((one: { name: string }) => one.name);
  for (const part of ['hono', 'better-sqlite3', 'sqlite', 'dockerode', `node-linux-${process.arch}`])
    assert.ok(parts.includes(part), part);
  assert.ok(!parts.includes('@grpc/grpc-js') && !parts.includes('typescript'));
  const licences = readFileSync(join(released, 'LICENSES.txt'), 'utf8');
  for (const { name: part, version: of } of bill.components)
    assert.ok(licences.includes(`${part} ${of} (`), part);
});

test('installed, it serves; upgraded, it keeps its data and makes a backup; uninstalled, it leaves the data', async () => {
  await using place = await scratch(true);
  const { root } = place;
  const installed = await place.run(join(released, 'install.sh'));
  assert.equal(installed.status, 0, installed.output);
  assert.match(installed.output, /is running; get the set-up code/);
  const program = join(root, 'usr/local/bin/assay');
  const data = join(root, 'var/lib/assay');
  assert.equal(statSync(data).mode & 0o777, 0o700);
  assert.equal(readFileSync(join(root, 'etc/assay/assay.env'), 'utf8').split('\n')[0], '# mine');
  for (const path of [
    'etc/systemd/system/assay.service',
    'usr/local/share/man/man1/assay.1',
    'usr/local/share/man/man1/assay-serve.1',
    'usr/local/share/zsh/site-functions/_assay',
    'usr/local/share/fish/vendor_completions.d/assay.fish',
    'usr/local/lib/assay/uninstall.sh',
  ])
    assert.ok(existsSync(join(root, path)), path);
  const added = await place.run(program, 'user', 'add', 'ada@example.org', '--data', data);
  assert.equal(added.status, 0, added.output);

  const upgraded = await place.run(join(otherRelease(newer), 'install.sh'));
  assert.equal(upgraded.status, 0, upgraded.output);
  assert.match(upgraded.output, new RegExp(`upgrading from assay ${version} to assay 9\\.9\\.9`));
  assert.match((await place.run(program, '--version')).output, /9\.9\.9/);
  const awaited = await place.run(program, 'doctor', '--await', '5', '--listen', place.listen);
  assert.equal(
    awaited.status,
    0,
    awaited.output + upgraded.output + readFileSync(join(root, 'run/log'), 'utf8'),
  );
  assert.match((await place.run(program, 'user', 'list', '--data', data)).output, /ada@example\.org/);
  const [backup = ''] = readdirSync(join(root, 'var/backups/assay')).filter(file =>
    file.startsWith('before-9.9.9-'),
  );
  const proof = await place.run(
    program,
    'backup',
    '--verify',
    join(root, 'var/backups/assay', backup),
    '--data',
    data,
  );
  assert.equal(proof.status, 0, proof.output);

  const gone = await place.run(join(root, 'usr/local/lib/assay/uninstall.sh'));
  assert.equal(gone.status, 0, gone.output);
  assert.match(gone.output, /could not be removed[\s\S]*docker volume ls/);
  assert.ok(!existsSync(program) && !existsSync(join(root, 'etc/systemd/system/assay.service')));
  const left = readdirSync(join(root, 'usr/local/share'), { recursive: true }) as string[];
  assert.deepEqual(
    left.filter(file => file.includes('assay')),
    [],
  );
  assert.ok(existsSync(join(data, 'assay.db')) && existsSync(join(root, 'etc/assay/assay.env')));
  await place.run(join(released, 'uninstall.sh'), '--purge');
  assert.ok(!existsSync(data) && !existsSync(join(root, 'etc/assay')));
});

test('uninstalling removes everything of the instance from Docker, and nothing of others', {
  skip: process.getuid?.() !== 0 && 'a private engine needs root',
}, async t => {
  const engine = await createPrivateEngine({ bytes: 300 * 1024 ** 2, ownNetwork: true });
  t.after(() => engine.close());
  await using place = await scratch(true, engine.dockerHost);
  const { root } = place;
  const installed = await place.run(join(released, 'install.sh'));
  assert.equal(installed.status, 0, installed.output);
  const { instance } = inspectData(join(root, 'var/lib/assay'));
  for (const [label, name] of [
    [instance, 'ours'],
    ['another', 'theirs'],
  ]) {
    await engine.docker('volume', 'create', '--label', `assay.instance=${label}`, name as string);
    await engine.docker('network', 'create', '--label', `assay.instance=${label}`, name as string);
  }
  const gone = await place.run(join(root, 'usr/local/lib/assay/uninstall.sh'));
  assert.equal(gone.status, 0, gone.output);
  assert.match(gone.output, /removed volume ours\n/);
  assert.equal(await engine.docker('volume', 'ls', '-q'), 'theirs');
  assert.equal(
    await engine.docker('network', 'ls', '--filter', 'label=assay.instance', '--format', '{{.Name}}'),
    'theirs',
  );
  assert.equal(await engine.docker('ps', '-aq'), '');
  assert.equal(await engine.docker('images', '-q'), '');
});

test('a new version that damages the database and does not answer is rolled back with the data', async () => {
  await using place = await scratch(true);
  const data = join(place.root, 'var/lib/assay');
  const program = join(place.root, 'usr/local/bin/assay');
  const installed = await place.run(join(released, 'install.sh'));
  assert.equal(installed.status, 0, installed.output);
  await place.run(program, 'user', 'add', 'ada@example.org', '--data', data);
  const broken = otherRelease(`#!/bin/sh
case $1 in
  --version) echo assay 9.9.9 ;;
  serve) echo migrated to nothing >"$ASSAY_DATA/assay.db"; : >"$ROOT/run/start-limit-hit"; exit 1 ;;
  doctor) exec REAL doctor --await 1 ;;
esac
`);
  const refused = await place.run(join(broken, 'install.sh'));
  assert.equal(refused.status, 1, refused.output);
  assert.match(refused.output, /assay 9\.9\.9 did not answer, and assay \S+ runs again/);
  assert.match((await place.run(program, '--version')).output, new RegExp(`assay ${version}`));
  assert.equal((await place.run(program, 'doctor', '--await', '5', '--listen', place.listen)).status, 0);
  assert.match((await place.run(program, 'user', 'list', '--data', data)).output, /ada@example\.org/);
});

test('data in another directory is neither removed by --purge nor reported as removed', async () => {
  await using place = await scratch(false);
  const elsewhere = join(place.root, 'srv/builds');
  mkdirSync(elsewhere, { recursive: true });
  writeFileSync(join(place.root, 'etc/assay/assay.env'), 'ASSAY_DATA="/srv/builds"\n');
  const kept = await place.run(join(released, 'uninstall.sh'));
  assert.match(kept.output, new RegExp(`removed; data, settings and backups stay in ${elsewhere},`));
  const purged = await place.run(join(released, 'uninstall.sh'), '--purge');
  assert.equal(purged.status, 0, purged.output);
  assert.match(purged.output, new RegExp(`the data stay in ${elsewhere}`));
  assert.ok(existsSync(elsewhere) && !existsSync(join(place.root, 'etc/assay')));
});

test('an executable that does not run, or a changed file, is refused before anything is changed', async () => {
  await using place = await scratch(false);
  const deaf = await place.run(join(otherRelease('#!/bin/sh\nexit 1\n'), 'install.sh'));
  assert.equal(deaf.status, 1);
  assert.match(deaf.output, /does not run here/);
  const changed = otherRelease(newer);
  writeFileSync(join(changed, 'assay.service'), '[Service]\nExecStart=/bin/false\n');
  const forged = await place.run(join(changed, 'install.sh'));
  assert.equal(forged.status, 1);
  assert.match(forged.output, /differ from the release/);
  assert.ok(!existsSync(join(place.root, 'usr')) && !existsSync(join(place.root, 'var')));
});

test('without systemd it says so, and everything works without a network', async () => {
  await using bare = await scratch(false);
  const installed = await bare.run(join(released, 'install.sh'));
  assert.equal(installed.status, 0, installed.output);
  assert.match(installed.output, /systemd is not running here: start it with/);

  await using place = await scratch(true);
  const rights = process.getuid?.() === 0 ? [] : ['--map-root-user'];
  const inside = [
    'ip link set lo up',
    'ip route | wc -l',
    `${released}/install.sh`,
    `${released}/uninstall.sh --purge`,
    // Includes fetches, builds, compiles, deploys and webhooks.
    `${released}/assay demo --once`,
  ].join(' && ');
  const alone = await place.run('unshare', '--net', ...rights, 'sh', '-c', inside);
  assert.equal(alone.status, 0, alone.output);
  assert.match(alone.output, /^0\n/);
  assert.match(
    alone.output,
    /is running; get the set-up code[\s\S]*removed, with data[\s\S]*Everything worked as expected/,
  );
});

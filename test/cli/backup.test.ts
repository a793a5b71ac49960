// `assay backup` and `assay restore`: next to a running server, when they are killed, and with truncated or changed
// files.
import assert from 'node:assert/strict';
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { extract } from 'tar-stream';
import { newHookSecret } from '../../src/domain/trigger/hook-signature.ts';
import { tarHeader, writeArchive } from '../../src/store/backup/archive.ts';
import { makeBackup } from '../../src/store/backup/backup.ts';
import { restoreBackup } from '../../src/store/backup/restore.ts';
import { sealedColumns, verifyBackup } from '../../src/store/backup/verify.ts';
import { DataError, lockDataDirectory } from '../../src/store/data/data.ts';
import {
  archivePath,
  artifactIndexPath,
  artifactPath,
  buildLogPath,
  databasePath,
  masterKeyPath,
} from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { findAnyTrigger, replaceSecret, secretsOf } from '../../src/store/trigger/triggers.ts';
import { BACKUP, keptVersions, unpackVersion } from '../store/upgrade/kept-version.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { createClient } from '../support/client.ts';
import { environmentWith, mainPath, runAssay, serve, temporaryDirectory } from './program.ts';

const ARCHIVE_BYTES = 3_000_000;
const addArtifact =
  "INSERT INTO artifacts (hash, prefix, size_bytes, created_at) VALUES (?, '/srv/dependency', 3, 0)";
type Three = [string, string, string];
let app: TestApp;
let planted: Planted;
let archiveName = '';

/** The server for all tests. It runs throughout and has one of everything. */
before(async () => {
  app = await bootApp();
  planted = app.plant();
  const archive = randomBytes(ARCHIVE_BYTES);
  const hash = createHash('sha256').update(archive).digest('hex');
  archiveName = `archives/${hash}`;
  writeFileSync(archivePath(app.data, hash), archive);
  app.db.write(() => {
    const { sqlite } = app.db;
    sqlite
      .prepare('UPDATE dependencies SET archive_hash = ?, archive_file_size = ? WHERE id = ?')
      .run(hash, BigInt(archive.length), planted.used_dependency_id);
    sqlite.prepare(addArtifact).run('abcd');
  });
  writeFileSync(artifactPath(app.data, 'abcd'), 'what was compiled');
  writeFileSync(buildLogPath(app.data, planted.build_id), 'what the build said\n');
  writeFileSync(join(app.data, 'ssh/config'), 'Host git\n');
  writeFileSync(join(app.data, 'ssh/known_hosts'), 'git ssh-ed25519 AAAA\n');
});
after(() => app.close());

const fileNames = (directory: string): string[] =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => join(entry.parentPath, entry.name).slice(directory.length + 1))
    .sort();

/** The digest of every file, without those of SQLite and the lock. */
const contentsOf = (data: string, ...without: string[]) =>
  Object.fromEntries(
    fileNames(data)
      .filter(name => !/^(assay\.db|lock\.db)/.test(name) && !without.some(start => name.startsWith(start)))
      .map(name => [
        name,
        createHash('sha256')
          .update(readFileSync(join(data, name)))
          .digest('hex'),
      ]),
  );

/** All rows except for the time of the last backup, which is written after the backup. */
function rowsOf(data: string): Record<string, unknown[]> {
  const sqlite = openSqlite(databasePath(data));
  try {
    sqlite.defaultSafeIntegers(true);
    const tables = sqlite
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .pluck()
      .all() as string[];
    const rows = (name: string) => sqlite.prepare(`SELECT * FROM "${name}"`).raw().all() as unknown[][];
    return Object.fromEntries(
      tables.map(name => [name, rows(name).filter(([first]) => first !== 'last_backup_at')]),
    );
  } finally {
    sqlite.close();
  }
}

const save = (file: string, options: { logs?: boolean; keys?: boolean; data?: string } = {}) =>
  makeBackup({ data: app.data, file, version: 'test', logs: true, keys: false, environment: {}, ...options });
const verify = (file: string, data = app.data) => verifyBackup({ file, data, environment: {} });
const restore = (file: string, data: string) => restoreBackup({ file, data });
const refused = (file: string, data: string, reason: RegExp) =>
  assert.rejects(restore(file, data), error => error instanceof DataError && reason.test(error.message));

test('a backup with keys from a running server restores every row and file, and the result can be served', async () => {
  using place = temporaryDirectory();
  const [file, data] = [join(place.path, 'saved'), join(place.path, 'new')];
  const made = await runAssay(['backup', file, '--with-key', '--data', app.data]);
  assert.equal(made.status, 0, made.stderr);
  assert.equal(statSync(file).mode & 0o777, 0o600);

  const proof = await runAssay(['backup', '--verify', file, '--data', join(place.path, 'nowhere')]);
  assert.equal(proof.status, 0, proof.stderr);
  assert.match(
    proof.stdout,
    /is intact.*\n.*all checksums match\n.* rows: the database is intact\n {2}[1-9]\d* encrypted/,
  );

  const restored = await runAssay(['restore', file, '--data', data]);
  assert.equal(restored.status, 0, restored.stderr);
  assert.deepEqual(rowsOf(data), rowsOf(app.data));
  assert.deepEqual(contentsOf(data), contentsOf(app.data));
  assert.equal(statSync(masterKeyPath(data)).mode & 0o777, 0o600);
  assert.equal(statSync(data).mode & 0o777, 0o700);
  assert.deepEqual(readdirSync(place.path).sort(), ['new', 'saved']);

  const serving = await serve(data);
  assert.equal(
    (
      await serving.ask('GET', '/whoami', {
        auth: `${app.people.admin.account.email}:${app.people.admin.key}`,
      })
    ).status,
    200,
  );
  await serving.end('SIGTERM');
});

test('the secrets of triggers are encrypted in a backup, and hooks signed with them are accepted after a restore', async () => {
  using place = temporaryDirectory();
  const [file, data] = [join(place.path, 'saved'), join(place.path, 'new')];
  const trigger = findAnyTrigger(app.db, planted.trigger_id)!;
  const secrets = secretsOf(app.db, replaceSecret(app.db, trigger, newHookSecret()));
  assert.equal(secrets.length, 2, 'the old one is accepted for a while');
  await save(file, { keys: true });
  await restore(file, data);
  const stored = fileNames(data).map(name => readFileSync(join(data, name)));
  for (const secret of secrets) assert.ok(!stored.some(content => content.includes(secret)), 'in clear');

  const serving = await serve(data);
  const ca = readFileSync(join(data, 'tls/ca.pem'), 'utf8');
  const client = createClient(`https://127.0.0.1:${serving.port}`, ca);
  const path = `/hooks/${planted.trigger_id}`;
  const send = async (token: string) =>
    (await client.call('POST', path, { headers: { 'x-assay-token': token } })).status;
  for (const secret of secrets) assert.equal(await send(secret), 200);
  assert.equal(await send(newHookSecret()), 401);
  const auth = `${app.people.owner.account.email}:${app.people.owner.key}`;
  const { text } = await serving.ask(
    'GET',
    `/projects/${planted.project_id}/triggers/${planted.trigger_id}/firings`,
    { auth },
  );
  assert.match(text, /"reason":"ping"/, 'the history from before');
  client.close();
  await serving.end('SIGTERM');
});

test('the filters of logs and the indexes of artifacts are left out: a server makes them again', async () => {
  using place = temporaryDirectory();
  const [file, data] = [join(place.path, 'saved'), join(place.path, 'new')];
  const filter = `${buildLogPath(app.data, planted.build_id)}.grams`;
  const index = artifactIndexPath(app.data, 'a'.repeat(64));
  const derived = [filter, index, `${index}.part`];
  for (const path of derived) writeFileSync(path, 'derived');
  try {
    await save(file);
    await restore(file, data);
    assert.deepEqual(
      fileNames(data).filter(name => name.includes('.index')),
      [],
    );
    assert.deepEqual(
      fileNames(data).filter(name => name.startsWith('logs/')),
      [`logs/build-${planted.build_id}.log`],
    );
  } finally {
    for (const path of derived) rmSync(path);
  }
});

test('without --with-key the file contains no private key, and restore says what to copy back', async () => {
  using place = temporaryDirectory();
  const [file, data] = [join(place.path, 'saved'), join(place.path, 'new')];
  const made = await runAssay(['backup', file, '--without-logs', '--data', app.data]);
  assert.match(made.stdout, /without the master key: keep .*master\.key/);
  const restored = await runAssay(['restore', file, '--data', data]);
  assert.match(restored.stdout, /copy the master key to .*new\/master\.key/);
  assert.deepEqual(contentsOf(data), contentsOf(app.data, 'files', 'tls/', 'master.key', 'logs/'));

  assert.ok((await verify(file)).opened! > 0);
  const keyless = await verify(file, join(place.path, 'nowhere'));
  assert.deepEqual([keyless.opened, keyless.damage], [undefined, []]);
});

test('tar reads the size of a file that is larger than 8 GiB', async () => {
  const entries = extract();
  const found = once(entries, 'entry');
  entries.write(tarHeader('logs/build-1.log', 0o600, 9_000_000_001));
  const [header] = await found;
  assert.deepEqual([header.name, header.size, header.mode], ['logs/build-1.log', 9_000_000_001, 0o600]);
  entries.destroy();
});

test('tar and zstd read a backup', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'saved');
  await save(file);
  const listed = spawn('tar', ['--zstd', '-tf', file], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 10_000,
  });
  const closed = once(listed, 'close');
  let names = '';
  for await (const chunk of listed.stdout) names += chunk;
  assert.deepEqual(await closed, [0, null]);
  for (const name of ['assay.db', archiveName, 'ssh/known_hosts', 'sums.jsonl'])
    assert.ok(names.includes(name), name);
});

test('backups are consistent while another process keeps writing and replacing archives, and they do not block it', async t => {
  using place = temporaryDirectory();
  const writer = fork(
    join(import.meta.dirname, 'backup-writer.ts'),
    [app.data, `${planted.free_dependency_id}`],
    { env: environmentWith() },
  );
  t.after(() => writer.kill('SIGKILL'));
  await once(writer, 'message');
  const counts: number[] = [];
  for (let round = 0; round < 3; round++) {
    const [file, data] = [join(place.path, `saved-${round}`), join(place.path, `new-${round}`)];
    assert.deepEqual((await save(file)).missing, []);
    assert.deepEqual((await verify(file)).damage, []);
    await restore(file, data);
    const names = (rowsOf(data).facts as [string, string][]).map(([name]) => name);
    const left = names.filter(name => name.startsWith('left '));
    counts.push(left.length);
    assert.deepEqual(
      names.filter(name => name.startsWith('right ')).map(name => name.slice(6)),
      left.map(name => name.slice(5)),
    );
  }
  writer.send('stop');
  const [{ writes, slowestMs }] = await once(writer, 'message');
  const [first = 0, second = 0, third = 0] = counts;
  assert.ok(first > 0 && first < second && second < third && third <= writes, `${counts} of ${writes}`);
  assert.ok(slowestMs < 9_000, `a write waited ${slowestMs} ms`);
  t.diagnostic(`${writes} writes, the slowest ${slowestMs.toFixed(0)} ms`);
});

/** Resolves when the backup has started to write. */
async function started(directory: string, child: ChildProcess): Promise<void> {
  const watcher = watch(directory);
  const ended = once(child, 'exit').then(([status]) => assert.fail(`ended with ${status} too soon`));
  ended.catch(() => {});
  const isBegun = () => readdirSync(directory).some(name => name.includes('.part-'));
  while (!isBegun()) await Promise.race([once(watcher, 'change'), ended]);
  watcher.close();
}

for (const signal of ['SIGKILL', 'SIGTERM'] as const)
  test(`stopped by ${signal}, a backup leaves no file under its name, and the next backup removes its partial file`, async t => {
    using place = temporaryDirectory();
    const log = buildLogPath(app.data, 99n);
    writeFileSync(log, '');
    truncateSync(log, 400_000_000);
    t.after(() => truncateSync(log, 0));
    const file = join(place.path, 'saved');
    const child = spawn(process.execPath, [mainPath, 'backup', file, '--data', app.data], {
      env: environmentWith(),
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', text => {
      stderr += text;
    });
    await started(place.path, child);
    child.kill(signal);
    const [status, by] = await once(child, 'close');
    assert.ok(!existsSync(file));
    if (signal === 'SIGKILL') assert.equal(by, signal);
    else {
      assert.equal(status, 1);
      assert.match(stderr, /was stopped, and left nothing behind/);
      assert.deepEqual(readdirSync(place.path), []);
    }
    truncateSync(log, 0);
    await save(file);
    assert.deepEqual(readdirSync(place.path), [basename(file)]);
  });

test('a full disk is reported, and leaves nothing behind', async () => {
  using place = temporaryDirectory();
  const limited = spawn(
    'sh',
    [
      '-c',
      'ulimit -f 2000; exec "$@"',
      'sh',
      process.execPath,
      mainPath,
      'backup',
      join(place.path, 'saved'),
      '--data',
      app.data,
    ],
    {
      env: environmentWith(),
      stdio: ['ignore', 'ignore', 'pipe'],
      timeout: 30_000,
    },
  );
  let stderr = '';
  for await (const chunk of limited.stderr) stderr += chunk;
  assert.match(stderr, /the disk is full/);
  assert.equal(limited.exitCode ?? (await once(limited, 'exit'))[0], 1);
  assert.deepEqual(readdirSync(place.path), []);
});

test('a changed byte anywhere is detected: verify names the file, restore refuses and leaves nothing behind', async () => {
  using place = temporaryDirectory();
  const [file, changed, data] = ['saved', 'changed', 'new'].map(name => join(place.path, name)) as Three;
  await save(file, { keys: true });
  const bytes = readFileSync(file);
  const flip = (at: number) => {
    const copy = Buffer.from(bytes);
    copy[at]! ^= 0x10;
    writeFileSync(changed, copy);
  };
  // Random bytes do not compress: the middle of the file is the middle of the archive.
  flip(ARCHIVE_BYTES / 2);
  const proof = await runAssay(['backup', '--verify', changed]);
  assert.equal(proof.status, 1);
  assert.ok(proof.stderr.includes(`${archiveName} is damaged`), proof.stderr);
  const restored = await runAssay(['restore', changed, '--data', data]);
  assert.equal(restored.status, 1);
  assert.ok(restored.stderr.includes(`${archiveName} is damaged`), restored.stderr);
  assert.match(restored.stderr, /was not restored; nothing was changed/);

  const step = Math.floor(bytes.length / 23);
  for (let at = 0; at < bytes.length; at += step) {
    flip(at);
    assert.notDeepEqual((await verify(changed)).damage, [], `byte ${at} of ${bytes.length}`);
    await refused(changed, data, /is damaged and was not restored/);
  }
  flip(bytes.length - 1);
  await refused(changed, data, /its end is missing|was changed/);
  assert.deepEqual(readdirSync(place.path).sort(), ['changed', 'saved']);
});

test('a truncated file and a file that is no backup are refused', async () => {
  using place = temporaryDirectory();
  const [file, cut, data] = ['saved', 'cut', 'new'].map(name => join(place.path, name)) as Three;
  await save(file);
  const bytes = readFileSync(file);
  for (const length of [0, 100, ARCHIVE_BYTES, bytes.length - 60, bytes.length - 1]) {
    writeFileSync(cut, bytes.subarray(0, length));
    assert.match((await verify(cut)).damage.join(), /its end is missing/);
    await refused(cut, data, /its end is missing/);
  }
  writeFileSync(cut, 'a letter to a friend');
  await refused(cut, data, /no backup of Assay/);
  await refused(join(place.path, 'nowhere'), data, /there is no file/);
  assert.ok(!existsSync(data));
});

test('restore refuses a directory that is not empty or that a server uses, and accepts an empty one', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'saved');
  await save(file);
  const before = contentsOf(app.data);
  await refused(file, app.data, /another assay serve is using/);
  assert.deepEqual(contentsOf(app.data), before);

  const full = join(place.path, 'full');
  mkdirSync(full);
  writeFileSync(join(full, 'note'), 'mine');
  await refused(file, full, /is not empty/);
  assert.deepEqual(readdirSync(full), ['note']);

  const empty = join(place.path, 'empty');
  mkdirSync(empty);
  chmodSync(empty, 0o755);
  await restore(file, empty);
  assert.equal(statSync(empty).mode & 0o777, 0o700);
  assert.equal(statSync(databasePath(empty)).mode & 0o777, 0o600);
  assert.deepEqual(rowsOf(empty), rowsOf(app.data));
  assert.deepEqual(
    readdirSync(empty).filter(name => name.startsWith('.')),
    [],
  );
});

test('during a restore no server can start in the directory, and files that another process creates there stay', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'saved');
  await save(file);
  const data = join(place.path, 'data');
  mkdirSync(data);
  const refusals: unknown[] = [];
  await restoreBackup({
    file,
    data,
    onProgress(done, total) {
      if (done <= total / 2) return;
      try {
        lockDataDirectory(data).release();
        refusals.push('held');
      } catch (error) {
        refusals.push(error instanceof DataError);
      }
    },
  });
  assert.deepEqual([...new Set(refusals)], [true]);
  lockDataDirectory(data).release();
  assert.deepEqual(rowsOf(data), rowsOf(app.data));

  const taken = join(place.path, 'taken');
  mkdirSync(taken);
  const onProgress = (done: number, total: number) => {
    if (done > total / 2) writeFileSync(databasePath(taken), 'of somebody else');
  };
  await assert.rejects(restoreBackup({ file, data: taken, onProgress }), /is not empty/);
  assert.deepEqual(readdirSync(taken), ['assay.db']);
  assert.equal(readFileSync(databasePath(taken), 'utf8'), 'of somebody else');
});

test('a complete backup succeeds even if the database cannot record its time', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'saved');
  app.db.sqlite.exec(
    "CREATE TRIGGER full BEFORE INSERT ON facts WHEN NEW.name = 'last_backup_at' BEGIN SELECT RAISE(ABORT, 'full'); END",
  );
  try {
    assert.ok((await save(file)).entries > 3);
  } finally {
    app.db.sqlite.exec('DROP TRIGGER full');
  }
  assert.deepEqual((await verify(file)).damage, []);
});

/** A backup with the names, each with the same content, made as real ones are. */
async function forge(file: string, work: string, names: readonly string[]): Promise<void> {
  const head = { format: 'assay-backup', version: 1, assay: '0', createdAt: '', keys: false, logs: true };
  async function* files() {
    for (const name of ['backup.json', ...names]) {
      writeFileSync(join(work, 'content'), name === 'backup.json' ? JSON.stringify(head) : 'x');
      yield { name, file: await open(join(work, 'content')) };
    }
  }
  await writeArchive(file, work, files());
}

test('a file name that leads out of the data directory is refused', async () => {
  using place = temporaryDirectory();
  for (const name of [
    '../stolen',
    '/etc/stolen',
    'archives/../../stolen',
    'archives/..',
    'logs/a/b',
    'crontab',
  ]) {
    const file = join(place.path, 'forged');
    await forge(file, place.path, [name]);
    await refused(file, join(place.path, 'new'), /does not belong into a backup/);
    assert.deepEqual(readdirSync(place.path).sort(), ['content', 'forged', 'sums.jsonl']);
    for (const left of readdirSync(place.path)) rmSync(join(place.path, left));
  }
});

test('a forged file without a database, or with a duplicate name, is refused with a reason and leaves nothing behind', async () => {
  using place = temporaryDirectory();
  const cases: [names: string[], said: RegExp][] = [
    [['logs/a.log'], /assay\.db is missing/],
    [['assay.db', 'logs/a.log', 'logs/a.log'], /logs\/a\.log is in it twice/],
  ];
  for (const [names, reason] of cases) {
    const file = join(place.path, 'forged');
    await forge(file, place.path, names);
    await refused(file, join(place.path, 'new'), reason);
    assert.deepEqual(readdirSync(place.path).sort(), ['content', 'forged', 'sums.jsonl']);
    for (const left of readdirSync(place.path)) rmSync(join(place.path, left));
  }
});

test('verify names damage that existed before the backup: an encrypted value, an archive, a missing file', async () => {
  using place = temporaryDirectory();
  const [file, again, data] = ['saved', 'again', 'damaged'].map(name => join(place.path, name)) as Three;
  await save(file, { keys: true });
  await restore(file, data);
  const sqlite = openSqlite(databasePath(data));
  sqlite.prepare('UPDATE environment_variables SET content = zeroblob(70)').run();
  sqlite.prepare(addArtifact).run('ef01');
  sqlite.exec("INSERT INTO facts (name, value) VALUES ('appliance_key', 'AAAA')");
  sqlite.close();
  writeFileSync(join(data, archiveName), 'other bytes');
  assert.deepEqual((await save(again, { keys: true, data })).missing, ['artifacts/ef01.tar.zst']);
  assert.deepEqual((await verify(again)).damage.sort(), [
    `${archiveName} was damaged already when the backup was made`,
    'artifacts/ef01.tar.zst is missing, and was already when the backup was made',
    `assay.db: content of row ${planted.variable_id} of environment_variables cannot be decrypted`,
    'assay.db: the signing key of the appliance cannot be decrypted',
  ]);
});

test('a backup of a damaged database does not replace a good backup', async () => {
  using place = temporaryDirectory();
  const [file, other, data] = ['saved', 'other', 'damaged'].map(name => join(place.path, name)) as Three;
  await save(file, { keys: true });
  await restore(file, data);
  const database = readFileSync(databasePath(data));
  database.fill(0xff, 20_000, 60_000);
  writeFileSync(databasePath(data), database);
  writeFileSync(other, 'the good one');
  await assert.rejects(save(other, { data }), /is damaged, so no backup was made of it/);
  assert.equal(readFileSync(other, 'utf8'), 'the good one');
});

test('a backup into the data directory, into a missing directory, or of a missing database is refused with a reason', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'saved');
  await assert.rejects(save(join(app.data, 'saved')), /is in the data directory itself/);
  await assert.rejects(save(join(place.path, 'no/saved')), /there is no directory/);
  await assert.rejects(save(place.path), /is a directory/);
  await assert.rejects(save(file, { data: join(place.path, 'no') }), /there is no database/);
  assert.equal((await runAssay(['backup', file, '--verify', '--with-key'])).status, 2);
  assert.deepEqual(readdirSync(place.path), []);
});

test('verify reads backups of earlier versions, which lack newer tables', async () => {
  for (const name of keptVersions) {
    using place = temporaryDirectory();
    const { data } = unpackVersion(name, place.path);
    const { damage, opened } = await verifyBackup({ file: join(place.path, BACKUP), data, environment: {} });
    assert.deepEqual(damage, [], name);
    assert.ok(opened !== undefined && opened > 0, name);
  }
});

test('verify decrypts every encrypted column of the schema', () => {
  const schema = readFileSync(join(import.meta.dirname, '../../src/store/database/schema.ts'), 'utf8');
  assert.deepEqual(
    sealedColumns.map(([, column]) => column).sort(),
    [...schema.matchAll(/ sealed\('(\w+)'\)/g)].map(([, column]) => column).sort(),
  );
});

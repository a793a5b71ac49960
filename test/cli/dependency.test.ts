// Dependencies are carried from one appliance to another: two data directories, the commands, and hostile files.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { extract } from 'tar-stream';
import { readSettings } from '../../src/config.ts';
import type { Manifest } from '../../src/domain/dependency-export.ts';
import { identityOf } from '../../src/store/appliance.ts';
import { tarHeader } from '../../src/store/backup/archive.ts';
import { DataError } from '../../src/store/data/data.ts';
import { archivePath, artifactPath, dependencyLogPath, uploadDirectory } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { type Dependency, findDependency } from '../../src/store/dependencies.ts';
import { isOutdated, listRelated, listRelatedVersions } from '../../src/store/dependency-use.ts';
import { importDependency } from '../../src/work/import-dependency.ts';
import { dump } from '../store/fixture.ts';
import { makeAppliance, plantDependency, type TarEntry, tarStream } from '../support/planted-dependency.ts';
import { environmentWith, programPath, runAssay, temporaryDirectory } from './program.ts';

const place = temporaryDirectory();
const path = (name: string) => join(place.path, name);
const from = path('from');
/** Everything that has a file or a row in the exporting appliance. */
let source: { db: Db; ownerId: bigint };
let library: Dependency;
let program: Dependency;
let fingerprint = '';
/** The program and its library, exported. */
const file = path('program.assay');
let number = 0;

before(async () => {
  source = makeAppliance(from);
  library = await plantDependency(source, from, { name: 'Library', fields: { prefix: '/opt/library' } });
  program = await plantDependency(source, from, {
    name: 'Program',
    related: [library],
    fields: {
      launchCommand: 'greet &',
      launchSeconds: 30,
      environment: 'GREETING=$PREFIX/greeting',
      libraryPath: false,
      recompile: true,
    },
  });
  ({ fingerprint } = identityOf(source.db));
  const exported = await runAssay(['dependency', 'export', 'program', file, '--data', from]);
  assert.equal(exported.status, 0, exported.stderr);
  assert.match(exported.stdout, new RegExp(`Program, with Library, .*\\nsigned by .*${fingerprint}\n$`));
  assert.equal(statSync(file).mode & 0o777, 0o600);
});
after(() => {
  source?.db.close();
  place[Symbol.dispose]();
});

/** An appliance to import into. */
function newAppliance() {
  const data = path(`to-${++number}`);
  const { db, ownerId } = makeAppliance(data, 'other@example.com');
  const run = (...args: string[]) => runAssay(['dependency', ...args, '--data', data]);
  const all = () =>
    (db.sqlite.prepare('SELECT id FROM dependencies ORDER BY id').pluck().all() as bigint[]).map(
      id => findDependency(db, id) as Dependency,
    );
  const named = (name: string) => all().find(one => one.name === name) as Dependency;
  return { data, db, ownerId, run, all, named, [Symbol.dispose]: () => db.close() };
}

/** Every file and its size, except the database. */
const filesOf = (data: string) =>
  readdirSync(data, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && !/\.db(-wal|-shm)?$/.test(entry.name))
    .map(entry => `${entry.parentPath}/${entry.name}`)
    .sort();

test('a dependency, its related one and all settings arrive, compiled, and a second import changes nothing', async () => {
  using to = newAppliance();
  const imported = await to.run('import', file, '--trust', fingerprint, '--json');
  assert.equal(imported.status, 0, imported.stderr);
  const [first, second] = JSON.parse(imported.stdout).dependencies;
  assert.deepEqual(
    [first.name, first.action, second.name, second.action],
    ['Library', 'created', 'Program', 'created'],
  );
  const columns = (one: Dependency) => ({
    ...one,
    id: 0n,
    ownerId: 0n,
    createdAt: 0,
    enqueuedAt: 0,
    startedAt: 0,
    finishedAt: 0,
    recipeHash: null,
  });
  for (const one of [library, program]) {
    const arrived = to.named(one.name);
    assert.deepEqual(columns(arrived), columns(one));
    assert.equal(arrived.compileState, 'compiled');
    for (const pathOf of [
      (data: string) => archivePath(data, one.archiveHash as string),
      (data: string) => artifactPath(data, one.artifactHash as string),
    ])
      assert.deepEqual(readFileSync(pathOf(to.data)), readFileSync(pathOf(from)));
    const log = readFileSync(dependencyLogPath(to.data, arrived.id), 'utf8');
    assert.match(
      log,
      new RegExp(`imported from .*\\n.*${fingerprint}\\n.*compiled there .*\\n.*kept 3 files`),
    );
  }
  const arrived = { ...to.named('Program'), kept: null };
  for (const list of [listRelated(to.db, arrived.id), listRelatedVersions(to.db, arrived)])
    assert.deepEqual(
      list.map(({ name }) => name),
      ['Library'],
    );
  const [rows, files] = [dump(to.db), filesOf(to.data)];
  const again = await to.run('import', file);
  assert.equal(again.status, 0, again.stderr);
  assert.match(again.stdout, /already what the file contains: nothing was changed/);
  assert.deepEqual([dump(to.db), filesOf(to.data)], [rows, files]);
  assert.deepEqual(readdirSync(uploadDirectory(to.data)), []);
  const listed = await to.run('list');
  assert.match(listed.stdout, /^Library {2}other@example.com {2}compiled .*\nProgram .*\n$/);
});

test('the first import from an appliance needs its fingerprint or an answer on the terminal', async () => {
  using to = newAppliance();
  const rows = dump(to.db);
  const refused = await to.run('import', file);
  assert.equal(refused.status, 2);
  assert.match(refused.stderr, new RegExp(`not trusted yet: .*--trust ${fingerprint}`));
  const other = await to.run('import', file, '--trust', 'ab'.repeat(32));
  assert.equal(other.status, 1);
  assert.match(other.stderr, /is not the one given; nothing was changed/);
  assert.equal((await to.run('import', file, '--trust', 'my friend')).status, 2);
  const answer = async (text: string) =>
    onTerminal(
      [process.execPath, await programPath(), 'dependency', 'import', file, '--data', to.data],
      text,
    );
  const declined = await answer('n\n');
  assert.match(declined, new RegExp(`Nothing of that appliance was imported here before[^]*${fingerprint}`));
  assert.match(declined, /nothing was imported/);
  assert.equal(dump(to.db), rows);
  assert.match(await answer('y\n'), /Program of other@example.com: created/);
  const { own, trusted } = JSON.parse((await to.run('trusted', '--json')).stdout);
  assert.deepEqual([own.fingerprint, trusted[0].fingerprint], [identityOf(to.db).fingerprint, fingerprint]);
  assert.match((await to.run('trusted')).stdout, /\(this appliance\)\n.*, since /);
  assert.equal((await to.run('distrust', fingerprint)).status, 0);
  assert.equal((await to.run('distrust', fingerprint)).status, 2);
  assert.equal((await to.run('import', file)).status, 2);
});

/** Runs a command on a terminal of its own. */
function onTerminal(command: string[], input: string): Promise<string> {
  const line = command.map(word => `'${word}'`).join(' ');
  return new Promise(resolve => {
    const options = { env: environmentWith(), timeout: 60_000 };
    const child = execFile('script', ['-qec', line, '/dev/null'], options, (_, stdout) => resolve(stdout));
    child.stdout?.on('data', text => {
      if (String(text).includes('[y/N]')) child.stdin?.end(input);
    });
  });
}

test('what relates to a replaced dependency is compiled again if it asks for it, except what is imported too', async () => {
  using to = newAppliance();
  const entries: TarEntry[] = [{ name: 'volume/other', content: 'another library' }];
  const old = await plantDependency(to, to.data, { name: 'Library', entries });
  const own = { related: [old], fields: { recompile: true } };
  for (const name of ['Program', 'Own']) await plantDependency(to, to.data, { name, ...own });
  await plantDependency(to, to.data, { name: 'Manual', related: [old] });
  const { status, stderr } = await to.run('import', file, '--trust', fingerprint, '--replace');
  assert.equal(status, 0, stderr);
  assert.deepEqual(
    ['Library', 'Program', 'Own', 'Manual'].map(name => to.named(name).compileState),
    ['compiled', 'compiled', 'enqueued_for_compile', 'compiled'],
  );
  assert.equal(isOutdated(to.db, to.named('Manual')), true);
});

test('a name that is taken is replaced only on request, and another name leaves what is there', async () => {
  using to = newAppliance();
  const own = await plantDependency(to, to.data, {
    name: 'library',
    entries: [{ name: 'volume/own', content: 'mine' }],
  });
  const rows = dump(to.db);
  const trust = ['--trust', fingerprint];
  const taken = await to.run('import', file, ...trust);
  assert.equal(taken.status, 2);
  assert.match(taken.stderr, /the account has another Library: replace it with --replace, or .* --name/);
  assert.equal(dump(to.db), rows);
  const renamed = await to.run('import', file, ...trust, '--name', 'Program 2');
  assert.match(renamed.stdout, /^Library \(Program 2\) of .*: created\nProgram 2 of .*: created\n/);
  assert.equal(to.named('library').artifactHash, own.artifactHash);
  assert.deepEqual(
    listRelated(to.db, to.named('Program 2').id).map(({ name }) => name),
    ['Library (Program 2)'],
  );
  const replaced = await to.run('import', file, ...trust, '--replace');
  assert.match(replaced.stdout, /^Library of .*: replaced\nProgram of .*: created\n/);
  assert.equal(findDependency(to.db, own.id)?.artifactHash, library.artifactHash);
  assert.equal(findDependency(to.db, own.id)?.name, 'library');
});

test('a dependency can be carried without its source, and then has no archive', async () => {
  using to = newAppliance();
  const small = path('small.assay');
  await runAssay(['dependency', 'export', 'Library', small, '--without-source', '--data', from]);
  assert.equal((await to.run('import', small, '--trust', fingerprint)).status, 0);
  assert.equal(to.named('Library').archiveHash, null);
  assert.deepEqual(readdirSync(join(to.data, 'archives')), []);
  assert.match((await to.run('import', small)).stdout, /nothing was changed/);
  assert.match((await to.run('import', file, '--replace')).stdout, /Library of .*: replaced/);
  assert.equal(to.named('Library').archiveHash, library.archiveHash);
});

test('artifacts get the owner that suites of the importing appliance run as', async () => {
  using to = newAppliance();
  const imported = await to.run('import', file, '--trust', fingerprint, '--run-as', '1234:1235');
  assert.equal(imported.status, 0, imported.stderr);
  const entries = extract();
  const owners = new Set<string>();
  const stored = zstdDecompressSync(readFileSync(artifactPath(to.data, program.artifactHash as string)));
  entries.end(stored);
  let names = 0;
  for await (const entry of entries) {
    owners.add(`${entry.header.uid}:${entry.header.gid}`);
    names += 1;
    entry.resume();
  }
  assert.deepEqual([[...owners], names], [['1234:1235'], 5]);
});

test('what cannot be exported is refused with a reason, and leaves no file', async () => {
  using to = newAppliance();
  await plantDependency(to, to.data, { name: 'Twice' });
  const other = makeAppliance(path(`other-${++number}`));
  other.db.close();
  const out = join(place.path, 'none.assay');
  const refused = async (expected: RegExp, ...args: string[]) => {
    const { status, stderr } = await to.run('export', ...args);
    assert.match(stderr, expected);
    assert.notEqual(status, 0);
    assert.ok(!existsSync(out));
  };
  await refused(/there is no dependency "Nothing"; "assay dependency list"/, 'Nothing', out);
  await refused(/there is no account x@y/, 'Twice', out, '--owner', 'x@y');
  await refused(/in the data directory itself/, 'Twice', join(to.data, 'x'));
  await refused(/there is no directory/, 'Twice', join(to.data, '../none/x'));
  rmSync(artifactPath(to.data, to.named('Twice').artifactHash as string));
  await refused(/artifacts\/.* is missing in the data directory: upload/, 'Twice', out);
  writeFileSync(archivePath(to.data, to.named('Twice').archiveHash as string), 'the source of twicE');
  await refused(/is missing|damaged/, 'Twice', out);
  const elsewhere = await runAssay(['dependency', 'list', '--data', path('nowhere')]);
  assert.equal(elsewhere.status, 2);
  assert.match(elsewhere.stderr, /there is no database/);
});

test('a damaged source archive is found when it is exported', async () => {
  using to = newAppliance();
  const { archiveHash } = await plantDependency(to, to.data, { name: 'Damaged' });
  writeFileSync(archivePath(to.data, archiveHash as string), 'the source of damagea');
  const refused = await to.run('export', 'Damaged', path('damaged.assay'));
  assert.match(refused.stderr, /is damaged: upload the archive again, or export --without-source/);
  assert.equal((await to.run('export', 'Damaged', path('damaged.assay'), '--without-source')).status, 0);
});

test('an export needs the master key, and a changed signing key is reported', async () => {
  using to = newAppliance();
  await plantDependency(to, to.data, { name: 'Signed' });
  const out = path('signed.assay');
  identityOf(to.db);
  to.db.sqlite.exec("UPDATE facts SET value = 'AAAA' WHERE name = 'appliance_key'");
  const changed = await to.run('export', 'Signed', out);
  assert.equal(changed.status, 1);
  assert.match(changed.stderr, /signing key cannot be decrypted with the master key: restore/);
  rmSync(join(to.data, 'master.key'));
  assert.match((await to.run('export', 'Signed', out)).stderr, /master key .* is missing/);
  assert.ok(!existsSync(out));
});

test('an import that is killed leaves nothing that the next one does not remove', async () => {
  using to = newAppliance();
  const kill = ['-f', '-qq', '-e', 'trace=fsync', '-e', 'inject=fsync:signal=SIGKILL:when=2'];
  const command = [process.execPath, await programPath(), 'dependency', 'import', file];
  const killed = new Promise<void>(resolve => {
    const args = [...kill, ...command, '--trust', fingerprint, '--data', to.data];
    execFile('strace', args, { env: environmentWith() }, () => resolve());
  });
  await killed;
  assert.equal(to.all().length, 0);
  assert.deepEqual(
    readdirSync(uploadDirectory(to.data)).map(name => name.slice(0, 8)),
    ['.import-'],
  );
  assert.equal((await to.run('import', file, '--trust', fingerprint)).status, 0);
  assert.deepEqual(readdirSync(uploadDirectory(to.data)), []);
});

describe('a hostile file changes nothing', () => {
  type Blob = { name: string; content: Buffer };
  type Parts = { manifest: Manifest; blobs: Blob[] };
  const entry = (name: string, content: Buffer) =>
    Buffer.concat([tarHeader(name, 0o644, content.length), content, Buffer.alloc(-content.length & 511)]);

  function read(bytes: Buffer): Parts {
    let at = 0;
    const next = (): Blob => {
      const name = bytes.toString('utf8', at, bytes.indexOf(0, at));
      const size = Number.parseInt(bytes.toString('latin1', at + 124, at + 135), 8);
      const content = bytes.subarray(at + 512, at + 512 + size);
      at += 512 + size + (-size & 511);
      return { name, content };
    };
    const manifest = JSON.parse(next().content.toString());
    next();
    return { manifest, blobs: manifest.files.map(next) };
  }

  /** Signed by the exporting appliance, whatever it contains. */
  function write(
    { manifest, blobs }: Parts,
    signer = (bytes: Buffer) => identityOf(source.db).sign(bytes),
  ): Buffer {
    const head = Buffer.from(`${JSON.stringify(manifest, null, 1)}\n`);
    return Buffer.concat([
      entry('manifest.json', head),
      entry('signature', signer(head)),
      ...blobs.map(({ name, content }) => entry(name, content)),
      Buffer.alloc(1024),
    ]);
  }

  const changed =
    (change: (parts: Parts & { last: Manifest['dependencies'][number] }) => unknown) => (bytes: Buffer) => {
      const parts = read(bytes);
      change({ ...parts, last: parts.manifest.dependencies.at(-1) as Manifest['dependencies'][number] });
      return write(parts);
    };
  /** Replaces the artifact of the last dependency, with its checksum and size. */
  const withArtifact = (make: (plain: Buffer) => Buffer | Promise<Buffer>) => async (bytes: Buffer) => {
    const parts = read(bytes);
    const blob = parts.blobs.at(-1) as Blob;
    blob.content = await make(zstdDecompressSync(blob.content));
    Object.assign(parts.manifest.files.at(-1) as object, {
      size_bytes: blob.content.length,
      sha256: createHash('sha256').update(blob.content).digest('hex'),
    });
    return write(parts);
  };
  const tarOf = async (entries: Parameters<typeof tarStream>[0]) =>
    zstdCompressSync(Buffer.concat(await tarStream(entries).toArray()));
  const root = 'srv/cache';
  const withEntries = (...entries: TarEntry[]) =>
    withArtifact(() => tarOf([{ name: root, type: 'directory' }, ...entries]));

  const cases: Record<string, [(bytes: Buffer) => Buffer | Promise<Buffer>, RegExp]> = {
    'a changed byte in the manifest': [
      bytes => Buffer.from(bytes.toString('latin1').replace('greet &', 'greet ;'), 'latin1'),
      /signature does not match/,
    ],
    'a changed byte in the signature': [
      bytes => {
        const at = bytes.indexOf('signature\0') + 512;
        bytes[at] = (bytes[at] as number) ^ 1;
        return bytes;
      },
      /signature does not match/,
    ],
    'a changed byte in a source archive': [
      bytes => {
        const at = bytes.indexOf('the source of Program');
        bytes[at] = (bytes[at] as number) ^ 1;
        return bytes;
      },
      /archives\/\w+ was changed after it was exported/,
    ],
    'a changed byte in an artifact': [
      bytes => {
        const at = bytes.lastIndexOf('artifacts/') + 512 + 40;
        bytes[at] = (bytes[at] as number) ^ 1;
        return bytes;
      },
      /artifacts\/.* was changed after it was exported/,
    ],
    'a changed byte in a header': [
      bytes => {
        const at = bytes.lastIndexOf('artifacts/') + 110;
        bytes[at] = (bytes[at] as number) ^ 1;
        return bytes;
      },
      /was changed after it was exported/,
    ],
    'a changed byte in the padding': [
      bytes => {
        bytes[bytes.length - 1] = 1;
        return bytes;
      },
      /was changed after it was exported/,
    ],
    'another key with the same manifest': [
      bytes => {
        const { privateKey } = generateKeyPairSync('ed25519');
        return write(read(bytes), head => sign(null, head, privateKey));
      },
      /signature does not match/,
    ],
    'an empty file': [() => Buffer.alloc(0), /is cut off|not an exported dependency/],
    'another kind of file': [() => Buffer.alloc(10_000, 'x'), /is not an exported dependency/],
    'a file that is cut off': [bytes => bytes.subarray(0, -2000), /is cut off: it has \d+ of \d+ bytes/],
    'a file that is cut off in its manifest': [bytes => bytes.subarray(0, 700), /is cut off/],
    'a file with more bytes': [bytes => Buffer.concat([bytes, Buffer.alloc(512)]), /continues after its end/],
    'a huge manifest': [
      () => Buffer.concat([tarHeader('manifest.json', 0o644, 8e9), Buffer.alloc(2048)]),
      /manifest is too large/,
    ],
    'another architecture': [
      changed(({ manifest }) => {
        manifest.architecture = 'riscv64';
      }),
      /compiled for riscv64, and this appliance is \w+: compile it here/,
    ],
    'a newer format': [
      changed(({ manifest }) => {
        manifest.version = 99;
        manifest.assay = '99.0';
      }),
      /a newer Assay \(99\.0\) wrote it: upgrade/,
    ],
    'an artifact name that leads out': [
      changed(({ last }) => {
        last.artifact.hash = '../../../../tmp/x';
      }),
      /invalid value in artifact\.hash/,
    ],
    'a file name that leads out': [
      changed(({ manifest, blobs }) => {
        (manifest.files[0] as { name: string }).name = (blobs[0] as Blob).name = '../../evil';
      }),
      /its files are not those of its dependencies/,
    ],
    'a file too many': [
      changed(({ manifest, blobs }) => {
        manifest.files.push({ name: 'master.key', size_bytes: 3, sha256: '0'.repeat(64) });
        blobs.push({ name: 'master.key', content: Buffer.from('abc') });
      }),
      /its files are not those of its dependencies/,
    ],
    'a prefix of the system': [
      changed(({ last }) => {
        last.prefix = '/usr';
      }),
      /invalid value in prefix/,
    ],
    'a source that leads out': [
      changed(({ last }) => {
        last.source = '../..';
      }),
      /invalid value in source/,
    ],
    'a reserved variable': [
      changed(({ last }) => {
        last.environment = 'PATH=/evil';
      }),
      /invalid value in environment/,
    ],
    'a cycle': [
      changed(({ manifest }) => {
        (manifest.dependencies[0] as { related: number[] }).related = [1];
      }),
      /invalid value in related/,
    ],
    'the same name twice': [
      changed(({ last }) => {
        last.name = 'LIBRARY';
      }),
      /two dependencies of the same name/,
    ],
    'a name with control characters': [
      changed(({ last }) => {
        last.name = 'x\u001b[2J';
      }),
      /invalid value in name/,
    ],
    'a size that no disk has': [
      changed(({ last }) => {
        last.artifact.size_bytes = 2 ** 50;
      }),
      /it needs 1125899906842\d+ bytes .* free some disk space/,
    ],
    'an artifact of another prefix': [
      changed(({ last }) => {
        last.artifact.prefix = '/opt/elsewhere';
      }),
      /does not have the hash of the artifact/,
    ],
    'an artifact with other content': [
      withArtifact(plain => {
        plain.write('HELLO', plain.indexOf('hello\n'));
        return zstdCompressSync(plain);
      }),
      /does not have the hash of the artifact/,
    ],
    'an artifact that unpacks to more': [
      withEntries({ name: `${root}/zeros`, content: Buffer.alloc(50 << 20) }),
      /unpacks to more than its manifest says/,
    ],
    'an artifact with very many entries': [
      withArtifact(() => zstdCompressSync(Buffer.alloc(65 << 20, tarHeader(`${root}/empty`, 0o644, 0)))),
      /unpacks to more than its manifest says/,
    ],
    'an artifact that is no tar': [
      withArtifact(() => zstdCompressSync(Buffer.alloc(5000, 'x'))),
      /cannot be unpacked/,
    ],
    'an artifact that is not compressed': [withArtifact(plain => plain), /cannot be unpacked/],
    'an artifact that is cut off': [
      withArtifact(plain => zstdCompressSync(plain).subarray(0, -30)),
      /cannot be unpacked/,
    ],
    'a path with ..': [withEntries({ name: `${root}/../evil`, content: 'x' }), /leads out of its prefix/],
    'an absolute path': [withEntries({ name: '/etc/passwd', content: 'x' }), /leads out of its prefix/],
    'a path of another prefix': [withEntries({ name: 'srv/other', content: 'x' }), /leads out of its prefix/],
    'a hard link that leads out': [
      withEntries({ name: `${root}/link`, type: 'link', linkname: '../../etc/shadow' }),
      /leads out of its prefix/,
    ],
    'a file below a symlink': [
      withEntries(
        { name: `${root}/link`, type: 'symlink', linkname: '/etc' },
        { name: `${root}/link/evil`, content: 'x' },
      ),
      /the directory of ".*" is missing in it/,
    ],
    'a device': [
      withEntries({ name: `${root}/sda`, type: 'block-device', devmajor: 8, devminor: 0 }),
      /an entry of the type block-device/,
    ],
    'a file with capabilities': [
      withEntries({ name: `${root}/ping`, content: 'x', pax: { 'SCHILY.xattr.security.capability': 'y' } }),
      /has the attribute/,
    ],
  };

  let to: ReturnType<typeof newAppliance>;
  before(() => {
    to = newAppliance();
  });
  after(() => to.db.close());

  for (const [name, [make, message]] of Object.entries(cases))
    test(name, async () => {
      const hostile = path('hostile.assay');
      writeFileSync(hostile, await make(readFileSync(file)));
      const { settings } = readSettings(new Map([['--data', to.data]]), {});
      const [rows, files] = [dump(to.db), filesOf(to.data)];
      const importing = importDependency({
        db: to.db,
        settings,
        file: hostile,
        ownerId: to.ownerId,
        confirmTrust: async () => {},
        confirmReplace: async () => {},
      });
      await assert.rejects(importing, (error: Error) => {
        assert.ok(error instanceof DataError, String(error.stack));
        assert.match(error.message, message);
        assert.match(error.message, /nothing was changed$/);
        return true;
      });
      assert.deepEqual([dump(to.db), filesOf(to.data)], [rows, files]);
    });

  test('the file that the others are made of is accepted', async () => {
    const { manifest, blobs } = read(readFileSync(file));
    writeFileSync(path('same.assay'), write({ manifest, blobs }));
    const imported = await to.run('import', path('same.assay'), '--trust', fingerprint);
    assert.equal(imported.status, 0, imported.stderr);
  });
});

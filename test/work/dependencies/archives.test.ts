// Archives of every kind: valid ones compile, invalid ones end as a failed compile with the reason, and nothing outside
// the container is touched.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { directoryUntil } from '../../support/directory.ts';
import {
  type DependencyFixture,
  openDependencies,
  PREFIX,
  packTree,
  rawTar,
  tarOf,
  zipProgram,
} from './fixture.ts';

/** Zeros, and many of them. */
const ZEROS = 'truncate -s 256M zeros';

suite('archives', { concurrency: 4 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  before(async () => {
    appliance = await startAppliance({ diskBytes: 64 << 20, concurrency: 8 });
    fixture = openDependencies(appliance);
  });
  after(async () => {
    // The files of a job are removed after its verdict.
    for (const name of ['uploads', 'jobs'])
      await directoryUntil(
        join(appliance.data, name),
        names => names.length === 0,
        `${name} of compiles that ended are left`,
      );
    await appliance.close();
    for (const path of ['/usr/lib/planted', '/tmp/climbed', '/tmp/assay-absolute'])
      assert.equal(existsSync(path), false, `${path} is outside of every container`);
  });

  const tree = { 'bin/hello': '#!/bin/sh\necho hello\n', 'share/alias': { link: '../bin/hello' } };
  const show = `cp -R . ${PREFIX} && ls -l ${PREFIX}/share && ${PREFIX}/share/alias`;
  const formats: [string, string][] = [
    ['tar', 'tar -cf - *'],
    ['tar in the old format', 'tar --format=v7 -cf - *'],
    ['gzip', 'tar -czf - *'],
    ['bzip2', 'tar -cjf - *'],
    ['xz', 'tar -cJf - *'],
    ['zstd', 'tar --zstd -cf - *'],
    ['zip', zipProgram()],
    ['zip without compression', zipProgram('-0')],
  ];
  for (const [name, program] of formats)
    test(`a ${name} archive is unpacked correctly`, async () => {
      const { state, log } = await fixture.compile(packTree(tree, program), { command: show });
      assert.equal(state, 'compiled', log);
      assert.match(log, /^lrwxrwxrwx .* alias -> \.\.\/bin\/hello$/m);
      assert.match(log, /^hello$/m);
    });

  const whole = tarOf({ 'a/first': 'x'.repeat(3000), 'a/second': 'y'.repeat(3000) });
  const zipped = packTree({ 'a/first': 'x'.repeat(3000) }, zipProgram());
  const bad: [string, () => Buffer | Promise<Buffer>, RegExp][] = [
    ['a tar cut inside a header', () => whole.subarray(0, 700), /cut off/],
    ['a tar cut between two entries', () => whole.subarray(0, 512 * 8), /cut off/],
    ['a tar cut inside a file', () => whole.subarray(0, 2000), /cut off/],
    ['a gzip that is cut off', () => gzipSync(whole).subarray(0, -20), /cut off/],
    ['a gzip of a tar that is cut off', () => gzipSync(whole.subarray(0, 512 * 8)), /cut off/],
    ['a zstd that is cut off', () => zstdCompressSync(whole).subarray(0, -20), /cut off/],
    ['an xz that is cut off', () => packTree(tree, 'tar -cJf - * | head -c -20'), /cut off/],
    ['a bzip2 that is cut off', () => packTree(tree, 'tar -cjf - * | head -c -20'), /cut off/],
    ['a gzip with a wrong byte', () => damaged(gzipSync(whole)), /cut off or damaged|could not be unpacked/],
    ['a zip without its end', () => zipped.subarray(0, -40), /cut off/],
    ['a zip with a wrong byte', () => damaged(zipped, 60), /damaged/],
    ['a gzip of no tar at all', () => gzipSync('plain text\n'.repeat(1000)), /could not be unpacked|cut off/],
    [
      'a name that climbs out',
      () => rawTar([{ name: '../../../tmp/climbed', content: 'x' }]),
      /could not be unpacked/,
    ],
    [
      'a device',
      () => rawTar([{ name: 'disk', type: 'block-device', devmajor: 8, devminor: 0, mode: 0o666 }]),
      /could not be unpacked/,
    ],
    [
      'a hard link to what is outside',
      () => rawTar([{ name: 'shadow', type: 'link', linkname: '../../../etc/passwd' }]),
      /could not be unpacked/,
    ],
    [
      'a file written through a link that leads out',
      () =>
        rawTar([
          { name: 'out', type: 'symlink', linkname: '/usr/lib' },
          { name: 'out/planted', content: 'x' },
        ]),
      /could not be unpacked/,
    ],
  ];
  for (const [name, make, reason] of bad)
    test(`${name} fails the compile, with the reason`, async () => {
      const { state, record, log } = await fixture.compile(await make());
      assert.equal(state, 'compile_failed', log);
      assert.match(record.error as string, reason);
      assert.equal(log.includes(record.error as string), true, log);
    });

  test('absolute names are unpacked inside the archive’s root, and links to the outside lead nowhere', async () => {
    const archive = await rawTar([
      { name: '/tmp/assay-absolute', content: 'x' },
      { name: 'etc', type: 'symlink', linkname: '/etc' },
      { name: 'up', type: 'symlink', linkname: '../../../../..' },
    ]);
    const { state, log } = await fixture.compile(archive, {
      command: `cp -RP . ${PREFIX} && find . && cat up/etc/hostname && ls -d /tmp/assay-absolute`,
    });
    assert.equal(state, 'compile_failed', log);
    assert.match(log, /^\.\/tmp\/assay-absolute$/m);
    assert.match(log, /cannot access '\/tmp\/assay-absolute'/);
  });

  test('a zip with climbing names is refused inside the container', async () => {
    const archive = packTree({ 'ab/climbed': 'x' }, zipProgram());
    const climbing = Buffer.from(archive.toString('latin1').replaceAll('ab/climbed', '../climbed'), 'latin1');
    const { state, record } = await fixture.compile(climbing);
    assert.equal(state, 'compile_failed');
    assert.match(record.error as string, /could not be unpacked/);
  });

  const bombs: [string, () => Buffer][] = [
    ['gzip', () => gzipSync(bombTar())],
    ['zstd', () => zstdCompressSync(bombTar())],
    ['bzip2', () => packTree({}, `${ZEROS} && tar -cf - zeros | bzip2 -1`)],
    ['xz', () => packTree({}, `${ZEROS} && tar -cf - zeros | xz -0`)],
    ['zip', () => packTree({}, `${ZEROS} && ${zipProgram('-1', 'zeros')}`)],
  ];
  for (const [name, make] of bombs)
    test(`a ${name} bomb is stopped at the disk limit`, async () => {
      const { state, record, log } = await fixture.compile(make(), { command: `sleep 100; : ${PREFIX}` });
      assert.equal(state, 'compile_failed', log);
      assert.match(record.error as string, /grew past/);
    });

  test('a command that fills its prefix is stopped at the disk limit too', async () => {
    const { state, record, log } = await fixture.compile(tarOf({ file: 'x' }), {
      command: `head -c 200000000 /dev/zero >${PREFIX}/big; sync ${PREFIX}/big; sleep 100; echo over`,
    });
    assert.equal(state, 'compile_failed', log);
    assert.match(record.error as string, /grew past/);
    assert.doesNotMatch(log, /^over$/m);
  });

  test('what a command adds to a prefix that it shares with a related dependency counts towards the disk limit', async () => {
    const related = await fixture.compiled(tarOf({ file: 'x' }));
    const { state, record, log } = await fixture.compile(tarOf({ other: 'y' }), {
      'related_dependencies[]': [related],
      command: `cat ${PREFIX}/file; head -c 200000000 /dev/zero >${PREFIX}/big; sleep 100; echo over`,
    });
    assert.equal(state, 'compile_failed', log);
    assert.match(record.error as string, /grew past/);
    assert.doesNotMatch(log, /^over$/m);
  });

  test('the source directory is entered; a missing one or one outside the archive fails', async () => {
    const archive = tarOf({
      'top/inner dir/file': 'found\n',
      'top/out': { link: '/usr' },
      'top/up': { link: '../..' },
      plain: 'x',
    });
    const command = `cat file && cp file ${PREFIX}`;
    const entered = await fixture.compile(archive, { command, source: 'top/inner dir' });
    assert.equal(entered.state, 'compiled', entered.log);
    for (const [source, reason] of [
      ['top/absent', /not in the archive/],
      ['plain', /not in the archive/],
      ['top/out', /leads out/],
      ['top/up', /leads out/],
    ] as const) {
      const { state, record, log } = await fixture.compile(archive, { command, source });
      assert.equal(state, 'compile_failed');
      assert.match(record.error as string, reason);
      assert.equal(/It begins with:\nplain\ntop\/$/m.test(log), /absent|plain/.test(source), log);
    }
  });
});

function damaged(archive: Buffer, at = Math.floor(archive.length / 2)): Buffer {
  const copy = Buffer.from(archive);
  copy[at] = (copy[at] as number) ^ 0xff;
  return copy;
}

function bombTar(): Buffer {
  return packTree({}, `${ZEROS} && tar -cf - zeros`);
}

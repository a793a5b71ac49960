// Archives that try to escape: they are unpacked only inside the container, and end as a failed compile or as an
// artifact without access to the host. Compares the host before and after.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type ServedAppliance, serveAppliance } from '../support/served-appliance.ts';
import {
  openDependencies,
  PREFIX,
  packTree,
  rawTar,
  useIn,
  zipProgram,
} from '../work/dependencies/fixture.ts';
import { attacks } from './table.ts';

let appliance: ServedAppliance;
let dependencies: ReturnType<typeof openDependencies>;
const outside = mkdtempSync(join(tmpdir(), 'assay-outside-'));
const canary = join(outside, 'canary');
writeFileSync(canary, 'untouched');
const passwords = statSync('/etc/passwd').mtimeMs;

before(async () => {
  appliance = await serveAppliance({
    ASSAY_DISK: '64MiB',
    ASSAY_CONCURRENCY: '3',
    ASSAY_MEMORY: '512MiB',
  });
  dependencies = openDependencies(appliance);
});
after(async () => {
  await appliance?.close();
  rmSync(outside, { recursive: true, force: true });
});

type Entry = Parameters<typeof rawTar>[0][number];
const file = (name: string, more: Partial<Entry> = {}): Entry =>
  ({ name, content: 'owned', ...more }) as Entry;
const link = (name: string, linkname: string, type: 'symlink' | 'link' = 'symlink'): Entry =>
  ({ name, type, linkname }) as Entry;
/** Replaces a name in a zip by one of the same length that no program would write. */
const zipWith = (name: string, hostile: string) => {
  assert.equal(name.length, hostile.length);
  const made = packTree({ [name]: 'owned' }, zipProgram());
  return Buffer.from(made.toString('latin1').replaceAll(name, hostile), 'latin1');
};

type Attack = {
  archive: () => Buffer | Promise<Buffer>;
  command?: string;
  state: RegExp;
  says?: RegExp;
  never?: RegExp;
};
const table: Record<string, Attack> = {
  'a name that climbs to the host’s temporary directory': {
    archive: () => rawTar([file(`../../../../../..${canary}`)]),
    state: /compile_failed/,
  },
  'the absolute name of an existing file': {
    archive: () => rawTar([file(canary)]),
    command: `cp -R . ${PREFIX}; cat ${canary}`,
    state: /compile_failed/,
    never: /untouched/,
  },
  'a directory that is a link, with a file below it': {
    archive: () => rawTar([link('d', outside), file('d/canary')]),
    state: /compile_failed/,
  },
  'a link to a link to the outside, with a file below it': {
    archive: () => rawTar([link('a', outside), link('b', 'a'), file('b/canary')]),
    state: /compile_failed/,
  },
  'a file that becomes a link and then a file again': {
    archive: () => rawTar([file('x'), link('x', canary), file('x')]),
    command: `cp -R . ${PREFIX}; cat x`,
    state: /compiled|compile_failed/,
    never: /untouched/,
  },
  'a hard link to the output of the build': {
    archive: () => rawTar([link('out', '/srv/.assay/output', 'link')]),
    command: `: >out; cp -R . ${PREFIX}`,
    state: /compile_failed/,
  },
  'a hard link to the archive itself': {
    archive: () => rawTar([link('self', '/srv/.assay/archive', 'link')]),
    command: `echo owned >self; cp -R . ${PREFIX}`,
    state: /compile_failed/,
  },
  'a setuid program': {
    archive: () => rawTar([file('su', { mode: 0o6755, uid: 0, gid: 0 })]),
    command: `cp /usr/bin/id su2; chmod 4755 su2; stat -c 'owner %u' su su2; ./su2 -u; cp -R . ${PREFIX}`,
    state: /compiled/,
    says: /owner 1000\nowner 1000\n1000\n/,
  },
  'a character device': {
    archive: () => rawTar([{ name: 'mem', type: 'character-device', devmajor: 1, devminor: 1 } as Entry]),
    state: /compile_failed/,
  },
  'a named pipe that blocks its reader': {
    archive: () => rawTar([{ name: 'pipe', type: 'fifo' } as Entry]),
    command: `ls -l pipe; mkdir -p ${PREFIX}/bin; echo x >${PREFIX}/bin/x; mv pipe ${PREFIX}`,
    state: /compiled|compile_failed/,
  },
  'names that contain commands': {
    archive: () =>
      rawTar([
        file('$(touch owned)'),
        file('`touch owned`'),
        file('; touch owned'),
        file('-rf'),
        file('--checkpoint-action=exec=sh'),
      ]),
    command: `ls owned 2>/dev/null; cp -R ./* ${PREFIX}`,
    state: /compile/,
    never: /^owned$/m,
  },
  'names that contain terminal escapes': {
    archive: () => rawTar([file('\u001b]0;owned\u0007\u001b[2J')]),
    state: /compiled/,
  },
  'a path of four hundred directories': {
    archive: () => rawTar([file(`${'d/'.repeat(400)}f`)]),
    state: /compile/,
  },
  'ten thousand files': {
    archive: () => packTree({}, 'mkdir d && cd d && seq 1 10000 | xargs touch && cd .. && tar -cf - d'),
    command: `find . -type f | wc -l; echo x >${PREFIX}/x`,
    state: /compiled/,
    says: /10000/,
  },
  'a sparse file of a hundred gigabytes': {
    archive: () => packTree({}, 'truncate -s 100G hole && tar -S -cf - hole'),
    command: `ls -ls hole; echo x >${PREFIX}/x`,
    state: /compile/,
  },
  'an artifact with a sparse file of a hundred gigabytes': {
    archive: () => rawTar([file('x')]),
    command: `truncate -s 100G ${PREFIX}/hole`,
    state: /compile_failed/,
    says: /grew past/,
  },
  'a zip with a climbing name': {
    archive: () => zipWith('ab/ab/ab/canary', '../../../canary'),
    state: /compile_failed/,
  },
  'a zip with an absolute name': {
    archive: () => zipWith('abc/owned-file', '/tmp/owned-zip'),
    state: /compile/,
  },
  'a zip with a climbing name in backslashes': {
    archive: () => zipWith('ab/ab/canary', '..\\..\\canary'),
    state: /compile/,
  },
  'a zip with a link to the outside and a file below it': {
    archive: () => {
      const made = packTree({ d: { link: outside }, 'e/canary': 'owned' }, zipProgram('', 'd e'));
      return Buffer.from(made.toString('latin1').replaceAll('e/canary', 'd/canary'), 'latin1');
    },
    state: /compile_failed/,
  },
  'a zip whose two directories have different names': {
    archive: () => {
      const made = packTree({ 'ab/file': 'owned' }, zipProgram()).toString('latin1');
      return Buffer.from(made.replace('ab/file', '../file'), 'latin1');
    },
    state: /compile/,
  },
  'an artifact of links to the outside': {
    archive: () =>
      rawTar([link('etc', '/etc'), link('up', '../../../../..'), link('data', '/srv/.assay'), file('x')]),
    command: `cp -RP . ${PREFIX}`,
    state: /compiled/,
  },
};

attacks(
  'an archive cannot access the host with',
  table,
  async ({ archive, command, state, says, never }) => {
    const made = await dependencies.compile(await archive(), command === undefined ? {} : { command });
    assert.match(made.state, state, made.log);
    if (says) assert.match(made.log, says);
    if (never) assert.doesNotMatch(made.log.replaceAll(/^\[assay\].*$/gm, ''), never);
    assert.equal(readFileSync(canary, 'utf8'), 'untouched');
    assert.deepEqual(readdirSync(outside), ['canary']);
  },
  { concurrency: 3 },
);

test('links of an artifact resolve only inside the suite’s container, and the artifact cannot be written to', async () => {
  const id = await dependencies.compiled(
    await rawTar([link('host', outside), link('passwd', '/etc/passwd'), file('bin/x')]),
    { command: `cp -RP . ${PREFIX}` },
  );
  const { log } = await useIn(
    await appliance.project(),
    [id],
    `cat ${PREFIX}/host/canary; grep -c . ${PREFIX}/passwd; touch ${PREFIX}/new || echo refused; echo x >${PREFIX}/bin/x || echo refused`,
  );
  assert.doesNotMatch(log, /untouched/);
  assert.equal(log.match(/^refused$/gm)?.length, 2, log);
});

test('the host is unchanged', () => {
  assert.equal(statSync('/etc/passwd').mtimeMs, passwords);
  for (const path of ['/tmp/owned-zip', '/tmp/canary', '/canary', '/canar', '/file', '/srv/canary'])
    assert.equal(existsSync(path), false, path);
  assert.deepEqual(readdirSync(join(appliance.data, 'uploads')), []);
});

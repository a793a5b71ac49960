// The step of a compile that warns of libraries which programs of the image would load, run by the shells of images.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { planCompile } from '../../../src/domain/container/compile-plan.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-libraries-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const commandOf = (prefix: string, libraryPath = true) =>
  planCompile({
    instance: 'test',
    dependency: { id: 1n, command: 'make', prefix, source: '', libraryPath },
    nonce: '0'.repeat(32),
    format: 'tar',
    archiveFile: '',
    outputFile: '',
    image: { reference: '', mounts: [] },
    network: 'none',
    limits: { runAs: { uid: 1000, gid: 1000 }, memoryBytes: 0, cpus: 1, pids: 0, shmBytes: 0 },
    artifactMounts: [],
  }).command;
const warn = (prefix: string, shell: string[]) => {
  const [program, ...args] = shell as [string, ...string[]];
  return execFileSync(program, [...args, '-c', commandOf(prefix).at(-1) as string], {
    env: { PATH: '/usr/bin:/bin' },
    timeout: 20_000,
  }).toString();
};

/** The libraries that git loads, by name. */
const libraries = new Map(
  [
    ...execFileSync('ldd', ['/usr/bin/git'])
      .toString()
      .matchAll(/^\s*(\S+) => (\S+) /gm),
  ].map(([, name, file]) => [name as string, file as string]),
);

for (const shell of [['dash'], ['bash', '--norc'], ['busybox', 'sh']])
  test(`programs of the image are named with the libraries that they would load, in ${shell[0]}`, () => {
    const prefix = join(directory, `it's[a]*-${shell[0]}`);
    const copy = (library: string, to: string) => {
      mkdirSync(join(prefix, to), { recursive: true });
      copyFileSync(libraries.get(library) as string, join(prefix, to, library));
    };
    mkdirSync(prefix);
    assert.equal(warn(prefix, shell), '', 'there is no library');
    copy('libz.so.1', 'lib');
    const line = (text: string, library: string) =>
      text
        .split('\n')
        .find(one => one.includes(`would load ${library} from ${prefix}/lib: set library_path to false`));
    const named = line(warn(prefix, shell), 'libz.so.1') ?? '';
    assert.match(named, /^\[assay\] (?:\w+, )*(?:git\b|\w+ and git\b).* of the image would load /);
    mkdirSync(join(prefix, 'sbin'));
    writeFileSync(join(prefix, 'sbin/git'), '');
    assert.doesNotMatch(line(warn(prefix, shell), 'libz.so.1') ?? '', /\bgit\b/, 'the prefix has its own');
    rmSync(join(prefix, 'lib'), { recursive: true });
    copy('libz.so.1', 'lib64');
    assert.match(warn(prefix, shell), /would load libz\.so\.1 from .*\/lib64: /);
    writeFileSync(join(prefix, 'lib64/libz.so.1'), 'no library');
    assert.equal(warn(prefix, shell), '', 'the program would not start');
  });

test('nothing is checked for a dependency that is not on LD_LIBRARY_PATH', () => {
  assert.ok(commandOf('/opt/a').includes('libraries'));
  assert.ok(!commandOf('/opt/a', false).includes('libraries'));
});

// Real software from Debian's source packages: a library, an interpreter and a daemon; uploaded, compiled, used.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { type DependencyFixture, openDependencies, PREFIX, useIn } from './fixture.ts';

suite('Debian’s sources', { concurrency: 3 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  let sources: Awaited<ReturnType<typeof fetchSources>>;
  before(async () => {
    sources = await fetchSources('zlib', 'lua5.4', 'redis');
    appliance = await startAppliance({ concurrency: 4, compileSlots: 3 });
    fixture = openDependencies(appliance);
  });
  after(() => appliance?.close());

  test('zlib compiles, and a program of a suite is linked against it', async () => {
    const { archive, root } = sources('zlib');
    const id = await fixture.compiled(archive, {
      name: 'zlib',
      source: root,
      command: `./configure --prefix=${PREFIX} && make && make install`,
    });
    const repository = appliance.repository({
      files: {
        'main.c':
          '#include <stdio.h>\n#include <zlib.h>\nint main(void) { printf("zlib %s, header %s\\n", zlibVersion(), ZLIB_VERSION); return 0; }\n',
      },
    });
    const { build, log } = await useIn(
      await appliance.project(repository),
      [id],
      'cc main.c -o main $(pkg-config --cflags --libs zlib 2>/dev/null || echo -I/srv/dependency/include -L/srv/dependency/lib -lz) && ldd ./main | grep libz && ./main',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /libz\.so\.1 => \/srv\/dependency\/lib\/libz\.so\.1/);
    assert.match(log, /^zlib 1\.[\d.]+, header 1\.[\d.]+$/m);
  });

  test('Lua compiles, and its interpreter runs a script of the project', async () => {
    const { archive, root } = sources('lua5.4');
    const id = await fixture.compiled(archive, {
      name: 'lua',
      prefix: '/opt/lua',
      source: root,
      command: 'make linux && make install INSTALL_TOP=/opt/lua',
    });
    const repository = appliance.repository({ files: { 'sum.lua': 'print(_VERSION, 40 + 2)\n' } });
    const { build, log } = await useIn(
      await appliance.project(repository),
      [id],
      'lua sum.lua && command -v lua',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^Lua 5\.4\t42\n\/opt\/lua\/bin\/lua$/m);
  });

  test('Redis compiles, is started by its launch command, and answers a suite', async () => {
    const { archive, root } = sources('redis');
    const id = await fixture.compiled(archive, {
      name: 'redis',
      prefix: '/opt/redis',
      source: root,
      command:
        'make -C src redis-server redis-cli MALLOC=libc OPTIMIZATION=-O0 DEBUG= >/dev/null && install -D -t /opt/redis/bin src/redis-server src/redis-cli',
      launch_command:
        'redis-server --port 7379 --dir /tmp --daemonize yes && while ! redis-cli -p 7379 ping; do sleep 0.1; done',
    });
    const { build, log } = await useIn(
      await appliance.project(),
      [id],
      'redis-cli -p 7379 set greeting hello && redis-cli -p 7379 get greeting',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /\[assay\] launch redis: /);
    assert.match(log, /^PONG$/m);
    assert.match(log, /^OK\nhello$/m);
  });
});

const run = promisify(execFile);

/** The upstream archives of source packages, from the host's Debian mirror, downloaded once. */
async function fetchSources(...packages: string[]) {
  const directory = join(homedir(), '.cache', 'assay-test', 'sources');
  await mkdir(directory, { recursive: true });
  const find = async () => {
    const names = await readdir(directory);
    return new Map(
      packages.flatMap(name => {
        const file = names.find(one => one.startsWith(`${name}_`) && one.includes('.orig.tar.'));
        return file ? [[name, file] as const] : [];
      }),
    );
  };
  let found = await find();
  if (found.size < packages.length) {
    await download(directory, packages);
    found = await find();
  }
  const read = new Map<string, { archive: Buffer; root: string }>();
  for (const [name, file] of found) {
    const path = join(directory, file);
    const { stdout } = await run('tar', ['-tf', path], { maxBuffer: 1 << 26 });
    read.set(name, { archive: await readFile(path), root: stdout.split('/')[0] as string });
  }
  return (name: string) => {
    const source = read.get(name);
    assert.ok(source, `the source package ${name} could not be downloaded`);
    return source;
  };
}

/** Uses a separate directory for apt, so that the host's configuration and downloads stay unchanged. */
async function download(directory: string, packages: readonly string[]): Promise<void> {
  const state = join(directory, '.apt');
  for (const name of ['lists/partial', 'cache/archives/partial', 'part'])
    await mkdir(join(state, name), { recursive: true });
  try {
    const { stdout } = await run('apt-get', [
      'indextargets',
      '--format',
      '$(CREATED_BY) $(REPO_URI) $(CODENAME) $(COMPONENT)',
    ]);
    const lines = stdout.split('\n').flatMap(line => {
      const [kind, uri, codename, component] = line.split(' ');
      return kind === 'Packages' ? [`deb-src ${uri} ${codename} ${component}`] : [];
    });
    await writeFile(join(state, 'sources.list'), [...new Set(lines), ''].join('\n'));
    const options = [
      `Dir::Etc::sourcelist=${state}/sources.list`,
      'Dir::Etc::sourceparts=-',
      `Dir::State::lists=${state}/lists`,
      `Dir::Cache=${state}/cache`,
      'APT::Sandbox::User=root',
      'Acquire::Retries=3',
    ].flatMap(option => ['-o', option]);
    const work = { cwd: join(state, 'part'), timeout: 120_000, maxBuffer: 1 << 24 };
    await run('apt-get', [...options, '-q', 'update'], work);
    await run('apt-get', [...options, '-q', 'source', '--download-only', ...packages], work);
    for (const name of await readdir(work.cwd)) await rename(join(work.cwd, name), join(directory, name));
  } catch (error) {
    throw new Error(
      `the Debian source packages ${packages.join(', ')} could not be downloaded: this test needs apt-get and a mirror that it reaches`,
      { cause: error },
    );
  }
}

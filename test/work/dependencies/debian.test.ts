// Real software from Debian's source packages: a library and an interpreter; uploaded, compiled, used. Larger programs, and
// daemons, are in test/recipes.
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { type DebianSources, fetchSources } from '../../support/debian-sources.ts';
import { type DependencyFixture, openDependencies, PREFIX, useIn } from './fixture.ts';

suite('Debian’s sources', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  let sources: DebianSources;
  before(async () => {
    sources = await fetchSources('zlib', 'lua5.4');
    appliance = await startAppliance({ concurrency: 4, compileSlots: 2 });
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
});

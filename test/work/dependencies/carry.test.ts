// A dependency that one appliance compiled is used by suites of another one, which compiles nothing.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runAssay, temporaryDirectory } from '../../cli/program.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { openDependencies, PREFIX, tarOf, useIn } from './fixture.ts';

const place = temporaryDirectory();
let one: Appliance;
let other: Appliance;
before(async () => {
  [one, other] = await Promise.all([startAppliance(), startAppliance()]);
});
after(async () => {
  await Promise.all([one?.close(), other?.close()]);
  place[Symbol.dispose]();
});

const run = async (appliance: Appliance, ...args: string[]) => {
  const { status, stdout, stderr } = await runAssay([
    'dependency',
    ...args,
    '--json',
    '--data',
    appliance.data,
  ]);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
};

test('a suite uses an imported dependency with its related one, and follows a replacement', async () => {
  const compiling = openDependencies(one);
  const library = (text: string) =>
    tarOf({ 'bin/words': `#!/bin/sh\necho ${text}\n`, 'share/private': 'only for its owner' });
  const libraryCommand = 'cp -R bin share /opt/words && chmod 600 /opt/words/share/private';
  const words = await compiling.compiled(library('hello'), {
    name: 'words',
    prefix: '/opt/words',
    command: libraryCommand,
  });
  await compiling.compiled(tarOf({ 'bin/greet': '#!/bin/sh\necho "$(words), world"\n' }), {
    name: 'greet',
    // The compile uses the related dependency; hard links and symlinks are carried too.
    command: `words && cp -R . ${PREFIX} && cd ${PREFIX}/bin && ln greet hard && ln -s greet soft`,
    launch_command: 'greet >/tmp/launched',
    'related_dependencies[]': words,
  });
  const file = join(place.path, 'greet.assay');
  const { appliance } = await run(one, 'export', 'greet', file);
  const imported = await run(other, 'import', file, '--trust', appliance.fingerprint);
  assert.deepEqual(
    imported.dependencies.map(({ name, action }: Record<string, string>) => [name, action]),
    [
      ['words', 'created'],
      ['greet', 'created'],
    ],
  );
  const [wordsId, greetId] = imported.dependencies.map(({ id }: { id: string }) => id) as [string, string];
  const using = openDependencies(other);
  const record = await using.fetched(greetId);
  assert.equal(record.marketplace_state, 'compiled');
  assert.equal((record.related_dependencies as { name: string }[])[0]?.name, 'words');
  assert.match(await using.log(greetId), /imported from /);
  const project = await other.project(other.repository());
  const command = `hard && soft && cat /tmp/launched && cat /opt/words/share/private`;
  const first = await useIn(project, [greetId], command);
  assert.equal(first.build.build_state, 'passed', first.log);
  assert.match(first.log, /^(hello, world\n){3}only for its owner$/m);

  await compiling.upload(words, library('hello again'));
  assert.equal((await compiling.finished(words)).state, 'compiled');
  const newer = join(place.path, 'words.assay');
  await run(one, 'export', 'words', newer, '--without-source');
  const replaced = await run(other, 'import', newer, '--replace');
  assert.deepEqual(replaced.dependencies, [{ id: wordsId, name: 'words', action: 'replaced' }]);
  const second = await useIn(project, [greetId], command);
  assert.equal(second.build.build_state, 'passed', second.log);
  assert.match(second.log, /^(hello again, world\n){3}/m);
});

// Submodules in builds: fetched with the project's key, pinned by the commit, only from SSH and relative URLs.
import assert from 'node:assert/strict';
import { readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import type { Fields } from '../support/client.ts';
import type { Repository } from '../support/journey.ts';

const gitmodules = (modules: Record<string, string>) =>
  Object.entries(modules)
    .map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`)
    .join('');

describe('Submodules', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3 });
  });
  after(() => assay.close());

  const head = ({ hashes }: Repository) => hashes.at(-1) as string;
  /** A repository with the others as submodules, by path. */
  const containing = (
    modules: Record<string, [url: string, hash: string]>,
    files: Record<string, string> = {},
  ) =>
    assay.repository({
      message: 'First\n',
      files: {
        'README.md': 'outer\n',
        '.gitmodules': gitmodules(
          Object.fromEntries(Object.entries(modules).map(([path, [url]]) => [path, url])),
        ),
        ...files,
      },
      submodules: Object.fromEntries(Object.entries(modules).map(([path, [, hash]]) => [path, hash])),
    });
  const relative = (repository: Repository) => `../${basename(repository.directory)}`;

  async function run(repository: Repository, fields: Fields, command: string) {
    const project = await assay.project(repository, fields);
    await project.suite({ command });
    const ran = await project.run();
    const [build] = ran.builds;
    return {
      project,
      ...ran,
      log: build ? (await project.log(build.id_str as string)).trimEnd() : '',
      build,
    };
  }

  /** lib in lib, which has deep in vendor/deep: each pinned to an older commit. */
  function nested() {
    const deep = assay.repository({ message: 'Deep\n', files: { text: 'deep\n' } });
    const lib = containing({ 'vendor/deep': [relative(deep), head(deep)] }, { text: 'lib\n' });
    const outer = containing({ 'libs/the lib': [lib.url, head(lib)] });
    deep.add({ message: 'Newer\n', files: { text: 'newer\n' } });
    lib.add({ message: 'Newer\n', files: { text: 'newer\n' } });
    return { deep, lib, outer };
  }

  test('are not fetched unless the project says so, and the log names the setting', async () => {
    const { outer } = nested();
    const { log, state } = await run(outer, {}, 'ls -A "libs/the lib" | wc -l');
    assert.equal(state, 'passed', log);
    assert.match(
      log,
      /^\[assay\] the submodules are not fetched \(libs\/the lib\): to fetch them, set the project's "submodules" to "on"\n/,
    );
    assert.match(log, /\n0$/);
  });

  test('are checked out at the pinned commit, as git itself would do', async () => {
    const { lib, outer } = nested();
    const { log, state } = await run(
      outer,
      { submodules: 'on' },
      [
        'set -e',
        'cat "libs/the lib/text"',
        'git status --porcelain',
        'git submodule status',
        'cd "libs/the lib"',
        'git status --porcelain',
        'git log --format=%s',
        'git remote get-url origin',
        'ls -A vendor/deep | wc -l',
        'cat .git',
      ].join('\n'),
    );
    assert.equal(state, 'passed', log);
    assert.match(log, /the submodules of libs\/the lib are not fetched \(vendor\/deep\): .* "recursive"/);
    const printed = log.slice(log.lastIndexOf('[assay]')).split('\n').slice(1);
    assert.deepEqual(printed, [
      'lib',
      ` ${head(lib)} libs/the lib (${head(lib).slice(0, 7)})`,
      'First',
      lib.url,
      '0',
      'gitdir: ../../.git/modules/libs/the lib',
    ]);
  });

  test('of submodules are there too with recursive', async () => {
    const { deep, outer, lib } = nested();
    const { log, state, project, build } = await run(
      outer,
      { submodules: 'recursive' },
      'cat "libs/the lib/vendor/deep/text"; git submodule status --recursive; git status --porcelain',
    );
    assert.equal(state, 'passed', log);
    const printed = log.slice(log.lastIndexOf('[assay]')).split('\n').slice(1);
    assert.deepEqual(printed, [
      'deep',
      ` ${head(lib)} libs/the lib (${head(lib).slice(0, 7)})`,
      ` ${head(deep)} libs/the lib/vendor/deep (${head(deep).slice(0, 7)})`,
    ]);
    assert.doesNotMatch(log, /not fetched/);

    // Each build marks them as used: the sweep removes unused ones.
    const mirrors = join(assay.data, 'mirrors', `${project.id}.git.modules`);
    const paths = readdirSync(mirrors).map(name => join(mirrors, name));
    assert.equal(paths.length, 2);
    for (const path of paths) utimesSync(path, 1, 1);
    await project.finishedBuild(await project.rerun(build?.id_str as string));
    for (const path of paths) assert.ok(Date.now() - statSync(path).mtimeMs < 3600_000);

    // Their mirrors are not part of a backup.
    rmSync(mirrors, { recursive: true });
    const again = await project.finishedBuild(await project.rerun(build?.id_str as string));
    assert.equal(again.build_state, 'passed', String(again.error));
    assert.equal(readdirSync(mirrors).length, 2);
  });

  test('that move to another commit, even one that no branch contains, are followed', async () => {
    const lib = assay.repository({ message: 'One\n', files: { text: 'one\n' } });
    const outer = containing({ lib: [relative(lib), head(lib)] });
    const { project, log } = await run(outer, { submodules: 'on' }, 'cat lib/text');
    assert.match(log, /\none$/);
    const [second] = lib.add({ message: 'Two\n', files: { text: 'two\n' } });
    lib.git('update-ref', 'refs/heads/main', lib.hashes[0] as string);
    outer.add({ message: 'Move\n', submodules: { lib: second as string } });
    const moved = await project.run();
    assert.equal(moved.state, 'passed', String(moved.request.error));
    assert.match(await project.log(moved.builds[0]?.id_str as string), /\ntwo\n$/);
  });

  test('from anywhere but SSH are refused with a reason, and nothing else is', async () => {
    const lib = assay.repository();
    for (const url of ['https://git.example.org/lib.git', lib.directory, `file://${lib.directory}`]) {
      const outer = containing({ lib: [url, head(lib)] });
      const { request } = await run(outer, { submodules: 'on' }, 'true');
      assert.equal(request.build_state, 'errored', url);
      assert.match(request.error as string, /^The submodule lib is at ".*": only addresses over SSH/, url);
    }
    const outer = containing({ lib: ['https://git.example.org/lib.git', head(lib)] });
    assert.equal((await run(outer, {}, 'true')).state, 'passed', 'where they are off it does not matter');
  });

  test('that cannot be fetched make the request errored, and are named', async () => {
    const lib = assay.repository();
    const missing = containing({ lib: ['../no-such.git', head(lib)] });
    const { request } = await run(missing, { submodules: 'on' }, 'true');
    assert.match(
      request.error as string,
      /^The submodule lib could not be fetched: The host .* has no such repository/,
    );
    assert.ok(!(request.error as string).includes(assay.data));
    const unknown = containing({ lib: [relative(lib), 'f'.repeat(40)] });
    const pinned = await run(unknown, { submodules: 'on' }, 'true');
    assert.match(
      pinned.request.error as string,
      /^The submodule lib could not be fetched: its repository .* has no commit f{40}/,
    );
  });

  test('that would leave the checkout, or contain an option, are refused', async () => {
    const lib = assay.repository();
    const hash = head(lib);
    const hostile = [
      `[submodule "../../../tmp/x"]\n\tpath = lib\n\turl = ${lib.url}\n`,
      `[submodule "lib"]\n\tpath = lib\n\turl = -oProxyCommand=touch\n`,
      `[submodule "lib"]\n\tpath = -lib\n\turl = ${lib.url}\n`,
      '[submodule "lib"]\n\tpath = lib\n\turl = "git@-oProxyCommand=x:y.git"\n',
      '[submodule "lib"]\n\tpath = lib\n\turl = "ext::sh -c touch% /tmp/x"\n',
      `[submodule "lib"]\n\tpath = lib\n\turl = ${lib.url}\n[submodule "lib/x"]\n\tpath = x\n\turl = ${lib.url}\n`,
      '[submodule "lib"\n\tpath',
    ];
    for (const description of hostile) {
      const outer = assay.repository({
        files: { '.gitmodules': description },
        submodules: { lib: hash, '-lib': hash, x: hash },
      });
      const { request } = await run(outer, { submodules: 'recursive' }, 'true');
      assert.equal(request.build_state, 'errored', description);
      assert.match(
        request.error as string,
        /damaged or dangerous|only addresses over SSH|names inside one another|cannot be read|not a plain one/,
      );
    }
  });

  test('inside each other are followed to a limited depth', async () => {
    let inner = assay.repository();
    for (let depth = 0; depth < 6; depth += 1) inner = containing({ in: [relative(inner), head(inner)] });
    const { request } = await run(inner, { submodules: 'recursive' }, 'true');
    assert.match(request.error as string, /more than 5 deep/);
  });
});

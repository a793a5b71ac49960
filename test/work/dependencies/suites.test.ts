// Dependencies in suites: prefixes, unions, search paths, daemons, related dependencies.
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { newSecret } from '../../../src/domain/secret.ts';
import { createAccount } from '../../../src/store/accounts.ts';
import { listSteps } from '../../../src/store/result/runs.ts';
import { type Appliance, docker, startAppliance } from '../../support/appliance.ts';
import { basic } from '../../support/client.ts';
import { createJourney, type ProjectJourney } from '../../support/journey.ts';
import { type DependencyFixture, openDependencies, PREFIX, tarOf, useIn } from './fixture.ts';

const script = (text: string) => `#!/bin/sh\n${text}\n`;
const RELATED = 'related_dependencies[]';

suite('dependencies in suites', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  /** Each test has its own project with its own suites. */
  let project: () => Promise<ProjectJourney>;
  before(async () => {
    appliance = await startAppliance({ concurrency: 3, compileSlots: 2 });
    fixture = openDependencies(appliance);
    const repository = appliance.repository();
    project = () => appliance.project(repository);
  });
  after(() => appliance.close());

  test('a prefix is read-only at its path, with its directories on the search paths', async () => {
    const prefix = '/opt/tools';
    const id = await fixture.compiled(
      tarOf({ 'bin/tool': script('echo tool'), 'sbin/daemon': script('echo daemon'), 'lib/x': '' }),
      { prefix, command: `cp -R * ${prefix}` },
    );
    const { build, log } = await useIn(
      await project(),
      [id],
      'tool && command -v tool && daemon && env | grep = | sort && ! touch /opt/tools/x',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^tool\n\/opt\/tools\/bin\/tool\ndaemon$/m);
    for (const line of [
      'ACLOCAL_PATH=/opt/tools/share/aclocal',
      'CMAKE_PREFIX_PATH=/opt/tools',
      'CPATH=/opt/tools/include',
      'LANG=C.UTF-8',
      'LD_LIBRARY_PATH=/opt/tools/lib:/opt/tools/lib64',
      'LIBRARY_PATH=/opt/tools/lib:/opt/tools/lib64',
      'MANPATH=/opt/tools/share/man:',
      'PATH=/opt/tools/bin:/opt/tools/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      'PKG_CONFIG_PATH=/opt/tools/lib/pkgconfig:/opt/tools/lib64/pkgconfig:/opt/tools/share/pkgconfig',
    ])
      assert.ok(log.split('\n').includes(line), `${line} is missing in ${log}`);
  });

  test('the variables of dependencies reach suites and compiles, and those of the suite win', async () => {
    const base = await fixture.compiled(tarOf({ 'lib/x': 'x' }), {
      name: 'base of variables',
      prefix: '/opt/base',
      command: 'cp -R lib /opt/base',
      environment: 'ROOT=$PREFIX\nBOTH=base\nRAW=$(id) `id` $HOME "\'\\\nCPATH=/own/include\nOWN=base',
      library_path: 'false',
    });
    const show =
      'for name in ROOT BOTH RAW CPATH OWN LANG LD_LIBRARY_PATH; do eval "echo \\"$name=<\\$$name>\\""; done';
    const user = await fixture.compile(tarOf({ file: 'x' }), {
      environment: `BOTH=\${PREFIX}/user`,
      command: `${show}; cp file ${PREFIX}`,
      [RELATED]: [base],
    });
    const shown = (both: string, rest: string) =>
      `ROOT=</opt/base>\nBOTH=<${both}>\nRAW=<$(id) \`id\` $HOME "'\\>\nCPATH=<${rest}\n`;
    assert.ok(user.log.includes(shown('base', '/opt/base/include:/own/include>\nOWN=<base>')), user.log);
    assert.match(user.log, /^LD_LIBRARY_PATH=<>$/m);
    const inProject = await project();
    const suiteId = await inProject.suite({ command: show, variables: { OWN: 'suite', LANG: 'C' } });
    await inProject.ask('POST', `/suites/${suiteId}/dependencies`, { dependency_id: user.id });
    const { log } = (await inProject.run()).of(suiteId);
    const paths = `${PREFIX}/include:/opt/base/include:/own/include>\nOWN=<suite>\nLANG=<C>`;
    assert.ok(log.includes(shown(`${PREFIX}/user`, paths)), log);
    assert.ok(log.includes(`LD_LIBRARY_PATH=<${PREFIX}/lib:${PREFIX}/lib64>`), log);
  });

  test('dependencies with the same prefix appear as a union, where the earlier one wins', async () => {
    const first = await fixture.compiled(
      tarOf({ 'bin/who': script('echo first'), 'etc/a': 'a', mixed: 'file' }),
    );
    const second = await fixture.compiled(
      tarOf({
        'bin/who': script('echo second'),
        'bin/other': script('echo other'),
        'mixed/x': 'x',
        'etc/b': 'b',
      }),
    );
    const show = `who; other; ls ${PREFIX}/etc; ls -ld ${PREFIX}/mixed | cut -c1; ! touch ${PREFIX}/x`;
    const inProject = await project();
    const forth = await useIn(inProject, [first, second], show);
    assert.match(forth.log, /^first\nother\na\nb\n-$/m);
    const back = await useIn(inProject, [second, first], show);
    assert.match(back.log, /^second\nother\na\nb\nd$/m);
  });

  test('a prefix inside another one is added to the content of the outer one', async () => {
    const outer = await fixture.compiled(tarOf({ 'share/outer': 'o', 'bin/outer': script('echo outer') }), {
      prefix: '/opt/outer',
      command: 'cp -R . /opt/outer',
    });
    const inner = await fixture.compiled(tarOf({ inner: 'i' }), {
      prefix: '/opt/outer/share',
      command: 'cp -R . /opt/outer/share',
    });
    const deep = await fixture.compiled(tarOf({ deep: 'd' }), {
      prefix: '/opt/outer/new/place',
      command: 'cp -R . /opt/outer/new/place',
    });
    const { build, log } = await useIn(
      await project(),
      [inner, outer, deep],
      'outer; ls /opt/outer/share /opt/outer/new/place',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^outer$/m);
    assert.match(log, /new\/place:\ndeep\n\n\/opt\/outer\/share:\ninner\nouter$/m);
  });

  test('related dependencies are available to the compile, and in suites', async () => {
    const library = await fixture.compiled(tarOf({ 'bin/base': script('echo base') }), { name: 'library' });
    const middle = await fixture.compiled(tarOf({ file: 'x' }), {
      name: 'middle',
      command: `base && mkdir -p ${PREFIX}/bin && echo 'echo middle; base' >${PREFIX}/bin/middle && chmod +x ${PREFIX}/bin/middle`,
      [RELATED]: [library],
    });
    const top = await fixture.compile(tarOf({ file: 'x' }), {
      prefix: '/opt/top',
      command: 'middle >/opt/top/said && ls /srv/dependency/bin',
      [RELATED]: [middle],
    });
    assert.equal(top.state, 'compiled', top.log);
    assert.match(top.log, /^base\nmiddle$/m);
    const { build, log } = await useIn(await project(), [top.id], 'cat /opt/top/said; middle; echo "$PATH"');
    assert.equal(build.build_state, 'passed', log);
    assert.match(
      log,
      /^middle\nbase\nmiddle\nbase\n\/opt\/top\/bin:\/opt\/top\/sbin:\/srv\/dependency\/bin:/m,
    );
  });

  test('two with the same content at the same prefix appear as one', async () => {
    const archive = tarOf({ 'bin/same': script('echo the same') });
    const ids = [await fixture.compiled(archive), await fixture.compiled(archive)];
    ids.push(await fixture.compiled(tarOf({ 'bin/other': script('echo another') })));
    const { build, log } = await useIn(await project(), ids, 'same; other');
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^the same\nanother$/m);
  });

  test('a dependency keeps only what its own compile wrote, not files of others', async () => {
    const library = await fixture.compiled(tarOf({ 'a/kept': 'old', 'a/gone': 'x' }));
    const own = await fixture.compiled(tarOf({ file: 'x' }), {
      command: `cat ${PREFIX}/a/kept && echo new >${PREFIX}/a/kept && rm ${PREFIX}/a/gone && cp file ${PREFIX}`,
      [RELATED]: [library],
    });
    const list = `find ${PREFIX} -type f | sort; cat ${PREFIX}/a/kept`;
    const { log } = await useIn(await project(), [own], list);
    assert.match(log, /dependency\/a\/gone\n.*dependency\/a\/kept\n.*dependency\/file\nnew$/m);
    const alone = await useIn(await project(), [library], list);
    assert.match(alone.log, /a\/gone\n.*a\/kept\nold$/m);
  });

  test('launch commands run in order, related ones first, as daemons that end with the suite', async () => {
    const base = await fixture.compiled(tarOf({ file: '1' }), {
      name: 'base daemon',
      launch_command: 'echo launched base in "$PWD" as "$(id -u)"; touch /tmp/base',
    });
    const daemon = await fixture.compiled(tarOf({ file: '2' }), {
      name: 'daemon',
      launch_command: '[ -e /tmp/base ] && (while :; do date >/tmp/alive; sleep 0.1; done >/dev/null 2>&1 &)',
      [RELATED]: [base],
    });
    const { build, log } = await useIn(
      await project(),
      [daemon],
      'while [ ! -s /tmp/alive ]; do sleep 0.05; done; echo it lives',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(
      log,
      /\[assay\] launch base daemon: .*\nlaunched base in \/srv\/project as 1000\n\[assay\] base daemon started in \d+\.\d s\n\[assay\] launch daemon: .*\n\[assay\] daemon started in \d+\.\d s\n\[assay\] suite /,
    );
    assert.match(log, /^it lives$/m);
    const [steps] = listSteps(appliance.app.db, [BigInt(build.id_str as string)]);
    assert.deepEqual(Object.keys(steps ?? {}), [
      'prepare',
      'checkout',
      'launch base daemon',
      'launch daemon',
      'command',
      'collect',
    ]);
  });

  test('a daemon has a directory of its own to write to, which the suite finds', async () => {
    const daemon = (name: string) =>
      fixture.compiled(tarOf({ file: name }), {
        name,
        launch_command: 'pwd >"$ASSAY_RUN/log"; ls -d "$ASSAY_RUN"',
        environment: `${name.toUpperCase().replaceAll(/[^A-Z]/g, '')}=$ASSAY_RUN`,
      });
    const ids = [await daemon('Data base / 1'), await daemon('Data-base-1: é')];
    const { build, log } = await useIn(
      await project(),
      ids,
      'cat /srv/run/*/log; ls /srv/run; echo "<$DATABASE>"; echo "<$ASSAY_RUN>"; touch /srv/run/Data-base-1/x',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^\/srv\/run\/Data-base-1\n[\s\S]*^\/srv\/run\/Data-base-1-2$/m);
    assert.match(
      log,
      /^\/srv\/project\n\/srv\/project\nData-base-1\nData-base-1-2\n<\/srv\/run\/Data-base-1>\n<>$/m,
    );
  });

  test('a launch command that does not return in time makes the build errored, and says what to do', async () => {
    const id = await fixture.compiled(tarOf({ file: 'x' }), {
      name: 'Foreground',
      launch_command: 'echo ready; sleep 1000',
      launch_timeout: '5',
    });
    const { build, log } = await useIn(await project(), [id], 'echo never');
    assert.equal(build.build_state, 'errored');
    assert.match(
      String(build.error),
      /^The launch command of Foreground did not return within 5 s\. Start a daemon in the background,/,
    );
    assert.match(
      log,
      /launch Foreground: .*\nready\n\[assay\] The launch command of Foreground did not return/,
    );
    assert.doesNotMatch(log, /^never$/m);
  });

  test('a launch command that fails makes the build errored', async () => {
    const id = await fixture.compiled(tarOf({ file: 'x' }), { launch_command: 'echo no port left; exit 3' });
    const { build, log } = await useIn(await project(), [id], 'echo never');
    assert.equal(build.build_state, 'errored');
    assert.match(log, /^no port left$/m);
    assert.doesNotMatch(log, /^never$/m);
  });

  test('a suite whose dependency never compiled is errored, with the reason', async () => {
    const waiting = await fixture.create({ name: 'not uploaded' });
    const inProject = await project();
    const early = await useIn(inProject, [waiting], 'true');
    assert.equal(early.build.build_state, 'errored');
    assert.match(early.log, /dependency not uploaded has not been compiled yet/);
    const failed = await fixture.compile(tarOf({ file: 'x' }), {
      name: 'broken',
      command: `false ${PREFIX}`,
    });
    const late = await useIn(inProject, [failed.id], 'true');
    assert.match(late.log, /dependency broken has never been compiled: its compile failed/);
    const related = await fixture.compile(tarOf({ file: 'x' }), { [RELATED]: [failed.id] });
    assert.equal(related.state, 'compile_failed');
    assert.equal(related.record.error, 'It relates to broken, which could not be compiled.');
  });

  test('suites use the last successful compile, at its prefix, until a new one succeeds', async () => {
    const inProject = await project();
    const id = await fixture.compiled(tarOf({ 'bin/version': script('echo one') }));
    await appliance.ask('PUT', `/dependencies/${id}`, {
      prefix: '/opt/moved',
      command: '[ -e go ] && cp -R . /opt/moved',
    });
    await fixture.upload(id, tarOf({ 'bin/version': script('echo two') }));
    assert.equal((await fixture.finished(id)).state, 'compile_failed');
    const before = await useIn(inProject, [id], 'version; command -v version');
    assert.match(before.log, /^one\n\/srv\/dependency\/bin\/version$/m);
    await fixture.upload(id, tarOf({ go: '', 'bin/version': script('echo three') }));
    assert.equal((await fixture.finished(id)).state, 'compiled');
    const later = await useIn(inProject, [id], 'version; command -v version');
    assert.match(later.log, /^three\n\/opt\/moved\/bin\/version$/m);
  });

  test('a volume that Docker lost is restored before the suite starts', async () => {
    const first = await fixture.compiled(tarOf({ 'bin/lost': script('echo back again') }));
    const second = await fixture.compiled(tarOf({ 'bin/too': script('echo me too') }));
    const inProject = await project();
    await useIn(inProject, [first, second], 'lost');
    const volumes = await docker(
      'volume',
      'ls',
      '-q',
      '--filter',
      `label=assay.instance=${appliance.instance}`,
    );
    for (const name of volumes.split('\n'))
      if (/-(artifact|union)-/.test(name))
        await docker('volume', 'rm', name).catch(() => 'in use by another test');
    const { build, log } = await useIn(inProject, [first, second], 'lost; too');
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^back again\nme too$/m);
  });

  test('another account keeps what it used when a dependency is no longer shared, until it is shared again', async () => {
    const [email, key] = ['user@example.org', newSecret('assay')];
    createAccount(appliance.app.db, { email, kind: 'user', admin: false, passwordHash: null, apiKey: key });
    const user = createJourney({ ...appliance, as: basic(email, key) });
    const { ask } = appliance;
    const versionOf = (name: string, text: string) => tarOf({ [`bin/${name}`]: script(`echo ${text}`) });
    const base = await fixture.compiled(versionOf('base', 'base 1'), { name: 'kept base' });
    const tool = await fixture.compiled(versionOf('tool', 'tool 1'), {
      name: 'kept tool',
      prefix: '/opt/tool',
      command: 'cp -R . /opt/tool',
      launch_command: 'echo launched 1 >/tmp/launched',
      [RELATED]: [base],
    });
    await ask('POST', `/dependencies/${tool}/share`);
    const theirs = await user.project(appliance.repository());
    const suiteId = await theirs.suite({ command: 'tool; base; cat /tmp/launched' });
    await user.ask('POST', `${theirs.path}/suites/${suiteId}/dependencies`, { dependency_id: tool });
    const program = openDependencies({ ...user, client: appliance.client, as: basic(email, key) });
    const compileProgram = async (id: string, text: string) => {
      await program.upload(id, tarOf({ file: text }));
      const { state, log } = await program.finished(id);
      assert.equal(state, 'compiled', log);
      return log;
    };
    const programId = await program.create({ command: `tool; cp file ${PREFIX}`, [RELATED]: [tool] });
    await compileProgram(programId, 'first');

    await ask('POST', `/dependencies/${tool}/unshare`);
    await ask('PUT', `/dependencies/${tool}`, { launch_command: 'echo launched 2 >/tmp/launched' });
    for (const [id, name] of [
      [base, 'base'],
      [tool, 'tool'],
    ] as const) {
      await fixture.upload(id, versionOf(name, `${name} 2`));
      assert.equal((await fixture.finished(id)).state, 'compiled');
    }
    const kept = (await theirs.run()).of(suiteId);
    assert.match(kept.log, /^tool 1\nbase 1\nlaunched 1$/m);
    assert.match(await compileProgram(programId, 'second'), /^tool 1$/m);
    const own = await useIn(await project(), [tool], 'tool; base; cat /tmp/launched');
    assert.match(own.log, /^tool 2\nbase 2\nlaunched 2$/m);

    await ask('POST', `/dependencies/${tool}/share`);
    assert.match((await theirs.run()).of(suiteId).log, /^tool 2\nbase 2\nlaunched 2$/m);
    assert.match(await compileProgram(programId, 'third'), /^tool 2$/m);
  });
});

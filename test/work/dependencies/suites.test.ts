// Dependencies in suites: prefixes, unions, search paths, daemons, related dependencies.
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { type Appliance, docker, startAppliance } from '../../support/appliance.ts';
import type { ProjectJourney } from '../../support/journey.ts';
import { type DependencyFixture, openDependencies, PREFIX, tarOf, useIn } from './fixture.ts';

const script = (text: string) => `#!/bin/sh\n${text}\n`;
const RELATED = 'related_dependencies[]';

suite('dependencies in suites', { concurrency: 2 }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  /** Each test has its own project with its own suites. */
  let project: () => Promise<ProjectJourney>;
  before(async () => {
    appliance = await startAppliance({ concurrency: 2 });
    fixture = openDependencies(appliance);
    const repository = appliance.repository();
    project = () => appliance.project(repository);
  });
  after(() => appliance.close());

  test('a prefix is read-only at its path, with its directories on the search paths', async () => {
    const prefix = '/opt/tools';
    const id = await fixture.compiled(tarOf({ 'bin/tool': script('echo tool') }), {
      prefix,
      command: `mkdir -p ${prefix}/lib/pkgconfig && cp -R bin ${prefix} && : >${prefix}/lib/pkgconfig/t.pc`,
    });
    const { build, log } = await useIn(
      await project(),
      [id],
      'tool && command -v tool && echo "$LD_LIBRARY_PATH $PKG_CONFIG_PATH" && ! touch /opt/tools/x',
    );
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^tool\n\/opt\/tools\/bin\/tool\n\/opt\/tools\/lib \/opt\/tools\/lib\/pkgconfig$/m);
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
    assert.match(log, /^middle\nbase\nmiddle\nbase\n\/opt\/top\/bin:\/srv\/dependency\/bin:/m);
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
      /\[assay\] launch base daemon: .*\nlaunched base in \/srv\/project as 1000\n\[assay\] launch daemon:/,
    );
    assert.match(log, /^it lives$/m);
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
    const related = await fixture.compile(tarOf({ file: 'x' }), { [RELATED]: [waiting] });
    assert.equal(related.state, 'compile_failed');
    assert.match(related.record.error as string, /not uploaded has not been compiled yet/);
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
});

// The commands that read results and act on builds: what they print through a pipe and on a terminal, and their exit statuses.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { findBuild, recordNode, rerunBuild } from '../../src/store/builds.ts';
import { moveBuild } from '../../src/store/transition.ts';
import type { Wire } from '../support/client.ts';
import type { ProjectJourney } from '../support/journey.ts';
import { git } from '../support/repository.ts';
import { type ClientWorld, type RunOptions, startClientWorld } from './fixture.ts';

/** Sets the title of a terminal and clears its screen, if it is printed as it is. */
const HOSTILE = '\x1b]0;owned\x07\x1b[2J';

const REPORT = (isFailing: boolean) =>
  `<testsuite><testcase classname="footer" name="shows the \u009b31myear" time="0.25">${isFailing ? '<failure message="expected 2026&#10;but got 2025">at footer.c:7</failure>' : ''}</testcase><testcase classname="header" name="has a title" time="1.5"/></testsuite>`;

/** The file `status` of the commit decides. */
const UNIT = `mkdir -p out/coverage; echo page > out/coverage/index.html; head -c 200000 /dev/zero > out/app
cp report.xml out/junit.xml; echo "footer.c:7: expected 2026"; exit $(cat status)`;

const lines = (text: string) => text.trimEnd().split(/\r?\n/);
const records = (text: string) => lines(text).map(line => JSON.parse(line));

describe('Commands that read results', () => {
  let world: ClientWorld;
  let project: ProjectJourney;
  let path: string;
  let passed: Wire;
  let failed: Wire;
  let unitId: string;
  let unit: Wire;
  let lint: Wire;
  const run = (args: readonly string[], options: RunOptions = {}) =>
    world.run(args, { in: path, ...options });
  const output = async (args: readonly string[], options: RunOptions = {}) => {
    const { status, stdout, stderr } = await run(args, options);
    assert.equal(status, 0, `${args.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  };

  before(async () => {
    world = await startClientWorld({ concurrency: 4 });
    const repository = world.repository({
      message: 'First\n',
      files: { status: '0', 'report.xml': REPORT(false) },
    });
    ({ project, path } = await world.checkout(repository));
    unitId = await project.suite({
      name: 'unit',
      command: UNIT,
      artifacts: 'out/**',
      reports: 'out/junit.xml',
      rules: [['commit.branches', 'does_not_contain', 'slow']],
    });
    const lintId = await project.suite({ name: 'lint', command: 'echo fine' });
    passed = (await project.run()).request;
    repository.add({
      message: `${HOSTILE}Fix the footer\n\nIt was wrong.\n`,
      files: { status: '3', 'report.xml': REPORT(true) },
    });
    const ran = await project.run();
    failed = ran.request;
    unit = ran.of(unitId).build;
    lint = ran.of(lintId).build;
  });
  after(() => world.close());

  it('builds lists the newest build requests, as wide as the terminal', async () => {
    const piped = lines(await output(['builds']));
    assert.equal(piped.length, 2);
    assert.match(
      piped[0] ?? '',
      /^failed {2}\d+ {2}main {2}\S+owned\S+Fix the footer {2}unit failed, 1 passed {2}\d+ s {2}just now {2}[0-9a-f]{8}$/,
    );
    assert.ok(piped[0]?.includes(failed.id_str as string) && piped[1]?.includes(passed.id_str as string));
    assert.match(piped[1] ?? '', /^passed .* First +2 passed /);
    for (const columns of [80, 120]) {
      const screen = lines(await output(['builds'], { columns }));
      assert.equal(screen.length, 3, 'one line for each, and the heads of the columns');
      const plain = screen.map(line => line.replaceAll(/\x1b\[\d*m/g, ''));
      for (const line of plain) {
        assert.ok(line.length <= columns, `${line.length} columns: ${line}`);
        assert.doesNotMatch(line, /[\x00-\x1f\x7f-\x9f]/, 'a commit cannot control the terminal');
      }
      assert.match(screen[1] ?? '', /^\x1b\[31mfailed\x1b\[0m {2}\d+ /);
    }
    const colourless = await output(['builds'], { columns: 80, env: { NO_COLOR: '1' } });
    assert.doesNotMatch(colourless, /\x1b/);
    assert.deepEqual(
      records(await output(['builds', '--json', '--state', 'passed', '--branch', 'main'])).map(
        ({ id_str: id }) => id,
      ),
      [passed.id_str],
    );
    assert.equal(await output(['builds', '--json', '--branch', 'nowhere']), '');
    assert.equal(lines(await output(['builds', '--limit', '1'])).length, 1);
  });

  it('builds REQUEST lists its builds, also by the address of a page, from anywhere', async () => {
    const text = await output(['builds', failed.id_str as string]);
    const page = `${world.client.origin}/ui/projects/${project.id}/commits/${failed.commit_id_str}`;
    assert.ok(lines(text).includes(page), text);
    assert.match(
      text,
      new RegExp(`^failed  ${unit.id_str}  unit  \\d+ s  3  1 of 2 failed, 1 new  3 \\(.*KiB\\)$`, 'm'),
    );
    assert.match(text, new RegExp(`^passed  ${lint.id_str}  lint  \\d+ s  0$`, 'm'));
    for (const address of [
      page,
      `${world.client.origin}/ui/projects/${project.id}/builds/${unit.id_str}/tests?q=x`,
    ])
      assert.equal(await output(['builds', address], { in: world.directory }), text);
    const built = records(await output(['builds', failed.id_str as string, '--json']));
    assert.deepEqual(
      built.map(({ suite, build_state: state }) => [suite, state]),
      [
        ['unit', 'failed'],
        ['lint', 'passed'],
      ],
    );
  });

  it('logs prints the log of the build that failed, byte for byte', async () => {
    const log = await project.log(unit.id_str as string);
    assert.equal(await output(['logs']), log);
    assert.equal(await output(['logs', '--suite', 'LINT']), await project.log(lint.id_str as string));
    const named = ['logs', unit.id_str as string, '--project', project.id];
    assert.equal(await output(named, { in: world.directory }), log);
    const step = log.slice(log.indexOf('[assay] suite unit'));
    assert.ok(step.length < log.length);
    assert.equal(await output(['logs', '--failed']), step);
    const timed = lines(await output(['logs', '--times']));
    assert.ok(timed.every(line => /^\d\d:\d\d:\d\d {2}/.test(line)));
    assert.deepEqual(
      timed.map(line => line.slice(10)),
      lines(log),
    );
    const objects = records(await output(['logs', '--json']));
    assert.deepEqual(
      objects.map(({ text }) => text),
      lines(log),
    );
    assert.equal(objects[1].offset, Buffer.byteLength(`${lines(log)[0]}\n`));
    assert.ok(Math.abs(Date.parse(objects[1].time) - Date.now()) < 600_000);
    const several = await run(['logs', passed.id_str as string]);
    assert.equal(several.status, 2);
    assert.match(several.stderr, /--suite NAME[\s\S]*unit {2}passed\n.*lint {2}passed/);
    const quiet = await run(['logs', '--failed', passed.id_str as string]);
    assert.deepEqual([quiet.status, quiet.stdout], [0, '']);
  });

  it('logs -f follows a build from its first byte, and exits with its result', async () => {
    await project.suite({
      name: 'slow',
      command: 'echo begin; sleep 600',
      rules: [['commit.branches', 'contains', 'slow']],
    });
    project.repository.git('branch', 'slow', 'main~1');
    git(path, 'checkout', '--quiet', '-b', 'slow');
    const request = await project.request('slow');
    const [piped, shown] = await Promise.all(
      [{}, { columns: 80 }].map(options =>
        world.start(['logs', '-f', '--suite', 'slow'], { in: path, ...options }),
      ),
    );
    assert(piped && shown);
    await Promise.all([piped.until(/^begin$/m), shown.until(/^begin\r$/m)]);
    const canceled = await run(['cancel']);
    assert.equal(canceled.status, 0);
    assert.match(canceled.stdout, new RegExp(`request ${request} is being canceled`));
    const ended = await piped.ended;
    assert.equal(ended.status, 4, ended.stderr);
    const build = (await project.buildsOf(request)).find(one => one.build_state === 'canceled') as Wire;
    assert.equal(ended.stdout, await project.log(build.id_str as string));
    const onScreen = await shown.ended;
    assert.equal(onScreen.status, 4);
    assert.match(onScreen.stdout, /Canceled after \d+ s/);
    const again = await run(['cancel', build.id_str as string]);
    assert.match(again.stdout, /has ended already: canceled/);
    git(path, 'checkout', '--quiet', 'main');
  });

  it('exits with the status that the manual lists', async () => {
    const { db } = world.app;
    const first = findBuild(db, BigInt(project.id), BigInt(unit.id_str as string));
    assert(first);
    const suite = { id: BigInt(unitId), name: 'unit' };
    // In one transaction, so that the server starts none of them.
    const [errored, timedOut] = db.write(() =>
      (['error', 'time_out'] as const).map(event => {
        const { id } = rerunBuild(db, first, suite);
        moveBuild(db, id, 'start', {});
        recordNode(db, id, 'builder-1');
        moveBuild(db, id, event, { error: 'No reason.' });
        return String(id);
      }),
    ) as [string, string];
    const ofSeveralNodes = await output(['builds', String(first.buildRequestId)]);
    assert.match(ofSeveralNodes, new RegExp(`^timed out +${timedOut} .* builder-1  No reason\\.$`, 'm'));
    const elsewhere = { ASSAY_URL: 'https://127.0.0.1:1' };
    for (const [args, expected, env = {}] of [
      [['logs', '-f', lint.id_str], 0],
      [['logs', '-f', unit.id_str], 1],
      [['logs', '-f', errored], 3],
      [['logs', '-f', timedOut], 3],
      [['logs', unit.id_str], 0],
      [['logs', '1'], 5],
      [['logs', '--branch', 'nowhere'], 5],
      [['logs', '--suite', 'nothing'], 5],
      [['builds', '--project', 'Nothing'], 5],
      [['artifacts', 'get', lint.id_str], 5],
      [['artifacts', 'get', unit.id_str, 'nothing'], 5],
      [['diff', lint.id_str, '--against', unit.id_str], 5],
      [['builds'], 5, { ASSAY_TOKEN: 'token_wrong' }],
      [['logs'], 5, { ASSAY_TOKEN: '' }],
      [['builds'], 6, elsewhere],
      [['search', 'text'], 6, elsewhere],
      [['logs', 'main'], 2],
      [['logs', '-f', '--failed'], 2],
      [['logs', '--nothing'], 2],
      [['builds', '--state', 'sad'], 2],
      [['builds', '--limit', '0'], 2],
      [['tests', '--new', '--flaky'], 2],
      [['search'], 2],
      [['search', 'a'], 2],
      [['diff', '--against', 'x'], 2],
      [['open', 'https://other.example.org/ui/projects/1/builds/2'], 2],
      [['artifacts'], 2],
    ] as [string[], number, Record<string, string>?][]) {
      const { status, stdout, stderr } = await run(args, { env });
      assert.equal(status, expected, `${args.join(' ')} ${JSON.stringify(env)}: ${stdout}${stderr}`);
      if (expected !== 0 && expected !== 1 && expected !== 3) assert.match(stderr, /^assay: /);
    }
  });

  it('tests lists failures with their messages, and slow tests', async () => {
    const text = await output(['tests', unit.id_str as string]);
    assert.deepEqual(lines(text), [
      `unit  1 of 2 failed, 1 new  build ${unit.id_str}`,
      '  failed  footer › shows the \ufffd31myear  (new, 250 ms)',
      '      expected 2026',
      '      but got 2025',
      '      at footer.c:7',
    ]);
    assert.equal(records(await output(['tests', unit.id_str as string, '--new', '--json'])).length, 1);
    assert.equal(records(await output(['tests', unit.id_str as string, '--all', '--json'])).length, 2);
    assert.match(await output(['tests', '--slow']), /^unit\n {2}1\.5 s +header › has a title\n/);
    const none = await run(['tests', '--flaky']);
    assert.deepEqual([none.status, none.stdout, none.stderr], [0, '', 'No test is flaky.\n']);
  });

  it('search prints lines with the addresses of their pages, of all projects or of one', async () => {
    const page = `${world.client.origin}/ui/projects/${project.id}/builds/${unit.id_str}`;
    const found = lines(await output(['search', 'EXPECTED 2026'], { in: world.directory }));
    assert.ok(
      found.some(line => line.startsWith(`${page}#L`) && line.endsWith(': footer.c:7: expected 2026')),
      found.join('\n'),
    );
    const [object] = records(
      await output(['search', 'expected', '--json', '--limit', '1', '--state', 'failed']),
    );
    assert.equal(object.url, `${page}#L${object.line}`);
    const none = await run(['search', 'EXPECTED', '--case', '--project', project.id]);
    assert.deepEqual([none.status, none.stdout, none.stderr], [0, '', 'Nothing found.\n']);
  });

  it('diff shows the likeliest cause first', async () => {
    const text = await output(['diff', unit.id_str as string]);
    assert.match(
      text,
      /^unit {2}build \d+, failed\ncompared with build \d+, passed [\s\S]*Most likely cause first\n {2}1\. /,
    );
    assert.match(text, /exit code: 0 → 3\n/);
    assert.match(text, /Files\n {2}M {2}report\.xml\n {2}M {2}status\n/);
    assert.match(text, /Tests that fail now\n {2}footer › shows the \ufffd31myear\n/);
    const [object] = records(await output(['diff', unit.id_str as string, '--json']));
    assert.equal(object.chosen, 'branch');
  });

  it('open prints the address, and passes it to the browser', async () => {
    const page = `${world.client.origin}/ui/projects/${project.id}`;
    assert.equal(await output(['open', unit.id_str as string]), `${page}/builds/${unit.id_str}\n`);
    assert.equal(await output(['open', '--branch', 'nowhere']), `${page}\n`);
    const opened = join(world.directory, 'opened');
    const browser = join(world.directory, 'browser');
    execFileSync('mkfifo', [opened]);
    writeFileSync(browser, `#!/bin/sh\nprintf %s "$1" > ${opened}\n`, { mode: 0o755 });
    const received = readFile(opened, 'utf8');
    const [object] = records(
      await output(['open', lint.id_str as string, '--json'], { env: { BROWSER: browser } }),
    );
    assert.deepEqual(object, { url: `${page}/builds/${lint.id_str}` });
    assert.equal(await received, object.url);
    const printed = await output(['open', '--print'], { env: { BROWSER: '/bin/false' } });
    assert.equal(printed, `${page}/commits/${failed.commit_id_str}\n`);
  });

  it('rerun runs suites again on the same commit', async () => {
    const [again] = records(await output(['rerun', failed.id_str as string, '--suite', 'lint', '--json']));
    assert.equal(again.commit_id_str, failed.commit_id_str);
    assert.equal((await project.finishedBuild(again.id_str)).build_state, 'passed');
    const nothing = await run(['rerun', '--failed', lint.id_str as string]);
    assert.equal(nothing.status, 5);
    assert.match(nothing.stderr, /no build has failed/);
  });

  describe('artifacts', () => {
    const files = ['out/app', 'out/coverage/index.html', 'out/junit.xml'];

    it('list prints sizes and paths', async () => {
      assert.deepEqual(lines(await output(['artifacts', 'list', unit.id_str as string])).slice(0, 2), [
        ' 195.3 KiB  out/app',
        '       5 B  out/coverage/index.html',
      ]);
      const newest = records(await output(['artifacts', 'list', '--branch', 'main', '--json']));
      assert.deepEqual(
        newest.map(({ path: name }) => name),
        files,
        'of the newest that passed',
      );
    });

    it('get writes all files or those below a directory', async () => {
      const to = join(world.directory, 'new/fetched');
      const printed = await output(['artifacts', 'get', unit.id_str as string, '--output', to]);
      assert.deepEqual(lines(printed), files);
      assert.equal(readFileSync(join(to, 'out/app')).length, 200_000);
      assert.deepEqual(readdirSync(to), ['out'], 'nothing else is left');
      await output([
        'artifacts',
        'get',
        unit.id_str as string,
        'out/coverage/',
        '--output',
        join(to, 'part'),
      ]);
      assert.deepEqual(readdirSync(join(to, 'part/out')), ['coverage']);
      assert.equal(
        await output(['artifacts', 'get', unit.id_str as string, files[1] as string, '--output', '-']),
        'page\n',
      );
      const shown = await run(['artifacts', 'get', unit.id_str as string, '--output', to], { columns: 80 });
      assert.match(shown.stdout, /Downloading .*\d+ %/);
    });

    it('get does not write through a link, and leaves nothing when the disk is full', async () => {
      const linked = join(world.directory, 'linked');
      const outside = join(world.directory, 'outside');
      mkdirSync(outside);
      mkdirSync(linked);
      symlinkSync(outside, join(linked, 'out'));
      const refusedLink = await run(['artifacts', 'get', unit.id_str as string, '--output', linked]);
      assert.equal(refusedLink.status, 5);
      assert.match(refusedLink.stderr, /out is there already, and is a link/);
      assert.deepEqual([readdirSync(outside), readdirSync(linked)], [[], ['out']]);
      const small = join(world.directory, 'small');
      mkdirSync(small);
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', small]);
      try {
        const full = await run(['artifacts', 'get', unit.id_str as string, '--output', small]);
        assert.equal(full.status, 3);
        assert.match(full.stderr, /^assay: the disk is full/);
        assert.deepEqual(readdirSync(small), []);
      } finally {
        execFileSync('umount', [small]);
      }
    });
  });
});

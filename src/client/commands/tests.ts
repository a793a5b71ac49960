// `assay tests`: the tests that builds reported, failures first; flaky and slow tests of the project.

import { type Command, UsageError } from '../../command/command.ts';
import { EXIT } from '../exit-status.ts';
import { buildCommand, findTarget, ofSuite } from '../find-build.ts';
import { durationText, jsonLine, plain, plainLines, type Style, styleOf, table, write } from '../output.ts';
import type { BuildTest, Suite, SuiteBuild, Test } from '../records.ts';
import { type ProjectSession, readLimit, take } from '../session.ts';

const DEFAULT_LIMIT = 20;
/** Of the message and the details of a failure. */
const MAX_LINES = 12;

export const tests: Command = buildCommand({
  name: 'tests',
  summary: 'Lists the tests of a build that failed, or flaky and slow tests.',
  positionals: ['[BUILD]'],
  flags: { new: 'flag', all: 'flag', flaky: 'flag', slow: 'flag', limit: 'value' },
  help: [
    '  assay tests                        failures of the newest build request of this branch',
    '  assay tests --new                  only those that did not fail before',
    '  assay tests --flaky                flaky tests of the project',
    '',
    '  --new                 only tests that fail, and did not in the build before',
    '  --all                 passed and skipped tests too',
    '  --flaky               tests of the project that passed and failed without a change',
    '  --slow                the slowest tests of the project, by their median',
    `  --limit N             at most this many of each suite [${DEFAULT_LIMIT}]`,
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const style = styleOf(environment);
    const limit = readLimit(flags, DEFAULT_LIMIT);
    const modes = ['--new', '--all', '--flaky', '--slow'].filter(flag => flags.has(flag));
    if (modes.length > 1) throw new UsageError(`choose one of ${modes.join(' and ')}`);
    if (flags.has('--flaky') || flags.has('--slow')) return printOfProject(session, style, flags, limit);
    const target = await findTarget(session, invocation);
    const among = target.build ? [target.build] : ofSuite(target.builds, flags.get('--suite'));
    const reported = among.filter(build => build.tests !== undefined);
    if (reported.length === 0)
      process.stderr.write(
        `${target.build ? 'The build' : `The build request ${target.request.id_str}`} has no test report: the field "reports" of a suite names its JUnit files.\n`,
      );
    for (const build of reported) await printOfBuild(session, style, flags, build, limit);
    return EXIT.passed;
  },
});

const isOfInterest = ({ result, change }: BuildTest) =>
  result === 'failed' || result === 'errored' || change === 'flaky' || change === 'fixed';

async function printOfBuild(
  { connection, path }: ProjectSession,
  style: Style,
  flags: ReadonlyMap<string, string>,
  build: SuiteBuild,
  limit: number,
): Promise<void> {
  const listed = await take(
    connection.list<BuildTest>(`${path}/builds/${build.id_str}/tests`, {
      query: { limit: String(limit), ...(flags.has('--new') && { new: 'true' }) },
    }),
    limit,
  );
  // The server lists them in order: failures, flaky and fixed tests, and then the others.
  const shown = flags.has('--all') ? listed : listed.filter(isOfInterest);
  if (flags.has('--json'))
    return write(shown.map(test => jsonLine({ ...test, suite: build.suite })).join(''));
  await write(
    `${style.paint('bold', plain(build.suite))}  ${countsText(build)}  ${style.paint('dim', `build ${build.id_str}`)}\n`,
  );
  for (const test of shown) await write(testText(style, test));
  if (shown.length === limit) process.stderr.write(`There may be more: --limit shows more than ${limit}.\n`);
}

/** `2 of 120 failed, 1 new, 1 fixed, 3 skipped`. */
function countsText({ tests: counts }: SuiteBuild): string {
  if (!counts) return '';
  const bad = counts.failed + counts.errored;
  const all = bad + counts.passed + counts.skipped;
  return [
    bad > 0 ? `${bad} of ${all} failed` : `${counts.passed} of ${all} passed`,
    ...(counts.new_failures > 0 ? [`${counts.new_failures} new`] : []),
    ...(counts.fixed > 0 ? [`${counts.fixed} fixed`] : []),
    ...(counts.flaky > 0 ? [`${counts.flaky} flaky`] : []),
    ...(counts.skipped > 0 ? [`${counts.skipped} skipped`] : []),
  ].join(', ');
}

const COLOURS = { failed: 'red', errored: 'magenta', passed: 'green', skipped: 'dim' } as const;

function testText(style: Style, test: BuildTest): string {
  const isBad = test.result === 'failed' || test.result === 'errored';
  const remarks = [
    ...(isBad && test.change === 'new' ? ['new'] : []),
    ...(test.change === 'fixed' ? ['fixed'] : []),
    ...(test.flaky ? ['flaky'] : []),
    ...(test.duration_ms === null ? [] : [msText(test.duration_ms)]),
  ];
  const head = `  ${style.paint(COLOURS[test.result], test.result)}  ${nameOf(test)}${remarks.length > 0 ? style.paint('dim', `  (${remarks.join(', ')})`) : ''}\n`;
  if (!isBad) return head;
  const lines = [...plainLines(test.message ?? ''), ...plainLines(test.details ?? '')];
  const more = lines.length > MAX_LINES ? [`… ${lines.length - MAX_LINES} more lines`] : [];
  return head + [...lines.slice(0, MAX_LINES), ...more].map(line => `      ${line}\n`).join('');
}

const nameOf = ({ classname, name }: { classname: string; name: string }) =>
  classname === '' ? plain(name) : `${plain(classname)} › ${plain(name)}`;

const msText = (ms: number) =>
  ms < 1000 ? `${ms} ms` : ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : durationText(ms);

/** Tests of all suites of the project that are flaky, or the slowest. */
async function printOfProject(
  { connection, path }: ProjectSession,
  style: Style,
  flags: ReadonlyMap<string, string>,
  limit: number,
): Promise<number> {
  const isFlaky = flags.has('--flaky');
  const wanted = flags.get('--suite')?.trim().toLowerCase();
  let found = 0;
  for await (const suite of connection.list<Suite>(`${path}/suites`, { query: { limit: '100' } })) {
    if (wanted !== undefined && suite.name.trim().toLowerCase() !== wanted) continue;
    const branch = flags.get('--branch');
    const listed = await take(
      connection.list<Test>(`${path}/suites/${suite.id_str}/tests`, {
        query: { sort: isFlaky ? 'flaky' : 'slowest', limit: String(limit), branch },
      }),
      limit,
    );
    const shown = listed.filter(test => (isFlaky ? test.flaky : test.median_duration_ms !== null));
    found += shown.length;
    if (shown.length === 0) continue;
    if (flags.has('--json')) {
      await write(shown.map(test => jsonLine({ ...test, suite: suite.name })).join(''));
      continue;
    }
    const rows = shown.map(test => [
      `  ${isFlaky ? `${test.failures} of ${test.runs} failed` : msText(test.median_duration_ms ?? 0)}`,
      nameOf(test),
      ...(isFlaky && test.flaky_failed_build_id_str
        ? [`failed in build ${test.flaky_failed_build_id_str}`]
        : []),
    ]);
    await write(
      `${style.paint('bold', plain(suite.name))}\n${table(rows)
        .map(row => `${row}\n`)
        .join('')}`,
    );
  }
  if (found === 0)
    process.stderr.write(isFlaky ? 'No test is flaky.\n' : 'No report says how long tests take.\n');
  return EXIT.passed;
}

// `assay diff`: what differs between a build and the last good one, the likeliest cause first.

import { type Command, UsageError } from '../../command/command.ts';
import { ServerError } from '../connection.ts';
import { EXIT, refused } from '../exit-status.ts';
import { buildCommand, chooseBuild, findTarget } from '../find-build.ts';
import { ageText, durationText, jsonLine, plain, type Style, stateText, styleOf, write } from '../output.ts';
import type { BuildDiff, SuiteBuild } from '../records.ts';

/** Of each list. The page shows all. */
const MAX_ITEMS = 15;
const SHORT_HASH = 8;

export const diff: Command = buildCommand({
  name: 'diff',
  summary: 'Shows what changed since the last build that passed, the likeliest cause first.',
  positionals: ['[BUILD]'],
  flags: { against: 'value' },
  help: [
    '  assay diff                         the build of this branch that failed first',
    '  assay diff BUILD --against OTHER',
    '',
    '  --against BUILD       another build of the suite [the last that passed on the branch]',
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const against = flags.get('--against');
    if (against !== undefined && !/^\d{1,20}$/.test(against))
      throw new UsageError('--against must be the ID of a build: "assay builds REQUEST" shows IDs');
    const build = chooseBuild(await findTarget(session, invocation), flags.get('--suite'));
    const path = `${session.path}/builds/${build.id_str}`;
    const found = await session.connection
      .call<BuildDiff>('GET', `${path}/diff`, { query: { against } })
      .catch(error => {
        if (!(error instanceof ServerError) || error.status !== 404) throw error;
        throw refused(
          against === undefined
            ? `no earlier build of ${plain(build.suite)} has passed: choose one with --against BUILD`
            : `the suite ${plain(build.suite)} has no build ${against}`,
        );
      });
    const url = `${session.pageUrl}/builds/${build.id_str}`;
    await write(flags.has('--json') ? jsonLine(found) : diffText(styleOf(environment), build, found, url));
    return EXIT.passed;
  },
});

const CHOSEN = {
  branch: 'the last that passed on the branch',
  ancestor: 'the last that passed at an earlier commit',
  caller: 'as chosen',
};

function diffText(style: Style, build: SuiteBuild, found: BuildDiff, url: string): string {
  const { against, causes, commits, tests, log } = found;
  const section = (title: string, lines: readonly string[], total = lines.length) =>
    lines.length === 0
      ? []
      : [
          '',
          style.paint('bold', title),
          ...lines.slice(0, MAX_ITEMS).map(line => `  ${line}`),
          ...(total > MAX_ITEMS ? [`  … and ${total - Math.min(lines.length, MAX_ITEMS)} more`] : []),
        ];
  const lines = [
    `${style.paint('bold', plain(build.suite))}  build ${build.id_str}, ${stateText(build.build_state)}`,
    `compared with build ${against.id_str}, ${stateText(against.build_state)} ${ageText(against.created_at)}: ${CHOSEN[found.chosen]}`,
    style.paint('dim', url),
    ...section(
      'Most likely cause first',
      causes.map(({ text }, at) => `${at + 1}. ${plain(text)}`),
    ),
    ...section('What it was made of', inputLines(found)),
    ...section(
      'Commits that only this build has',
      (commits?.list ?? []).map(
        ({ ref, subject, scm_author_name: author }) =>
          `${style.paint('yellow', ref.slice(0, SHORT_HASH))}  ${plain(subject)} ${style.paint('dim', `(${plain(author)})`)}`,
      ),
      commits?.total,
    ),
    ...section(
      'Files',
      (commits?.files ?? []).map(({ path, change }) => `${change[0]?.toUpperCase()}  ${plain(path)}`),
      commits?.files_total,
    ),
    ...section('Tests that fail now', (tests?.new_failures ?? []).map(testName), tests?.new_failures_total),
    ...section('Tests that were fixed', (tests?.fixed ?? []).map(testName), tests?.fixed_total),
    ...section(
      'Lines that only this log has',
      (log?.lines ?? []).map(
        ({ line, text }) => `${style.paint('dim', String(line).padStart(5))}  ${plain(text)}`,
      ),
    ),
  ];
  return lines.map(line => `${line}\n`).join('');
}

const testName = ({ classname, name }: { classname: string; name: string }) =>
  classname === '' ? plain(name) : `${plain(classname)} › ${plain(name)}`;

/** Only what differs. */
function inputLines({
  command,
  image,
  limits,
  variables,
  dependencies,
  duration_ms: ms,
  exit_code: exit,
}: BuildDiff) {
  const names = (what: string, list: readonly string[] | undefined) =>
    list && list.length > 0 ? [`variables ${what}: ${list.map(plain).join(', ')}`] : [];
  return [
    ...(exit.changed ? [`exit code: ${exit.before ?? 'none'} → ${exit.after ?? 'none'}`] : []),
    ...(ms.before !== null && ms.after !== null
      ? [`duration: ${durationText(ms.before)} → ${durationText(ms.after)}`]
      : []),
    ...(command?.changed ? [`command: ${oneLine(command.before)} → ${oneLine(command.after)}`] : []),
    ...(image?.changed ? [`image: ${plain(image.before)} → ${plain(image.after)} (other content)`] : []),
    ...(limits ?? [])
      .filter(({ changed }) => changed)
      .map(({ name, before, after }) => `${plain(name)}: ${plain(String(before))} → ${plain(String(after))}`),
    ...names('added', variables?.added),
    ...names('removed', variables?.removed),
    ...names('changed', variables?.changed),
    ...(dependencies ?? [])
      .filter(({ change }) => change !== 'same')
      .map(
        ({ name, change }) =>
          `dependency ${plain(name)}: ${change === 'launch' ? 'launched differently' : change}`,
      ),
  ];
}

const MAX_COMMAND = 60;
const oneLine = (text: string) => {
  const [first = ''] = text.split('\n', 1);
  return first.length < text.length || first.length > MAX_COMMAND
    ? `${plain(first).slice(0, MAX_COMMAND)}…`
    : plain(first);
};

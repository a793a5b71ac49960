// `assay builds`: the newest build requests of a project, or the builds of one.

import { type Command, UsageError } from '../../command/command.ts';
import { sizeText } from '../../command/progress.ts';
import { buildRequestMachine, isFinishedRequest } from '../../domain/build.ts';
import {
  buildCommand,
  explainNoBuilds,
  findTarget,
  listRequests,
  ofSuite,
  pageOf,
  type Target,
} from '../find-build.ts';
import {
  ageText,
  durationText,
  fitRows,
  jsonLine,
  paintState,
  plain,
  type Style,
  stateText,
  styleOf,
  table,
  write,
} from '../output.ts';
import type { DetailedRequest, SuiteBuild } from '../records.ts';
import { type ProjectSession, readLimit } from '../session.ts';

const STATES = Object.keys(buildRequestMachine);
const DEFAULT_LIMIT = 20;
const SHORT_HASH = 8;

export const builds: Command = buildCommand({
  name: 'builds',
  summary: 'Lists the newest build requests, or the builds of one.',
  positionals: ['[REQUEST]'],
  flags: { state: 'value', limit: 'value' },
  help: [
    '  assay builds                       the newest build requests of the project',
    '  assay builds --branch main --state failed',
    '  assay builds REQUEST               its builds, one for each suite',
    '',
    `  --state STATE         only those that are ${STATES.join(', ')}`,
    `  --limit N             at most this many [${DEFAULT_LIMIT}]`,
    '  --branch NAME         only those of this branch',
    '  --local               only local runs, of everybody',
  ],
  async run(session, invocation) {
    const { flags, environment, positionals } = invocation;
    const style = styleOf(environment);
    const isJson = flags.has('--json');
    if (positionals.length > 0) {
      const target = await findTarget(session, invocation);
      const shown = { ...target, builds: ofSuite(target.builds, flags.get('--suite')) };
      await write(isJson ? shown.builds.map(jsonLine).join('') : requestText(session, style, shown));
      return 0;
    }
    const requests = await listRequests(session, readFilter(flags));
    if (requests.length === 0 && !isJson)
      process.stderr.write('There is no such build request. "assay run" starts one.\n');
    await write(isJson ? requests.map(jsonLine).join('') : listText(style, requests));
    return 0;
  },
});

function readFilter(flags: ReadonlyMap<string, string>) {
  const state = flags.get('--state')?.replaceAll(' ', '_');
  if (state !== undefined && !STATES.includes(state))
    throw new UsageError(`--state must be one of ${STATES.join(', ')}`);
  const local = flags.has('--local') ? 'true' : undefined;
  return { branch: flags.get('--branch'), local, state, limit: readLimit(flags, DEFAULT_LIMIT) };
}

const REF = 2;
const SUBJECT = 3;
const SUITES = 4;
/** Below this width the list has no hash, so that more of the subject fits. */
const WIDE = 110;

function listText(style: Style, requests: readonly DetailedRequest[]): string {
  if (requests.length === 0) return '';
  const heads = ['STATE', 'REQUEST', 'REF', 'SUBJECT', 'SUITES', 'TOOK', 'AGE', 'COMMIT'];
  const shown = style.isTerminal && style.columns < WIDE ? heads.length - 1 : heads.length;
  const rows = requests.map(request => [
    stateText(request.build_state),
    request.id_str,
    refText(request),
    plain(request.commit?.subject ?? ''),
    suitesText(request),
    tookOf(request.created_at, request.finished_at),
    ageText(request.created_at),
    request.commit?.ref.slice(0, SHORT_HASH) ?? '',
  ]);
  const [head = [], ...fitted] = fitRows(
    style,
    [heads, ...rows].map(row => row.slice(0, shown)),
    { [REF]: 6, [SUBJECT]: 10, [SUITES]: 12 },
  );
  const painted = fitted.map((row, at) => [
    paintState(style, requests[at]?.build_state ?? '', row[0]),
    ...row.slice(1),
  ]);
  return lines(table([...headRow(style, head), ...painted]));
}

/** Only for people: other programs read rows. */
const headRow = (style: Style, head: readonly string[]) =>
  style.isTerminal ? [head.map(title => style.paint('dim', title))] : [];

const lines = (rows: readonly string[]) => rows.map(row => `${row}\n`).join('');

/** What was built: a branch, a tag or a hash. */
export function refText(request: DetailedRequest): string {
  const ref = plain(request.commit_ref);
  const name = /^[0-9a-f]{40}$/i.test(ref) ? ref.slice(0, SHORT_HASH) : ref;
  if (request.trigger === 'local') return `${name} (local)`;
  return request.pull_request === undefined ? name : `${name} (#${request.pull_request})`;
}

export const tookOf = (from: string | null, to: string | null): string =>
  from === null || to === null ? '' : durationText(Date.parse(to) - Date.parse(from));

/** `unit, lint failed, 3 passed`, or why there are no builds. */
function suitesText({ suites, build_state: state, error }: DetailedRequest): string {
  const { not_passed: names, ...counts } = suites;
  const bad = counts.failed + counts.errored + counts.timed_out;
  const more = bad > names.length ? ` and ${bad - names.length} more` : '';
  const texts = [
    ...(bad > 0 ? [`${names.map(plain).join(', ')}${more} ${counts.failed > 0 ? 'failed' : 'errored'}`] : []),
    ...(['running', 'enqueued', 'canceled', 'passed'] as const).flatMap(one =>
      counts[one] > 0 ? [`${counts[one]} ${one}`] : [],
    ),
  ];
  if (texts.length > 0) return texts.join(', ');
  return error === undefined ? (state === 'skipped' ? 'no suite runs for it' : '') : plain(error);
}

function requestText(session: ProjectSession, style: Style, target: Target): string {
  const { request, builds: shown } = target;
  const { commit } = request;
  const what = [refText(request), commit?.ref.slice(0, SHORT_HASH), plain(commit?.subject ?? '')];
  const who = [
    ...(commit ? [`by ${plain(commit.scm_author_name)}`] : []),
    `requested by ${plain(request.created_by)} ${ageText(request.created_at)}`,
    ...(request.finished_at === null ? [] : [`took ${tookOf(request.created_at, request.finished_at)}`]),
  ];
  const head = [
    `${paintState(style, request.build_state)}  ${what.filter(Boolean).join('  ')}`,
    who.join(', '),
    pageOf(session, { ...target, build: undefined }),
    '',
  ];
  if (shown.length === 0) return lines([...head, explainNoBuilds(request)]);
  const heads = ['STATE', 'BUILD', 'SUITE', 'TOOK', 'EXIT', 'TESTS', 'ARTIFACTS', 'NODE', 'NOTE'];
  const rows = shown.map(build => [
    stateText(build.build_state),
    build.id_str,
    plain(build.suite),
    build.started_at === null ? '' : tookOf(build.started_at, build.finished_at ?? new Date().toISOString()),
    build.exit_code === null ? '' : String(build.exit_code),
    testsText(build),
    build.artifacts === undefined ? '' : `${build.artifacts} (${sizeText(build.artifacts_bytes ?? 0)})`,
    plain(build.node ?? ''),
    plain(
      build.error ??
        (build.waiting ? `waiting, ${build.waiting.position}. in the queue: ${build.waiting.reason}` : ''),
    ),
  ]);
  const used = heads.map((_, at) => rows.some(row => row[at] !== ''));
  const compact = [heads, ...rows].map(row => row.filter((_, at) => used[at]));
  const [first = [], ...others] = fitRows(style, compact, { 2: 10, [(compact[0]?.length ?? 0) - 1]: 12 });
  const painted = others.map((row, at) => [
    paintState(style, shown[at]?.build_state ?? '', row[0]),
    ...row.slice(1),
  ]);
  const next = isFinishedRequest(request.build_state) ? [] : ['', '"assay watch" follows it.'];
  return lines([
    ...head,
    ...table([...headRow(style, first), ...painted]),
    ...(style.isTerminal ? next : []),
  ]);
}

/** `2 of 120 failed, 1 new`. */
function testsText({ tests }: SuiteBuild): string {
  if (!tests) return '';
  const bad = tests.failed + tests.errored;
  const all = bad + tests.passed + tests.skipped;
  if (bad === 0) return `${all} passed`;
  return `${bad} of ${all} failed${tests.new_failures > 0 ? `, ${tests.new_failures} new` : ''}`;
}

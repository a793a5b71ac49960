// `assay logs`: the log of a build, whole, while it grows, or only the step that failed.

import { type Command, type Invocation, UsageError } from '../../command/command.ts';
import { isFinishedBuild } from '../../domain/build.ts';
import { LONGEST_STEP, lastStepIn } from '../../domain/result/log-step.ts';
import { COMPRESSED, copyBody } from '../connection.ts';
import { EXIT, exitStatusOf } from '../exit-status.ts';
import {
  buildCommand,
  chooseBuild,
  failingBuilds,
  findNamedBuild,
  findTarget,
  ofSuite,
  type Target,
  untilBuilds,
} from '../find-build.ts';
import { followLog, type LogPrinter, linePrinter, plainPrinter, textOfLine } from '../log-output.ts';
import { durationText, jsonLine, plain, stateText, styleOf, write } from '../output.ts';
import type { Build, SuiteBuild } from '../records.ts';
import type { ProjectSession } from '../session.ts';

/** A longer step is read again from the server instead of being kept in memory. */
const MAX_KEPT_BYTES = 32 << 20;

export const logs: Command = buildCommand({
  name: 'logs',
  summary: 'Prints the log of a build, or follows it.',
  positionals: ['[BUILD]'],
  flags: { follow: 'flag', failed: 'flag', times: 'flag' },
  letters: { f: 'follow' },
  help: [
    '  assay logs                         the build of this branch that failed first, or else runs',
    '  assay logs -f                      from the first byte until it ends; exits with its result',
    '  assay logs --failed                only the step that failed, of each build that failed',
    '',
    '  -f, --follow          follows the build until it ends, also over a restart of the server',
    '  --failed              prints only the last step of the builds that did not pass',
    '  --times               prints the time before each line',
  ],
  async run(session, invocation) {
    const { flags } = invocation;
    const follows = flags.has('--follow');
    if (follows && flags.has('--failed'))
      throw new UsageError('--failed is for builds that have ended: without -f');
    if (flags.has('--failed')) return printFailed(session, invocation, await findTarget(session, invocation));
    const build = (await findNamedBuild(session, invocation)) ?? (await choose(session, invocation, follows));
    const printer = await createPrinter(session, invocation, build);
    if (follows && !isFinishedBuild(build.build_state)) return follow(session, invocation, build, printer);
    await printLog(session, build, printer);
    if (follows) return exitStatusOf(build.build_state);
    if (!isFinishedBuild(build.build_state))
      remark(invocation, 'The build has not ended: "assay logs -f" follows it.');
    return EXIT.passed;
  },
});

async function choose(session: ProjectSession, invocation: Invocation, waits: boolean): Promise<Build> {
  const found = await findTarget(session, invocation);
  const target = waits ? await untilBuilds(session, found) : found;
  const build = chooseBuild(target, invocation.flags.get('--suite'));
  remark(invocation, `The log of ${describe(build)}.`);
  return build;
}

const describe = ({ suite, id_str: id, build_state: state }: SuiteBuild) =>
  `${plain(suite)}, build ${id}, ${stateText(state)}`;

/** For people: not if the log goes to a file or to a pager. */
function remark({ environment, flags }: Invocation, text: string): void {
  if (!styleOf(environment).isTerminal || flags.has('--json')) return;
  process.stderr.write(`${styleOf(environment, process.stderr).paint('dim', text)}\n`);
}

const logPath = ({ path }: ProjectSession, build: Build) => `${path}/builds/${build.id_str}/log`;

/** As the log is, or line by line with --times and --json. */
async function createPrinter(
  session: ProjectSession,
  { flags }: Invocation,
  build: Build,
): Promise<LogPrinter> {
  const isJson = flags.has('--json');
  if (!isJson && !flags.has('--times')) return plainPrinter;
  const times = await openTimes(session, build);
  return linePrinter((line, offset) => {
    const atMs = times.at(offset);
    if (!isJson) return Buffer.concat([Buffer.from(clockText(atMs)), line]);
    return jsonLine({
      build_id_str: build.id_str,
      suite_id_str: build.suite_id_str,
      offset,
      ...(atMs !== undefined && { time: new Date(atMs).toISOString() }),
      text: textOfLine(line),
    });
  });
}

/** When the bytes of a log were written. Of what is written from now on, the time is that of its arrival. */
async function openTimes({ connection, path }: ProjectSession, build: Build) {
  const { times } = await connection.call<{ times: [endOffset: number, atMs: number][] }>(
    'GET',
    `${path}/builds/${build.id_str}/log/times`,
  );
  let next = 0;
  return {
    /** Offsets must increase. */
    at(offset: number): number | undefined {
      while (next < times.length && (times[next]?.[0] ?? 0) <= offset) next += 1;
      return times[next]?.[1] ?? (isFinishedBuild(build.build_state) ? undefined : Date.now());
    },
  };
}

let shownSecond = Number.NaN;
let shownClock = '';

/** `09:41:07  `, the local time. */
function clockText(atMs: number | undefined): string {
  if (atMs === undefined) return ' '.repeat(10);
  const second = Math.floor(atMs / 1000);
  // A log has many lines in a second.
  if (second !== shownSecond) shownClock = new Date(atMs).toTimeString().slice(0, 8);
  shownSecond = second;
  return `${shownClock}  `;
}

async function printLog(session: ProjectSession, build: Build, printer: LogPrinter, from = 0): Promise<void> {
  const response = await session.connection.open('GET', logPath(session, build), {
    headers: from > 0 ? { range: `bytes=${from}-` } : COMPRESSED,
  });
  let offset = from;
  await copyBody(response, chunk => {
    const at = offset;
    offset += chunk.length;
    return printer.print(chunk, at);
  });
  await printer.end();
}

/** Follows an unfinished build from the first byte, and resolves with the exit status for its result. */
async function follow(
  { connection, path }: ProjectSession,
  invocation: Invocation,
  build: Build,
  printer: LogPrinter,
): Promise<number> {
  const ended = await followLog<Build>(connection, `${path}/builds/${build.id_str}/firehose`, printer);
  remark(invocation, `${endText(ended)}.`);
  return exitStatusOf(ended.build_state);
}

/** `Failed with exit code 2 after 12 s`. */
function endText({
  build_state: state,
  exit_code: code,
  started_at: from,
  finished_at: to,
  error,
}: Build): string {
  const text = stateText(state);
  const took =
    from === null || to === null ? '' : ` after ${durationText(Date.parse(to) - Date.parse(from))}`;
  return `${text[0]?.toUpperCase()}${text.slice(1)}${code ? ` with exit code ${code}` : ''}${took}${error === undefined ? '' : `: ${plain(error)}`}`;
}

async function printFailed(session: ProjectSession, invocation: Invocation, target: Target): Promise<number> {
  const { flags } = invocation;
  const among = target.build ? [target.build] : ofSuite(target.builds, flags.get('--suite'));
  const failing = failingBuilds(among);
  if (failing.length === 0) {
    const text = target.build
      ? 'The build has not failed'
      : `No build of the request ${target.request.id_str} has failed`;
    process.stderr.write(`${text}.\n`);
  }
  for (const build of failing) {
    if (failing.length > 1 && !flags.has('--json')) await write(`==> ${describe(build)} <==\n`);
    const printer = await createPrinter(session, invocation, build);
    await printLastStep(session, build, printer);
  }
  return EXIT.passed;
}

/** Only the end of a log says which step is the last: it is read to the end first. */
async function printLastStep(session: ProjectSession, build: Build, printer: LogPrinter): Promise<void> {
  const response = await session.connection.open('GET', logPath(session, build));
  let kept: Buffer[] = [];
  let keptBytes = 0;
  let stepAt = 0;
  let offset = 0;
  // A step may begin at the end of one chunk and continue in the next.
  let before: Buffer = Buffer.alloc(0);
  await copyBody(response, chunk => {
    const piece = before.length === 0 ? chunk : Buffer.concat([before, chunk]);
    const at = lastStepIn(piece);
    if (at !== -1) {
      kept = [];
      keptBytes = 0;
      stepAt = offset - before.length + at;
    }
    // What `before` has of the step is not in any later chunk.
    const own = at === -1 ? chunk : piece.subarray(at);
    keptBytes += own.length;
    if (keptBytes <= MAX_KEPT_BYTES) kept.push(own);
    else kept = [];
    offset += chunk.length;
    before = Buffer.from(piece.subarray(Math.max(0, piece.length - LONGEST_STEP - 1)));
  });
  if (keptBytes > MAX_KEPT_BYTES) return printLog(session, build, printer, stepAt);
  for (const piece of kept) {
    await printer.print(piece, stepAt);
    stepAt += piece.length;
  }
  await printer.end();
}

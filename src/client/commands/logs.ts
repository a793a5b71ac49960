// `assay logs`: the log of a build, whole, while it grows, or only the step that failed.

import { type Command, type Invocation, UsageError } from '../../command/command.ts';
import { isFinishedBuild } from '../../domain/build.ts';
import { LONGEST_STEP, lastStepIn } from '../../domain/result/log-step.ts';
import { COMPRESSED, copyBody } from '../connection.ts';
import { followEvents } from '../event-stream.ts';
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
import { durationText, jsonLine, plain, stateText, styleOf, write } from '../output.ts';
import type { Build, SuiteBuild } from '../records.ts';
import type { ProjectSession } from '../session.ts';

/** A longer step is read again from the server instead of being kept in memory. */
const MAX_KEPT_BYTES = 32 << 20;
const NEWLINE = 0x0a;

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

/** Prints pieces of a log, which begin at an offset in it. */
type Printer = {
  print(bytes: Buffer, offset: number): Promise<void>;
  /** Prints a last line that has no end. */
  end(): Promise<void>;
  /** Asks for the times of what was written meanwhile. */
  refresh(): Promise<void>;
};

/** As the log is, or line by line with --times and --json. */
async function createPrinter(session: ProjectSession, { flags }: Invocation, build: Build): Promise<Printer> {
  const isJson = flags.has('--json');
  if (!isJson && !flags.has('--times'))
    return { print: bytes => write(bytes), end: async () => {}, refresh: async () => {} };
  const times = await openTimes(session, build);
  let kept: Buffer = Buffer.alloc(0);
  let keptAt = 0;
  const lineText = (line: Buffer, offset: number): Uint8Array | string => {
    const atMs = times.at(offset);
    if (!isJson) return Buffer.concat([Buffer.from(clockText(atMs)), line]);
    return jsonLine({
      build_id_str: build.id_str,
      suite_id_str: build.suite_id_str,
      offset,
      ...(atMs !== undefined && { time: new Date(atMs).toISOString() }),
      text: line.toString('utf8').replace(/\r?\n$/, ''),
    });
  };
  return {
    async print(bytes, offset) {
      if (kept.length === 0) keptAt = offset;
      kept = kept.length === 0 ? bytes : Buffer.concat([kept, bytes]);
      const lines: (Uint8Array | string)[] = [];
      let start = 0;
      for (let at = kept.indexOf(NEWLINE); at !== -1; at = kept.indexOf(NEWLINE, start)) {
        lines.push(lineText(kept.subarray(start, at + 1), keptAt + start));
        start = at + 1;
      }
      kept = Buffer.from(kept.subarray(start));
      keptAt += start;
      if (lines.length > 0) await write(isJson ? lines.join('') : Buffer.concat(lines as Uint8Array[]));
    },
    async end() {
      if (kept.length > 0) await write(lineText(kept, keptAt));
    },
    refresh: times.refresh,
  };
}

/** When the bytes of a log were written. Of what is written from now on, the time is that of its arrival. */
async function openTimes({ connection, path }: ProjectSession, build: Build) {
  const known: [endOffset: number, atMs: number][] = [];
  let next = 0;
  const refresh = async () => {
    const from = String(known.at(-1)?.[0] ?? 0);
    const { times } = await connection.call<{ times: typeof known }>(
      'GET',
      `${path}/builds/${build.id_str}/log/times`,
      { query: { from } },
    );
    known.push(...times);
  };
  await refresh();
  return {
    refresh,
    /** Offsets must increase. */
    at(offset: number): number | undefined {
      while (next < known.length && (known[next]?.[0] ?? 0) <= offset) next += 1;
      return known[next]?.[1] ?? (isFinishedBuild(build.build_state) ? undefined : Date.now());
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

async function printLog(session: ProjectSession, build: Build, printer: Printer, from = 0): Promise<void> {
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
  printer: Printer,
): Promise<number> {
  let printed = 0;
  const events = followEvents(connection, `${path}/builds/${build.id_str}/firehose`, {
    onInterrupted: () => process.stderr.write('assay: connection lost, trying again\n'),
    onResumed: () => process.stderr.write('assay: connected again\n'),
  });
  for await (const { event, data } of events) {
    if (event === 'log') {
      const { offset, text } = JSON.parse(data) as { offset: number; text: string };
      const bytes = Buffer.from(text);
      // A server that was killed may have lost the end of the log. It sends it again.
      const skipped = Math.min(bytes.length, Math.max(0, printed - offset));
      await printer.print(bytes.subarray(skipped), offset + skipped);
      printed = Math.max(printed, offset + bytes.length);
    } else if (event === 'end') {
      await printer.end();
      const ended = JSON.parse(data) as Build;
      remark(invocation, `${endText(ended)}.`);
      return exitStatusOf(ended.build_state);
    }
  }
  return EXIT.unreachable;
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
async function printLastStep(session: ProjectSession, build: Build, printer: Printer): Promise<void> {
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

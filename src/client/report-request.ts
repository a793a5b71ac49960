// Follows a build request or a deploy and reports it: as a live view on a terminal, as plain lines elsewhere, or as JSON. Prints
// the logs of what fails. Handles Ctrl-C.

import { askYesNo, CommandError } from '../command/command.ts';
import { isFinishedRequest, isRerunCandidate } from '../domain/build.ts';
import { UNFINISHED_DEPLOYS } from '../domain/deploy.ts';
import { describeCounts } from '../domain/result/test-result.ts';
import { createRetry, type Retry, retrying } from './event-stream.ts';
import { EXIT, exitStatusOf } from './exit-status.ts';
import { type LogEnd, readLogEnd } from './failing-log.ts';
import { followDeploy, followRequest, type RequestState } from './follow-request.ts';
import { createLiveView, type View, type ViewRow } from './live-view.ts';
import { durationText, jsonLine, plain, stateText, styleOf } from './output.ts';
import type { Commit, Deploy, SuiteBuild } from './records.ts';
import type { ProjectSession } from './session.ts';

/** A connection that breaks for a moment is not worth a remark. */
const REMARK_AFTER_MS = 3_000;

export type ReportOptions = {
  environment: NodeJS.ProcessEnv;
  isJson: boolean;
  /** What Ctrl-C does besides leaving. Without a terminal nothing is asked, and nothing is canceled. */
  onInterrupt: 'leave' | 'ask' | 'cancel';
};

/** A change of state that is worth a line. */
type Change = {
  row: ViewRow;
  /** What --json prints. */
  record: unknown;
  /** Where the log is, if it should be printed. */
  logPath: string | undefined;
  /** The command that prints all of the log. */
  logCommand: string;
};

type Reporter = {
  update(view: View): void;
  change(change: Change): void;
  printLog(change: Change, log: LogEnd): void;
  /** For standard error. */
  remark(text: string): void;
  /** Nothing is redrawn any more. */
  stop(): void;
  /** With the last state, unless the user has left. */
  end(last: View | undefined): void;
};

/** What is followed, and how it is shown. */
type Followed<S> = {
  follow(
    retry: Retry,
    options: { signal: AbortSignal; isLive: boolean; onState(state: S): void },
  ): Promise<S>;
  view(state: S): View;
  changes(state: S): Change[];
  exitStatus(state: S): number;
  cancelPath: string;
  /** `build` or `deploy`. */
  noun: string;
  /** The command that follows it again. */
  watchCommand: string | undefined;
};

/** Follows a build request to its end, and returns the exit status. */
export const followAndReport = (
  session: ProjectSession,
  requestId: string,
  options: ReportOptions,
): Promise<number> =>
  report<RequestState>(session, options, {
    follow: (retry, following) => followRequest(session, requestId, retry, following),
    view: state => viewOf(session, state),
    changes: state => changesOf(session, state),
    exitStatus: ({ request }) => exitStatusOf(request.build_state),
    cancelPath: `${session.path}/build_requests/${requestId}/cancel`,
    noun: 'build',
    watchCommand: `assay watch ${requestId}`,
  });

export type DeployTitle = { strategy: string; title: string };

export const followAndReportDeploy = (
  session: ProjectSession,
  deployId: string,
  about: DeployTitle,
  options: ReportOptions,
): Promise<number> =>
  report<Deploy>(session, options, {
    follow: (retry, following) => followDeploy(session, deployId, retry, following),
    view: deploy => deployView(session, deploy, about),
    changes: deploy => [deployChange(session, deploy, about)],
    exitStatus: ({ state }) => exitStatusOf(state),
    cancelPath: `${session.path}/deploys/${deployId}/cancel`,
    noun: 'deploy',
    watchCommand: undefined,
  });

async function report<S>(
  session: ProjectSession,
  options: ReportOptions,
  followed: Followed<S>,
): Promise<number> {
  const { connection } = session;
  const style = styleOf(options.environment);
  const isLive = style.isTerminal && !options.isJson;
  const reporter = options.isJson
    ? jsonReporter()
    : isLive
      ? terminalReporter(options.environment, connection.nowMs)
      : plainReporter();
  const leaving = new AbortController();
  const { signal } = leaving;
  const reported = new Map<string, string>();
  let printed = Promise.resolve();
  const connectionRemarks = createConnectionRemarks(reporter.remark);
  const retry = createRetry(connection, { signal, ...connectionRemarks });

  const onState = (state: S) => {
    reporter.update(followed.view(state));
    for (const change of followed.changes(state)) {
      const { row, logPath } = change;
      if (reported.get(row.id) === row.state) continue;
      reported.set(row.id, row.state);
      const log =
        logPath === undefined || options.isJson
          ? undefined
          : retrying(retry, () => readLogEnd(session, logPath));
      log?.catch(() => {});
      // In the order of the events: each log after the line that says why it is printed.
      printed = printed.then(async () => {
        const end = await log;
        // Nothing is printed over a question.
        await interrupts.answered();
        if (signal.aborted) return;
        reporter.change(change);
        if (end) reporter.printLog(change, end);
      });
      printed.catch(() => {});
    }
  };

  const interrupts = watchInterrupts(reporter, leaving, options.onInterrupt, followed, async () => {
    await connection.call('POST', followed.cancelPath, { signal });
  });
  let last: View | undefined;
  try {
    const state = await followed.follow(retry, { signal, isLive, onState });
    await printed;
    await interrupts.finish();
    last = followed.view(state);
    return followed.exitStatus(state);
  } catch (error) {
    if (!signal.aborted) throw error;
    return EXIT.interrupted;
  } finally {
    connectionRemarks.stop();
    interrupts.stop();
    reporter.end(last);
  }
}

function createConnectionRemarks(remark: (text: string) => void) {
  let timer: NodeJS.Timeout | undefined;
  let isReported = false;
  return {
    onInterrupted() {
      timer = setTimeout(() => {
        isReported = true;
        remark('connection lost, trying again');
      }, REMARK_AFTER_MS);
    },
    onResumed() {
      clearTimeout(timer);
      if (isReported) remark('connected again');
      isReported = false;
    },
    stop: () => clearTimeout(timer),
  };
}

const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** The first signal leaves, and asks before it if it should. The second one leaves at once. */
function watchInterrupts(
  reporter: Reporter,
  leaving: AbortController,
  onInterrupt: ReportOptions['onInterrupt'],
  { noun, watchCommand }: Pick<Followed<unknown>, 'noun' | 'watchCommand'>,
  cancel: () => Promise<void>,
) {
  let handled: Promise<void> | undefined;
  let isFinished = false;
  const canAsk = process.stdin.isTTY === true && process.stderr.isTTY === true;

  /** Ctrl-C, or no answer, is undefined. */
  const askWhether = async (): Promise<boolean | undefined> => {
    try {
      return await askYesNo(`Cancel the ${noun}? [y/N] `, '');
    } catch (error) {
      if (error instanceof CommandError) return undefined;
      throw error;
    }
  };

  const handle = async (signal: NodeJS.Signals) => {
    reporter.stop();
    const isAsked = onInterrupt === 'ask' && canAsk && signal === 'SIGINT';
    const isCanceled = onInterrupt === 'cancel' || (isAsked && (await askWhether()));
    if (isFinished) return;
    if (isCanceled) {
      try {
        await cancel();
        reporter.remark(`the ${noun} is being canceled`);
      } catch (error) {
        if (!leaving.signal.aborted)
          reporter.remark(`the ${noun} was not canceled: ${(error as Error).message}`);
      }
    } else {
      const again = watchCommand === undefined ? '' : `; "${watchCommand}" follows it again`;
      reporter.remark(`the ${noun} goes on${again}`);
    }
    leaving.abort();
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (handled) {
      reporter.end(undefined);
      process.exit(EXIT.interrupted);
    }
    handled = handle(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return {
    answered: () => handled,
    /** It has ended. Resolves when a question is answered. */
    async finish() {
      isFinished = true;
      await handled;
    },
    stop() {
      for (const signal of SIGNALS) process.off(signal, onSignal);
    },
  };
}

function terminalReporter(environment: NodeJS.ProcessEnv, nowMs: () => number): Reporter {
  const out = process.stdout;
  const style = styleOf(environment);
  const live = createLiveView(out, style, { isUnicode: hasUnicode(environment), nowMs });
  return {
    update: live.update,
    change() {},
    printLog(change, { bytes, isCut }) {
      const { row } = change;
      live.above(() => {
        out.write(`${style.paint('red', style.paint('bold', `${plain(row.name)}: ${resultText(row)}`))}\n`);
        if (isCut) out.write(`${style.paint('dim', cutText(change))}\n`);
        out.write(bytes);
        if (bytes.length > 0 && bytes.at(-1) !== 0x0a) out.write('\n');
        out.write('\x1b[0m\n');
      });
    },
    remark: text => live.above(() => process.stderr.write(`assay: ${text}\n`)),
    stop: live.stop,
    end: live.end,
  };
}

function plainReporter(): Reporter {
  let url = '';
  return {
    update(view) {
      if (view.url === url) return;
      url = view.url;
      process.stdout.write(`${url}\n`);
    },
    change({ row }) {
      process.stdout.write(`${clockText()} ${plain(row.name)}: ${resultText(row)}\n`);
    },
    printLog(change, { bytes, isCut }) {
      const name = plain(change.row.name);
      process.stdout.write(`--- ${name}${isCut ? `: ${cutText(change)}` : ''}\n`);
      process.stdout.write(bytes);
      process.stdout.write(`${bytes.length > 0 && bytes.at(-1) !== 0x0a ? '\n' : ''}--- end of ${name}\n`);
    },
    remark: remarkOnError,
    stop() {},
    end() {},
  };
}

const jsonReporter = (): Reporter => ({
  update() {},
  change: ({ record }) => void process.stdout.write(jsonLine(record)),
  printLog() {},
  remark: remarkOnError,
  stop() {},
  end() {},
});

const remarkOnError = (text: string) => void process.stderr.write(`assay: ${text}\n`);

const clockText = (now = new Date()) =>
  [now.getHours(), now.getMinutes(), now.getSeconds()].map(part => String(part).padStart(2, '0')).join(':');

/** Such as `failed after 12 s (exit status 1)`. */
function resultText({ state, startedAt, finishedAt, note }: ViewRow): string {
  const duration =
    startedAt !== null && finishedAt !== null
      ? ` after ${durationText(Date.parse(finishedAt) - Date.parse(startedAt))}`
      : '';
  return `${stateText(state)}${duration}${note === '' ? '' : ` (${plain(note)})`}`;
}

const cutText = ({ logCommand }: Change) => `the end of the log; "${logCommand}" prints all of it`;

/** Whether the terminal can show more than ASCII. */
function hasUnicode(environment: NodeJS.ProcessEnv): boolean {
  if (process.platform === 'win32' || process.platform === 'darwin') return true;
  return /utf-?8/i.test(environment.LC_ALL || environment.LC_CTYPE || environment.LANG || '');
}

/** Where the build request is on the pages of the project. */
export const requestUrl = (
  { pageUrl }: ProjectSession,
  { commit_id_str: commitId }: { commit_id_str: string },
) => (commitId === '' ? `${pageUrl}/build_requests` : `${pageUrl}/commits/${commitId}`);

export const commitTitle = ({ ref, message }: Pick<Commit, 'ref' | 'message'>) =>
  `${ref.slice(0, 10)} ${message.split('\n', 1)[0]}`;

const REF_IS_HASH = /^[0-9a-f]{7,40}$/;

function viewOf(session: ProjectSession, { request, commit, builds }: RequestState): View {
  const ref = REF_IS_HASH.test(request.commit_ref) && commit ? '' : `${request.commit_ref} `;
  const ends = builds.map(build => build.finished_at ?? '').toSorted();
  return {
    url: requestUrl(session, request),
    title: `${ref}${commit ? commitTitle(commit) : ''}`,
    state: request.build_state,
    startedAt: request.created_at,
    finishedAt: isFinishedRequest(request.build_state) ? (ends.at(-1) ?? request.created_at) : null,
    note: requestNote(request),
    rows: builds.map(rowOf),
  };
}

const requestNote = ({ error = '', build_state: state }: RequestState['request']) =>
  error === '' && state === 'skipped' ? 'the rules of no suite match' : error;

const rowOf = (build: SuiteBuild): ViewRow => ({
  id: build.id_str,
  name: build.suite,
  state: build.build_state,
  startedAt: build.started_at,
  finishedAt: build.finished_at,
  estimatedSeconds: build.estimated_seconds,
  note: buildNote(build),
});

function buildNote({ build_state: state, waiting, exit_code: exitCode, error, tests }: SuiteBuild): string {
  if (state === 'enqueued' && waiting)
    return waiting.position > 1 ? `position ${waiting.position}: ${waiting.reason}` : waiting.reason;
  if (error !== undefined) return error;
  const { new_failures: newFailures = 0, ...counts } = tests ?? {};
  return [
    ...(tests ? [describeCounts({ ...(counts as typeof tests), newFailures })] : []),
    ...(state === 'failed' && exitCode !== null ? [`exit status ${exitCode}`] : []),
  ].join(', ');
}

/** The request itself is reported when it has ended, after its builds. */
function changesOf(session: ProjectSession, { request, builds }: RequestState): Change[] {
  const ofBuilds = builds.map(build => ({
    row: rowOf(build),
    record: { suite: build.suite, build },
    logPath: isRerunCandidate(build.build_state) ? `${session.path}/builds/${build.id_str}/log` : undefined,
    logCommand: `assay logs ${build.id_str}`,
  }));
  return [
    ...ofBuilds,
    {
      row: {
        id: 'request',
        name: request.commit_ref,
        state: request.build_state,
        startedAt: null,
        finishedAt: null,
        estimatedSeconds: undefined,
        note: requestNote(request),
      },
      record: { url: requestUrl(session, request), build_request: request },
      logPath: undefined,
      logCommand: '',
    },
  ];
}

const deployRow = (deploy: Deploy, { strategy }: DeployTitle): ViewRow => ({
  id: deploy.id_str,
  name: strategy,
  state: deploy.state,
  startedAt: deploy.deploy_started_at,
  finishedAt: deploy.deploy_finished_at,
  estimatedSeconds: undefined,
  note: deploy.error ?? '',
});

function deployView(session: ProjectSession, deploy: Deploy, about: DeployTitle): View {
  const isFinished = !UNFINISHED_DEPLOYS.includes(deploy.state);
  const row = deployRow(deploy, about);
  return {
    url: `${session.pageUrl}/deploys/${deploy.id_str}`,
    title: about.title,
    state: deploy.state,
    startedAt: row.startedAt,
    finishedAt: isFinished ? row.finishedAt : null,
    note: row.note,
    rows: [],
  };
}

const deployChange = (session: ProjectSession, deploy: Deploy, about: DeployTitle): Change => ({
  row: deployRow(deploy, about),
  record: { strategy: about.strategy, deploy },
  logPath: deploy.state === 'failed' ? `${session.path}/deploys/${deploy.id_str}/log` : undefined,
  logCommand: '',
});

// Follows a build request or a deploy and reports it: as a live view on a terminal, as plain lines elsewhere, or as JSON. Prints
// the logs of what fails.

import { createRetry, type Retry, retrying } from './event-stream.ts';
import { EXIT, exitStatusOf } from './exit-status.ts';
import { type LogEnd, readLogEnd } from './failing-log.ts';
import { followDeploy, followRequest, type RequestState } from './follow-request.ts';
import { type OnInterrupt, type Subject, watchInterrupts } from './interrupts.ts';
import { createLiveView, type View, type ViewRow } from './live-view.ts';
import { durationText, jsonLine, plain, stateText, styleOf } from './output.ts';
import type { Deploy } from './records.ts';
import {
  type Change,
  changesOf,
  type DeployTitle,
  deployChange,
  deployView,
  viewOf,
} from './request-view.ts';
import type { ProjectSession } from './session.ts';

/** A connection that breaks for a moment is not worth a remark. */
const REMARK_AFTER_MS = 3_000;

export type ReportOptions = {
  environment: NodeJS.ProcessEnv;
  isJson: boolean;
  onInterrupt: OnInterrupt;
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
type Followed<S> = Subject & {
  follow(
    retry: Retry,
    options: { signal: AbortSignal; isLive: boolean; onState(state: S): void },
  ): Promise<S>;
  view(state: S): View;
  changes(state: S): Change[];
  exitStatus(state: S): number;
  cancelPath: string;
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

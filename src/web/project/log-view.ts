// A log on a page: the frame that client/log.js fills and keeps growing, its end as plain text where no script runs,
// and behind them its stream, its times and its raw text. Whose log it is, and who may see it, is the page's to say.

import { open } from 'node:fs/promises';
import { html } from 'hono/html';
import type { Endpoint } from '../../api/endpoint.ts';
import { type LogSource, lastEventIdHeader, resumeOffset, streamLog } from '../../api/firehose.ts';
import { streamResponse } from '../../api/http/stream.ts';
import type { Caller } from '../../domain/access.ts';
import { type LogTime, logSize, readLogTimes, timeOf } from '../../store/data/log-file.ts';
import { sizeWords } from '../frame/components.ts';
import { commonHeaders } from '../frame/headers.ts';
import { openPageStream } from '../frame/page-stream.ts';
import { type Html, perform, type Visit } from '../frame/visit.ts';

/** What a browser without script is shown of a log; the rest is a link away. */
const PLAIN_BYTES = 128 * 1024;
const MAX_ASKED_TIMES = 200;

export const logScripts = ['log.js'];
export const logStyles = ['log.css'];

/** `base` is the page's own address: stream, times and log lie under it. `empty` stands where nothing has been printed. */
export async function logView(parts: {
  base: string;
  path: string;
  state: string;
  isLive: boolean;
  fileName: string;
  empty: string;
  /** Where another run may begin after this one has ended: what tells of it, and what stands there until it prints. */
  again?: { href: string; empty: string };
}): Promise<Html> {
  const { base } = parts;
  return html`<section class="log-view" data-log="${base}" data-state="${parts.state}"${parts.isLive ? html` data-growing="yes"` : ''} data-empty="${parts.empty}"${parts.again ? html` data-again="${parts.again.href}" data-again-empty="${parts.again.empty}"` : ''} aria-labelledby="log-title">
<div class="log-bar">
<h2 id="log-title">Log</h2>
<form class="log-search" role="search" hidden>
<label class="sr" for="log-search">Search log</label>
<input id="log-search" type="search" placeholder="Search log" autocomplete="off" spellcheck="false" autocapitalize="off" aria-keyshortcuts="/" aria-describedby="log-count">
<output id="log-count" class="log-count" for="log-search"></output>
<button class="button plain" type="button" data-log-previous title="Shift+Enter" aria-label="Previous match">↑</button>
<button class="button plain" type="submit" title="Enter" aria-label="Next match">↓</button>
</form>
<div class="log-tools">
<button class="button plain" type="button" data-log-follow aria-pressed="false" hidden>Follow</button>
<button class="button plain" type="button" data-log-wrap aria-pressed="false" hidden>Wrap</button>
<button class="button plain" type="button" data-log-times aria-pressed="false" hidden>Timestamps</button>
<a class="button plain" href="${base}/log">Raw log</a>
<a class="button plain" href="${base}/log?download=yes" download="${parts.fileName}">Download</a>
</div>
</div>
<p class="sr" role="status" data-log-status></p>
<p class="log-note" role="status" data-log-note hidden></p>
<div class="log-lines" role="log" aria-live="off" aria-label="Log" tabindex="0" data-log-lines hidden></div>
<noscript>${await plainLog(parts.path, parts.empty)}</noscript>
</section>`;
}

async function plainLog(path: string, empty: string): Promise<Html> {
  const size = await logSize(path);
  if (size === 0) return html`<p class="log-note">${empty}</p>`;
  const start = Math.max(0, size - PLAIN_BYTES);
  const left = start > 0 ? `The first ${sizeWords(start)} are left out here: the raw log has them. ` : '';
  return html`<p class="log-note">${left}Without script the log does not grow by itself: <a href="">load the page again</a>.</p>
<pre class="log-plain" tabindex="0" aria-label="Log">${plainText(await readEnd(path, start, size))}</pre>`;
}

async function readEnd(path: string, start: number, end: number): Promise<string> {
  const file = await open(path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(end - start), 0, end - start, start);
    const text = buffer.subarray(0, bytesRead).toString('utf8');
    return start > 0 ? text.slice(text.indexOf('\n') + 1) : text;
  } finally {
    await file.close();
  }
}

/** Without colours and other commands to a terminal; of a line that was written over, what was written last. */
export function plainText(text: string): string {
  return text
    .replace(/\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])/g, '')
    .replace(/\r+$/gm, '')
    .replace(/^.*\r(?=[^\n])/gm, '')
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

/** The log to look at or to keep, by the endpoint that answers the API. */
export async function respondRawLog(
  visit: Visit,
  endpoint: Endpoint<Response | Promise<Response>>,
  fileName: string,
): Promise<Response> {
  const response = await perform(visit, endpoint);
  if (visit.url.searchParams.has('download'))
    response.headers.set('content-disposition', `attachment; filename="${fileName}"`);
  return response;
}

/** A log as it grows, for whoever has signed in and still sees it. */
export function respondLogStream(
  visit: Visit,
  followed: LogSource,
  sees: (caller: Caller) => unknown,
): Response {
  // A browser sends where it was when it comes back by itself; the page asks where it has to begin again.
  const from = lastEventIdHeader(visit.request) || (visit.url.searchParams.get('from') ?? '');
  streamLog(visit.services, openPageStream(visit, sees), followed, resumeOffset(from));
  return streamResponse();
}

/** When bytes of a log came: those at the offsets in `at`, or all from `from` on as [end, time], by the second. */
export async function respondLogTimes(visit: Visit, path: string): Promise<Response> {
  const query = visit.url.searchParams;
  const asked = query.get('at');
  const times =
    asked === null
      ? bySecond(await timesOf(path, resumeOffset(query.get('from') ?? '')))
      : await Promise.all(
          asked
            .split(',', MAX_ASKED_TIMES)
            .map(resumeOffset)
            .map(async at => timeOf(await timesOf(path, at, at + 1), at) ?? null),
        );
  return Response.json({ times }, { headers: { ...commonHeaders, 'cache-control': 'no-store' } });
}

async function timesOf(path: string, start: number, end?: number): Promise<LogTime[]> {
  try {
    return await readLogTimes(path, { start, ...(end !== undefined && { end }) });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** A log may have been written line by line: of the writes within one second the last says it all. */
function bySecond(times: readonly LogTime[]): [endOffset: number, atMs: number][] {
  const second = ({ atMs }: LogTime) => Math.floor(atMs / 1000);
  return times
    .filter((time, at) => {
      const next = times[at + 1];
      return !next || second(next) !== second(time);
    })
    .map(({ endOffset, atMs }) => [endOffset, atMs]);
}

// A log on a page: the element that client/log.js fills, plain text for browsers without scripts, and the routes for its
// stream, timestamps and raw text. The page that shows it decides who may see it.

import { open } from 'node:fs/promises';
import { html } from 'hono/html';
import type { Endpoint } from '../../api/endpoint.ts';
import { type LogSource, lastEventIdHeader, resumeOffset, streamLog } from '../../api/firehose.ts';
import { streamResponse } from '../../api/http/stream.ts';
import { listLogSeconds, listLogTimes } from '../../api/log.ts';
import type { Caller } from '../../domain/access.ts';
import { logSize, timeOf } from '../../store/data/log-file.ts';
import { formatSize } from '../frame/components.ts';
import { commonHeaders } from '../frame/headers.ts';
import { openPageStream } from '../frame/page-stream.ts';
import { type Html, perform, type Visit } from '../frame/visit.ts';

/** How much of the end of a log is shown without scripts. */
const PLAIN_BYTES = 128 * 1024;
const MAX_OFFSETS = 200;

export const logScripts = ['log.js'];
export const logStyles = ['log.css'];

/** `base` is the page's own address, with stream, times and log below it. `empty` is shown instead of an empty log. */
export async function logView(options: {
  base: string;
  path: string;
  state: string;
  /** The node that a build runs on; null if that is not known. */
  node?: string | null;
  isLive: boolean;
  fileName: string;
  empty: string;
  /** What the job does now, which stays in sight above the log. It has `data-live`. */
  now?: Html;
  /** If another run can follow: the stream that announces it, and the text shown until it prints. */
  again?: { href: string; empty: string };
}): Promise<Html> {
  const { base } = options;
  return html`<section class="log-view" data-log="${base}" data-state="${options.state}"${options.node == null ? '' : html` data-node="${options.node}"`}${options.isLive ? html` data-growing="yes"` : ''} data-empty="${options.empty}"${options.again ? html` data-again="${options.again.href}" data-again-empty="${options.again.empty}"` : ''} aria-labelledby="log-title">
<div class="log-bar">
<div class="log-now">
<h2 id="log-title"${options.now ? html` class="sr"` : ''}>Log</h2>
${options.now ?? ''}
<div class="log-jumps">
<button class="button danger" type="button" data-log-failure data-keys="x" data-keys-label="Failed step" hidden>Failed step</button>
<button class="button plain" type="button" data-log-follow data-keys="f" data-keys-label="Follow the log" aria-pressed="false" hidden>Follow</button>
<button class="button plain" type="button" data-log-end data-keys="e" data-keys-label="End of the log" hidden>End</button>
</div>
</div>
<form class="log-search" role="search" hidden>
<label class="sr" for="log-search">Search log</label>
<input id="log-search" type="search" placeholder="Search log" autocomplete="off" spellcheck="false" autocapitalize="off" data-keys="/" aria-describedby="log-count">
<output id="log-count" class="log-count" for="log-search"></output>
<button class="button plain" type="button" data-log-previous title="Shift+Enter" aria-label="Previous match">↑</button>
<button class="button plain" type="submit" title="Enter" aria-label="Next match">↓</button>
</form>
<div class="log-tools">
<button class="button plain" type="button" data-log-folds hidden>Collapse all</button>
<button class="button plain" type="button" data-log-wrap aria-pressed="false" hidden>Wrap</button>
<button class="button plain" type="button" data-log-times aria-pressed="false" hidden>Timestamps</button>
<button class="button plain" type="button" data-log-full data-keys="z" aria-pressed="false" hidden>Full screen</button>
<a class="button plain" href="${base}/log">Raw log</a>
<a class="button plain" href="${base}/log?download=yes" download="${options.fileName}">Download</a>
</div>
</div>
<p class="sr" role="status" data-log-status></p>
<p class="log-note" role="status" data-log-note hidden></p>
<div class="log-lines" role="log" aria-live="off" aria-label="Log" tabindex="0" data-keys="l" data-keys-label="Log" data-log-lines hidden></div>
<noscript>${await plainLog(options.path, options.empty)}</noscript>
</section>`;
}

async function plainLog(path: string, empty: string): Promise<Html> {
  const size = await logSize(path);
  if (size === 0) return html`<p class="log-note">${empty}</p>`;
  const start = Math.max(0, size - PLAIN_BYTES);
  const left = start > 0 ? `The first ${formatSize(start)} are not shown here. The raw log has them. ` : '';
  return html`<p class="log-note">${left}Without scripts the log does not update by itself. <a href="">Reload the page</a>.</p>
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

/** Removes colours and other terminal commands. Of an overwritten line, keeps what was written last. */
export function plainText(text: string): string {
  return text
    .replace(/\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])/g, '')
    .replace(/\r+$/gm, '')
    .replace(/^.*\r(?=[^\n])/gm, '')
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

/** The whole log as plain text, to view or download. */
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

/** Streams a log while it grows. */
export function respondLogStream(
  visit: Visit,
  source: LogSource,
  maySee: (caller: Caller) => unknown,
): Response {
  // The browser sends Last-Event-ID when it reconnects by itself; the page sends `from` when it starts over.
  const from = lastEventIdHeader(visit.request) || (visit.url.searchParams.get('from') ?? '');
  streamLog(visit.services, openPageStream(visit, maySee), source, resumeOffset(from));
  return streamResponse();
}

/** When bytes were written: those at the offsets `at`, or all after `from` as pairs of end offset and time, one per second. */
export async function respondLogTimes(visit: Visit, path: string): Promise<Response> {
  const query = visit.url.searchParams;
  const offsets = query.get('at');
  const times =
    offsets === null
      ? await listLogSeconds(path, resumeOffset(query.get('from') ?? ''))
      : await Promise.all(
          offsets
            .split(',', MAX_OFFSETS)
            .map(resumeOffset)
            .map(async at => timeOf(await listLogTimes(path, at, at + 1), at) ?? null),
        );
  return Response.json({ times }, { headers: { ...commonHeaders, 'cache-control': 'no-store' } });
}

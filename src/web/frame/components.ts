// The components that pages share: times, tables, empty states, copy buttons, sparklines. States are in state.ts, forms in form.ts.

import { html, raw } from 'hono/html';
import { stateLabel, toneOf } from './state.ts';
import type { Html, View } from './visit.ts';

const units: [unit: Intl.RelativeTimeFormatUnit, ms: number][] = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
/** Made at the first use, because it takes 8 ms. */
let relative: Intl.RelativeTimeFormat | undefined;

/**
 * "3 minutes ago". Its exact time is shown on hover, and while it has the focus, which a tap or the Tab key gives it.
 * times.js keeps it current and shows the exact time in the reader's time zone.
 */
export const relativeTime = (ms: number, now = Date.now()): Html =>
  html`<time datetime="${new Date(ms).toISOString()}" tabindex="0" title="${formatUtc(ms)}">${formatRelative(ms, now)}</time>`;

/** A relative time inside a link, which takes the focus itself. */
export const linkedTime = (ms: number, now = Date.now()): Html =>
  html`<time datetime="${new Date(ms).toISOString()}" title="${formatUtc(ms)}">${formatRelative(ms, now)}</time>`;

/** The exact time, in the reader's time zone if scripts run. */
export const exactTime = (ms: number): Html =>
  html`<time datetime="${new Date(ms).toISOString()}" data-exact>${formatUtc(ms)}</time>`;

const formatUtc = (ms: number) => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

function formatRelative(ms: number, now: number): string {
  const distance = ms - now;
  relative ??= new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
  for (const [unit, size] of units)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

/** 840 ms, 12 s, 3 min 20 s, 2 h 5 min. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function formatSize(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

export function pageHead(
  title: Html | string,
  options: {
    parent?: { href: string; label: string };
    /** The whole path to the page, instead of its parent; the last one is the page itself. */
    trail?: readonly Crumb[];
    actions?: Html | Html[];
    subtitle?: Html | string;
  } = {},
): Html {
  return html`<div class="head">
<div class="head-words">
${options.parent ? html`<p class="above"><a href="${options.parent.href}">${options.parent.label}</a></p>` : ''}${options.trail ? renderTrail(options.trail) : ''}
<h1>${title}</h1>
${options.subtitle ? html`<div class="below">${options.subtitle}</div>` : ''}
</div>
${options.actions ? html`<div class="head-aside">${options.actions}</div>` : ''}
</div>`;
}

/** `keys` are its keyboard shortcuts, separated by commas. */
/** Without `href`, what it names has no page any more. */
type Crumb = { href?: string | undefined; label: string };

function renderTrail(trail: readonly Crumb[]): Html {
  const items = trail.map(({ href, label }, at) =>
    href === undefined
      ? html`<li>${label}</li>`
      : html`<li><a href="${href}"${at === trail.length - 1 ? html` aria-current="page"` : ''}>${label}</a></li>`,
  );
  return html`<nav class="trail" aria-label="Breadcrumb"><ol>${items}</ol></nav>`;
}

export function navItem(href: string, label: Html | string, isCurrent: boolean, keys = ''): Html {
  return html`<li><a href="${href}"${isCurrent ? html` aria-current="page"` : ''}${keys ? html` data-keys="${keys}"` : ''}>${label}</a></li>`;
}

export function linkButton(href: string, label: string, tone: 'primary' | 'plain' = 'plain'): Html {
  return html`<a class="button ${tone}" href="${href}">${label}</a>`;
}

type Message = { title: string; text: Html | string; action?: Html };

/** Replaces an empty list: says what belongs here and what to do next. */
export function emptyState({ title, text, action }: Message): Html {
  return html`<div class="empty"><h2>${title}</h2><p>${text}</p>${action ?? ''}</div>`;
}

/** A page with one message. */
export function messageView(title: string, status: number, message: Message): View {
  return { title, status, body: html`<h1 class="sr">${title}</h1>${emptyState(message)}` };
}

/** Filters the items with data-filter-text in the list `listId` while the user types. Without scripts, the server filters by `q`. */
export function filterBox(listId: string, label: string, value = ''): Html {
  return html`<form class="filter" method="get" role="search"><label class="sr" for="${listId}-filter">${label}</label><input id="${listId}-filter" name="q" type="search" value="${value}" placeholder="${label}" autocomplete="off" data-keys="/" data-filter="${listId}"></form>`;
}

export type Row = { cells: readonly (Html | string)[]; filterText?: string };

/** A table that turns into cards on a narrow screen; the roles keep it a table for screen readers. The first cell is the row header. */
export function table(options: {
  caption: string;
  columns: readonly string[];
  rows: readonly Row[];
  id?: string;
  /** On a narrow screen, the cells of a row share a line without labels, so they must explain themselves. */
  isDense?: boolean;
  /** Shown instead of a table without rows. */
  empty?: Message;
}): Html {
  const { columns, rows } = options;
  if (options.empty && rows.length === 0) return emptyState(options.empty);
  return html`<table class="cards${options.isDense ? ' dense' : ''}" role="table"${options.id ? html` id="${options.id}"` : ''}><caption class="sr">${options.caption}</caption>
<thead role="rowgroup"><tr role="row">${columns.map(name => html`<th role="columnheader" scope="col">${name}</th>`)}</tr></thead>
<tbody role="rowgroup">${rows.map(
    row =>
      html`<tr role="row"${row.filterText === undefined ? '' : html` data-filter-text="${row.filterText.toLowerCase()}"`}>${row.cells.map(
        (cell, at) =>
          at === 0
            ? html`<th role="rowheader" scope="row" data-label="${columns[at] ?? ''}">${cell}</th>`
            : html`<td role="cell" data-label="${columns[at] ?? ''}">${cell}</td>`,
      )}</tr>`,
  )}</tbody></table>`;
}

/** A list of names and values. Leaves out empty values. */
export function propertyList(properties: readonly (readonly [name: string, value: Html | string])[]): Html {
  return html`<dl class="properties">${properties.filter(([, value]) => value !== '').map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** Text with a copy button, which appears only if scripts run. */
export function copyText(text: string, label: string): Html {
  return html`<div class="copy"><code class="copy-text">${text}</code><button class="button plain" type="button" data-copy hidden>${label}</button></div>`;
}

/**
 * The durations of the last runs, oldest first, one bar each; those that did not pass have a mark below. The label
 * describes them for screen readers.
 */
export function sparkline(runs: readonly { ms: number; state: string }[]): Html {
  if (runs.length === 0) return html`<span class="quiet">—</span>`;
  const [width, gap, height, barsHeight] = [5, 2, 24, 20];
  const longest = Math.max(...runs.map(run => run.ms), 1);
  const last = runs.at(-1) as { ms: number; state: string };
  let bad = 0;
  let bars = '';
  // As plain text, because a page has hundreds of bars: only numbers and known words.
  for (const [at, { ms, state }] of runs.entries()) {
    const tone = toneOf(state);
    const isBad = tone === 'bad' || tone === 'warn';
    const barHeight = Math.max(3, Math.round((ms / longest) * barsHeight));
    const x = at * (width + gap);
    const mark = isBad ? `M${x} ${height - 2}h${width}v2h-${width}z` : '';
    bars += `<path class="${tone}" d="M${x} ${barsHeight - barHeight}h${width}v${barHeight}h-${width}z${mark}"><title>${stateLabel(state)}, ${formatDuration(ms)}</title></path>`;
    if (isBad) bad += 1;
  }
  const label = `Last ${runs.length === 1 ? 'run' : `${runs.length} runs`}, newest ${formatDuration(last.ms)}${bad === 0 ? '' : `, ${bad} did not pass`}`;
  return html`<span class="trend"><svg class="spark" role="img" aria-label="${label}" width="${runs.length * (width + gap) - gap}" height="${height}">${raw(bars)}</svg> <span class="number">${formatDuration(last.ms)}</span></span>`;
}

/** The first page of a list. */
export const FIRST_PAGE = { before: undefined, after: undefined };

/** The same page with other values in its query; an undefined one is removed. */
export function hrefWith(url: URL, changes: Record<string, string | undefined>): string {
  const query = new URLSearchParams(url.search);
  for (const [name, value] of Object.entries(changes))
    if (value === undefined) query.delete(name);
    else query.set(name, value);
  return query.size === 0 ? url.pathname : `${url.pathname}?${query}`;
}

/** Links to the next page of a list; nothing on the last page. */
export function olderLink(url: URL, next: bigint | undefined, label: string): Html | string {
  if (next === undefined) return '';
  return html`<p class="older"><a class="button plain" href="${hrefWith(url, { before: next.toString() })}">${label}</a></p>`;
}

/** The page of a list that the address names; the last one if it has fewer. */
export function pageNumber(url: URL, last: number): number {
  const asked = Number(url.searchParams.get('page') ?? 1);
  return Math.min(Number.isSafeInteger(asked) && asked > 0 ? asked : 1, last);
}

/** Links to the pages before and after; nothing if there is only one. `last` is undefined if it is not known. */
export function pageLinks(
  url: URL,
  label: string,
  { page, hasNext, last }: { page: number; hasNext: boolean; last?: number },
): Html | string {
  if (page === 1 && !hasNext) return '';
  const link = (to: number, text: string) => linkButton(hrefWith(url, { page: String(to) }), text);
  return html`<nav class="older buttons" aria-label="${label}">${page > 1 ? link(page - 1, 'Previous') : ''}${hasNext ? link(page + 1, 'Next') : ''}<span class="quiet">Page ${page}${last === undefined ? '' : ` of ${last}`}</span></nav>`;
}

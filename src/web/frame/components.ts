// The small parts that pages are made of: times, tables, empty states, copy buttons, plots. States are in state.ts, forms in form.ts.

import { html, raw } from 'hono/html';
import { stateWord, toneOf } from './state.ts';
import type { Html, View } from './visit.ts';

const steps: [unit: Intl.RelativeTimeFormatUnit, ms: number][] = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

/** "3 minutes ago", with the exact time on hover; the script keeps it true. */
export function relativeTime(ms: number, now = Date.now()): Html {
  const exact = new Date(ms).toISOString();
  return html`<time datetime="${exact}" title="${exact.slice(0, 19).replace('T', ' ')} UTC">${sinceWords(ms, now)}</time>`;
}

function sinceWords(ms: number, now: number): string {
  const distance = ms - now;
  for (const [unit, size] of steps)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

/** 840 ms, 12 s, 3 min 20 s, 2 h 5 min. */
export function durationWords(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function sizeWords(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

/** The page's heading with what can be done on it. `above` leads back to where it belongs. */
export function pageHead(
  title: Html | string,
  parts: { above?: { href: string; label: string }; aside?: Html | Html[]; below?: Html | string } = {},
): Html {
  return html`<div class="head">
<div class="head-words">
${parts.above ? html`<p class="above"><a href="${parts.above.href}">${parts.above.label}</a></p>` : ''}
<h1>${title}</h1>
${parts.below ? html`<div class="below">${parts.below}</div>` : ''}
</div>
${parts.aside ? html`<div class="head-aside">${parts.aside}</div>` : ''}
</div>`;
}

export function linkButton(href: string, label: string, tone: 'primary' | 'plain' = 'plain'): Html {
  return html`<a class="button ${tone}" href="${href}">${label}</a>`;
}

type Message = { title: string; text: Html | string; action?: Html };

/** Where a list has nothing yet: what would be here, and what to do next. */
export function emptyState(parts: Message): Html {
  return html`<div class="empty"><h2>${parts.title}</h2><p>${parts.text}</p>${parts.action ?? ''}</div>`;
}

/** A page that is one message. */
export function messageView(title: string, status: number, message: Message): View {
  return { title, status, body: html`<h1 class="sr">${title}</h1>${emptyState(message)}` };
}

/** `id` names the list that is filtered as one types: items in it with data-filter-text. Without script it asks the server (`q`). */
export function filterBox(listId: string, label: string, value = ''): Html {
  return html`<form class="filter" method="get" role="search"><label class="sr" for="${listId}-filter">${label}</label><input id="${listId}-filter" name="q" type="search" value="${value}" placeholder="${label}" autocomplete="off" aria-keyshortcuts="/" data-filter="${listId}"></form>`;
}

export type Row = { cells: readonly (Html | string)[]; filterText?: string };

/** A table that becomes cards on a narrow screen; the roles keep it a table there. The first cell names its row. */
export function dataTable(parts: {
  caption: string;
  columns: readonly string[];
  rows: readonly Row[];
  id?: string;
  /** Shown instead of a table without rows. */
  empty?: Message;
}): Html {
  const { columns, rows } = parts;
  if (parts.empty && rows.length === 0) return emptyState(parts.empty);
  return html`<table class="cards" role="table"${parts.id ? html` id="${parts.id}"` : ''}><caption class="sr">${parts.caption}</caption>
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

/** A list of names and what they are. */
export function factList(facts: readonly (readonly [name: string, value: Html | string])[]): Html {
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** Text to take along: shown whole, with a button that copies it where scripts run. */
export function copyText(text: string, label: string): Html {
  return html`<div class="copy"><code class="copy-text">${text}</code><button class="button plain" type="button" data-copy hidden>${label}</button></div>`;
}

/** How long the last ones took, oldest first, one bar each; the words say the same. */
export function sparkline(runs: readonly { ms: number; state: string }[]): Html {
  if (runs.length === 0) return html`<span class="quiet">—</span>`;
  const [width, gap, height] = [5, 2, 24];
  const longest = Math.max(...runs.map(run => run.ms), 1);
  const last = runs.at(-1) as { ms: number; state: string };
  const words = `Last ${runs.length === 1 ? 'run' : `${runs.length} runs`}, newest ${durationWords(last.ms)}`;
  const bars = runs.map((run, at) => {
    const tall = Math.max(3, Math.round((run.ms / longest) * height));
    const place = `x="${at * (width + gap)}" y="${height - tall}" width="${width}" height="${tall}"`;
    return html`<rect class="${toneOf(run.state)}" rx="1" ${raw(place)}><title>${stateWord(run.state)}, ${durationWords(run.ms)}</title></rect>`;
  });
  return html`<span class="trend"><svg class="spark" role="img" aria-label="${words}" width="${runs.length * (width + gap) - gap}" height="${height}">${bars}</svg> <span class="number">${durationWords(last.ms)}</span></span>`;
}

/** The way to older items of a list that is longer than the page. */
export function olderLink(url: URL, next: bigint | undefined, label: string): Html | string {
  if (next === undefined) return '';
  const query = new URLSearchParams(url.search);
  query.set('before', next.toString());
  return html`<p class="older"><a class="button plain" href="${url.pathname}?${query.toString()}">${label}</a></p>`;
}

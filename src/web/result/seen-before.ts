// The block on the page of a build that shows whether its error lines were seen in other builds.

import { html } from 'hono/html';
import { formatCount } from '../../domain/text/count.ts';

import {
  listSeenLines,
  MAX_COUNTED,
  type SeenBuild,
  type SeenLine,
} from '../../store/result/failure-lines.ts';
import { linkedTime } from '../frame/components.ts';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildHref } from './build-frame.ts';
import { searchHref } from './search.ts';

const LINES_SHOWN = 3;
const MIN_STABLE = 8;
const MAX_QUERY = 120;

/** Empty for a build without error lines. */
export function renderSeenBefore(visit: BuildVisit): Html | string {
  const { db } = visit.services;
  const { build } = visit.found;
  const lines = withoutRepeats(listSeenLines(db, build));
  const [first] = lines;
  if (!first) return '';
  // A line of few builds says more about the failure than one of many.
  const seen = lines.filter(line => line.otherBuilds > 0).sort((a, b) => a.otherBuilds - b.otherBuilds);
  if (seen.length === 0)
    return html`<p class="finding"><strong>Not seen before:</strong> ${linkToLine(visit, first)} is in no other build of this project. ${linkToSearch(visit, first)}</p>`;
  return html`<section class="panel seen" aria-labelledby="seen-head">
<h2 id="seen-head">Seen before</h2>
<ul class="seen-lines">${seen.slice(0, LINES_SHOWN).map(line => html`<li>${renderLine(visit, line)}</li>`)}</ul>
</section>`;
}

/** The message of a failed test is often in the log too. */
const withoutRepeats = (lines: readonly SeenLine[]) =>
  lines.filter(one => one.line > 0 || !lines.some(other => other.line > 0 && one.text.includes(other.text)));

function linkToLine(visit: BuildVisit, { line, text }: SeenLine): Html {
  const code = html`<code>${text}</code>`;
  return line > 0 ? html`<a href="${buildHref(visit.found.build)}#L${line}">${code}</a>` : code;
}

const linkToSearch = (visit: BuildVisit, { text }: SeenLine) =>
  html`<a href="${searchHref({ q: stablePart(text), project: visit.found.project.id.toString() })}" aria-label="Search logs for this line">Search logs</a>`;

function renderLine(visit: BuildVisit, seen: SeenLine): Html {
  const history = seen.first && seen.last ? describeHistory(visit, seen, seen.first, seen.last) : '';
  return html`${linkToLine(visit, seen)}<p>${history} ${linkToSearch(visit, seen)}</p>`;
}

/** The longest part of a line without numbers, which other builds have too. */
function stablePart(text: string): string {
  const longest = text
    .split(/\S*\d\S*/)
    .map(part => part.trim())
    .reduce((best, part) => (part.length > best.length ? part : best), '');
  return (longest.length >= MIN_STABLE ? longest : text).slice(0, MAX_QUERY);
}

/** `first seen in build …, 12 times since, last yesterday on main` */
function describeHistory(
  visit: BuildVisit,
  { otherBuilds }: SeenLine,
  first: SeenBuild,
  last: SeenBuild,
): Html {
  const { build } = visit.found;
  const now = visit.services.db.now();
  const link = (seen: SeenBuild) =>
    html`<a href="${buildHref({ projectId: build.projectId, id: seen.id })}">${linkedTime(seen.createdAt, now)}</a>${seen.local ? ' in a local run' : seen.branch === '' ? '' : html` on <code>${seen.branch}</code>`}`;
  if (build.id < first.id)
    return html`First seen in this build, ${times(otherBuilds)} since, last ${link(last)}.`;
  const since = otherBuilds - 1;
  return since === 0
    ? html`Seen in one other build, ${link(first)}.`
    : html`First seen ${link(first)}, ${times(since)} since, last ${link(last)}.`;
}

const times = (count: number) =>
  count >= MAX_COUNTED - 1
    ? `${MAX_COUNTED} times or more`
    : count === 1
      ? 'once'
      : `${formatCount(count)} times`;

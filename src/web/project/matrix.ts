// The matrix of a project's commits and suites: the state of the newest build of each pair, with filters and pages.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import { type BuildState, type CommitState, isFinishedBuild, isRerunCandidate } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { formatCount } from '../../domain/text/count.ts';
import {
  type CommitFilter,
  type CommitPage,
  type CommitRow,
  findCommitPage,
} from '../../store/commit-pages.ts';
import type { Db } from '../../store/database/db.ts';
import {
  type BuildHead,
  type LatestStates,
  listLatestBuildsOfSuites,
  readLatestStates,
} from '../../store/overview.ts';
import { listProjectBranches } from '../../store/result/runs.ts';
import { listSuiteNames } from '../../store/suites.ts';
import {
  emptyState,
  FIRST_PAGE,
  formatDuration,
  hrefWith,
  linkButton,
  relativeTime,
} from '../frame/components.ts';
import { stateBadge, stateLabel, stateMark } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath, shortRef, subjectOf } from './frame.ts';

const COMMITS_PER_PAGE = 25;
/** Cells of more suites than this show icons only. */
const SUITES_WITH_DURATIONS = 5;
/** More suites than this do not fit next to each other: some of them get a column, the others are counted. */
const SUITES_FITTING = 20;
const SUITES_CHOSEN = 16;
/** Even if all are requested. */
const SUITES_AT_MOST = 200;
/** On a narrow screen, more passed builds than this are counted instead of listed, so that failures stand out. */
const PASSED_LISTED = 8;
/** How many letters fit into the head of a column with icons. */
const NAME_LENGTH = 19;
const FILTER_LENGTH = 200;

/** The key is the id as text. */
type Column = { id: bigint; key: string; name: string; isDeleted: boolean };
type Filter = CommitFilter & { state: string };

/** The states that a filter offers. */
const filterStates: Record<string, [label: string, states: CommitState[]]> = {
  failed: ['Failed or errored', ['failed', 'errored']],
  unfinished: ['Running or waiting', ['building', 'waiting_for_builds']],
  passed: ['Passed', ['passed']],
  canceled: ['Canceled', ['canceled']],
  skipped: ['Skipped', ['skipped']],
};

function readFilter({ searchParams }: URL): Filter {
  const text = (name: string) => (searchParams.get(name) ?? '').trim().slice(0, FILTER_LENGTH);
  const state = text('state');
  const states = Object.hasOwn(filterStates, state) ? (filterStates[state]?.[1] ?? []) : [];
  return { text: text('q'), branch: text('branch'), author: text('author'), state, states };
}

/** The matrix with its filters. `visit.url` has the filters and the page. */
export async function renderCommits(visit: ProjectVisit): Promise<Html> {
  const { db } = visit.services;
  const { project } = visit.found;
  const { searchParams } = visit.url;
  const filter = readFilter(visit.url);
  const isFiltered = [filter.text, filter.branch, filter.author].some(Boolean) || filter.states.length > 0;
  const [before, after] = ['before', 'after'].map(name => parseId(searchParams.get(name) ?? ''));
  const page = await findCommitPage(db, project.id, filter, { before, after }, COMMITS_PER_PAGE);
  if (page.rows.length === 0 && !isFiltered && before === undefined)
    return html`<h2 id="commits-head">Commits</h2>${emptyState({
      title: 'No commits yet',
      text: 'Start a build of a branch, a tag or a commit. The commit appears here with the result of each suite.',
    })}`;
  return html`<div class="section-head"><h2 id="commits-head">Commits</h2>${renderFilter(visit, filter, isFiltered)}</div>
${page.rows.length === 0 ? renderNone(visit, page) : await renderMatrix(visit, page.rows)}
${renderPager(visit.url, page, before !== undefined || after !== undefined)}`;
}

function renderFilter(visit: ProjectVisit, filter: Filter, isFiltered: boolean): Html {
  const branches = listProjectBranches(visit.services.db, visit.found.project.id);
  return html`<form class="commit-filter" method="get" action="${projectPath(visit)}" role="search" aria-label="Commits">
<label class="sr" for="filter-text">Message or hash</label><input id="filter-text" name="q" type="search" value="${filter.text}" placeholder="Message or hash" autocomplete="off" aria-keyshortcuts="/">
<label class="sr" for="filter-branch">Branch</label><input id="filter-branch" name="branch" value="${filter.branch}" placeholder="Branch" list="filter-branches" autocomplete="off" autocapitalize="off" spellcheck="false"><datalist id="filter-branches">${branches.map(branch => html`<option value="${branch}"></option>`)}</datalist>
<label class="sr" for="filter-author">Author</label><input id="filter-author" name="author" value="${filter.author}" placeholder="Author" autocomplete="off">
<label class="sr" for="filter-state">State</label><select id="filter-state" name="state"><option value="">Any state</option>${Object.entries(
    filterStates,
  ).map(
    ([state, [label]]) =>
      html`<option value="${state}"${state === filter.state ? html` selected` : ''}>${label}</option>`,
  )}</select>
<button class="button plain" type="submit">Filter</button>${isFiltered ? html`<a class="button plain" href="${projectPath(visit)}">Clear</a>` : ''}
</form>`;
}

function renderNone(visit: ProjectVisit, { isPartial }: CommitPage): Html {
  if (isPartial)
    return html`<p class="quiet">None of the commits that were searched matches. Go on with older ones.</p>`;
  return emptyState({
    title: 'No matching commits',
    text: 'No commit matches the filter.',
    action: linkButton(projectPath(visit), 'Show all commits'),
  });
}

/** Links to other pages, which keep the filter. */
function renderPager(url: URL, { newer, older, isPartial }: CommitPage, isLater: boolean): Html | string {
  const link = (label: string, name: 'before' | 'after', position: bigint | undefined) =>
    linkButton(hrefWith(url, { ...FIRST_PAGE, [name]: position?.toString() }), label);
  const links = [
    ...(isLater ? [link('Newest commits', 'before', undefined)] : []),
    ...(newer === undefined ? [] : [link('Newer commits', 'after', newer)]),
    ...(older === undefined
      ? []
      : [link(isPartial ? 'Search older commits' : 'Older commits', 'before', older)]),
  ];
  return links.length === 0 ? '' : html`<nav class="row older" aria-label="Pages of commits">${links}</nav>`;
}

async function renderMatrix(visit: ProjectVisit, commits: readonly CommitRow[]): Promise<Html> {
  const { db } = visit.services;
  const states: LatestStates[] = [];
  for (const { id } of commits) {
    const found = readLatestStates(db, id);
    states.push(found);
    // Commits with many suites take a while: let other requests run in between.
    if (found.suites.length > SUITES_FITTING) await nextTurn();
  }
  const all = orderColumns(
    columnsOf(db, listSuiteNames(db, visit.found.project.id), commits, states),
    states,
  );
  const isAll = visit.url.searchParams.get('suites') === 'all';
  const columns = all.slice(
    0,
    isAll ? SUITES_AT_MOST : all.length > SUITES_FITTING ? SUITES_CHOSEN : undefined,
  );
  const isTruncated = columns.length < all.length;
  const look = columns.length > SUITES_WITH_DURATIONS ? ' icons' : '';
  return html`${isTruncated ? renderTruncation(visit.url, columns.length, all.length) : ''}<div class="matrix-frame" tabindex="-1"><table class="matrix${look}" role="table"><caption class="sr">Commits and their suites</caption>
<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Commit</th><th role="columnheader" scope="col">State</th>${columns.map(column => renderColumnHead(visit, column, look !== ''))}${
    isTruncated ? html`<th role="columnheader" scope="col">Other suites</th>` : ''
  }</tr></thead>
<tbody role="rowgroup">${commits.map((commit, at) => renderRow(visit, commit, columns, states[at] as LatestStates, isTruncated))}</tbody></table></div>
${look === '' ? '' : renderLegend(states)}`;
}

function renderTruncation(url: URL, shown: number, all: number): Html {
  const more =
    shown < SUITES_AT_MOST ? html` <a href="${hrefWith(url, { suites: 'all' })}">Show all suites</a>` : '';
  return html`<p class="quiet">Showing ${shown} of ${formatCount(all)} suites. Those that fail come first, the others are counted.${more}</p>`;
}

/** The current suites, oldest first, then deleted ones that have builds here. */
function columnsOf(
  db: Db,
  suites: readonly { id: bigint; name: string }[],
  commits: readonly CommitRow[],
  states: readonly LatestStates[],
): Column[] {
  const columns = new Map<string, Column>();
  const add = (id: bigint, name: string, isDeleted: boolean) => {
    const key = `${id}`;
    columns.set(key, { id, key, name, isDeleted });
  };
  for (const { id, name } of suites) add(id, name, false);
  for (const [at, ofCommit] of states.entries()) {
    if (ofCommit.suites === states[at - 1]?.suites) continue;
    const deleted = ofCommit.suites.filter(id => !columns.has(id)).map(BigInt);
    if (deleted.length === 0) continue;
    const builds = listLatestBuildsOfSuites(db, (commits[at] as CommitRow).id, deleted);
    for (const id of deleted) {
      const build = builds.get(id);
      if (build) add(id, build.suiteName, true);
    }
  }
  return [...columns.values()];
}

/**
 * Suites that fail now come first. If not all fit, those that failed before follow, the latest first, so that as many
 * rows as possible show what failed in them; then those that run.
 */
function orderColumns(columns: readonly Column[], states: readonly LatestStates[]): Column[] {
  const isChoice = columns.length > SUITES_FITTING;
  const notable = new Set(states.flatMap(({ notPassed }) => notPassed));
  const rankOf = ({ key }: Column): number => {
    if (!notable.has(key)) return Number.MAX_VALUE;
    const ofSuite = states.map(({ stateOf }) => stateOf(key));
    if (isBad(ofSuite.find(isFinished))) return -1;
    const failed = isChoice ? ofSuite.findIndex(isBad) : -1;
    if (failed >= 0) return failed;
    return isChoice && ofSuite.includes('running') ? states.length : Number.MAX_VALUE;
  };
  return columns
    .map(column => ({ column, rank: rankOf(column) }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ column }) => column);
}

const isFinished = (state: BuildState | undefined) => state !== undefined && isFinishedBuild(state);
const isBad = (state: BuildState | undefined) => state !== undefined && isRerunCandidate(state);

function renderColumnHead(visit: ProjectVisit, { id, name, isDeleted }: Column, isTurned: boolean): Html {
  const short = isTurned ? abbreviate(name) : name;
  const label =
    short === name ? name : html`<span aria-hidden="true">${short}</span><span class="sr">${name}</span>`;
  return html`<th role="columnheader" scope="col" class="suite-name">${
    isDeleted
      ? html`<span title="${name}">${label}</span>`
      : html`<a href="${projectPath(visit, `/suites/${id}`)}" title="${name}">${label}</a>`
  }</th>`;
}

/** Names often differ at their end, such as “Browser tests, part 12”. */
function abbreviate(name: string): string {
  const letters = [...name];
  if (letters.length <= NAME_LENGTH) return name;
  return `${letters
    .slice(0, NAME_LENGTH - 9)
    .join('')
    .trimEnd()}…${letters.slice(-8).join('').trimStart()}`;
}

function renderLegend(states: readonly LatestStates[]): Html {
  const shown = new Set(states.flatMap(({ counts }) => [...counts.keys()]));
  return html`<p class="legend">${inOrder(shown).map(state => stateBadge(state))}<span class="quiet"><span aria-hidden="true">·</span> Did not run</span></p>`;
}

/** Worst first, as legends and counts list them. */
const order: readonly BuildState[] = [
  'failed',
  'errored',
  'timed_out',
  'running',
  'enqueued',
  'canceled',
  'passed',
];
const inOrder = (states: ReadonlySet<BuildState>) => order.filter(state => states.has(state));

function renderRow(
  visit: ProjectVisit,
  commit: CommitRow,
  columns: readonly Column[],
  states: LatestStates,
  isTruncated: boolean,
): Html {
  const { db } = visit.services;
  const href = projectPath(visit, `/commits/${commit.id}`);
  const builds = listLatestBuildsOfSuites(
    db,
    commit.id,
    columns.map(({ id }) => id),
  );
  const passed = states.counts.get('passed') ?? 0;
  const isCounted = passed > PASSED_LISTED;
  return html`<tr role="row" id="commit-${commit.id}" data-live><th role="rowheader" scope="row"><a class="subject" href="${href}">${subjectOf(commit)}</a>
<div class="second">${shortRef(commit)} ${commit.branch === '' ? '' : html`<span class="tag branch" title="${commit.branch}">${commit.branch}</span> `}${commit.authorName}, ${relativeTime(Date.parse(commit.committedDate), db.now())}</div></th>
<td role="cell" class="whole">${stateBadge(commit.buildState)}</td>
${columns.map(column => renderCell(visit, column, builds.get(column.id), isCounted))}${
  isTruncated ? renderOthers(href, columns, states, isCounted) : ''
}${isCounted ? html`<td role="cell" class="cell passed"><a href="${href}">${passed} passed</a></td>` : ''}</tr>`;
}

/** The results of the suites without a column, the worst first. */
function renderOthers(
  href: string,
  columns: readonly Column[],
  states: LatestStates,
  isCounted: boolean,
): Html {
  const counts = new Map(states.counts);
  for (const { key } of columns) {
    const state = states.stateOf(key);
    if (state !== undefined) counts.set(state, (counts.get(state) ?? 0) - 1);
  }
  for (const [state, count] of counts) if (count === 0) counts.delete(state);
  const [worst, ...more] = inOrder(new Set(counts.keys()));
  if (worst === undefined)
    return html`<td role="cell" class="cell none"><span aria-hidden="true">·</span><span class="sr">did not run</span></td>`;
  const words = [worst, ...more].map(
    (state, at) =>
      html`${at > 0 ? ', ' : ''}<span>${counts.get(state)} ${stateLabel(state).toLowerCase()}</span>`,
  );
  const isCalm = isCounted && worst === 'passed';
  return html`<td role="cell" class="cell others${isCalm ? ' calm' : ''}"><a href="${href}"><span aria-hidden="true">${stateMark(worst)}</span><span class="counts">${words}</span></a></td>`;
}

function renderCell(
  visit: ProjectVisit,
  { name }: Column,
  build: BuildHead | undefined,
  isCounted: boolean,
): Html {
  if (!build)
    return html`<td role="cell" class="cell none" title="${name} did not run"><span aria-hidden="true">·</span><span class="sr">did not run</span></td>`;
  const took = durationOf(build);
  const title = `${name}: ${stateLabel(build.buildState)}${took && `, ${took}`}`;
  return html`<td role="cell" class="cell${isCounted && build.buildState === 'passed' ? ' calm' : ''}"><a href="${projectPath(visit, `/builds/${build.id}`)}"><span class="cell-name">${name}</span> ${stateMark(build.buildState, title)} <span class="number">${took}</span></a></td>`;
}

/** How long a finished build ran; empty if it never started or has not ended. */
export function durationOf(build: Pick<BuildHead, 'buildState' | 'startedAt' | 'finishedAt'>): string {
  if (!isFinishedBuild(build.buildState) || build.startedAt === null || build.finishedAt === null) return '';
  return formatDuration(build.finishedAt - build.startedAt);
}

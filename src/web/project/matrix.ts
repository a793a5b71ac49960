// The matrix of a project's commits and suites: the state and duration of the newest build of each pair.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import { isFinishedBuild } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { type BuildHead, type CommitHead, listCommitHeads, listLatestBuilds } from '../../store/overview.ts';
import { listSuiteNames } from '../../store/suites.ts';
import { emptyState, formatDuration, olderLink, relativeTime } from '../frame/components.ts';
import { stateBadge, stateMark } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath, shortRef, subjectOf } from './frame.ts';

const COMMITS_PER_PAGE = 25;
const COLUMNS_SHOWN = 60;
/** On a narrow screen, more passed builds than this are counted instead of listed, so that failures stand out. */
const PASSED_LISTED = 8;

type Column = { id: bigint; name: string };
type BuildsOfCommit = ReadonlyMap<bigint, BuildHead>;

export async function renderCommits(visit: ProjectVisit): Promise<Html> {
  const { db } = visit.services;
  const { project } = visit.found;
  const before = parseId(visit.url.searchParams.get('before') ?? '');
  const rows = listCommitHeads(db, project.id, { limit: COMMITS_PER_PAGE, before });
  const commits = rows.slice(0, COMMITS_PER_PAGE);
  if (commits.length === 0)
    return emptyState({
      title: 'No commits yet',
      text: 'Start a build of a branch, a tag or a commit. The commit appears here with the result of each suite.',
    });
  const builds = new Map<bigint, BuildsOfCommit>();
  for (const { id } of commits) {
    const found = listLatestBuilds(db, id);
    builds.set(id, found);
    // A commit with a thousand suites takes a while: let other requests run in between.
    if (found.size > COLUMNS_SHOWN) await nextTurn();
  }
  const all = columnsOf(listSuiteNames(db, project.id), [...builds.values()]);
  const columns = all.length > COLUMNS_SHOWN ? selectColumns(all, [...builds.values()]) : all;
  const isTruncated = columns.length < all.length;
  const next = rows.length > COMMITS_PER_PAGE ? commits.at(-1)?.id : undefined;
  return html`${isTruncated ? html`<p class="quiet">Showing ${columns.length} of ${all.length} suites. Those that did not pass come first. The page of a commit lists all of its builds.</p>` : ''}<div class="matrix-frame"><table class="matrix" role="table"><caption class="sr">Commits and their suites</caption>
<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Commit</th><th role="columnheader" scope="col">State</th>${columns.map(
    ({ name }) =>
      html`<th role="columnheader" scope="col" class="suite-name"><span title="${name}">${name}</span></th>`,
  )}${isTruncated ? html`<th role="columnheader" scope="col">Others</th>` : ''}</tr></thead>
<tbody role="rowgroup">${commits.map(commit => renderRow(visit, commit, columns, builds.get(commit.id), isTruncated))}</tbody></table></div>
${olderLink(visit.url, next, 'Older commits')}`;
}

/** The current suites, oldest first, then deleted ones that have builds here. */
function columnsOf(suites: readonly Column[], builds: readonly BuildsOfCommit[]): Column[] {
  const columns = new Map(suites.map(suite => [suite.id, suite.name]));
  for (const bySuite of builds)
    for (const { suiteId, suiteName } of bySuite.values())
      if (!columns.has(suiteId)) columns.set(suiteId, suiteName);
  return [...columns].map(([id, name]) => ({ id, name }));
}

/** Suites that did not pass come first, those of the newest commit before those of older ones; then the others. */
function selectColumns(columns: readonly Column[], builds: readonly BuildsOfCommit[]): Column[] {
  const chosen = new Set<bigint>();
  for (const bySuite of builds)
    for (const build of bySuite.values())
      if (!isPassed(build) && chosen.size < COLUMNS_SHOWN) chosen.add(build.suiteId);
  for (const { id } of columns) if (chosen.size < COLUMNS_SHOWN) chosen.add(id);
  const byId = new Map(columns.map(column => [column.id, column]));
  return [...chosen].flatMap(id => byId.get(id) ?? []);
}

function renderRow(
  visit: ProjectVisit,
  commit: CommitHead,
  columns: readonly Column[],
  builds: BuildsOfCommit | undefined,
  isTruncated: boolean,
): Html {
  const { db } = visit.services;
  const href = projectPath(visit, `/commits/${commit.id}`);
  const passed = [...(builds?.values() ?? [])].filter(isPassed).length;
  const isCounted = passed > PASSED_LISTED;
  return html`<tr role="row" id="commit-${commit.id}" data-live><th role="rowheader" scope="row"><a class="subject" href="${href}">${subjectOf(commit)}</a>
<div class="second">${shortRef(commit)} ${commit.authorName}, ${relativeTime(Date.parse(commit.committedDate), db.now())}</div></th>
<td role="cell" class="whole">${stateBadge(commit.buildState)}</td>
${columns.map(column => renderCell(visit, column, builds?.get(column.id), isCounted))}${
  isTruncated ? renderOthers(href, columns, builds, isCounted) : ''
}${isCounted ? html`<td role="cell" class="cell passed"><a href="${href}">${passed} passed</a></td>` : ''}</tr>`;
}

/** The results of the suites without a column. */
function renderOthers(
  href: string,
  columns: readonly Column[],
  builds: BuildsOfCommit | undefined,
  isCounted: boolean,
): Html {
  const shown = new Set(columns.map(({ id }) => id));
  const others = [...(builds?.values() ?? [])].filter(({ suiteId }) => !shown.has(suiteId));
  if (others.length === 0)
    return html`<td role="cell" class="cell none"><span aria-hidden="true">·</span><span class="sr">did not run</span></td>`;
  const passed = others.filter(isPassed).length;
  const counts = [
    ...(passed > 0 ? [`${passed} passed`] : []),
    ...(passed < others.length ? [`${others.length - passed} did not pass`] : []),
  ];
  return html`<td role="cell" class="cell others${isCounted && passed === others.length ? ' calm' : ''}"><a href="${href}">${counts.join(', ')}</a></td>`;
}

const isPassed = ({ buildState }: BuildHead) => buildState === 'passed';

function renderCell(
  visit: ProjectVisit,
  { name }: Column,
  build: BuildHead | undefined,
  isCounted: boolean,
): Html {
  if (!build)
    return html`<td role="cell" class="cell none" title="${name} did not run"><span aria-hidden="true">·</span><span class="sr">did not run</span></td>`;
  const took = durationOf(build);
  return html`<td role="cell" class="cell${isCounted && isPassed(build) ? ' calm' : ''}"><a href="${projectPath(visit, `/builds/${build.id}`)}"><span class="cell-name">${name}</span> ${stateMark(build.buildState)} <span class="number">${took}</span></a></td>`;
}

/** How long a finished build ran; empty if it never started or has not ended. */
export function durationOf(build: Pick<BuildHead, 'buildState' | 'startedAt' | 'finishedAt'>): string {
  if (!isFinishedBuild(build.buildState) || build.startedAt === null || build.finishedAt === null) return '';
  return formatDuration(build.finishedAt - build.startedAt);
}

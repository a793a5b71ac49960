// The commits of a project against its suites: a mark for each build that counts, with how long it took.

import { html } from 'hono/html';
import { isFinishedBuild } from '../domain/build.ts';
import { parseId } from '../domain/id.ts';
import type { Build } from '../store/builds.ts';
import { type CommitHead, listCommitHeads, listCountingBuilds } from '../store/overview.ts';
import { listEverySuite } from '../store/suites.ts';
import { durationWords, emptyState, olderLink, relativeTime } from './components.ts';
import type { Html } from './layout.ts';
import { projectPath, shortRef, subjectOf } from './project-frame.ts';
import { stateBadge, stateMark } from './state.ts';
import type { Visit } from './visit.ts';

const COMMITS_A_PAGE = 25;
/** Where a screen is narrow, so many that passed are counted instead of listed: what did not would be lost among them. */
const PASSED_LISTED = 8;

type Column = { id: bigint; name: string };

export function renderCommits(visit: Visit): Html {
  const { db } = visit.services;
  const { project } = visit.found;
  const before = parseId(visit.url.searchParams.get('before') ?? '');
  const rows = listCommitHeads(db, project.id, { limit: COMMITS_A_PAGE, before });
  const commits = rows.slice(0, COMMITS_A_PAGE);
  if (commits.length === 0)
    return emptyState({
      title: 'No commits yet',
      text: 'Start a build of a branch, a tag or a commit: what it fetches appears here, with the result of each suite.',
    });
  const builds = listCountingBuilds(
    db,
    commits.map(({ id }) => id),
  );
  const columns = columnsOf(listEverySuite(db, project.id), [...builds.values()]);
  const next = rows.length > COMMITS_A_PAGE ? commits.at(-1)?.id : undefined;
  return html`<div class="matrix-frame"><table class="matrix" role="table"><caption class="sr">Commits and their suites</caption>
<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Commit</th><th role="columnheader" scope="col">State</th>${columns.map(
    ({ name }) =>
      html`<th role="columnheader" scope="col" class="suite-name"><span title="${name}">${name}</span></th>`,
  )}</tr></thead>
<tbody role="rowgroup">${commits.map(commit => renderRow(visit, commit, columns, builds.get(commit.id)))}</tbody></table></div>
${olderLink(visit.url, next, 'Older commits')}`;
}

/** Today's suites in the order in which they were made, then deleted ones that still have builds here. */
function columnsOf(suites: readonly Column[], builds: readonly ReadonlyMap<bigint, Build>[]): Column[] {
  const columns = new Map(suites.map(suite => [suite.id, suite.name]));
  for (const bySuite of builds)
    for (const { suiteId, suiteName } of bySuite.values())
      if (!columns.has(suiteId)) columns.set(suiteId, suiteName);
  return [...columns].map(([id, name]) => ({ id, name }));
}

function renderRow(
  visit: Visit,
  commit: CommitHead,
  columns: readonly Column[],
  builds: ReadonlyMap<bigint, Build> | undefined,
): Html {
  const { db } = visit.services;
  const href = projectPath(visit, `/commits/${commit.id}`);
  const passed = [...(builds?.values() ?? [])].filter(isPassed).length;
  const isCounted = passed > PASSED_LISTED;
  return html`<tr role="row"><th role="rowheader" scope="row"><a class="subject" href="${href}">${subjectOf(commit)}</a>
<div class="second">${shortRef(commit)} ${commit.authorName}, ${relativeTime(Date.parse(commit.committedDate), db.now())}</div></th>
<td role="cell" class="whole">${stateBadge(commit.buildState)}</td>
${columns.map(column => renderCell(visit, column, builds?.get(column.id), isCounted))}${
  isCounted ? html`<td role="cell" class="cell passed"><a href="${href}">${passed} passed</a></td>` : ''
}</tr>`;
}

const isPassed = ({ buildState }: Build) => buildState === 'passed';

function renderCell(visit: Visit, { name }: Column, build: Build | undefined, isCounted: boolean): Html {
  if (!build)
    return html`<td role="cell" class="cell none" title="${name} did not run"><span aria-hidden="true">·</span><span class="sr">did not run</span></td>`;
  const took = durationOf(build);
  return html`<td role="cell" class="cell${isCounted && isPassed(build) ? ' calm' : ''}"><a href="${projectPath(visit, `/builds/${build.id}`)}"><span class="cell-name">${name}</span> ${stateMark(build.buildState)} <span class="number">${took}</span></a></td>`;
}

/** How long a finished build ran; nothing for one that never began or has not ended. */
export function durationOf(build: Build): string {
  if (!isFinishedBuild(build.buildState) || build.startedAt === null || build.finishedAt === null) return '';
  return durationWords(build.finishedAt - build.startedAt);
}

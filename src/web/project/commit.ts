// The page of a commit: its details, its builds, which suites ran for it and why, and a form to deploy it.

import { html } from 'hono/html';
import { type BuildState, isFinishedBuild, isFinishedCommit, isRerunCandidate } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { describeCounts } from '../../domain/result/test-result.ts';
import { type Build, findNewestRequest, listBuildsOfCommit, listSuiteDecisions } from '../../store/builds.ts';
import { type BuildHead, listLatestBuilds } from '../../store/overview.ts';
import {
  copyText,
  exactTime,
  hrefWith,
  linkButton,
  olderLink,
  propertyList,
  relativeTime,
  table,
} from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { stopQuestion } from '../result/build-frame.ts';
import { renderRuleResults } from '../suite/rule-results.ts';
import { watchButton } from '../watch.ts';
import { rerunBuilds } from './build.ts';
import { renderDeployForm } from './deploys.ts';
import { projectPath, projectView, shortRef, subjectOf } from './frame.ts';
import { durationOf } from './matrix.ts';
import { renderLocalNotice, renderStartedBy } from './started-by.ts';

type CommitVisit = Visit<'project' | 'commit'>;

const PATH = '/ui/projects/:project_id/commits/:commit_id';
const FILES_SHOWN = 1_000;
const BUILDS_PER_PAGE = 100;
const DECISIONS_PER_PAGE = 100;

export const commitPages: Route[] = [
  page(PATH, showCommit),
  form(`${PATH}/rerun`, visit => rerun(visit, state => isFinishedBuild(state))),
  form(`${PATH}/rerun_failed`, visit => rerun(visit, isRerunCandidate)),
];

/** The newest build of each suite, which alone decides the state of the commit. */
function currentBuilds({ services: { db }, found: { commit } }: CommitVisit): BuildHead[] {
  return [...listLatestBuilds(db, commit.id).values()];
}

/** Reruns the current builds whose state matches. */
async function rerun(visit: CommitVisit, matches: (state: BuildState) => boolean): Promise<Response> {
  const chosen = currentBuilds(visit).filter(({ buildState }) => matches(buildState));
  const startedCount = (await rerunBuilds(visit, chosen)).length;
  return respondRedirect(projectPath(visit, `/commits/${visit.found.commit.id}`), {
    message:
      startedCount === 0
        ? 'There is nothing to rerun.'
        : `${startedCount === 1 ? '1 suite' : `${startedCount} suites`} started again.`,
  });
}

function showCommit(visit: CommitVisit): View {
  const { commit } = visit.found;
  const here = projectPath(visit, `/commits/${commit.id}`);
  const [, ...rest] = commit.message.split('\n');
  const body = rest.join('\n').trim();
  return projectView(visit, {
    tab: 'overview',
    live: here + visit.url.search,
    subpage: {
      heading: subjectOf(commit),
      title: `${commit.ref.slice(0, 10)} ${subjectOf(commit)}`,
      state: commit.buildState,
      subtitle: html`${stateBadge(commit.buildState)} ${shortRef(commit)} <span>${commit.authorName}, ${relativeTime(Date.parse(commit.authoredDate))}</span>`,
    },
    body: html`${commit.local ? renderLocalNotice(findNewestRequest(visit.services.db, commit.id)) : ''}
${body === '' ? '' : html`<pre class="message" tabindex="0" role="region" aria-label="Message">${body}</pre>`}
<section id="builds" data-live aria-labelledby="builds-head">${renderBuilds(visit)}</section>
<section id="decisions" data-live aria-labelledby="decisions-head"><h2 id="decisions-head">Why these suites</h2>${renderDecisions(visit)}</section>
${commit.local ? '' : html`<section class="panel" aria-labelledby="deploy-head"><h2 id="deploy-head">Deploy this commit</h2>${renderDeployForm(visit, commit)}</section>`}
<section class="panel" aria-labelledby="details-head"><h2 id="details-head">Commit</h2>${renderDetails(visit)}</section>`,
  });
}

function renderDetails({ found: { commit } }: CommitVisit): Html {
  const list = (json: string) => (JSON.parse(json) as string[]).map(name => html`<code>${name}</code> `);
  const person = (name: string, email: string, date: string) =>
    html`${name} &lt;${email}&gt;<div class="second">${exactTime(Date.parse(date))}, ${relativeTime(Date.parse(date))}</div>`;
  const files = JSON.parse(commit.files) as string[];
  const filesChanged = files.length + (commit.filesOmitted ?? 0);
  const filesShown = files.slice(0, FILES_SHOWN);
  return propertyList([
    ['Hash', copyText(commit.ref, 'Copy hash')],
    ['Author', person(commit.authorName, commit.authorEmail, commit.authoredDate)],
    ['Committer', person(commit.committerName, commit.committerEmail, commit.committedDate)],
    ['Version', commit.version > 1 ? `${commit.version} (replaced by a force push)` : ''],
    ['Branches', commit.local ? '' : commit.branches === '[]' ? 'none' : html`${list(commit.branches)}`],
    ['Tags', commit.local ? '' : commit.tags === '[]' ? 'none' : html`${list(commit.tags)}`],
    [
      'Changed files',
      files.length === 0
        ? 'none'
        : html`<details><summary>${filesChanged === 1 ? '1 file' : `${filesChanged} files`}</summary><ul class="files">${filesShown.map(file => html`<li><code>${file}</code></li>`)}${filesChanged > filesShown.length ? html`<li>… ${filesChanged - filesShown.length} more</li>` : ''}</ul></details>`,
    ],
  ]);
}

function renderBuilds(visit: CommitVisit): Html {
  const { db } = visit.services;
  const { commit } = visit.found;
  const before = parseId(visit.url.searchParams.get('before') ?? '');
  const rows = listBuildsOfCommit(db, commit.id, { limit: BUILDS_PER_PAGE, before });
  const builds = rows.slice(0, BUILDS_PER_PAGE);
  const current = currentBuilds(visit);
  const currentIds = new Set(current.map(({ id }) => id));
  const failed = current.filter(({ buildState }) => isRerunCandidate(buildState)).length;
  const finished = current.filter(({ buildState }) => isFinishedBuild(buildState)).length;
  const here = projectPath(visit, `/commits/${commit.id}`);
  return html`<div class="section-head"><h2 id="builds-head">Builds</h2><div class="row">${isFinishedCommit(commit.buildState) ? '' : watchButton(here)}${
    failed > 0 ? actionButton(formTo(visit, `${here}/rerun_failed`), 'Rerun failed', { tone: 'primary' }) : ''
  }${finished > 0 ? actionButton(formTo(visit, `${here}/rerun`), 'Rerun all') : ''}</div></div>
${table({
  caption: 'Builds',
  columns: ['Suite', 'State', 'Duration', 'Started', 'Actions'],
  rows: builds.map(build => ({ cells: buildCells(visit, build, currentIds.has(build.id)) })),
  empty: {
    title: 'No builds',
    text: 'No suite ran for this commit. See below for the reason. A project without suites skips its commits.',
    action: linkButton(projectPath(visit, '/suites'), 'Go to suites'),
  },
})}
${olderLink(visit.url, rows.length > BUILDS_PER_PAGE ? builds.at(-1)?.id : undefined, 'Older builds')}`;
}

function buildCells(visit: CommitVisit, build: Build, isCurrent: boolean): (Html | string)[] {
  const path = projectPath(visit, `/builds/${build.id}`);
  const waiting = visit.services.waiting(build);
  const reason = build.error ?? (waiting && `Number ${waiting.position} in the queue: ${waiting.reason}`);
  const note = build.buildState === 'failed' && build.exitCode !== null ? `(exit ${build.exitCode})` : '';
  return [
    html`<a class="name" href="${path}">${build.suiteName}</a>${isCurrent ? '' : html` <span class="tag">earlier run</span>`}`,
    html`<div>${stateBadge(build.buildState, note)}${reason ? html`<div class="why">${reason}</div>` : ''}${build.tests ? html`<div class="second"><a href="${path}/tests">${describeCounts(build.tests)}</a></div>` : ''}</div>`,
    html`<span class="number">${durationOf(build) || '–'}</span>`,
    html`<div>${build.startedAt === null ? html`<span class="quiet">not yet</span>` : relativeTime(build.startedAt)}<div class="second words">${renderStartedBy(visit, build.buildRequestId)}</div></div>`,
    isFinishedBuild(build.buildState)
      ? isCurrent
        ? actionButton(formTo(visit, `${path}/rerun`), 'Rerun')
        : ''
      : actionButton(formTo(visit, `${path}/cancel`), 'Cancel', stopQuestion(build)),
  ];
}

function renderDecisions(visit: CommitVisit): Html {
  // Oldest suite first, like the columns of the matrix.
  const decisions = listSuiteDecisions(visit.services.db, visit.found.commit.id).reverse();
  if (decisions.length === 0)
    return html`<p class="quiet">No decisions are recorded: the project had no suites when this commit was built, or the records have expired.</p>`;
  const from = Number(visit.url.searchParams.get('decisions') ?? 0) || 0;
  const shown = decisions.slice(from, from + DECISIONS_PER_PAGE);
  return html`${table({
    caption: 'Why these suites',
    columns: ['Suite', 'Decision', 'Rules'],
    rows: shown.map(({ suiteName, runs, rules }) => ({
      cells: [suiteName, stateBadge(runs ? 'runs' : 'does_not_run'), renderRuleResults(rules)],
    })),
  })}
${from + shown.length < decisions.length ? moreDecisions(visit, from + shown.length, decisions.length) : ''}`;
}

function moreDecisions({ url }: CommitVisit, from: number, of: number): Html {
  return html`<p class="older"><a class="button plain" href="${hrefWith(url, { decisions: String(from) })}#decisions">${of - from} more suites</a></p>`;
}

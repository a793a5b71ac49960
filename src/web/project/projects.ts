// Lists the projects, and creates new ones.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { projects } from '../../api/projects.ts';
import { triggerTypes } from '../../domain/trigger/trigger.ts';
import { type ProjectSummary, summarizeProjects } from '../../store/overview.ts';
import { findProjectHeads, type ProjectHead, rankProjects } from '../../store/project-ranking.ts';
import { followActivity } from '../activity/activity.ts';
import {
  emptyState,
  filterBox,
  linkButton,
  olderLink,
  pageHead,
  pageLinks,
  pageNumber,
  type Row,
  relativeTime,
  sparkline,
  table,
} from '../frame/components.ts';
import { formTo, radioField, renderForm, submitButton, textArea, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { renderChanges } from '../frame/page-stream.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import { subjectOf } from './frame.ts';
import { byHand, triggerChoices } from './trigger-text.ts';

export const projectsPages: Route[] = [
  page('/ui/projects', showProjects),
  page('/ui/projects/stream', followActivity),
  page('/ui/projects/new', showNewProject),
  form('/ui/projects/new', createProject),
];

const PROJECTS_PER_PAGE = 50;
/** How many are read at once to find those that match. */
const PROJECTS_READ = 100;
const PROJECTS_SEARCHED = 1_000;
const TREND_RUNS = 12;

async function showProjects(visit: Visit): Promise<View> {
  const { services, caller } = visit;
  const query = (visit.url.searchParams.get('q') ?? '').trim();
  const { ranked, isComplete } = await rankProjects(services.db, caller);
  const ids = ranked.map(({ id }) => id);
  const list = isComplete ? renderRanked(visit, ids, query) : await renderMany(visit, ids, query);
  const isEmpty = isComplete && ids.length === 0;
  const mayCreate = caller.kind === 'user' && caller.standing === 'active';
  const create = linkButton('/ui/projects/new', 'New project', 'primary');
  return {
    title: 'Projects',
    section: 'projects',
    scripts: ['project.js'],
    body: html`${renderChanges(visit, '/ui/projects/stream', `/ui/projects${visit.url.search}`)}${pageHead(
      'Projects',
      {
        actions: [
          ...(isEmpty ? [] : [filterBox('projects', 'Filter projects', query)]),
          ...(mayCreate && !isEmpty ? [create] : []),
        ],
      },
    )}
<div id="project-list" data-live>${isEmpty ? noProjects(mayCreate, create) : list}</div>
<p class="quiet" data-filter-none="projects" hidden>No project matches.</p>`,
  };
}

const nothingMatches = (query: string) =>
  html`<p class="quiet">No project matches “${query}”. <a href="/ui/projects">Show all</a></p>`;

/** One page of all projects, failing and running ones first. */
function renderRanked(visit: Visit, ids: readonly bigint[], query: string): Html {
  if (query !== '') return renderMatching(visit, ids, query);
  const last = Math.ceil(ids.length / PROJECTS_PER_PAGE);
  const page = pageNumber(visit.url, last);
  const shown = ids.slice((page - 1) * PROJECTS_PER_PAGE, page * PROJECTS_PER_PAGE);
  return html`${projectTable(visit, shown)}
${pageLinks(visit.url, 'Pages of projects', { page, hasNext: page < last, last })}`;
}

/** One page of the projects that match the query. Reads no more projects than it takes to fill it. */
function renderMatching(visit: Visit, ids: readonly bigint[], query: string): Html {
  const { db } = visit.services;
  const asked = pageNumber(visit.url, ids.length);
  const matching: bigint[] = [];
  let read = 0;
  for (; read < ids.length && matching.length <= asked * PROJECTS_PER_PAGE; read += PROJECTS_READ) {
    const slice = ids.slice(read, read + PROJECTS_READ);
    const heads = findProjectHeads(db, slice);
    matching.push(...slice.filter(id => matches(heads.get(id), query.toLowerCase())));
  }
  if (matching.length === 0) return nothingMatches(query);
  const pages = Math.ceil(matching.length / PROJECTS_PER_PAGE);
  const page = Math.min(asked, pages);
  const end = page * PROJECTS_PER_PAGE;
  return html`${projectTable(visit, matching.slice(end - PROJECTS_PER_PAGE, end))}
${pageLinks(visit.url, 'Pages of projects', { page, hasNext: page < pages, ...(read >= ids.length && { last: pages }) })}`;
}

/** More projects than can be ranked: those that were active last, then all of them, newest first. */
async function renderMany(visit: Visit, active: readonly bigint[], query: string): Promise<Html> {
  const before = visit.url.searchParams.get('before');
  const isFirst = query === '' && before === null;
  const { shown, next } = await findMatching(visit, query.toLowerCase(), before);
  if (shown.length === 0)
    return html`${nothingMatches(query)}${olderLink(visit.url, next, 'Search further')}`;
  return html`${isFirst && active.length > 0 ? html`<section aria-labelledby="active"><h2 id="active">Active last</h2>${projectTable(visit, active.slice(0, PROJECTS_PER_PAGE), 'active-projects')}</section>` : ''}
<section aria-labelledby="all"><h2 id="all">${query === '' ? 'All projects' : 'Matching projects'}</h2>${projectTable(visit, shown)}${olderLink(visit.url, next, 'Older projects')}</section>`;
}

const matches = (project: ProjectHead | undefined, query: string) =>
  project !== undefined && searchTextOf(project).includes(query);

/** One page of projects that match the query, by id. Reads as many pages as that takes, and lets other requests run in between. */
async function findMatching(
  visit: Visit,
  query: string,
  before: string | null,
): Promise<{ shown: bigint[]; next: bigint | undefined }> {
  const matching: bigint[] = [];
  let from = before;
  for (let searched = 0; ; ) {
    const { items, next } = await perform(visit, projects.list, {
      query: { limit: String(PROJECTS_PER_PAGE), ...(from && { before: from }) },
    });
    const ids = items.map(project => BigInt(project.id_str));
    const heads = findProjectHeads(visit.services.db, ids);
    matching.push(...ids.filter(id => matches(heads.get(id), query)));
    searched += items.length;
    if (matching.length > PROJECTS_PER_PAGE)
      return { shown: matching.slice(0, PROJECTS_PER_PAGE), next: matching[PROJECTS_PER_PAGE - 1] };
    if (query === '' || next === undefined || searched >= PROJECTS_SEARCHED) return { shown: matching, next };
    from = String(next);
    await nextTurn();
  }
}

const searchTextOf = (project: ProjectHead) =>
  `${project.name} ${project.description} ${project.repositoryUrl}`.toLowerCase();

function noProjects(mayCreate: boolean, create: Html): Html {
  return mayCreate
    ? emptyState({
        title: 'No projects yet',
        text: 'A project is a repository whose commits are tested by suites. Create a project, install its key in the repository, add a suite, and start a build.',
        action: create,
      })
    : emptyState({
        title: 'No projects yet',
        text: 'A project appears here when its owner adds you as a collaborator.',
      });
}

function projectTable(visit: Visit, ids: readonly bigint[], id = 'projects'): Html {
  const { db } = visit.services;
  const heads = findProjectHeads(db, ids);
  const summaries = summarizeProjects(db, ids, TREND_RUNS);
  return table({
    id,
    caption: id === 'projects' ? 'Projects' : 'Projects that were active last',
    columns: ['Project', 'State', 'Last commit', 'Duration'],
    rows: ids.flatMap(id => {
      const project = heads.get(id);
      return project ? [projectRow(visit, project, summaries.get(id))] : [];
    }),
  });
}

function projectRow(
  { services, caller }: Visit,
  project: ProjectHead,
  summary: ProjectSummary | undefined,
): Row {
  const commit = summary?.commit;
  const href = `/ui/projects/${project.id}`;
  const isOwn = project.ownerId === caller.accountId;
  return {
    filterText: searchTextOf(project),
    cells: [
      html`<a class="name" href="${href}">${project.name}</a>${isOwn ? '' : html` <span class="tag">shared with you</span>`}<div class="second">${project.description || html`<code>${project.repositoryUrl}</code>`}</div>`,
      stateBadge(project.buildState),
      commit
        ? html`<a class="subject" href="${href}/commits/${commit.id}">${subjectOf(commit)}</a><div class="second"><code>${commit.ref.slice(0, 10)}</code> ${commit.authorName}, ${relativeTime(Date.parse(commit.committedDate), services.db.now())}</div>`
        : html`<span class="quiet">No commit yet</span>`,
      sparkline(summary?.runs ?? []),
    ],
  };
}

/** Creates the project, and leads to the form of the trigger that was chosen. */
function createProject(visit: Visit, sent: SentFields): Promise<View | Response> {
  return orShowAgain(visit, sent, showNewProject, async () => {
    const start = sent.get('start');
    const type = triggerTypes.find(type => type === start);
    const project = await perform(visit, projects.create, { sent });
    return respondRedirect(`/ui/projects/${project.id_str}${type ? `/triggers/new/${type}` : ''}`, {
      message: `Project ${project.name} created. Next, ${type ? 'create its trigger, then ' : ''}install its key in the repository.`,
    });
  });
}

function showNewProject(visit: Visit): View {
  const form = formTo(visit, '/ui/projects/new', { start: 'push' });
  return {
    title: 'New project',
    section: 'projects',
    body: html`${pageHead('New project', { parent: { href: '/ui/projects', label: 'Projects' } })}
${renderForm(form, {
  fields: html`${textField(form, { name: 'name', label: 'Name', required: true, autofocus: true })}
${textArea(form, { name: 'description', label: 'Description', rows: 2 })}
${textField(form, { name: 'repository_url', label: 'Repository URL', required: true, code: true, placeholder: 'git@git.example.org:team/website.git', hint: 'Fetched over SSH with the project’s own key, which the project’s page shows.' })}
${radioField(form, {
  name: 'start',
  label: 'How should builds start?',
  hint: 'You can change this at any time.',
  choices: [
    ...triggerTypes.map(value => ({ value, ...triggerChoices[value] })),
    { value: 'hand', ...byHand },
  ],
})}`,
  submit: html`${submitButton('Create project')} ${linkButton('/ui/projects', 'Back')}`,
})}`,
  };
}

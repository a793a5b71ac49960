// Lists the projects, and creates new ones.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { projects } from '../../api/projects.ts';
import type { presentProject } from '../../contract/records/project.ts';
import { parseId } from '../../domain/id.ts';
import { triggerTypes } from '../../domain/trigger/trigger.ts';
import { type ProjectSummary, summarizeProjects } from '../../store/overview.ts';
import {
  emptyState,
  filterBox,
  linkButton,
  olderLink,
  pageHead,
  type Row,
  relativeTime,
  sparkline,
  table,
} from '../frame/components.ts';
import { formTo, radioField, renderForm, submitButton, textArea, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import { byHand, triggerChoices } from './trigger-text.ts';

export const projectsPages: Route[] = [
  page('/ui/projects', showProjects),
  page('/ui/projects/stream', followProjects),
  page('/ui/projects/new', showNewProject),
  form('/ui/projects/new', createProject),
];

type ProjectRecord = ReturnType<typeof presentProject>;

const PROJECTS_PER_PAGE = 100;
const PROJECTS_SEARCHED = 1_000;
const TREND_RUNS = 12;

async function showProjects(visit: Visit): Promise<View> {
  const query = (visit.url.searchParams.get('q') ?? '').trim();
  const before = visit.url.searchParams.get('before');
  const { items, shown, next } = await findMatching(visit, query.toLowerCase(), before);
  const mayCreate = visit.caller.kind === 'user' && visit.caller.standing === 'active';
  const create = linkButton('/ui/projects/new', 'New project', 'primary');
  return {
    title: 'Projects',
    section: 'projects',
    scripts: ['project.js'],
    body: html`${renderChanges(visit, '/ui/projects/stream', `/ui/projects${visit.url.search}`)}${pageHead(
      'Projects',
      {
        actions: [
          ...(items.length > 0 ? [filterBox('projects', 'Filter projects', query)] : []),
          ...(mayCreate && items.length > 0 ? [create] : []),
        ],
      },
    )}
<div id="project-list" data-live>
${items.length === 0 ? noProjects(mayCreate, create) : ''}
${shown.length > 0 ? projectTable(visit, shown) : ''}
</div>
${items.length > 0 && shown.length === 0 ? html`<p class="quiet">No project matches “${query}”. <a href="/ui/projects">Show all</a></p>` : ''}
<p class="quiet" data-filter-none="projects" hidden>No project matches.</p>
${olderLink(visit.url, next, 'Older projects')}`,
  };
}

/** One page of projects that match the query. Reads as many pages as that takes, and lets other requests run in between. */
async function findMatching(
  visit: Visit,
  query: string,
  before: string | null,
): Promise<{ items: ProjectRecord[]; shown: ProjectRecord[]; next: bigint | undefined }> {
  const items: ProjectRecord[] = [];
  const matching: ProjectRecord[] = [];
  let from = before;
  for (;;) {
    const page = await perform(visit, projects.list, {
      query: { limit: String(PROJECTS_PER_PAGE), ...(from && { before: from }) },
    });
    items.push(...page.items);
    matching.push(...page.items.filter(project => searchTextOf(project).includes(query)));
    const { next } = page;
    const lastShown = matching[PROJECTS_PER_PAGE - 1];
    if (lastShown && matching.length > PROJECTS_PER_PAGE)
      return { items, shown: matching.slice(0, PROJECTS_PER_PAGE), next: parseId(lastShown.id_str) };
    if (query === '' || next === undefined || items.length >= PROJECTS_SEARCHED)
      return { items, shown: matching, next };
    from = String(next);
    await nextTurn();
  }
}

async function followProjects(visit: Visit): Promise<Response> {
  const { items } = await perform(visit, projects.list, { query: { limit: '1000' } });
  return respondChanges(visit, {
    topics: items.flatMap(({ id_str: id }) => [`project:${id}`, `events:${id}`]),
    maySee: () => true,
  });
}

const searchTextOf = (project: ProjectRecord) =>
  `${project.name} ${project.description} ${project.repository_url}`.toLowerCase();

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

function projectTable({ services: { db } }: Visit, projects: readonly ProjectRecord[]): Html {
  const ids = projects.map(project => BigInt(project.id_str));
  const summaries = summarizeProjects(db, ids, TREND_RUNS);
  return table({
    id: 'projects',
    caption: 'Projects',
    columns: ['Project', 'State', 'Last commit', 'Duration'],
    rows: projects.map((project, at) => projectRow(project, summaries.get(ids[at] as bigint), db.now())),
  });
}

function projectRow(project: ProjectRecord, summary: ProjectSummary | undefined, now: number): Row {
  const commit = summary?.commit;
  return {
    filterText: searchTextOf(project),
    cells: [
      html`<a class="name" href="/ui/projects/${project.id_str}">${project.name}</a>${project.owned ? '' : html` <span class="tag">shared with you</span>`}<div class="second">${project.description || html`<code>${project.repository_url}</code>`}</div>`,
      stateBadge(project.build_state),
      commit
        ? html`<a class="subject" href="/ui/projects/${project.id_str}/commits/${commit.id}">${commit.message.split('\n', 1)[0]}</a><div class="second"><code>${commit.ref.slice(0, 10)}</code> ${commit.authorName}, ${relativeTime(Date.parse(commit.committedDate), now)}</div>`
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

// The quick switcher: leads to a project, suite, build or dependency by words of its name. switcher.js shows its list in
// a dialog on every page; without scripts it is a page with a form.

import { html } from 'hono/html';
import { type FoundNames, findByName } from '../store/quick-search.ts';
import { linkedTime, pageHead } from './frame/components.ts';
import { pageHeaders } from './frame/headers.ts';
import { page, type Route } from './frame/route.ts';
import { stateMark } from './frame/state.ts';
import type { Html, View, Visit } from './frame/visit.ts';

const PATH = '/ui/switch';
const MAX_QUERY = 200;

export const switcherPages: Route[] = [page(PATH, showSwitcher)];

async function showSwitcher(visit: Visit): Promise<View | Response> {
  const { services, account, url } = visit;
  const query = (url.searchParams.get('q') ?? '').trim().slice(0, MAX_QUERY);
  const found = await findByName(services.db, account.id, query);
  const list = renderFound(found, services.db.now());
  if (url.searchParams.get('part') === 'list')
    return new Response(String(await list), { headers: pageHeaders() });
  return {
    title: 'Go to',
    body: html`${pageHead('Go to')}
<form class="filter switch-form" method="get" action="${PATH}" role="search"><label class="sr" for="switch-q">Project, suite, build or dependency</label>
<input id="switch-q" name="q" type="search" value="${query}" placeholder="Project, suite, build or dependency" autocomplete="off" data-keys="/" autofocus>
<button class="button plain" type="submit">Find</button></form>
<div class="switch-page">${list}</div>`,
  };
}

function renderFound(found: FoundNames, now: number): Html {
  const { projects, suites, builds, dependencies, projectNames } = found;
  const groups: [title: string, links: Html[]][] = [
    [
      'Projects',
      projects.map(({ id, name, state }) => renderLink(`/ui/projects/${id}`, name, stateMark(state))),
    ],
    [
      'Suites',
      suites.map(({ id, projectId, name }) =>
        renderLink(`/ui/projects/${projectId}/suites/${id}`, name, projectNames.get(projectId) ?? ''),
      ),
    ],
    [
      'Latest builds',
      builds.map(({ id, projectId, suiteName, commitRef, state, createdAt }) =>
        renderLink(
          `/ui/projects/${projectId}/builds/${id}`,
          suiteName,
          html`${projectNames.get(projectId) ?? ''} <code>${commitRef.slice(0, 10)}</code> ${linkedTime(createdAt, now)} ${stateMark(state)}`,
        ),
      ),
    ],
    ['Dependencies', dependencies.map(({ id, name }) => renderLink(`/ui/dependencies/${id}`, name, ''))],
  ];
  const shown = groups.filter(([, links]) => links.length > 0);
  return html`${shown.map(([title, links]) => html`<section><h2>${title}</h2><ul>${links.map(link => html`<li>${link}</li>`)}</ul></section>`)}
${shown.length === 0 ? html`<p class="quiet">Nothing found. Enter words of a name, such as the name of a project and a suite.</p>` : ''}
${found.isComplete ? '' : html`<p class="quiet">Not all suites were searched. Add a word of the name of the project.</p>`}`;
}

const renderLink = (href: string, name: string, note: Html | string): Html =>
  html`<a href="${href}"><span class="switch-name">${name}</span> <span class="switch-note">${note}</span></a>`;

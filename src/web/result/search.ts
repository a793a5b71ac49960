// The page that searches the logs of all projects that the visitor sees.

import { html, raw } from 'hono/html';
import { readFields, type Values } from '../../api/fields.ts';
import { readQuery } from '../../api/http/body.ts';
import { searchFields } from '../../api/result/search.ts';
import { errorMessage } from '../../contract/error-text.ts';
import { type BuildState, buildMachine } from '../../domain/build.ts';
import { parseId } from '../../domain/id.ts';
import { type Errors, Refusal } from '../../domain/refusal.ts';
import { QUERY_LENGTH } from '../../domain/result/log-query.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import { findVisibleProject, listVisibleNames, type Project } from '../../store/projects.ts';
import type { SearchedBuild, SearchResult } from '../../store/result/search-builds.ts';
import { listSuiteNames } from '../../store/suites.ts';
import { emptyState, pageHead, relativeTime } from '../frame/components.ts';
import { escapeHtml } from '../frame/escape-html.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge, stateLabel } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { buildHref } from './build-frame.ts';

export const searchPages: Route[] = [page('/ui/search', showSearch)];

const LINES_PER_PAGE = 50;
const SUITES_OFFERED = 500;
const buildStates = (Object.keys(buildMachine) as BuildState[]).filter(state => state !== 'enqueued');

export const searchHref = (query: Record<string, string>) => `/ui/search?${new URLSearchParams(query)}`;

type Asked = {
  /** As it was entered. */
  value(name: string): string;
  values: Partial<Values<typeof searchFields>>;
  errors: Errors;
  project: Project | undefined;
};

async function showSearch(visit: Visit): Promise<View> {
  const asked = readAsked(visit);
  const query = asked.value('q');
  return {
    title: query === '' ? 'Search' : `${query} · Search`,
    section: 'search',
    styles: ['results.css'],
    scripts: ['search.js'],
    body: html`${pageHead('Search logs')}
${renderForm(visit, asked)}
<div id="search-results">${query === '' ? renderHelp() : await renderAnswer(visit, asked)}</div>`,
  };
}

function readAsked(visit: Visit): Asked {
  const { url, services, caller } = visit;
  const { values, errors } = readFields(searchFields, readQuery(url.search));
  const value = (name: string) => (url.searchParams.get(name) ?? '').trim();
  const projectId = parseId(value('project'));
  const project =
    projectId === undefined ? undefined : findVisibleProject(services.db, caller.accountId, projectId);
  if (value('project') !== '' && !project) errors.project = ['not_found'];
  return { value, values, errors, project };
}

async function renderAnswer(visit: Visit, asked: Asked): Promise<Html> {
  const problems = Object.entries(asked.errors);
  if (problems.length > 0)
    return html`<div class="flash failed" role="alert">${problems.map(([name, codes]) => codes.map(code => problemText(name, code)).join(' ')).join(' ')}</div>`;
  try {
    return renderResult(visit, asked, await search(visit, asked));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return html`<div class="flash failed" role="alert">Too many searches are running. Try again in a few seconds.</div>`;
  }
}

const problemText = (name: string, code: Parameters<typeof errorMessage>[1]) =>
  name === 'q'
    ? `Enter ${QUERY_LENGTH.min} to ${QUERY_LENGTH.max} characters of one line.`
    : name === 'project'
      ? 'This project does not exist, or you cannot see it.'
      : `${name[0]?.toUpperCase()}${name.slice(1).replace('_id', '')}: ${errorMessage(name, code)}`;

function search({ services, caller, request, url }: Visit, asked: Asked): Promise<SearchResult> {
  const { values, project } = asked;
  const isReadable = new Map<bigint, boolean>();
  const mayRead = (id: bigint) => {
    const known = isReadable.get(id);
    if (known !== undefined) return known;
    const found = findVisibleProject(services.db, caller.accountId, id);
    // Who owes payment cannot use what they own.
    const may =
      found !== undefined && !(caller.standing === 'payment_required' && found.ownerId === caller.accountId);
    isReadable.set(id, may);
    return may;
  };
  return services.logSearch.search(caller.accountId, {
    text: values.q ?? '',
    isCaseSensitive: values.case ?? false,
    projectId: project?.id,
    suiteId: project && values.suite_id,
    branch: values.branch,
    state: values.state,
    since: values.since,
    before: parseId(url.searchParams.get('before') ?? ''),
    limit: LINES_PER_PAGE,
    mayRead,
    signal: request.signal,
  });
}

function renderForm(visit: Visit, { value, project, values, errors }: Asked): Html {
  const { services, caller } = visit;
  const offered = listVisibleNames(services.db, caller.accountId);
  const isOffered = !project || offered.some(({ id }) => id === project.id);
  const projects = isOffered ? offered : [project, ...offered];
  const suites = project ? listSuiteNames(services.db, project.id).slice(0, SUITES_OFFERED) : [];
  const options = (name: string, all: string, choices: readonly (readonly [id: string, label: string])[]) => {
    const chosen = value(name);
    const option = ([id, label]: readonly [id: string, label: string]) =>
      `<option value="${escapeHtml(id)}"${id === chosen ? ' selected' : ''}>${escapeHtml(label)}</option>`;
    return raw([['', all] as const, ...choices].map(option).join(''));
  };
  const namesOf = (items: readonly { id: bigint; name: string }[]) =>
    items.map(({ id, name }) => [`${id}`, name] as const);
  return html`<form class="search-form" method="get" action="/ui/search" role="search">
<div class="search-main"><label class="sr" for="search-q">Text to find</label>
<input id="search-q" name="q" type="search" class="code" value="${value('q')}" placeholder="Text of a log line, such as an error message" maxlength="${QUERY_LENGTH.max}" autocomplete="off" spellcheck="false" autocapitalize="off" data-keys="/"${errors.q ? raw(' aria-invalid="true"') : ''}${value('q') === '' ? raw(' autofocus') : ''}>
<button class="button primary" type="submit">Search</button></div>
<div class="search-filters">
<label>Project <select name="project">${options('project', 'All projects', namesOf(projects))}</select></label>
${suites.length > 0 ? html`<label>Suite <select name="suite_id">${options('suite_id', 'All suites', namesOf(suites))}</select></label>` : ''}
<label>Branch <input name="branch" value="${value('branch')}" placeholder="Any" autocomplete="off" spellcheck="false" autocapitalize="off"></label>
<label>State <select name="state">${options(
    'state',
    'Any',
    buildStates.map(state => [state, stateLabel(state)] as const),
  )}</select></label>
<label>Since <input name="since" type="date" value="${value('since').slice(0, 10)}"></label>
<label class="search-case"><input name="case" type="checkbox" value="true"${values.case ? raw(' checked') : ''}> Match case</label>
</div>
</form>`;
}

function renderHelp(): Html {
  return emptyState({
    title: 'Search the logs of all builds',
    text: html`Enter a part of a log line, such as an error message. The newest builds come first, including running ones. The text is matched literally, and without regard to case unless you select “Match case”. <a href="/ui/manual/search">More about searching</a>`,
  });
}

function renderResult(visit: Visit, asked: Asked, result: SearchResult): Html {
  const { found, next, searchedBuilds, searchedSince } = result;
  const lines = found.reduce((sum, { matches }) => sum + matches.length, 0);
  const now = visit.services.db.now();
  const older = new URL(visit.url);
  if (next !== undefined) older.searchParams.set('before', next.toString());
  const reach =
    searchedSince === undefined
      ? ''
      : html`, back to a build that was queued ${relativeTime(searchedSince, now)}`;
  return html`<p class="search-status" role="status" data-search-status>${lines === 0 ? 'Nothing found' : `${countOf(lines, 'line')} in ${countOf(found.length, 'build')}`}. Searched <span data-search-count="${searchedBuilds}">${formatCount(searchedBuilds)}</span> ${searchedBuilds === 1 ? 'log' : 'logs'}${reach}.</p>
<ol class="search-hits">${found.map(({ build, matches }) => renderBuild(visit, asked, build, matches))}</ol>
${
  next === undefined
    ? lines === 0
      ? html`<p class="quiet">Every log that matches the filters was searched. Try a shorter text, or fewer filters.</p>`
      : ''
    : html`<p class="older"><a class="button plain" data-search-next href="${older.pathname}${older.search}">Search older builds</a></p>`
}`;
}

function renderBuild(
  visit: Visit,
  { values, project }: Asked,
  build: SearchedBuild,
  matches: SearchResult['found'][number]['matches'],
): Html {
  const { services, caller } = visit;
  const owner = project ?? findVisibleProject(services.db, caller.accountId, build.projectId);
  const href = buildHref(build);
  return html`<li class="panel"><h2><a href="${href}">${owner?.name ?? ''} › ${build.suiteName}</a></h2>
<p class="search-build">${stateBadge(build.buildState)} <code>${build.commitRef.slice(0, 10)}</code>${build.local ? html` <span>local run</span>` : build.branch === '' ? '' : html` <span>on <code>${build.branch}</code></span>`} ${relativeTime(build.createdAt, services.db.now())}</p>
<ul class="search-lines">${matches.map(
    ({ line, text }) =>
      html`<li><a class="search-link" href="${href}#L${line}"><span class="search-line" aria-hidden="true">${line}</span><span class="sr">Line ${line}: </span><code>${highlight(text, values.q ?? '', values.case ?? false)}</code></a></li>`,
  )}</ul></li>`;
}

/** Marks the text that was searched, where its case has the same length. */
function highlight(text: string, query: string, isCaseSensitive: boolean): Html | string {
  const at = isCaseSensitive ? text.indexOf(query) : text.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return text;
  const end = at + query.length;
  return html`${text.slice(0, at)}<mark>${text.slice(at, end)}</mark>${text.slice(end)}`;
}

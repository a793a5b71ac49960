// The pages of the manual: the list of topics, a topic, and search results.

import { html } from 'hono/html';
import { navItem, pageHead } from '../frame/components.ts';
import { notFoundView } from '../frame/error-pages.ts';
import type { Guest, Html, View } from '../frame/visit.ts';
import { renderTopic } from './html.ts';
import { findTopic, type SearchResult, searchManual, type Topic } from './manual.ts';
import { topicGroups, topicNames } from './topics.ts';

export function showManual({ url }: Guest): View {
  const query = url.searchParams.get('q')?.trim() ?? '';
  return query === '' ? showTopics() : showResults(query);
}

export function showManualTopic({ params }: Guest): View {
  const topic = findTopic(params.topic ?? '');
  return topic ? showTopic(topic) : notFoundView;
}

const view = (title: string, body: Html): View => ({
  title,
  section: 'manual',
  styles: ['manual.css'],
  body,
});

const searchForm = (
  query = '',
) => html`<form class="manual-search" method="get" action="/ui/manual" role="search">
<label class="sr" for="manual-query">Search the manual</label>
<input id="manual-query" name="q" type="search" value="${query}" placeholder="Search the manual" autocomplete="off">
<button class="button plain" type="submit">Search</button>
</form>`;

const topicsOf = (names: readonly string[]) => names.map(name => findTopic(name) as Topic);

function showTopics(): View {
  return view(
    'Manual',
    html`${pageHead('Manual', { actions: searchForm() })}
<p class="lead">How to install, use and operate Assay. On the server, <code>assay help TOPIC</code> prints the same text. Every endpoint is described in the <a href="/ui/api">API reference</a>.</p>
<div class="manual-groups">${topicGroups.map(
      ({ title, names }) =>
        html`<section><h2>${title}</h2><ul>${topicsOf(names).map(
          topic =>
            html`<li><a class="name" href="/ui/manual/${topic.name}">${topic.title}</a><p class="second">${topic.summary}</p></li>`,
        )}</ul></section>`,
    )}</div>`,
  );
}

function showResults(query: string): View {
  const results = searchManual(query);
  const count = results.length === 1 ? '1 section' : `${results.length} sections`;
  return view(
    `${query} · Manual`,
    html`${pageHead('Search the manual', { parent: { href: '/ui/manual', label: 'Manual' }, actions: searchForm(query) })}
<p class="lead" role="status">${results.length === 0 ? html`Nothing found for “${query}”. Try fewer or other words.` : html`${count} with “${query}”`}</p>
<ol class="manual-results">${results.map(result => renderResult(result, query))}</ol>`,
  );
}

function renderResult({ topic, section, line }: SearchResult, query: string): Html {
  const isTopic = section.depth === 1;
  const href = `/ui/manual/${topic.name}${isTopic ? '' : `#${section.id}`}`;
  return html`<li><a class="name" href="${href}">${isTopic ? topic.title : html`${topic.title}: ${section.title}`}</a>
<p class="second">${markWords(line, query)}</p></li>`;
}

function markWords(line: string, query: string): Html[] {
  const words = query
    .split(/\s+/)
    .filter(Boolean)
    .map(word => word.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  // Splitting by a capture group keeps the matches: every second part is one.
  return line
    .split(new RegExp(`(${words.join('|')})`, 'i'))
    .map((part, at) => (at % 2 === 1 ? html`<mark>${part}</mark>` : html`${part}`));
}

function showTopic(topic: Topic): View {
  const subsections = topic.sections.filter(({ depth }) => depth === 2);
  const at = topicNames.indexOf(topic.name);
  const [before, after] = [topicNames[at - 1], topicNames[at + 1]].map(name =>
    name === undefined ? undefined : findTopic(name),
  );
  return view(
    `${topic.title} · Manual`,
    html`${pageHead(topic.title, { parent: { href: '/ui/manual', label: 'Manual' }, actions: searchForm() })}
<div class="manual">
<nav class="manual-topics" aria-label="Topics">${topicGroups.map(
      ({ title, names }) =>
        html`<p class="second">${title}</p><ul>${topicsOf(names).map(one =>
          navItem(`/ui/manual/${one.name}`, one.title, one === topic),
        )}</ul>`,
    )}</nav>
<article class="manual-text">
${
  subsections.length < 3
    ? ''
    : html`<nav class="manual-parts" aria-label="On this page"><ul>${subsections.map(
        ({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`,
      )}</ul></nav>`
}
${renderTopic(topic)}
<nav class="manual-next" aria-label="Other topics">${before ? html`<a href="/ui/manual/${before.name}" rel="prev">← ${before.title}</a>` : html`<span></span>`}${after ? html`<a href="/ui/manual/${after.name}" rel="next">${after.title} →</a>` : ''}</nav>
</article>
</div>`,
  );
}

// The API reference: the basics from the manual, then every endpoint and webhook with an example, generated from the
// definitions that handle requests.

import { html, raw } from 'hono/html';
import type { ResponseSpec } from '../../api/endpoint.ts';
import { curlExample, type DocumentedEndpoint, print, responseExample } from '../../api/examples.ts';
import { type DescribedFields, oauthEndpoints } from '../../api/oauth-operations.ts';
import { accessDescriptions, errorStatusesOf, operationId, tagOf } from '../../api/openapi.ts';
import {
  type EventType,
  eventDescriptions,
  eventShapeOf,
  eventTypes,
  type StreamEvents,
  webhookHeaders,
} from '../../contract/events.ts';
import { exampleOf } from '../../contract/examples.ts';
import type { JsonSchema } from '../../contract/wire.ts';
import { formatCount } from '../../domain/text/count.ts';
import { filterBox, pageHead } from '../frame/components.ts';
import type { Guest, Html, View } from '../frame/visit.ts';
import { render } from './html.ts';
import { parseTopic, type Topic } from './manual.ts';
import { readTopic } from './topics.ts';

export function showReference({ site, url }: Guest): View {
  return {
    title: 'API reference',
    section: 'api',
    styles: ['manual.css', 'reference.css'],
    scripts: ['reference.js'],
    body: renderReference(
      [...site.endpoints.values(), ...oauthEndpoints],
      site.services.baseUrl,
      url.searchParams.get('q') ?? '',
    ),
  };
}

/** An entry that the filter shows or hides. */
type Item = { text: string; html: Html };
type Group = { id: string; title: string; items: Item[] };

function renderReference(endpoints: readonly DocumentedEndpoint[], baseUrl: string, query: string): Html {
  const words = query.toLowerCase().split(/\s+/);
  const find = (group: Group): Group => ({
    ...group,
    items: group.items.filter(({ text }) => words.every(word => text.includes(word))),
  });
  const isShown = ({ items }: Group) => items.length > 0;
  const basics = listBasics(baseUrl).map(find).filter(isShown);
  const groups = [...listGroups(endpoints), webhooks].map(find).filter(isShown);
  const links = (title: string, of: readonly Group[]) =>
    of.length === 0
      ? ''
      : html`<p class="second">${title}</p><ul>${of.map(({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`)}</ul>`;
  return html`${pageHead('API reference', { actions: filterBox('reference', 'Filter', query) })}
<div class="manual">
<nav class="manual-topics reference-topics" aria-label="On this page">${links('Basics', basics)}${links('Endpoints', groups)}
<p class="second">For programs</p><ul><li><a href="/openapi.json">OpenAPI 3.1</a></li></ul></nav>
<div class="manual-text" id="reference">
${basics.map(({ items }) => items.map(renderItem))}
${groups.map(
  ({ id, title, items }) =>
    html`<section data-filter-group><h2 id="${id}">${title} <a class="anchor" href="#${id}" aria-label="Link to ${title}">#</a></h2><div class="endpoints">${items.map(({ html }) => html)}</div></section>`,
)}
<p class="quiet" data-filter-none="reference"${basics.length + groups.length > 0 ? html` hidden` : ''}>Nothing found. Try fewer or other words.</p>
</div>
</div>`;
}

const renderItem = ({ text, html: content }: Item) =>
  html`<section data-filter-text="${text}">${content}</section>`;

/** The sections of the manual's topic “API basics”, with the address of this server. */
function listBasics(baseUrl: string): Group[] {
  const markdown = readTopic('api').replaceAll('https://localhost:8443', baseUrl);
  const topic = parseTopic('api', markdown);
  const starts = topic.tokens.flatMap((token, at) => (token.type === 'heading' ? [at] : []));
  return topic.sections
    .map((section, at): Group => {
      const tokens = topic.tokens.slice(starts[at], starts[at + 1]);
      const part: Topic = { ...topic, tokens, sections: [section] };
      const text = [section.title, ...section.lines].join(' ').toLowerCase();
      return { id: section.id, title: section.title, items: [{ text, html: raw(render(part)) }] };
    })
    .slice(1);
}

function listGroups(endpoints: readonly DocumentedEndpoint[]): Group[] {
  return [...Map.groupBy(endpoints, ({ path }) => tagOf(path))].map(([id, members]) => ({
    id,
    title: id === 'oauth' ? 'OAuth' : (id.charAt(0).toUpperCase() + id.slice(1)).replaceAll('_', ' '),
    items: members.map(endpoint => {
      const names = Object.keys({ ...endpoint.query, ...endpoint.fields }).join(' ');
      const text = `${endpoint.method} ${pathOf(endpoint)} ${endpoint.summary} ${names}`.toLowerCase();
      return { text, html: renderEndpoint(endpoint, text) };
    }),
  }));
}

const pathOf = ({ path }: DocumentedEndpoint) => path.replace(/:(\w+)/g, '<$1>');

function renderEndpoint(endpoint: DocumentedEndpoint, filterText: string): Html {
  const isOAuth = 'byClient' in endpoint;
  const id = isOAuth ? endpoint.operationId : operationId(endpoint);
  const example = responseExample(endpoint);
  return renderDetails(
    { id, method: endpoint.method, name: pathOf(endpoint), summary: endpoint.summary, filterText },
    [
      html`<p>${isOAuth ? inline(endpoint.description) : inline(accessDescriptions[endpoint.access])}${endpoint.scope ? html` Scope <code>${endpoint.scope}</code>.` : ''}${isOAuth ? '' : html` Errors: ${errorStatusesOf(endpoint).map((status, at) => html`${at === 0 ? '' : ', '}<a href="#errors">${status}</a>`)}.`}</p>`,
      renderFields('Query', { ...('queryFields' in endpoint ? endpoint.queryFields : endpoint.query) }),
      endpoint.method === 'PUT'
        ? renderFields('Fields: send only those that you change', { ...endpoint.fields }, 'not blank')
        : renderFields('Fields', { ...endpoint.fields }),
      'body' in endpoint && endpoint.body ? html`<p>Body: ${inline(endpoint.body.description)}</p>` : '',
      codeBlock('Request', curlExample(endpoint)),
      renderResponse(endpoint.response),
      example === undefined ? '' : codeBlock('Example response', example),
    ],
  );
}

function renderDetails(
  head: { id: string; method: string; name: string; summary: string; filterText: string },
  content: readonly (Html | string)[],
): Html {
  return html`<details class="endpoint" id="${head.id}" data-filter-text="${head.filterText}">
<summary><span class="method ${head.method.toLowerCase()}">${head.method}</span> <code>${head.name}</code> <span class="quiet">${inline(head.summary)}</span></summary>
<div class="endpoint-body">
${content}
<p class="quiet"><a href="#${head.id}">Link to this entry</a></p>
</div></details>`;
}

const codeBlock = (title: string, text: string) =>
  html`<p class="code-title">${title}</p><div class="copy"><pre class="copy-text"><code>${text}</code></pre><button class="button plain" type="button" data-copy hidden>Copy</button></div>`;

/** Text in backticks is code. */
const inline = (text: unknown): Html[] =>
  String(text ?? '')
    .split('`')
    .map((part, at) => (at % 2 === 1 ? html`<code>${part}</code>` : html`${part}`));

type FieldRow = { name: string; note: string; schema: JsonSchema };

const fieldTable = (title: string, rows: readonly FieldRow[]): Html | string =>
  rows.length === 0
    ? ''
    : html`<table class="fields"><caption>${title}</caption><tbody>${rows.map(
        ({ name, note, schema }) =>
          html`<tr><th scope="row"><code>${name}</code></th><td>${note}</td><td>${inline(schema.description ?? 'The record, with all the fields of the API.')}${renderLimits(schema)}</td></tr>`,
      )}</tbody></table>`;

const renderFields = (title: string, fields: DescribedFields, requiredNote = 'required') =>
  fieldTable(
    title,
    Object.entries(fields).map(([name, { required, schema }]) => ({
      name,
      note: required ? requiredNote : 'optional',
      schema,
    })),
  );

function renderLimits(schema: JsonSchema): Html[] {
  return [
    ...(Array.isArray(schema.enum)
      ? [html` One of ${schema.enum.map((one, at) => html`${at === 0 ? '' : ', '}<code>${one}</code>`)}.`]
      : []),
    ...(schema.maxLength === undefined || schema.enum
      ? []
      : [html` At most ${formatCount(Number(schema.maxLength))} bytes.`]),
    ...(schema.maximum === undefined
      ? []
      : [html` From ${schema.minimum} to ${formatCount(Number(schema.maximum))}.`]),
    ...(schema.default === undefined ? [] : [html` Default <code>${schema.default}</code>.`]),
  ];
}

function renderResponse(response: ResponseSpec): Html {
  if ('media' in response)
    return html`<p>Response: <code>${response.media}</code>. ${inline(response.description)}</p>${renderEvents(response.events)}`;
  const schema = 'record' in response ? response.record : response.list;
  const status = 'record' in response ? (response.status ?? 200) : 200;
  const title = `Response ${status}: ${'list' in response ? 'a list of ' : ''}${schema.title}`;
  const rows = recordRows(schema);
  return html`${rows.length === 0 ? html`<p>${title}</p>` : fieldTable(title, rows)}`;
}

/** Fields of nested records are named by their path, except inside an event. */
function recordRows(schema: JsonSchema, prefix = ''): FieldRow[] {
  const isEvent = String(schema.title).endsWith('Event');
  return Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>).flatMap(([key, one]) => {
    const inner = (one.items ?? one) as JsonSchema;
    const name = prefix + key;
    if (inner.properties && !isEvent) return recordRows(inner, `${name}${one.items ? '[]' : ''}.`);
    return [
      { name, note: String(inner.properties ? one.title : [one.type].flat().join(' or ')), schema: one },
    ];
  });
}

function renderEvents(events: StreamEvents | undefined): Html | string {
  return events
    ? html`<p>To continue after an interruption, send the <code>id</code> of the last event in the header <code>Last-Event-ID</code>.</p>
<table class="fields"><caption>Events</caption><tbody>${Object.entries(events).map(
        ([name, { description, data, id }]) =>
          html`<tr><th scope="row"><code>${name}</code></th><td>${data.title}</td><td>${inline(description)}${id ? html` <code>id</code>: ${id}` : ''}</td></tr>`,
      )}</tbody></table>`
    : '';
}

const webhooks: Group = {
  id: 'webhooks',
  title: 'Webhooks',
  items: eventTypes.map(type => {
    const text =
      `webhook ${type} ${eventDescriptions[type]} ${Object.keys(webhookHeaders).join(' ')}`.toLowerCase();
    return { text, html: renderWebhook(type, text) };
  }),
};

function renderWebhook(type: EventType, filterText: string): Html {
  const shape = eventShapeOf(type);
  const headers = Object.entries(webhookHeaders).map(([name, schema]) => ({ name, note: 'string', schema }));
  const head = {
    id: `webhook${shape.title}`,
    method: 'POST',
    name: type,
    summary: eventDescriptions[type],
    filterText,
  };
  return renderDetails(head, [
    html`<p>Sent to the URL of each notification for this type. Answer with 2xx within 10 seconds. <a href="/ui/manual/webhooks">Webhooks</a> in the manual explains retries and has code that verifies the signature.</p>`,
    fieldTable('Headers', headers),
    fieldTable('Body', recordRows(shape)),
    codeBlock('Example body', print(exampleOf(shape))),
  ]);
}

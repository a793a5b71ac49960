// The API in readable form, made from the same definitions that answer requests.

import { html } from 'hono/html';
import type { Answer, Endpoint } from '../api/endpoint.ts';
import { type DescribedFields, type OAuthEndpoint, oauthEndpoints } from '../api/oauth-operations.ts';
import type { JsonSchema } from '../contract/wire.ts';
import { filterBox, pageHead } from './frame/components.ts';
import { open, type Route } from './frame/route.ts';
import type { Html } from './frame/visit.ts';

export const apiReferencePages: Route[] = [
  open('/ui/api', ({ site, url }) => ({
    title: 'API',
    section: 'api',
    styles: ['reference.css'],
    body: renderApiReference(
      [...site.endpoints.values(), ...oauthEndpoints],
      url.searchParams.get('q') ?? '',
    ),
  })),
];

type Shown = Endpoint | OAuthEndpoint;

const accessWords = {
  anyone: 'anyone, without credentials',
  'signed in': 'any account',
  sees: 'users and collaborators',
  users: 'users only',
  administrators: 'administrators, or anyone from loopback',
};

function renderApiReference(endpoints: readonly Shown[], wanted: string): Html {
  const shown = endpoints.filter(endpoint => textOf(endpoint).includes(wanted.trim().toLowerCase()));
  const groups = Map.groupBy(shown, groupOf);
  return html`${pageHead('API', { aside: filterBox('endpoints', 'Filter endpoints', wanted) })}
<p class="lead">All of it over HTTPS, with your email and API key as Basic credentials or an OAuth token. POST and PUT take forms or JSON.
Answers are in <code>response</code>, errors in <code>error</code>; OAuth's own endpoints answer as its RFCs say. For programs, the same as <a href="/openapi.json">OpenAPI 3.1</a>.</p>
<nav class="parts" aria-label="Parts"><ul>${[...groups.keys()].map(name => html`<li><a href="#${name}">${wordOf(name)}</a></li>`)}</ul></nav>
<div id="endpoints">
${[...groups].map(
  ([name, members]) =>
    html`<section id="${name}" data-filter-group><h2>${wordOf(name)}</h2><div class="endpoints">${members.map(renderEndpoint)}</div></section>`,
)}
</div>
<p class="quiet" data-filter-none="endpoints"${shown.length > 0 ? html` hidden` : ''}>No endpoint fits.</p>`;
}

/** The noun that an endpoint is about: the first one of its path, or the one below a project. */
function groupOf({ path }: Shown): string {
  const nouns = path.split('/').filter(part => part !== '' && !part.startsWith(':'));
  const noun = path.startsWith('/projects/:project_id/') ? nouns[1] : nouns[0];
  return ['collaborators', 'badge.svg', 'firehose', 'events'].includes(noun ?? '')
    ? 'projects'
    : ['ping', 'whoami', 'healthz', 'metrics', 'openapi.json'].includes(noun ?? '')
      ? 'service'
      : noun === 'oauth2' || noun === '.well-known'
        ? 'OAuth'
        : (noun ?? 'service');
}

const wordOf = (group: string) => (group.charAt(0).toUpperCase() + group.slice(1)).replaceAll('_', ' ');
const textOf = ({ method, path, summary }: Shown) => `${method} ${path} ${summary}`.toLowerCase();

function renderEndpoint(endpoint: Shown): Html {
  return html`<details class="endpoint" data-filter-text="${textOf(endpoint)}">
<summary><span class="method ${endpoint.method.toLowerCase()}">${endpoint.method}</span> <code>${endpoint.path.replace(/:(\w+)/g, '<$1>')}</code> <span class="quiet">${endpoint.summary}</span></summary>
<div class="endpoint-body">
<p>${'byClient' in endpoint ? endpoint.description : html`For ${accessWords[endpoint.access]}${endpoint.scope ? html`, scope <code>${endpoint.scope}</code>` : ''}.`}</p>
${endpoint.query ? renderFields('Query', endpoint.query) : ''}
${endpoint.fields ? renderFields('Fields', endpoint.fields) : ''}
${'binary' in endpoint && endpoint.binary ? html`<p>Body: ${endpoint.binary.description}</p>` : ''}
${renderAnswer(endpoint.answer)}
</div></details>`;
}

function renderFields(title: string, fields: DescribedFields): Html {
  return html`<table class="fields"><caption>${title}</caption><tbody>${Object.entries(fields).map(
    ([name, field]) =>
      html`<tr><th scope="row"><code>${name}</code></th><td>${field.required ? 'required' : 'optional'}</td><td>${field.schema.description}${renderChoices(field.schema)}</td></tr>`,
  )}</tbody></table>`;
}

function renderChoices(schema: JsonSchema): Html | string {
  return Array.isArray(schema.enum)
    ? html` One of ${schema.enum.map(one => html`<code>${one}</code> `)}`
    : '';
}

function renderAnswer(answer: Answer): Html {
  if ('media' in answer) return html`<p>Answer: <code>${answer.media}</code>. ${answer.description}</p>`;
  const schema = 'record' in answer ? answer.record : answer.list;
  const status = 'record' in answer ? (answer.status ?? 200) : 200;
  const properties = schema.properties as Record<string, JsonSchema> | undefined;
  return html`<p>Answer ${status}: ${'list' in answer ? 'an array of' : ''} <strong>${schema.title}</strong></p>
${
  properties
    ? html`<table class="fields"><tbody>${Object.entries(properties).map(
        ([name, one]) =>
          html`<tr><th scope="row"><code>${name}</code></th><td>${[one.type].flat().join(' or ')}</td><td>${one.description}${renderChoices(one)}</td></tr>`,
      )}</tbody></table>`
    : ''
}`;
}

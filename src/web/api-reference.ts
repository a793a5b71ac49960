// The API in readable form, made from the same definitions that answer requests.

import { html } from 'hono/html';
import type { Answer, Endpoint } from '../api/endpoint.ts';
import type { Fields } from '../api/fields.ts';
import type { JsonSchema } from '../domain/wire.ts';
import type { Html } from './layout.ts';

const accessWords = {
  anyone: 'no credentials',
  'signed in': 'any account',
  sees: 'users and collaborators',
  users: 'users only',
};

export function renderApiReference(endpoints: readonly Endpoint[]): Html {
  const groups = Map.groupBy(
    endpoints,
    ({ path }) =>
      path.split('/').filter(part => part && !part.startsWith(':'))[
        path.startsWith('/projects/:project_id/') ? 1 : 0
      ] ?? 'service',
  );
  return html`
<h1>API</h1>
<p>All of it over HTTPS, with your email and API key as Basic credentials or an OAuth token. POST and PUT take forms or JSON.
Answers are in <code>response</code>, errors in <code>error</code>. The same as <a href="/openapi.json">OpenAPI 3.1</a>.</p>
<nav aria-label="Parts"><ul class="parts">${[...groups.keys()].map(name => html`<li><a href="#${name}">${name}</a></li>`)}</ul></nav>
${[...groups].map(([name, members]) => html`<section id="${name}"><h2>${name}</h2>${members.map(renderEndpoint)}</section>`)}`;
}

function renderEndpoint(endpoint: Endpoint): Html {
  return html`<details class="endpoint">
<summary><span class="method">${endpoint.method}</span> <code>${endpoint.path.replace(/:(\w+)/g, '<$1>')}</code> <span class="quiet">${endpoint.summary}</span></summary>
<p>${accessWords[endpoint.access]}${endpoint.scope ? html`, scope <code>${endpoint.scope}</code>` : ''}.</p>
${endpoint.query ? renderFields('Query', endpoint.query) : ''}
${endpoint.fields ? renderFields('Fields', endpoint.fields) : ''}
${endpoint.binary ? html`<p>Body: ${endpoint.binary.description}</p>` : ''}
${renderAnswer(endpoint.answer)}
</details>`;
}

function renderFields(title: string, fields: Fields): Html {
  return html`<table><caption>${title}</caption><tbody>${Object.entries(fields).map(
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
    ? html`<table><tbody>${Object.entries(properties).map(
        ([name, one]) =>
          html`<tr><th scope="row"><code>${name}</code></th><td>${[one.type].flat().join(' or ')}</td><td>${one.description}${renderChoices(one)}</td></tr>`,
      )}</tbody></table>`
    : ''
}`;
}

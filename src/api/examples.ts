// The examples of the API reference: a curl command for bash and zsh, and a response, for each endpoint.

import { exampleOf } from '../contract/examples.ts';
import type { JsonSchema } from '../contract/wire.ts';
import type { Endpoint } from './endpoint.ts';
import type { DescribedFields, OAuthEndpoint } from './oauth-operations.ts';

export type DocumentedEndpoint = Endpoint | OAuthEndpoint;

const MAX_LINE = 90;
/** Fields that the example shows as shell variables, like IDs. */
const variables = ['client_id', 'code', 'token'];

/** `$A` is the address of the server, `$AUTH` email and API key; IDs are variables such as `$PROJECT_ID`. */
export function curlExample(endpoint: DocumentedEndpoint): string {
  const { method, path, response, fields, query } = endpoint;
  const sent = fields ? chooseFields(endpoint, fields) : query ? requiredOf(query) : [];
  const inQuery = !fields && sent.length > 0;
  const isPlain = method === 'GET' || (method === 'POST' && sent.length > 0);
  const start = [
    'curl',
    'media' in response && response.media === 'text/event-stream' ? '-N' : '',
    credentials(endpoint),
    isPlain ? '' : `-X ${method}`,
    // The answer of an authorization is in its headers.
    inQuery ? ('list' in response ? '-G' : '-iG') : '',
    'body' in endpoint ? (endpoint.body?.example ?? '') : '',
    `"$A${path.replace(/:(\w+)/g, (_, name: string) => `$${name.toUpperCase()}`)}"`,
  ]
    .filter(Boolean)
    .join(' ');
  const data = sent.map(([name, schema]) => dataArgument(name, schema));
  const line = [start, ...data].join(' ');
  return line.length <= MAX_LINE ? line : [start, ...data].join(' \\\n  ');
}

function credentials(endpoint: DocumentedEndpoint): string {
  if ('byClient' in endpoint && endpoint.byClient) return '-u "$CLIENT_ID:$CLIENT_SECRET"';
  return endpoint.access === 'anyone' || endpoint.access === 'signature' ? '' : '-u "$AUTH"';
}

type Example = [name: string, schema: JsonSchema];

const requiredOf = (fields: DescribedFields): Example[] =>
  Object.entries(fields)
    .filter(([, field]) => field.required || field.inExample)
    .map(([name, field]) => [name, field.schema]);

/** The required fields; for PUT a single field. */
function chooseFields({ method }: DocumentedEndpoint, fields: DescribedFields): Example[] {
  if (method !== 'PUT') return requiredOf(fields);
  const entries = Object.entries(fields);
  const optional = entries.filter(([, { required }]) => !required);
  const shown = optional.find(([, { schema }]) => schema.examples || schema.type === 'boolean');
  return (shown ? [shown] : entries.slice(-1)).map(([name, { schema }]) => [name, schema]);
}

/** `-d` if nothing has to be encoded. */
function dataArgument(name: string, schema: JsonSchema): string {
  if (name.endsWith('_id') || variables.includes(name)) return `-d ${name}="$${name.toUpperCase()}"`;
  const value = fieldExample(name, schema);
  if (/^[\w.~-]+$/.test(value)) return /^\w+$/.test(name) ? `-d ${name}=${value}` : `-d '${name}=${value}'`;
  return `--data-urlencode '${name}=${value}'`;
}

function fieldExample(name: string, schema: JsonSchema): string {
  if (schema.type === 'boolean') return 'true';
  const [written] = (schema.examples ?? []) as unknown[];
  const innerName = /\[(\w+)\]$/.exec(name)?.[1] ?? name;
  return String(written ?? exampleOf(schema, innerName));
}

/** The body of a successful response; undefined if it is neither JSON nor events. */
export function responseExample(endpoint: DocumentedEndpoint): string | undefined {
  const { response } = endpoint;
  if ('record' in response) return print({ response: exampleOf(response.record) });
  if ('list' in response) return print({ response: [exampleOf(response.list)] });
  if ('responses' in endpoint) {
    const success = endpoint.responses[200] as { content: Record<string, { schema: JsonSchema }> };
    const schema = success.content['application/json']?.schema;
    return schema && print(exampleOf(schema));
  }
  if (!response.events) return undefined;
  return Object.entries(response.events)
    .slice(0, 3)
    .map(([name, { data, id }]) => {
      const content = exampleOf(data) as { id_str?: string; text?: string };
      return [
        `event: ${name}`,
        ...(id === undefined ? [] : [`id: ${content.text?.length ?? content.id_str}`]),
        `data: ${JSON.stringify(content)}`,
        '',
      ].join('\n');
    })
    .join('\n');
}

export const print = (value: unknown): string => JSON.stringify(value, undefined, 2);

// Builds the OpenAPI 3.1 document from the definitions of the endpoints.

import {
  type EventType,
  eventDescriptions,
  eventShapeOf,
  eventTypes,
  webhookHeaders,
} from '../contract/events.ts';
import { exampleOf } from '../contract/examples.ts';
import type { JsonSchema } from '../contract/wire.ts';
import { scopes } from '../domain/access.ts';
import { errorCodes, errorTable } from '../domain/refusal.ts';
import type { Endpoint, ResponseSpec } from './endpoint.ts';
import type { Fields } from './fields.ts';
import { type DescribedFields, type OAuthEndpoint, oauthEndpoints } from './oauth-operations.ts';

type Described = { [key: string]: unknown };

const errorDescriptions: Record<string, string> = {
  ...Object.fromEntries(
    [...Map.groupBy(errorCodes, code => errorTable[code][0])].map(([status, codes]) => [
      status,
      codes.map(code => `\`${code}\`: ${errorTable[code][1]}`).join(' '),
    ]),
  ),
  500: 'Internal server error, without a code. The log of the server has the cause, with the request ID.',
};

export const accessDescriptions = {
  anyone: 'No credentials are required.',
  signature:
    'No credentials are required, but a signature by the secret of the trigger, as the forge sends it, or the secret itself as `X-Assay-Token`.',
  'signed in': 'For any account.',
  sees: 'For users and collaborators who can see it.',
  users: 'For users. Only the owner may access an existing record.',
  administrators: 'For administrators. No credentials are required from loopback.',
};

export function describe(
  endpoints: readonly Endpoint[],
  about: { version: string; baseUrl: string },
): Described {
  const schemas: Record<string, JsonSchema> = {};
  const paths: Record<string, Record<string, Described>> = {};
  for (const endpoint of endpoints) {
    const path = endpoint.path.replace(/:(\w+)/g, '{$1}');
    paths[path] ??= {};
    paths[path][endpoint.method.toLowerCase()] = operation(endpoint, schemas);
  }
  for (const endpoint of oauthEndpoints)
    paths[endpoint.path] = { [endpoint.method.toLowerCase()]: oauthOperation(endpoint) };
  return {
    openapi: '3.1.0',
    info: {
      title: 'Assay',
      version: about.version,
      description:
        'Continuous integration: projects, suites, dependencies, builds, deploys and notifications.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: about.baseUrl }],
    paths,
    webhooks: Object.fromEntries(eventTypes.map(type => [type, { post: webhook(type, schemas) }])),
    components: {
      schemas: { ...schemas, Error: errorSchema },
      responses: Object.fromEntries(
        Object.entries(errorDescriptions).map(([status, description]) => [
          `Error${status}`,
          {
            description,
            content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
          },
        ]),
      ),
      securitySchemes: {
        basic: { type: 'http', scheme: 'basic', description: 'Email and API key; for testing.' },
        token: { type: 'apiKey', in: 'query', name: 'oauth_token', description: 'An OAuth access token.' },
        client: {
          type: 'http',
          scheme: 'basic',
          description: 'Client id and secret of an application, for the OAuth endpoints.',
        },
        oauth: {
          type: 'oauth2',
          description: 'Send the token as Bearer, or as the query parameter `oauth_token`.',
          flows: {
            authorizationCode: {
              authorizationUrl: `${about.baseUrl}/oauth2/authorize`,
              tokenUrl: `${about.baseUrl}/oauth2/access_token`,
              scopes: scopeDescriptions,
            },
            implicit: { authorizationUrl: `${about.baseUrl}/oauth2/authorize`, scopes: scopeDescriptions },
          },
        },
      },
    },
  };
}

const scopeDescriptions = Object.fromEntries(
  scopes.map(scope => [scope, `Endpoints of scope \`${scope}\`.`]),
);

const errorSchema: JsonSchema = {
  title: 'Error',
  type: 'object',
  properties: {
    error: {
      type: 'object',
      description: 'Error codes by field name, or by `generic`.',
      additionalProperties: { type: 'array', items: { type: 'string', enum: errorCodes } },
    },
  },
  required: ['error'],
  additionalProperties: false,
};

/** The statuses of the errors of an endpoint. */
export function errorStatusesOf(endpoint: Endpoint): string[] {
  const isOpen = endpoint.access === 'anyone';
  return [
    ...(isOpen ? [] : ['401']),
    ...(isOpen || endpoint.access === 'signature' || endpoint.allowUnpaid?.length === 0 ? [] : ['402']),
    ...(isJson(endpoint) || endpoint.fields || endpoint.query || endpoint.body ? ['403'] : []),
    ...(endpoint.path.includes(':') || endpoint.findMissing ? ['404'] : []),
    '500',
  ];
}

const isJson = ({ response }: Endpoint) => !('media' in response) || response.media === 'application/json';

function operation(endpoint: Endpoint, schemas: Record<string, JsonSchema>): Described {
  const names = [...endpoint.path.matchAll(/:(\w+)/g)].map(match => match[1] as string);
  const paged = 'list' in endpoint.response && endpoint.response.paged !== false;
  return {
    operationId: operationId(endpoint),
    tags: [tagOf(endpoint.path)],
    summary: endpoint.summary,
    description: `${accessDescriptions[endpoint.access]}${endpoint.scope ? ` Scope: \`${endpoint.scope}\`.` : ''}`,
    security:
      endpoint.access === 'anyone' || endpoint.access === 'signature'
        ? []
        : [
            { basic: [] },
            { token: [] },
            { oauth: endpoint.scope ? [endpoint.scope] : [] },
            // Empty, because credentials are optional from loopback.
            ...(endpoint.access === 'administrators' ? [{}] : []),
          ],
    parameters: [
      ...names.map(name => ({
        name,
        in: 'path',
        required: true,
        schema: { type: 'string', pattern: '^[0-9]+$' },
      })),
      ...queryParameters(endpoint.queryFields),
      ...(endpoint.method === 'GET' && isJson(endpoint) ? [callbackParameter] : []),
      ...('events' in endpoint.response ? [lastEventIdParameter] : []),
    ],
    ...requestBody(endpoint),
    responses: {
      [successStatus(endpoint.response)]: success(endpoint.response, paged, schemas),
      ...('list' in endpoint.response &&
        endpoint.response.created !== undefined && {
          201: { ...success(endpoint.response, paged, schemas), description: endpoint.response.created },
        }),
      ...('media' in endpoint.response &&
        endpoint.response.ranges && {
          206: { ...success(endpoint.response, paged, schemas), description: 'The bytes in the Range.' },
        }),
      ...('media' in endpoint.response &&
        endpoint.response.conditional && {
          304: { description: 'The client has it already (If-None-Match).' },
        }),
      ...('media' in endpoint.response &&
        endpoint.response.conditional &&
        endpoint.response.ranges && {
          416: { description: 'The Range begins after the end.' },
        }),
      ...Object.fromEntries(
        errorStatusesOf(endpoint).map(status => [status, { $ref: `#/components/responses/Error${status}` }]),
      ),
    },
  };
}

const callbackParameter = {
  name: 'callback',
  in: 'query',
  description: 'JSON-P: the body is wrapped in a call of this function.',
  schema: { type: 'string', maxLength: 128, pattern: '^[A-Za-z_$][\\w$]*(\\.[A-Za-z_$][\\w$]*)*$' },
};

const lastEventIdParameter = {
  name: 'Last-Event-ID',
  in: 'header',
  description: 'Resumes a stream after the event with this `id`.',
  schema: { type: 'string', pattern: '^[0-9]+$' },
};

/** A request from Assay to a receiver. */
function webhook(type: EventType, schemas: Record<string, JsonSchema>): Described {
  const body = eventShapeOf(type);
  return {
    operationId: `webhook${body.title}`,
    tags: ['webhooks'],
    summary: eventDescriptions[type],
    description:
      'Sent to each notification of the project for this type. Respond within 10 seconds. A failed attempt is retried for up to a day and a half. An event can arrive twice, with the same `webhook-id`.',
    security: [],
    parameters: Object.entries(webhookHeaders).map(([name, { description, ...schema }]) => ({
      name,
      in: 'header',
      required: true,
      description,
      schema,
    })),
    requestBody: {
      required: true,
      content: { 'application/json': { schema: reference(body, schemas), example: exampleOf(body) } },
    },
    responses: {
      '2XX': { description: 'Delivered.' },
      410: { description: 'The notification is disabled.' },
      default: { description: 'The attempt failed and is retried.' },
    },
  };
}

/** The OAuth endpoints have no envelope, no callback and different errors. */
function oauthOperation(endpoint: OAuthEndpoint): Described {
  const { operationId, summary, description, byClient, query = {}, fields, responses } = endpoint;
  return {
    operationId,
    tags: ['oauth'],
    summary,
    description,
    // Empty, because credentials may be in the body instead, which OpenAPI cannot express.
    security: byClient ? [{ client: [] }, {}] : [],
    parameters: queryParameters(query),
    ...(fields && {
      requestBody: {
        required: true,
        content: { 'application/x-www-form-urlencoded': { schema: flat(fields, requiredOf(fields)) } },
      },
    }),
    responses,
  };
}

function queryParameters(fields: DescribedFields): Described[] {
  return Object.entries(fields).map(([name, field]) => {
    const { description, ...schema } = field.schema;
    return { name, in: 'query', required: field.required, description, schema };
  });
}

function requestBody(endpoint: Endpoint): Described {
  if (endpoint.body) {
    const { description, optional, content } = endpoint.body;
    return {
      requestBody: {
        required: !optional,
        description,
        content: Object.fromEntries(Object.entries(content).map(([media, schema]) => [media, { schema }])),
      },
    };
  }
  if (!endpoint.fields) return {};
  const required = endpoint.method === 'PUT' ? [] : requiredOf(endpoint.fields);
  const form = flat(endpoint.fields, required);
  return {
    requestBody: {
      required: required.length > 0,
      content: {
        'application/x-www-form-urlencoded': { schema: form },
        'multipart/form-data': { schema: form },
        'application/json': { schema: nested(endpoint.fields, required) },
      },
    },
  };
}

const flat = (fields: DescribedFields, required: readonly string[]): JsonSchema => ({
  type: 'object',
  properties: Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.schema])),
  ...(required.length > 0 && { required }),
});

const requiredOf = (fields: DescribedFields) =>
  Object.entries(fields)
    .filter(([, field]) => field.required)
    .map(([name]) => name);

/** In JSON, `options[url]` is a nested object and `related_dependencies[]` an array. */
function nested(fields: Fields, required: readonly string[]): JsonSchema {
  const properties: Record<string, JsonSchema> = {};
  const outer = new Set<string>();
  for (const [name, field] of Object.entries(fields)) {
    const [, parent, child] = /^(\w+)\[(\w*)\]$/.exec(name) ?? [];
    if (parent && child) {
      properties[parent] ??= { type: 'object', properties: {}, required: [] as string[] };
      (properties[parent].properties as Record<string, JsonSchema>)[child] = field.schema;
      if (required.includes(name)) {
        (properties[parent].required as string[]).push(child);
        outer.add(parent);
      }
    } else {
      properties[parent ?? name] = field.schema;
      if (required.includes(name)) outer.add(parent ?? name);
    }
  }
  return { type: 'object', properties, ...(outer.size > 0 && { required: [...outer] }) };
}

const successStatus = (response: ResponseSpec) =>
  String('record' in response ? (response.status ?? 200) : 200);

function success(response: ResponseSpec, paged: boolean, schemas: Record<string, JsonSchema>): Described {
  if ('media' in response) {
    const type = response.media === 'application/json' ? 'object' : 'string';
    const events = Object.entries(response.events ?? {}).map(([name, { data, ...event }]) => [
      name,
      { ...event, data: reference(data, schemas) },
    ]);
    return {
      description: response.description,
      content: {
        [response.media]: {
          schema: { type },
          // OpenAPI 3.1 cannot describe the events of a stream.
          ...(events.length > 0 && { 'x-events': Object.fromEntries(events) }),
        },
        ...(response.orMedia && { [response.orMedia]: { schema: { type } } }),
      },
    };
  }
  const inner =
    'record' in response
      ? reference(response.record, schemas)
      : { type: 'array', items: reference(response.list, schemas) };
  return {
    description: 'list' in response ? 'Newest first, unless the summary says otherwise.' : 'Success.',
    ...(paged && {
      headers: { Link: { description: '`rel="next"` if there are more items.', schema: { type: 'string' } } },
    }),
    content: {
      'application/json': {
        schema: {
          type: 'object',
          properties: { response: inner },
          required: ['response'],
          additionalProperties: false,
        },
        example: {
          response: 'record' in response ? exampleOf(response.record) : [exampleOf(response.list)],
        },
      },
    },
  };
}

/** Moves titled schemas to the components and returns references to them. */
function reference(schema: JsonSchema, schemas: Record<string, JsonSchema>): JsonSchema {
  const inner: JsonSchema = { ...schema };
  if (schema.properties)
    inner.properties = Object.fromEntries(
      Object.entries(schema.properties as Record<string, JsonSchema>).map(([name, one]) => [
        name,
        reference(one, schemas),
      ]),
    );
  if (schema.items) inner.items = reference(schema.items as JsonSchema, schemas);
  if (typeof schema.title !== 'string') return inner;
  schemas[schema.title] ??= inner;
  return { $ref: `#/components/schemas/${schema.title}` };
}

/** The first noun of the path, or the one below a project. */
export function tagOf(path: string): string {
  const [noun = '', , inner = ''] = path.split('/').slice(1);
  if (noun === 'oauth2' || noun === '.well-known') return 'oauth';
  if (noun === 'dependencies') return noun;
  if (noun !== 'projects') return 'service';
  return ['', 'badge.svg', 'collaborators', 'events', 'firehose'].includes(inner) ? noun : inner;
}

export function operationId(endpoint: Endpoint): string {
  const words = endpoint.path
    .replace(/:(\w+)/g, 'by_$1')
    .split(/[/_.]/)
    .filter(Boolean)
    .map(word => word[0]?.toUpperCase() + word.slice(1));
  return endpoint.method.toLowerCase() + words.join('');
}

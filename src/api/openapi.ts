// The OpenAPI 3.1 document, made from the same definitions that route and validate.

import type { JsonSchema } from '../contract/wire.ts';
import { scopes } from '../domain/access.ts';
import { errorCodes } from '../domain/refusal.ts';
import type { Answer, Endpoint } from './endpoint.ts';
import { type Fields, pageFields } from './fields.ts';
import { type DescribedFields, type OAuthEndpoint, oauthEndpoints } from './oauth-operations.ts';

type Described = { [key: string]: unknown };

const errorStatuses: Record<string, string> = {
  400: 'The endpoint does not exist: `api_does_not_exists`.',
  401: '`unauthorized` or `account_suspended`.',
  402: '`payment_required`.',
  403: 'A field is wrong (`is_blank`, `invalid_format`, `already_exists`, `is_reserved`), or `resource_temporary_unavailable`.',
  404: '`not_found`.',
  500: 'Internal server error: no code; the cause is in the log, with the request id.',
};

const accessWords = {
  anyone: 'No credentials are required.',
  'signed in': 'Any account.',
  sees: 'Users and collaborators who can see it.',
  users: 'Users only: the owner.',
  administrators: 'Administrators; from loopback no credentials are required.',
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
    components: {
      schemas: { ...schemas, Error: errorSchema },
      responses: Object.fromEntries(
        Object.entries(errorStatuses).map(([status, description]) => [
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
          description: "Client id and secret of an application, for OAuth's own endpoints.",
        },
        oauth: {
          type: 'oauth2',
          description: 'The token is sent as Bearer, or as the query parameter `oauth_token`.',
          flows: {
            authorizationCode: {
              authorizationUrl: `${about.baseUrl}/oauth2/authorize`,
              tokenUrl: `${about.baseUrl}/oauth2/access_token`,
              scopes: scopeWords,
            },
            implicit: { authorizationUrl: `${about.baseUrl}/oauth2/authorize`, scopes: scopeWords },
          },
        },
      },
    },
  };
}

const scopeWords = Object.fromEntries(scopes.map(scope => [scope, `Endpoints of scope \`${scope}\`.`]));

const errorSchema: JsonSchema = {
  title: 'Error',
  type: 'object',
  properties: {
    error: {
      type: 'object',
      description: 'Codes by the name of the offending field, or by `generic`.',
      additionalProperties: { type: 'array', items: { type: 'string', enum: errorCodes } },
    },
  },
  required: ['error'],
  additionalProperties: false,
};

function operation(endpoint: Endpoint, schemas: Record<string, JsonSchema>): Described {
  const names = [...endpoint.path.matchAll(/:(\w+)/g)].map(match => match[1] as string);
  const json = !('media' in endpoint.answer) || endpoint.answer.media === 'application/json';
  const paged = 'list' in endpoint.answer && endpoint.answer.paged !== false;
  const statuses = [
    '500',
    ...(endpoint.access === 'anyone' ? [] : ['401']),
    ...(names.length > 0 || endpoint.named ? ['404'] : []),
  ];
  if (endpoint.access !== 'anyone' && !(endpoint.unpaid?.length === 0)) statuses.push('402');
  if (json || endpoint.fields || endpoint.query || endpoint.binary) statuses.push('403');
  return {
    operationId: operationId(endpoint),
    tags: [tagOf(endpoint.path)],
    summary: endpoint.summary,
    description: `${accessWords[endpoint.access]}${endpoint.scope ? ` Scope: \`${endpoint.scope}\`.` : ''}`,
    security:
      endpoint.access === 'anyone'
        ? []
        : [
            { basic: [] },
            { token: [] },
            { oauth: endpoint.scope ? [endpoint.scope] : [] },
            // The empty one: from loopback there may be none.
            ...(endpoint.access === 'administrators' ? [{}] : []),
          ],
    parameters: [
      ...names.map(name => ({
        name,
        in: 'path',
        required: true,
        schema: { type: 'string', pattern: '^[0-9]+$' },
      })),
      ...queryParameters({ ...(paged ? pageFields : {}), ...endpoint.query }),
      ...(endpoint.method === 'GET' && json ? [callbackParameter] : []),
    ],
    ...requestBody(endpoint),
    responses: {
      [successStatus(endpoint.answer)]: success(endpoint.answer, paged, schemas),
      ...('media' in endpoint.answer &&
        endpoint.answer.ranges && {
          206: { ...success(endpoint.answer, paged, schemas), description: 'The bytes of the Range.' },
        }),
      ...Object.fromEntries(
        statuses.map(status => [status, { $ref: `#/components/responses/Error${status}` }]),
      ),
    },
  };
}

const callbackParameter = {
  name: 'callback',
  in: 'query',
  description: 'JSON-P: the body is wrapped as a call of this function.',
  schema: { type: 'string', maxLength: 128, pattern: '^[A-Za-z_$][\\w$]*(\\.[A-Za-z_$][\\w$]*)*$' },
};

/** They have no envelope, no callback and errors of their own. */
function oauthOperation(endpoint: OAuthEndpoint): Described {
  const { operationId, summary, description, byClient, query = {}, fields, responses } = endpoint;
  return {
    operationId,
    tags: ['oauth'],
    summary,
    description,
    // The empty one: credentials may be in the body instead, which OpenAPI has no word for.
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
  if (endpoint.binary)
    return {
      requestBody: {
        required: true,
        description: endpoint.binary.description,
        content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
      },
    };
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

/** In JSON `options[url]` is an object, and `related_dependencies[]` an array. */
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

const successStatus = (answer: Answer) => String('record' in answer ? (answer.status ?? 200) : 200);

function success(answer: Answer, paged: boolean, schemas: Record<string, JsonSchema>): Described {
  if ('media' in answer) {
    const type = answer.media === 'application/json' ? 'object' : 'string';
    return { description: answer.description, content: { [answer.media]: { schema: { type } } } };
  }
  const inner =
    'record' in answer
      ? reference(answer.record, schemas)
      : { type: 'array', items: reference(answer.list, schemas) };
  return {
    description: 'list' in answer ? 'Newest first, unless said otherwise.' : 'Done.',
    ...(paged && {
      headers: { Link: { description: '`rel="next"` while there is more.', schema: { type: 'string' } } },
    }),
    content: {
      'application/json': {
        schema: {
          type: 'object',
          properties: { response: inner },
          required: ['response'],
          additionalProperties: false,
        },
      },
    },
  };
}

/** A titled schema is described once; those inside it too. */
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

function tagOf(path: string): string {
  const [first = '', , third] = path.split('/').slice(1);
  if (first === 'dependencies') return 'dependencies';
  if (first !== 'projects') return 'service';
  return third?.replace('badge.svg', 'projects') ?? 'projects';
}

function operationId(endpoint: Endpoint): string {
  const words = endpoint.path
    .replace(/:(\w+)/g, 'by_$1')
    .split(/[/_.]/)
    .filter(Boolean)
    .map(word => word[0]?.toUpperCase() + word.slice(1));
  return endpoint.method.toLowerCase() + words.join('');
}

// Describes the OAuth endpoints for the OpenAPI document and the API reference. They follow the RFCs and use no envelope.

import type { JsonSchema } from '../contract/wire.ts';
import { scopes } from '../domain/access.ts';
import type { Endpoint, ResponseSpec } from './endpoint.ts';
import type { Field } from './fields.ts';

type Described = { [key: string]: unknown };

export type DescribedFields = Record<string, Pick<Field, 'required' | 'schema' | 'inExample'>>;

export type OAuthEndpoint = Pick<Endpoint, 'method' | 'path' | 'summary' | 'access' | 'scope'> & {
  query?: DescribedFields;
  fields?: DescribedFields;
  response: Extract<ResponseSpec, { media: string }>;
  operationId: string;
  description: string;
  /** Whether the application authenticates with its client credentials. */
  byClient: boolean;
  responses: Described;
};

const text = (description: string, more: JsonSchema = {}) => ({
  required: false,
  schema: { type: 'string', description, ...more },
});
const requiredText = (description: string, more: JsonSchema = {}) => ({
  ...text(description, more),
  required: true,
});

const json = (description: string, schema: JsonSchema): Described => ({
  description,
  content: { 'application/json': { schema } },
});
const htmlPage = (description: string): Described => ({
  description,
  content: { 'text/html': { schema: { type: 'string' } } },
});
const record = (properties: Record<string, JsonSchema>, required = Object.keys(properties)): JsonSchema => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
});

const failure = (...codes: string[]) =>
  record({
    error: { type: 'string', enum: codes },
    error_description: { type: 'string', description: 'For the developers of the application.' },
  });
const defect = { $ref: '#/components/responses/Error500' };
const wrongClient = {
  ...json('The client is unknown, or its secret is wrong.', failure('invalid_client')),
  headers: {
    'WWW-Authenticate': { description: 'Only if the client used Basic.', schema: { type: 'string' } },
  },
};

const clientFields = {
  client_id: text('Id of the application, unless Basic is used.'),
  client_secret: text('Secret of the application, unless Basic is used. A public application has none.'),
};

const address: JsonSchema = { type: 'string', format: 'uri' };
const oneOrMore = (...values: string[]): JsonSchema => ({
  type: 'array',
  items: { type: 'string', enum: values },
  minItems: 1,
});
const clientMethods = oneOrMore('client_secret_basic', 'client_secret_post', 'none');

export const oauthEndpoints: readonly OAuthEndpoint[] = [
  {
    method: 'GET',
    path: '/oauth2/authorize',
    summary: 'Asks a user to approve an application (RFC 6749)',
    access: 'anyone',
    scope: undefined,
    operationId: 'getOauth2Authorize',
    description:
      "For a user's browser. The user has to sign in first. Secrets in the query and repeated parameters are refused.",
    byClient: false,
    query: {
      client_id: requiredText('Id of the application.'),
      redirect_uri: requiredText(
        'Exactly the registered address, or `urn:ietf:wg:oauth:2.0:oob`. Only the built-in application `assay-cli` chooses the port of its loopback address.',
      ),
      scope: requiredText(`One or more of ${scopes.join(', ')}, separated by commas or spaces.`),
      response_type: text('What to return: a code, or the token itself (the implicit flow).', {
        enum: ['code', 'token'],
        default: 'code',
      }),
      state: text('Returned unchanged.'),
      code_challenge: text('PKCE (RFC 7636); required for public applications.', {
        pattern: '^[A-Za-z0-9_-]{43}$',
      }),
      code_challenge_method: text('How the challenge was computed.', { enum: ['S256'] }),
    },
    response: { media: 'text/html', description: 'A page that asks for approval.' },
    responses: {
      200: htmlPage('A page that asks for approval.'),
      303: {
        description:
          'Redirects to the sign-in page, or to the registered address with `error` (`invalid_request`, `unsupported_response_type`, `unauthorized_client`, `invalid_scope`), `error_description` and `state`, in the query or, for the implicit flow, in the fragment.',
        headers: { Location: { required: true, schema: { type: 'string' } } },
      },
      400: htmlPage(
        'The application or its address is invalid, or there is no address to send an error to. Nothing is redirected.',
      ),
      403: htmlPage('The account is suspended.'),
      500: htmlPage('Internal server error.'),
    },
  },
  {
    method: 'POST',
    path: '/oauth2/access_token',
    summary: 'Redeems a code for an access token (RFC 6749)',
    access: 'anyone',
    scope: undefined,
    operationId: 'postOauth2AccessToken',
    description:
      'Client credentials are sent by Basic or in the body, never in the query. A code works once, within 10 minutes. If it is used again, its token is revoked.',
    byClient: true,
    fields: {
      grant_type: requiredText('What to redeem.', { enum: ['authorization_code'] }),
      code: requiredText('The code.'),
      redirect_uri: requiredText('As in the authorization request.'),
      code_verifier: text('PKCE: what the challenge was computed from.'),
      ...clientFields,
    },
    response: { media: 'application/json', description: '`access_token`, `token_type`, `scope`.' },
    responses: {
      200: json(
        'The token.',
        record({
          access_token: { type: 'string' },
          token_type: { type: 'string', enum: ['bearer'] },
          scope: { type: 'string', description: 'Separated by spaces.' },
        }),
      ),
      400: json(
        'The request or the code is invalid.',
        failure('invalid_request', 'invalid_grant', 'unsupported_grant_type'),
      ),
      401: wrongClient,
      500: defect,
    },
  },
  {
    method: 'POST',
    path: '/oauth2/revoke',
    summary: 'Revokes an access token (RFC 7009)',
    access: 'anyone',
    scope: undefined,
    operationId: 'postOauth2Revoke',
    description:
      'Client credentials are sent by Basic or in the body, never in the query. The response is the same for an unknown token and for a token of another application.',
    byClient: true,
    fields: {
      token: requiredText('The token.'),
      token_type_hint: text('Ignored: there is only one type.'),
      ...clientFields,
    },
    response: { media: 'application/json', description: 'An empty object.' },
    responses: {
      200: json('The token is no longer valid, or never was.', record({})),
      400: json('The request is invalid.', failure('invalid_request')),
      401: wrongClient,
      500: defect,
    },
  },
  {
    method: 'GET',
    path: '/.well-known/oauth-authorization-server',
    summary: 'Returns the metadata of the OAuth server (RFC 8414)',
    access: 'anyone',
    scope: undefined,
    operationId: 'getWellKnownOauthAuthorizationServer',
    description: 'No credentials are required. `callback` is ignored, because the RFC requires JSON.',
    byClient: false,
    response: { media: 'application/json', description: 'Authorization server metadata.' },
    responses: {
      200: json(
        'Authorization server metadata.',
        record({
          issuer: address,
          authorization_endpoint: address,
          token_endpoint: address,
          revocation_endpoint: address,
          scopes_supported: oneOrMore(...scopes),
          response_types_supported: oneOrMore('code', 'token'),
          response_modes_supported: oneOrMore('query', 'fragment'),
          grant_types_supported: oneOrMore('authorization_code', 'implicit'),
          token_endpoint_auth_methods_supported: clientMethods,
          revocation_endpoint_auth_methods_supported: clientMethods,
          code_challenge_methods_supported: oneOrMore('S256'),
          service_documentation: address,
        }),
      ),
      500: defect,
    },
  },
];

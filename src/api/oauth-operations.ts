// Describes OAuth's own endpoints for the OpenAPI document and the API reference. They response as the RFCs say, without
// the envelope of the others.

import type { JsonSchema } from '../contract/wire.ts';
import { scopes } from '../domain/access.ts';
import type { Endpoint, ResponseSpec } from './endpoint.ts';
import type { Field } from './fields.ts';

type Described = { [key: string]: unknown };

export type DescribedFields = Record<string, Pick<Field, 'required' | 'schema'>>;

export type OAuthEndpoint = Pick<Endpoint, 'method' | 'path' | 'summary' | 'access' | 'scope'> & {
  query?: DescribedFields;
  fields?: DescribedFields;
  response: Extract<ResponseSpec, { media: string }>;
  operationId: string;
  description: string;
  /** Whether an application shows who it is. */
  byClient: boolean;
  responses: Described;
};

const text = (description: string, more: JsonSchema = {}) => ({
  required: false,
  schema: { type: 'string', description, ...more },
});
const needed = (description: string, more: JsonSchema = {}) => ({
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
    error_description: { type: 'string', description: 'For the makers of the application.' },
  });
const defect = { $ref: '#/components/responses/Error500' };
const wrongClient = {
  ...json('The client is unknown, or its secret is wrong.', failure('invalid_client')),
  headers: {
    'WWW-Authenticate': { description: 'Where Basic was tried.', schema: { type: 'string' } },
  },
};

const clientFields = {
  client_id: text('Which application asks; where it is not told by Basic.'),
  client_secret: text('Its secret; where it is not told by Basic. A public application has none.'),
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
    summary: 'Ask a user to approve an application (RFC 6749)',
    access: 'anyone',
    scope: undefined,
    operationId: 'getOauth2Authorize',
    description:
      "For a user's browser, which is asked to sign in first. Secrets in the query are refused, and so is a parameter that is there twice.",
    byClient: false,
    query: {
      client_id: needed('Which application asks.'),
      redirect_uri: needed(
        'The address that it registered, character for character, or `urn:ietf:wg:oauth:2.0:oob`.',
      ),
      scope: needed(`Some of ${scopes.join(', ')}, separated by commas or spaces.`),
      response_type: text('What to give it: a code, or the token itself (the implicit flow).', {
        enum: ['code', 'token'],
        default: 'code',
      }),
      state: text('Given back as it is.'),
      code_challenge: text('PKCE (RFC 7636); required of public applications.', {
        pattern: '^[A-Za-z0-9_-]{43}$',
      }),
      code_challenge_method: text('How the challenge was made.', { enum: ['S256'] }),
    },
    response: { media: 'text/html', description: 'A page that asks for approval.' },
    responses: {
      200: htmlPage('A page that asks for approval.'),
      303: {
        description:
          'To the sign-in; or to the registered address with `error` (`invalid_request`, `unsupported_response_type`, `unauthorized_client`, `invalid_scope`), `error_description` and `state`, in its query or for the implicit flow in its fragment.',
        headers: { Location: { required: true, schema: { type: 'string' } } },
      },
      400: htmlPage(
        'The application or its address is wrong, or there is no address to send an error to: nobody is sent anywhere.',
      ),
      403: htmlPage('The account is suspended.'),
      500: htmlPage('Internal server error.'),
    },
  },
  {
    method: 'POST',
    path: '/oauth2/access_token',
    summary: 'Redeem a code for an access token (RFC 6749)',
    access: 'anyone',
    scope: undefined,
    operationId: 'postOauth2AccessToken',
    description:
      'Client credentials by Basic or in the body, never in the query. A code works once, within 10 minutes; used again, the token that it gave is revoked.',
    byClient: true,
    fields: {
      grant_type: needed('What is redeemed.', { enum: ['authorization_code'] }),
      code: needed('The code.'),
      redirect_uri: needed('As it was in the authorization request.'),
      code_verifier: text('PKCE: what the challenge was made from.'),
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
        'The request or the code is wrong.',
        failure('invalid_request', 'invalid_grant', 'unsupported_grant_type'),
      ),
      401: wrongClient,
      500: defect,
    },
  },
  {
    method: 'POST',
    path: '/oauth2/revoke',
    summary: 'Give an access token back (RFC 7009)',
    access: 'anyone',
    scope: undefined,
    operationId: 'postOauth2Revoke',
    description:
      "Client credentials by Basic or in the body, never in the query. Another application's token, or none at all, is answered alike.",
    byClient: true,
    fields: {
      token: needed('The token.'),
      token_type_hint: text('Ignored: there is one kind.'),
      ...clientFields,
    },
    response: { media: 'application/json', description: 'An empty object.' },
    responses: {
      200: json('The token does not work, or no longer.', record({})),
      400: json('The request is wrong.', failure('invalid_request')),
      401: wrongClient,
      500: defect,
    },
  },
  {
    method: 'GET',
    path: '/.well-known/oauth-authorization-server',
    summary: 'Where the endpoints of OAuth are, and what they know (RFC 8414)',
    access: 'anyone',
    scope: undefined,
    operationId: 'getWellKnownOauthAuthorizationServer',
    description: 'No credentials are required. It is never wrapped as a call: the RFC asks for JSON.',
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

// The OAuth endpoints for applications: token, revocation and metadata. They follow the RFCs and use no envelope. The page
// on which a user approves an application is in src/web/account/authorize.ts.

import type { Hono } from 'hono';
import { scopes, standingOf } from '../domain/access.ts';
import { provesChallenge, secretParameters } from '../domain/oauth.ts';
import { ExpectedError, Refusal } from '../domain/refusal.ts';
import { digestOf, sameDigest } from '../domain/secret.ts';
import { findAccount } from '../store/accounts.ts';
import {
  type Application,
  deleteToken,
  findApplicationByClientId,
  findAuthorizationCode,
  findToken,
  redeemAuthorizationCode,
  revokeTokenOfCode,
} from '../store/applications.ts';
import type { Db } from '../store/database/db.ts';
import type { Services } from './endpoint.ts';
import { readBody } from './http/body.ts';
import { respondJson } from './http/respond.ts';
import { type Bindings, type ShowError, showError } from './router.ts';

class OAuthError extends ExpectedError {
  readonly code: string;
  readonly status: 400 | 401;

  constructor(code: string, description: string, status: 400 | 401 = 400) {
    super(description);
    this.code = code;
    this.status = status;
  }
}

type Fields = Map<string, string>;

export function mountOAuth(router: Hono<Bindings>, services: Services): void {
  const { db } = services;
  const post = (path: string, handle: (fields: Fields, application: Application) => Record<string, string>) =>
    router.post(path, async ({ env, req: { raw } }) => {
      Object.assign(env, { route: path, showError: showOAuthError });
      const fields = await readFields(raw);
      return respond(handle(fields, authenticateClient(db, raw, fields)));
    });

  post('/oauth2/access_token', (fields, application) => redeem(db, fields, application));
  post('/oauth2/revoke', (fields, application) => {
    const token = fields.get('token');
    if (token === undefined) throw new OAuthError('invalid_request', 'token is missing.');
    const found = findToken(db, token);
    // The response does not reveal whether the token exists.
    if (found?.token.applicationId === application.id) deleteToken(db, found.token.accountId, found.token.id);
    // RFC 7009 leaves the body open. An empty one would not be valid JSON.
    return {};
  });
  router.get('/.well-known/oauth-authorization-server', ({ env, req }) => {
    env.route = req.path;
    return respond(metadata(services.baseUrl));
  });
}

const showOAuthError: ShowError = (error, request) => {
  if (error instanceof Refusal && error.errors.generic?.includes('invalid_format'))
    return respond({ error: 'invalid_request', error_description: 'The body cannot be read.' }, 400);
  if (!(error instanceof OAuthError)) return showError(error, request);
  const challenge = error.status === 401 &&
    request.headers.has('authorization') && { 'www-authenticate': 'Basic realm="assay"' };
  return respond({ error: error.code, error_description: error.message }, error.status, { ...challenge });
};

const respond = (body: object, status = 200, headers: Record<string, string> = {}) =>
  respondJson(body, status, undefined, { pragma: 'no-cache', ...headers });

async function readFields(request: Request): Promise<Fields> {
  const query = new URL(request.url).searchParams;
  if ([...secretParameters, 'code', 'token'].some(name => query.has(name)))
    throw new OAuthError('invalid_request', 'Secrets belong in the body, never in the query.');
  const fields: Fields = new Map();
  // RFC 6749, 3.2: treat a parameter without a value as omitted. An empty code is an invalid code.
  for (const [name, value] of await readBody(request))
    if (typeof value === 'string' && (value !== '' || name === 'code')) fields.set(name, value);
  return fields;
}

/** The calling application, identified by Basic or by fields of the body. A public application has no secret. */
function authenticateClient(db: Db, request: Request, fields: Fields): Application {
  const basic = readBasic(request.headers.get('authorization'));
  if (basic && (fields.has('client_secret') || (fields.get('client_id') ?? basic.id) !== basic.id))
    throw new OAuthError('invalid_request', 'The client sent two kinds of credentials.');
  const id = basic?.id ?? fields.get('client_id');
  const secret = basic ? basic.secret : fields.get('client_secret');
  const application = id === undefined ? undefined : findApplicationByClientId(db, id);
  const digest = application?.clientSecretDigest ?? null;
  const isValid =
    digest === null ? secret === undefined : secret !== undefined && sameDigest(digestOf(secret), digest);
  if (!application || !isValid)
    throw new OAuthError('invalid_client', 'The client is unknown, or its secret is wrong.', 401);
  return application;
}

function readBasic(header: string | null): { id: string; secret: string | undefined } | undefined {
  const [, value] = /^basic +(\S+)$/i.exec(header ?? '') ?? [];
  if (value === undefined) return undefined;
  const [id = '', secret = ''] = Buffer.from(value, 'base64').toString('utf8').split(/:(.*)/s);
  const decode = (text: string) => {
    try {
      return decodeURIComponent(text.replaceAll('+', ' '));
    } catch {
      return text;
    }
  };
  return { id: decode(id), secret: decode(secret) || undefined };
}

function redeem(db: Db, fields: Fields, application: Application): Record<string, string> {
  const grantType = fields.get('grant_type');
  if (grantType === undefined) throw new OAuthError('invalid_request', 'grant_type is missing.');
  if (grantType !== 'authorization_code')
    throw new OAuthError('unsupported_grant_type', 'grant_type must be authorization_code.');
  const secret = fields.get('code');
  if (secret === undefined) throw new OAuthError('invalid_request', 'code is missing.');
  const invalidGrant = () =>
    new OAuthError('invalid_grant', 'The code is unknown, used, expired, or not for this client.');
  const code = findAuthorizationCode(db, secret);
  if (!code || code.applicationId !== application.id) throw invalidGrant();
  if (code.usedAt !== null) {
    revokeTokenOfCode(db, code);
    throw invalidGrant();
  }
  const account = findAccount(db, code.accountId);
  if (
    code.expiresAt <= db.now() ||
    code.redirectUri !== fields.get('redirect_uri') ||
    !provesChallenge(code.codeChallenge, fields.get('code_verifier')) ||
    !account ||
    standingOf(account, db.now()) === 'suspended'
  )
    throw invalidGrant();
  return { access_token: redeemAuthorizationCode(db, code), token_type: 'bearer', scope: code.scopes };
}

function metadata(baseUrl: string) {
  const methods = ['client_secret_basic', 'client_secret_post', 'none'];
  return {
    issuer: baseUrl,
    authorization_endpoint: `${baseUrl}/oauth2/authorize`,
    token_endpoint: `${baseUrl}/oauth2/access_token`,
    revocation_endpoint: `${baseUrl}/oauth2/revoke`,
    scopes_supported: scopes,
    response_types_supported: ['code', 'token'],
    response_modes_supported: ['query', 'fragment'],
    grant_types_supported: ['authorization_code', 'implicit'],
    token_endpoint_auth_methods_supported: methods,
    revocation_endpoint_auth_methods_supported: methods,
    code_challenge_methods_supported: ['S256'],
    service_documentation: `${baseUrl}/ui/api`,
  };
}

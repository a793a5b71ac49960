// The decisions of OAuth 2.0 as pure functions: authorization requests, scopes, PKCE and redirect locations.

import { createHash, timingSafeEqual } from 'node:crypto';
import { type Scope, scopes } from './access.ts';
import { outOfBand } from './names.ts';

export const CODE_LIFETIME_MS = 10 * 60_000;

/** Allowed only in the body of a token request. Browser histories and proxy logs keep queries. */
export const secretParameters = ['client_secret', 'code_verifier'] as const;

/** The built-in public application of the command line. */
export const COMMAND_LINE_CLIENT_ID = 'assay-cli';
export const COMMAND_LINE_PATH = '/signed-in';

export type AuthorizationRequest = {
  responseType: 'code' | 'token';
  redirectUri: string;
  scopes: Scope[];
  state: string | undefined;
  codeChallenge: string | null;
};

/** Ask the user for consent, redirect with an error, or show an error page if no redirect is safe. */
export type AuthorizationResult =
  | { kind: 'ask'; request: AuthorizationRequest }
  | { kind: 'redirect'; location: string }
  | { kind: 'page'; reason: string };

/** Scopes are separated by commas or spaces. Undefined if the list is empty or a scope is unknown. */
function parseScopes(text: string): Scope[] | undefined {
  const names = [...new Set(text.split(/[\s,]+/).filter(name => name !== ''))];
  return names.length > 0 && names.every(name => scopes.includes(name as Scope))
    ? (names as Scope[])
    : undefined;
}

/** `isBuiltIn`: the application of the command line. */
type Registered = { redirectUri: string; isPublic: boolean; isBuiltIn: boolean };

const LOOPBACK = new RegExp(`^http://(?:127\\.0\\.0\\.1|\\[::1\\]):([1-9][0-9]{0,4})${COMMAND_LINE_PATH}$`);

/** RFC 8252, 7.3: the command line listens on a port that its system chooses. Everything else must match exactly. */
function isRegistered(redirectUri: string | undefined, application: Registered): redirectUri is string {
  if (redirectUri === application.redirectUri) return true;
  const [, port] = (application.isBuiltIn && LOOPBACK.exec(redirectUri ?? '')) || [];
  return Number(port) <= 65_535;
}

export function validateAuthorization(
  parameters: URLSearchParams,
  application: Registered | undefined,
): AuthorizationResult {
  if (!application) return { kind: 'page', reason: 'No application with this client_id is registered here.' };
  // RFC 6749, 3.1: a parameter without a value counts as omitted.
  const given = (name: string) => parameters.get(name) || undefined;
  const redirectUri = given('redirect_uri');
  if (!isRegistered(redirectUri, application))
    return {
      kind: 'page',
      reason: 'The redirect_uri must be exactly the one that the application registered.',
    };
  const state = given('state');
  const responseType = given('response_type') ?? 'code';
  const inFragment = responseType === 'token';
  const fail = (error: string, description: string): AuthorizationResult =>
    redirectUri === outOfBand
      ? { kind: 'page', reason: `${error}: ${description}` }
      : {
          kind: 'redirect',
          location: locationOf(redirectUri, { error, error_description: description, state }, inFragment),
        };

  // Reported to the application (RFC 6749, 4.1.2.1). The redirect repeats nothing of the query but `state`.
  if (secretParameters.some(given))
    return fail('invalid_request', 'Secrets belong in the body of a token request, never in the query.');
  for (const name of new Set(parameters.keys()))
    if (parameters.getAll(name).length > 1)
      return fail('invalid_request', `The parameter ${name} must be given only once.`);
  if (responseType !== 'code' && responseType !== 'token')
    return fail('unsupported_response_type', 'response_type must be code or token.');
  if (responseType === 'token' && (application.isPublic || redirectUri === outOfBand))
    return fail('unauthorized_client', 'This application may only use response_type=code.');
  const requested = parseScopes(given('scope') ?? '');
  if (!requested) return fail('invalid_scope', `scope must name some of ${scopes.join(', ')}.`);
  const codeChallenge = given('code_challenge') ?? null;
  if (
    codeChallenge === null
      ? application.isPublic
      : !isChallenge(codeChallenge, given('code_challenge_method'))
  )
    return fail('invalid_request', 'code_challenge with code_challenge_method=S256 is required.');
  return { kind: 'ask', request: { responseType, redirectUri, scopes: requested, state, codeChallenge } };
}

const isChallenge = (challenge: string, method: string | undefined) =>
  method === 'S256' && /^[A-Za-z0-9_-]{43}$/.test(challenge);

/** Whether the challenge was derived from the verifier. Without a challenge there must be no verifier either. */
export function provesChallenge(challenge: string | null, verifier: string | undefined): boolean {
  if (challenge === null || verifier === undefined) return challenge === null && verifier === undefined;
  const actual = Buffer.from(createHash('sha256').update(verifier).digest('base64url'));
  const expected = Buffer.from(challenge);
  return actual.length === expected.length && timingSafeEqual(actual, expected);
}

/** The redirect URI with the response in its query or, for the implicit flow, in its fragment. */
export function locationOf(
  redirectUri: string,
  response: Record<string, string | undefined>,
  inFragment: boolean,
): string {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(response)) if (value !== undefined) fields.set(name, value);
  if (inFragment) return `${redirectUri}#${fields}`;
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${fields}`;
}

// What OAuth 2.0 asks to be decided, as plain functions: authorization requests, scopes, PKCE, where answers go.

import { createHash, timingSafeEqual } from 'node:crypto';
import { type Scope, scopes } from './access.ts';
import { outOfBand } from './names.ts';

export const CODE_LIFETIME_MS = 10 * 60_000;

/** What only the token endpoint may be shown, in a body: a query is kept in histories and in logs of proxies. */
export const secretParameters = ['client_secret', 'code_verifier'] as const;

export type AuthorizationRequest = {
  responseType: 'code' | 'token';
  redirectUri: string;
  scopes: Scope[];
  state: string | undefined;
  codeChallenge: string | null;
};

/** What to do with a request: ask the user, send an error back, or, where nobody may be sent anywhere, show a page. */
export type AuthorizationResult =
  | { kind: 'ask'; request: AuthorizationRequest }
  | { kind: 'redirect'; location: string }
  | { kind: 'page'; reason: string };

/** Separated by commas, as the specification has it, or by spaces; undefined where one is unknown or there is none. */
export function parseScopes(text: string): Scope[] | undefined {
  const names = [...new Set(text.split(/[\s,]+/).filter(name => name !== ''))];
  return names.length > 0 && names.every(name => scopes.includes(name as Scope))
    ? (names as Scope[])
    : undefined;
}

export function validateAuthorization(
  parameters: URLSearchParams,
  application: { redirectUri: string; isPublic: boolean } | undefined,
): AuthorizationResult {
  if (!application) return { kind: 'page', reason: 'No application with this client_id is registered here.' };
  // RFC 6749, 3.1: a parameter without a value counts as left out.
  const given = (name: string) => parameters.get(name) || undefined;
  const redirectUri = given('redirect_uri');
  if (redirectUri !== application.redirectUri)
    return {
      kind: 'page',
      reason: 'The redirect_uri is not the one that the application registered, character for character.',
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

  // As an error that the application is told of (RFC 6749, 4.1.2.1), which holds nothing of the query but the state.
  if (secretParameters.some(given))
    return fail('invalid_request', 'Secrets belong in the body of a token request, never in the query.');
  for (const name of new Set(parameters.keys()))
    if (parameters.getAll(name).length > 1)
      return fail('invalid_request', `The parameter ${name} is there twice.`);
  if (responseType !== 'code' && responseType !== 'token')
    return fail('unsupported_response_type', 'response_type must be code or token.');
  if (responseType === 'token' && (application.isPublic || redirectUri === outOfBand))
    return fail('unauthorized_client', 'This application may only use response_type=code.');
  const asked = parseScopes(given('scope') ?? '');
  if (!asked) return fail('invalid_scope', `scope must name some of ${scopes.join(', ')}.`);
  const codeChallenge = given('code_challenge') ?? null;
  if (
    codeChallenge === null
      ? application.isPublic
      : !isChallenge(codeChallenge, given('code_challenge_method'))
  )
    return fail('invalid_request', 'code_challenge with code_challenge_method=S256 is required.');
  return { kind: 'ask', request: { responseType, redirectUri, scopes: asked, state, codeChallenge } };
}

const isChallenge = (challenge: string, method: string | undefined) =>
  method === 'S256' && /^[A-Za-z0-9_-]{43}$/.test(challenge);

/** Whether the verifier is the one that the challenge was made from; a request without a challenge has none. */
export function provesChallenge(challenge: string | null, verifier: string | undefined): boolean {
  if (challenge === null || verifier === undefined) return challenge === null && verifier === undefined;
  const made = Buffer.from(createHash('sha256').update(verifier).digest('base64url'));
  const kept = Buffer.from(challenge);
  return made.length === kept.length && timingSafeEqual(made, kept);
}

/** The redirect address with an answer in its query or, for the implicit flow, in its fragment. */
export function locationOf(
  redirectUri: string,
  answer: Record<string, string | undefined>,
  inFragment: boolean,
): string {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(answer)) if (value !== undefined) fields.set(name, value);
  if (inFragment) return `${redirectUri}#${fields}`;
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${fields}`;
}

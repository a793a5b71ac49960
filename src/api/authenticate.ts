// Whose request it is: Basic with the API key, or an OAuth token in the query or as Bearer. Nothing else, and never two of them.

import { type Caller, standingOf } from '../domain/access.ts';
import { refusal } from '../domain/refusal.ts';
import { type Account, findAccountByEmail, holdsApiKey } from '../store/accounts.ts';
import { findToken } from '../store/applications.ts';
import type { Db } from '../store/db.ts';

type Credentials = { scheme: 'basic'; email: string; key: string } | { scheme: 'token'; token: string };

/** The caller, or 401 `unauthorized`. Reads headers and query only, so that no body is taken from a stranger. */
export function authenticate(db: Db, request: Request, url: URL): Caller {
  const credentials = readCredentials(request, url);
  if (!credentials) throw refusal('unauthorized');
  if (credentials.scheme === 'token') {
    const found = findToken(db, credentials.token);
    if (!found) throw refusal('unauthorized');
    return callerOf(db, found.account, new Set(found.token.scopes.split(' ')));
  }
  // A browser adds remembered Basic credentials to what any other site makes it ask.
  if (request.headers.get('sec-fetch-site') === 'cross-site') throw refusal('unauthorized');
  const account = findAccountByEmail(db, credentials.email);
  if (!holdsApiKey(account, credentials.key)) throw refusal('unauthorized');
  return callerOf(db, account, undefined);
}

export function callerOf(db: Db, account: Account, scopes: ReadonlySet<string> | undefined): Caller {
  return {
    accountId: account.id,
    email: account.email,
    kind: account.kind,
    admin: account.admin,
    standing: standingOf(account, db.now()),
    scopes,
  };
}

function readCredentials(request: Request, url: URL): Credentials | undefined {
  const queryTokens = url.searchParams.getAll('oauth_token');
  const header = request.headers.get('authorization');
  if (queryTokens.length + (header === null ? 0 : 1) !== 1) return undefined;
  if (header === null) return { scheme: 'token', token: queryTokens[0] as string };
  const [, scheme = '', value = ''] = /^(\S+) +(\S+)$/.exec(header) ?? [];
  if (scheme.toLowerCase() === 'bearer') return { scheme: 'token', token: value };
  if (scheme.toLowerCase() !== 'basic') return undefined;
  const pair = Buffer.from(value, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  if (colon < 0) return undefined;
  return { scheme: 'basic', email: pair.slice(0, colon), key: pair.slice(colon + 1) };
}

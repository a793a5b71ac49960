// Authenticates a request: Basic with the API key, or an OAuth token in the query or as Bearer, but never two of them.

import { hash } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { type Caller, standingOf } from '../domain/access.ts';
import { refusal } from '../domain/refusal.ts';
import { type Account, findAccountByEmail, matchesApiKey } from '../store/accounts.ts';
import { findToken } from '../store/applications.ts';
import { cached, type Db } from '../store/database/db.ts';
import { connectionOf } from './http/connections.ts';
import type { Target } from './http/respond.ts';

/** Throws `unauthorized`. Reads headers and query only, so that no body is read before authentication. */
export function authenticate(db: Db, request: Request, url: Target, outgoing?: ServerResponse): Caller {
  const header = request.headers.get('authorization');
  const queryTokens = url.search === '' ? [] : url.searchParams.getAll('oauth_token');
  if (queryTokens.length + (header === null ? 0 : 1) !== 1) throw refusal('unauthorized');
  const token = header === null ? queryTokens[0] : readHeader(header, 'bearer');
  if (token !== undefined) {
    const found = findToken(db, token);
    if (!found) throw refusal('unauthorized');
    return callerOf(db, found.account, new Set(found.token.scopes.split(' ')));
  }
  // A browser adds cached Basic credentials even to requests that another site triggers.
  if (request.headers.get('sec-fetch-site') === 'cross-site') throw refusal('unauthorized');
  const account = findAccountByHeader(db, credentialsIn(header as string, connectionOf(outgoing)));
  if (!account) throw refusal('unauthorized');
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

type Credentials = { header: string; digest: string };

const latest = new WeakMap<object, Credentials>();

/**
 * A Basic header with its digest. Clients send the same header with every request, so the latest of a connection is kept.
 * It is compared with headers of that connection alone: how long that takes tells nobody anything.
 */
function credentialsIn(header: string, connection: object | undefined): Credentials {
  const known = connection && latest.get(connection);
  if (known?.header === header) return known;
  const credentials = { header, digest: hash('sha256', header, 'base64') };
  if (connection) latest.set(connection, credentials);
  return credentials;
}

/** The account of a Basic header. */
const findAccountByHeader = cached(
  ({ digest }: Credentials) => digest,
  (db, { header }): Account | undefined => {
    const value = readHeader(header, 'basic');
    if (value === undefined) return undefined;
    const pair = Buffer.from(value, 'base64').toString('utf8');
    const colon = pair.indexOf(':');
    if (colon < 0) return undefined;
    const account = findAccountByEmail(db, pair.slice(0, colon));
    return matchesApiKey(account, pair.slice(colon + 1)) ? account : undefined;
  },
);

function readHeader(header: string, scheme: 'basic' | 'bearer'): string | undefined {
  const [, sentScheme = '', value] = /^(\S+) +(\S+)$/.exec(header) ?? [];
  return sentScheme.toLowerCase() === scheme ? value : undefined;
}

// What a page receives and returns. Pages change things by performing endpoints of the API, except for
// accounts, sessions and applications, which have none.

import type { ServerResponse } from 'node:http';
import type { HtmlEscapedString } from 'hono/utils/html';
import type { Endpoint, Services } from '../../api/endpoint.ts';
import { type SentFields, streamBody } from '../../api/http/body.ts';
import type { Resources } from '../../api/resources.ts';
import { performAs } from '../../api/router.ts';
import type { Caller } from '../../domain/access.ts';
import { parseId } from '../../domain/id.ts';
import { type Errors, refusal } from '../../domain/refusal.ts';
import type { Theme } from '../../domain/theme.ts';
import type { Account } from '../../store/accounts.ts';
import type { Throttle } from '../account/throttle.ts';
import type { Session } from './session.ts';

export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;
export type Section =
  | 'activity'
  | 'projects'
  | 'search'
  | 'dependencies'
  | 'applications'
  | 'account'
  | 'admin'
  | 'api'
  | 'manual';

/** What all pages share. */
export type Site = {
  services: Services;
  /** For the API reference. */
  endpoints: readonly Endpoint[];
  throttle: Throttle;
};

/** A request for a page, with or without a session. */
export type Guest = {
  site: Site;
  services: Services;
  request: Request;
  url: URL;
  params: Record<string, string>;
  outgoing: ServerResponse;
  session: Session | undefined;
  caller: Caller | undefined;
  /** A message to show once; empty if there is none. */
  flash: string;
  /** Set when the page is shown again because this form was refused. */
  refused: RefusedForm | undefined;
};

/** A request by a signed-in user. `found` holds the rows that the path names, which the user may see. */
export type Visit<Names extends keyof Resources = never> = Omit<Guest, 'session' | 'caller'> & {
  session: Session;
  caller: Caller;
  account: Account;
  found: Pick<Resources, Names>;
};

type RefusedForm = { action: string; sent: SentFields; errors: Errors };

export type View = {
  title: string;
  body: Html;
  section?: Section;
  /** Shown in the title and the favicon. */
  state?: string;
  status?: number;
  /** Files of client/ that only this page needs. */
  scripts?: readonly string[];
  styles?: readonly string[];
  /** Shown without navigation and without the scripts that all other pages have. */
  isBare?: boolean;
  /** Instead of the theme of the account. */
  theme?: Theme;
  /** Whether the address contains a secret, which must be sent nowhere as the referrer. */
  isSecretAddress?: boolean;
  /** Other origins that forms may redirect to. */
  formTargets?: readonly string[];
};

/** The row that a parameter of the path names. */
export function getByParam<Row>({ params }: Visit, name: string, find: (id: bigint) => Row | undefined): Row {
  const id = parseId(params[name] ?? '');
  const row = id === undefined ? undefined : find(id);
  if (!row) throw refusal('not_found');
  return row;
}

/** Performs an endpoint for the page of a list that `olderLink` leads to. */
export function performPage<Result>(
  visit: Visit,
  list: Endpoint<Result>,
  limit: number,
  filter: Record<string, string> = {},
) {
  const before = visit.url.searchParams.get('before');
  return perform(visit, list, { query: { ...filter, limit: String(limit), ...(before && { before }) } });
}

/** Performs an endpoint for the visitor, with the same checks, handler and refusals as over HTTPS. */
export function perform<Result>(
  visit: Visit,
  endpoint: Endpoint<Result>,
  input: {
    params?: Record<string, string>;
    query?: Record<string, string>;
    sent?: SentFields;
    body?: AsyncIterable<Uint8Array>;
  } = {},
): Promise<Awaited<Result>> {
  const { services, caller, request, outgoing } = visit;
  const params = { ...visit.params, ...input.params };
  const url = new URL(visit.url.pathname, services.baseUrl);
  for (const [name, value] of Object.entries(input.query ?? {})) url.searchParams.set(name, value);
  const body = input.body ?? streamBody(outgoing);
  return performAs(services, endpoint, caller, { request, body, outgoing, url, params }, input.sent);
}

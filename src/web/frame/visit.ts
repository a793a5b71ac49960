// What a page gets and what it returns, and its one way to read and change things: the endpoints of the API.

import type { ServerResponse } from 'node:http';
import type { HtmlEscapedString } from 'hono/utils/html';
import type { Endpoint, Services } from '../../api/endpoint.ts';
import type { Resources } from '../../api/guard.ts';
import type { SentFields } from '../../api/http/body.ts';
import { performAs } from '../../api/router.ts';
import type { Caller } from '../../domain/access.ts';
import type { Errors } from '../../domain/refusal.ts';
import type { Account } from '../../store/accounts.ts';
import type { Slowdown } from '../account/slowdown.ts';
import type { Flash, Session } from './session.ts';

export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;
export type Section = 'projects' | 'dependencies' | 'applications' | 'admin' | 'api' | 'manual';

/** What all pages share, from the composition root. */
export type Site = {
  services: Services;
  /** The whole table, for the page that describes it. */
  endpoints: readonly Endpoint[];
  slowdown: Slowdown;
};

/** A request for a page, by anyone. */
export type Guest = {
  site: Site;
  services: Services;
  request: Request;
  url: URL;
  params: Record<string, string>;
  outgoing: ServerResponse;
  session: Session | undefined;
  caller: Caller | undefined;
  flash: Flash | undefined;
  /** The form that was refused, when the page is shown again because of it. */
  refused: RefusedForm | undefined;
};

/** A request by someone who has signed in; `found` are the rows that the path names, which they may see. */
export type Visit<Names extends keyof Resources = never> = Omit<Guest, 'session' | 'caller'> & {
  session: Session;
  caller: Caller;
  account: Account;
  csrf: string;
  found: Pick<Resources, Names>;
};

type RefusedForm = { action: string; sent: SentFields; errors: Errors };

export type View = {
  title: string;
  body: Html;
  section?: Section;
  /** Shown in title and favicon. */
  state?: string;
  status?: number;
  /** Files of client/ beside those of every page: modules, and style sheets. */
  scripts?: readonly string[];
  styles?: readonly string[];
  /** Where forms may lead besides here. */
  formTargets?: readonly string[];
};

/** Performs an endpoint for the visitor: the same checks, the same handler, the same refusals as over HTTPS. */
export function perform<Result>(
  visit: Visit,
  endpoint: Endpoint<Result>,
  asked: { params?: Record<string, string>; query?: Record<string, string>; sent?: SentFields } = {},
): Promise<Awaited<Result>> {
  const { services, caller, request, outgoing } = visit;
  const params = { ...visit.params, ...asked.params };
  const url = new URL(visit.url.pathname, services.baseUrl);
  for (const [name, value] of Object.entries(asked.query ?? {})) url.searchParams.set(name, value);
  return performAs(services, endpoint, caller, { request, outgoing, url, params }, asked.sent);
}

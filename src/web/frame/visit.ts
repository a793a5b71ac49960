// What a page is handed and what it gives back, and its one way to read and change things: the API's own endpoints.

import type { ServerResponse } from 'node:http';
import type { Endpoint, Listing, Resources, Services } from '../../api/endpoint.ts';
import type { SentFields } from '../../api/http/body.ts';
import type { LogFeeds } from '../../api/log-feed.ts';
import type { Metrics } from '../../api/metrics.ts';
import { performAs } from '../../api/router.ts';
import type { Caller } from '../../domain/access.ts';
import type { Errors } from '../../domain/refusal.ts';
import type { Log } from '../../log.ts';
import type { Account } from '../../store/accounts.ts';
import type { Slowdown } from '../account/slowdown.ts';
import type { Html, Section } from './layout.ts';
import type { Flash, Session } from './session.ts';

/** What all pages share, from the composition root. */
export type Site = {
  services: Services;
  /** Every endpoint by `METHOD /path`, as the API's table has it. */
  endpoints: ReadonlyMap<string, Endpoint>;
  log: Log;
  metrics: Metrics;
  /** Growing logs, each read once for all who look at it: the same as the API's firehoses have. */
  feeds: LogFeeds;
  slowdown: Slowdown;
};

/** A request for a page, by anyone. */
export type Guest = {
  site: Site;
  services: Services;
  request: Request;
  requestId: string;
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
export type Visit = Omit<Guest, 'session' | 'caller'> & {
  session: Session;
  caller: Caller;
  account: Account;
  csrf: string;
  found: Resources;
};

export type RefusedForm = { action: string; sent: SentFields; errors: Errors };

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
export async function perform<Result = unknown>(
  visit: Visit,
  endpointName: string,
  asked: { params?: Record<string, string>; query?: Record<string, string>; sent?: SentFields } = {},
): Promise<Result> {
  const { services, caller, request, outgoing } = visit;
  const params = { ...visit.params, ...asked.params };
  const url = new URL(visit.url.pathname, services.baseUrl);
  for (const [name, value] of Object.entries(asked.query ?? {})) url.searchParams.set(name, value);
  return performAs(
    services,
    findEndpoint(visit.site, endpointName),
    caller,
    { request, outgoing, url, params },
    asked.sent,
  ) as Promise<Result>;
}

/** A page of one of the API's lists: its records, and the id that the next one begins after. */
export async function performList<Item>(
  visit: Visit,
  endpointName: string,
  asked: Parameters<typeof perform>[2] = {},
): Promise<{ items: Item[]; next: bigint | undefined }> {
  const { items, next } = await perform<Listing>(visit, endpointName, asked);
  return { items: items as Item[], next };
}

export function findEndpoint(site: Site, name: string): Endpoint {
  const endpoint = site.endpoints.get(name);
  if (!endpoint) throw new Error(`the API has no endpoint ${name}`);
  return endpoint;
}

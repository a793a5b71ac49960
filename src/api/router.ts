// From a request to an answer: the same order of checks for every endpoint of the table.

import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { type Context, Hono } from 'hono';
import { admit, authorize, type Caller } from '../domain/access.ts';
import { isLoopback } from '../domain/caller-address.ts';
import { type Errors, Refusal, refusal } from '../domain/refusal.ts';
import type { Log } from '../log.ts';
import { authenticate } from './authenticate.ts';
import { type Call, type Endpoint, Listing, type Resources, type Services } from './endpoint.ts';
import { cursor, type Fields, integer, readFields } from './fields.ts';
import { findResources, ownerOf } from './guard.ts';
import { readBody, readQuery, type SentFields } from './http/body.ts';
import { addressOf } from './http/caller-address.ts';
import { markAuthenticated } from './http/connections.ts';
import { nextLink, readCallback, respondError, respondJson, respondText } from './http/respond.ts';
import type { Metrics } from './metrics.ts';

export type Bindings = { Bindings: { outgoing: ServerResponse } };

/**
 * Some clients send no credentials before they are asked to. Whoever has sent some knows the way, and reads from the body
 * what is wrong with them; a browser would ask the person who sits before it.
 */
const waitsToBeAsked = ({ headers }: Request, url: URL) =>
  !headers.has('authorization') && !url.searchParams.has('oauth_token') && !headers.has('sec-fetch-mode');
const CHALLENGE = 'Basic realm="assay", charset="UTF-8", Bearer realm="assay"';

export const PAGE_LIMIT = { least: 1, most: 1000, defaultValue: 100 };
export const pageFields = {
  limit: integer('How many at the most.', PAGE_LIMIT),
  before: cursor('Only those older than this id.'),
};

export function createRouter(
  services: Services,
  endpoints: readonly Endpoint[],
  parts: { log: Log; metrics: Metrics },
): Hono<Bindings> {
  const router = new Hono<Bindings>({ strict: true });
  for (const endpoint of endpoints) mount(router, services, endpoint, parts);
  router.notFound(context => {
    const url = new URL(context.req.raw.url);
    const refused = refusal('api_does_not_exists');
    parts.metrics.countRequest(context.req.method, 'unknown', refused.status);
    return respondJson({ error: refused.errors }, refused.status, callbackOrNone(context.req.method, url), {
      'x-request-id': randomUUID(),
    });
  });
  // A defect outside of the table's endpoints, OAuth's for one, is told of like any other.
  router.onError((cause, { req: { raw } }) => {
    const requestId = randomUUID();
    const facts = { requestId, method: raw.method, path: new URL(raw.url).pathname };
    const response = respondError(cause, undefined, parts.log, facts);
    response.headers.set('x-request-id', requestId);
    return response;
  });
  return router;
}

function mount(
  router: Hono<Bindings>,
  services: Services,
  endpoint: Endpoint,
  { log, metrics }: { log: Log; metrics: Metrics },
): void {
  const names = namesIn(endpoint.path);
  const media = 'media' in endpoint.answer ? endpoint.answer.media : undefined;
  const answer = (context: Context<Bindings>): Response | Promise<Response> => {
    const request = context.req.raw;
    const url = new URL(request.url);
    const requestId = randomUUID();
    const facts = { requestId, method: request.method, path: url.pathname };
    const finish = (response: Response): Response => {
      metrics.countRequest(request.method, endpoint.path, response.status);
      return response;
    };
    const fail = (cause: unknown): Response => {
      // An error is JSON whatever the answer would have been; only streams never look at a callback.
      const wrapped = media === 'text/event-stream' ? undefined : callbackOrNone(request.method, url);
      const response = respondError(cause, wrapped, log, facts);
      response.headers.set('x-request-id', requestId);
      if (response.status === 401 && waitsToBeAsked(request, url))
        response.headers.set('www-authenticate', CHALLENGE);
      return finish(response);
    };
    try {
      const params = context.req.param() as Record<string, string>;
      const outgoing = context.env?.outgoing;
      const admitted = enter(services, endpoint, names, { request, url, params, outgoing });
      const carryOn = (sent: SentFields): Response | Promise<Response> => {
        const call = validate(services, endpoint, admitted, sent, {
          request,
          url,
          params,
          outgoing,
        });
        const callback = media === undefined ? readCallback(request.method, url) : undefined;
        const render = (result: unknown) => {
          if (result instanceof Listing)
            for (const cause of result.leftOut) log.error('record left out of a list', { ...facts, cause });
          return finish(respond(services, endpoint, call, result, callback, requestId));
        };
        const result = endpoint.handle(call);
        return result instanceof Promise ? result.then(render, fail) : render(result);
      };
      // Without a body everything is answered in one go, which is what most requests are.
      if (!endpoint.fields) return carryOn(new Map());
      return readBody(request).then(carryOn).catch(fail);
    } catch (cause) {
      return fail(cause);
    }
  };
  router.on(endpoint.method, endpoint.path, answer);
}

const namesIn = (path: string) => [...path.matchAll(/:(\w+)/g)].map(match => match[1] as string);

/** The same checks and the same handler for someone whom a page's session vouches for; throws the same refusals. */
export async function performAs(
  services: Services,
  endpoint: Endpoint,
  caller: Caller,
  asked: Pick<Call, 'request' | 'url' | 'params' | 'outgoing'>,
  sent: SentFields = new Map(),
): Promise<unknown> {
  const entered = enterAs(services, endpoint, namesIn(endpoint.path), asked, caller);
  return endpoint.handle(validate(services, endpoint, entered, sent, asked));
}

type Entered = { caller: Caller; found: Resources };

/** Credentials, standing, scope, resource, access, payment: all before a byte of the body is read. */
function enter(
  services: Services,
  endpoint: Endpoint,
  names: readonly string[],
  asked: Pick<Call, 'request' | 'url' | 'params' | 'outgoing'>,
): Entered {
  const isOpen =
    endpoint.access === 'anyone' ||
    (endpoint.access === 'administrators' && isLoopback(addressOf(asked.outgoing, services)));
  if (isOpen) return { caller: nobody, found: {} as Resources };
  const caller = authenticate(services.db, asked.request, asked.url);
  markAuthenticated(asked.outgoing);
  return enterAs(services, endpoint, names, asked, caller);
}

function enterAs(
  services: Services,
  endpoint: Endpoint,
  names: readonly string[],
  asked: { url: URL; params: Record<string, string> },
  caller: Caller,
): Entered {
  admit(caller, endpoint.scope);
  const found = findResources(services.db, caller, names, asked.params);
  authorize(caller, endpoint.access, ownerOf(found), endpoint.unpaid?.(asked.url) ? 'allowed' : 'refused');
  return { caller, found };
}

const nobody: Caller = {
  accountId: 0n,
  email: '',
  kind: 'collaborator',
  admin: false,
  standing: 'active',
  scopes: new Set(),
};

function validate(
  services: Services,
  endpoint: Endpoint,
  { caller, found }: Entered,
  sent: SentFields,
  asked: Pick<Call, 'request' | 'url' | 'params' | 'outgoing'>,
): Call {
  const paged = 'list' in endpoint.answer && endpoint.answer.paged !== false;
  const queryFields: Fields = { ...(paged ? pageFields : {}), ...endpoint.query };
  const query =
    asked.url.search === '' && !Object.values(queryFields).some(field => field.required)
      ? { values: {}, errors: {} }
      : readFields(queryFields, readQuery(asked.url.search));
  const body = readFields(endpoint.fields ?? {}, sent, endpoint.method === 'PUT');
  const { limit, before } = query.values as { limit?: number; before?: bigint };
  const call = {
    ...services,
    ...found,
    ...asked,
    caller,
    query: query.values,
    values: body.values,
    page: { limit: limit ?? PAGE_LIMIT.defaultValue, before },
  } as Call;
  const errors: Errors = { ...query.errors, ...body.errors };
  const further = endpoint.also?.(body.values, call, body.errors) ?? {};
  for (const [key, codes] of Object.entries(further)) errors[key] ??= codes;
  if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
  const missing = endpoint.named?.(call.values, call) ?? [];
  if (missing.length > 0)
    throw new Refusal(404, Object.fromEntries(missing.map(key => [key, ['not_found' as const]])));
  return call;
}

function respond(
  services: Services,
  endpoint: Endpoint,
  call: Call,
  result: unknown,
  callback: string | undefined,
  requestId: string,
): Response {
  if (result instanceof Response) {
    result.headers.set('x-request-id', requestId);
    return result;
  }
  const headers: Record<string, string> = { 'x-request-id': requestId };
  if (result instanceof Listing) {
    if (result.next !== undefined) headers.link = nextLink(services.baseUrl, call.url, 'before', result.next);
    return respondText(`{"response":${JSON.stringify(result.items)}}`, 200, callback, headers);
  }
  const status = 'record' in endpoint.answer ? (endpoint.answer.status ?? 200) : 200;
  return respondJson({ response: result }, status, callback, headers);
}

function callbackOrNone(method: string, url: URL): string | undefined {
  try {
    return readCallback(method, url);
  } catch {
    return undefined;
  }
}

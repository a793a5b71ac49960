// Routes requests to endpoints. Every request passes the same checks in the same order, and every error becomes a response
// in one place.

import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { type Context, Hono } from 'hono';
import { type Access, admit, authorize, type Caller } from '../domain/access.ts';
import { isLoopback } from '../domain/caller-address.ts';
import { type Errors, ExpectedError, Refusal, refusal } from '../domain/refusal.ts';
import { authenticate } from './authenticate.ts';
import { type Call, type Endpoint, Listing, type Services } from './endpoint.ts';
import { PAGE_LIMIT, type pageFields, readFields, type Values } from './fields.ts';
import { readBody, readQuery, type SentFields, streamBody } from './http/body.ts';
import { addressOf } from './http/caller-address.ts';
import { markAuthenticated } from './http/connections.ts';
import {
  isDiskFailure,
  nextLink,
  readCallback,
  respondJson,
  respondLongText,
  type Target,
} from './http/respond.ts';
import { ownerOf } from './resources.ts';

/** The state of a request while it is handled. */
type Exchange = {
  outgoing: ServerResponse;
  requestId: string;
  /** Whether the response was created with the request id, which costs less than adding it afterwards. */
  hasRequestId: boolean;
  /** The path of the route that matched, for the metrics. */
  route: string;
  showError: ShowError;
};
/** Converts an error to a response. Routes whose errors are not JSON set their own in the exchange. */
export type ShowError = (error: Error, request: Request) => Response | Promise<Response>;
export type Bindings = { Bindings: Exchange };
type RequestContext = Pick<Call, 'request' | 'body' | 'url' | 'outgoing'> & {
  params: Record<string, string>;
};

export function createRouter(services: Services, endpoints: readonly Endpoint[]): Hono<Bindings> {
  const router = new Hono<Bindings>({ strict: true });
  for (const endpoint of endpoints)
    router.on(endpoint.method, endpoint.path, createHandler(services, endpoint));
  router.notFound(() => {
    throw refusal('api_does_not_exists');
  });
  router.onError((error, { env, req: { raw } }) => {
    if (!(error instanceof ExpectedError))
      services.log.error('request failed', { ...describe(raw, env), cause: error });
    // A full or failing disk is temporary for the caller.
    const shown = isDiskFailure(error) ? refusal('resource_temporary_unavailable') : error;
    return (env.showError ?? showError)(shown, raw);
  });
  return router;
}

/** Gives every request an id, and counts it by route and status. A synchronous response stays so: it is the fast path. */
export function serve(
  router: Hono<Bindings>,
  { metrics }: Pick<Services, 'metrics'>,
): (request: Request, env: Pick<Exchange, 'outgoing'>) => Response | Promise<Response> {
  return (request, { outgoing }) => {
    const exchange = {
      outgoing,
      requestId: randomUUID(),
      hasRequestId: false,
      route: 'unknown',
      showError,
    };
    const finish = (response: Response) => {
      if (!exchange.hasRequestId && !outgoing.headersSent)
        outgoing.setHeader('x-request-id', exchange.requestId);
      metrics.countRequest(request.method, exchange.route, response.status);
      return response;
    };
    const response = router.fetch(request, exchange);
    return response instanceof Promise ? response.then(finish) : finish(response);
  };
}

const describe = ({ method, url }: Request, { requestId }: Exchange) => ({
  requestId,
  method,
  path: new URL(url).pathname,
});

const CHALLENGE = 'Basic realm="assay", charset="UTF-8", Bearer realm="assay"';
/** Some clients send credentials only when challenged. A browser would show a dialog instead of the page's own error. */
const awaitsChallenge = ({ headers, url }: Request) =>
  !headers.has('authorization') &&
  !headers.has('sec-fetch-mode') &&
  !new URL(url).searchParams.has('oauth_token');

/** Errors are JSON, whatever media type the endpoint has. */
export const showError: ShowError = (error, request) => {
  let callback: string | undefined;
  try {
    callback = readCallback(request.method, new URL(request.url));
  } catch {
    // With an invalid callback, the original error is shown without one.
  }
  return respondError(error, request, callback);
};
const showStreamError: ShowError = (error, request) => respondError(error, request, undefined);

function respondError(error: Error, request: Request, callback: string | undefined): Response {
  if (!(error instanceof Refusal)) return respondJson({ error: { generic: [] } }, 500, callback);
  const { status, errors } = error;
  const challenge = status === 401 && awaitsChallenge(request) && { 'www-authenticate': CHALLENGE };
  return respondJson({ error: errors }, status, callback, { ...challenge });
}

function createHandler(
  services: Services,
  endpoint: Endpoint,
): (context: Context<Bindings>) => Response | Promise<Response> {
  const { response, path, fields } = endpoint;
  const isJson = !('media' in response);
  const isStream = 'media' in response && response.media === 'text/event-stream';
  const status = 'record' in response ? (response.status ?? 200) : 200;

  const respond = (
    exchange: Exchange,
    { request, url }: RequestContext,
    callback: string | undefined,
    result: unknown,
  ) => {
    if (result instanceof Response) return result;
    const id = { 'x-request-id': exchange.requestId };
    exchange.hasRequestId = true;
    const respondWith = (response: unknown, headers: Record<string, string>) =>
      respondLongText(request, JSON.stringify({ response }), status, callback, headers);
    if (!(result instanceof Listing)) return respondWith(result, id);
    for (const error of result.unreadable)
      services.log.error('record left out of a list', { ...describe(request, exchange), cause: error });
    const { items, next, by } = result;
    const link = next !== undefined && { link: nextLink(services.baseUrl, url, by, next) };
    return respondWith(items, { ...id, ...link });
  };

  const perform = (exchange: Exchange, context: RequestContext, admitted: Admitted, sent: SentFields) => {
    const call = validate(services, endpoint, admitted, context, sent);
    const callback = isJson ? readCallback(context.request.method, context.url) : undefined;
    const result = endpoint.handle(call);
    return result instanceof Promise
      ? result.then(settled => respond(exchange, context, callback, settled))
      : respond(exchange, context, callback, result);
  };

  return ({ env, req }) => {
    env.route = path;
    if (isStream) env.showError = showStreamError;
    const request = req.raw;
    const { outgoing } = env;
    const context = {
      request,
      body: streamBody(outgoing),
      url: targetOf(request.url),
      params: req.param(),
      outgoing,
    };
    const admitted = admitRequest(services, endpoint, context);
    // Most requests have no body and are handled synchronously.
    if (!fields) return perform(env, context, admitted, NO_FIELDS);
    return readBody(request).then(sent => perform(env, context, admitted, sent));
  };
}

const NO_FIELDS: SentFields = new Map();
const NO_PARAMETERS = new URLSearchParams();

/** Most requests have no query, so their URL need not be parsed. */
function targetOf(url: string): Target {
  if (url.includes('?') || url.includes('#')) return new URL(url);
  return {
    pathname: url.slice(url.indexOf('/', 'https://'.length)),
    search: '',
    searchParams: NO_PARAMETERS,
  };
}

/** Runs the same checks and handler for the caller of a page's session. Throws the same refusals. */
export async function performAs<Result>(
  services: Services,
  endpoint: Endpoint<Result>,
  caller: Caller,
  context: RequestContext,
  sent = NO_FIELDS,
): Promise<Awaited<Result>> {
  return await endpoint.handle(
    validate(services, endpoint, admitCaller(services, endpoint, context, caller), context, sent),
  );
}

type Admitted = { caller?: Caller };

/** Checks credentials, standing, scope, resource, access and payment before any of the body is read. */
function admitRequest(services: Services, endpoint: Endpoint, context: RequestContext): Admitted {
  const { access } = endpoint;
  if (access === 'anyone' || access === 'signature') return {};
  if (access === 'administrators' && isLoopback(addressOf(context.outgoing, services))) return {};
  const caller = authenticate(services.db, context.request, context.url, context.outgoing);
  markAuthenticated(context.outgoing);
  return admitCaller(services, endpoint, context, caller);
}

function admitCaller(
  services: Services,
  endpoint: Endpoint,
  context: RequestContext,
  caller: Caller,
): Admitted {
  admit(caller, endpoint.scope);
  const found = endpoint.findResources(services.db, caller, context.params);
  authorize(
    caller,
    endpoint.access,
    ownerOf(found),
    endpoint.allowUnpaid?.(context.url) ? 'allowed' : 'refused',
  );
  return { ...found, caller };
}

function validate(
  services: Services,
  endpoint: Endpoint,
  admitted: Admitted,
  context: RequestContext,
  sent: SentFields,
): Call<string, Access> {
  const { fields, queryFields, needsQuery } = endpoint;
  const { search } = context.url;
  const query = search === '' && !needsQuery ? NOTHING_READ : readFields(queryFields, readQuery(search));
  const body = fields ? readFields(fields, sent, endpoint.method === 'PUT') : NOTHING_READ;
  const { limit, before } = query.values as Partial<Values<typeof pageFields>>;
  const call: Call<string, Access> = {
    ...services,
    ...admitted,
    ...context,
    query: query.values,
    values: body.values,
    page: { limit: limit ?? PAGE_LIMIT.defaultValue, before },
  };
  const errors: Errors = { ...query.errors, ...body.errors };
  const moreErrors = endpoint.checkTogether?.(body.values, call, body.errors) ?? {};
  for (const [key, codes] of Object.entries(moreErrors)) errors[key] ??= codes;
  if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
  const missing = endpoint.findMissing?.(call.values, call) ?? [];
  if (missing.length > 0)
    throw new Refusal(404, Object.fromEntries(missing.map(key => [key, ['not_found' as const]])));
  return call;
}

const NOTHING_READ = { values: {}, errors: {} };

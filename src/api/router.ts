// Answers requests by the endpoints of the table. Every endpoint goes through the same checks in the same order, and
// everything that is thrown becomes a response in one place.

import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { type Context, Hono } from 'hono';
import { type Access, admit, authorize, type Caller } from '../domain/access.ts';
import { isLoopback } from '../domain/caller-address.ts';
import { type Errors, ExpectedError, Refusal, refusal } from '../domain/refusal.ts';
import { authenticate } from './authenticate.ts';
import { type Call, type Endpoint, Listing, type Services } from './endpoint.ts';
import { PAGE_LIMIT, type pageFields, readFields, type Values } from './fields.ts';
import { ownerOf } from './guard.ts';
import { readBody, readQuery, type SentFields } from './http/body.ts';
import { addressOf } from './http/caller-address.ts';
import { markAuthenticated } from './http/connections.ts';
import { isDiskFailure, nextLink, readCallback, respondJson } from './http/respond.ts';

/** A request on its way to its response. */
export type Exchange = {
  outgoing: ServerResponse;
  requestId: string;
  /** Whether the response has the request id among its headers already: adding it afterwards costs more. */
  showsRequestId: boolean;
  /** The path of the route that matched, for the metrics. */
  route: string;
  showError: ShowError;
};
/** Makes a response of what was thrown. Routes that do not show errors as JSON put their own into the exchange. */
export type ShowError = (error: Error, request: Request) => Response | Promise<Response>;
export type Bindings = { Bindings: Exchange };
type RequestContext = Pick<Call, 'request' | 'url' | 'outgoing'> & { params: Record<string, string> };

export function createRouter(services: Services, endpoints: readonly Endpoint[]): Hono<Bindings> {
  const router = new Hono<Bindings>({ strict: true });
  for (const endpoint of endpoints) router.on(endpoint.method, endpoint.path, answerWith(services, endpoint));
  router.notFound(() => {
    throw refusal('api_does_not_exists');
  });
  router.onError((thrown, { env, req: { raw } }) => {
    if (!(thrown instanceof ExpectedError))
      services.log.error('request failed', { ...describe(raw, env), cause: thrown });
    // A disk that is full, or fails under SQLite, is for the caller to wait out.
    const error = isDiskFailure(thrown) ? refusal('resource_temporary_unavailable') : thrown;
    return (env.showError ?? showError)(error, raw);
  });
  return router;
}

/**
 * What every request goes through, whatever answers it: it gets an id, and is counted by route and status. Stays
 * synchronous where the response is, which is the fast path of the server.
 */
export function serve(
  router: Hono<Bindings>,
  { metrics }: Pick<Services, 'metrics'>,
): (request: Request, env: Pick<Exchange, 'outgoing'>) => Response | Promise<Response> {
  return (request, { outgoing }) => {
    const exchange = {
      outgoing,
      requestId: randomUUID(),
      showsRequestId: false,
      route: 'unknown',
      showError,
    };
    const finish = (response: Response) => {
      if (!exchange.showsRequestId && !outgoing.headersSent)
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
/**
 * Some clients send credentials only when challenged. A client that has sent some reads from the body what is wrong with
 * them; a browser would show a dialog.
 */
const awaitsChallenge = ({ headers, url }: Request) =>
  !headers.has('authorization') &&
  !headers.has('sec-fetch-mode') &&
  !new URL(url).searchParams.has('oauth_token');

/** An error is JSON whatever the response would have been. */
export const showError: ShowError = (error, request) => {
  let callback: string | undefined;
  try {
    callback = readCallback(request.method, new URL(request.url));
  } catch {
    // A callback that cannot be used is not; what went wrong before is shown.
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

function answerWith(
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
    exchange.showsRequestId = true;
    if (!(result instanceof Listing)) return respondJson({ response: result }, status, callback, id);
    for (const cause of result.leftOut)
      services.log.error('record left out of a list', { ...describe(request, exchange), cause });
    const { items, next } = result;
    const link = next !== undefined && { link: nextLink(services.baseUrl, url, 'before', next) };
    return respondJson({ response: items }, status, callback, { ...id, ...link });
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
    const context = { request, url: new URL(request.url), params: req.param(), outgoing: env.outgoing };
    const admitted = enter(services, endpoint, context);
    // Without a body everything is answered at once, which is what most requests are.
    if (!fields) return perform(env, context, admitted, NO_FIELDS);
    return readBody(request).then(sent => perform(env, context, admitted, sent));
  };
}

const NO_FIELDS: SentFields = new Map();

/** The same checks and the same handler for a caller whom the session of a page identifies; throws the same refusals. */
export async function performAs<Result>(
  services: Services,
  endpoint: Endpoint<Result>,
  caller: Caller,
  context: RequestContext,
  sent = NO_FIELDS,
): Promise<Awaited<Result>> {
  return await endpoint.handle(
    validate(services, endpoint, enterAs(services, endpoint, context, caller), context, sent),
  );
}

type Admitted = { caller?: Caller };

/** Credentials, standing, scope, resource, access, payment: all before a byte of the body is read. */
function enter(services: Services, endpoint: Endpoint, context: RequestContext): Admitted {
  const { access } = endpoint;
  if (access === 'anyone') return {};
  if (access === 'administrators' && isLoopback(addressOf(context.outgoing, services))) return {};
  const caller = authenticate(services.db, context.request, context.url);
  markAuthenticated(context.outgoing);
  return enterAs(services, endpoint, context, caller);
}

function enterAs(services: Services, endpoint: Endpoint, context: RequestContext, caller: Caller): Admitted {
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
  const further = endpoint.checkTogether?.(body.values, call, body.errors) ?? {};
  for (const [key, codes] of Object.entries(further)) errors[key] ??= codes;
  if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
  const missing = endpoint.findMissing?.(call.values, call) ?? [];
  if (missing.length > 0)
    throw new Refusal(404, Object.fromEntries(missing.map(key => [key, ['not_found' as const]])));
  return call;
}

const NOTHING_READ = { values: {}, errors: {} };

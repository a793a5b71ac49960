// Builds the routes of pages and forms: `open` for anyone, `page` for signed-in users, `action` for forms that call the API.

import type { Context } from 'hono';
import { callerOf } from '../../api/authenticate.ts';
import type { Endpoint } from '../../api/endpoint.ts';
import { readBody, type SentFields } from '../../api/http/body.ts';
import { isPlainHttp } from '../../api/http/caller-address.ts';
import { markAuthenticated } from '../../api/http/connections.ts';
import { readUpload } from '../../api/http/multipart.ts';
import { type NamesIn, ownerOf, resourcesOf } from '../../api/resources.ts';
import type { Bindings } from '../../api/router.ts';
import { admit, authorize } from '../../domain/access.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import { hasAccounts } from '../../store/accounts.ts';
import { errorMessages, errorView, invalidFormView, suspendedView } from './error-pages.ts';
import { commonHeaders } from './headers.ts';
import { respondRedirect, respondView } from './layout.ts';
import { isFormToken, isOwnOrigin, localPath, readFlash, readSession } from './session.ts';
import { type Guest, perform, type Site, type View, type Visit } from './visit.ts';

type PageResult = View | Response | Promise<View | Response>;

export type Route = {
  method: 'GET' | 'POST';
  path: string;
  handle(guest: Guest): PageResult;
};

/** Where a form leads when it succeeds, and the message shown there. */
export type Redirect = { to: string; message?: string };

/** A page that needs no sign-in. */
export function open(path: string, handle: (guest: Guest) => PageResult): Route {
  return { method: 'GET', path, handle };
}

/** A form that needs no sign-in. It must come from one of our own pages. */
export function openForm(path: string, handle: (guest: Guest, sent: SentFields) => PageResult): Route {
  return {
    method: 'POST',
    path,
    async handle(guest) {
      if (!isOwnOrigin(guest.request, guest.url, guest.services.baseUrl)) return invalidFormView;
      return handle(guest, await readForm(guest.request));
    },
  };
}

/** `visit.found` holds the rows that the path's ids name, which the visitor may see. */
type Handle<Path extends string> = (visit: Visit<NamesIn<Path>>) => PageResult;

/** A page for signed-in users. */
export function page<Path extends string>(path: Path, handle: Handle<Path>): Route {
  return forVisitors('GET', path, handle);
}

/**
 * A form that performs an endpoint. On success it redirects, or returns a page to show something only once. If
 * refused, `showForm` renders the form again with what the user typed and the errors.
 */
export function action<Path extends string, Result>(
  path: Path,
  endpoint: Endpoint<Result>,
  options: {
    showForm: Handle<Path>;
    done: (visit: Visit<NamesIn<Path>>, result: Awaited<Result>) => Redirect | View | Response;
    /** Adapts the form to the fields that the endpoint takes. */
    prepare?: (sent: SentFields, visit: Visit<NamesIn<Path>>) => void;
  },
): Route {
  return form(path, (visit, sent) =>
    orShowAgain(visit, sent, options.showForm, async () => {
      options.prepare?.(sent, visit);
      const next = options.done(visit, await perform(visit, endpoint, { sent }));
      return 'to' in next ? respondRedirect(next.to, { message: next.message }) : next;
    }),
  );
}

/**
 * A form with a file of any size. The file is streamed to an endpoint that reads its body itself. A script that asks
 * for JSON gets the error message, or an empty object: it stays on its page.
 */
export function upload<Path extends string>(
  path: Path,
  endpoint: Endpoint,
  options: { fieldName: string; showForm: Handle<Path>; done: (visit: Visit<NamesIn<Path>>) => Redirect },
): Route {
  return forVisitors('POST', path, async visit => {
    const { request } = visit;
    const { fields, file } = await readUpload(request);
    if (!isFormToken(visit.session, fields.get('csrf'))) return invalidFormView;
    const isScript = request.headers.get('accept') === 'application/json';
    try {
      if (file?.fieldName !== options.fieldName) throw refusal('is_blank', options.fieldName);
      await perform(visit, endpoint, { body: file.bytes });
      if (isScript) return Response.json({}, { headers: commonHeaders });
      const { to, message } = options.done(visit);
      return respondRedirect(to, { message });
    } catch (error) {
      if (!(error instanceof Refusal) || error.status === 404) throw error;
      if (isScript)
        return Response.json({ error: errorMessages(error) }, { status: 422, headers: commonHeaders });
      return showAgain(visit, new Map(), error, options.showForm);
    }
  });
}

/** A form for signed-in users without an endpoint: sessions, consent, API keys. */
export function form<Path extends string>(
  path: Path,
  handle: (visit: Visit<NamesIn<Path>>, sent: SentFields) => PageResult,
): Route {
  return forVisitors('POST', path, async visit => {
    const sent = await readForm(visit.request);
    if (!isFormToken(visit.session, sent.get('csrf'))) return invalidFormView;
    sent.delete('csrf');
    return handle(visit, sent);
  });
}

/** Runs `work`. If refused, `showForm` renders the form again with what the user typed and the errors. */
export async function orShowAgain<SomeVisit extends Visit>(
  visit: SomeVisit,
  sent: SentFields,
  showForm: (visit: SomeVisit) => PageResult,
  work: () => PageResult,
): Promise<View | Response> {
  try {
    return await work();
  } catch (error) {
    // The subject of the page itself is gone. A field that names something missing can be corrected.
    if (!(error instanceof Refusal) || (error.status === 404 && 'generic' in error.errors)) throw error;
    return showAgain(visit, sent, error, showForm);
  }
}

async function showAgain<SomeVisit extends Visit>(
  visit: SomeVisit,
  sent: SentFields,
  { errors }: Refusal,
  showForm: (visit: SomeVisit) => PageResult,
): Promise<View | Response> {
  visit.refused = { action: visit.url.pathname, sent, errors };
  const view = await showForm(visit);
  return view instanceof Response ? view : { ...view, status: 422 };
}

/** A route for signed-in users. Redirects others to the sign-in page. */
function forVisitors<Path extends string>(method: Route['method'], path: Path, handle: Handle<Path>): Route {
  const findResources = resourcesOf(path);
  return {
    method,
    path,
    handle(guest) {
      const { services, session, caller, request, url } = guest;
      if (!session || !caller) {
        const back = method === 'GET' ? url.pathname + url.search : refererPath(request, url);
        const signIn = `/ui/sign-in?next=${encodeURIComponent(back)}`;
        return respondRedirect(hasAccounts(services.db) ? signIn : '/ui/setup');
      }
      if (caller.standing === 'suspended' && path !== '/ui/sign-out') return suspendedView;
      if (caller.standing !== 'suspended') admit(caller, undefined);
      const found = findResources(services.db, caller, guest.params);
      const ownerId = ownerOf(found);
      if (ownerId !== undefined) authorize(caller, 'sees', ownerId, 'refused');
      if (method === 'POST' && !isOwnOrigin(request, url, services.baseUrl)) return invalidFormView;
      return handle({ ...guest, session, caller, account: session.account, found });
    },
  };
}

function refererPath(request: Request, url: URL): string {
  const referrer = URL.parse(request.headers.get('referer') ?? '');
  return referrer?.host === url.host ? localPath(referrer.pathname + referrer.search) : '/ui';
}

/** Converts a form to what the API expects: plain line ends, and lists without the hidden empty element. */
async function readForm(request: Request): Promise<SentFields> {
  const sent = await readBody(request);
  for (const [name, value] of sent) {
    if (typeof value === 'string') sent.set(name, value.replaceAll('\r\n', '\n'));
    else if (Array.isArray(value) && value.length > 1)
      sent.set(
        name,
        value.filter(one => one !== ''),
      );
  }
  return sent;
}

export function handlerFor(site: Site, route: Route): (context: Context<Bindings>) => Promise<Response> {
  return async context => {
    const { env } = context;
    const guest = guestOf(site, context);
    const finish = async (result: View | Response) =>
      stopReconnecting(guest.request, result instanceof Response ? result : await respondView(guest, result));
    env.route = route.path;
    env.showError = error => finish(errorView(error, env.requestId));
    const handle = isPlainHttp(env.outgoing, site.services) ? toHttps : route.handle;
    return finish(await handle(guest));
  };
}

/** Signing in over plain HTTP cannot work: browsers keep the session cookie over HTTPS only. */
const toHttps = (guest: Guest): Response =>
  respondRedirect(`${guest.services.baseUrl}${guest.url.pathname}${guest.url.search}`);

/** Answers a refused stream with 204, which makes the browser stop reconnecting. */
function stopReconnecting(request: Request, response: Response): Response {
  const isStream = request.headers.get('accept') === 'text/event-stream';
  return isStream && response.status >= 300 && response.status < 500
    ? new Response(null, { status: 204, headers: commonHeaders })
    : response;
}

function guestOf(site: Site, context: Context<Bindings>): Guest {
  const request = context.req.raw;
  const { db } = site.services;
  const session = readSession(db, request);
  if (session) markAuthenticated(context.env.outgoing);
  return {
    site,
    services: site.services,
    request,
    url: new URL(request.url),
    params: context.req.param() as Record<string, string>,
    outgoing: context.env.outgoing,
    session,
    caller: session && callerOf(db, session.account, undefined),
    // A script that reloads parts of a page must not consume the message meant for the user.
    flash: request.headers.get('sec-fetch-dest') === 'empty' ? '' : readFlash(request),
    refused: undefined,
  };
}

// How an address becomes a page: for anyone (`open`), for those who have signed in (`page`), and for forms (`action`).

import { randomUUID } from 'node:crypto';
import type { Context } from 'hono';
import { callerOf } from '../../api/authenticate.ts';
import { findResources, ownerOf } from '../../api/guard.ts';
import { readBody, type SentFields } from '../../api/http/body.ts';
import { isPlainHttp } from '../../api/http/caller-address.ts';
import { markAuthenticated } from '../../api/http/connections.ts';
import { readUpload } from '../../api/http/multipart.ts';
import type { Bindings } from '../../api/router.ts';
import { admit, authorize } from '../../domain/access.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import { hasAccounts } from '../../store/accounts.ts';
import { TooManyTries } from '../account/slowdown.ts';
import { commonHeaders } from './headers.ts';
import { respondRedirect, respondView } from './layout.ts';
import {
  defectView,
  forgedView,
  refusalView,
  sentencesOf,
  suspendedView,
  tooManyTriesView,
} from './refused.ts';
import { findVisitor, flashCookie, isFormToken, isOwnOrigin, localPath, readFlash } from './session.ts';
import { findEndpoint, type Guest, perform, type Site, type View, type Visit } from './visit.ts';

type Given = View | Response | Promise<View | Response>;

export type Route = {
  method: 'GET' | 'POST';
  path: string;
  /** The endpoint that a form performs: looked for at start. */
  performs?: string;
  handle(guest: Guest): Given;
};

/** Where to go on to after a form, and what is said there. */
export type Onward = { to: string; say?: string };

/** A page that anyone may look at. */
export function open(path: string, handle: (guest: Guest) => Given): Route {
  return { method: 'GET', path, handle };
}

/** A form that is sent before there is a session: it must come from one of our own pages. */
export function openForm(path: string, handle: (guest: Guest, sent: SentFields) => Given): Route {
  return {
    method: 'POST',
    path,
    async handle(guest) {
      if (!isOwnOrigin(guest.request, guest.url, guest.services.baseUrl)) return forgedView;
      return handle(guest, await readForm(guest.request));
    },
  };
}

/** A page for those who have signed in. Ids in the path are named as in the API, and are found and seen first. */
export function page(path: string, handle: (visit: Visit) => Given): Route {
  return {
    method: 'GET',
    path,
    handle(guest) {
      const visit = enter(guest, path, guest.url.pathname + guest.url.search);
      return visit instanceof Response || 'body' in visit ? visit : handle(visit);
    },
  };
}

/**
 * A form that performs an endpoint. Done, it goes on to another page (or gives one itself, where something is
 * shown just once); refused, `shown` is given again with what was typed and what is wrong with it.
 */
export function action<Result = unknown>(
  path: string,
  endpointName: string,
  parts: {
    shown: (visit: Visit) => Given;
    done: (visit: Visit, result: Result) => Onward | View | Response;
    /** Where the form differs from what the endpoint takes. */
    prepare?: (sent: SentFields, visit: Visit) => void;
  },
): Route {
  const route = form(path, (visit, sent) =>
    orAgain(visit, sent, parts.shown, async () => {
      parts.prepare?.(sent, visit);
      const result = await perform<Result>(visit, endpointName, { sent });
      const next = parts.done(visit, result);
      return 'to' in next ? respondRedirect(visit, next.to, { say: next.say }) : next;
    }),
  );
  return { ...route, performs: endpointName };
}

/**
 * A form with a file of any size, for an endpoint that reads its body itself: it is handed the file as it comes.
 * A script that asks for JSON is told where to go on to, or in words what is wrong.
 */
export function upload<Result = unknown>(
  path: string,
  endpointName: string,
  parts: {
    fieldName: string;
    shown: (visit: Visit) => Given;
    done: (visit: Visit, result: Result) => Onward;
  },
): Route {
  return {
    method: 'POST',
    path,
    performs: endpointName,
    async handle(guest) {
      const { request, url, services } = guest;
      const visit = enter(guest, path, cameFrom(request, url));
      if (visit instanceof Response || 'body' in visit) return visit;
      if (!isOwnOrigin(request, url, services.baseUrl)) return forgedView;
      const { fields, file } = await readUpload(request);
      if (!isFormToken(visit.session, fields.get('csrf'))) return forgedView;
      const isScript = request.headers.get('accept') === 'application/json';
      try {
        if (file?.fieldName !== parts.fieldName) throw refusal('is_blank', parts.fieldName);
        const body = ReadableStream.from(file.bytes);
        const passedOn = new Request(request.url, { method: 'POST', body, duplex: 'half' } as RequestInit);
        const { to, say } = parts.done(
          visit,
          await perform<Result>({ ...visit, request: passedOn }, endpointName),
        );
        return isScript
          ? Response.json(
              { to },
              {
                headers: {
                  ...commonHeaders,
                  ...(say && { 'set-cookie': flashCookie({ kind: 'done', text: say }) }),
                },
              },
            )
          : respondRedirect(visit, to, { say });
      } catch (cause) {
        if (!(cause instanceof Refusal) || cause.status === 404) throw cause;
        if (isScript)
          return Response.json({ error: sentencesOf(cause) }, { status: 422, headers: commonHeaders });
        visit.refused = { action: visit.url.pathname, sent: new Map(), errors: cause.errors };
        const view = await parts.shown(visit);
        return view instanceof Response ? view : { ...view, status: 422 };
      }
    },
  };
}

/** A form of someone who has signed in, for what is no endpoint: the session itself, consent, API keys. */
export function form(path: string, handle: (visit: Visit, sent: SentFields) => Given): Route {
  return {
    method: 'POST',
    path,
    async handle(guest) {
      const { request, url, services } = guest;
      const visit = enter(guest, path, cameFrom(request, url));
      if (visit instanceof Response || 'body' in visit) return visit;
      if (!isOwnOrigin(request, url, services.baseUrl)) return forgedView;
      const sent = await readForm(request);
      if (!isFormToken(visit.session, sent.get('csrf'))) return forgedView;
      sent.delete('csrf');
      return handle(visit, sent);
    },
  };
}

/** Does what a form asks for; refused, `shown` is given again with what was typed and what is wrong with it. */
export async function orAgain(
  visit: Visit,
  sent: SentFields,
  shown: (visit: Visit) => Given,
  work: () => Given,
): Promise<View | Response> {
  try {
    return await work();
  } catch (cause) {
    // What the page itself is about is gone. A field that names something else can be corrected.
    if (!(cause instanceof Refusal) || (cause.status === 404 && 'generic' in cause.errors)) throw cause;
    visit.refused = { action: visit.url.pathname, sent, errors: cause.errors };
    const view = await shown(visit);
    return view instanceof Response ? view : { ...view, status: 422 };
  }
}

/** Lets a signed-in visitor in, or gives what stands in the way. */
function enter(guest: Guest, path: string, back: string): Visit | View | Response {
  const { services, session, caller } = guest;
  if (!session || !caller)
    return hasAccounts(services.db)
      ? respondRedirect(guest, `/ui/sign-in?next=${encodeURIComponent(back)}`)
      : respondRedirect(guest, '/ui/setup');
  if (caller.standing === 'suspended' && path !== '/ui/sign-out') return suspendedView;
  if (caller.standing !== 'suspended') admit(caller, undefined);
  // What else a path names belongs to the page itself, which finds it.
  const names = [...path.matchAll(/:(\w+_id)\b/g)].map(match => match[1] as string);
  const found = findResources(services.db, caller, names, guest.params);
  const ownerId = ownerOf(found);
  if (ownerId !== undefined) authorize(caller, 'sees', ownerId, 'refused');
  return { ...guest, session, caller, account: session.account, csrf: session.csrf, found };
}

function cameFrom(request: Request, url: URL): string {
  const referrer = URL.parse(request.headers.get('referer') ?? '');
  return referrer?.host === url.host ? localPath(referrer.pathname + referrer.search) : '/ui';
}

/** What a form sent, as the API would be sent it: plain line ends, and lists without the element that stands for none. */
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

/** The handler of a route for the router: session, flash and request id before, refusals and defects after. */
export function answer(site: Site, route: Route): (context: Context<Bindings>) => Promise<Response> {
  if (route.performs !== undefined) findEndpoint(site, route.performs);
  return async context => {
    const guest = meet(site, context);
    const handle = isPlainHttp(guest.outgoing, site.services) ? toHttps : route.handle;
    const response = endedForGood(guest.request, await respond(guest, () => handle(guest)));
    site.metrics.countRequest(context.req.method, route.path, response.status);
    return response;
  };
}

/** Browsers keep the session's cookie over HTTPS alone: signing in over plain HTTP would lead nowhere. */
const toHttps = (guest: Guest): Response =>
  respondRedirect(guest, `${guest.services.baseUrl}${guest.url.pathname}${guest.url.search}`);

/** A browser takes up a broken stream by itself, again and again, unless it is told that there is nothing more. */
function endedForGood(request: Request, response: Response): Response {
  const isStream = request.headers.get('accept') === 'text/event-stream';
  return isStream && response.status >= 300 && response.status < 500
    ? new Response(null, { status: 204, headers: commonHeaders })
    : response;
}

async function respond(guest: Guest, handle: () => Given): Promise<Response> {
  try {
    const given = await handle();
    return given instanceof Response ? given : await respondView(guest, given);
  } catch (cause) {
    if (cause instanceof Refusal) return respondView(guest, refusalView(cause));
    if (cause instanceof TooManyTries) return respondView(guest, tooManyTriesView);
    const facts = { requestId: guest.requestId, method: guest.request.method, path: guest.url.pathname };
    guest.site.log.error('page failed', { ...facts, cause });
    return respondView(guest, defectView(guest.requestId));
  }
}

function meet(site: Site, context: Context<Bindings>): Guest {
  const request = context.req.raw;
  const { db } = site.services;
  const session = findVisitor(db, request);
  if (session) markAuthenticated(context.env.outgoing);
  return {
    site,
    services: site.services,
    request,
    requestId: randomUUID(),
    url: new URL(request.url),
    params: context.req.param() as Record<string, string>,
    outgoing: context.env.outgoing,
    session,
    caller: session && callerOf(db, session.account, undefined),
    // A script that reads a page again must not take the message from whoever is about to see it.
    flash: request.headers.get('sec-fetch-dest') === 'empty' ? undefined : readFlash(request),
    refused: undefined,
  };
}

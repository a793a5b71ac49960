// How an address becomes a page: for anyone (`open`), for those who have signed in (`page`), and for forms (`action`).

import type { Context } from 'hono';
import { callerOf } from '../../api/authenticate.ts';
import type { Endpoint } from '../../api/endpoint.ts';
import { type NamesIn, ownerOf, resourcesOf } from '../../api/guard.ts';
import { readBody, type SentFields } from '../../api/http/body.ts';
import { isPlainHttp } from '../../api/http/caller-address.ts';
import { markAuthenticated } from '../../api/http/connections.ts';
import { readUpload } from '../../api/http/multipart.ts';
import type { Bindings } from '../../api/router.ts';
import { admit, authorize } from '../../domain/access.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import { hasAccounts } from '../../store/accounts.ts';
import { commonHeaders } from './headers.ts';
import { respondRedirect, respondView } from './layout.ts';
import { errorView, forgedView, sentencesOf, suspendedView } from './refused.ts';
import { findVisitor, flashCookie, isFormToken, isOwnOrigin, localPath, readFlash } from './session.ts';
import { type Guest, perform, type Site, type View, type Visit } from './visit.ts';

type Given = View | Response | Promise<View | Response>;

export type Route = {
  method: 'GET' | 'POST';
  path: string;
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

/** Where ids in the path are named as in the API, their rows are found first, and the visitor may see them. */
type Handle<Path extends string> = (visit: Visit<NamesIn<Path>>) => Given;

/** A page for those who have signed in. */
export function page<Path extends string>(path: Path, handle: Handle<Path>): Route {
  return forVisitors('GET', path, handle);
}

/**
 * A form that performs an endpoint. Done, it goes on to another page (or gives one itself, where something is
 * shown just once); refused, `shown` is given again with what was typed and what is wrong with it.
 */
export function action<Path extends string, Result>(
  path: Path,
  endpoint: Endpoint<Result>,
  parts: {
    shown: Handle<Path>;
    done: (visit: Visit<NamesIn<Path>>, result: Awaited<Result>) => Onward | View | Response;
    /** Where the form differs from what the endpoint takes. */
    prepare?: (sent: SentFields, visit: Visit<NamesIn<Path>>) => void;
  },
): Route {
  return form(path, (visit, sent) =>
    orAgain(visit, sent, parts.shown, async () => {
      parts.prepare?.(sent, visit);
      const next = parts.done(visit, await perform(visit, endpoint, { sent }));
      return 'to' in next ? respondRedirect(next.to, { say: next.say }) : next;
    }),
  );
}

/**
 * A form with a file of any size, for an endpoint that reads its body itself: it is handed the file as it comes.
 * A script that asks for JSON gets where to go on to, or in words what is wrong.
 */
export function upload<Path extends string>(
  path: Path,
  endpoint: Endpoint,
  parts: { fieldName: string; shown: Handle<Path>; done: (visit: Visit<NamesIn<Path>>) => Onward },
): Route {
  return forVisitors('POST', path, async visit => {
    const { request } = visit;
    const { fields, file } = await readUpload(request);
    if (!isFormToken(visit.session, fields.get('csrf'))) return forgedView;
    const isScript = request.headers.get('accept') === 'application/json';
    try {
      if (file?.fieldName !== parts.fieldName) throw refusal('is_blank', parts.fieldName);
      const body = ReadableStream.from(file.bytes);
      const passedOn = new Request(request.url, { method: 'POST', body, duplex: 'half' } as RequestInit);
      await perform({ ...visit, request: passedOn }, endpoint);
      const { to, say } = parts.done(visit);
      if (!isScript) return respondRedirect(to, { say });
      const cookie = say && { 'set-cookie': flashCookie({ kind: 'done', text: say }) };
      return Response.json({ to }, { headers: { ...commonHeaders, ...cookie } });
    } catch (error) {
      if (!(error instanceof Refusal) || error.status === 404) throw error;
      if (isScript)
        return Response.json({ error: sentencesOf(error) }, { status: 422, headers: commonHeaders });
      return showAgain(visit, new Map(), error, parts.shown);
    }
  });
}

/** A form of someone who has signed in, for what is no endpoint: the session itself, consent, API keys. */
export function form<Path extends string>(
  path: Path,
  handle: (visit: Visit<NamesIn<Path>>, sent: SentFields) => Given,
): Route {
  return forVisitors('POST', path, async visit => {
    const sent = await readForm(visit.request);
    if (!isFormToken(visit.session, sent.get('csrf'))) return forgedView;
    sent.delete('csrf');
    return handle(visit, sent);
  });
}

/** Performs what a form asks for; refused, `shown` is given again with what was typed and what is wrong with it. */
export async function orAgain<SomeVisit extends Visit>(
  visit: SomeVisit,
  sent: SentFields,
  shown: (visit: SomeVisit) => Given,
  work: () => Given,
): Promise<View | Response> {
  try {
    return await work();
  } catch (error) {
    // What the page itself is about is gone. A field that names something else can be corrected.
    if (!(error instanceof Refusal) || (error.status === 404 && 'generic' in error.errors)) throw error;
    return showAgain(visit, sent, error, shown);
  }
}

async function showAgain<SomeVisit extends Visit>(
  visit: SomeVisit,
  sent: SentFields,
  { errors }: Refusal,
  shown: (visit: SomeVisit) => Given,
): Promise<View | Response> {
  visit.refused = { action: visit.url.pathname, sent, errors };
  const view = await shown(visit);
  return view instanceof Response ? view : { ...view, status: 422 };
}

/** Lets a signed-in visitor in, or gives what stands in the way. */
function forVisitors<Path extends string>(method: Route['method'], path: Path, handle: Handle<Path>): Route {
  // Other parameters belong to the page itself, which finds what they name.
  const findResources = resourcesOf(path);
  return {
    method,
    path,
    handle(guest) {
      const { services, session, caller, request, url } = guest;
      if (!session || !caller) {
        const back = method === 'GET' ? url.pathname + url.search : cameFrom(request, url);
        const signIn = `/ui/sign-in?next=${encodeURIComponent(back)}`;
        return respondRedirect(hasAccounts(services.db) ? signIn : '/ui/setup');
      }
      if (caller.standing === 'suspended' && path !== '/ui/sign-out') return suspendedView;
      if (caller.standing !== 'suspended') admit(caller, undefined);
      const found = findResources(services.db, caller, guest.params);
      const ownerId = ownerOf(found);
      if (ownerId !== undefined) authorize(caller, 'sees', ownerId, 'refused');
      if (method === 'POST' && !isOwnOrigin(request, url, services.baseUrl)) return forgedView;
      return handle({ ...guest, session, caller, account: session.account, csrf: session.csrf, found });
    },
  };
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

/** The handler of a route for the router. */
export function answer(site: Site, route: Route): (context: Context<Bindings>) => Promise<Response> {
  return async context => {
    const { env } = context;
    const guest = meet(site, context);
    const finish = async (given: View | Response) =>
      endedForGood(guest.request, given instanceof Response ? given : await respondView(guest, given));
    env.route = route.path;
    env.showError = error => finish(errorView(error, env.requestId));
    const handle = isPlainHttp(env.outgoing, site.services) ? toHttps : route.handle;
    return finish(await handle(guest));
  };
}

/** Browsers keep the session's cookie over HTTPS alone: signing in over plain HTTP would lead nowhere. */
const toHttps = (guest: Guest): Response =>
  respondRedirect(`${guest.services.baseUrl}${guest.url.pathname}${guest.url.search}`);

/** A browser takes up a broken stream by itself, again and again, unless it is told that there is nothing more. */
function endedForGood(request: Request, response: Response): Response {
  const isStream = request.headers.get('accept') === 'text/event-stream';
  return isStream && response.status >= 300 && response.status < 500
    ? new Response(null, { status: 204, headers: commonHeaders })
    : response;
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

// The streams of pages: a session vouches for the reader, since a browser's EventSource can send no header.

import { html } from 'hono/html';
import { callerOf } from '../../api/authenticate.ts';
import { type EventStream, frame, openStream, streamResponse } from '../../api/http/stream.ts';
import { admit, type Caller } from '../../domain/access.ts';
import { Refusal } from '../../domain/refusal.ts';
import { findSession } from '../../store/accounts.ts';
import type { Html, Visit } from './visit.ts';

/** Begins a stream; it ends with the session, the standing, or the sight of what it shows. */
export function openPageStream(visit: Visit, sees: (caller: Caller) => unknown): EventStream {
  const { services, session, account, request, outgoing } = visit;
  const isAllowed = () => {
    const holder = findSession(services.db, session.token);
    if (!holder) return false;
    try {
      const caller = callerOf(services.db, holder, undefined);
      admit(caller, undefined);
      return Boolean(sees(caller));
    } catch (error) {
      if (error instanceof Refusal) return false;
      throw error;
    }
  };
  const stream = openStream(outgoing, isAllowed);
  stream.onClose(
    services.live.watch(`account:${account.id}`, () => {
      if (!isAllowed()) stream.end();
    }),
  );
  if (request.method === 'HEAD') stream.end();
  return stream;
}

/** Says `changed` after each change of the topics, with what `tell` gives; at once where the page may have missed one. */
export function respondChanges(
  visit: Visit,
  parts: { topics: readonly string[]; sees: (caller: Caller) => unknown; tell?: () => unknown },
): Response {
  const stream = openPageStream(visit, parts.sees);
  const say = () => stream.send(frame('changed', JSON.stringify(parts.tell?.() ?? {})));
  stream.send(frame('state', '{}'));
  for (const topic of parts.topics) stream.onClose(visit.services.live.watch(topic, say));
  if (visit.url.searchParams.get('seen') !== String(visit.services.db.generation())) say();
  return streamResponse();
}

/** What a page has in it to read its parts marked `data-live` again whenever `href` says `changed`; with project.js. */
export const renderChanges = ({ services }: Visit, href: string, page: string): Html =>
  html`<div hidden data-stream="${href}?seen=${services.db.generation()}" data-events="changed" data-page="${page}"></div>`;

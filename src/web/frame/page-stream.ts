// Event streams for pages. They authenticate by session, since a browser's EventSource cannot send an Authorization header.

import { html } from 'hono/html';
import { callerOf } from '../../api/authenticate.ts';
import { type EventStream, frame, openStream, streamResponse } from '../../api/http/stream.ts';
import { admit, type Caller } from '../../domain/access.ts';
import { Refusal } from '../../domain/refusal.ts';
import { findSession } from '../../store/accounts.ts';
import type { Guest, Html, Visit } from './visit.ts';

/** Opens a stream. It ends when the session ends or the account may no longer see what it shows. */
export function openPageStream(visit: Visit, maySee: (caller: Caller) => unknown): EventStream {
  const { services, session, account } = visit;
  const isAllowed = () => {
    const holder = findSession(services.db, session.token);
    if (!holder) return false;
    try {
      const caller = callerOf(services.db, holder, undefined);
      admit(caller, undefined);
      return Boolean(maySee(caller));
    } catch (error) {
      if (error instanceof Refusal) return false;
      throw error;
    }
  };
  return openStreamWhile(visit, account.id, isAllowed);
}

function openStreamWhile(
  { services, request, outgoing }: Pick<Guest, 'services' | 'request' | 'outgoing'>,
  accountId: bigint,
  isAllowed: () => boolean,
): EventStream {
  const stream = openStream(outgoing, isAllowed);
  stream.onClose(
    services.live.watch(`account:${accountId}`, () => {
      if (!isAllowed()) stream.end();
    }),
  );
  if (request.method === 'HEAD') stream.end();
  return stream;
}

/** Sends `changed` with `payload` after each change of the topics, and at once if the page may have missed one. */
export function respondChanges(
  visit: Visit,
  options: { topics: Iterable<string>; maySee: (caller: Caller) => unknown; payload?: () => unknown },
): Response {
  return sendChanges(visit, openPageStream(visit, options.maySee), options);
}

/** The same without a session: the stream of an account ends when `isAllowed` returns false. */
export function respondChangesWhile(
  guest: Guest,
  options: { accountId: bigint; isAllowed: () => boolean; topics: Iterable<string> },
): Response {
  return sendChanges(guest, openStreamWhile(guest, options.accountId, options.isAllowed), options);
}

function sendChanges(
  { services, url }: Pick<Guest, 'services' | 'url'>,
  stream: EventStream,
  { topics, payload }: { topics: Iterable<string>; payload?: () => unknown },
): Response {
  const sendChange = () => stream.send(frame('changed', JSON.stringify(payload?.() ?? {})));
  stream.send(frame('state', '{}'));
  stream.onClose(services.live.watchAny(topics, sendChange));
  if (url.searchParams.get('seen') !== String(services.db.generation())) sendChange();
  return streamResponse();
}

/** Makes project.js reload the `data-live` elements of a page whenever the stream at `href` sends `changed`. */
export const renderChanges = ({ services }: Visit, href: string, page: string): Html =>
  html`<div hidden data-stream="${href}?seen=${services.db.generation()}" data-events="changed" data-page="${page}"></div>`;

// The streams of pages: a session vouches for the reader, since a browser's EventSource can send no header.

import { callerOf } from '../api/authenticate.ts';
import { type EventStream, openStream } from '../api/stream.ts';
import { admit, type Caller } from '../domain/access.ts';
import { Refusal } from '../domain/refusal.ts';
import { findSession } from '../store/accounts.ts';
import type { Visit } from './visit.ts';

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
    } catch (cause) {
      if (cause instanceof Refusal) return false;
      throw cause;
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

// Reads a firehose of the server. When the connection breaks, it connects again and goes on after the last event.

import { setTimeout as sleep } from 'node:timers/promises';
import { CertificateError, type Connection, ServerError } from './connection.ts';
import { unreachable } from './exit-status.ts';

export type ServerEvent = { event: string; data: string; id: string | undefined };

const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 5_000;
/** How long to try to reach a server that does not respond. */
const GIVE_UP_MS = 10 * 60_000;

export type FollowOptions = {
  signal?: AbortSignal | undefined;
  lastEventId?: string | undefined;
  /** The connection broke. It is tried again. */
  onInterrupted?(): void;
  /** Called when it works again. Events may have been missed on streams without ids. */
  onResumed?(): void;
};

/** The events of a firehose. It does not end by itself: stop at the event that is the last. */
export async function* followEvents(
  connection: Connection,
  path: string,
  options: FollowOptions = {},
): AsyncGenerator<ServerEvent, void> {
  let { lastEventId } = options;
  let waitMs = FIRST_WAIT_MS;
  let brokenAt: number | undefined;
  for (;;) {
    try {
      const response = await connection.open('GET', path, {
        headers: {
          accept: 'text/event-stream',
          ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
        },
        signal: options.signal,
      });
      if (brokenAt !== undefined) options.onResumed?.();
      brokenAt = undefined;
      waitMs = FIRST_WAIT_MS;
      response.setEncoding('utf8');
      for await (const event of parseEvents(response as AsyncIterable<string>)) {
        if (event.id !== undefined) lastEventId = event.id;
        yield event;
      }
    } catch (error) {
      if (options.signal?.aborted || !isTemporary(error)) throw error;
    }
    options.signal?.throwIfAborted();
    brokenAt ??= performance.now();
    if (waitMs === FIRST_WAIT_MS) options.onInterrupted?.();
    if (performance.now() - brokenAt > GIVE_UP_MS)
      throw unreachable(`${connection.url} has not responded for 10 minutes: the build may still be running`);
    await sleep(waitMs, undefined, { ...(options.signal && { signal: options.signal }) });
    waitMs = Math.min(MAX_WAIT_MS, waitMs * 2);
  }
}

/** A refusal is final. A connection that broke, or a server that is starting, is not. */
function isTemporary(error: unknown): boolean {
  if (error instanceof ServerError) return error.status >= 500;
  return !(error instanceof CertificateError);
}

/** The events in a text/event-stream, of which chunks arrive. Comments keep the connection open and are skipped. */
export async function* parseEvents(chunks: AsyncIterable<string>): AsyncGenerator<ServerEvent, void> {
  let rest = '';
  for await (const chunk of chunks) {
    rest += chunk;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const event = parseEvent(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event) yield event;
    }
  }
}

function parseEvent(text: string): ServerEvent | undefined {
  let event = 'message';
  let id: string | undefined;
  const data: string[] = [];
  for (const line of text.split('\n')) {
    const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === 'event') event = value;
    else if (name === 'id') id = value;
    else if (name === 'data') data.push(value);
  }
  return data.length > 0 ? { event, data: data.join('\n'), id } : undefined;
}

// Reads a firehose of the server. When the connection breaks, it connects again and goes on after the last event.

import { setTimeout as sleep } from 'node:timers/promises';
import { CertificateError, type Connection, ServerError } from './connection.ts';
import { unreachable } from './exit-status.ts';

export type ServerEvent = { event: string; data: string; id: string | undefined };

const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 5_000;
/** How long to try to reach a server that does not respond. */
const GIVE_UP_MS = 10 * 60_000;

export type RetryOptions = {
  signal?: AbortSignal | undefined;
  /** The connection broke. It is tried again. */
  onInterrupted?(): void;
  /** Called when it works again. Events may have been missed on streams without ids. */
  onResumed?(): void;
};

export type Retry = {
  succeeded(): void;
  /** Waits, longer after each failure in a row. Throws if trying again does not help, or has not helped for long. */
  failed(error?: unknown): Promise<void>;
};

export function createRetry(connection: Connection, options: RetryOptions): Retry {
  const { signal } = options;
  let waitMs = FIRST_WAIT_MS;
  let brokenAt: number | undefined;
  return {
    succeeded() {
      if (brokenAt !== undefined) options.onResumed?.();
      brokenAt = undefined;
      waitMs = FIRST_WAIT_MS;
    },
    async failed(error) {
      if (error !== undefined && (signal?.aborted || !isTemporary(error))) throw error;
      signal?.throwIfAborted();
      if (brokenAt === undefined) options.onInterrupted?.();
      brokenAt ??= performance.now();
      if (performance.now() - brokenAt > GIVE_UP_MS)
        throw unreachable(
          `${connection.url} has not responded for 10 minutes: the build may still be running`,
        );
      await sleep(waitMs, undefined, { ...(signal && { signal }) });
      waitMs = Math.min(MAX_WAIT_MS, waitMs * 2);
    },
  };
}

/** Repeats the work while the server cannot be reached. */
export async function retrying<T>(retry: Retry, work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      const result = await work();
      retry.succeeded();
      return result;
    } catch (error) {
      await retry.failed(error);
    }
  }
}

export type FollowOptions = RetryOptions & {
  lastEventId?: string | undefined;
  /** Shared with other calls. */
  retry?: Retry;
};

/** The events of a firehose. It does not end by itself: stop at the event that is the last. */
export async function* followEvents(
  connection: Connection,
  path: string,
  options: FollowOptions = {},
): AsyncGenerator<ServerEvent, void> {
  const retry = options.retry ?? createRetry(connection, options);
  let { lastEventId } = options;
  for (;;) {
    let broken: unknown;
    try {
      const response = await connection.open('GET', path, {
        headers: {
          accept: 'text/event-stream',
          ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
        },
        signal: options.signal,
      });
      retry.succeeded();
      response.setEncoding('utf8');
      for await (const event of parseEvents(response as AsyncIterable<string>)) {
        if (event.id !== undefined) lastEventId = event.id;
        yield event;
      }
    } catch (error) {
      broken = error;
    }
    await retry.failed(broken);
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

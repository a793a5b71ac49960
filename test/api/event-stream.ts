// Reads server-sent events over both versions of HTTP, and checks their framing.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { request } from 'node:https';
import type { Readable } from 'node:stream';
import type { TestApp } from '../support/app.ts';
import { parseExact, type Wire } from '../support/client.ts';

export type Event = { event: string; id: string | undefined; data: Wire };
export type Stream = {
  status: number;
  type: string;
  next(): Promise<Event>;
  /** Reads to the end of the stream. */
  rest(): Promise<Event[]>;
  close(): void;
};
export type Version = 'HTTP/1.1' | 'HTTP/2';
export const versions: Version[] = ['HTTP/1.1', 'HTTP/2'];

export async function follow(
  app: TestApp,
  path: string,
  options: { as?: string; cookie?: string; from?: string; version?: Version } = {},
): Promise<Stream> {
  const headers = {
    ...(options.cookie === undefined
      ? { authorization: options.as ?? app.people.owner.as }
      : { cookie: options.cookie }),
    ...(options.from !== undefined && { 'last-event-id': options.from }),
  };
  if (options.version === 'HTTP/2') {
    const session = connect(app.url, { ca: app.client.ca });
    session.on('error', () => session.destroy());
    const stream = session.request({ ':path': path, ...headers });
    const [head] = await once(stream, 'response');
    stream.on('close', () => session.close());
    return createStream(stream, head[':status'], head['content-type'], () => session.destroy());
  }
  const { hostname, port } = new URL(app.url);
  const outgoing = request({ hostname, port, path, headers, ca: app.client.ca, agent: false });
  outgoing.on('error', () => {});
  outgoing.end();
  const [incoming] = await once(outgoing, 'response');
  return createStream(incoming, incoming.statusCode, incoming.headers['content-type'], () =>
    outgoing.destroy(),
  );
}

function createStream(body: Readable, status: number, type: string, close: () => void): Stream {
  const events = parse(body)[Symbol.asyncIterator]();
  const next = async () => {
    const timer = AbortSignal.timeout(60_000);
    const { value, done } = await Promise.race([
      events.next(),
      once(timer, 'abort').then(() => assert.fail('no event came')),
    ]);
    assert(!done, 'the stream ended');
    return value as Event;
  };
  return {
    status,
    type,
    next,
    async rest() {
      const all: Event[] = [];
      for await (const event of { [Symbol.asyncIterator]: () => events }) all.push(event);
      return all;
    },
    close,
  };
}

async function* parse(body: Readable): AsyncGenerator<Event> {
  let buffered = Buffer.alloc(0);
  for await (const chunk of body) {
    buffered = Buffer.concat([buffered, chunk]);
    for (let end = buffered.indexOf('\n\n'); end >= 0; end = buffered.indexOf('\n\n')) {
      // Frames are split only between characters: invalid UTF-8 would throw here.
      const text = new TextDecoder('utf-8', { fatal: true }).decode(buffered.subarray(0, end));
      buffered = buffered.subarray(end + 2);
      const field = (name: string) =>
        text
          .split('\n')
          .filter(line => line.startsWith(`${name}: `))
          .map(line => line.slice(name.length + 2))
          .join('\n');
      if (text.startsWith(':')) continue;
      yield { event: field('event'), id: field('id') || undefined, data: parseExact(field('data')) };
    }
  }
}

export const kinds = (events: Event[]) => events.map(one => one.event);
export const textOf = (events: Event[]) =>
  events
    .filter(one => one.event === 'log')
    .map(one => one.data.text)
    .join('');

/** Reads until the log has this length. */
export async function readTo(stream: Stream, offset: number): Promise<Event[]> {
  const events: Event[] = [];
  while (events.at(-1)?.id !== String(offset)) events.push(await stream.next());
  return events;
}

// Reads server-sent events over HTTP/1.1 or HTTP/2, one by one.
import { connect } from 'node:http2';
import { request } from 'node:https';
import type { Readable } from 'node:stream';
import { parseExact, type Wire } from './client.ts';

export type SentEvent = { event: string; id: string | undefined; data: Wire };

export type Firehose = AsyncIterable<SentEvent> & { close(): void };

export type FirehoseOptions = {
  ca: string;
  as: string;
  lastEventId?: string | undefined;
  http2?: boolean;
};

/** Leaving a loop over it closes the stream. */
export async function openFirehose(url: string, options: FirehoseOptions): Promise<Firehose> {
  const { source, close } = await (options.http2 ? overHttp2 : overHttp1)(new URL(url), options);
  return {
    close,
    async *[Symbol.asyncIterator]() {
      try {
        yield* readEvents(source);
      } finally {
        close();
      }
    },
  };
}

type Opened = { source: Readable; close(): void };

const headersOf = ({ as, lastEventId }: FirehoseOptions) => ({
  authorization: as,
  ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
});

function overHttp1(url: URL, options: FirehoseOptions): Promise<Opened> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { ca: options.ca, agent: false, headers: headersOf(options) }, answer => {
      if (answer.statusCode === 200) resolve({ source: answer, close: () => answer.destroy() });
      else reject(new Error(`a firehose answered ${answer.statusCode}`));
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
}

function overHttp2(url: URL, options: FirehoseOptions): Promise<Opened> {
  return new Promise((resolve, reject) => {
    const session = connect(url.origin, { ca: options.ca });
    session.on('error', reject);
    const stream = session.request({ ':path': url.pathname + url.search, ...headersOf(options) });
    stream.on('error', reject);
    stream.on('response', headers => {
      if (headers[':status'] === 200) resolve({ source: stream, close: () => session.destroy() });
      else reject(new Error(`a firehose answered ${headers[':status']}`));
    });
    stream.end();
  });
}

async function* readEvents(source: Readable): AsyncGenerator<SentEvent> {
  let text = '';
  source.setEncoding('utf8');
  try {
    for await (const part of source) {
      text += part;
      for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
        const event = parseEvent(text.slice(0, end));
        text = text.slice(end + 2);
        if (event) yield event;
      }
    }
  } catch (error) {
    // A dropped stream ends like a closed one: only the received events matter.
    if (!isBrokenOff(error)) throw error;
  }
}

const isBrokenOff = (error: unknown) =>
  ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_HTTP2_STREAM_ERROR'].includes(
    (error as NodeJS.ErrnoException).code ?? '',
  );

/** Undefined for a comment. */
function parseEvent(block: string): SentEvent | undefined {
  const fields = new Map<string, string>();
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 2));
  }
  const event = fields.get('event');
  return event === undefined
    ? undefined
    : { event, id: fields.get('id'), data: parseExact(fields.get('data') ?? 'null') };
}

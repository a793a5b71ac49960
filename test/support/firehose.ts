// Reads server-sent events over HTTP/1.1 or HTTP/2, one by one, as they come.
import { connect } from 'node:http2';
import { request } from 'node:https';
import type { Readable } from 'node:stream';
import { parseExact, type Wire } from './client.ts';

export type SentEvent = { event: string; id: string | undefined; data: Wire };

export type Firehose = AsyncIterable<SentEvent> & { close(): void };

export type FirehoseWishes = {
  ca: string;
  as: string;
  lastEventId?: string | undefined;
  http2?: boolean;
};

/** Breaking off a loop over it closes it. */
export async function openFirehose(url: string, wishes: FirehoseWishes): Promise<Firehose> {
  const { source, close } = await (wishes.http2 ? overHttp2 : overHttp1)(new URL(url), wishes);
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

const headersOf = ({ as, lastEventId }: FirehoseWishes) => ({
  authorization: as,
  ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
});

function overHttp1(url: URL, wishes: FirehoseWishes): Promise<Opened> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { ca: wishes.ca, agent: false, headers: headersOf(wishes) }, answer => {
      if (answer.statusCode === 200) resolve({ source: answer, close: () => answer.destroy() });
      else reject(new Error(`a firehose answered ${answer.statusCode}`));
    });
    asked.on('error', reject);
    asked.end();
  });
}

function overHttp2(url: URL, wishes: FirehoseWishes): Promise<Opened> {
  return new Promise((resolve, reject) => {
    const session = connect(url.origin, { ca: wishes.ca });
    session.on('error', reject);
    const stream = session.request({ ':path': url.pathname + url.search, ...headersOf(wishes) });
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
  } catch (cause) {
    // A stream that the server drops ends like one that it closes: what matters is what came.
    if (!isBrokenOff(cause)) throw cause;
  }
}

const isBrokenOff = (cause: unknown) =>
  ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_HTTP2_STREAM_ERROR'].includes(
    (cause as NodeJS.ErrnoException).code ?? '',
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

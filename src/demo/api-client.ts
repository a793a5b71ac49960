// A client for the API of the demo's server: HTTPS with its CA, Basic credentials, forms and event streams.
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { text } from 'node:stream/consumers';

/** A record of the API. IDs are read from their string form. */
export type Wire = Record<string, unknown> & { id_str: string };
export type StreamEvent = { event: string; id: string; record: Record<string, unknown> };

export type ApiClient = {
  get<T = Wire>(path: string): Promise<T>;
  post(path: string, fields: Record<string, string>): Promise<Wire>;
  upload(path: string, body: Buffer): Promise<Wire>;
  log(path: string): Promise<string>;
  /** The events of a firehose, until it ends. */
  follow(path: string): AsyncGenerator<StreamEvent>;
  close(): void;
};

const DEADLINE_MS = 30_000;

export function createApiClient(options: {
  url: string;
  ca: string;
  email: string;
  apiKey: string;
  signal: AbortSignal;
}): ApiClient {
  const { url, ca, email, apiKey, signal } = options;
  const agent = new Agent({ keepAlive: true, ca });

  const send = (method: string, path: string, body?: Buffer, type?: string): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const outgoing = request(
        `${url}${path}`,
        {
          method,
          agent,
          auth: `${email}:${apiKey}`,
          signal,
          headers: {
            ...(type !== undefined && { 'content-type': type }),
            ...(body && { 'content-length': body.length }),
          },
        },
        incoming => {
          clearTimeout(timer);
          resolve(incoming);
        },
      );
      const timer = setTimeout(
        () => outgoing.destroy(new Error(`${method} ${path} was not answered in ${DEADLINE_MS / 1000} s`)),
        DEADLINE_MS,
      );
      outgoing.on('error', error => {
        clearTimeout(timer);
        reject(error);
      });
      outgoing.end(body);
    });

  const read = async (method: string, path: string, body?: Buffer, type?: string): Promise<string> => {
    const answer = await send(method, path, body, type);
    const answered = await text(answer);
    if ((answer.statusCode ?? 500) >= 300)
      throw new Error(`${method} ${path} was answered with ${answer.statusCode}: ${answered}`);
    return answered;
  };
  const record = (body: string) => (JSON.parse(body) as { response: Wire }).response;

  return {
    get: async <T>(path: string) => record(await read('GET', path)) as T,
    post: async (path, fields) =>
      record(
        await read(
          'POST',
          path,
          Buffer.from(new URLSearchParams(fields).toString()),
          'application/x-www-form-urlencoded',
        ),
      ),
    upload: async (path, body) => record(await read('POST', path, body, 'application/octet-stream')),
    log: path => read('GET', path),
    async *follow(path) {
      const answer = await send('GET', path);
      if (answer.statusCode !== 200) throw new Error(`${path} was answered with ${answer.statusCode}`);
      yield* parseEvents(answer.setEncoding('utf8'));
    },
    close: () => agent.destroy(),
  };
}

async function* parseEvents(chunks: AsyncIterable<string>): AsyncGenerator<StreamEvent> {
  let rest = '';
  for await (const chunk of chunks) {
    const frames = (rest + chunk).split('\n\n');
    rest = frames.pop() ?? '';
    for (const frame of frames) {
      const lines = frame.split('\n');
      const values = (name: string) =>
        lines.filter(line => line.startsWith(`${name}: `)).map(line => line.slice(name.length + 2));
      const [event] = values('event');
      // Comments only keep the connection open.
      if (event === undefined) continue;
      yield { event, id: values('id')[0] ?? '', record: JSON.parse(values('data').join('\n')) };
    }
  }
}

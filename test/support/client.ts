// A client that holds every answer against the OpenAPI document: what the document does not say, no answer may be.
import assert from 'node:assert/strict';
import { Agent, type RequestOptions, request } from 'node:https';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';

export type Fields = Record<string, string | readonly string[]>;
export type Asked = {
  /** The value of Authorization. */
  as?: string | undefined;
  form?: Fields;
  json?: unknown;
  /** A body as it is; a stream of parts where it is iterable. */
  body?: string | Buffer | AsyncIterable<Buffer>;
  headers?: Record<string, string | string[]>;
};
export type Wire = Record<string, unknown>;
export type Answer = {
  status: number;
  headers: Record<string, string>;
  bytes: Buffer;
  text: string;
  /** The whole body; ids beyond 53 bits are bigints. */
  json: Wire;
  record: Wire;
  list: Wire[];
};
export type Client = {
  origin: string;
  ca: string;
  call(method: string, path: string, asked?: Asked): Promise<Answer>;
  get(path: string, as?: string): Promise<Answer>;
  close(): void;
};

export const basic = (email: string, key: string) =>
  `Basic ${Buffer.from(`${email}:${key}`).toString('base64')}`;
export const bearer = (token: string) => `Bearer ${token}`;
export const errors = (key: string, ...codes: string[]) => ({ error: { [key]: codes } });

/** As a browser sends a form; a list sends its name once for each element. */
export function encodeForm(fields: Fields): string {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    for (const one of typeof value === 'string' ? [value] : value) form.append(name, one);
  return form.toString();
}

/** Integers that a double cannot hold come as bigints. */
export function parseExact(text: string): Wire {
  const revive = (_: string, value: unknown, context?: { source: string }) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? BigInt(context?.source as string)
      : value;
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown) as Wire;
}

export function createClient(origin: string, ca: string): Client {
  const agent = new Agent({ keepAlive: true, ca, maxSockets: 16 });
  let judge: Promise<Judge> | undefined;

  const send = (method: string, path: string, asked: Asked): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const { payload, type } = bodyOf(asked);
      const headers: RequestOptions['headers'] = {
        ...(asked.as !== undefined && { authorization: asked.as }),
        ...(type !== undefined && { 'content-type': type }),
        ...((typeof payload === 'string' || Buffer.isBuffer(payload)) && {
          'content-length': String(Buffer.byteLength(payload)),
        }),
        ...asked.headers,
      };
      const { hostname, port } = new URL(origin);
      // Not a URL: a parser would fold paths that the server is to see as they are.
      const outgoing = request({ agent, hostname, port, method, path, headers }, incoming => {
        const chunks: Buffer[] = [];
        const finish = () => resolve(read(incoming.statusCode ?? 0, incoming.headers, Buffer.concat(chunks)));
        if (incoming.headers['content-type']?.startsWith('text/event-stream')) {
          finish();
          incoming.destroy();
          return;
        }
        incoming.on('data', chunk => chunks.push(chunk));
        incoming.on('end', finish);
        incoming.on('error', reject);
      });
      outgoing.setTimeout(20_000, () => outgoing.destroy(new Error(`no answer to ${method} ${path}`)));
      outgoing.on('error', reject);
      if (payload === undefined || typeof payload === 'string' || Buffer.isBuffer(payload))
        outgoing.end(payload);
      else
        (async () => {
          for await (const part of payload) outgoing.write(part);
          outgoing.end();
        })().catch(cause => outgoing.destroy(cause));
    });

  const call = async (method: string, path: string, asked: Asked = {}) => {
    judge ??= send('GET', '/openapi.json', {}).then(answer => createEvaluator(answer.text));
    const [answer, judged] = await Promise.all([send(method, path, asked), judge]);
    judged(method, path, answer);
    return answer;
  };
  return {
    origin,
    ca,
    call,
    get: (path, as) => call('GET', path, { as }),
    close: () => agent.destroy(),
  };
}

function bodyOf(asked: Asked): { payload: Asked['body']; type: string | undefined } {
  if (asked.form) return { payload: encodeForm(asked.form), type: 'application/x-www-form-urlencoded' };
  if (asked.json !== undefined)
    return {
      payload: typeof asked.json === 'string' ? asked.json : JSON.stringify(asked.json),
      type: 'application/json',
    };
  return { payload: asked.body, type: undefined };
}

function read(status: number, headers: Record<string, unknown>, bytes: Buffer): Answer {
  const text = bytes.toString('utf8');
  const parsed = () => parseExact(text);
  return {
    status,
    headers: headers as Record<string, string>,
    bytes,
    text,
    get json() {
      return parsed();
    },
    get record() {
      return parsed().response as Wire;
    },
    get list() {
      return parsed().response as Wire[];
    },
  };
}

type Media = { schema: Wire };
type Operation = { responses: Record<string, { $ref?: string; content?: Record<string, Media> }> };
export type Document = {
  paths: Record<string, Record<string, Operation & Wire>>;
  components: { responses: Record<string, { content: Record<string, Media> }>; schemas: Wire };
};
type Judge = (method: string, path: string, answer: Answer) => void;

/** Says of each answer whether the document allows it. */
function createEvaluator(text: string): Judge {
  const document = JSON.parse(text) as Document;
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  formats.default(ajv);
  ajv.addSchema({ ...document, $id: 'assay' });
  const compiled = new Map<string, ValidateFunction>();
  const routes = Object.keys(document.paths).map(template => ({
    template,
    form: new RegExp(`^${template.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`),
  }));

  return (method, path, answer) => {
    const said = `${method} ${path} answered ${answer.status} ${answer.text.slice(0, 300)}`;
    const plain = path.split('?')[0] as string;
    const verb = method === 'HEAD' ? 'get' : method.toLowerCase();
    const template = routes.find(
      ({ template, form }) => form.test(plain) && document.paths[template]?.[verb],
    )?.template;
    const responses = template && document.paths[template]?.[verb]?.responses;
    const response = responses ? responses[answer.status] : { $ref: '#/components/responses/Error400' };
    assert(response, `${said}, which is not in the document`);
    if (!responses) assert.equal(answer.status, 400, `${said}, and is no endpoint`);
    if (method === 'HEAD') return;
    const content =
      response.content ?? document.components.responses[response.$ref?.split('/').at(-1) ?? '']?.content;
    const [type = ''] = (answer.headers['content-type'] ?? '').split(';');
    const wrapped = type === 'application/javascript';
    const media = wrapped ? 'application/json' : type;
    assert(content?.[media], `${said}: ${type} is not in the document`);
    if (media !== 'application/json') return;
    const key = responses ? `${template} ${verb} ${answer.status}` : '400';
    let validate = compiled.get(key);
    if (!validate) {
      const pointer = (content[media] as Media).schema;
      validate = ajv.compile(JSON.parse(JSON.stringify(pointer).replaceAll('"#/', '"assay#/')));
      compiled.set(key, validate);
    }
    const json = wrapped ? answer.text.slice(answer.text.indexOf('(') + 1, -1) : answer.text;
    assert(validate(JSON.parse(json)), `${said}: ${ajv.errorsText(validate.errors)}`);
  };
}

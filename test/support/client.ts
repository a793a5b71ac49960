// An HTTP client that validates every response against the OpenAPI document.
import assert from 'node:assert/strict';
import { Agent, type RequestOptions, request } from 'node:https';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';

export type Fields = Record<string, string | readonly string[]>;
export type CallOptions = {
  /** The value of the Authorization header. */
  as?: string | undefined;
  form?: Fields;
  json?: unknown;
  /** The raw body; chunked if it is iterable. */
  body?: string | Buffer | AsyncIterable<Buffer>;
  headers?: Record<string, string | string[]>;
};
export type Wire = Record<string, unknown>;
export type Answer = {
  status: number;
  headers: Record<string, string>;
  bytes: Buffer;
  text: string;
  /** The whole body. IDs beyond 53 bits are bigints. */
  json: Wire;
  record: Wire;
  list: Wire[];
};
export type Client = {
  origin: string;
  ca: string;
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  get(path: string, as?: string): Promise<Answer>;
  close(): void;
};

export const basic = (email: string, key: string) =>
  `Basic ${Buffer.from(`${email}:${key}`).toString('base64')}`;
export const bearer = (token: string) => `Bearer ${token}`;
export const errors = (key: string, ...codes: string[]) => ({ error: { [key]: codes } });

/** Encodes a form as a browser does. A list repeats its name for each element. */
export function encodeForm(fields: Fields): string {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    for (const one of typeof value === 'string' ? [value] : value) form.append(name, one);
  return form.toString();
}

/** Parses JSON; integers that a double cannot represent become bigints. */
export function parseExact(text: string): Wire {
  const revive = (_: string, value: unknown, context?: { source: string }) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? BigInt(context?.source as string)
      : value;
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown) as Wire;
}

export function createClient(origin: string, ca: string): Client {
  const agent = new Agent({ keepAlive: true, ca, maxSockets: 16 });
  let validator: Promise<ResponseValidator> | undefined;

  const send = (method: string, path: string, options: CallOptions): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const { payload, type } = bodyOf(options);
      const headers: RequestOptions['headers'] = {
        ...(options.as !== undefined && { authorization: options.as }),
        ...(type !== undefined && { 'content-type': type }),
        ...((typeof payload === 'string' || Buffer.isBuffer(payload)) && {
          'content-length': String(Buffer.byteLength(payload)),
        }),
        ...options.headers,
      };
      const { hostname, port } = new URL(origin);
      // Not a URL object: its parser would normalize paths that the server has to see unchanged.
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
      outgoing.setTimeout(20_000, () => outgoing.destroy(new Error(`no response to ${method} ${path}`)));
      outgoing.on('error', reject);
      if (payload === undefined || typeof payload === 'string' || Buffer.isBuffer(payload))
        outgoing.end(payload);
      else
        (async () => {
          for await (const part of payload) outgoing.write(part);
          outgoing.end();
        })().catch(error => outgoing.destroy(error));
    });

  const call = async (method: string, path: string, options: CallOptions = {}) => {
    validator ??= send('GET', '/openapi.json', {}).then(answer => createResponseValidator(answer.text));
    const [answer, validate] = await Promise.all([send(method, path, options), validator]);
    validate(method, path, answer);
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

function bodyOf(options: CallOptions): { payload: CallOptions['body']; type: string | undefined } {
  if (options.form) return { payload: encodeForm(options.form), type: 'application/x-www-form-urlencoded' };
  if (options.json !== undefined)
    return {
      payload: typeof options.json === 'string' ? options.json : JSON.stringify(options.json),
      type: 'application/json',
    };
  return { payload: options.body, type: undefined };
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
type ResponseValidator = (method: string, path: string, answer: Answer) => void;

/** Checks each response against the document. */
function createResponseValidator(text: string): ResponseValidator {
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
    const context = `${method} ${path} answered ${answer.status} ${answer.text.slice(0, 300)}`;
    const plain = path.split('?')[0] as string;
    const verb = method === 'HEAD' ? 'get' : method.toLowerCase();
    const template = routes.find(
      ({ template, form }) => form.test(plain) && document.paths[template]?.[verb],
    )?.template;
    const responses = template && document.paths[template]?.[verb]?.responses;
    const response = responses ? responses[answer.status] : { $ref: '#/components/responses/Error400' };
    assert(response, `${context}, which is not in the document`);
    if (!responses) assert.equal(answer.status, 400, `${context}, and is not an endpoint`);
    if (method === 'HEAD') return;
    if (answer.status === 304 || answer.status === 416) {
      assert.equal(answer.bytes.length, 0, context);
      return;
    }
    const content =
      response.content ?? document.components.responses[response.$ref?.split('/').at(-1) ?? '']?.content;
    const [type = ''] = (answer.headers['content-type'] ?? '').split(';');
    const wrapped = type === 'application/javascript';
    const media = wrapped ? 'application/json' : type;
    assert(content?.[media], `${context}: ${type} is not in the document`);
    if (media !== 'application/json') return;
    const key = responses ? `${template} ${verb} ${answer.status}` : '400';
    let validate = compiled.get(key);
    if (!validate) {
      const pointer = (content[media] as Media).schema;
      validate = ajv.compile(JSON.parse(JSON.stringify(pointer).replaceAll('"#/', '"assay#/')));
      compiled.set(key, validate);
    }
    const json = wrapped ? answer.text.slice(answer.text.indexOf('(') + 1, -1) : answer.text;
    assert(validate(JSON.parse(json)), `${context}: ${ajv.errorsText(validate.errors)}`);
  };
}

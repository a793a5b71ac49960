// The OpenAPI document: it is valid, and a client that is generated from it can call every endpoint.
import assert from 'node:assert/strict';
import { get } from 'node:https';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { eventTypes } from '../../src/contract/events.ts';
import { listEvents } from '../../src/store/events.ts';
import { bootApp, hookSecretOf, type Planted, type TestApp } from '../support/app.ts';
import type { Answer, Fields, Wire } from '../support/client.ts';
import { contract, idIn, ofRow, pathOf, type Row } from './contract.ts';
import { compileAll, failDependent, makeInvited, passAgain } from './states.ts';

let app: TestApp;
let document: Document;
let shared: Planted;
let client: ReturnType<typeof generateClient>;
before(async () => {
  app = await bootApp();
  document = JSON.parse((await app.client.get('/openapi.json')).text);
  shared = app.plant();
  client = generateClient(document);
});
after(() => app.close());

type Parameter = { name: string; in: 'path' | 'query' | 'header'; required?: boolean; schema: Wire };
type Operation = {
  operationId: string;
  summary: string;
  description: string;
  security: Record<string, string[]>[];
  parameters: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, Media> };
  responses: Record<string, { $ref?: string; content?: Record<string, Media> }>;
};
type Media = { schema: Wire; example?: unknown; 'x-events'?: Record<string, { data: Wire }> };
type Document = {
  openapi: string;
  servers: { url: string }[];
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, { post: Operation }>;
  components: { securitySchemes: Record<string, Wire>; schemas: Record<string, Wire> };
};

/** Endpoints whose responses follow the RFCs. */
const ofOAuth = [
  'GET /oauth2/authorize',
  'POST /oauth2/access_token',
  'POST /oauth2/revoke',
  'GET /.well-known/oauth-authorization-server',
];

const templateOf = (row: Row) => row.path.replace(/:(\w+)/g, '{$1}');
const operationOf = (row: Row): Operation => {
  const found = document.paths[templateOf(row)]?.[row.method.toLowerCase()];
  assert(found, `${ofRow(row)} is not in the document`);
  return found;
};

test('the document is valid', async () => {
  const result = await new Validator().validate(document as unknown as Record<string, unknown>);
  assert.deepEqual(result.errors ?? [], []);
  assert.equal(result.valid, true);
  assert.equal(document.openapi, '3.1.0');
  assert.deepEqual(document.servers, [{ url: app.url }]);
});

test('it has exactly the endpoints of the program, each with a unique name', () => {
  const described = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map(method => `${method.toUpperCase()} ${path}`),
  );
  const known = [...contract.map(row => `${row.method} ${templateOf(row)}`), ...ofOAuth];
  assert.deepEqual(described.sort(), known.sort());
  const names = Object.values(document.paths).flatMap(one => Object.values(one).map(it => it.operationId));
  assert.equal(new Set(names).size, known.length);
});

describe('each operation describes its access, its scope, its fields and its responses', () => {
  for (const row of contract)
    test(ofRow(row), () => {
      const operation = operationOf(row);
      assert(operation.summary.length > 0);
      if (row.who === 'none') assert.deepEqual(operation.security, []);
      else {
        const scopes = operation.security.flatMap(one => one.oauth ?? []);
        assert.deepEqual(scopes, row.scope ? [row.scope] : []);
        for (const scheme of ['basic', 'token', 'oauth'])
          assert(
            operation.security.some(one => scheme in one),
            scheme,
          );
        const isOptional = operation.security.some(one => Object.keys(one).length === 0);
        assert.equal(isOptional, row.who === 'loopback');
      }
      const paths = operation.parameters.filter(one => one.in === 'path').map(one => one.name);
      assert.deepEqual(
        paths,
        [...row.path.matchAll(/:(\w+)/g)].map(match => match[1]),
      );
      const statuses = Object.keys(operation.responses);
      assert(statuses.includes(String(row.status)), `${row.status} is not documented`);
      assert(statuses.includes('500'));
      if (row.who !== 'none') assert(statuses.includes('401'));
      if (row.path.includes(':')) assert(statuses.includes('404'));
      assert(
        statuses.every(status =>
          ['200', '201', '202', '206', '304', '401', '402', '403', '404', '416', '500'].includes(status),
        ),
      );
      const types = Object.keys(operation.requestBody?.content ?? {});
      if (row.archive) assert.deepEqual(types, ['application/octet-stream']);
      else if (row.form)
        assert.deepEqual(types, [
          'application/x-www-form-urlencoded',
          'multipart/form-data',
          'application/json',
        ]);
      else if (row.hook)
        assert.deepEqual(types, ['application/json', 'application/x-www-form-urlencoded', 'text/plain']);
      else assert.deepEqual(types, []);
    });
});

/** Validates values against schemas that refer to those of the document. */
function createValidator(description: Document): (schema: Wire, value: unknown) => void {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  formats.default(ajv);
  ajv.addSchema({ ...description, $id: 'assay' });
  return (schema, value) => {
    const validate = ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"assay#/')));
    assert.ok(validate(value), `${JSON.stringify(value)}: ${ajv.errorsText(validate.errors)}`);
  };
}

test('every example of an answer fits its schema, and every answer in the envelope has one', () => {
  const validate = createValidator(document);
  let count = 0;
  for (const operations of Object.values(document.paths))
    for (const { responses } of Object.values(operations))
      for (const { content = {} } of Object.values(responses))
        for (const { schema, example } of Object.values(content)) {
          const isEnveloped = 'response' in ((schema.properties ?? {}) as Wire);
          assert.equal(example !== undefined, isEnveloped);
          if (!isEnveloped) continue;
          validate(schema, example);
          count += 1;
        }
  assert.ok(count > 50);
});

test('each event is a webhook with its headers and its body, as events are sent', () => {
  const validate = createValidator(document);
  assert.deepEqual(Object.keys(document.webhooks), eventTypes);
  for (const { post } of Object.values(document.webhooks)) {
    const headers = post.parameters
      .filter(one => one.in === 'header' && one.required)
      .map(({ name }) => name);
    assert.deepEqual(headers, ['webhook-id', 'webhook-timestamp', 'webhook-signature', 'user-agent']);
    const body = post.requestBody?.content['application/json'] as Media;
    validate(body.schema, body.example);
    assert.deepEqual(Object.keys(post.responses).toSorted(), ['2XX', '410', 'default']);
  }
  const sent = listEvents(app.db, shared.project_id, 0n, 100);
  assert.ok(new Set(sent.map(({ type }) => type)).size >= 4);
  for (const { type, body } of sent) {
    const webhook = document.webhooks[type]?.post.requestBody?.content['application/json'] as Media;
    validate(webhook.schema, JSON.parse(body));
  }
});

test('each stream names its events with their data, and how to continue', async () => {
  const validate = createValidator(document);
  const streams = Object.entries(document.paths).filter(([path]) => path.endsWith('/firehose'));
  assert.equal(streams.length, 3);
  for (const [path, { get: operation }] of streams) {
    const header = operation?.parameters.find(({ name }) => name === 'Last-Event-ID');
    assert.equal(header?.in, 'header');
    const events = operation?.responses[200]?.content?.['text/event-stream']?.['x-events'] ?? {};
    const names = path.startsWith('/projects/{project_id}/firehose')
      ? ['state', ...eventTypes.filter(type => type !== 'ping')]
      : ['state', 'log', 'end'];
    assert.deepEqual(Object.keys(events), names);
    if (!path.endsWith('/builds/{build_id}/firehose')) continue;
    const planted = app.plant();
    await app.writeLog(planted.build_id, 'printed\n');
    const target = path.replace(/\{(\w+)\}/g, (_, name: keyof Planted) => String(planted[name]));
    const stream = await readStream(target);
    assert.deepEqual(
      stream.map(([name]) => name),
      ['state', 'log', 'end'],
    );
    for (const [name, data] of stream) validate(events[name]?.data as Wire, data);
  }
});

/** The events of a stream that ends by itself. */
function readStream(path: string): Promise<[name: string, data: unknown][]> {
  const { hostname, port } = new URL(app.url);
  const options = {
    hostname,
    port,
    path,
    ca: app.client.ca,
    headers: { authorization: app.people.owner.as },
  };
  return new Promise((resolve, reject) => {
    get(options, async incoming => {
      const frames = (await text(incoming)).matchAll(/^event: (.*)\n(?:id: .*\n)?data: (.*)$/gm);
      resolve([...frames].map(([, name = '', data = '']) => [name, JSON.parse(data)]));
    }).on('error', reject);
  });
}

/** A function for each operation, generated from the document only. */
function generateClient(description: Document): Record<string, (args: Arguments) => Promise<Answer>> {
  const ajv = new Ajv2020({ strict: false });
  formats.default(ajv);
  const client: Record<string, (args: Arguments) => Promise<Answer>> = {};
  for (const [template, operations] of Object.entries(description.paths))
    for (const [method, operation] of Object.entries(operations))
      client[operation.operationId] = async ({ path, query, body, type, headers }) => {
        const target = operation.parameters
          .filter(one => one.in === 'path')
          .reduce((url, { name, schema }) => {
            assert(ajv.validate(schema, path[name]), `${name} ${ajv.errorsText()}`);
            return url.replace(`{${name}}`, encodeURIComponent(path[name] as string));
          }, template);
        const content = type === undefined ? undefined : operation.requestBody?.content[type];
        const sent = content ? encode(type as string, body ?? {}) : undefined;
        if (content && type === 'application/json')
          assert(ajv.validate(content.schema, JSON.parse(String(sent?.body))), ajv.errorsText());
        return app.client.call(method.toUpperCase(), query === undefined ? target : `${target}?${query}`, {
          ...(operation.security.length > 0 && { as: app.people.owner.as }),
          ...sent,
          headers: { ...sent?.headers, ...headers },
        });
      };
  return client;
}

type Arguments = {
  path: Record<string, string>;
  query?: string;
  body?: Fields | Buffer;
  type?: string;
  headers?: Record<string, string>;
};

/** Encodes a body as OpenAPI defines for each media type. */
function encode(
  type: string,
  body: Fields | Buffer,
): { body: string | Buffer; headers: Record<string, string> } {
  const headers = { 'content-type': type };
  if (Buffer.isBuffer(body)) return { body, headers };
  const fields = Object.entries(body) as [string, string][];
  if (type === 'application/x-www-form-urlencoded')
    return { body: new URLSearchParams(fields).toString(), headers };
  if (type === 'multipart/form-data') {
    const parts = fields.map(
      ([name, value]) => `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
    return { body: `${parts.join('')}--b--\r\n`, headers: { 'content-type': `${type}; boundary=b` } };
  }
  const nested: Record<string, unknown> = {};
  for (const [name, value] of fields) {
    const [, parent, child] = /^(\w+)\[(\w+)\]$/.exec(name) ?? [];
    if (parent && child) nested[parent] = { ...(nested[parent] as object | undefined), [child]: value };
    else nested[name] = value;
  }
  return { body: JSON.stringify(nested), headers };
}

describe('a generated client can call every endpoint, with every kind of body', () => {
  for (const row of contract)
    test(ofRow(row), async () => {
      const operation = operationOf(row);
      const types = Object.keys(operation.requestBody?.content ?? {});
      for (const type of types.length > 0 ? types : [undefined]) {
        const planted = row.method === 'GET' ? shared : app.plant();
        if (/\/(share|compile|files|artifact)$/.test(row.path))
          compileAll(app.db, planted.free_dependency_id);
        if (row.path.endsWith('/compile_dependents')) failDependent(app.db, planted);
        if (row.path.endsWith('/invitation'))
          makeInvited(app.db, planted.collaborator_id, app.people.owner.account.id);
        if (row.path.endsWith('/diff')) passAgain(app.db, planted);
        if (row.path.endsWith('badge.svg'))
          await app.client.call('PUT', `/projects/${planted.project_id}`, {
            as: app.people.owner.as,
            form: { badge: 'true' },
          });
        const body = row.archive ?? row.form?.(planted);
        const path = Object.fromEntries(
          ['dependency_id', ...Object.keys(planted)].map(name => [name, String(idIn(row, name, planted))]),
        );
        // The client of the tests validates the response against the document.
        const answer = await client[operation.operationId]?.({
          path,
          ...(row.query !== undefined && { query: pathOf(row, planted).replace(/^.*\?/, '') }),
          ...(body && { body }),
          ...(type && { type }),
          ...(row.hook && { headers: { 'x-assay-token': hookSecretOf(app.db, planted) } }),
        });
        assert.equal(answer?.status, row.status, `${type} ${answer?.text}`);
      }
    });
});

test('the API reference page is generated from it, and loads nothing from elsewhere', async () => {
  const { hostname, port } = new URL(app.url);
  const page = await new Promise<string>((resolve, reject) => {
    get({ hostname, port, path: '/ui/api', ca: app.client.ca }, incoming =>
      text(incoming).then(resolve, reject),
    ).on('error', reject);
  });
  for (const row of contract) assert(page.includes(row.path.split(':')[0] as string), row.path);
  for (const one of ofOAuth) assert(page.includes(`>${one.replace(' ', '</span> <code>')}</code>`), one);
  for (const [, address] of page.matchAll(/(?:src|href|action)="([^"]+)"/g))
    assert.match(address as string, /^[/#]/);
});

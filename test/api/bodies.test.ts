// Request bodies: forms, multipart and JSON, and bodies that are truncated, too deep, too large or of the wrong type.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { type Answer, type CallOptions, errors, type Fields } from '../support/client.ts';
import { dependencyForm, fresh, notificationForm, projectForm, strategyForm, suiteForm } from './contract.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const post = (path: string, options: CallOptions) =>
  app.client.call('POST', path, { as: app.people.owner.as, ...options });
const suites = () => `/projects/${planted.project_id}/suites`;
const malformed = errors('generic', 'invalid_format');

const boundary = 'X--boundary';
const part = (name: string, value: string, more = '') =>
  `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;
const multipart = (
  body: string | Buffer,
  type = `multipart/form-data; boundary=${boundary}`,
): CallOptions => ({
  body,
  headers: { 'content-type': type },
});
const whole = (fields: Record<string, string>) =>
  `${Object.entries(fields)
    .map(([name, value]) => part(name, value))
    .join('')}--${boundary}--\r\n`;
const raw = (body: string | Buffer, type: string): CallOptions => ({
  body,
  headers: { 'content-type': type },
});
const urlencoded = 'application/x-www-form-urlencoded';

async function refused(path: string, options: CallOptions, expected: unknown = malformed): Promise<void> {
  const before = app.changes();
  const answer = await post(path, options);
  assert.deepEqual([answer.status, answer.json], [403, expected]);
  assert.equal(app.changes(), before, 'a refused request changed something');
}

function created(answer: Answer): Answer['record'] {
  assert.equal(answer.status, 201, answer.text);
  return answer.record;
}

test('settings of a dependency are in its record only if they are set', async () => {
  const given = { launch_timeout: 120, environment: 'PGHOST=/tmp', library_path: false, recompile: true };
  const plain = created(await post('/dependencies', { form: dependencyForm() }));
  const record = created(await post('/dependencies', { json: { ...dependencyForm(), ...given } }));
  for (const [name, value] of Object.entries(given)) {
    assert.equal(name in plain, false);
    assert.equal(String(record[name]), String(value));
  }
  const put = await app.client.call('PUT', `/dependencies/${record.id_ref}`, {
    as: app.people.owner.as,
    form: { launch_timeout: '60', environment: '', library_path: 'true', recompile: 'false' },
  });
  assert.deepEqual([put.status, Object.keys(given).filter(name => name in put.record)], [200, []]);
  for (const [name, value] of [
    ['launch_timeout', '4'],
    ['launch_timeout', '601'],
    ['environment', 'no equals sign'],
    ['library_path', 'maybe'],
  ] as const)
    await refused(
      '/dependencies',
      { form: { ...dependencyForm(), [name]: value } },
      errors(name, 'invalid_format'),
    );
});

test('form, multipart and JSON bodies are equivalent', async () => {
  const strategies = `/projects/${planted.project_id}/deploy_strategies`;
  const record = (answer: Answer) => {
    const { id: _, id_str: __, name: ___, ...rest } = created(answer);
    return rest;
  };
  const form = record(await post(strategies, { form: strategyForm() }));
  assert.deepEqual(
    record(await post(strategies, multipart(whole(strategyForm() as Record<string, string>)))),
    form,
  );
  const { 'options[repository_url]': repository_url, ...rest } = strategyForm();
  const json = {
    name: rest.name,
    strategy_type: 'git',
    options: { repository_url, local_branch: 'main', remote_branch: 'live' },
  };
  assert.deepEqual(record(await post(strategies, { json })), form);
});

test('the content type of a form may be missing, have parameters, and be in any case', async () => {
  const body = () => new URLSearchParams(suiteForm() as Record<string, string>).toString();
  created(await post(suites(), { body: body() }));
  created(await post(suites(), raw(body(), `${urlencoded}; charset=UTF-8`)));
  created(await post(suites(), raw(body(), 'Application/X-WWW-Form-Urlencoded')));
  created(await post(suites(), raw(JSON.stringify(suiteForm()), 'application/json; charset=utf-8')));
  created(
    await post(
      suites(),
      multipart(whole(suiteForm() as Record<string, string>), `multipart/form-data; boundary="${boundary}"`),
    ),
  );
});

test('text is stored exactly as sent', async () => {
  const command = 'echo "ü ✓ 😀 + % & = ; \\" \r\n\tend ';
  const sent: CallOptions[] = [
    { form: { ...suiteForm(), command } },
    { json: { ...suiteForm(), command } },
    multipart(whole({ ...(suiteForm() as Record<string, string>), command })),
  ];
  for (const options of sent) assert.equal(created(await post(suites(), options)).command, command);
});

test('a multipart part can be a file, and can have its own headers', async () => {
  const name = fresh('Suite');
  const body = `preamble\r\n${part('command', 'make', '; filename="x.txt"\r\nContent-Type: text/plain')}${part('name', name)}--${boundary}--epilogue`;
  const record = created(await post(suites(), multipart(body)));
  assert.deepEqual([record.name, record.command], [name, 'make']);
});

test('the name of a part can be unquoted, and can follow other parameters', async () => {
  const { name, command } = suiteForm() as Record<string, string>;
  const unquoted = (field: string, value: string | undefined, more = '') =>
    `--${boundary}\r\nContent-Type: text/plain; charset=utf-8\r\ncontent-disposition: form-data${more}; name=${field}\r\n\r\n${value}\r\n`;
  const body = `${unquoted('name', name)}${unquoted('command', command, '; filename="name=x"')}--${boundary}--\r\n`;
  const suite = created(await post(suites(), multipart(body)));
  assert.deepEqual([suite.name, suite.command], [name, command]);
});

test('a request without a body has no fields, whatever its content type', async () => {
  const blank = { error: { name: ['is_blank'], command: ['is_blank'] } };
  for (const type of [
    '',
    urlencoded,
    'application/json',
    `multipart/form-data; boundary=${boundary}`,
    'multipart/form-data',
    'text/plain',
  ])
    await refused(suites(), raw('', type), blank);
});

test('IDs in JSON are exact, as integers and as strings', async () => {
  const there = app.plant();
  const path = `/projects/${there.project_id}/suites/${there.suite_id}/dependencies`;
  const other = app.plant();
  created(await post(path, { json: `{"dependency_id":${there.free_dependency_id}}` }));
  const record = created(await post(path, { json: `{"dependency_id":"${other.free_dependency_id}"}` }));
  assert.equal(record.id, other.free_dependency_id);
  const related = created(
    await post('/dependencies', {
      json: `{"name":"${fresh('x')}","command":"/srv/dependency","related_dependencies":[${there.free_dependency_id},"${other.free_dependency_id}"]}`,
    }),
  );
  const fetched = await app.client.get(`/dependencies/${related.id}`, app.people.owner.as);
  assert.deepEqual(
    (fetched.record.related_dependencies as { id: bigint }[]).map(one => one.id),
    [there.free_dependency_id, other.free_dependency_id],
  );
});

test('the last of duplicate fields counts', async () => {
  const name = fresh('Twice');
  const body = `name=first&command=a&name=${encodeURIComponent(name)}&command=make`;
  const form = created(await post(suites(), raw(body, urlencoded)));
  assert.deepEqual([form.name, form.command], [name, 'make']);
  const json = created(await post(suites(), { json: `{"name":"x","command":"make","name":"${name} json"}` }));
  assert.equal(json.name, `${name} json`);
  const parts = `${part('name', 'x')}${part('command', 'make')}${part('name', `${name} parts`)}--${boundary}--`;
  assert.equal(created(await post(suites(), multipart(parts))).name, `${name} parts`);
  await refused(suites(), raw('name=x&command=make&name=', urlencoded), errors('name', 'is_blank'));
});

test('unknown fields are ignored, whatever their names', async () => {
  const form: Fields = {
    ...suiteForm(),
    id: '1',
    project_id: '1',
    unknown: 'x',
    'options[x][y]': 'z',
    '__proto__[polluted]': 'yes',
    'constructor[prototype][polluted]': 'yes',
    'prototype[polluted]': 'yes',
    __proto__x: 'x',
    '[]': 'x',
    '[': 'x',
    'name[x': 'y',
  };
  const before = created(await post(suites(), { form }));
  assert.notEqual(before.id, 1n);
  created(
    await post(suites(), {
      json: `{"name":"${fresh('x')}","command":"make","__proto__":{"polluted":"yes","name":"p"},"constructor":{"prototype":{"polluted":"yes"}}}`,
    }),
  );
  assert.equal(({} as { polluted?: string }).polluted, undefined);
});

test('an undecodable name in the query is an unknown field', async () => {
  for (const query of ['%ff=1', '%ff', '%c3%28=a&limit=1']) {
    const answer = await app.client.get(`${suites()}?${query}`, app.people.owner.as);
    assert.equal(answer.status, 200, answer.text);
  }
  const answer = await app.client.get(`${suites()}?%ff=1&limit=%ff`, app.people.owner.as);
  assert.deepEqual([answer.status, answer.json], [403, errors('limit', 'invalid_format')]);
});

test('names of prototype properties set no required field', async () => {
  const blank = { error: { name: ['is_blank'], command: ['is_blank'] } };
  await refused(suites(), { json: '{"__proto__":{"name":"x","command":"make"}}' }, blank);
  await refused(suites(), { form: { '__proto__[name]': 'x', 'constructor[command]': 'x' } }, blank);
  await refused(
    `/projects/${planted.project_id}/notifications`,
    { form: { notifiable_type: 'build', name: 'webhook', 'options[__proto__][url]': 'https://x.org' } },
    errors('options[url]', 'is_blank'),
  );
});

describe('a JSON value of the wrong type has an invalid format', () => {
  for (const value of ['1', '1.5', '1e400', 'true', '[]', '["x"]', '{}', '{"a":1}'])
    test(`${value} instead of text`, () =>
      refused(suites(), { json: `{"name":${value},"command":"make"}` }, errors('name', 'invalid_format')));

  for (const value of ['true', '1.5', '-1', '1e3', '[1]', '{}', `9${'9'.repeat(19)}`, '9'.repeat(100_000)])
    test(`${value.slice(0, 24)} instead of an ID`, () =>
      refused(
        `${suites()}/${planted.suite_id}/dependencies`,
        { json: `{"dependency_id":${value}}` },
        errors('dependency_id', 'invalid_format'),
      ));

  test('null is blank', () =>
    refused(suites(), { json: { name: null, command: 'make' } }, errors('name', 'is_blank')));

  test('a list instead of a value, and a value instead of a list', async () => {
    await refused(
      '/dependencies',
      { json: { ...dependencyForm(), related_dependencies: [{}] } },
      errors('related_dependencies[]', 'invalid_format'),
    );
    await refused(
      '/dependencies',
      { json: { ...dependencyForm(), related_dependencies: [[1]] } },
      errors('related_dependencies[]', 'invalid_format'),
    );
    const wrong = errors('related_dependencies[]', 'invalid_format');
    for (const related of [String(planted.free_dependency_id), 1, true, {}])
      await refused('/dependencies', { json: { ...dependencyForm(), related_dependencies: related } }, wrong);
    await refused('/dependencies', { form: { ...dependencyForm(), related_dependencies: '1' } }, wrong);
    created(await post('/dependencies', { json: { ...dependencyForm(), related_dependencies: null } }));
    await refused(
      suites(),
      { json: { ...suiteForm(), name: ['a'], command: {} } },
      { error: { name: ['invalid_format'], command: ['invalid_format'] } },
    );
  });

  test('booleans and options', async () => {
    await refused('/projects', { json: { ...projectForm(), badge: 1 } }, errors('badge', 'invalid_format'));
    await refused(
      `/projects/${planted.project_id}/notifications`,
      { json: { ...notificationForm(), options: { url: 5 } } },
      errors('options[url]', 'invalid_format'),
    );
  });
});

describe('NUL and broken UTF-8 have an invalid format', () => {
  test('in a form', async () => {
    for (const bytes of ['%00', 'a%00b', '%FF', '%C3%28', '%ED%A0%80', '%C0%80'])
      await refused(
        suites(),
        raw(`name=${bytes}&command=make`, urlencoded),
        errors('name', 'invalid_format'),
      );
    const binary = Buffer.concat([Buffer.from('command=make&name='), Buffer.from([0xe2, 0x82])]);
    await refused(suites(), raw(binary, urlencoded), errors('name', 'invalid_format'));
    await refused(suites(), raw('%FF=x&name=x&command=make', urlencoded));
  });

  test('in multipart', async () => {
    const [head, tail] = whole({ command: 'make', name: '|' }).split('|') as [string, string];
    const body = Buffer.concat([Buffer.from(head), Buffer.from([0xff]), Buffer.from(tail)]);
    await refused(suites(), multipart(body), errors('name', 'invalid_format'));
    await refused(
      suites(),
      multipart(whole({ command: 'make', name: 'a\0' })),
      errors('name', 'invalid_format'),
    );
  });

  test('in JSON', async () => {
    await refused(
      suites(),
      { json: '{"name":"\\u0000","command":"make"}' },
      errors('name', 'invalid_format'),
    );
    await refused(
      suites(),
      { json: '{"name":"\\ud800","command":"make"}' },
      errors('name', 'invalid_format'),
    );
    const binary = Buffer.concat([
      Buffer.from('{"command":"make","name":"'),
      Buffer.from([0xff]),
      Buffer.from('"}'),
    ]);
    await refused(suites(), raw(binary, 'application/json'));
  });
});

describe('an unreadable body has an invalid format, and changes nothing', () => {
  const good = '{"name":"x","command":"make"}';
  const deep = (levels: number) =>
    `{"name":"x","command":"make","x":${'['.repeat(levels)}${']'.repeat(levels)}}`;
  const bodies: Record<string, CallOptions> = {
    'JSON that is cut off': { json: good.slice(0, -1) },
    'JSON with something after it': { json: `${good}x` },
    'JSON that is a list': { json: '[]' },
    'JSON that is a word': { json: '"name=x"' },
    'JSON that is null': { json: 'null' },
    'JSON that is too deep': { json: deep(64) },
    'JSON that would overflow a stack': { json: deep(200_000) },
    'JSON with too many fields': {
      json: JSON.stringify(Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`f${at}`, at]))),
    },
    'a form with too many fields': raw(`${'a=1&'.repeat(20_000)}name=x&command=make`, urlencoded),
    'a form that is too large': raw(`name=x&command=${'x'.repeat(4 * 1024 * 1024)}`, urlencoded),
    'a type that is not taken': raw('<name>x</name>', 'application/xml'),
    text: raw('name=x&command=make', 'text/plain'),
    'multipart without a boundary': multipart(whole({ name: 'x', command: 'make' }), 'multipart/form-data'),
    'multipart with another boundary': multipart(
      whole({ name: 'x', command: 'make' }),
      'multipart/form-data; boundary=other',
    ),
    'multipart that is cut off in a value': multipart(
      whole({ name: 'x', command: 'make' }).slice(0, -(boundary.length + 10)),
    ),
    'multipart that is cut off in a header': multipart(`--${boundary}\r\nContent-Disposition: form-da`),
    'multipart without an end': multipart(part('name', 'x') + part('command', 'make')),
    'multipart with a part that has no name': multipart(
      `--${boundary}\r\nContent-Disposition: form-data\r\n\r\nx\r\n${whole({ name: 'x', command: 'make' })}`,
    ),
    'multipart with too many parts': multipart(`${part('a', '1').repeat(5000)}--${boundary}--`),
  };
  for (const [name, options] of Object.entries(bodies)) test(name, () => refused(suites(), options));

  test('an aborted form leaves nothing behind and delays nobody', async () => {
    const before = app.changes();
    const broken = (async function* () {
      yield Buffer.from('name=broken&comm');
      throw new Error('broken off');
    })();
    await assert.rejects(
      post(suites(), {
        body: broken,
        headers: { 'content-type': urlencoded, 'content-length': '1000' },
      }),
    );
    assert.equal((await app.client.get('/ping')).status, 200);
    assert.equal(app.changes(), before);
  });
});

// Validation: every field of every form when it is missing, blank, invalid, reserved or taken; and requests that are
// valid but not possible at the moment.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { recordImage } from '../../src/store/images.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { type CallOptions, errors, type Fields, type Wire } from '../support/client.ts';
import {
  contract,
  dependencyForm,
  notificationForm,
  ofRow,
  pathOf,
  projectForm,
  type Row,
  ruleForm,
  strategyForm,
  suiteForm,
  triggerForm,
  variableForm,
} from './contract.ts';
import { compileAll, startCompile } from './states.ts';
import { goodImages, required, rules } from './values.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  for (const image of goodImages) recordImage(app.db, image, 'sha256:1');
});
after(() => app.close());

const row = (method: Row['method'], path: string): Row => {
  const found = contract.find(one => one.method === method && one.path === path);
  assert(found, `${method} ${path}`);
  return found;
};
const P = '/projects/:project_id';

async function refused(endpoint: Row, body: CallOptions, status: number, expected: unknown): Promise<void> {
  const before = app.changes();
  const answer = await app.client.call(endpoint.method, pathOf(endpoint, planted), {
    as: app.people.owner.as,
    ...body,
  });
  assert.deepEqual([answer.status, answer.json], [status, expected], JSON.stringify(body));
  assert.equal(app.changes(), before, 'a refused request changed something');
}

async function accepted(endpoint: Row, body: CallOptions): Promise<void> {
  const answer = await app.client.call(endpoint.method, pathOf(endpoint, planted), {
    as: app.people.owner.as,
    ...body,
  });
  assert.equal(answer.status, endpoint.status, `${JSON.stringify(body)} ${answer.text}`);
}

const without = (form: Fields, name: string): Fields =>
  Object.fromEntries(Object.entries(form).filter(([key]) => key !== name));

/** The only required field for which white space is a valid value. */
const mayBeBlank = 'content';

test('every endpoint with fields declares which are required', () => {
  const taking = contract.filter(one => one.form).map(ofRow);
  assert.deepEqual(Object.keys(required).sort(), taking.sort());
});

describe('a required field must be present', () => {
  for (const [key, names] of Object.entries(required).filter(([, names]) => names.length > 0)) {
    const [method, path] = key.split(' ') as [Row['method'], string];
    test(key, async () => {
      const endpoint = row(method, path);
      const form = endpoint.form?.(planted) ?? {};
      const all = { error: Object.fromEntries(names.map(name => [name, ['is_blank']])) };
      if (method === 'POST') {
        await refused(endpoint, {}, 403, all);
        await refused(endpoint, { json: {} }, 403, all);
        for (const name of names)
          await refused(endpoint, { form: without(form, name) }, 403, errors(name, 'is_blank'));
      }
      const blank = names.filter(name => name !== mayBeBlank);
      for (const name of blank)
        for (const nothing of ['', ' \t\n', '\u00a0'])
          await refused(endpoint, { form: { ...form, [name]: nothing } }, 403, errors(name, 'is_blank'));
      await refused(
        endpoint,
        { form: Object.fromEntries(blank.map(name => [name, ''])) },
        403,
        method === 'PUT' || blank.length === names.length
          ? { error: Object.fromEntries(blank.map(name => [name, ['is_blank']])) }
          : all,
      );
    });
  }
});

test('a PUT without fields changes nothing, and one with a field changes only that field', async () => {
  for (const endpoint of contract.filter(one => one.method === 'PUT')) {
    const path = pathOf(endpoint, planted);
    const call = (form: Fields) => app.client.call('PUT', path, { as: app.people.owner.as, form });
    const before = (await call({})).record;
    for (const [name, value] of Object.entries(endpoint.form?.(planted) ?? {})) {
      const changed = await call({ [name]: value });
      assert.equal(changed.status, 200, changed.text);
      const [, parent, child] = /^(\w+)\[(\w+)\]$/.exec(name) ?? [];
      const got = parent && child ? (changed.record[parent] as Fields)[child] : changed.record[name];
      assert.equal(got, value, `${path} ${name}`);
    }
    assert.equal((await call({})).record.id, before.id);
  }
});

describe('a field must have its format', () => {
  for (const [key, fields] of rules)
    for (const { field, bad = {}, good = [] } of fields)
      test(`${key} ${field}`, async () => {
        const [method, path] = key.split(' ') as [Row['method'], string];
        const endpoint = row(method, path);
        for (const [code, values] of Object.entries(bad))
          for (const value of values)
            await refused(
              endpoint,
              { form: { ...endpoint.form?.(planted), [field]: value } },
              403,
              errors(field, code),
            );
        for (const value of good) {
          await accepted(endpoint, { form: { ...endpoint.form?.(planted), [field]: value } });
        }
      });
});

describe('a name must be unique', () => {
  const taken: [string, () => Fields, string][] = [
    ['POST /projects', projectForm, 'PUT /projects/:project_id'],
    [`POST ${P}/suites`, suiteForm, `PUT ${P}/suites/:suite_id`],
    [
      `POST ${P}/suites/:suite_id/environment_variables`,
      variableForm,
      `PUT ${P}/suites/:suite_id/environment_variables/:variable_id`,
    ],
    [`POST ${P}/deploy_strategies`, strategyForm, `PUT ${P}/deploy_strategies/:deploy_strategy_id`],
    [`POST ${P}/triggers`, triggerForm, `PUT ${P}/triggers/:trigger_id`],
    ['POST /dependencies', dependencyForm, 'PUT /dependencies/:dependency_id'],
  ];
  for (const [create, form, change] of taken)
    test(create, async () => {
      const creating = row(...(create.split(' ') as [Row['method'], string]));
      const changing = row(...(change.split(' ') as [Row['method'], string]));
      const first = form();
      const { name } = first as { name: string };
      await accepted(creating, { form: first });
      await refused(creating, { form: { ...form(), name } }, 403, errors('name', 'already_exists'));
      await refused(changing, { form: { name } }, 403, errors('name', 'already_exists'));
      const own = await app.client.call(changing.method, pathOf(changing, planted), {
        as: app.people.owner.as,
        form: {},
      });
      await accepted(changing, { form: { name: own.record.name as string } });
    });

  for (const [create, form, change] of taken.filter(([path]) => !path.endsWith('environment_variables')))
    test(`${create}: regardless of case and white space, and it is shown as written`, async () => {
      const creating = row(...(create.split(' ') as [Row['method'], string]));
      const changing = row(...(change.split(' ') as [Row['method'], string]));
      const unique = (form() as { name: string }).name;
      const written = `Grüße  an ${unique}`;
      const call = (one: Row, name: string) =>
        app.client.call(one.method, pathOf(one, planted), {
          as: app.people.owner.as,
          form: one === creating ? { ...form(), name } : { name },
        });
      const made = await call(creating, ` \t${written}\n`);
      assert.equal(made.record.name, written, made.text);
      const confusable = [
        written,
        ` ${written} `,
        written.toUpperCase(),
        written.toLowerCase(),
        written.replaceAll(' ', ''),
        written.replaceAll(' ', '\u00a0'),
        written.normalize('NFD'),
      ];
      for (const name of confusable) {
        await refused(creating, { form: { ...form(), name } }, 403, errors('name', 'already_exists'));
        await refused(changing, { form: { name } }, 403, errors('name', 'already_exists'));
      }
      await refused(creating, { form: { ...form(), name: '\u200b' } }, 403, errors('name', 'is_blank'));
      // Its own name in other case is no conflict.
      for (const name of [`Other ${unique}`, `OTHER  ${unique}`, ` other ${unique} `])
        assert.equal((await call(changing, name)).record.name, name.trim());
    });

  test('but can be used by another owner, in another project, in another suite', async () => {
    const form = projectForm();
    for (const { as } of [app.people.owner, app.people.stranger])
      assert.equal((await app.client.call('POST', '/projects', { as, form })).status, 201);
    const other = app.plant();
    const suite = suiteForm();
    for (const { project_id } of [planted, other]) {
      const path = `/projects/${project_id}/suites`;
      assert.equal(
        (await app.client.call('POST', path, { as: app.people.owner.as, form: suite })).status,
        201,
      );
    }
  });
});

test('all errors are reported at once, under the full name of each field', async () => {
  await refused(
    row('POST', `${P}/deploy_strategies`),
    {
      form: {
        name: ' ',
        strategy_type: 'svn',
        'options[repository_url]': 'https://x',
        'options[local_branch]': '-x',
      },
    },
    403,
    {
      error: {
        name: ['is_blank'],
        strategy_type: ['invalid_format'],
        'options[repository_url]': ['invalid_format'],
        'options[local_branch]': ['invalid_format'],
        'options[remote_branch]': ['is_blank'],
      },
    },
  );
  const { name } = (await app.client.get(`/projects/${planted.project_id}`, app.people.owner.as)).record;
  await refused(row('POST', '/projects'), { form: { name: name as string, repository_url: 'x' } }, 403, {
    error: { name: ['already_exists'], repository_url: ['invalid_format'] },
  });
});

test('an invalid prefix causes no error on the command', async () => {
  for (const prefix of ['/usr/x', 'relative'])
    await refused(
      row('POST', '/dependencies'),
      { form: { name: 'x', command: `make PREFIX=${prefix} install`, prefix } },
      403,
      errors('prefix', prefix === 'relative' ? 'invalid_format' : 'is_reserved'),
    );
  await accepted(row('POST', '/dependencies'), {
    form: { ...dependencyForm(), command: 'make PREFIX=/opt/x install', prefix: '/opt/x' },
  });
  const change = row('PUT', '/dependencies/:dependency_id');
  await refused(change, { form: { prefix: '/opt/other' } }, 403, errors('command', 'invalid_format'));
});

test('a field that names an unknown record is not found, once the others are valid', async () => {
  const others = app.plant(app.people.stranger);
  const attach = row('POST', `${P}/suites/:suite_id/dependencies`);
  for (const id of [0n, others.free_dependency_id, planted.suite_id])
    await refused(attach, { form: { dependency_id: String(id) } }, 404, errors('dependency_id', 'not_found'));
  await refused(
    attach,
    { form: { dependency_id: String(planted.used_dependency_id) } },
    403,
    errors('dependency_id', 'already_exists'),
  );

  const deploy = row('POST', `${P}/deploys`);
  await refused(
    deploy,
    { form: { deploy_strategy_id: String(others.deploy_strategy_id), commit_id: String(others.commit_id) } },
    404,
    { error: { deploy_strategy_id: ['not_found'], commit_id: ['not_found'] } },
  );
  await refused(
    deploy,
    { form: { deploy_strategy_id: '1', commit_id: 'x' } },
    403,
    errors('commit_id', 'invalid_format'),
  );

  const key = 'related_dependencies[]';
  for (const endpoint of [row('POST', '/dependencies'), row('PUT', '/dependencies/:dependency_id')]) {
    const form = dependencyForm();
    for (const id of [0n, others.free_dependency_id])
      await refused(endpoint, { form: { ...form, [key]: String(id) } }, 404, errors(key, 'not_found'));
    await refused(endpoint, { form: { ...form, name: '', [key]: '0' } }, 403, errors('name', 'is_blank'));
    const twice = String(planted.used_dependency_id);
    await refused(endpoint, { form: { ...form, [key]: [twice, twice] } }, 403, errors(key, 'invalid_format'));
  }
});

test('shared dependencies can be attached and related to by other accounts', async () => {
  const others = app.plant(app.people.stranger);
  compileAll(app.db, others.free_dependency_id);
  const share = `/dependencies/${others.free_dependency_id}/share`;
  assert.equal((await app.client.call('POST', share, { as: app.people.stranger.as })).status, 200);
  const id = String(others.free_dependency_id);
  await accepted(row('POST', `${P}/suites/:suite_id/dependencies`), { form: { dependency_id: id } });
  await accepted(row('POST', '/dependencies'), {
    form: { ...dependencyForm(), 'related_dependencies[]': id },
  });
});

test('dependencies cannot relate to themselves or in a cycle; one empty element clears the list', async () => {
  const key = 'related_dependencies[]';
  const there = app.plant();
  const [a, b] = [there.used_dependency_id, there.free_dependency_id];
  const change = (id: bigint, value: string | string[]) =>
    app.client.call('PUT', `/dependencies/${id}`, { as: app.people.owner.as, form: { [key]: value } });
  assert.equal((await change(a, String(b))).status, 200);
  for (const [id, value] of [
    [a, a],
    [b, a],
  ] as const) {
    const answer = await change(id, String(value));
    assert.deepEqual([answer.status, answer.json], [403, errors(key, 'invalid_format')]);
  }
  assert.deepEqual((await change(a, '')).record.related_dependencies, []);
  assert.equal((await change(b, String(a))).status, 200);
});

describe('what is not possible at the moment is unavailable', () => {
  const unavailable = errors('generic', 'resource_temporary_unavailable');
  const gzip = Buffer.from('1f8b08', 'hex');

  test('a build request, a rerun or an upload while the disk is full', async () => {
    app.hasFreeSpace = false;
    try {
      await refused(row('POST', `${P}/build_requests`), { form: { commit_ref: 'main' } }, 403, unavailable);
      await refused(row('POST', `${P}/build_requests`), { form: {} }, 403, errors('commit_ref', 'is_blank'));
      await refused(row('POST', `${P}/builds/:build_id/rerun`), {}, 403, unavailable);
      await refused(row('POST', '/dependencies/:dependency_id/archive'), { body: gzip }, 403, unavailable);
    } finally {
      app.hasFreeSpace = true;
    }
  });

  test('an upload while it compiles, and sharing before it has compiled', async () => {
    await refused(row('POST', '/dependencies/:dependency_id/share'), {}, 403, unavailable);
    startCompile(app.db, planted.free_dependency_id);
    await refused(row('POST', '/dependencies/:dependency_id/archive'), { body: gzip }, 403, unavailable);
    await refused(row('POST', '/dependencies/:dependency_id/share'), {}, 403, unavailable);
  });
});

test('a dependency that a suite uses, or that another relates to, is reserved', async () => {
  const there = app.plant();
  const destroy = (id: bigint) =>
    app.client.call('DELETE', `/dependencies/${id}`, { as: app.people.owner.as });
  const reserved = [403, errors('generic', 'is_reserved')];
  const used = await destroy(there.used_dependency_id);
  assert.deepEqual([used.status, used.json], reserved);
  await app.client.call('PUT', `/dependencies/${there.used_dependency_id}`, {
    as: app.people.owner.as,
    form: { 'related_dependencies[]': String(there.free_dependency_id) },
  });
  const related = await destroy(there.free_dependency_id);
  assert.deepEqual([related.status, related.json], reserved);
});

test('a dependency can be unshared while other accounts use it, and they keep it', async () => {
  const { free_dependency_id: id } = app.plant();
  compileAll(app.db, id);
  const { owner, stranger } = app.people;
  const theirs = app.plant(stranger);
  const call = (method: string, path: string, as: string, form?: Record<string, string>) =>
    app.client.call(method, path, { as, ...(form && { form }) });
  const statusOf = async (...request: Parameters<typeof call>) => (await call(...request)).status;
  assert.equal(await statusOf('POST', `/dependencies/${id}/share`, owner.as), 200);
  const suite = `/projects/${theirs.project_id}/suites/${theirs.suite_id}/dependencies`;
  const attached = (await call('POST', suite, stranger.as, { dependency_id: String(id) })).record;
  const related = `/dependencies/${theirs.free_dependency_id}`;
  const relate = (some: string) => statusOf('PUT', related, stranger.as, { 'related_dependencies[]': some });
  assert.equal(await relate(String(id)), 200);

  assert.equal(await statusOf('POST', `/dependencies/${id}/unshare`, owner.as), 200);
  assert.equal(await statusOf('GET', `/dependencies/${id}`, stranger.as), 404);
  assert.equal(await statusOf('GET', `/dependencies/${id}`, owner.as), 200);
  await call('PUT', `/dependencies/${id}`, owner.as, { name: 'private now', launch_command: 'other' });
  const kept = (await call('GET', suite, stranger.as)).list.find(one => one.id === id);
  assert.match(String(kept?.kept_since), /^\d{4}-/);
  assert.deepEqual(kept, { ...attached, kept_since: kept?.kept_since });
  const moved = (await call('POST', `${suite}/${id}/last`, stranger.as)).record;
  assert.deepEqual(moved, kept);
  const [one] = (await call('GET', related, stranger.as)).record.related_dependencies as Wire[];
  assert.deepEqual([one?.id, one?.name, typeof one?.kept_since], [id, attached.name, 'string']);
  assert.equal(await relate(String(id)), 200, 'it relates to it already');

  const more = app.plant(stranger);
  const another = `/projects/${more.project_id}/suites/${more.suite_id}/dependencies`;
  const refused = await call('POST', another, stranger.as, { dependency_id: String(id) });
  assert.deepEqual([refused.status, refused.json], [404, errors('dependency_id', 'not_found')]);
  const reserved = await call('DELETE', `/dependencies/${id}`, owner.as);
  assert.deepEqual([reserved.status, reserved.json], [403, errors('generic', 'is_reserved')]);

  assert.equal(await statusOf('POST', `/dependencies/${id}/share`, owner.as), 200);
  const current = (await call('GET', suite, stranger.as)).list.find(one => one.id === id);
  assert.deepEqual([current?.name, current?.launch_command], ['private now', 'other']);
  assert.equal(current?.kept_since, undefined);
  assert.equal(await statusOf('POST', `/dependencies/${id}/unshare`, owner.as), 200);
  assert.equal(await statusOf('DELETE', `${suite}/${id}`, stranger.as), 200);
  assert.equal(await relate(''), 200);
  assert.equal(await relate(String(id)), 404, 'it no longer relates to it');
  assert.equal(await statusOf('DELETE', `/dependencies/${id}`, owner.as), 200);
});

test('rules, variables and notifications need no unique values across records', async () => {
  for (let time = 0; time < 2; time += 1) {
    await accepted(row('POST', `${P}/suites/:suite_id/rules`), { form: ruleForm() });
    await accepted(row('POST', `${P}/notifications`), { form: notificationForm() });
  }
});

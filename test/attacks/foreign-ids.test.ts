// IDs of other accounts in every position of every path and form: they behave as if they did not exist, and nothing
// changes.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { routes } from '../../src/web/pages.ts';
import { contract, fresh, ofRow, pathOf, type Row } from '../api/contract.ts';
import type { Planted } from '../support/app.ts';
import { errors, type Fields } from '../support/client.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, type Visitor, visitorFor, type Wire } from './wire.ts';

let app: ServedApp;
let wire: Wire;
let visitor: Visitor;
let own: Planted;
let sibling: Planted;
let foreign: Planted;
before(async () => {
  app = await serveApp();
  wire = openWire(app);
  visitor = visitorFor(app, app.people.owner);
  own = app.plant();
  // Another project of the same owner: a child of one project must not work in the other.
  sibling = app.plant();
  // A project of the collaborator, to which the other owner has no access.
  foreign = app.plant(app.people.stranger);
});
after(async () => {
  wire.close();
  await app.close();
});

type Id = keyof Planted;
type Swap = { row: Row; name: Id; whose: 'foreign' | 'sibling' | 'another kind' };

const idsIn = (path: string) => [...path.matchAll(/:(\w+)/g)].map(match => match[1] as string);
const plantedName = (row: Row, name: string): Id => {
  if (name === 'dependency_id')
    return row.dependency === 'used' ? 'used_dependency_id' : 'free_dependency_id';
  return name === 'trigger_id' && row.schedule ? 'schedule_id' : (name as Id);
};

function swapsOf(rows: readonly Row[]): Record<string, Swap> {
  const swaps: Record<string, Swap> = {};
  for (const row of rows)
    for (const [at, segment] of idsIn(row.path).entries()) {
      const name = plantedName(row, segment);
      for (const whose of ['foreign', 'sibling', 'another kind'] as const) {
        // The first ID of a path belongs to the caller in both of their projects.
        if (whose === 'sibling' && at === 0) continue;
        swaps[`${ofRow(row)} with the ${segment} of ${whose}`] = { row, name, whose };
      }
    }
  return swaps;
}

function swapped({ name, whose }: Swap): Planted {
  if (whose === 'another kind') return { ...own, [name]: name === 'build_id' ? own.suite_id : own.build_id };
  return { ...own, [name]: (whose === 'foreign' ? foreign : sibling)[name] };
}

attacks('a foreign ID in a path of the API', swapsOf(contract.filter(row => !row.hook)), async swap => {
  const before = app.changes();
  const ids = swapped(swap);
  const answer = await app.client.call(swap.row.method, pathOf(swap.row, ids), {
    as: app.people.owner.as,
    ...(swap.row.form && { form: swap.row.form(own) }),
    ...(swap.row.archive && { body: swap.row.archive }),
  });
  assert.deepEqual([answer.status, answer.json], [404, errors('generic', 'not_found')]);
  assert.equal(app.changes(), before, 'something was written');
});

const pages = routes
  .filter(({ path }) => idsIn(path).some(name => name.endsWith('_id')))
  .map(
    ({ method, path }): Row => ({
      method,
      path,
      who: 'both',
      status: 200,
      ...(path.includes('/suites/:suite_id/dependencies/') && { dependency: 'used' }),
    }),
  );

attacks('a foreign ID in the URL of a page or a form', swapsOf(pages), async swap => {
  const before = app.changes();
  const { method } = swap.row;
  const reply = await wire.ask(method, pathOf(swap.row, swapped(swap)), {
    headers: { cookie: visitor.cookie, origin: wire.origin },
    ...(method === 'POST' && { form: { csrf: visitor.csrf, name: fresh('Attack'), content: 'x' } }),
  });
  assert.equal(reply.status, 404, reply.text.slice(0, 300));
  assert.equal(app.changes(), before, 'something was written');
});

type Named = { method: string; path: () => string; field: string; form: () => Fields };
const project = () => `/projects/${own.project_id}`;
const named: Record<string, Named> = {};
for (const [whose, ids] of [
  ['somebody else', () => foreign],
  ['a sibling project', () => sibling],
] as const) {
  named[`a deploy by a strategy of ${whose}`] = {
    method: 'POST',
    path: () => `${project()}/deploys`,
    field: 'deploy_strategy_id',
    form: () => ({
      deploy_strategy_id: String(ids().deploy_strategy_id),
      commit_id: String(own.commit_id),
    }),
  };
  named[`a deploy of a commit of ${whose}`] = {
    method: 'POST',
    path: () => `${project()}/deploys`,
    field: 'commit_id',
    form: () => ({
      deploy_strategy_id: String(own.deploy_strategy_id),
      commit_id: String(ids().commit_id),
    }),
  };
}
const somebodys = () => String(foreign.free_dependency_id);
named['a suite that uses a dependency of another account'] = {
  method: 'POST',
  path: () => `${project()}/suites/${own.suite_id}/dependencies`,
  field: 'dependency_id',
  form: () => ({ dependency_id: somebodys() }),
};
for (const [method, path] of [
  ['POST', () => '/dependencies'],
  ['PUT', () => `/dependencies/${own.free_dependency_id}`],
] as const)
  named[`${method} of a dependency that relates to one of another account`] = {
    method,
    path,
    field: 'related_dependencies',
    form: () => ({
      name: fresh('zlib'),
      command: 'make PREFIX=/srv/dependency',
      'related_dependencies[]': [somebodys()],
    }),
  };

attacks('a foreign ID in a field', named, async ({ method, path, field, form }) => {
  const before = app.changes();
  const answer = await app.client.call(method, path(), { as: app.people.owner.as, form: form() });
  assert.equal(answer.status, 404, answer.text);
  assert.match(Object.keys(answer.json.error as object)[0] as string, new RegExp(`^${field}`));
  assert.equal(app.changes(), before, 'something was written');
});

attacks(
  'a page of another account, through the parameters of its list',
  ['before', 'after', 'limit'].flatMap(name => [`/projects?${name}=`, `/dependencies?${name}=`]),
  async path => {
    const answer = await app.client.get(`${path}${foreign.project_id}`, app.people.owner.as);
    assert.ok(!answer.text.includes(String(foreign.used_dependency_id)), answer.text);
    assert.ok(!answer.text.includes(`"id_str":"${foreign.project_id}"`), answer.text);
  },
);

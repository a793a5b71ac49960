// What a handler gets is decided by its path. Most of it is checked by the compiler: each line below `@ts-expect-error`
// must be an error, or `tsc` fails.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpoint, Listing, listing } from '../../src/api/endpoint.ts';
import { endpoints } from '../../src/api/endpoints.ts';
import { required } from '../../src/api/fields.ts';
import type { projects } from '../../src/api/projects.ts';
import { resourcesOf } from '../../src/api/resources.ts';
import type { Caller } from '../../src/domain/access.ts';
import { Refusal } from '../../src/domain/refusal.ts';
import { bootApp } from '../support/app.ts';

const common = {
  method: 'GET',
  summary: '',
  access: 'sees',
  scope: undefined,
  response: { record: {} },
} as const;

test('a handler gets the rows that its path names and the fields that it defines, and no others', () => {
  endpoint({
    ...common,
    path: '/projects/:project_id/build_requests/:build_request_id',
    fields: { name: required({ doc: '' }) },
    handle: ({ project, buildRequest, values, params }) => [
      project.ownerId,
      buildRequest.commitRef,
      values.name.trim(),
      params.build_request_id,
    ],
  });
  endpoint({
    ...common,
    method: 'PUT',
    path: '/projects',
    fields: { name: required({ doc: '' }) },
    // @ts-expect-error: PUT may leave out any field.
    handle: ({ values }) => values.name.trim(),
  });
  // @ts-expect-error: the path names no suite.
  endpoint({ ...common, path: '/projects/:project_id', handle: ({ suite }) => suite });
  // @ts-expect-error: there is no such field.
  endpoint({ ...common, path: '/projects', handle: ({ values }) => values.name });
  // @ts-expect-error: the path has no such parameter.
  endpoint({ ...common, path: '/projects/:project_id', handle: ({ params }) => params.suite_id });
  // @ts-expect-error: nobody has signed in, and no row was looked for.
  endpoint({ ...common, access: 'anyone', path: '/projects/:project_id', handle: ({ project }) => project });
  // @ts-expect-error: nobody has signed in.
  endpoint({ ...common, access: 'anyone', path: '/projects', handle: ({ caller }) => caller });
});

test('a path that names an unknown resource is refused at the start', () => {
  assert.throws(() => resourcesOf('/projects/:project_id/walls/:wall_id'), /names wall/);
  for (const { path } of endpoints) assert.doesNotThrow(() => resourcesOf(path), path);
});

test('other calls run while a long list is presented, which is complete and in order', async () => {
  const rows = Array.from({ length: 1_001 }, (_, at) => ({ id: BigInt(at) }));
  const page = { limit: 1_000, before: undefined };
  const turns = new Set<number>();
  let turn = 0;
  let isDone = false;
  const countTurns = () => {
    turn += 1;
    if (!isDone) setImmediate(countTurns);
  };
  setImmediate(countTurns);
  const long = await listing(page, rows, ({ id }) => {
    turns.add(turn);
    return id;
  });
  isDone = true;
  assert.deepEqual(
    long.items,
    rows.slice(0, 1_000).map(({ id }) => id),
  );
  assert.equal(long.next, 999n);
  assert.ok(turns.size >= 4, `presented in ${turns.size} turns of the event loop`);

  // A short one takes the fast path.
  assert.ok(listing({ ...page, limit: 100 }, rows, ({ id }) => id) instanceof Listing);
});

test('the rows that a path names are found under the names that its type says', async t => {
  const app = await bootApp();
  t.after(() => app.close());
  const planted = app.plant();
  const caller = { accountId: app.people.owner.account.id } as Caller;
  const params = {
    project_id: String(planted.project_id),
    build_request_id: String(planted.build_request_id),
  };
  const find = resourcesOf('/projects/:project_id/build_requests/:build_request_id');
  const found = find(app.db, caller, params);
  assert.deepEqual(Object.keys(found), ['project', 'buildRequest']);
  assert.equal(String(found.buildRequest.id), params.build_request_id);
  assert.equal(found.buildRequest.projectId, found.project.id);
  assert.throws(() => find(app.db, caller, { project_id: params.project_id }), Refusal);
  // @ts-expect-error: the path names no build.
  assert.equal(found.build, undefined);
});

test('the result of an endpoint has the type of its record', () => {
  type Listed = Awaited<ReturnType<typeof projects.list.handle>>['items'][number];
  const readName = ({ name, id_str: id }: Listed): string[] => [name, id];
  // @ts-expect-error: a project has no such field.
  const readCommand = ({ command }: Listed) => command;
  assert.equal(typeof readName, typeof readCommand);
});

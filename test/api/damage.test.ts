// An encrypted value that was changed in the database affects its own record and no other.
import assert from 'node:assert/strict';
import { get } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { createSession } from '../../src/store/accounts.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { compileAll } from './states.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

/** A page as its owner sees it. */
function look(path: string): Promise<{ status: number | undefined; text: string }> {
  const { hostname, port } = new URL(app.url);
  const cookie = `__Host-assay-session=${createSession(app.db, app.people.owner.account.id)}`;
  return new Promise((resolve, reject) => {
    get({ hostname, port, path, ca: app.client.ca, headers: { cookie } }, async incoming => {
      resolve({ status: incoming.statusCode, text: (await incoming.toArray()).join('') });
    }).on('error', reject);
  });
}

describe('a value that was changed in the database is detected, and nothing else is affected', () => {
  const broken = { error: { generic: [] } };

  test('a project that cannot be decrypted answers 500 without a code, and the log has the reason', async () => {
    const there = app.plant();
    const path = `/projects/${there.project_id}`;
    app.db.sqlite
      .prepare('UPDATE projects SET ssh_public_key = ? WHERE id = ?')
      .run(Buffer.alloc(80, 7), there.project_id);
    const answer = await app.client.get(path, app.people.owner.as);
    assert.deepEqual([answer.status, answer.json], [500, broken]);
    const line = app.logged.find(one => one.includes(answer.headers['x-request-id'] ?? '-'));
    assert(line?.includes('projects.ssh_public_key'), line ?? 'nothing was logged');
    const wrapped = await app.client.get(`${path}?callback=f`, app.people.owner.as);
    assert.deepEqual([wrapped.status, wrapped.text], [500, `f(${JSON.stringify(broken)})`]);
    assert.equal((await app.client.get(`/projects/${planted.project_id}`, app.people.owner.as)).status, 200);
    assert.equal((await app.client.get(`${path}/suites`, app.people.owner.as)).status, 200);
    const ids = (await app.client.get('/projects', app.people.owner.as)).list.map(one => one.id);
    assert(ids.includes(planted.project_id) && !ids.includes(there.project_id));
    compileAll(app.db, there.used_dependency_id);
    const events = (await app.client.get(`${path}/events`, app.people.owner.as)).list;
    assert.equal(events.at(-1)?.type, 'dependency.finished', 'what it uses goes on');
  });

  test('a variable that cannot be decrypted is left out of the list, and the log has the reason', async () => {
    const there = app.plant();
    const path = `/projects/${there.project_id}/suites/${there.suite_id}/environment_variables`;
    const ask = (method: string, to: string, form?: Record<string, string>) =>
      app.client.call(method, to, { as: app.people.owner.as, ...(form && { form }) });
    const names = async () => (await ask('GET', path)).list.map(one => one.name);
    for (const name of ['FIRST', 'SECOND']) await ask('POST', path, { name, content: `of ${name}` });
    const all = await names();
    app.db.sqlite
      .prepare("UPDATE environment_variables SET content = ? WHERE suite_id = ? AND name = 'FIRST'")
      .run(Buffer.alloc(80, 7), there.suite_id);
    const row = app.db.sqlite
      .prepare("SELECT id FROM environment_variables WHERE suite_id = ? AND name = 'FIRST'")
      .get(there.suite_id) as { id: bigint };
    const list = await ask('GET', path);
    assert.equal(list.status, 200, list.text);
    assert.deepEqual(
      list.list.map(one => one.name),
      all.filter(name => name !== 'FIRST'),
    );
    assert.equal(list.list.find(one => one.name === 'SECOND')?.content, 'of SECOND');
    const line = app.logged.find(one => one.includes(list.headers['x-request-id'] ?? '-'));
    assert(line?.includes(`environment_variables.content of ${row.id}`), line ?? 'nothing was logged');

    const page = await look(
      `/ui/projects/${there.project_id}/suites/${there.suite_id}/settings?reveal=${row.id}`,
    );
    assert.equal(page.status, 200, 'the page of the suite');
    assert(page.text.includes('SECOND') && page.text.includes('it was changed in the database'));

    const renamed = await ask('PUT', `${path}/${row.id}`, { name: 'RENAMED' });
    assert.deepEqual([renamed.status, renamed.json], [500, broken], 'the record itself');
    assert.equal((await ask('PUT', `${path}/${row.id}`, { content: 'changed' })).status, 200);
    assert.deepEqual(await names(), all, 'fixed by a new value');
  });

  test('a value that was moved to another row is detected too', async () => {
    const [one, other] = [app.plant(), app.plant()];
    app.db.sqlite
      .prepare(
        'UPDATE environment_variables SET content = (SELECT content FROM environment_variables WHERE id = ?) WHERE id = ?',
      )
      .run(one.variable_id, other.variable_id);
    const path = (of: Planted) => `/projects/${of.project_id}/suites/${of.suite_id}/environment_variables`;
    const idsOf = async (of: Planted) =>
      (await app.client.get(path(of), app.people.owner.as)).list.map(({ id }) => id);
    assert.deepEqual([await idsOf(other), await idsOf(one)], [[], [one.variable_id]]);
  });
});

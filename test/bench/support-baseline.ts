// The baselines: bare Hono routes that read a project and store a build request, with the same TLS stack, file and rows
// as Assay. They check nothing, and each request is one durable transaction.
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import { getRequestListener } from '@hono/node-server';
import Database from 'better-sqlite3';
import { Hono } from 'hono';
import { wireId } from '../../src/contract/wire.ts';

const [database = '', cert = '', key = '', port = '', publicKey = ''] = process.argv.slice(2);
const sqlite = new Database(database).defaultSafeIntegers(true);
sqlite.pragma('journal_mode = WAL');
sqlite.pragma('synchronous = FULL');

const find = sqlite.prepare<[bigint], Record<string, unknown> & { id: bigint }>(
  `SELECT id, owner_id, name, name_key, description, repository_url, build_state, ssh_public_key, badge,
          cancel_superseded, created_at, deleted_at, submodules, local_variables
   FROM projects WHERE id = ? AND deleted_at IS NULL`,
);
const recordOf = (id: bigint, sshPublicKey: string) => {
  const row = find.get(id);
  return {
    id: wireId(id),
    id_str: String(id),
    name: row?.name,
    description: row?.description,
    repository_url: row?.repository_url,
    build_state: row?.build_state,
    owned: true,
    ssh_public_key: sshPublicKey,
  };
};

const insertRequest = sqlite.prepare(
  `INSERT INTO build_requests (id, project_id, commit_ref, branch, build_state, created_by, created_at)
   VALUES (?, ?, ?, '', 'enqueued', ?, ?)`,
);
const insertEvent = sqlite.prepare(
  "INSERT INTO events (id, project_id, type, resource_id, body, created_at) VALUES (?, ?, 'build_request.enqueued', ?, ?, ?)",
);
const storeLastId = sqlite.prepare("UPDATE facts SET value = ? WHERE name = 'last_id'");
let lastId = BigInt(Date.now() - Date.UTC(2020)) << 22n;
const createRequest = sqlite.transaction((projectId: bigint, commitRef: string, createdBy: string) => {
  const [id, eventId] = [lastId + 1n, lastId + 2n];
  lastId = eventId;
  const now = new Date();
  const record = {
    id: wireId(id),
    id_str: String(id),
    build_state: 'enqueued',
    commit_ref: commitRef,
    commit_id: null,
    commit_id_str: '',
    created_by: createdBy,
    created_at: now.toISOString().replace('Z', '+00:00'),
  };
  const event = {
    id: wireId(eventId),
    id_str: String(eventId),
    type: 'build_request.enqueued',
    created_at: record.created_at,
    project: recordOf(projectId, publicKey.slice(publicKey.lastIndexOf(' '))),
    build_request: record,
  };
  insertRequest.run(id, projectId, commitRef, createdBy, now.getTime());
  insertEvent.run(eventId, projectId, id, JSON.stringify(event), now.getTime());
  storeLastId.run(String(eventId));
  return record;
});

const router = new Hono()
  .get('/projects/:id', context =>
    context.json({ response: recordOf(BigInt(context.req.param('id')), publicKey) }),
  )
  .post('/projects/:id/build_requests', async context => {
    const { commit_ref } = (await context.req.json()) as { commit_ref: string };
    const record = createRequest.immediate(BigInt(context.req.param('id')), commit_ref, 'bench@example.com');
    return context.json({ response: record }, 201);
  });
const server = createSecureServer(
  { cert: readFileSync(cert), key: readFileSync(key), allowHTTP1: true, noDelay: true },
  getRequestListener(router.fetch) as never,
);
// Connections are idle while the other side is measured.
Object.assign(server, { keepAliveTimeout: 75_000 });
server.listen(Number(port), '127.0.0.1', () => console.log('ready'));

// The baseline: a bare Hono route that reads one row by key, with the same TLS stack and the same file as Assay.
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import { getRequestListener } from '@hono/node-server';
import Database from 'better-sqlite3';
import { Hono } from 'hono';

const [database = '', cert = '', key = '', port = ''] = process.argv.slice(2);
const sqlite = new Database(database, { readonly: true }).defaultSafeIntegers(true);
const find = sqlite.prepare(
  'SELECT id, name, description, repository_url, build_state, created_at FROM projects WHERE id = ?',
);
const router = new Hono().get('/projects/:id', context => {
  const row = find.get(BigInt(context.req.param('id'))) as Record<string, unknown>;
  return context.json({ ...row, id: String(row.id), created_at: Number(row.created_at) });
});
createSecureServer(
  { cert: readFileSync(cert), key: readFileSync(key), allowHTTP1: true },
  getRequestListener(router.fetch) as never,
).listen(Number(port), '127.0.0.1', () => console.log('ready'));

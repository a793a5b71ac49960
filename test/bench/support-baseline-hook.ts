// The baseline of hooks: a bare Hono route that verifies a signature of GitHub and writes one durable row.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createSecureServer } from 'node:http2';
import { dirname } from 'node:path';
import { getRequestListener } from '@hono/node-server';
import Database from 'better-sqlite3';
import { Hono } from 'hono';
import { ensureCertificate } from '../../src/engine/certificate.ts';

const [database = '', port = ''] = process.argv.slice(2);
const secret = 'whsec_of_the_benchmark';
const sqlite = new Database(database);
sqlite.pragma('journal_mode = WAL');
sqlite.pragma('synchronous = FULL');
sqlite.exec('CREATE TABLE hooks (id INTEGER PRIMARY KEY, ref TEXT, hash TEXT, created_at INTEGER)');
const insert = sqlite.prepare('INSERT INTO hooks (ref, hash, created_at) VALUES (?, ?, ?)');
const router = new Hono().post('/hook', async context => {
  const body = Buffer.from(await context.req.arrayBuffer());
  const expected = Buffer.from(`sha256=${createHmac('sha256', secret).update(body).digest('hex')}`);
  const sent = Buffer.from(context.req.header('x-hub-signature-256') ?? '');
  if (sent.length !== expected.length || !timingSafeEqual(sent, expected)) return context.text('', 401);
  const { ref, after } = JSON.parse(body.toString()) as { ref: string; after: string };
  const { lastInsertRowid } = insert.run(ref, after, Date.now());
  return context.json({ response: [{ id: String(lastInsertRowid), ref, after }] }, 201);
});
const certificate = await ensureCertificate({ directory: dirname(database), hosts: ['127.0.0.1'] });
createSecureServer({ ...certificate, allowHTTP1: true }, getRequestListener(router.fetch) as never).listen(
  Number(port),
  '127.0.0.1',
  () => console.log(JSON.stringify({ port: Number(port), ca: certificate.cert, path: '/hook', secret })),
);

// A server that is killed while it takes the bundle of a working tree: the next one has the snapshot completely or not at all.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  databasePath,
  snapshotDirectory,
  snapshotPath,
  uploadDirectory,
} from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { runAssay, type Serving, serve } from '../cli/program.ts';
import { bundleOfObjects, commitOf, hashOf, treeOf } from '../support/bundle.ts';
import { basic, createClient } from '../support/client.ts';
import { directoryUntil } from '../support/directory.ts';

const blob = { type: 'blob', data: randomBytes(16 * 1024 ** 2) } as const;
const tree = treeOf(['100644', 'random', hashOf(blob)]);
const bundle = bundleOfObjects(commitOf(hashOf(tree)), tree, blob);

async function* halfOfIt(): AsyncGenerator<Buffer> {
  yield bundle.subarray(0, bundle.length / 2);
  await new Promise(() => {});
}

/**
 * Kills the server inside a call of its main thread on the write-ahead log, before the kernel executes it. Returns once strace
 * is attached.
 */
async function killAt(server: Serving, data: string, call: string): Promise<void> {
  const tracer = spawn('strace', [
    ...['-o', '/dev/null', '-p', String(server.child.pid), '-P', `${databasePath(data)}-wal`],
    ...['-e', `trace=${call}`, '-e', `inject=${call}:signal=SIGKILL:when=1`],
  ]);
  await once(tracer.stderr, 'data');
}

const killWhen = (server: Serving, directory: string, prefix: string) =>
  directoryUntil(
    directory,
    names => names.some(name => name.startsWith(prefix)),
    `nothing is in ${directory}`,
  ).then(() => server.child.kill('SIGKILL'));

type Phase = { body?: () => AsyncIterable<Buffer>; prepare(server: Serving, data: string): Promise<unknown> };
/** A promise in an array is not waited for. */
const phases: Record<string, Phase> = {
  'while the bundle arrives': {
    body: halfOfIt,
    prepare: async (server, data) => [killWhen(server, uploadDirectory(data), '.upload-')],
  },
  'while it is unpacked': {
    prepare: async (server, data) => [killWhen(server, snapshotDirectory(data), '.draft-')],
  },
  'before the row is written': { prepare: (server, data) => killAt(server, data, 'pwrite64') },
  'before the row is synced': { prepare: (server, data) => killAt(server, data, 'fdatasync,fsync') },
};

test('a server that is killed in any phase of an upload has the snapshot completely or not at all', async t => {
  const data = mkdtempSync(join(tmpdir(), 'assay-crash-'));
  let server: Serving | undefined;
  try {
    const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
    const { email, api_key: key } = JSON.parse(added.stdout);
    const as = basic(email, key);
    const start = async () => {
      server = await serve(data, { env: { ASSAY_MIN_FREE_DISK: '1MiB' } });
      const ca = readFileSync(join(data, 'tls', 'ca.pem'), 'utf8');
      return { server, client: createClient(`https://127.0.0.1:${server.port}`, ca) };
    };
    let { client, server: running } = await start();
    const form = { name: 'Website', repository_url: 'git@git.invalid:website.git' };
    const project = await client.call('POST', '/projects', { as, form });
    const path = `/projects/${project.record.id_str}/snapshots`;
    for (const [phase, { body, prepare }] of Object.entries(phases))
      await t.test(phase, async () => {
        const gone = once(running.child, 'close');
        await prepare(running, data);
        await assert.rejects(client.call('POST', path, { as, body: body?.() ?? bundle }));
        await gone;
        client.close();
        ({ client, server: running } = await start());
        using sqlite = openSqlite(databasePath(data), { readonly: true });
        const rows = sqlite.prepare<[], string>('SELECT CAST(id AS TEXT) FROM snapshots').pluck().all();
        assert.deepEqual(readdirSync(uploadDirectory(data)), []);
        assert.deepEqual(
          readdirSync(snapshotDirectory(data)).toSorted(),
          rows.map(id => `${id}.git`).toSorted(),
        );
        for (const id of rows)
          assert.ok(existsSync(join(snapshotPath(data, BigInt(id)), 'refs/assay/snapshot')), id);
      });
    // It still takes one.
    const { record } = await client.call('POST', path, { as, body: bundle });
    assert.equal(record.ref, hashOf(commitOf(hashOf(tree))));
    client.close();
  } finally {
    await server?.end('SIGTERM');
    rmSync(data, { recursive: true, force: true });
  }
});

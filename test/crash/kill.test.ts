// Kills the server at random moments and inside the n-th sync of the database: nothing that was answered is lost.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';
import { openSqlite } from '../../src/store/database/db.ts';
import { EndedEarly, runAssay, type Serving, serve, temporaryDirectory } from '../cli/program.ts';
import { freePort } from '../support/ports.ts';

const seed = Number(process.env.SEED ?? randomInt(2 ** 31));
const KILLS = 6;
const CLIENTS = 3;
/** The time limit for a start, on a busy machine. */
const READY_MS = 15_000;

/** Mulberry32: a seed reproduces the moments of a run. */
function randomFrom(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Found = Record<string, unknown> | null;

/** What a path must return, null for nothing. While a change is not answered, it may be `or` instead. */
type Expected = { found: Found; or?: Found };
type Answered = Map<string, Expected>;

/** Creates, changes and deletes records in a loop, and records each change once it is answered. */
async function work(
  serving: Serving,
  auth: string,
  name: string,
  random: () => number,
  answered: Answered,
): Promise<void> {
  const call = async (method: string, path: string, form?: Record<string, string>) => {
    const { status, text } = await serving.ask(method, path, { auth, ...(form && { form }) });
    assert.ok(status < 300, `${method} ${path}: ${status} ${text}`);
    return JSON.parse(text).response;
  };
  const create = async (path: string, form: Record<string, string>) => {
    const { id_str } = await call('POST', path, form);
    answered.set(`${path}/${id_str}`, { found: form });
    return `${path}/${id_str}`;
  };
  const change = async (method: 'PUT' | 'DELETE', path: string, form?: Record<string, string>) => {
    const { found } = answered.get(path) as Expected;
    const next = form ? { ...found, ...form } : null;
    answered.set(path, { found, or: next });
    await call(method, path, form);
    answered.set(path, { found: next });
  };
  for (let turn = 0; ; turn += 1) {
    const repository_url = 'git@127.0.0.1:none.git';
    const project = await create('/projects', { name: `${name}-${turn}`, description: '', repository_url });
    const suite = await create(`${project}/suites`, { name: 'unit', command: 'true' });
    await change('PUT', suite, { command: `echo ${turn}` });
    await change('PUT', project, { description: `changed ${turn}` });
    // Requests that arrive together share a transaction.
    if (random() < 0.3)
      await Promise.all(
        ['main', 'other'].map(commit_ref => create(`${project}/build_requests`, { commit_ref })),
      );
    if (random() < 0.3) await change('DELETE', suite);
  }
}

/** Works until the server is gone. */
async function workUntilKilled(
  serving: Serving,
  auth: string,
  name: string,
  random: () => number,
  answered: Answered,
) {
  const gone = new Promise<void>(resolve => serving.child.once('close', () => resolve()));
  const workers = Array.from({ length: CLIENTS }, (_, at) =>
    work(serving, auth, `${name}-${at}`, random, answered).catch((error: NodeJS.ErrnoException) => {
      // A kill breaks the connection. Any other error is a failure.
      if (!/ECONN|EPIPE|socket hang up|no answer/.test(`${error.code} ${error.message}`)) throw error;
    }),
  );
  await Promise.all(workers);
  await gone;
}

async function checkAll(serving: Serving, auth: string, answered: Answered): Promise<void> {
  for (const [path, expected] of answered) {
    const { status, text } = await serving.ask('GET', path, { auth });
    assert.ok(status === 200 || status === 404, `${path}: ${status}`);
    const record = status === 200 ? JSON.parse(text).response : null;
    const allowed = 'or' in expected ? [expected.found, expected.or] : [expected.found];
    const holds = allowed.some(found =>
      found == null || record === null
        ? found === record
        : Object.entries(found).every(([key, value]) => record[key] === value),
    );
    assert.ok(holds, `${path} is ${text}, not ${JSON.stringify(allowed)}`);
  }
}

function checkIntegrity(data: string): void {
  const sqlite = openSqlite(join(data, 'assay.db'), { readonly: true });
  assert.equal(sqlite.pragma('integrity_check', { simple: true }), 'ok');
  assert.deepEqual(sqlite.pragma('foreign_key_check'), []);
  sqlite.close();
}

async function addAccount(data: string): Promise<string> {
  const { stdout } = await runAssay(['user', 'add', 'ada@example.com', '--json', '--data', data]);
  return `ada@example.com:${JSON.parse(stdout).api_key}`;
}

test(`killed at random moments (SEED=${seed}), every answered change is there after the next start`, async () => {
  using directory = temporaryDirectory();
  const random = randomFrom(seed);
  const data = directory.path;
  const auth = await addAccount(data);
  const answered: Answered = new Map();
  const port = await freePort();
  for (let kill = 0; kill < KILLS; kill += 1) {
    const serving = await serve(data, { port });
    assert.ok(serving.readyMs < READY_MS, `ready after ${serving.readyMs} ms`);
    await checkAll(serving, auth, new Map([...answered].slice(-40)));
    const working = workUntilKilled(serving, auth, `kill-${kill}`, random, answered);
    // Awaited below, where its errors are reported.
    working.catch(() => {});
    await after(50 + random() * 600);
    await serving.end('SIGKILL');
    await working;
  }
  const serving = await serve(data, { port });
  await checkAll(serving, auth, answered);
  checkIntegrity(data);
  assert.ok(answered.size >= KILLS, `${answered.size} answered changes`);
  await serving.end('SIGTERM');
});

for (const sync of [3, 20, 61])
  test(`killed inside sync number ${sync} of a run, every answered change is there`, async () => {
    using directory = temporaryDirectory();
    const data = directory.path;
    const auth = await addAccount(data);
    // The first start creates the certificates, so that only syncs of the database are counted.
    await (await serve(data)).end('SIGTERM');
    const answered: Answered = new Map();
    const traced = await serve(data, { through: killedAtSync(sync) }).catch(error => {
      assert.ok(error instanceof EndedEarly, error);
    });
    if (traced) await workUntilKilled(traced, auth, 'sync', randomFrom(sync), answered);
    const serving = await serve(data);
    await checkAll(serving, auth, answered);
    checkIntegrity(data);
    await serving.end('SIGTERM');
  });

for (const sync of [1, 2, 4])
  test(`killed inside sync number ${sync} of the first start, the next start works like a first one`, async () => {
    using directory = temporaryDirectory();
    const data = join(directory.path, 'data');
    await assert.rejects(serve(data, { through: killedAtSync(sync) }), EndedEarly);
    const serving = await serve(data);
    checkIntegrity(data);
    assert.equal((await serving.ask('GET', '/ping')).status, 200);
    await serving.end('SIGTERM');
    assert.match(serving.stdout(), /set-up code: /);
  });

/** Kills the process inside its n-th sync, before the kernel executes it. The product needs no hook for it. */
function killedAtSync(sync: number): string[] {
  return [
    ...['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=fsync,fdatasync'],
    ...['-e', `inject=fsync,fdatasync:signal=SIGKILL:when=${sync}`],
  ];
}

test('a partially written master key is not accepted', async () => {
  using directory = temporaryDirectory();
  const data = join(directory.path, 'data');
  await (await serve(data)).end('SIGTERM');
  const key = readFileSync(join(data, 'master.key'), 'utf8');
  appendFileSync(join(data, 'master.key.1'), key.slice(0, 10));
  const serving = await serve(data);
  assert.equal(readFileSync(join(data, 'master.key'), 'utf8'), key);
  await serving.end('SIGTERM');
});

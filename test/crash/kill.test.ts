// A kill at any moment loses nothing that was answered: at random moments, and at the N-th sync of the database.
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
/** What a start may take here, on a machine that does other things too. */
const READY_MS = 15_000;

/** Mulberry32: the moments of a run can be had again with its seed. */
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

/** What must be found at a path, null for nothing; while a change is not answered it may be `or` instead. */
type Expected = { found: Found; or?: Found };
type Answered = Map<string, Expected>;

/** Creates, changes and deletes without end; writes down each change once it is answered. */
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
    if (random() < 0.3) await change('DELETE', suite);
  }
}

/** Works until the server is gone, whoever ends it. */
async function workUntilKilled(
  serving: Serving,
  auth: string,
  name: string,
  random: () => number,
  answered: Answered,
) {
  const gone = new Promise<void>(resolve => serving.child.once('close', () => resolve()));
  const workers = Array.from({ length: CLIENTS }, (_, at) =>
    work(serving, auth, `${name}-${at}`, random, answered).catch((cause: NodeJS.ErrnoException) => {
      // A torn connection is what a kill looks like; anything else is not.
      if (!/ECONN|EPIPE|socket hang up|no answer/.test(`${cause.code} ${cause.message}`)) throw cause;
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
    // Awaited below; what it finds meanwhile is told there.
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
  test(`killed inside the sync number ${sync} of a run, every answered change is there`, async () => {
    using directory = temporaryDirectory();
    const data = directory.path;
    const auth = await addAccount(data);
    // The first start makes the certificates, so that the syncs counted are those of the database.
    await (await serve(data)).end('SIGTERM');
    const answered: Answered = new Map();
    const traced = await serve(data, { through: killedAtSync(sync) }).catch(cause => {
      assert.ok(cause instanceof EndedEarly, cause);
    });
    if (traced) await workUntilKilled(traced, auth, 'sync', randomFrom(sync), answered);
    const serving = await serve(data);
    await checkAll(serving, auth, answered);
    checkIntegrity(data);
    await serving.end('SIGTERM');
  });

for (const sync of [1, 2, 4])
  test(`killed inside the sync number ${sync} of the very first start, the next start is like a first one`, async () => {
    using directory = temporaryDirectory();
    const data = join(directory.path, 'data');
    await assert.rejects(serve(data, { through: killedAtSync(sync) }), EndedEarly);
    const serving = await serve(data);
    checkIntegrity(data);
    assert.equal((await serving.ask('GET', '/ping')).status, 200);
    await serving.end('SIGTERM');
    assert.match(serving.stdout(), /set-up code: /);
  });

/** Ends the process inside its N-th sync, before the kernel has done it: no hook in the product is needed. */
function killedAtSync(sync: number): string[] {
  return [
    ...['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=fsync,fdatasync'],
    ...['-e', `inject=fsync,fdatasync:signal=SIGKILL:when=${sync}`],
  ];
}

test('a master key that was half written is not taken for one', async () => {
  using directory = temporaryDirectory();
  const data = join(directory.path, 'data');
  await (await serve(data)).end('SIGTERM');
  const key = readFileSync(join(data, 'master.key'), 'utf8');
  appendFileSync(join(data, 'master.key.1'), key.slice(0, 10));
  const serving = await serve(data);
  assert.equal(readFileSync(join(data, 'master.key'), 'utf8'), key);
  await serving.end('SIGTERM');
});

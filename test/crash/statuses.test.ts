// Commit statuses of the real program: a kill between a state change and its delivery, and a forge with a private CA.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ensureCertificate } from '../../src/engine/certificate.ts';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../src/store/builds.ts';
import { openData } from '../../src/store/data/data.ts';
import type { Db } from '../../src/store/database/db.ts';
import { findProject } from '../../src/store/projects.ts';
import { moveRequest } from '../../src/store/transition.ts';
import { runAssay, type Serving, serve, temporaryDirectory } from '../cli/program.ts';
import { commitFields } from '../support/app.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { type StandInForge, startForge, TOKEN } from '../support/forge.ts';

const limited = { timeout: 240_000 };
const HASH = 'e'.repeat(40);

/** No Docker: builds wait, and a cancel changes their state. */
const environment = {
  ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8',
  DOCKER_HOST: 'tcp://127.0.0.1:9',
  ASSAY_MIN_FREE_DISK: '1',
};

/** Resolves when `isDone` holds, which is checked at each call of the forge. */
function waitingFor() {
  const waits = new Set<() => void>();
  return {
    onCall: () => {
      for (const look of [...waits]) look();
    },
    until: (isDone: () => boolean) =>
      new Promise<void>(resolve => {
        const look = () => {
          if (!isDone()) return;
          waits.delete(look);
          resolve();
        };
        waits.add(look);
        look();
      }),
  };
}

async function prepare(t: TestContext) {
  const directory = temporaryDirectory();
  t.after(() => directory[Symbol.dispose]());
  const data = join(directory.path, 'data');
  const { stdout } = await runAssay(['user', 'add', 'ada@example.org', '--json', '--data', data]);
  const auth = `ada@example.org:${JSON.parse(stdout).api_key}`;
  let serving: Serving | undefined;
  t.after(() => serving?.end('SIGKILL'));
  const start = async (extra: Record<string, string> = {}) => {
    serving = await serve(data, { env: { ...environment, ...extra } });
    const { ask } = serving;
    return {
      end: serving.end,
      call: async (method: string, path: string, form?: Record<string, string>) => {
        const { status, text } = await ask(method, path, { auth, ...(form && { form }) });
        assert.ok(status < 300, `${method} ${path}: ${status} ${text}`);
        return JSON.parse(text).response;
      },
    };
  };
  return { directory: directory.path, data, start };
}

/** Changes rows of a stopped server. */
function withDb<T>(data: string, change: (db: Db) => T): T {
  const db = openData(data, {}, () => {});
  try {
    return change(db);
  } finally {
    db.close();
  }
}

/** A build of two suites that waits. Returns the ids of the builds. */
const beginBuild = (data: string, projectId: string) =>
  withDb(data, db => {
    const project = findProject(db, BigInt(projectId));
    assert.ok(project);
    return db.write(() => {
      const request = createBuildRequest(db, project, 'main', 'ada@example.org');
      moveRequest(db, request.id, 'fetch');
      const commit = recordCommit(db, project.id, commitFields(HASH));
      enqueueBuilds(
        db,
        request.id,
        commit,
        'main',
        ['unit', 'lint'].map((suiteName, at) => ({
          suiteId: BigInt(at + 1),
          suiteName,
          runs: true,
          rules: [],
        })),
      );
      return listBuildsOfRequest(db, request.id).map(({ id }) => id);
    });
  });

const project = { name: 'Website', repository_url: 'git@127.0.0.1:team/website.git' };
const statuses = (forge: StandInForge): Record<string, string> => ({
  notifiable_type: 'build',
  name: 'commit_status',
  'options[forge]': 'gitlab',
  'options[token]': TOKEN,
  'options[url]': forge.url,
});

test('a status whose delivery a kill interrupts arrives after the next start, in order', limited, async t => {
  const { data, start } = await prepare(t);
  const { onCall, until } = waitingFor();
  const forge = await startForge('gitlab', { onCall });
  t.after(() => forge.close());
  let server = await start();
  const { id_str: id } = await server.call('POST', '/projects', project);
  await server.call('POST', `/projects/${id}/notifications`, statuses(forge));
  await server.end('SIGTERM');
  const builds = beginBuild(data, id);

  // The forge never answers the first server, which is killed while the calls are open.
  forge.hold = new Promise(() => {});
  server = await start();
  await until(() => forge.arrived.length > 0);
  for (const build of builds) await server.call('POST', `/projects/${id}/builds/${build}/cancel`, {});
  await server.end('SIGKILL');
  assert.deepEqual(forge.accepted, []);
  assert.ok(forge.arrived.every(state => state === 'pending'));

  forge.hold = undefined;
  await start();
  await until(() => forge.states.size === 3 && forge.unfinished().length === 0);
  assert.deepEqual(Object.fromEntries(forge.states), {
    [`${HASH} assay`]: ['canceled'],
    [`${HASH} assay/unit`]: ['canceled'],
    [`${HASH} assay/lint`]: ['canceled'],
  });
});

test('a forge with a private CA is trusted only with CA_CERTS', limited, async t => {
  const { directory, data, start } = await prepare(t);
  const tls = join(directory, 'forge-tls');
  const { cert, key } = await ensureCertificate({ directory: tls, hosts: ['127.0.0.1'] });
  const { onCall, until } = waitingFor();
  const forge = await startForge('gitlab', { onCall, tls: { cert, key } });
  t.after(() => forge.close());
  let server = await start();
  const { id_str: id } = await server.call('POST', '/projects', project);
  const { id_str: notification } = await server.call(
    'POST',
    `/projects/${id}/notifications`,
    statuses(forge),
  );
  await server.end('SIGTERM');
  beginBuild(data, id);

  server = await start();
  const list = () => server.call('GET', `/projects/${id}/notifications/${notification}/deliveries`);
  const tried = async () => {
    for (;;) {
      const found = (await list()) as { last_error: string | null }[];
      const error = found.find(({ last_error }) => last_error !== null)?.last_error;
      if (error) return error;
    }
  };
  assert.match(await tried(), /^the certificate of 127\.0\.0\.1:\d+ is not trusted: /);
  assert.deepEqual(forge.arrived, []);
  await server.end('SIGTERM');

  await start({ ASSAY_CA_CERTS: join(tls, 'ca.pem') });
  await until(() => forge.accepted.length === 3);
});

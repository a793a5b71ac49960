// A migrated database in its own directory, with a clock that the test sets, and functions that create rows.
import { createAccount } from '../../src/store/accounts.ts';
import {
  type CommitFields,
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  recordCommit,
} from '../../src/store/builds.ts';
import { type Db, openDb } from '../../src/store/database/db.ts';
import { snapshots } from '../../src/store/database/schema.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { createDependency } from '../../src/store/dependencies.ts';
import { createProject, type Project } from '../../src/store/projects.ts';
import { createSuite } from '../../src/store/suites.ts';
import { moveRequest } from '../../src/store/transition.ts';
import { temporaryDirectory } from '../cli/program.ts';

export const keyPair = {
  publicKey: 'ssh-ed25519 AAAA fixture',
  privateKey: 'the private key of the fixture',
};

export function openFixture(now: { ms: number } = { ms: Date.UTC(2026, 5, 1) }) {
  const directory = temporaryDirectory();
  const path = `${directory.path}/assay.db`;
  const vault = createVault(Buffer.alloc(32, 7));
  const db = openDb(path, vault, () => now.ms);
  return {
    db,
    now,
    path,
    vault,
    [Symbol.dispose]() {
      db.close();
      directory[Symbol.dispose]();
    },
  };
}

let made = 0;

export function addAccount(db: Db, email = `user-${++made}@example.com`) {
  return createAccount(db, { email, kind: 'user', admin: false, passwordHash: null, apiKey: null });
}

export function addProject(db: Db, ownerId: bigint = addAccount(db).id): Project {
  return createProject(db, {
    ownerId,
    name: `project-${++made}`,
    description: '',
    repositoryUrl: 'git@example.com:x.git',
    badge: false,
    cancelSuperseded: false,
    keyPair,
  });
}

export function addSuite(db: Db, projectId: bigint, declared: { artifacts?: string; reports?: string } = {}) {
  return createSuite(db, {
    projectId,
    name: `suite-${++made}`,
    description: '',
    command: 'true',
    image: null,
    ...declared,
  });
}

export function addDependency(db: Db, ownerId: bigint, related: readonly bigint[] = []) {
  return createDependency(
    db,
    ownerId,
    {
      name: `dependency-${++made}`,
      description: '',
      command: 'make PREFIX=/opt/x install',
      prefix: '/opt/x',
      source: '',
      launchCommand: '',
      image: null,
    },
    related,
  );
}

export function commitFields(ref: string): CommitFields {
  return {
    ref,
    message: 'A change',
    authorName: 'A',
    authorEmail: 'a@example.com',
    authoredDate: '2026-06-01T00:00:00+02:00',
    committerName: 'A',
    committerEmail: 'a@example.com',
    committedDate: '2026-06-01T00:00:00+02:00',
    branches: '["main"]',
    tags: '[]',
    files: '[]',
  };
}

/** A working tree that somebody sent. */
export function addSnapshot(
  db: Db,
  { projectId, accountId }: { projectId: bigint; accountId: bigint },
): bigint {
  return db.write(() => {
    const row = {
      id: db.newId(),
      projectId,
      accountId,
      ref: 'c'.repeat(40),
      sizeBytes: 1,
      createdAt: db.now(),
    };
    return db.orm.insert(snapshots).values(row).returning().get().id;
  });
}

/** A fetched request with its commit, and a queued build for each suite. A local run if it has a snapshot. */
export function addBuilds(
  db: Db,
  project: Project,
  suiteIds: readonly bigint[],
  ref = `${++made}`.padStart(40, 'a'),
  snapshotId?: bigint,
) {
  const local = snapshotId !== undefined;
  const started = local ? { trigger: 'local' as const, snapshotId } : {};
  const request = createBuildRequest(db, project, 'main', 'someone@example.com', started);
  moveRequest(db, request.id, 'fetch');
  const commit = recordCommit(db, project.id, { ...commitFields(ref), local });
  const decisions = suiteIds.map(suiteId => ({ suiteId, suiteName: `s${suiteId}`, runs: true, rules: [] }));
  enqueueBuilds(db, request.id, commit, 'main', decisions);
  while (enqueueSomeBuilds(db));
  const builds = db.sqlite
    .prepare('SELECT id FROM builds WHERE build_request_id = ? ORDER BY id')
    .pluck()
    .all(request.id) as bigint[];
  return { requestId: request.id, commitId: commit.id, builds };
}

/** The types of the events recorded since `after`, in order. */
export function eventTypes(db: Db, after: bigint = 0n): string[] {
  return db.sqlite.prepare('SELECT type FROM events WHERE id > ? ORDER BY id').pluck().all(after) as string[];
}

export function lastId(db: Db): bigint {
  return BigInt(db.sqlite.prepare("SELECT value FROM facts WHERE name = 'last_id'").pluck().get() as string);
}

/** The whole content of the database, to compare before and after. */
export function dump(db: Db): string {
  const tables = db.sqlite
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    .pluck()
    .all() as string[];
  return JSON.stringify(
    tables.map(name => [name, db.sqlite.prepare(`SELECT * FROM "${name}"`).all()]),
    (_, value) => (typeof value === 'bigint' ? `${value}n` : value),
  );
}

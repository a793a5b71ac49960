// Puts rows into states that only running workers reach, with the transitions of the store.
import { existsSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { tarHeader } from '../../src/store/backup/archive.ts';
import { type Build, findBuild, rerunBuild } from '../../src/store/builds.ts';
import { artifactPath } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { artifacts } from '../../src/store/database/dependency-schema.ts';
import {
  acceptArchive,
  type Dependency,
  findDependency,
  updateDependency,
} from '../../src/store/dependencies.ts';
import { moveBuild, moveDependency } from '../../src/store/transition.ts';
import type { Planted } from '../support/app.ts';

const archive = { archiveHash: 'a'.repeat(64), archiveContentType: 'application/gzip', archiveFileSize: 20 };
const artifact = { hash: 'b'.repeat(64), prefix: '/srv/dependency', sizeBytes: 512 };

export function enqueueCompile(db: Db, id: bigint): void {
  acceptArchive(db, id, archive);
}

export function startCompile(db: Db, id: bigint): void {
  db.write(() => {
    enqueueCompile(db, id);
    moveDependency(db, id, 'start');
  });
}

const content = Buffer.alloc(512, '!');
const storedTar = zstdCompressSync(
  Buffer.concat([tarHeader('srv/cache/bin/tool', 0o755, content.length), content, Buffer.alloc(1024)]),
);

/** A complete successful compile. */
export function compileAll(db: Db, id: bigint): void {
  const file = artifactPath(dirname(db.sqlite.name), artifact.hash);
  if (existsSync(dirname(file))) writeFileSync(file, storedTar);
  db.write(() => {
    db.orm
      .insert(artifacts)
      .values({ ...artifact, createdAt: db.now() })
      .onConflictDoNothing()
      .run();
    startCompile(db, id);
    moveDependency(db, id, 'compile', { artifactHash: artifact.hash });
  });
}

/** The other dependency relates to the free one, and its compile failed. */
export function failDependent(db: Db, { free_dependency_id, used_dependency_id }: Planted): void {
  db.write(() => {
    const dependent = findDependency(db, used_dependency_id) as Dependency;
    updateDependency(db, dependent, {}, [free_dependency_id]);
    startCompile(db, dependent.id);
    moveDependency(db, dependent.id, 'fail', { error: 'make: not found', artifactHash: null });
  });
}

/** As if `inviterId` had invited the collaborator, who has not set a password yet. */
export function makeInvited(db: Db, collaboratorId: bigint, inviterId: bigint): void {
  db.write(() =>
    db.sqlite
      .prepare(
        'UPDATE accounts SET invited_by_id = ? WHERE id = (SELECT account_id FROM collaborators WHERE id = ?)',
      )
      .run(inviterId, collaboratorId),
  );
}

/** Another build of the suite at the same commit, which passed. */
export function passAgain(db: Db, { project_id, build_id, suite_id }: Planted): void {
  const build = findBuild(db, project_id, build_id) as Build;
  const { id } = rerunBuild(db, build, { id: suite_id, name: build.suiteName });
  moveBuild(db, id, 'start');
  moveBuild(db, id, 'pass', { exitCode: 0 });
}

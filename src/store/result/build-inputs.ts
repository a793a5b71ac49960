// The inputs of builds: what a build was made of, apart from its commit. Contents of variables are not stored, only
// fingerprints with a key of the project.

import { eq, sql } from 'drizzle-orm';
import { type BuildInputs, inputsDigest } from '../../domain/result/build-inputs.ts';
import { type Db, prepared } from '../database/db.ts';
import { buildInputs } from '../database/result-schema.ts';
import type { Dependency } from '../dependency-use.ts';
import type { Variable } from '../suites.ts';

export type UsedInputs = Pick<BuildInputs, 'command' | 'image' | 'imageId' | 'limits'> & {
  variables: readonly Variable[];
  /** In launch order. */
  dependencies: readonly Pick<
    Dependency,
    'id' | 'name' | 'artifactHash' | 'launchCommand' | 'environment' | 'libraryPath'
  >[];
};

const replace = prepared(db =>
  db.orm
    .insert(buildInputs)
    .values({
      buildId: sql.placeholder('buildId'),
      digest: sql.placeholder('digest'),
      inputs: sql.placeholder('inputs'),
    })
    .onConflictDoUpdate({
      target: buildInputs.buildId,
      set: { digest: sql`excluded.digest`, inputs: sql`excluded.inputs` },
    })
    .prepare(),
);

/** Replaces what an earlier attempt of the build used. */
export function recordInputs(db: Db, build: { id: bigint; projectId: bigint }, used: UsedInputs): void {
  const fingerprint = (kind: string, text: string) =>
    db.vault.fingerprint(`${kind}\0${text}`, `project ${build.projectId}`);
  const inputs: BuildInputs = {
    command: used.command,
    image: used.image,
    imageId: used.imageId,
    variables: used.variables
      .map(({ name, content }) => ({ name, fingerprint: fingerprint(`variable ${name}`, content) }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    dependencies: used.dependencies.map(
      ({ id, name, artifactHash, launchCommand, environment, libraryPath }) => ({
        id: id.toString(),
        name,
        artifact: artifactHash,
        launch: fingerprint(
          'launch',
          environment === '' && libraryPath
            ? launchCommand
            : JSON.stringify([launchCommand, environment, libraryPath]),
        ),
      }),
    ),
    limits: used.limits,
  };
  db.write(() => replace(db).run({ buildId: build.id, digest: inputsDigest(inputs), inputs }));
}

/** Undefined for a build that never started, or that was started by a version without records of inputs. */
export function findInputs(db: Db, buildId: bigint): { digest: string; inputs: BuildInputs } | undefined {
  return db.orm
    .select({ digest: buildInputs.digest, inputs: buildInputs.inputs })
    .from(buildInputs)
    .where(eq(buildInputs.buildId, buildId))
    .get();
}

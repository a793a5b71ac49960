// Gives builds artifacts, as if they had been collected.
import { writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import { createZip } from '../../src/engine/archive/build-zip.ts';
import type { StoredEntry } from '../../src/engine/archive/zip-format.ts';
import { buildFilesPath } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { buildArtifacts } from '../../src/store/database/result-schema.ts';
import { builds } from '../../src/store/database/schema.ts';
import { type ArtifactCounts, replaceBuildArtifacts } from '../../src/store/result/build-artifacts.ts';

export type Files = Record<string, string | Buffer>;

async function writeZip(path: string, files: Files): Promise<StoredEntry[]> {
  await using zip = await createZip(path);
  for (const [name, content] of Object.entries(files)) {
    const bytes = Buffer.from(content);
    await zip.add(
      { path: name, sizeBytes: bytes.length, isExecutable: false, modifiedAt: new Date('2026-01-02') },
      (async function* () {
        for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
      })(),
    );
  }
  return await zip.finish();
}

const sizeOf = (entries: readonly StoredEntry[]) =>
  entries.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);

/** Writes the ZIP of the build and its index. */
export async function addArtifacts(db: Db, data: string, buildId: bigint, files: Files): Promise<void> {
  const entries = await writeZip(buildFilesPath(data, buildId), files);
  await replaceBuildArtifacts(
    db,
    buildId,
    entries.map(entry => ({ ...entry, report: false })),
  );
  setArtifactCounts(db, buildId, {
    artifacts: entries.length,
    artifactsBytes: sizeOf(entries),
    artifactsTruncated: false,
  });
}

const directory = await mkdtemp(join(tmpdir(), 'assay-planted-'));
const plantedEntries = await writeZip(join(directory, 'planted.zip'), {
  'coverage/index.html': '<h1>All is well</h1>\n',
});
const plantedZip = await readFile(join(directory, 'planted.zip'));
await rm(directory, { recursive: true });

/** Gives the build one artifact, coverage/index.html, inside a transaction of the caller. Returns its id. */
export function plantArtifact(db: Db, data: string, buildId: bigint): bigint {
  const [entry] = plantedEntries as [StoredEntry];
  writeFileSync(buildFilesPath(data, buildId), plantedZip);
  const id = db.newId();
  db.orm
    .insert(buildArtifacts)
    .values({ ...entry, id, buildId, report: false })
    .run();
  db.orm
    .update(builds)
    .set({ artifacts: 1, artifactsBytes: entry.sizeBytes })
    .where(eq(builds.id, buildId))
    .run();
  return id;
}

/** Shows the artifacts in the build's record, as its verdict does. */
export function setArtifactCounts(db: Db, buildId: bigint, counts: ArtifactCounts): void {
  db.write(() => {
    db.orm.update(builds).set(counts).where(eq(builds.id, buildId)).run();
    db.touch(`build:${buildId}`);
  });
}

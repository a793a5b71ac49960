// Decides which dependencies an import creates, replaces or leaves, and records it in one transaction.

import { existsSync } from 'node:fs';
import { eq } from 'drizzle-orm';
import { UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import type { ExportedDependency, Manifest } from '../../domain/dependency-export.ts';
import { nameKey } from '../../domain/names.ts';
import { trustAppliance } from '../appliance.ts';
import { createArtifact } from '../artifacts.ts';
import { DataError } from '../data/data.ts';
import { archivePath, artifactPath } from '../data/paths.ts';
import type { Db } from '../database/db.ts';
import { dependencies } from '../database/dependency-schema.ts';
import { createDependency, updateDependency } from '../dependencies.ts';
import { type Dependency, listDependents, listRelated, listRelatedVersions } from '../dependency-use.ts';
import { type ImageSettings, isImageUsable } from '../images.ts';
import { moveDependency, recompileAutomatically } from '../transition.ts';

export type ImportOptions = {
  ownerId: bigint;
  data: string;
  images: ImageSettings;
  /** Another name for the dependency that was exported. */
  name?: string | undefined;
};

export type ImportStep = {
  exported: ExportedDependency;
  name: string;
  image: string | null;
  /** What the account has under the name. */
  existing: Dependency | undefined;
  action: 'create' | 'replace' | 'keep';
};

/** Steps with the action `replace` change what the account has, so somebody has to agree. */
export function planImport(
  db: Db,
  { dependencies: exported }: Manifest,
  options: ImportOptions,
): ImportStep[] {
  const own = db.orm.select().from(dependencies).where(eq(dependencies.ownerId, options.ownerId)).all();
  const named = (name: string) => own.find(one => nameKey(one.name) === nameKey(name));
  const steps: ImportStep[] = [];
  const stepFor = (one: ExportedDependency, name: string): ImportStep => {
    const existing = named(name);
    const image = one.image !== null && isImageUsable(db, options.images, one.image) ? one.image : null;
    const step = { exported: one, name, image, existing };
    const isSame = existing !== undefined && isUnchanged(db, options.data, { ...step, existing }, steps);
    return { ...step, action: existing === undefined ? 'create' : isSame ? 'keep' : 'replace' };
  };
  for (const [position, one] of exported.entries()) {
    const isLast = position === exported.length - 1;
    const step = stepFor(one, isLast ? (options.name ?? one.name) : one.name);
    // With a name of its own, the import leaves other related dependencies of the account alone too.
    const isOther = !isLast && options.name !== undefined && step.action === 'replace';
    steps.push(isOther ? stepFor(one, `${one.name} (${options.name})`) : step);
  }
  for (const { existing, action } of steps)
    if (action === 'replace' && existing && UNFINISHED_COMPILES.includes(existing.compileState))
      throw new DataError(`${existing.name} is waiting for its compile, or compiling: import it afterwards`);
  return steps;
}

/** The columns that an import sets. */
const recipeOf = ({ exported, image }: Pick<ImportStep, 'exported' | 'image'>) => ({
  description: exported.description,
  command: exported.command,
  prefix: exported.prefix,
  source: exported.source,
  launchCommand: exported.launch_command,
  launchSeconds: exported.launch_timeout,
  environment: exported.environment,
  libraryPath: exported.library_path,
  recompile: exported.recompile,
  image,
});

/** Whether the account has exactly this, with its files. */
function isUnchanged(
  db: Db,
  data: string,
  step: Omit<ImportStep, 'action'> & { existing: Dependency },
  before: readonly ImportStep[],
): boolean {
  const { exported, existing } = step;
  const { archive, artifact } = exported;
  const related = exported.related.map(position => before[position]);
  const isRelated = (found: readonly Dependency[]) =>
    found.length === related.length && found.every(({ id }, at) => id === related[at]?.existing?.id);
  return (
    existing.compileState === 'compiled' &&
    existing.artifactHash === artifact.hash &&
    existsSync(artifactPath(data, artifact.hash)) &&
    (archive === null ||
      (existing.archiveHash === archive.sha256 && existsSync(archivePath(data, archive.sha256)))) &&
    Object.entries(recipeOf(step)).every(
      ([column, value]) => existing[column as keyof ReturnType<typeof recipeOf>] === value,
    ) &&
    related.every(one => one?.action === 'keep') &&
    isRelated(listRelated(db, existing.id)) &&
    isRelated(listRelatedVersions(db, { ...existing, kept: null }))
  );
}

export type RecordOptions = ImportOptions & {
  manifest: Manifest;
  fingerprint: string;
  /** What somebody agreed to. */
  steps: readonly ImportStep[];
  /** Of the imported artifacts, by hash. */
  files: ReadonlyMap<string, number>;
  /** Called inside the transaction for each dependency that changes, to put its log in place. */
  onRecorded(id: bigint, position: number): void;
};

/** Records all of it, or nothing. Throws DataError if the dependencies of the account have changed since the plan. */
export function recordImport(db: Db, options: RecordOptions): Dependency[] {
  const { manifest, steps } = options;
  return db.write(() => {
    const current = planImport(db, manifest, options);
    const isAsPlanned = current.every(
      ({ action, existing, name }, at) =>
        action === steps[at]?.action && existing?.id === steps[at]?.existing?.id && name === steps[at]?.name,
    );
    if (!isAsPlanned)
      throw new DataError('the dependencies of the account changed during the import: import the file again');
    trustAppliance(db, { fingerprint: options.fingerprint, name: manifest.appliance.name });
    const imported: Dependency[] = [];
    for (const [position, step] of current.entries()) {
      if (step.action === 'keep') imported.push(step.existing as Dependency);
      else {
        imported.push(recordStep(db, options, step, imported));
        options.onRecorded(imported.at(-1)!.id, position);
      }
    }
    // Last, because some of them may be imported as well.
    for (const [position, { id }] of imported.entries())
      if (current[position]?.action !== 'keep') recompileAutomatically(db, listDependents(db, id));
    return imported;
  });
}

function recordStep(
  db: Db,
  { ownerId, files }: RecordOptions,
  step: ImportStep,
  before: readonly Dependency[],
): Dependency {
  const { exported, existing, name } = step;
  const { archive, artifact } = exported;
  const related = exported.related.map(position => (before[position] as Dependency).id);
  createArtifact(db, {
    hash: artifact.hash,
    prefix: artifact.prefix,
    sizeBytes: artifact.size_bytes,
    files: files.get(artifact.hash) ?? null,
  });
  const { id } = existing
    ? updateDependency(db, existing, recipeOf(step), related)
    : createDependency(db, ownerId, { name, ...recipeOf(step) }, related);
  const moved = moveDependency(db, id, 'import', {
    archiveHash: archive?.sha256 ?? null,
    archiveFileSize: archive?.size_bytes ?? null,
    archiveContentType: archive?.content_type ?? null,
    artifactHash: artifact.hash,
    // A recipe is the promise of a compile here: another appliance cannot make it.
    recipeHash: null,
    relatedArtifacts: exported.related_artifacts === null ? null : JSON.stringify(exported.related_artifacts),
    compileSteps: null,
    startedAt: null,
    error: null,
    attempts: 0,
    spentMs: 0,
    forced: false,
    cancelRequested: false,
  });
  if (!moved) throw new DataError(`${name} is compiling: import it afterwards`);
  return moved;
}

// The manifest of an exported dependency: what its file contains, and the validation of one that another appliance wrote.

import { checkEnvironment, LAUNCH_SECONDS } from './dependency.ts';
import { checkCommand, checkImageName, checkLine, checkPrefix, checkSource, nameKey } from './names.ts';

/** With the field names of the API. */
export type ExportedDependency = {
  name: string;
  description: string;
  command: string;
  prefix: string;
  source: string;
  launch_command: string;
  launch_timeout: number;
  environment: string;
  library_path: boolean;
  recompile: boolean;
  image: string | null;
  /** Positions of related dependencies in the list. Each comes before this one. */
  related: number[];
  /** Null if it was exported without its source. */
  archive: { sha256: string; size_bytes: number; content_type: string } | null;
  /** The size is that of all files, unpacked. */
  artifact: { hash: string; prefix: string; size_bytes: number };
  /** The artifacts that it was compiled with; null if that is not known. */
  related_artifacts: string[] | null;
  compiled_at: string | null;
};

export type ExportedFile = { name: string; size_bytes: number; sha256: string };

export type Manifest = {
  format: typeof EXPORT_FORMAT;
  version: number;
  /** The version of Assay that wrote it. */
  assay: string;
  created_at: string;
  appliance: { name: string; public_key: string };
  /** As in process.arch. */
  architecture: string;
  /** The operating system of the exporting appliance, and the IDs of the images by name. For information. */
  system: string;
  images: Record<string, string>;
  /** Related dependencies first. The last one is the one that was exported. */
  dependencies: ExportedDependency[];
  /** In the order of the file. */
  files: ExportedFile[];
};

export const EXPORT_FORMAT = 'assay-dependency';
export const EXPORT_VERSION = 1;
const MAX_DEPENDENCIES = 1_000;
const TEXT_BYTES = 64 * 1024;

/** The message says what is wrong with the file. */
export class BadExport extends Error {}

export const archiveName = (sha256: string) => `archives/${sha256}`;
export const artifactName = (hash: string) => `artifacts/${hash}.tar.zst`;

/** The names of the files that the dependencies need, each once, in the order of the file. */
export function exportedNames(dependencies: readonly ExportedDependency[]): string[] {
  return [
    ...new Set(
      dependencies.flatMap(({ archive, artifact }) => [
        ...(archive ? [archiveName(archive.sha256)] : []),
        artifactName(artifact.hash),
      ]),
    ),
  ];
}

/** The key that the manifest says it is signed with. Throws BadExport if this is no manifest, or one of a newer version. */
export function publicKeyIn(text: string): string {
  const given = readObject(text);
  if (given.format !== EXPORT_FORMAT) throw new BadExport('it is not an exported dependency');
  if (typeof given.version === 'number' && given.version > EXPORT_VERSION)
    throw new BadExport(
      `a newer Assay (${lineAt(given.assay, 'assay')}) wrote it: upgrade this appliance first`,
    );
  return textAt(objectAt(given.appliance, 'appliance').public_key, 'appliance.public_key');
}

function readObject(text: string): Record<string, unknown> {
  try {
    return objectAt(JSON.parse(text), 'it');
  } catch {
    throw new BadExport('its manifest is not JSON');
  }
}

/** Throws BadExport unless it is a complete manifest whose every value this version could have written. */
export function parseManifest(text: string): Manifest {
  const given = readObject(text);
  const appliance = objectAt(given.appliance, 'appliance');
  const dependencies = listAt(given.dependencies, 'dependencies', MAX_DEPENDENCIES).map(parseDependency);
  if (dependencies.length === 0) throw new BadExport('it contains no dependency');
  if (new Set(dependencies.map(({ name }) => nameKey(name))).size < dependencies.length)
    throw new BadExport('it contains two dependencies of the same name');
  const manifest: Manifest = {
    format: EXPORT_FORMAT,
    version: EXPORT_VERSION,
    assay: lineAt(given.assay, 'assay'),
    created_at: timeAt(given.created_at, 'created_at'),
    appliance: {
      name: lineAt(appliance.name, 'appliance.name'),
      public_key: publicKeyIn(text),
    },
    architecture: lineAt(given.architecture, 'architecture'),
    system: lineAt(given.system, 'system'),
    images: Object.fromEntries(
      Object.entries(objectAt(given.images, 'images')).map(([name, id]) => [name, lineAt(id, 'images')]),
    ),
    dependencies,
    files: listAt(given.files, 'files', 2 * MAX_DEPENDENCIES).map(parseFile),
  };
  checkFiles(manifest);
  return manifest;
}

/** The files are exactly those that the dependencies refer to. */
function checkFiles({ dependencies, files }: Manifest): void {
  const expected = exportedNames(dependencies);
  if (files.length !== expected.length || files.some(({ name }, at) => name !== expected[at]))
    throw new BadExport('its files are not those of its dependencies');
  for (const { archive } of dependencies) {
    const file = archive && files.find(({ name }) => name === archiveName(archive.sha256));
    if (file && (file.sha256 !== archive.sha256 || file.size_bytes !== archive.size_bytes))
      throw new BadExport('a source archive does not have the checksum of its dependency');
  }
}

function parseFile(value: unknown): ExportedFile {
  const given = objectAt(value, 'files');
  return {
    name: lineAt(given.name, 'files.name'),
    size_bytes: sizeAt(given.size_bytes, 'files.size_bytes'),
    sha256: hashAt(given.sha256, 'files.sha256'),
  };
}

function parseDependency(value: unknown, position: number): ExportedDependency {
  const given = objectAt(value, 'dependencies');
  const archive = given.archive === null ? null : objectAt(given.archive, 'archive');
  const artifact = objectAt(given.artifact, 'artifact');
  const prefix = checkedAt(given.prefix, 'prefix', checkPrefix);
  const related = listAt(given.related, 'related', MAX_DEPENDENCIES).map(at => sizeAt(at, 'related'));
  // Each comes before this one, so there is no cycle.
  if (new Set(related).size < related.length || related.some(at => at >= position)) throw bad('related');
  const launchTimeout = sizeAt(given.launch_timeout, 'launch_timeout');
  if (launchTimeout < LAUNCH_SECONDS.min || launchTimeout > LAUNCH_SECONDS.max) throw bad('launch_timeout');
  const name = lineAt(given.name, 'name');
  if (nameKey(name) === '' || name !== name.trim()) throw bad('name');
  return {
    name,
    description: textAt(given.description, 'description'),
    // Without its source, the command is only for information.
    command: checkedAt(given.command, 'command', text => (archive ? checkCommand(text, prefix) : undefined)),
    prefix,
    source: checkedAt(given.source, 'source', checkSource),
    launch_command: textAt(given.launch_command, 'launch_command'),
    launch_timeout: launchTimeout,
    environment: checkedAt(given.environment, 'environment', checkEnvironment),
    library_path: flagAt(given.library_path, 'library_path'),
    recompile: flagAt(given.recompile, 'recompile'),
    image: given.image === null ? null : checkedAt(given.image, 'image', checkImageName),
    related,
    archive: archive && {
      sha256: hashAt(archive.sha256, 'archive.sha256'),
      size_bytes: sizeAt(archive.size_bytes, 'archive.size_bytes'),
      content_type: lineAt(archive.content_type, 'archive.content_type'),
    },
    artifact: {
      hash: hashAt(artifact.hash, 'artifact.hash'),
      prefix: checkedAt(artifact.prefix, 'artifact.prefix', checkPrefix),
      size_bytes: sizeAt(artifact.size_bytes, 'artifact.size_bytes'),
    },
    related_artifacts:
      given.related_artifacts === null
        ? null
        : listAt(given.related_artifacts, 'related_artifacts', MAX_DEPENDENCIES).map(one =>
            hashAt(one, 'related_artifacts'),
          ),
    compiled_at: given.compiled_at === null ? null : timeAt(given.compiled_at, 'compiled_at'),
  };
}

const bad = (field: string) => new BadExport(`its manifest has an invalid value in ${field}`);

function objectAt(value: unknown, field: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad(field);
  return value as Record<string, unknown>;
}

function listAt(value: unknown, field: string, max: number): unknown[] {
  if (!Array.isArray(value) || value.length > max) throw bad(field);
  return value;
}

function textAt(value: unknown, field: string): string {
  const isText = typeof value === 'string' && value.isWellFormed() && !value.includes('\0');
  if (!isText || new TextEncoder().encode(value).length > TEXT_BYTES) throw bad(field);
  return value;
}

function checkedAt(value: unknown, field: string, check: (text: string) => string | undefined): string {
  const text = textAt(value, field);
  if (check(text) !== undefined) throw bad(field);
  return text;
}

const lineAt = (value: unknown, field: string) => checkedAt(value, field, checkLine);
const hashAt = (value: unknown, field: string) =>
  checkedAt(value, field, text => (/^[0-9a-f]{64}$/.test(text) ? undefined : 'invalid'));
const timeAt = (value: unknown, field: string) =>
  checkedAt(value, field, text => (/^\d{4}-\d\d-\d\dT[\d:.]{8,12}Z$/.test(text) ? undefined : 'invalid'));

function sizeAt(value: unknown, field: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw bad(field);
  return value as number;
}

function flagAt(value: unknown, field: string): boolean {
  if (typeof value !== 'boolean') throw bad(field);
  return value;
}

// The records of dependencies: their schemas, and functions that create them from rows.

import {
  type CompileState,
  compileMachine,
  LAUNCH_SECONDS,
  type MarketplaceState,
  marketplaceState,
} from '../../domain/dependency.ts';
import { idPair, ids, record, shape, wireId, wireTime } from '../wire.ts';
import { waitingShape } from './build.ts';

// The API calls the string form of a dependency's id `id_ref` in some records and `id_str` in others.
export const idRef = { id: shape.id(), id_ref: shape.idString };
export const withRef = (dependency: { id: bigint }) => ({
  id: wireId(dependency.id),
  id_ref: dependency.id.toString(),
});

const instructions = {
  name: shape.string('Name.'),
  description: shape.string('Arbitrary text.'),
  command: shape.string('Compile command; contains the prefix.'),
  prefix: shape.string('Where compiled artifacts are looked up.'),
  source: shape.string('Directory inside the archive to enter before the command runs.'),
};
const launch = { launch_command: shape.string('Starts the dependency before the suite; empty for none.') };
/** Each is present only if it was set. */
const settings = {
  launch_timeout: shape.integer('Present when set: how many seconds the launch command may take.'),
  environment: shape.string('Present when set: variables for its users, as lines of NAME=value.'),
  library_path: shape.boolean('Present when false: its libraries are not on LD_LIBRARY_PATH.'),
  recompile: shape.boolean(
    'Present when true: it is compiled again when the artifact of a related dependency changes.',
  ),
};
const settingNames = ['launch_timeout', 'environment', 'library_path', 'recompile'] as const;
const image = { image: shape.string('Present when set: the image that it is compiled in.') };
const marketplace = (states: readonly MarketplaceState[]) => ({
  marketplace_state: shape.oneOf(states, 'State of the dependency.'),
});
const shownStates: MarketplaceState[] = [...(Object.keys(compileMachine) as CompileState[]), 'shared'];

export const createdDependencyShape = record(
  'CreatedDependency',
  { ...idRef, ...instructions, ...launch, ...settings, ...marketplace(['private']), ...image },
  ['image', ...settingNames],
);
export const uploadedDependencyShape = record(
  'UploadedDependency',
  {
    ...ids,
    ...instructions,
    archive_file_size: shape.integer('Bytes of the archive.'),
    ...launch,
    ...settings,
    ...marketplace(['enqueued_for_compile']),
    ...image,
  },
  ['image', ...settingNames],
);
export const keptSince = {
  kept_since: shape.time(
    'Present when the dependency is no longer shared: since when the version of that time is used.',
  ),
};
const relatedDependency = record(
  'RelatedDependency',
  {
    ...idRef,
    name: shape.string('Name of the related dependency.'),
    prefix: shape.string('Where its compiled artifacts are.'),
    ...keptSince,
  },
  ['kept_since'],
);
export const dependencyShape = record(
  'Dependency',
  {
    ...ids,
    ...instructions,
    archive_content_type: shape.nullable(shape.string('As detected; null before upload.')),
    archive_file_size: shape.nullable(shape.integer('Bytes of the archive; null before upload.')),
    ...launch,
    ...settings,
    related_dependencies: shape.list(relatedDependency),
    ...marketplace(shownStates),
    ...image,
    artifact: record(
      'DependencyArtifact',
      {
        size: shape.integer('Bytes of its files.'),
        files: shape.integer(
          'Number of files and links; absent if it was compiled before they were counted.',
        ),
        created_at: shape.time('When it was compiled.'),
      },
      ['files'],
    ),
    error: shape.string('Present when the last compile did not succeed: the reason.'),
    waiting: waitingShape,
    outdated: shape.boolean(
      'Present when true: a dependency that it relates to has another artifact than the one it was compiled with.',
    ),
  },
  ['image', 'artifact', 'error', 'waiting', 'outdated', ...settingNames],
);

type Instructions = {
  id: bigint;
  name: string;
  description: string;
  command: string;
  prefix: string;
  source: string;
  launchCommand: string;
  launchSeconds: number;
  environment: string;
  libraryPath: boolean;
  recompile: boolean;
  image: string | null;
};

const presentInstructions = (dependency: Instructions) => ({
  name: dependency.name,
  description: dependency.description,
  command: dependency.command,
  prefix: dependency.prefix,
  source: dependency.source,
});
const presentSettings = (dependency: Instructions) => ({
  ...(dependency.launchSeconds !== LAUNCH_SECONDS.defaultValue && {
    launch_timeout: dependency.launchSeconds,
  }),
  ...(dependency.environment !== '' && { environment: dependency.environment }),
  ...(!dependency.libraryPath && { library_path: false }),
  ...(dependency.recompile && { recompile: true }),
  ...(dependency.image !== null && { image: dependency.image }),
});

export function presentCreatedDependency(dependency: Instructions) {
  return {
    ...withRef(dependency),
    ...presentInstructions(dependency),
    launch_command: dependency.launchCommand,
    marketplace_state: 'private',
    ...presentSettings(dependency),
  };
}

export function presentUploadedDependency(dependency: Instructions & { archiveFileSize: number | null }) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    marketplace_state: 'enqueued_for_compile',
    ...presentSettings(dependency),
  };
}

export function presentDependency(
  dependency: Instructions & {
    archiveContentType: string | null;
    archiveFileSize: number | null;
    compileState: CompileState;
    shared: boolean;
    error: string | null;
  },
  related: readonly { id: bigint; name: string; prefix: string; kept: { createdAt: number } | null }[],
  {
    artifact,
    waiting,
    outdated,
  }: {
    artifact: { sizeBytes: number; files: number | null; createdAt: number } | undefined;
    waiting?: { position: number; reason: string } | undefined;
    outdated: boolean;
  },
) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_content_type: dependency.archiveContentType,
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    related_dependencies: related.map(one => ({
      ...withRef(one),
      name: one.name,
      prefix: one.prefix,
      ...(one.kept && { kept_since: wireTime(one.kept.createdAt) }),
    })),
    marketplace_state: marketplaceState(dependency),
    ...presentSettings(dependency),
    ...(artifact && {
      artifact: {
        size: artifact.sizeBytes,
        ...(artifact.files !== null && { files: artifact.files }),
        created_at: wireTime(artifact.createdAt),
      },
    }),
    ...(dependency.error !== null && { error: dependency.error }),
    ...(waiting && { waiting }),
    ...(outdated && { outdated }),
  };
}

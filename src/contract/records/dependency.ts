// The records of dependencies: their schemas, and functions that create them from rows.

import {
  type CompileState,
  compileMachine,
  type MarketplaceState,
  marketplaceState,
} from '../../domain/dependency.ts';
import { idPair, ids, record, shape, wireId } from '../wire.ts';

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
const image = { image: shape.string('Present when set: the image that it is compiled in.') };
const marketplace = (states: readonly MarketplaceState[]) => ({
  marketplace_state: shape.oneOf(states, 'State of the dependency.'),
});
const shownStates: MarketplaceState[] = [...(Object.keys(compileMachine) as CompileState[]), 'shared'];

export const createdDependencyShape = record(
  'CreatedDependency',
  { ...idRef, ...instructions, ...launch, ...marketplace(['private']), ...image },
  ['image'],
);
export const uploadedDependencyShape = record(
  'UploadedDependency',
  {
    ...ids,
    ...instructions,
    archive_file_size: shape.integer('Bytes of the archive.'),
    ...launch,
    ...marketplace(['enqueued_for_compile']),
    ...image,
  },
  ['image'],
);
const relatedDependency = record('RelatedDependency', {
  ...idRef,
  name: shape.string('Name of the related dependency.'),
  prefix: shape.string('Where its compiled artifacts are.'),
});
export const dependencyShape = record(
  'Dependency',
  {
    ...ids,
    ...instructions,
    archive_content_type: shape.nullable(shape.string('As detected; null before upload.')),
    archive_file_size: shape.nullable(shape.integer('Bytes of the archive; null before upload.')),
    ...launch,
    related_dependencies: shape.list(relatedDependency),
    ...marketplace(shownStates),
    ...image,
    error: shape.string('Present when the last compile did not succeed: the reason.'),
  },
  ['image', 'error'],
);

type Instructions = {
  id: bigint;
  name: string;
  description: string;
  command: string;
  prefix: string;
  source: string;
  launchCommand: string;
  image: string | null;
};

const presentInstructions = (dependency: Instructions) => ({
  name: dependency.name,
  description: dependency.description,
  command: dependency.command,
  prefix: dependency.prefix,
  source: dependency.source,
});
const presentImage = ({ image }: { image: string | null }) => image !== null && { image };

export function presentCreatedDependency(dependency: Instructions) {
  return {
    ...withRef(dependency),
    ...presentInstructions(dependency),
    launch_command: dependency.launchCommand,
    marketplace_state: 'private',
    ...presentImage(dependency),
  };
}

export function presentUploadedDependency(dependency: Instructions & { archiveFileSize: number | null }) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    marketplace_state: 'enqueued_for_compile',
    ...presentImage(dependency),
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
  related: readonly { id: bigint; name: string; prefix: string }[],
) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_content_type: dependency.archiveContentType,
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    related_dependencies: related.map(one => ({ ...withRef(one), name: one.name, prefix: one.prefix })),
    marketplace_state: marketplaceState(dependency),
    ...presentImage(dependency),
    ...(dependency.error !== null && { error: dependency.error }),
  };
}

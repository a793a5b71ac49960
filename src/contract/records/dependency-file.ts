// The record of a file or directory in the artifact of a dependency.

import type { ArtifactEntry, ArtifactEntryType } from '../../domain/artifact-entry.ts';
import { idPair, ids, record, shape } from '../wire.ts';

const types: readonly ArtifactEntryType[] = ['file', 'directory', 'link', 'symlink', 'fifo'];

export const dependencyFileShape = record(
  'DependencyFile',
  {
    ...ids,
    path: shape.string('Path relative to the prefix, such as `lib/libz.so`.'),
    type: shape.oneOf(types, 'What it is. `link` is another name of a file.'),
    mode: shape.string('Permissions in octal, such as `0755`.'),
    size: shape.integer('Bytes; of a directory: of all files in it and in the directories below.'),
    files: shape.integer(
      'Only of directories: the number of files and links in it and in the directories below.',
    ),
    target: shape.string('Only of links: where it points to.'),
  },
  ['files', 'target'],
);

export function presentDependencyFile(directory: string, entry: Omit<ArtifactEntry, 'offset'>) {
  return {
    ...idPair('id', entry.id),
    path: directory === '' ? entry.name : `${directory}/${entry.name}`,
    type: entry.type,
    mode: entry.mode.toString(8).padStart(4, '0'),
    size: entry.sizeBytes,
    ...(entry.type === 'directory' && { files: entry.files }),
    ...(entry.target !== null && { target: entry.target }),
  };
}

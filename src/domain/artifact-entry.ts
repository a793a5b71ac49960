// The entries of a dependency's artifact.

export type ArtifactEntryType = 'file' | 'directory' | 'link' | 'symlink' | 'fifo';

/** An entry of the tar. */
export type ArtifactTarEntry = {
  /** Relative to the prefix; empty for the prefix itself. */
  path: string;
  type: ArtifactEntryType;
  mode: number;
  sizeBytes: number;
  /** Of a link: relative to the prefix if it is a hard link, as written if it is symbolic. */
  target: string | null;
  /** Where its content begins in the plain tar. */
  offset: number;
};

/** An entry as an index of the artifact lists it. */
export type ArtifactEntry = {
  id: bigint;
  name: string;
  type: ArtifactEntryType;
  mode: number;
  /** Of a directory: of everything in it. */
  sizeBytes: number;
  /** How many files and links are in a directory, also in directories inside it. */
  files: number;
  target: string | null;
  offset: number;
};

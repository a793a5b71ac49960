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

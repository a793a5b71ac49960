// What a build was made of, apart from its commit.

export type BuildInputs = {
  command: string;
  /** The name that the suite or the default gave. */
  image: string;
  /** The id of the image that the name stood for; null if it was not known. */
  imageId: string | null;
  /** In order of name. The fingerprint shows whether two values are equal, and nothing else. */
  variables: { name: string; fingerprint: string }[];
  /** In launch order. */
  dependencies: { id: string; name: string; artifact: string }[];
  /** The limits of the container, by the name of their setting. */
  limits: Record<string, string | number>;
};

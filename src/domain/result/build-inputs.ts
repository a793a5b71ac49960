// What a build was made of, apart from its commit.

import { createHash } from 'node:crypto';

export type BuildInputs = {
  command: string;
  /** The name that the suite or the default gave. */
  image: string;
  /** Identifies the content of the image; null until the image is prepared, just before the container starts. */
  imageId: string | null;
  /** In order of name; empty for a build that gets none. A fingerprint shows whether two values are equal, and nothing else. */
  variables: { name: string; fingerprint: string }[];
  /** In launch order. */
  dependencies: DependencyInput[];
  /** The limits of the container, by the name of their setting. */
  limits: Record<string, string | number>;
};

export type DependencyInput = {
  id: string;
  name: string;
  /** The hash of its artifact; null if it was never compiled. */
  artifact: string | null;
  /** The fingerprint of its launch command and its environment. */
  launch: string;
};

/** Equal for two builds with the same inputs. Names of dependencies and images are not inputs. */
export function inputsDigest({
  command,
  image,
  imageId,
  variables,
  dependencies,
  limits,
}: BuildInputs): string {
  const inputs = [
    command,
    imageId ?? image,
    variables.map(({ name, fingerprint }) => [name, fingerprint]),
    dependencies.map(({ artifact, launch }) => [artifact, launch]),
    Object.entries(limits).toSorted(([a], [b]) => (a < b ? -1 : 1)),
  ];
  return createHash('sha256').update(JSON.stringify(inputs)).digest('hex');
}

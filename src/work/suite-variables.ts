// The variables of a build while it runs: the file that its container reads them from, and, sealed, what is to be masked.

import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { renderEnvironment } from '../domain/container/entry-script.ts';
import type { Vault } from '../store/database/vault.ts';

export type Variable = { name: string; content: string };

/** Half of what Linux gives a process for arguments and environment: past it nothing at all could be started. */
const MOST_BYTES = 1024 * 1024;
export const TOO_MUCH = `The suite's environment variables are more than ${MOST_BYTES} bytes in all.`;

export function isTooMuch(variables: readonly Variable[]): boolean {
  const bytes = variables.reduce(
    (sum, { name, content }) => sum + name.length + Buffer.byteLength(content),
    0,
  );
  return bytes > MOST_BYTES;
}

const secretsPlace = (row: bigint) => ({ table: 'jobs', column: 'secrets', row });
const secretsFile = (directory: string) => join(directory, 'secrets');
export const environmentFile = (directory: string) => join(directory, 'environment');

/**
 * A variable may be changed while the container runs with the old value, which stays masked after a restart too. Both
 * files go with the directory of the job.
 */
export async function keepVariables(
  vault: Vault,
  buildId: bigint,
  directory: string,
  variables: readonly Variable[],
): Promise<void> {
  if (variables.length === 0) return;
  const contents = JSON.stringify(variables.map(({ content }) => content));
  await writeFile(secretsFile(directory), vault.seal(contents, secretsPlace(buildId)), { mode: 0o600 });
  await writeFile(environmentFile(directory), renderEnvironment(variables), { mode: 0o600 });
  // For whatever user the container has; nobody else gets past the job's own directory.
  await chmod(environmentFile(directory), 0o644);
}

/** Undefined where none were kept; what is there and cannot be read must not pass for that, or it would not be masked. */
export async function readKeptSecrets(
  vault: Vault,
  buildId: bigint,
  directory: string,
): Promise<string[] | undefined> {
  const sealed = await readFile(secretsFile(directory)).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
  });
  return sealed && JSON.parse(vault.open(sealed, secretsPlace(buildId)));
}

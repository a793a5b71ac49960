// Writes the variables of a running job to two files in its directory: one that the container reads, and an encrypted one
// with the values to mask.

import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type MountedDependency,
  searchPathsOf,
  variablesOfDependencies,
} from '../domain/container/dependency-environment.ts';
import { renderEnvironment } from '../domain/container/entry-script.ts';
import type { Vault } from '../store/database/vault.ts';
import type { Variable } from '../store/suites.ts';
import { CannotRun } from './job.ts';

/** Half of what Linux allows for arguments and environment together. With more, no process can start. */
const MAX_BYTES = 1024 * 1024;
const VARIABLES_TOO_LARGE = `The environment variables exceed ${MAX_BYTES} bytes in total.`;

function areTooLarge(variables: readonly Pick<Variable, 'name' | 'content'>[]): boolean {
  const bytes = variables.reduce(
    (sum, { name, content }) => sum + name.length + Buffer.byteLength(content),
    0,
  );
  return bytes > MAX_BYTES;
}

/** The file is in no table. The name binds it to its build. */
const secretsCell = (row: bigint) => ({ table: 'jobs', column: 'secrets', row });
const secretsFile = (directory: string) => join(directory, 'secrets');

/** The masked values are stored because a variable may change while the container runs with the old value. */
export async function writeSecrets(
  vault: Vault,
  buildId: bigint,
  directory: string,
  variables: readonly Variable[],
): Promise<void> {
  if (variables.length === 0) return;
  const contents = JSON.stringify(variables.map(({ content }) => content));
  await writeFile(secretsFile(directory), vault.seal(contents, secretsCell(buildId)), { mode: 0o600 });
}

export const environmentFileIn = (directory: string) => join(directory, 'environment');

/**
 * Writes what the commands of a container find in their environment: the variables, and the variables and search paths of
 * the dependencies, in search order. Returns the file, or undefined if there is nothing to set.
 */
export async function writeEnvironment(
  directory: string,
  variables: readonly Variable[],
  used: readonly MountedDependency[],
): Promise<string | undefined> {
  if (variables.length === 0 && used.length === 0) return undefined;
  const all = [...variablesOfDependencies(used), ...variables];
  if (areTooLarge(all)) throw new CannotRun(VARIABLES_TOO_LARGE);
  const file = environmentFileIn(directory);
  await writeFile(file, renderEnvironment(all, searchPathsOf(used)), { mode: 0o600 });
  // The user of the container reads it. On the host, the job's directory is private.
  await chmod(file, 0o644);
  return file;
}

/** Undefined if there is no file. Throws if it cannot be read, because its values would not be masked. */
export async function readSecrets(
  vault: Vault,
  buildId: bigint,
  directory: string,
): Promise<string[] | undefined> {
  const sealed = await readFile(secretsFile(directory)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  return sealed && JSON.parse(vault.open(sealed, secretsCell(buildId)));
}

// Writes the variables of a running build to two files in the directory of the job: one that the container reads, and an
// encrypted one with the values to mask.

import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { renderEnvironment } from '../domain/container/entry-script.ts';
import type { Vault } from '../store/database/vault.ts';
import type { Variable } from '../store/suites.ts';

/** Half of what Linux allows for arguments and environment together. With more, no process can start. */
const MAX_BYTES = 1024 * 1024;
export const VARIABLES_TOO_LARGE = `The suite's environment variables exceed ${MAX_BYTES} bytes in total.`;

export function areTooLarge(variables: readonly Variable[]): boolean {
  const bytes = variables.reduce(
    (sum, { name, content }) => sum + name.length + Buffer.byteLength(content),
    0,
  );
  return bytes > MAX_BYTES;
}

/** The file is in no table. The name binds it to its build. */
const secretsCell = (row: bigint) => ({ table: 'jobs', column: 'secrets', row });
const secretsFile = (directory: string) => join(directory, 'secrets');
export const environmentFile = (directory: string) => join(directory, 'environment');

/** The masked values are stored because a variable may change while the container runs with the old value. */
export async function writeVariables(
  vault: Vault,
  buildId: bigint,
  directory: string,
  variables: readonly Variable[],
): Promise<void> {
  if (variables.length === 0) return;
  const contents = JSON.stringify(variables.map(({ content }) => content));
  await writeFile(secretsFile(directory), vault.seal(contents, secretsCell(buildId)), { mode: 0o600 });
  await writeFile(environmentFile(directory), renderEnvironment(variables), { mode: 0o600 });
  // The user of the container reads it. On the host, the job's directory is private.
  await chmod(environmentFile(directory), 0o644);
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

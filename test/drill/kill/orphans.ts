// Finds what a server leaves behind that belongs to nothing: containers, volumes, networks, files and processes.
// Inspected from outside, while no work is in progress.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { databasePath } from '../../../src/store/data/paths.ts';
import { openSqlite } from '../../../src/store/database/db.ts';
import type { PrivateEngine } from '../support/engine.ts';
import type { DrillEnvironment } from '../support/environment.ts';

/** A file younger than this may belong to a record that is just being written; the sweep leaves it alone too. */
const GRACE_MS = 90_000;

/** `strict` also counts what the sweep would leave alone for now. */
export async function findOrphans(
  { data, engine }: Pick<DrillEnvironment, 'data' | 'engine'>,
  instance: string,
  strict: boolean,
): Promise<string[]> {
  return [
    ...(await findInDocker(data, instance, engine)),
    ...findFiles(data, strict),
    ...findProcesses(data),
  ];
}

const isGuard = (name: string) => name.includes('-guard-');
const isSandbox = (name: string) => name.includes('-sandbox-');

async function findInDocker(data: string, instance: string, { docker }: PrivateEngine): Promise<string[]> {
  const label = `label=assay.instance=${instance}`;
  const list = async (...args: string[]) =>
    (await docker(...args, '--filter', label)).split('\n').filter(Boolean);
  const named = await list('ps', '-a', '--format', '{{.Names}}');
  // One container checks the firewall rules while the program runs.
  const [, ...formerGuards] = named.filter(isGuard);
  // One holds the network of the next job.
  const [, ...moreSandboxes] = named.filter(isSandbox);
  const others = named.filter(name => !isGuard(name) && !isSandbox(name));
  const containers = [...others, ...formerGuards, ...moreSandboxes];
  const volumes = await list(
    'volume',
    'ls',
    '--format',
    '{{.Name}} {{.Label "assay.kind"}} {{.Label "assay.id"}}',
  );
  const networks = await list('network', 'ls', '--format', '{{.Name}}');
  const suites = idsIn(data, 'SELECT id FROM suites');
  const artifacts = idsIn(
    data,
    'SELECT volume FROM artifacts WHERE hash IN (SELECT artifact_hash FROM dependencies)',
  );
  const isLeft = async (line: string) => {
    const [name = '', kind, id = ''] = line.split(' ');
    if (kind === 'cache') return !suites.has(id);
    if (kind === 'artifact') return !artifacts.has(name);
    // They exist only as long as a build mounts them.
    if (kind === 'union' || kind === 'mountpoints')
      return (await docker('ps', '-q', '--filter', `volume=${name}`)) === '';
    return true;
  };
  const left: string[] = [];
  for (const line of volumes) if (await isLeft(line)) left.push(`volume ${line}`);
  const network = networkOf(instance);
  return [
    ...containers.map(name => `container ${name}`),
    ...left,
    // The instance's network, once: Docker would create a second one of the same name.
    ...networks
      .filter((name, at) => name !== network || networks.indexOf(name) !== at)
      .map(name => `network ${name}`),
  ];
}

const networkOf = (instance: string) =>
  `assay-${createHash('sha256').update(instance).digest('hex').slice(0, 8)}`;

function findFiles(data: string, strict: boolean): string[] {
  const names = (directory: string) => readdirSync(join(data, directory));
  const isOld = (path: string) => {
    const found = statSync(join(data, path), { throwIfNoEntry: false });
    return found && (strict || Date.now() - Math.max(found.mtimeMs, found.ctimeMs) > GRACE_MS);
  };
  const archives = idsIn(data, 'SELECT archive_hash FROM dependencies WHERE archive_hash IS NOT NULL');
  const artifacts = idsIn(data, 'SELECT hash FROM artifacts');
  const projects = idsIn(data, 'SELECT id FROM projects');
  const logs = idsIn(
    data,
    "SELECT 'build-' || id FROM builds UNION SELECT 'deploy-' || id FROM deploys UNION SELECT 'dependency-' || id FROM dependencies",
  );
  return [
    ...['jobs', 'uploads', 'tmp'].flatMap(directory => names(directory).map(name => `${directory}/${name}`)),
    ...names('archives')
      .filter(name => !archives.has(name) && isOld(`archives/${name}`))
      .map(name => `archives/${name}`),
    ...names('artifacts')
      .filter(name => !artifacts.has(name.split('.')[0] as string) && isOld(`artifacts/${name}`))
      .map(name => `artifacts/${name}`),
    ...names('mirrors')
      .filter(name => !projects.has(name.replace('.git', '')))
      .map(name => `mirrors/${name}`),
    ...names('logs')
      .filter(name => !logs.has(name.replace(/(\.compiled)?\.log(\.times)?$/, '')))
      .map(name => `logs/${name}`),
    ...readdirSync(data)
      .filter(name => /\.\d+$/.test(name))
      .map(name => `half-made ${name}`),
  ];
}

/** Programs that were started for the directory and outlived their parent. */
function findProcesses(data: string): string[] {
  const own = String(process.pid);
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && name !== own)
    .flatMap(pid => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
        return command.includes(`${data}/`) && !command.includes(' serve')
          ? [`process ${pid}: ${command}`]
          : [];
      } catch {
        // It ended during the check.
        return [];
      }
    });
}

function idsIn(data: string, query: string): Set<string> {
  const sqlite = openSqlite(databasePath(data), { readonly: true });
  try {
    sqlite.defaultSafeIntegers(true);
    return new Set((sqlite.prepare(query).pluck().all() as unknown[]).map(String));
  } finally {
    sqlite.close();
  }
}

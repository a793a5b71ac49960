// `assay node …`: prints the script that prepares a machine for a Docker Swarm, and lists the nodes.

import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { plain, table } from '../client/output.ts';
import { type Command, type Invocation, JSON_LINE, print, UsageError } from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import { readSettings, type Settings } from '../config.ts';
import type { EngineNode } from '../domain/node.ts';
import { registryOf } from '../domain/swarm.ts';
import { openSwarm, type SwarmState } from '../engine/swarm/swarm-state.ts';
import { DataError } from '../store/data/data.ts';
import { tlsDirectory } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { DATA_LINE, settingFlags, withData } from './command.ts';
import { nodeScript, SNAPSHOT_INTERVAL } from './node-script.ts';

const script: Command = {
  name: 'node script',
  summary: 'Prints a script that prepares a machine to run builds, for root on each node of a swarm.',
  positionals: [],
  flags: settingFlags,
  help: [
    'Run the script as root on every machine that runs builds, this server included. It joins the swarm, mounts the',
    'shared directory, and sets up Docker, the networks and a timer for old images. It may run again at any time.',
    'The script has the token with which machines join the swarm: treat it as a secret.',
    '',
    '  assay node script > node.sh; scp node.sh root@builder-2: ; ssh root@builder-2 sh node.sh',
    '',
    'CONCURRENCY is the number of slots of each node. The manual explains everything: assay help swarm',
    '',
    DATA_LINE,
    '  The other settings of "assay serve --help" are accepted too.',
  ],
  run: async invocation => {
    const { settings, shared } = swarmSettings(invocation);
    const { baseUrl } = settings;
    const { hostname } = new URL(baseUrl);
    if (isLoopback(hostname))
      throw new UsageError(
        `nodes cannot reach this server at ${baseUrl}: set BASE_URL to an address that they reach, and LISTEN to match`,
      );
    const authority = await readAuthority(settings);
    const swarm = openSwarm({ ...settings, environment: invocation.environment });
    try {
      const manager = await swarm.inspect();
      checkManager(manager);
      process.stdout.write(
        nodeScript({
          baseUrl,
          registry: registryOf(baseUrl),
          authority,
          manager: manager.address,
          managerId: manager.nodeId,
          token: await swarm.readWorkerToken(),
          shared,
          fileServer: manager.address.replace(/:\d+$/, ''),
          slots: settings.concurrency,
          cpus: settings.cpus,
          memoryBytes: settings.memoryBytes,
          runAs: settings.runAs,
        }),
      );
      return 0;
    } finally {
      swarm.close();
    }
  },
};

const list: Command = {
  name: 'node list',
  summary: 'Lists the machines that run builds, and what runs on each.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help: [
    'SLOTS are the builds and compiles that run there, and how many can. The last column says why a node gets none.',
    'To empty a node before maintenance, use "docker node update --availability pause NODE": what runs there ends',
    'normally. With drain it would be killed. Afterwards: --availability active',
    '',
    JSON_LINE,
    DATA_LINE,
  ],
  run: invocation =>
    withData(invocation, async (db, settings) => {
      const { shared } = settings;
      if (settings.engine !== 'swarm' || shared === undefined)
        return print(invocation, [], ['Builds run on this host only (setting ENGINE).']);
      const swarm = openSwarm({ ...settings, environment: invocation.environment });
      try {
        checkManager(await swarm.inspect());
        const nodes = await swarm.listNodes({ instance: instanceOf(db), shared });
        return print(invocation, nodes.map(present), table([HEADS, ...nodes.map(describe)]));
      } finally {
        swarm.close();
      }
    }),
};

const HEADS = [
  'NAME',
  'ROLE',
  'ADDRESS',
  'STATE',
  'AVAILABILITY',
  'SLOTS',
  'CPUS',
  'MEMORY',
  'DOCKER',
  'NOTE',
];

const describe = (node: EngineNode): string[] => [
  plain(node.name),
  node.role,
  node.address,
  plain(node.state),
  node.availability,
  `${node.running.length}/${node.slots}`,
  String(node.cpus),
  sizeText(node.memoryBytes),
  plain(node.engineVersion),
  plain(node.unusable ?? ''),
];

const present = (node: EngineNode) => ({
  id: node.id,
  name: node.name,
  role: node.role,
  address: node.address,
  state: node.state,
  availability: node.availability,
  slots: node.slots,
  running: node.running.map(({ kind, id }) => ({ kind, id })),
  cpus: node.cpus,
  memory_bytes: node.memoryBytes,
  docker_version: node.engineVersion,
  unusable: node.unusable ?? null,
});

function swarmSettings({ flags, environment }: Invocation): { settings: Settings; shared: string } {
  const { settings } = readSettings(flags, environment);
  if (settings.shared === undefined)
    throw new UsageError('there are no nodes: this server runs builds on one host (setting ENGINE)');
  return { settings, shared: settings.shared };
}

function checkManager({ state, isManager, managers }: SwarmState): void {
  if (state !== 'active')
    throw new DataError(
      `Docker is in no swarm yet (${state}): run "docker swarm init --snapshot-interval ${SNAPSHOT_INTERVAL} --advertise-addr ADDRESS" on this server, with its address for the other machines`,
    );
  if (!isManager)
    throw new DataError('Docker on this server is a worker: it must be the manager of the swarm');
  if (managers > 1)
    throw new DataError(
      `the swarm has ${managers} managers: this server must be the only one (docker node demote NODE)`,
    );
}

const isLoopback = (hostname: string) =>
  hostname === 'localhost' || hostname === '[::1]' || (isIP(hostname) === 4 && hostname.startsWith('127.'));

/** What nodes need to trust the server's certificate. Undefined if an administrator provides one that needs nothing. */
async function readAuthority({ tlsCert, caCerts, data }: Settings): Promise<string | undefined> {
  const path = tlsCert === undefined ? join(tlsDirectory(data), 'ca.pem') : caCerts;
  if (path === undefined) return undefined;
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new DataError(
      tlsCert === undefined && code === 'ENOENT'
        ? `there is no certificate authority in ${path} yet: start the server once, then run this again`
        : `${path} cannot be read (${code})`,
    );
  }
}

export const nodeCommands: readonly Command[] = [script, list];

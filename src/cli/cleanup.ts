// `assay cleanup`: removes what an instance has in Docker and in the firewall, where no server uses it any more.

import { createInterface } from 'node:readline/promises';
import { readSettings, UsageError } from '../config.ts';
import { createEngine, type Engine } from '../engine/docker/container.ts';
import { EngineRefused, EngineUnavailable } from '../engine/docker/docker.ts';
import { GUARD_KIND } from '../engine/docker/firewall.ts';
import {
  findTraces,
  removeContainersAndVolumes,
  removeMadeImages,
  removeNetworkAndRules,
  type Traces,
} from '../engine/docker/traces.ts';
import { DataError, lockDataDirectory } from '../store/data/data.ts';
import { inspectData } from '../store/database/inspect.ts';
import { type Command, helpOf, settingFlags } from './command.ts';

const say = (line: string) => void process.stdout.write(`${line}\n`);

export const cleanup: Command = {
  name: 'cleanup',
  summary: 'Removes what it has in Docker and in the firewall: for a server that is to be uninstalled.',
  positionals: [],
  flags: { ...settingFlags, instance: 'value', yes: 'flag' },
  help() {
    return helpOf(this, [
      'Containers, volumes (with the caches of suites), the network, its firewall rules, and images that Assay made;',
      'imported ones stay. The data directory stays as it is: a server that is started again makes what it needs, and',
      'runs builds again that were running. Refused while a server uses the directory.',
      '',
      '  --yes                 removes without asking',
      '  --instance ID         of a data directory that is gone; the label assay.instance says the ID:',
      '                        docker volume ls --filter label=assay.instance --format "{{.Labels}}"',
      '  --data DIRECTORY      the data directory [./assay-data]',
    ]);
  },
  async run({ flags, environment }) {
    const { settings } = readSettings(flags, environment);
    const given = flags.get('--instance');
    if (given !== undefined && !/^[\w-]{1,64}$/.test(given))
      throw new UsageError(`--instance must be an ID as the label assay.instance has it`);
    const instance = given ?? instanceIn(settings.data);
    const hold = given === undefined ? lockDataDirectory(settings.data) : undefined;
    const engine = createEngine({ dockerHost: settings.dockerHost, environment });
    try {
      if (given !== undefined) await refuseServed(engine, instance);
      const traces = await findTraces(engine, instance);
      describe(traces);
      if (!flags.has('--yes') && !(await isConfirmed())) {
        say('nothing was removed');
        return 1;
      }
      const removed = (what: string) => say(`removed ${what}`);
      await removeContainersAndVolumes(engine, instance, removed);
      await removeNetworkAndRules(engine, { instance, runAs: settings.runAs }, removed);
      // The container that removed the rules may still be there.
      await removeContainersAndVolumes(engine, instance);
      await removeMadeImages(engine, instance, removed);
      say(`nothing of the instance ${instance} is left`);
      return 0;
    } catch (cause) {
      // What Docker says is for the person who asked.
      if (cause instanceof EngineUnavailable || cause instanceof EngineRefused)
        throw new DataError(cause.message);
      throw cause;
    } finally {
      engine.door.close();
      hold?.release();
    }
  },
};

function instanceIn(data: string): string {
  const { database, instance } = inspectData(data);
  if (instance !== undefined) return instance;
  throw new DataError(
    `the database in ${data} is ${database}: choose the data directory with --data, or name the instance of one that is gone with --instance`,
  );
}

/** Without its data directory a server can be recognised only by what it has running. */
async function refuseServed(engine: Engine, instance: string): Promise<void> {
  const guarded = (await engine.listContainers(instance)).some(
    ({ owner, running }) => owner.kind === GUARD_KIND && running,
  );
  if (guarded) throw new DataError(`a server is using the instance ${instance}: stop it first`);
}

function describe({ containers, volumes, networks, images }: Traces): void {
  const lines = [
    ...containers.map(name => `container ${name}`),
    ...volumes.map(name => `volume ${name}`),
    ...networks.map(name => `network ${name}`),
    ...images.map(name => `image ${name}`),
  ];
  say(lines.length === 0 ? 'Docker has nothing of it' : `Docker has:\n  ${lines.join('\n  ')}`);
}

async function isConfirmed(): Promise<boolean> {
  if (!process.stdin.isTTY) throw new UsageError('nobody can be asked here: say --yes to remove it');
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return /^y(es)?$/i.test((await terminal.question('Remove it, and the firewall rules? [y/N] ')).trim());
  } finally {
    terminal.close();
  }
}

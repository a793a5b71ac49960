// `assay cleanup`: removes everything that an instance has in Docker and in the firewall, while no server runs.

import { askYesNo, type Command, printLines, UsageError } from '../command/command.ts';
import { readSettings } from '../config.ts';
import {
  isServed,
  listOwned,
  removeContainersAndVolumes,
  removeCreatedImages,
  removeNetworkAndRules,
} from '../engine/cleanup.ts';
import { DataError, lockDataDirectory } from '../store/data/data.ts';
import { inspectData } from '../store/database/inspect.ts';
import { openEngine } from '../work/open-engine.ts';
import { DATA_LINE, settingFlags } from './command.ts';

export const cleanup: Command = {
  name: 'cleanup',
  summary: 'Removes everything that Assay has in Docker and in the firewall, before you uninstall it.',
  positionals: [],
  flags: { ...settingFlags, instance: 'value', yes: 'flag' },
  help: [
    'Removes containers, volumes (with the caches of suites), the network, its firewall rules, and the images that',
    'Assay made. Imported images and the data directory stay. A server that is started again creates what it needs',
    'and reruns the builds that were running. Refused while a server uses the directory.',
    '',
    '  --yes                 removes without asking',
    '  --instance ID         for a data directory that no longer exists; the label assay.instance has the ID:',
    '                        docker volume ls --filter label=assay.instance --format "{{.Labels}}"',
    DATA_LINE,
  ],
  async run({ flags, environment }) {
    const { settings } = readSettings(flags, environment);
    const given = flags.get('--instance');
    if (given !== undefined && !/^[\w-]{1,64}$/.test(given))
      throw new UsageError('--instance must be an ID from a label assay.instance');
    const instance = given ?? instanceIn(settings.data);
    const hold = given === undefined ? lockDataDirectory(settings.data) : undefined;
    const engine = openEngine(settings, { instance, environment });
    try {
      // Without the data directory, a running server can be recognized only by its containers.
      if (given !== undefined && (await isServed(engine)))
        throw new DataError(`a server is using the instance ${instance}: stop it first`);
      const owned = await listOwned(engine);
      printLines(
        owned.length === 0 ? 'Docker has nothing of this instance' : `Docker has:\n  ${owned.join('\n  ')}`,
      );
      if (!flags.has('--yes') && !(await confirm())) {
        printLines('nothing was removed');
        return 1;
      }
      const removed = (what: string) => void printLines(`removed ${what}`);
      await removeContainersAndVolumes(engine, removed);
      const unreached = await removeNetworkAndRules(engine, removed);
      for (const node of unreached)
        printLines(`the node ${node} did not respond: restart it, and its firewall rules are gone`);
      await removeCreatedImages(engine, removed);
      return printLines(`everything of the instance ${instance} is removed`);
    } finally {
      engine.close();
      hold?.release();
    }
  },
};

function instanceIn(data: string): string {
  const { database, instance } = inspectData(data);
  if (instance !== undefined) return instance;
  throw new DataError(
    `the database in ${data} is ${database}: choose the data directory with --data, or name the instance with --instance if the directory no longer exists`,
  );
}

const confirm = () =>
  askYesNo(
    'Remove all of it, and the firewall rules? [y/N] ',
    'there is no terminal to ask on: use --yes to remove everything',
  );

// `assay doctor`: checks the host and prints a line for each check, with how to fix what is wrong.

import { setTimeout as delay } from 'node:timers/promises';
import { type Command, JSON_LINE, UsageError } from '../command/command.ts';
import { readSettings, type Settings } from '../config.ts';
import { requestHealth } from '../engine/host.ts';
import { openData } from '../store/data/data.ts';
import { type Inspection, inspectData } from '../store/database/inspect.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { registryAuthOf } from '../store/node-credentials.ts';
import { openEngine } from '../work/open-engine.ts';
import type { Check } from './check.ts';
import { checkAll } from './checks.ts';
import { DATA_LINE, settingFlags } from './command.ts';

const POLL_MS = 200;
const colours = { ok: '32', warn: '33', fail: '31' } as const;

export const doctor: Command = {
  name: 'doctor',
  summary: 'Checks the server and says how to fix problems; exit status 1 if a check fails.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag', await: 'value' },
  help: [
    'Checks Docker, git, ssh, libraries, the data directory and its key, disk, image, certificate, clock, and',
    'whether the server answers. Changes nothing, and works without a data directory and without Docker.',
    'With ENGINE=swarm also the swarm, the shared directory and each node, on which it runs one short job.',
    '',
    JSON_LINE,
    '  --await SECONDS       only waits, at most that long, until the server answers',
    DATA_LINE,
    '  The other settings of "assay serve --help" are accepted too.',
  ],
  async run({ flags, environment }) {
    const { settings, warnings } = readSettings(flags, environment);
    const seconds = flags.get('--await');
    if (seconds !== undefined) return awaitServer(settings, seconds);
    const stored = tryInspect(settings.data);
    const probe = findProbe(settings, environment, stored);
    const checks = await checkAll({ settings, environment, stored, probe });
    for (const warning of warnings)
      checks.push({
        name: 'settings',
        status: 'warn',
        found: warning,
        fix: '"assay serve --help" lists them',
      });
    const healthy = checks.every(({ status }) => status !== 'fail');
    process.stdout.write(
      flags.has('--json') ? `${JSON.stringify({ healthy, checks })}\n` : render(checks, environment),
    );
    return healthy ? 0 : 1;
  },
};

/** Runs a job on each node of a swarm. It needs the data directory, which has the credentials of the nodes. */
function findProbe(settings: Settings, environment: NodeJS.ProcessEnv, stored: Inspection | Error) {
  if (settings.engine !== 'swarm' || stored instanceof Error || stored.database !== 'sound') return undefined;
  return async () => {
    const db = openData(settings.data, environment);
    const engine = openEngine(settings, {
      instance: instanceOf(db),
      environment,
      registryAuth: registry => registryAuthOf(db, registry),
    });
    try {
      return await engine.probeNodes();
    } finally {
      engine.close();
      db.close();
    }
  };
}

function tryInspect(data: string): Inspection | Error {
  try {
    return inspectData(data);
  } catch (error) {
    return error as Error;
  }
}

async function awaitServer({ listen }: Settings, seconds: string): Promise<number> {
  if (!/^\d{1,5}$/.test(seconds)) throw new UsageError('--await must be a number of seconds');
  const deadlineAt = performance.now() + Number(seconds) * 1000;
  let status: number | undefined;
  do {
    const leftMs = Math.max(1_000, Math.ceil(deadlineAt - performance.now()));
    status = await requestHealth(listen, Math.min(leftMs, 5_000));
    if (status === 200) return 0;
    await delay(POLL_MS);
  } while (performance.now() < deadlineAt);
  const what = status === undefined ? 'no server answers' : `the status is ${status}`;
  process.stderr.write(`assay: after ${seconds} s ${what} at ${listen.host}:${listen.port}\n`);
  return 1;
}

function render(checks: readonly Check[], environment: NodeJS.ProcessEnv): string {
  const isColoured = process.stdout.isTTY && !environment.NO_COLOR && environment.TERM !== 'dumb';
  const width = Math.max(...checks.map(({ name }) => name.length));
  return checks
    .map(({ name, status, found, fix }) => {
      const word = status.padEnd(4);
      const mark = isColoured ? `\x1b[${colours[status]}m${word}\x1b[0m` : word;
      const line = `${mark}  ${name.padEnd(width)}  ${found}\n`;
      return fix === undefined ? line : `${line}${' '.repeat(8 + width)}fix: ${fix}\n`;
    })
    .join('');
}

// `assay doctor`: checks the host and prints a line for each check, with how to fix what is wrong.

import { setTimeout as delay } from 'node:timers/promises';
import { readSettings, type Settings, UsageError } from '../config.ts';
import { askServer } from '../engine/host.ts';
import { type Inspection, inspectData } from '../store/database/inspect.ts';
import { type Check, checkAll } from './checks.ts';
import { type Command, helpOf, settingFlags } from './command.ts';

const ASK_AGAIN_MS = 200;
const colours = { ok: '32', warn: '33', fail: '31' } as const;

export const doctor: Command = {
  name: 'doctor',
  summary: 'Checks the host, a line each; exit status 1 when something must be fixed.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag', await: 'value' },
  help() {
    return helpOf(this, [
      'Looks at Docker, git, ssh, libraries, the data directory and its key, disk, image, certificate, clock',
      'and at whether the server answers. Changes nothing, and works without a data directory and without Docker.',
      '',
      '  --json                prints JSON',
      '  --await SECONDS       checks nothing but whether the server answers, and waits that long for it',
      '  --data DIRECTORY      the data directory [./assay-data]',
      '  Other settings of "assay serve --help" are taken too.',
    ]);
  },
  async run({ flags, environment }) {
    const { settings, warnings } = readSettings(flags, environment);
    const seconds = flags.get('--await');
    if (seconds !== undefined) return awaitServer(settings, seconds);
    const checks = await checkAll({ settings, environment, inside: lookInside(settings.data) });
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

function lookInside(data: string): Inspection | Error {
  try {
    return inspectData(data);
  } catch (cause) {
    return cause as Error;
  }
}

async function awaitServer({ listen }: Settings, seconds: string): Promise<number> {
  if (!/^\d{1,5}$/.test(seconds)) throw new UsageError('--await must be a number of seconds');
  const deadlineAt = performance.now() + Number(seconds) * 1000;
  let status: number | undefined;
  do {
    const leftMs = Math.max(1_000, Math.ceil(deadlineAt - performance.now()));
    status = await askServer(listen, Math.min(leftMs, 5_000));
    if (status === 200) return 0;
    await delay(ASK_AGAIN_MS);
  } while (performance.now() < deadlineAt);
  const what = status === undefined ? 'nobody answers' : `the answer is ${status}`;
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
      return fix === undefined ? line : `${line}${' '.repeat(8 + width)}to fix: ${fix}\n`;
    })
    .join('');
}

// `assay backup` and `assay restore`: how they are called and what they tell; the work is store/backup*.ts's.

import { resolve } from 'node:path';
import { readSettings, UsageError } from '../config.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { makeBackup } from '../store/backup/backup.ts';
import { restoreBackup } from '../store/backup/restore.ts';
import { type Verdict, verifyBackup } from '../store/backup/verify.ts';
import { DataError } from '../store/data/data.ts';
import { masterKeyPath } from '../store/data/paths.ts';
import { version } from '../version.ts';
import { type Command, helpOf, type Invocation, settingFlags } from './command.ts';
import { createProgress, sizeText } from './progress.ts';

const DATA_LINE = '  --data DIRECTORY      the data directory [./assay-data]';

const say = (...lines: string[]) => process.stdout.write(lines.map(line => `${line}\n`).join(''));
const warn = (...lines: string[]) => process.stderr.write(lines.map(line => `assay: ${line}\n`).join(''));

const backup: Command = {
  name: 'backup',
  summary: 'Copies everything into one file while the server serves; --verify proves such a file.',
  positionals: ['FILE'],
  flags: { ...settingFlags, 'without-logs': 'flag', 'with-key': 'flag', verify: 'flag' },
  help() {
    return helpOf(this, [
      'The name appears when the file is complete; one that is there already is replaced then. In it are the',
      'database, archives, artifacts, logs, ssh/config and ssh/known_hosts; without --with-key no private key,',
      'so keep a copy of master.key elsewhere: what is encrypted cannot be read without it.',
      '',
      '  --without-logs        leaves the logs of builds, compiles and deploys out',
      '  --with-key            puts the master key in, and the keys of the own certificate authority, so',
      '                        that clients go on trusting it: keep such a file as safe as the keys',
      '  --verify              makes none, but checks FILE: every sum, row, file and encrypted value',
      DATA_LINE,
    ]);
  },
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [file = ''] = positionals;
    const [without, keys] = [flags.has('--without-logs'), flags.has('--with-key')];
    if (!flags.has('--verify')) return make(invocation, { file, logs: !without, keys });
    if (without || keys) throw new UsageError('--verify checks a file that is there: it takes no other flag');
    return verify(invocation, file);
  },
};

async function make(
  { flags, environment }: Invocation,
  wishes: { file: string; logs: boolean; keys: boolean },
): Promise<number> {
  const { data } = readSettings(flags, environment).settings;
  const made = await atLength('backup', (onProgress, signal) =>
    makeBackup({ ...wishes, data, version, environment, onProgress, signal }),
  );
  if (made.missing.length > 0)
    warn(
      ...made.missing.map(
        name => `${name} is missing in ${resolve(data)}: upload it again, or compile again`,
      ),
    );
  const key = wishes.keys
    ? 'with the key: keep it safe'
    : `without the key: keep ${masterKeyPath(data)} elsewhere`;
  say(`${resolve(wishes.file)}: ${made.entries} files, ${sizeText(made.sizeBytes)}, ${key}`);
  return 0;
}

async function verify({ flags, environment }: Invocation, file: string): Promise<number> {
  const { data } = readSettings(flags, environment).settings;
  const verdict = await atLength('verify', (onProgress, signal) =>
    verifyBackup({ file, data, environment, onProgress, signal }),
  );
  if (verdict.damage.length > 0) {
    warn(`${resolve(file)} is damaged:`, ...verdict.damage.map(line => `  ${line}`));
    return 1;
  }
  say(...verdictLines(resolve(file), verdict));
  return 0;
}

function verdictLines(file: string, { head, entries, contentBytes, rows, opened }: Verdict): string[] {
  return [
    `${file} is whole: made ${head?.createdAt} by Assay ${head?.assay}`,
    `  ${entries} files, ${sizeText(contentBytes)}: each has its sum${head?.logs ? '' : ' (made without logs)'}`,
    `  ${rows} rows: the database is sound`,
    opened === undefined
      ? '  encrypted values were not checked: the backup holds no key, and the data directory (--data) not the right one'
      : `  ${opened} encrypted values: each can be opened`,
  ];
}

const restore: Command = {
  name: 'restore',
  summary: 'Puts a backup back into a new or empty data directory.',
  positionals: ['FILE'],
  flags: settingFlags,
  help() {
    return helpOf(this, [
      'The file is checked first; one that is cut or changed is refused, and nothing is left of it.',
      'A directory that is being served, or holds anything, is refused as well.',
      '',
      DATA_LINE,
    ]);
  },
  async run({ flags, positionals, environment }) {
    const { data } = readSettings(flags, environment).settings;
    const restored = await atLength('restore', (onProgress, signal) =>
      restoreBackup({ file: positionals[0] ?? '', data, onProgress, signal }),
    );
    const { head, entries, contentBytes } = restored;
    say(`${resolve(data)}: ${entries} files, ${sizeText(contentBytes)}, as of ${head.createdAt}`);
    if (!head.keys)
      say(
        `The backup holds no keys. Before it is served: put the master key back as ${masterKeyPath(resolve(data))}`,
        '(mode 0600). Without its tls directory a new certificate authority is made, which clients have to trust.',
      );
    return 0;
  },
};

/** Shows how far it has come; stopped from the keyboard or by the system, it clears up first. */
async function atLength<T>(
  what: string,
  work: (onProgress: (doneBytes: number, totalBytes: number) => void, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const progress = createProgress(what);
  const stopped = new AbortController();
  const stop = () => stopped.abort(new DataError(`${what} was stopped: nothing is left of it`));
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    return await work(progress.update, stopped.signal);
  } catch (cause) {
    throw explained(cause, what);
  } finally {
    progress.end();
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

/** What the system refuses is said in words. */
function explained(cause: unknown, what: string): unknown {
  const { code, path, message } = cause as NodeJS.ErrnoException;
  if (isDiskFull(cause)) return new DataError(`${what}: the disk is full; nothing is left of it`);
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS' || code === 'SQLITE_READONLY')
    return new DataError(`${what}: this user may not use ${path ?? 'the directory'} (${message})`);
  if (code === 'SQLITE_BUSY')
    return new DataError(`${what}: others wrote to the database without a pause; try again`);
  return cause;
}

export const backupCommands: readonly Command[] = [backup, restore];

// `assay backup` and `assay restore`: flags, progress and messages. The work is done in src/store/backup.

import { resolve } from 'node:path';
import { type Command, type Invocation, printLines, UsageError } from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import { readSettings } from '../config.ts';
import { makeBackup } from '../store/backup/backup.ts';
import { restoreBackup } from '../store/backup/restore.ts';
import { type Verification, verifyBackup } from '../store/backup/verify.ts';
import { masterKeyPath } from '../store/data/paths.ts';
import { version } from '../version.ts';
import { DATA_LINE, settingFlags } from './command.ts';
import { withProgress } from './progress.ts';

const warn = (...lines: string[]) => process.stderr.write(lines.map(line => `assay: ${line}\n`).join(''));

const backup: Command = {
  name: 'backup',
  summary: 'Backs up everything into one file while the server runs; --verify checks such a file.',
  positionals: ['FILE'],
  flags: { ...settingFlags, 'without-logs': 'flag', 'with-key': 'flag', verify: 'flag' },
  help: [
    'FILE appears, or is replaced, when the backup is complete. It contains the database, archives,',
    'compiled dependencies, logs, artifacts of builds, ssh/config and ssh/known_hosts, but no private',
    'key unless --with-key is given: keep a copy of master.key elsewhere, since encrypted values cannot',
    'be read without it.',
    '',
    '  --without-logs        leaves out the logs of builds, compiles and deploys, and artifacts of builds',
    '  --with-key            includes the master key and the keys of the certificate authority, so that',
    '                        clients keep trusting it: keep such a file as safe as the keys',
    '  --verify              checks FILE instead: every checksum, row, file and encrypted value',
    DATA_LINE,
  ],
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [file = ''] = positionals;
    const [without, keys] = [flags.has('--without-logs'), flags.has('--with-key')];
    if (!flags.has('--verify')) return make(invocation, { file, logs: !without, keys });
    if (without || keys)
      throw new UsageError('--verify checks an existing file: it cannot be combined with other flags');
    return verify(invocation, file);
  },
};

async function make(
  { flags, environment }: Invocation,
  options: { file: string; logs: boolean; keys: boolean },
): Promise<number> {
  const { data } = readSettings(flags, environment).settings;
  const made = await withProgress('backup', (onProgress, signal) =>
    makeBackup({ ...options, data, version, environment, onProgress, signal }),
  );
  if (made.missing.length > 0)
    warn(
      ...made.missing.map(
        name => `${name} is missing in ${resolve(data)}: upload it again, or compile again`,
      ),
    );
  const key = options.keys
    ? 'with the master key: keep it safe'
    : `without the master key: keep a copy of ${masterKeyPath(data)} elsewhere`;
  printLines(`${resolve(options.file)}: ${made.entries} files, ${sizeText(made.sizeBytes)}, ${key}`);
  return 0;
}

async function verify({ flags, environment }: Invocation, file: string): Promise<number> {
  const { data } = readSettings(flags, environment).settings;
  const verification = await withProgress('verify', (onProgress, signal) =>
    verifyBackup({ file, data, environment, onProgress, signal }),
  );
  if (verification.damage.length > 0) {
    warn(`${resolve(file)} is damaged:`, ...verification.damage.map(line => `  ${line}`));
    return 1;
  }
  return printLines(...reportLines(resolve(file), verification));
}

function reportLines(file: string, { head, entries, contentBytes, rows, opened }: Verification): string[] {
  return [
    `${file} is intact: made ${head?.createdAt} by Assay ${head?.assay}`,
    `  ${entries} files, ${sizeText(contentBytes)}: all checksums match${head?.logs ? '' : ' (made without logs)'}`,
    `  ${rows} rows: the database is intact`,
    opened === undefined
      ? '  encrypted values were not checked: neither the backup nor the data directory (--data) has their key'
      : `  ${opened} encrypted values: all can be decrypted`,
  ];
}

const restore: Command = {
  name: 'restore',
  summary: 'Restores a backup into a new or empty data directory.',
  positionals: ['FILE'],
  flags: settingFlags,
  help: [
    'The file is checked while it is read. If it is truncated or changed, nothing is restored.',
    'A directory that is not empty, or that a server uses, is refused.',
    '',
    DATA_LINE,
  ],
  async run({ flags, positionals, environment }) {
    const { data } = readSettings(flags, environment).settings;
    const restored = await withProgress('restore', (onProgress, signal) =>
      restoreBackup({ file: positionals[0] ?? '', data, onProgress, signal }),
    );
    const { head, entries, contentBytes } = restored;
    printLines(`${resolve(data)}: ${entries} files, ${sizeText(contentBytes)}, as of ${head.createdAt}`);
    if (!head.keys)
      printLines(
        `The backup contains no keys. Before you start the server, copy the master key to ${masterKeyPath(resolve(data))}`,
        '(mode 0600). Without its tls directory, the server creates a new certificate authority, which clients have to trust.',
      );
    return 0;
  },
};

export const backupCommands: readonly Command[] = [backup, restore];

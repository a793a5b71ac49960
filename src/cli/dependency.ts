// `assay dependency …`: lists dependencies, and carries compiled ones from one appliance to another as signed files.

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { askYesNo, type Command, type Invocation, JSON_LINE, print, UsageError } from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import type { Settings } from '../config.ts';
import { wireTime } from '../contract/wire.ts';
import type { Manifest } from '../domain/dependency-export.ts';
import { checkLine, nameKey } from '../domain/names.ts';
import { listAccounts } from '../store/accounts.ts';
import { distrustAppliance, identityOf, listTrustedAppliances } from '../store/appliance.ts';
import { findArtifact } from '../store/artifacts.ts';
import { DataError } from '../store/data/data.ts';
import type { Db } from '../store/database/db.ts';
import { type Dependency, listAllDependencies } from '../store/dependencies.ts';
import { exportDependency } from '../store/transfer/export.ts';
import { version } from '../version.ts';
import { type ImportResult, importDependency } from '../work/import-dependency.ts';
import { getAccount, withAccounts } from './accounts.ts';
import { DATA_LINE, settingFlags } from './command.ts';
import { withProgress } from './progress.ts';

const OWNER_LINE = '  --owner EMAIL         the account that it belongs to; needed if several could be meant';

const list: Command = {
  name: 'dependency list',
  summary: 'Lists the dependencies of all accounts.',
  positionals: [],
  flags: { ...settingFlags, owner: 'value', json: 'flag' },
  help: [
    'Works on the data directory of this server. "assay dependencies" is for the users of a server, on any machine.',
    '',
    '  --owner EMAIL         only those of this account',
    JSON_LINE,
    DATA_LINE,
  ],
  run: invocation =>
    withAccounts(invocation, db => {
      const records = listOf(db, invocation.flags.get('--owner')).map(({ dependency, ownerEmail }) => ({
        id: dependency.id.toString(),
        name: dependency.name,
        owner: ownerEmail,
        state: dependency.compileState,
        artifact: dependency.artifactHash,
        size_bytes: sizeOf(db, dependency),
      }));
      const width = (values: string[]) => Math.max(0, ...values.map(value => value.length));
      const names = width(records.map(({ name }) => name));
      const owners = width(records.map(({ owner }) => owner));
      return print(
        invocation,
        records,
        records.length === 0
          ? ['There is no dependency.']
          : records.map(({ name, owner, state, size_bytes }) =>
              [
                name.padEnd(names),
                owner.padEnd(owners),
                state.padEnd('waiting_archive_upload'.length),
                size_bytes === null ? '' : sizeText(size_bytes),
              ]
                .join('  ')
                .trimEnd(),
            ),
      );
    }),
};

const sizeOf = (db: Db, { artifactHash }: Dependency) =>
  (artifactHash === null ? undefined : findArtifact(db, artifactHash))?.sizeBytes ?? null;

function listOf(db: Db, owner: string | undefined) {
  const ownerId = owner === undefined ? undefined : getAccount(db, owner).id;
  return listAllDependencies(db).filter(
    ({ dependency }) => ownerId === undefined || dependency.ownerId === ownerId,
  );
}

const exportCommand: Command = {
  name: 'dependency export',
  summary: 'Writes a compiled dependency and its related ones to a signed file for another appliance.',
  positionals: ['NAME', 'FILE'],
  flags: { ...settingFlags, owner: 'value', 'without-source': 'flag', json: 'flag' },
  help: [
    'FILE contains the instructions, the source archive and the compiled files of the dependency NAME and of all',
    'dependencies that it relates to. It appears, or is replaced, when it is complete. It is signed with the key of',
    'this appliance: the other one shows its fingerprint, and asks before the first import. It contains no variables',
    'and no other secrets. Works while the server runs.',
    '',
    OWNER_LINE,
    '  --without-source      leaves out the source archives: the file is smaller, but cannot be compiled again',
    JSON_LINE,
    DATA_LINE,
  ],
  run: invocation =>
    withAccounts(invocation, async (db, settings) => {
      const { flags, positionals } = invocation;
      const [name = '', file = ''] = positionals;
      const dependency = findByName(db, name, flags.get('--owner'));
      const { manifest, fingerprint, sizeBytes } = await withProgress('export', (onProgress, signal) =>
        exportDependency({
          db,
          data: settings.data,
          file,
          dependency,
          withSource: !flags.has('--without-source'),
          version,
          system: systemName(),
          onProgress,
          signal,
        }),
      );
      const names = manifest.dependencies.map(one => one.name);
      const related = names.length > 1 ? `, with ${names.slice(0, -1).join(', ')}` : '';
      return print(
        invocation,
        {
          file: resolve(file),
          size_bytes: sizeBytes,
          dependencies: names,
          appliance: { name: manifest.appliance.name, fingerprint },
        },
        [
          `${resolve(file)}: ${names.at(-1)}${related}, ${sizeText(sizeBytes)}, for ${manifest.architecture}`,
          `signed by ${manifest.appliance.name}, fingerprint ${fingerprint}`,
        ],
      );
    }),
};

function findByName(db: Db, name: string, owner: string | undefined): Dependency {
  const found = listOf(db, owner).filter(({ dependency }) => nameKey(dependency.name) === nameKey(name));
  if (found.length > 1)
    throw new UsageError(
      `several accounts have a dependency ${name}: choose one with --owner (${found.map(({ ownerEmail }) => ownerEmail).join(', ')})`,
    );
  if (!found[0])
    throw new UsageError(
      `there is no dependency ${JSON.stringify(name)}; "assay dependency list" shows them`,
    );
  return found[0].dependency;
}

/** For people who compare two appliances. */
function systemName(): string {
  try {
    const [, name = ''] = /^PRETTY_NAME="?([^"\n]+)/m.exec(readFileSync('/etc/os-release', 'utf8')) ?? [];
    if (checkLine(name) === undefined) return name;
  } catch {
    // Not every system has the file.
  }
  return process.platform;
}

const importCommand: Command = {
  name: 'dependency import',
  summary: 'Imports a dependency, compiled and with its related ones, from a file of another appliance.',
  positionals: ['FILE'],
  flags: { ...settingFlags, owner: 'value', name: 'value', replace: 'flag', trust: 'value', json: 'flag' },
  help: [
    'Suites can use it at once: nothing is compiled. Everything is verified first: the signature, every checksum, every',
    'path and the architecture. If anything is wrong, nothing is changed. The first import from an appliance shows its',
    'name and fingerprint, and asks. Works while the server runs.',
    '',
    '  --trust FINGERPRINT   imports only what this appliance signed, without asking',
    '  --name NAME           another name; related dependencies whose names are taken are imported as "OTHER (NAME)"',
    '  --replace             replaces dependencies of the same names: source, instructions and artifact',
    OWNER_LINE,
    JSON_LINE,
    DATA_LINE,
  ],
  run: invocation =>
    withAccounts(invocation, async (db, settings) => {
      const { flags, positionals } = invocation;
      const name = flags.get('--name')?.trim();
      if (name !== undefined && (checkLine(name) !== undefined || nameKey(name) === ''))
        throw new UsageError(`--name ${JSON.stringify(name)} cannot be the name of a dependency`);
      const trusted = flags.get('--trust')?.replaceAll(/[\s:]/g, '').toLowerCase();
      if (trusted !== undefined && !/^[0-9a-f]{64}$/.test(trusted))
        throw new UsageError('--trust must be a fingerprint: 64 digits and letters from a to f');
      const owner = ownerOf(db, flags.get('--owner'));
      const imported = await withProgress('import', (onProgress, signal) =>
        importDependency({
          db,
          settings,
          file: positionals[0] ?? '',
          ownerId: owner.id,
          name,
          trusted,
          confirmTrust,
          confirmReplace: names => (flags.has('--replace') ? Promise.resolve() : confirmReplace(names)),
          onProgress,
          signal,
        }),
      );
      return report(invocation, imported, owner.email, settings);
    }),
};

function ownerOf(db: Db, email: string | undefined): { id: bigint; email: string } {
  const users = listAccounts(db).filter(({ kind }) => kind === 'user');
  const account = email === undefined ? users[0] : getAccount(db, email);
  if (!account) throw new UsageError('there is no account yet; "assay user add EMAIL" creates one');
  if (account.kind !== 'user') throw new UsageError(`${email} is a collaborator, who owns no dependencies`);
  if (email === undefined && users.length > 1)
    throw new UsageError('there are several accounts: choose who gets the dependency with --owner EMAIL');
  return account;
}

async function confirmTrust({ appliance }: Manifest, fingerprint: string): Promise<void> {
  const isAgreed = await askYesNo(
    [
      `The file was exported by ${appliance.name}. Nothing of that appliance was imported here before.`,
      `  fingerprint  ${fingerprint}`,
      'Compare it with what "assay dependency trusted" shows on that appliance.',
      'Suites will run what it compiled. Trust it, now and later? [y/N] ',
    ].join('\n'),
    `the file was exported by ${appliance.name}, which is not trusted yet: compare the fingerprint with what "assay dependency trusted" shows there, then add --trust ${fingerprint}`,
  );
  if (!isAgreed) throw new DataError('nothing was imported');
}

async function confirmReplace(names: string[]): Promise<void> {
  const listed = names.join(', ');
  const isAgreed = await askYesNo(
    `The account has another ${listed}. Replace source, instructions and artifact? [y/N] `,
    `the account has another ${listed}: replace it with --replace, or choose another name with --name`,
  );
  if (!isAgreed) throw new DataError('nothing was imported; --name imports it under another name');
}

const ACTIONS = { create: 'created', replace: 'replaced', keep: 'unchanged' } as const;

function report(
  invocation: Invocation,
  { manifest, fingerprint, steps, dependencies }: ImportResult,
  owner: string,
  { data }: Settings,
): number {
  const { name: appliance } = manifest.appliance;
  const records = steps.map(({ name, action }, at) => ({
    id: dependencies[at]?.id.toString(),
    name,
    action: ACTIONS[action],
  }));
  const withoutImage = steps.filter(({ exported, image }) => exported.image !== image);
  const isSame = steps.every(({ action }) => action === 'keep');
  return print(invocation, { owner, appliance: { name: appliance, fingerprint }, dependencies: records }, [
    ...(isSame
      ? [`${records.at(-1)?.name} of ${owner} is already what the file contains: nothing was changed`]
      : records.map(({ name, action }) => `${name} of ${owner}: ${action}`)),
    ...(isSame ? [] : [`compiled by ${appliance} on ${manifest.system}; suites can use it at once`]),
    ...withoutImage.map(
      ({ name, exported }) =>
        `${name} was compiled in the image ${exported.image}, which ${resolve(data)} does not have: a compile here would use the default image`,
    ),
  ]);
}

const trusted: Command = {
  name: 'dependency trusted',
  summary: 'Shows the fingerprint of this appliance, and the appliances whose dependencies are imported.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help: [JSON_LINE, DATA_LINE],
  run: invocation =>
    withAccounts(invocation, db => {
      const { name, fingerprint } = identityOf(db);
      const others = listTrustedAppliances(db);
      return print(
        invocation,
        {
          own: { name, fingerprint },
          trusted: others.map(one => ({
            name: one.name,
            fingerprint: one.fingerprint,
            trusted_at: wireTime(one.createdAt),
          })),
        },
        [
          `${fingerprint}  ${name} (this appliance)`,
          ...others.map(one => `${one.fingerprint}  ${one.name}, since ${wireTime(one.createdAt)}`),
        ],
      );
    }),
};

const distrust: Command = {
  name: 'dependency distrust',
  summary: 'Stops trusting an appliance: the next import from it asks again. What was imported stays.',
  positionals: ['FINGERPRINT'],
  flags: settingFlags,
  help: ['FINGERPRINT is one that `assay dependency trusted` shows.', '', DATA_LINE],
  run: invocation =>
    withAccounts(invocation, db => {
      const [fingerprint = ''] = invocation.positionals;
      if (!distrustAppliance(db, fingerprint.toLowerCase()))
        throw new UsageError(
          `${fingerprint} is not trusted; "assay dependency trusted" shows those that are`,
        );
      return print(invocation, undefined, [`${fingerprint} is no longer trusted`]);
    }),
};

export const dependencyCommands: readonly Command[] = [list, exportCommand, importCommand, trusted, distrust];

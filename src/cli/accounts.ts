// `assay user …` and `assay app add`: accounts and applications, beside a running server.

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { readSettings, UsageError } from '../config.ts';
import { type AccountKind, accountKinds, type Standing, standings } from '../domain/access.ts';
import { checkEmail, checkLine, checkRedirectUri } from '../domain/names.ts';
import { digestOf, hashPassword, newReadableSecret, newSecret } from '../domain/secret.ts';
import { parseTime, wireTimeOrNull } from '../domain/wire.ts';
import {
  createAccount,
  deleteSessionsOf,
  findAccountByEmail,
  listAccounts,
  updateAccount,
} from '../store/accounts.ts';
import { createApplication } from '../store/applications.ts';
import { makeDataDirectory, openData } from '../store/data.ts';
import type { Db } from '../store/db.ts';
import { databasePath } from '../store/paths.ts';
import { type Command, helpOf, type Invocation, settingFlags } from './command.ts';

const DATA_LINE = '  --data DIRECTORY      the data directory [./assay-data]';
const JSON_LINE = '  --json                prints JSON';

function withDb<T>({ flags, environment }: Invocation, use: (db: Db) => T | Promise<T>): Promise<T> {
  const { settings } = readSettings(flags, environment);
  makeDataDirectory(settings.data);
  const db = openData(settings.data, environment);
  return Promise.resolve(use(db)).finally(() => db.close());
}

/** For what can only be about an account that is there: a mistyped --data does not become a new data directory. */
function withAccounts<T>(invocation: Invocation, use: (db: Db) => T | Promise<T>): Promise<T> {
  const { data } = readSettings(invocation.flags, invocation.environment).settings;
  if (!existsSync(databasePath(data)))
    throw new UsageError(`there is no database in ${resolve(data)}: name the data directory with --data`);
  return withDb(invocation, use);
}

function oneOf<T extends string>(
  flags: ReadonlyMap<string, string>,
  name: string,
  allowed: readonly T[],
): T | undefined {
  const value = flags.get(name);
  if (value !== undefined && !allowed.includes(value as T))
    throw new UsageError(`${name} must be one of ${allowed.join(', ')}, not ${JSON.stringify(value)}`);
  return value as T | undefined;
}

function getAccount(db: Db, email: string) {
  const account = findAccountByEmail(db, email);
  if (!account) throw new UsageError(`there is no account ${email}; "assay user list" shows them`);
  return account;
}

function print(asJson: boolean, record: unknown, lines: readonly string[]): number {
  process.stdout.write(asJson ? `${JSON.stringify(record)}\n` : `${lines.join('\n')}\n`);
  return 0;
}

const showSecrets = (asJson: boolean, email: string, password: string, apiKey: string) =>
  print(asJson, { email, password, api_key: apiKey }, [
    `email     ${email}`,
    `password  ${password}   (web pages)`,
    `API key   ${apiKey}   (HTTP Basic)`,
    'They are shown this once; "assay user reset" makes new ones.',
  ]);

const add: Command = {
  name: 'user add',
  summary: 'Creates an account; prints its password and API key, once.',
  positionals: ['EMAIL'],
  flags: { ...settingFlags, kind: 'value', admin: 'flag', json: 'flag' },
  help() {
    return helpOf(this, [
      '  --kind KIND           user (owns projects) or collaborator (works on those of others) [user]',
      '  --admin               may administrate',
      JSON_LINE,
      DATA_LINE,
    ]);
  },
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [email = ''] = positionals;
    if (checkEmail(email)) throw new UsageError(`${JSON.stringify(email)} is not an email address`);
    const kind: AccountKind = oneOf(flags, '--kind', accountKinds) ?? 'user';
    const password = newReadableSecret(4, 5);
    const apiKey = newSecret('assay');
    const passwordHash = await hashPassword(password);
    return withDb(invocation, db => {
      if (findAccountByEmail(db, email)) throw new UsageError(`there is an account ${email} already`);
      createAccount(db, { email, kind, admin: flags.has('--admin'), passwordHash, apiKey });
      return showSecrets(flags.has('--json'), email.toLowerCase(), password, apiKey);
    });
  },
};

const list: Command = {
  name: 'user list',
  summary: 'Lists the accounts.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help() {
    return helpOf(this, [JSON_LINE, DATA_LINE]);
  },
  run: invocation =>
    withDb(invocation, db => {
      const records = listAccounts(db).map(account => ({
        email: account.email,
        kind: account.kind,
        admin: account.admin,
        standing: account.standing,
        trial_ends_at: wireTimeOrNull(account.trialEndsAt),
      }));
      const width = Math.max(5, ...records.map(({ email }) => email.length));
      return print(
        invocation.flags.has('--json'),
        records,
        records.length === 0
          ? ['There is no account yet; "assay user add EMAIL --admin" makes one.']
          : records.map(one =>
              [
                one.email.padEnd(width),
                one.kind.padEnd(12),
                one.standing.padEnd(16),
                one.admin ? 'admin' : '',
                one.trial_ends_at ? `trial ends ${one.trial_ends_at}` : '',
              ]
                .join('  ')
                .trimEnd(),
            ),
      );
    }),
};

const set: Command = {
  name: 'user set',
  summary: "Changes an account's standing, trial or kind.",
  positionals: ['EMAIL'],
  flags: { ...settingFlags, standing: 'value', 'trial-ends': 'value', kind: 'value' },
  help() {
    return helpOf(this, [
      '  --standing STANDING   active, suspended or payment_required',
      '  --trial-ends DATE     when payment is required, as 2027-01-31; "never" for no end',
      '  --kind KIND           user or collaborator',
      DATA_LINE,
    ]);
  },
  async run(invocation) {
    const { flags, positionals } = invocation;
    const standing = oneOf<Standing>(flags, '--standing', standings);
    const kind = oneOf<AccountKind>(flags, '--kind', accountKinds);
    const trialEnds = flags.get('--trial-ends');
    const trialEndsAt = trialEnds === 'never' ? null : parseTime(trialEnds ?? '');
    if (trialEnds !== undefined && trialEndsAt === undefined)
      throw new UsageError(`--trial-ends must be a date, not ${JSON.stringify(trialEnds)}`);
    if (standing === undefined && kind === undefined && trialEndsAt === undefined)
      throw new UsageError('assay user set needs --standing, --trial-ends or --kind');
    return withAccounts(invocation, db => {
      const account = getAccount(db, positionals[0] ?? '');
      updateAccount(db, account.id, {
        ...(standing && { standing }),
        ...(kind && { kind }),
        ...(trialEndsAt !== undefined && { trialEndsAt }),
      });
      return print(false, undefined, [`${account.email} is changed.`]);
    });
  },
};

const reset: Command = {
  name: 'user reset',
  summary: 'Makes a new password and API key; prints them, once. The old ones end, and so do sessions.',
  positionals: ['EMAIL'],
  flags: { ...settingFlags, json: 'flag' },
  help() {
    return helpOf(this, [JSON_LINE, DATA_LINE]);
  },
  async run(invocation) {
    const password = newReadableSecret(4, 5);
    const apiKey = newSecret('assay');
    const passwordHash = await hashPassword(password);
    return withAccounts(invocation, db => {
      const account = getAccount(db, invocation.positionals[0] ?? '');
      db.write(() => {
        updateAccount(db, account.id, { passwordHash, apiKeyDigest: digestOf(apiKey) });
        deleteSessionsOf(db, account.id);
      });
      return showSecrets(invocation.flags.has('--json'), account.email, password, apiKey);
    });
  },
};

const addApplication: Command = {
  name: 'app add',
  summary: 'Registers an OAuth application; prints its client id and secret, once.',
  positionals: ['NAME'],
  flags: { ...settingFlags, owner: 'value', 'redirect-uri': 'value', public: 'flag', json: 'flag' },
  help() {
    return helpOf(this, [
      '  --owner EMAIL         whose application it is',
      '  --redirect-uri URL    where codes and tokens go, or urn:ietf:wg:oauth:2.0:oob',
      '  --public              has no secret and must use PKCE',
      JSON_LINE,
      DATA_LINE,
    ]);
  },
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [name = ''] = positionals;
    if (checkLine(name)) throw new UsageError('NAME must be one line of 255 bytes at the most, not blank');
    const redirectUri = flags.get('--redirect-uri') ?? '';
    const owner = flags.get('--owner');
    if (owner === undefined) throw new UsageError('assay app add needs --owner EMAIL');
    if (checkRedirectUri(redirectUri))
      throw new UsageError(
        `--redirect-uri must be an absolute URL without a fragment, not ${JSON.stringify(redirectUri)}`,
      );
    return withAccounts(invocation, db => {
      const { application, clientSecret } = createApplication(db, {
        ownerId: getAccount(db, owner).id,
        name,
        redirectUri,
        isPublic: flags.has('--public'),
      });
      return print(
        flags.has('--json'),
        { client_id: application.clientId, ...(clientSecret && { client_secret: clientSecret }) },
        [
          `client id      ${application.clientId}`,
          clientSecret
            ? `client secret  ${clientSecret}   (shown this once)`
            : 'It has no secret: it must use PKCE.',
        ],
      );
    });
  },
};

export const accountCommands: readonly Command[] = [add, list, set, reset, addApplication];

// `assay user …` and `assay app add`: accounts and applications. They also work while the server runs.

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Command, type Invocation, JSON_LINE, print, UsageError } from '../command/command.ts';
import { flagOf, readSettings, type Settings } from '../config.ts';
import { wireTimeOrNull } from '../contract/wire.ts';
import { parseAccountChange, parseNewAccount, parseNewApplication } from '../domain/registration.ts';
import { findAccountByEmail, listAccounts } from '../store/accounts.ts';
import { createApplication } from '../store/applications.ts';
import { databasePath } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { changeAccount, registerAccount, resetAccount, type Secrets } from '../store/registration.ts';
import { DATA_LINE, describeRefusals, settingFlags, withData } from './command.ts';

/** For commands about existing accounts: a mistyped --data must not create a new data directory. */
export function withAccounts<T>(
  invocation: Invocation,
  use: (db: Db, settings: Settings) => T | Promise<T>,
): Promise<T> {
  const { data } = readSettings(invocation.flags, invocation.environment).settings;
  if (!existsSync(databasePath(data)))
    throw new UsageError(`there is no database in ${resolve(data)}: name the data directory with --data`);
  return withData(invocation, use);
}

const quoted = (name: string, value: string) => `${name} ${JSON.stringify(value)}`;

const flagsGiven = (flags: ReadonlyMap<string, string>, ...fields: string[]) =>
  Object.fromEntries(fields.map(field => [field, quoted(flagOf(field), flags.get(flagOf(field)) ?? '')]));

export function getAccount(db: Db, email: string) {
  const account = findAccountByEmail(db, email);
  if (!account) throw new UsageError(`there is no account ${email}; "assay user list" shows them`);
  return account;
}

const showSecrets = (invocation: Invocation, email: string, { password, apiKey }: Secrets) =>
  print(invocation, { email, password, api_key: apiKey }, [
    `email     ${email}`,
    `password  ${password}   (web pages)`,
    `API key   ${apiKey}   (HTTP Basic)`,
    'They are shown only now; "assay user reset" creates new ones.',
  ]);

const add: Command = {
  name: 'user add',
  summary: 'Creates an account; prints its password and API key, once.',
  positionals: ['EMAIL'],
  flags: { ...settingFlags, kind: 'value', admin: 'flag', json: 'flag' },
  help: [
    '  --kind KIND           user (owns projects) or collaborator (works on those of others) [user]',
    '  --admin               makes the account an administrator',
    JSON_LINE,
    DATA_LINE,
  ],
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [email = ''] = positionals;
    const given = { email: quoted('EMAIL', email), ...flagsGiven(flags, 'kind') };
    return describeRefusals(given, () => {
      const registration = parseNewAccount({
        email,
        kind: flags.get('--kind') ?? 'user',
        admin: flags.has('--admin'),
      });
      return withData(invocation, async db => {
        const { account, ...secrets } = await registerAccount(db, registration);
        return showSecrets(invocation, account.email, secrets);
      });
    });
  },
};

const list: Command = {
  name: 'user list',
  summary: 'Lists the accounts.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help: [JSON_LINE, DATA_LINE],
  run: invocation =>
    withData(invocation, db => {
      const records = listAccounts(db).map(account => ({
        email: account.email,
        kind: account.kind,
        admin: account.admin,
        standing: account.standing,
        trial_ends_at: wireTimeOrNull(account.trialEndsAt),
      }));
      const width = Math.max(5, ...records.map(({ email }) => email.length));
      return print(
        invocation,
        records,
        records.length === 0
          ? ['There is no account yet; "assay user add EMAIL --admin" creates one.']
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
  summary: "Changes an account's standing, trial or kind, or whether it is an administrator.",
  positionals: ['EMAIL'],
  flags: {
    ...settingFlags,
    standing: 'value',
    'trial-ends': 'value',
    kind: 'value',
    admin: 'flag',
    'no-admin': 'flag',
  },
  help: [
    '  --standing STANDING   active, suspended or payment_required',
    '  --trial-ends DATE     when payment is required, such as 2027-01-31; "never" for no end',
    '  --kind KIND           user or collaborator',
    '  --admin, --no-admin   makes it an administrator, or no longer one',
    DATA_LINE,
  ],
  async run(invocation) {
    const { flags, positionals } = invocation;
    if (flags.has('--admin') && flags.has('--no-admin'))
      throw new UsageError('assay user set takes --admin or --no-admin, not both');
    return describeRefusals(flagsGiven(flags, 'standing', 'trial_ends', 'kind'), () => {
      const change = parseAccountChange({
        standing: flags.get('--standing'),
        trialEnds: flags.get('--trial-ends'),
        kind: flags.get('--kind'),
        admin: flags.has('--admin') ? true : flags.has('--no-admin') ? false : undefined,
      });
      if (Object.keys(change).length === 0)
        throw new UsageError('assay user set needs --standing, --trial-ends, --kind, --admin or --no-admin');
      return withAccounts(invocation, db => {
        const account = getAccount(db, positionals[0] ?? '');
        changeAccount(db, account, change);
        return print(invocation, undefined, [`${account.email} saved.`]);
      });
    });
  },
};

const reset: Command = {
  name: 'user reset',
  summary: 'Creates a new password and API key; prints them, once.',
  positionals: ['EMAIL'],
  flags: { ...settingFlags, json: 'flag' },
  help: ['Revokes the old ones, sign-in links, sessions and OAuth tokens.', '', JSON_LINE, DATA_LINE],
  async run(invocation) {
    return withAccounts(invocation, async db => {
      const account = getAccount(db, invocation.positionals[0] ?? '');
      const secrets = await resetAccount(db, account);
      return showSecrets(invocation, account.email, secrets);
    });
  },
};

const addApplication: Command = {
  name: 'app add',
  summary: 'Registers an OAuth application; prints its client id and secret, once.',
  positionals: ['NAME'],
  flags: { ...settingFlags, owner: 'value', 'redirect-uri': 'value', public: 'flag', json: 'flag' },
  help: [
    '  --owner EMAIL         whose application it is',
    '  --redirect-uri URL    where codes and tokens are sent, or urn:ietf:wg:oauth:2.0:oob',
    '  --public              has no secret and must use PKCE',
    JSON_LINE,
    DATA_LINE,
  ],
  async run(invocation) {
    const { flags, positionals } = invocation;
    const [name = ''] = positionals;
    const owner = flags.get('--owner');
    if (owner === undefined) throw new UsageError('assay app add needs --owner EMAIL');
    const redirectUri = flags.get('--redirect-uri') ?? '';
    const given = { name: quoted('NAME', name), redirect_uri: quoted('--redirect-uri', redirectUri) };
    return describeRefusals(given, () => {
      const registration = parseNewApplication({ name, redirectUri, isPublic: flags.has('--public') });
      return withAccounts(invocation, db => {
        const ownerId = getAccount(db, owner).id;
        const { application, clientSecret } = createApplication(db, { ownerId, ...registration });
        return print(
          invocation,
          { client_id: application.clientId, ...(clientSecret && { client_secret: clientSecret }) },
          [
            `client id      ${application.clientId}`,
            clientSecret
              ? `client secret  ${clientSecret}   (shown only now)`
              : 'It has no secret: it must use PKCE.',
          ],
        );
      });
    });
  },
};

export const accountCommands: readonly Command[] = [add, list, set, reset, addApplication];

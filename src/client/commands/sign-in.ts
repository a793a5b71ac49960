// `assay login`, `assay logout` and `assay hosts`: which servers the user is signed in to.

import { X509Certificate } from 'node:crypto';
import { ask, type Command, print, readInputLine, UsageError } from '../../command/command.ts';
import { COMMAND_LINE_CLIENT_ID } from '../../domain/oauth.ts';
import { signInWithBrowser } from '../browser-sign-in.ts';
import { chooseAuthority } from '../certificate.ts';
import { openConnection, ServerError } from '../connection.ts';
import { EXIT, refused, unreachable } from '../exit-status.ts';
import { type Credentials, type Host, parseHostUrl, readCaFile, readHosts, writeHosts } from '../hosts.ts';
import { jsonLine, plain, table, write } from '../output.ts';

const JSON_LINE = '  --json                prints JSON, one record on a line';

const login: Command = {
  name: 'login',
  summary: 'Signs in to a server and makes it the default.',
  positionals: ['URL'],
  flags: { 'with-key': 'flag', email: 'value', fingerprint: 'value', json: 'flag' },
  help: [
    '  assay login https://ci.example.org',
    '',
    'Shows the fingerprint of a certificate authority that this machine does not trust, and keeps it if you accept it.',
    'The sign-in is kept in hosts.json in your configuration directory, readable for you only.',
    '',
    '  --with-key            asks for your email and API key',
    '                        [reads the key from standard input if that is not a terminal]',
    '  --email EMAIL         the email for --with-key',
    '  --fingerprint SHA256  accepts only the authority with this fingerprint, without a question',
    JSON_LINE,
  ],
  async run(invocation) {
    const { flags, environment, positionals } = invocation;
    const url = parseHostUrl(positionals[0] ?? '');
    if (flags.has('--email') && !flags.has('--with-key'))
      throw new UsageError('--email belongs to --with-key');
    const hosts = readHosts(environment);
    const known = hosts.list.find(host => host.url === url);
    const ca =
      readCaFile(environment) ??
      (await chooseAuthority({ url, accepted: known?.ca, fingerprint: flags.get('--fingerprint') }));
    await checkServer(url, ca);
    const credentials = flags.has('--with-key')
      ? await askForKey(url, flags.get('--email'))
      : { token: await signInWithBrowser({ url, ca }, environment) };
    const host: Host = { url, ca, credentials, email: await findEmail({ url, ca, credentials }) };
    writeHosts(environment, {
      defaultUrl: url,
      list: [...hosts.list.filter(one => one.url !== url), host],
    });
    if (known) await revoke(known);
    if (environment.ASSAY_TOKEN) remark('ASSAY_TOKEN is set: it takes precedence over this sign-in.');
    return print(invocation, { url, email: host.email }, [
      `signed in to ${url} as ${plain(host.email ?? '')}`,
    ]);
  },
};

const logout: Command = {
  name: 'logout',
  summary: 'Signs out of a server.',
  positionals: ['[URL]'],
  flags: { json: 'flag' },
  help: ['URL may be left out for the default server.', '', JSON_LINE],
  async run(invocation) {
    const { environment, positionals } = invocation;
    const { list, defaultUrl } = readHosts(environment);
    const host = findHost(list, positionals[0] ?? defaultUrl);
    const rest = list.filter(one => one !== host);
    await revoke(host);
    const nextUrl = defaultUrl === host.url ? rest.at(-1)?.url : defaultUrl;
    writeHosts(environment, { defaultUrl: nextUrl, list: rest });
    return print(invocation, { url: host.url }, [
      `signed out of ${host.url}`,
      ...(nextUrl === undefined || nextUrl === defaultUrl ? [] : [`the default is now ${nextUrl}`]),
    ]);
  },
};

const hosts: Command = {
  name: 'hosts',
  summary: 'Lists the servers that you are signed in to, or makes one the default.',
  positionals: ['[URL]'],
  flags: { json: 'flag' },
  help: ['With URL, that server becomes the default.', '', JSON_LINE],
  async run({ environment, positionals, flags }) {
    const { list, defaultUrl: before } = readHosts(environment);
    const defaultUrl = positionals[0] === undefined ? before : findHost(list, positionals[0]).url;
    if (defaultUrl !== before) writeHosts(environment, { defaultUrl, list });
    if (environment.ASSAY_URL) remark(`ASSAY_URL is set: commands use ${environment.ASSAY_URL}.`);
    if (flags.has('--json'))
      for (const host of list)
        await write(
          jsonLine({
            url: host.url,
            email: host.email ?? null,
            default: host.url === defaultUrl,
            credentials: kindOf(host.credentials) ?? null,
            ca_fingerprint: fingerprintOf(host.ca) ?? null,
          }),
        );
    else if (list.length === 0) remark('You are not signed in to any server: "assay login URL" signs in.');
    else
      for (const line of table(
        list.map(({ url, email, credentials }) => [
          url === defaultUrl ? '*' : ' ',
          url,
          plain(email ?? ''),
          { token: 'browser', api_key: 'API key' }[kindOf(credentials) ?? 'token'],
        ]),
      ))
        await write(`${line}\n`);
    return EXIT.passed;
  },
};

export const signInCommands: readonly Command[] = [login, logout, hosts];

const remark = (text: string) => void process.stderr.write(`${text}\n`);

const kindOf = (credentials: Credentials | undefined) =>
  credentials && ('token' in credentials ? 'token' : 'api_key');

function fingerprintOf(ca: string | undefined): string | undefined {
  try {
    return ca === undefined ? undefined : new X509Certificate(ca).fingerprint256;
  } catch {
    return undefined;
  }
}

function findHost(list: readonly Host[], given: string | undefined): Host {
  if (given === undefined) throw refused('you are not signed in to any server');
  const url = parseHostUrl(given);
  const host = list.find(one => one.url === url);
  if (!host) throw refused(`you are not signed in to ${url}: "assay hosts" lists the servers`);
  return host;
}

/** Throws unless an Assay server responds. Sends no credentials. */
async function checkServer(url: string, ca: string | undefined): Promise<void> {
  const connection = openConnection({ url, ca, credentials: undefined });
  try {
    if ((await connection.call('GET', '/ping')) === 'pong') return;
  } finally {
    connection.close();
  }
  throw unreachable(`what responds at ${url} is not an Assay server`);
}

/** Whose credentials they are. Throws if the server does not accept them. */
async function findEmail(host: Pick<Host, 'url' | 'ca' | 'credentials'>): Promise<string> {
  const connection = openConnection(host);
  try {
    return (await connection.call<{ email: string }>('GET', '/whoami')).email;
  } catch (error) {
    if (error instanceof ServerError && error.status === 401 && kindOf(host.credentials) === 'api_key')
      throw refused(
        `the server does not accept this email and API key: ${host.url}/ui/account makes a new key`,
      );
    throw error;
  } finally {
    connection.close();
  }
}

async function askForKey(url: string, given: string | undefined): Promise<Credentials> {
  const withoutTerminal = '--with-key needs --email EMAIL, and the API key on standard input';
  const email = given ?? (await ask('Email: ', withoutTerminal));
  const apiKey = process.stdin.isTTY
    ? await ask(`API key (${url}/ui/account makes one): `, withoutTerminal, { isSecret: true })
    : await readInputLine();
  if (!email?.trim() || !apiKey?.trim()) throw new UsageError('an email and an API key are needed');
  return { email: email.trim(), apiKey: apiKey.trim() };
}

/** Ends an access token on the server, if the server can be reached. */
async function revoke({ url, ca, credentials }: Pick<Host, 'url' | 'ca' | 'credentials'>): Promise<void> {
  if (!credentials || !('token' in credentials)) return;
  const connection = openConnection({ url, ca, credentials: undefined });
  try {
    const fields = { client_id: COMMAND_LINE_CLIENT_ID, token: credentials.token };
    const response = await connection.send('POST', '/oauth2/revoke', { fields });
    response.resume();
    if (response.statusCode !== 200) throw unreachable(`status ${response.statusCode}`);
  } catch (error) {
    remark(
      `The server could not end the sign-in (${(error as Error).message}): revoke it at ${url}/ui/applications.`,
    );
  } finally {
    connection.close();
  }
}

// The servers that the user has signed in to, in a private file of the user's configuration directory. Environment variables
// take precedence, for scripts.

import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, platform } from 'node:os';
import { dirname, join } from 'node:path';
import { type Invocation, UsageError } from '../command/command.ts';
import { refused } from './exit-status.ts';

export type Credentials = { token: string } | { email: string; apiKey: string };

export type Host = {
  /** The origin, without a slash at the end. */
  url: string;
  email: string | undefined;
  credentials: Credentials | undefined;
  /** PEM: the only authority that is trusted for this server. Undefined: those that the system trusts. */
  ca: string | undefined;
};

type StoredHost = { url: string; email?: string; token?: string; api_key?: string; ca?: string };
type Stored = { default?: string; hosts: StoredHost[] };

export type Hosts = { defaultUrl: string | undefined; list: Host[] };

function hostsPath(environment: NodeJS.ProcessEnv): string {
  const base =
    environment.XDG_CONFIG_HOME ||
    (platform() === 'win32' && environment.APPDATA) ||
    join(environment.HOME || homedir(), '.config');
  return join(base, 'assay', 'hosts.json');
}

export function readHosts(environment: NodeJS.ProcessEnv): Hosts {
  const path = hostsPath(environment);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { defaultUrl: undefined, list: [] };
    throw refused(`${path} cannot be read: ${(error as Error).message}`);
  }
  try {
    const stored = JSON.parse(text) as Stored;
    if (stored.hosts.some(({ url }) => typeof url !== 'string')) throw new TypeError('no address');
    return { defaultUrl: stored.default, list: stored.hosts.map(fromStored) };
  } catch {
    throw refused(`${path} is damaged: delete it and sign in again with "assay login URL"`);
  }
}

const fromStored = ({ url, email, token, api_key: apiKey, ca }: StoredHost): Host => ({
  url,
  email,
  credentials:
    token !== undefined
      ? { token }
      : apiKey !== undefined && email !== undefined
        ? { email, apiKey }
        : undefined,
  ca,
});

const toStored = ({ url, email, credentials, ca }: Host): StoredHost => ({
  url,
  ...(email !== undefined && { email }),
  ...(credentials && 'token' in credentials && { token: credentials.token }),
  ...(credentials && 'apiKey' in credentials && { api_key: credentials.apiKey }),
  ...(ca !== undefined && { ca }),
});

/** Replaces the file. It is never readable for others, not even for a moment. */
export function writeHosts(environment: NodeJS.ProcessEnv, { defaultUrl, list }: Hosts): void {
  const path = hostsPath(environment);
  const temporary = `${path}.${process.pid}`;
  const stored: Stored = {
    ...(defaultUrl !== undefined && { default: defaultUrl }),
    hosts: list.map(toStored),
  };
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(temporary, `${JSON.stringify(stored, undefined, 2)}\n`, { mode: 0o600 });
    chmodSync(temporary, 0o600);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw refused(`${path} cannot be written: ${(error as Error).message}`);
  }
}

/** `https://host:port`, from what a user types. */
export function parseHostUrl(text: string): string {
  const given = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `https://${text}`;
  if (!URL.canParse(given))
    throw new UsageError(`${JSON.stringify(text)} is not an address such as https://ci.example.org`);
  const { protocol, origin, username } = new URL(given);
  if (protocol !== 'https:') throw new UsageError(`the address must begin with https://, not ${protocol}//`);
  if (username !== '') throw new UsageError('the address must not contain a user name or a password');
  return origin;
}

/** The server of this invocation: --host, ASSAY_URL, or the one that was signed in to last. */
export function chooseHost({ flags, environment }: Pick<Invocation, 'flags' | 'environment'>): Host {
  const { list, defaultUrl } = readHosts(environment);
  const given = flags.get('--host') ?? (environment.ASSAY_URL || undefined);
  const url = given === undefined ? defaultUrl : parseHostUrl(given);
  if (url === undefined)
    throw refused('you are not signed in: "assay login URL" signs in to a server, ASSAY_URL names one');
  const known = list.find(host => host.url === url);
  const credentials = environment.ASSAY_TOKEN ? parseToken(environment.ASSAY_TOKEN) : known?.credentials;
  const ca = readCaFile(environment) ?? known?.ca;
  if (!credentials) throw refused(`you are not signed in to ${url}: "assay login ${url}" signs in`);
  return { url, email: known?.email, credentials, ca };
}

/** An access token, or an email and an API key with a colon between them. */
function parseToken(text: string): Credentials {
  const colon = text.indexOf(':');
  return colon < 0 ? { token: text } : { email: text.slice(0, colon), apiKey: text.slice(colon + 1) };
}

/** The authority that ASSAY_CA_FILE names. */
export function readCaFile({ ASSAY_CA_FILE: path }: NodeJS.ProcessEnv): string | undefined {
  if (!path) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`ASSAY_CA_FILE: ${(error as Error).message}`);
  }
}

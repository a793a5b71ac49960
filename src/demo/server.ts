// What every demo starts: a server with one account, a Git host with the sample repository, and a client of the API.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type App, startApp } from '../app.ts';
import type { Settings } from '../config.ts';
import { hashPassword, newReadableSecret, newSecret } from '../domain/secret.ts';
import type { Log } from '../log.ts';
import { createAccount } from '../store/accounts.ts';
import { tlsDirectory } from '../store/data/paths.ts';
import { type ApiClient, createApiClient } from './api-client.ts';
import { type GitHost, startGitHost } from './git-host.ts';
import { createRepository } from './repository.ts';
import { GIT_HOST, history, WEBSITE } from './sample.ts';

const EMAIL = 'demo@example.org';
const DEMO_MS = 5 * 60_000;

/** Run at the end, the last one first. */
export type Cleanups = (() => unknown)[];

/** A temporary directory. */
export async function createPlace(cleanups: Cleanups): Promise<string> {
  const place = await mkdtemp(join(tmpdir(), 'assay-demo-'));
  cleanups.push(() => rm(place, { recursive: true, force: true }));
  return place;
}

export type DemoServer = {
  app: App;
  email: string;
  password: string;
  apiKey: string;
  caPath: string;
  /** Its calls end with `stop`, or after a few minutes. */
  openApi(stop: AbortSignal, cleanups: Cleanups): Promise<ApiClient>;
};

/** The caller closes `app`. */
export async function startDemoServer(
  settings: Settings,
  log: Log,
  beginWork?: Parameters<typeof startApp>[2],
): Promise<DemoServer> {
  const app = await startApp(settings, log, beginWork);
  const password = newReadableSecret(3, 5);
  const apiKey = newSecret('assay');
  const passwordHash = await hashPassword(password);
  createAccount(app.db, { email: EMAIL, kind: 'user', admin: true, passwordHash, apiKey });
  const caPath = join(tlsDirectory(settings.data), 'ca.pem');
  return {
    app,
    email: EMAIL,
    password,
    apiKey,
    caPath,
    async openApi(stop, cleanups) {
      const api = createApiClient({
        url: app.url,
        ca: await readFile(caPath, 'utf8'),
        email: EMAIL,
        apiKey,
        signal: AbortSignal.any([stop, AbortSignal.timeout(DEMO_MS)]),
      });
      cleanups.push(() => api.close());
      return api;
    },
  };
}

/** The Git host has the website with its history, and empty repositories of the other names. */
export async function startDemoGitHost(
  repositories: string,
  data: string,
  cleanups: Cleanups,
  others: readonly string[] = [],
): Promise<GitHost> {
  await createRepository(join(repositories, WEBSITE), history);
  for (const name of others) await createRepository(join(repositories, name));
  const gitHost = await startGitHost(repositories);
  cleanups.push(() => gitHost.close());
  await writeFile(join(data, 'ssh', 'config'), gitHost.clientConfig(GIT_HOST));
  return gitHost;
}

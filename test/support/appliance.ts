// A complete server for end-to-end tests: the application in this process or in its own, a real Git host and a real
// Docker Engine. Tests use it only through the public API and wait for events of its firehoses.
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type App, startApp } from '../../src/app.ts';
import { readSettings, type Settings } from '../../src/config.ts';
import { removeTraces } from '../../src/demo/host.ts';
import { newSecret } from '../../src/domain/secret.ts';
import { OWN_BRIDGE } from '../../src/engine/engine.ts';
import { createLog } from '../../src/log.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { instanceOf } from '../../src/store/database/stored-values.ts';
import { basic, type Client, createClient } from './client.ts';
import { createJourney, type Journey } from './journey.ts';
import { startSshd, type TestSshd } from './sshd.ts';

export type Appliance = Journey & {
  app: App;
  /** Email and API key of its account, with a colon between them. */
  token: string;
  client: Client;
  data: string;
  sshd: TestSshd;
  instance: string;
  /** What the program logged. */
  logged: string[];
  /** Checks at once and after each change of the database, for what has no event. */
  committed<T>(find: () => Promise<T | undefined>): Promise<T>;
  /** The names of its containers in Docker, once they satisfy the condition. */
  containersUntil(holds: (names: string[]) => boolean): Promise<string[]>;
  close(): Promise<void>;
};

export const DOCKER_HOST = process.env.DOCKER_HOST || 'unix:///var/run/docker.sock';

/** A data directory that is configured for the Git host. */
export function makeData(sshd: TestSshd): string {
  const data = mkdtempSync(join(tmpdir(), 'assay-journey-'));
  mkdirSync(join(data, 'ssh'), { mode: 0o700 });
  writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
  return data;
}

export async function startAppliance(
  overrides: Partial<Settings> = {},
  beginWork?: Parameters<typeof startApp>[2],
): Promise<Appliance> {
  const sshd = await startSshd();
  const data = makeData(sshd);
  const { settings } = readSettings(
    new Map([
      ['--data', data],
      ['--listen', '127.0.0.1:0'],
      ['--network', 'none'],
      ['--min-free-disk', '1MiB'],
    ]),
    process.env,
  );
  const logged: string[] = [];
  const app = await startApp(
    { ...settings, ...overrides },
    createLog(line => logged.push(line), {}),
    beginWork,
  );
  const instance = instanceOf(app.db);
  const key = newSecret('assay');
  const email = 'owner@example.org';
  createAccount(app.db, { email, kind: 'user', admin: true, passwordHash: null, apiKey: key });
  const client = createClient(app.url, readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'));
  return {
    ...createJourney({ client, as: basic(email, key), sshd }),
    app,
    token: `${email}:${key}`,
    client,
    data,
    sshd,
    instance,
    logged,
    committed: find => untilCommitted(app, find),
    containersUntil: holds => containersUntil(instance, holds),
    async close() {
      client.close();
      await app.close();
      await sshd.close();
      await clearDocker(instance);
      rmSync(data, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
    },
  };
}

async function untilCommitted<T>(app: App, find: () => Promise<T | undefined>): Promise<T> {
  const onCommit = app.db.onCommit;
  let changed = Promise.withResolvers<void>();
  app.db.onCommit = topics => {
    onCommit(topics);
    changed.resolve();
    changed = Promise.withResolvers();
  };
  const timer = setTimeout(() => changed.reject(new Error(`timed out waiting for ${find}`)), 60_000);
  try {
    for (;;) {
      const next = changed.promise;
      const found = await find();
      if (found !== undefined) return found;
      await next;
    }
  } finally {
    clearTimeout(timer);
    app.db.onCommit = onCommit;
  }
}

export function containersUntil(
  instance: string,
  holds: (names: string[]) => boolean,
  waitMs = 60_000,
): Promise<string[]> {
  const label = `label=assay.instance=${instance}`;
  const find = () => docker('ps', '-a', '--filter', label, '--format', '{{.Names}}');
  return dockerUntil(['type=container', label], find, holds, waitMs);
}

/** Resolves when Docker no longer has a volume whose name contains the text. */
export async function volumeGone(text: string): Promise<void> {
  const find = () => docker('volume', 'ls', '-q', '--filter', `name=${text}`);
  await dockerUntil(['type=volume', 'event=destroy'], find, names => names.length === 0);
}

/** Checks at once and after each event of Docker, including recent ones, since the subscription starts late. */
async function dockerUntil(
  filters: readonly string[],
  find: () => Promise<string>,
  holds: (names: string[]) => boolean,
  waitMs = 60_000,
): Promise<string[]> {
  const since = String(Math.floor(Date.now() / 1000) - 2);
  const chosen = filters.flatMap(filter => ['--filter', filter]);
  const events = spawn('docker', ['events', '--since', since, ...chosen], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: waitMs,
  });
  try {
    let names = (await find()).split('\n').filter(Boolean);
    if (holds(names)) return names;
    for await (const _ of events.stdout) {
      names = (await find()).split('\n').filter(Boolean);
      if (holds(names)) return names;
    }
    throw new Error(`timed out; Docker has ${names.join(', ') || 'nothing'}`);
  } finally {
    events.kill();
  }
}

/** Removes everything that a server has in Docker, including its network and rules. */
export async function clearDocker(instance: string, dockerHost = DOCKER_HOST): Promise<void> {
  const label = `label=assay.instance=${instance}`;
  const bridge = await docker('--host', dockerHost, 'network', 'ls', '-q', '--filter', label);
  try {
    await removeTraces(
      { dockerHost, network: bridge === '' ? 'none' : OWN_BRIDGE, runAs: { uid: 1000, gid: 1000 } },
      instance,
    );
  } catch (error) {
    const states = await docker('--host', dockerHost, 'ps', '-a', '--filter', label);
    throw new Error(`could not clear Docker:\n${states}`, { cause: error });
  }
}

export async function docker(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('docker', args, { timeout: 60_000 });
  return stdout.trim();
}

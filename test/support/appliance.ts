// A whole appliance for journeys: the real application or a server of its own process, a real Git host, a real Docker
// Engine; driven through the public API alone, and waited for by its firehoses.
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type App, startApp } from '../../src/app.ts';
import { readSettings, type Settings } from '../../src/config.ts';
import { removeTraces } from '../../src/demo/host.ts';
import { newSecret } from '../../src/domain/secret.ts';
import { OWN_BRIDGE } from '../../src/engine/docker/network.ts';
import { createLog } from '../../src/log.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { instanceOf } from '../../src/store/database/settings.ts';
import { basic, type Client, createClient } from './client.ts';
import { createJourney, type Journey } from './journey.ts';
import { startSshd, type TestSshd } from './sshd.ts';

export type Appliance = Journey & {
  app: App;
  client: Client;
  data: string;
  sshd: TestSshd;
  instance: string;
  /** What the program wrote to its own log. */
  logged: string[];
  /** Looks at once, and again after each change of the database, for what no event tells of. */
  committed<T>(look: () => Promise<T | undefined>): Promise<T>;
  /** The names of the containers it has in Docker, once they are as they should be. */
  containersUntil(holds: (names: string[]) => boolean): Promise<string[]>;
  close(): Promise<void>;
};

export const DOCKER_HOST = process.env.DOCKER_HOST || 'unix:///var/run/docker.sock';

/** A data directory that reaches the Git host. */
export function makeData(sshd: TestSshd): string {
  const data = mkdtempSync(join(tmpdir(), 'assay-journey-'));
  mkdirSync(join(data, 'ssh'), { mode: 0o700 });
  writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
  return data;
}

export async function startAppliance(overrides: Partial<Settings> = {}): Promise<Appliance> {
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
  );
  const instance = instanceOf(app.db);
  const key = newSecret('assay');
  const email = 'owner@example.org';
  createAccount(app.db, { email, kind: 'user', admin: true, passwordHash: null, apiKey: key });
  const client = createClient(app.url, readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'));
  return {
    ...createJourney({ client, as: basic(email, key), sshd }),
    app,
    client,
    data,
    sshd,
    instance,
    logged,
    committed: look => untilCommitted(app, look),
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

async function untilCommitted<T>(app: App, look: () => Promise<T | undefined>): Promise<T> {
  const told = app.db.onCommit;
  let changed = Promise.withResolvers<void>();
  app.db.onCommit = topics => {
    told(topics);
    changed.resolve();
    changed = Promise.withResolvers();
  };
  const late = setTimeout(() => changed.reject(new Error(`waited in vain for ${look}`)), 60_000);
  try {
    for (;;) {
      const next = changed.promise;
      const found = await look();
      if (found !== undefined) return found;
      await next;
    }
  } finally {
    clearTimeout(late);
    app.db.onCommit = told;
  }
}

export function containersUntil(
  instance: string,
  holds: (names: string[]) => boolean,
  waitMs = 60_000,
): Promise<string[]> {
  const label = `label=assay.instance=${instance}`;
  const look = () => docker('ps', '-a', '--filter', label, '--format', '{{.Names}}');
  return dockerUntil(['type=container', label], look, holds, waitMs);
}

/** Resolves when Docker no longer has a volume whose name holds the text. */
export async function volumeGone(text: string): Promise<void> {
  const look = () => docker('volume', 'ls', '-q', '--filter', `name=${text}`);
  await dockerUntil(['type=volume', 'event=destroy'], look, names => names.length === 0);
}

/** Looks at once, and again after each event of Docker's; those of the last moments, too: it listens only after a while. */
async function dockerUntil(
  filters: readonly string[],
  look: () => Promise<string>,
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
    let names = (await look()).split('\n').filter(Boolean);
    if (holds(names)) return names;
    for await (const _ of events.stdout) {
      names = (await look()).split('\n').filter(Boolean);
      if (holds(names)) return names;
    }
    throw new Error(`waited in vain; Docker has ${names.join(', ') || 'nothing'}`);
  } finally {
    events.kill();
  }
}

/** Takes away whatever an appliance has in Docker, its network and rules included. */
export async function clearDocker(instance: string, dockerHost = DOCKER_HOST): Promise<void> {
  const label = `label=assay.instance=${instance}`;
  const bridge = await docker('--host', dockerHost, 'network', 'ls', '-q', '--filter', label);
  await removeTraces(
    { dockerHost, network: bridge === '' ? 'none' : OWN_BRIDGE, runAs: { uid: 1000, gid: 1000 } },
    instance,
  );
}

export async function docker(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('docker', args, { timeout: 60_000 });
  return stdout.trim();
}

// The environment of a drill: a data directory, a Docker Engine, a Git host, a webhook receiver, the program and an API
// client. All on loopback, and removed at the end.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databasePath } from '../../../src/store/data/paths.ts';
import { openSqlite } from '../../../src/store/database/db.ts';
import { clearDocker } from '../../support/appliance.ts';
import { type Answer, basic, type Client, createClient, type Fields } from '../../support/client.ts';
import { createJourney, type Journey } from '../../support/journey.ts';
import { freePort } from '../../support/ports.ts';
import { startSshd, type TestSshd } from '../../support/sshd.ts';
import { createPrivateEngine, type PrivateEngine } from './engine.ts';
import { type Gate, openGate } from './gate.ts';
import { createProgram, type Program } from './program.ts';
import { type Receiver, startReceiver } from './receiver.ts';

export type DrillEnvironment = {
  directory: string;
  data: string;
  logFile: string;
  sshd: TestSshd;
  receiver: Receiver;
  program: Program;
  /** Only if the drill asked for one. */
  engine: PrivateEngine;
  /** Only if the drill asked for one: the program uses it as its engine. */
  gate: Gate;
  as: string;
  /** Available once the program has served. */
  client(): Client;
  /** The actions of its user. Available once the program has served. */
  journey(): Journey;
  /** Sends a request. Any status except for 500 is accepted. */
  ask(method: string, path: string, form?: Fields): Promise<Answer>;
  /** Problems in the database after a crash. Checks a copy, so that the next start finds it unchanged. */
  checkDatabaseFile(): string[];
  instance(): string;
  close(): Promise<void>;
};

/** Responses that a healthy program never sends. */
export class Defect extends Error {}

export async function openEnvironment(options: {
  environment?: Record<string, string>;
  command: readonly string[];
  /** An existing data directory, such as a small file system. */
  data?: string;
  receiver?: Parameters<typeof startReceiver>[0];
  /** Where a private Docker Engine stores its data; without it, the program has no engine. */
  engine?: Parameters<typeof createPrivateEngine>[0];
  /** Whether the program reaches the engine through a gate. */
  gated?: boolean;
}): Promise<DrillEnvironment> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-drill-'));
  const data = options.data ?? join(directory, 'data');
  const logFile = join(directory, 'program.log');
  const engine = options.engine && (await createPrivateEngine(options.engine));
  const gate = options.gated && engine ? await openGate(engine.dockerHost) : undefined;
  const sshd = await startSshd();
  const receiver = await startReceiver(options.receiver);
  mkdirSync(join(data, 'ssh'), { recursive: true, mode: 0o700 });
  writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
  const port = await freePort();
  const program = createProgram({
    command: options.command,
    logFile,
    environment: {
      ASSAY_DATA: data,
      ASSAY_LISTEN: `127.0.0.1:${port}`,
      ASSAY_WEBHOOK_ALLOW: '127.0.0.0/8',
      ASSAY_MIN_FREE_DISK: '1MiB',
      ASSAY_TIMEOUT: '120',
      DOCKER_HOST: gate?.dockerHost ?? engine?.dockerHost ?? 'unix:///nonexistent/docker.sock',
      ...options.environment,
    },
  });
  const email = 'owner@example.org';
  const made = JSON.parse(await program.run('user', 'add', email, '--admin', '--json')) as {
    api_key: string;
  };
  const as = basic(email, made.api_key);
  let client: Client | undefined;
  const environment: DrillEnvironment = {
    directory,
    data,
    logFile,
    sshd,
    receiver,
    program,
    get engine() {
      if (!engine) throw new Error('this drill has no engine');
      return engine;
    },
    get gate() {
      if (!gate) throw new Error('this drill has no gate');
      return gate;
    },
    as,
    client() {
      client ??= createClient(`https://127.0.0.1:${port}`, readFileSync(join(data, 'tls/ca.pem'), 'utf8'));
      return client;
    },
    journey: () => createJourney({ client: environment.client(), as, sshd }),
    async ask(method, path, form) {
      const answer = await environment.client().call(method, path, { as, ...(form && { form }) });
      if (answer.status >= 500) throw new Defect(`${method} ${path}: ${answer.status} ${answer.text}`);
      return answer;
    },
    checkDatabaseFile() {
      const copy = mkdtempSync(join(directory, 'database-'));
      for (const suffix of ['', '-wal'])
        if (existsSync(databasePath(data) + suffix))
          copyFileSync(databasePath(data) + suffix, databasePath(copy) + suffix);
      const sqlite = openSqlite(databasePath(copy));
      try {
        const found = [...(sqlite.pragma('integrity_check') as { integrity_check: string }[])]
          .map(row => row.integrity_check)
          .filter(text => text !== 'ok');
        return [
          ...found,
          ...(sqlite.pragma('foreign_key_check') as unknown[]).map(row => JSON.stringify(row)),
        ];
      } finally {
        sqlite.close();
        rmSync(copy, { recursive: true, force: true });
      }
    },
    instance() {
      const sqlite = openSqlite(databasePath(data), { readonly: true });
      try {
        return sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get() as string;
      } finally {
        sqlite.close();
      }
    },
    async close() {
      client?.close();
      await receiver.close();
      await gate?.close();
      await sshd.close();
      if (engine && existsSync(databasePath(data)))
        await clearDocker(environment.instance(), engine.dockerHost);
      await engine?.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
  return environment;
}

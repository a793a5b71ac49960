// Everything that a drill happens in: a data directory, a Docker Engine, a Git host, a receiver of webhooks, the program,
// a caller of its API. All of it on loopback, all of it gone when the drill is over.
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
import { databasePath } from '../../src/store/data/paths.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { clearDocker } from '../support/appliance.ts';
import { type Answer, basic, type Client, createClient, type Fields } from '../support/client.ts';
import { freePort } from '../support/ports.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';
import { createPrivateEngine, type PrivateEngine } from './engine.ts';
import { type Gate, openGate } from './gate.ts';
import { createProgram, type Program } from './program.ts';
import { type Receiver, startReceiver } from './receiver.ts';

export type Room = {
  directory: string;
  data: string;
  logFile: string;
  sshd: TestSshd;
  receiver: Receiver;
  program: Program;
  /** Only where the drill wanted one. */
  engine: PrivateEngine;
  /** Only where the drill wanted one: what the program takes for the engine. */
  gate: Gate;
  as: string;
  /** There once the program has served. */
  client(): Client;
  /** An answer of any status but 500, which no drill may see. */
  ask(method: string, path: string, form?: Fields): Promise<Answer>;
  /** What the database holds after a crash, examined in a copy, so that the next start finds it as it was left. */
  checkDatabaseFile(): string[];
  instance(): string;
  close(): Promise<void>;
};

/** Answers that no caller of a healthy program gets. */
export class Defect extends Error {}

export async function openRoom(options: {
  environment?: Record<string, string>;
  command: readonly string[];
  /** A data directory that is there already, such as a small file system. */
  data?: string;
  receiver?: Parameters<typeof startReceiver>[0];
  /** Where a Docker Engine of its own keeps what it has; without, the program finds none. */
  engine?: Parameters<typeof createPrivateEngine>[0];
  /** Whether the program reaches the engine through a gate. */
  gated?: boolean;
}): Promise<Room> {
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
  const room: Room = {
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
    async ask(method, path, form) {
      const answer = await room.client().call(method, path, { as, ...(form && { form }) });
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
      if (engine && existsSync(databasePath(data))) await clearDocker(room.instance(), engine.dockerHost);
      await engine?.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
  return room;
}

// A database with one project, receivers on loopback that record what they get, and the real deliverer.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { EventType } from '../../src/contract/events.ts';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { parseCidrs } from '../../src/domain/webhook/address.ts';
import { newSigningSecret } from '../../src/domain/webhook/signature.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { recordEvent } from '../../src/store/events.ts';
import { createNotification, type Delivery, listDeliveries } from '../../src/store/notifications.ts';
import { createProject } from '../../src/store/projects.ts';
import { startDeliveries } from '../../src/work/deliver-notifications.ts';

export const loopback = parseCidrs('127.0.0.0/8');

export type Received = { id: string; headers: IncomingHttpHeaders; body: string; path: string };
type Answer = (response: ServerResponse, received: Received, request: IncomingMessage) => void;

export const eventIds = (deliveries: { eventId: bigint }[]) =>
  deliveries.map(delivery => String(delivery.eventId));

export function openWebhookFixture(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'assay-webhooks-'));
  const path = join(directory, 'assay.db');
  const key = randomBytes(32);
  const clock = { aheadMs: 0 };
  const db = openDb(path, createVault(key), () => Date.now() + clock.aheadMs);
  const live = createLive();
  db.onCommit = topics => live.publish(topics);
  const logged: string[] = [];
  const log = createLog(line => logged.push(line), {});
  const outcomes: string[] = [];
  const waits = new Set<() => void>();
  const noticed = () => {
    for (const look of [...waits]) look();
  };
  /** Resolves when `holds` is true, checked after each received request and each recorded outcome. */
  const until = (isDone: () => boolean) =>
    new Promise<void>(resolve => {
      const look = () => {
        if (!isDone()) return;
        waits.delete(look);
        resolve();
      };
      waits.add(look);
      look();
    });

  const owner = createAccount(db, {
    email: 'owner@example.org',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey: null,
  });
  const newProject = (name: string) =>
    createProject(db, {
      ownerId: owner.id,
      name,
      description: 'Grüße',
      repositoryUrl: 'git@git.example.org:a/b.git',
      badge: false,
      cancelSuperseded: false,
      keyPair: generateKeyPair(name),
    });
  const project = newProject('assay');

  let started: { stop(): Promise<void> } | undefined;
  const begin = (allow = loopback) => {
    started = startDeliveries({
      db,
      live,
      log,
      allow,
      baseUrl: 'https://ci.example.org',
      onOutcome: outcome => {
        outcomes.push(outcome);
        noticed();
      },
    });
  };
  const stop = async () => {
    await started?.stop();
    started = undefined;
  };
  const closing: (() => void)[] = [];
  t.after(async () => {
    for (const close of closing) close();
    await stop();
    db.close();
    rmSync(directory, { recursive: true });
  });

  return {
    path,
    key,
    clock,
    db,
    live,
    logged,
    outcomes,
    project,
    newProject,
    until,
    noticed,
    begin,
    stop,
    /** Moves the clock forward and wakes the deliverer. */
    jump(byMs: number) {
      clock.aheadMs += byMs;
      live.publish(['deliveries']);
    },
    async receiver(answer: Answer = response => response.end('thanks')) {
      const received: Received[] = [];
      const sockets = new Set<Socket>();
      const server = createServer((request, response) => {
        const chunks: Buffer[] = [];
        request.on('data', chunk => chunks.push(chunk));
        request.on('end', () => {
          const one = {
            id: String(request.headers['webhook-id']),
            headers: request.headers,
            body: Buffer.concat(chunks).toString(),
            path: String(request.url),
          };
          received.push(one);
          answer(response, one, request);
          noticed();
        });
      });
      server.on('connection', socket => sockets.add(socket));
      closing.push(() => {
        server.close();
        for (const socket of sockets) socket.destroy();
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
      return { url, received };
    },
    notify(url: string, projectId = project.id) {
      const signingSecret = newSigningSecret();
      const notification = createNotification(db, {
        projectId,
        name: 'webhook',
        notifiableType: 'build',
        url,
        signingSecret,
      });
      return { ...notification, secret: signingSecret };
    },
    record(resourceId: bigint, type: EventType = 'build.started', projectId = project.id) {
      recordEvent(db, projectId, type, resourceId);
    },
    /** Oldest first. */
    deliveriesOf: (notification: { id: bigint }): Delivery[] =>
      listDeliveries(db, notification.id, { limit: 1_000_000, before: undefined }).reverse(),
  };
}

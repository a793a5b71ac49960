// Everything that takes time, put together: queue, containers, fetches, deploys, webhooks, sweep.

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Settings } from '../config.ts';
import { clearSshLeftovers } from '../engine/ssh.ts';
import { proxyOf } from '../engine/webhook.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import { sweepUploads } from '../store/archive.ts';
import type { Build } from '../store/builds.ts';
import type { Db } from '../store/db.ts';
import { findFact, instanceOf } from '../store/facts.ts';
import { jobDirectory, uploadDirectory } from '../store/paths.ts';
import { listCompiling, listRunningBuilds } from '../store/queue.ts';
import { createArtifacts } from './artifacts.ts';
import { startBatches } from './batches.ts';
import { createCompiler } from './compile-dependency.ts';
import { createContainerHost } from './container-host.ts';
import { type DeliveryOutcome, startDeliveries } from './deliver-webhook.ts';
import { watchDisk } from './disk.ts';
import { createHousekeeping } from './housekeeping.ts';
import { pushDeploy } from './push-deploy.ts';
import { type Queue, startQueue } from './queue.ts';
import type { RunParts } from './run-suite.ts';
import { startSweep } from './sweep.ts';
import { createTurns } from './turns.ts';

/** What Docker was asked before the stop may still be answered for this long. */
const DOCKER_GRACE_MS = 2_000;

export type Workers = {
  waiting: Queue['waiting'];
  heldUpBy: Queue['heldUpBy'];
  slotsUsed: Queue['slotsUsed'];
  /** Why Docker cannot be used now; undefined when it can. */
  dockerAway(): string | undefined;
  hasRoom(): boolean;
  freeDiskBytes(): number;
  stop(): Promise<void>;
};

export async function startWorkers(options: {
  settings: Settings;
  db: Db;
  live: Live;
  log: Log;
  onBuildFinished(build: Build): void;
  onDelivery(outcome: DeliveryOutcome): void;
}): Promise<Workers> {
  const { settings, db, live, log } = options;
  const dataDirectory = settings.data;
  await sweepUploads(uploadDirectory(dataDirectory));
  await clearSshLeftovers(dataDirectory);
  const stopping = new AbortController();
  let sweep: ReturnType<typeof startSweep> | undefined;
  const host = createContainerHost({
    dockerHost: settings.dockerHost,
    instance: instanceOf(db),
    network: settings.network,
    runAs: settings.runAs,
    log,
    // What it lost, and what it kept while nobody looked, is seen to at once.
    onAvailable: () => {
      live.publish(['queue']);
      sweep?.sweep();
    },
  });
  const disk = watchDisk({
    directory: dataDirectory,
    minFreeBytes: settings.minFreeDiskBytes,
    log,
    growing: () =>
      [
        ...listRunningBuilds(db).map(({ id, nonce }) => ({ kind: 'build', id, nonce })),
        ...listCompiling(db).map(({ id, nonce }) => ({ kind: 'dependency', id, nonce })),
      ].map(({ kind, id, nonce }) => ({
        topic: `${kind}:${id}`,
        nonce: nonce as string,
        sizeBytes: async () => {
          const output = await stat(join(jobDirectory(dataDirectory, kind, id), 'output')).catch(
            () => undefined,
          );
          const name = `assay-${instanceOf(db)}-${kind}-${id}`;
          const written = await host.engine.sizeOf(name, { volumes: true });
          return (output?.size ?? 0) + (written ?? 0);
        },
      })),
    condemn: topic => live.publish([topic]),
  });
  const housekeeping = createHousekeeping({ log, stopping: stopping.signal });
  const fetch = {
    db,
    live,
    log,
    dataDirectory,
    stopping: stopping.signal,
    turns: createTurns(),
    housekeeping,
    followed: new Set<bigint>(),
  };
  const artifacts = createArtifacts({ db, host, dataDirectory, runAs: settings.runAs });
  const run: RunParts = {
    db,
    log,
    host,
    live,
    stopping: stopping.signal,
    dataDirectory,
    limits: {
      memoryBytes: settings.memoryBytes,
      cpus: settings.cpus,
      pids: settings.pids,
      runAs: settings.runAs,
    },
    defaultImage: () => findFact(db, 'image') ?? settings.image,
    timeoutMs: settings.timeoutMs,
    logLimitBytes: settings.logLimitBytes,
    diskBytes: settings.diskBytes,
    mustEnd: disk.mustEnd,
    condemn: disk.condemn,
    attach: artifacts.attachToSuite,
    onFinished: options.onBuildFinished,
  };
  const queue = startQueue({
    db,
    live,
    log,
    concurrency: settings.concurrency,
    run,
    fetch,
    hasRoom: disk.hasRoom,
    compile: createCompiler({ ...run, artifacts, hasRoom: disk.hasRoom }),
    deploy: deploy => pushDeploy({ ...fetch, logLimitBytes: settings.logLimitBytes }, deploy),
  });
  const batches = startBatches({ db, live, log });
  const deliveries = startDeliveries({
    db,
    live,
    log,
    allow: settings.webhookAllow,
    proxy: proxyOf(process.env),
    onOutcome: options.onDelivery,
  });
  sweep = startSweep({ db, log, host, artifacts, dataDirectory, retentionMs: settings.retentionMs });

  return {
    waiting: queue.waiting,
    heldUpBy: queue.heldUpBy,
    slotsUsed: queue.slotsUsed,
    dockerAway: host.unavailable,
    hasRoom: disk.hasRoom,
    freeDiskBytes: disk.freeBytes,
    async stop() {
      stopping.abort();
      host.stop();
      disk.stop();
      sweep?.stop();
      batches.stop();
      const grace = setTimeout(host.close, DOCKER_GRACE_MS);
      await Promise.all([queue.stop(), deliveries.stop(), housekeeping.idle()]);
      clearTimeout(grace);
      host.close();
    },
  };
}

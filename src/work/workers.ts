// Starts and stops all background work: the queue with its fetches, builds, compiles and deploys; triggers; webhooks;
// the sweep.

import type { Settings } from '../config.ts';
import { resourceName } from '../domain/container/container-plan.ts';
import type { EngineNode } from '../domain/node.ts';
import type { FiringOutcome } from '../domain/trigger/trigger.ts';
import { closeKept } from '../engine/git/kept-connection.ts';
import { clearSshLeftovers } from '../engine/git/ssh.ts';
import { proxyOf } from '../engine/webhook.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Build } from '../store/builds.ts';
import { CACHES_TOPIC } from '../store/caches.ts';
import { findWaitingCompile } from '../store/compile-queue.ts';
import { sweepUploads } from '../store/data/archive-file.ts';
import { uploadDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import type { Dependency } from '../store/dependencies.ts';
import { registryAuthOf } from '../store/node-credentials.ts';
import { positionOf } from '../store/queue.ts';
import { createArtifacts } from './artifacts.ts';
import { startBatches } from './batches.ts';
import { createCaches } from './caches.ts';
import { compileWork } from './compile-job.ts';
import { createContainerHost } from './container-host.ts';
import { createContainerSlots } from './container-slots.ts';
import { type DeliveryOutcome, startDeliveries } from './deliver-notifications.ts';
import { watchDisk } from './disk.ts';
import { createEarlyStarts } from './early-start.ts';
import { createFileSystems } from './file-systems.ts';
import { createHostSlots } from './host-slots.ts';
import { createKeyedMutex } from './keyed-mutex.ts';
import { openEngine } from './open-engine.ts';
import { deployWork, pushDeploy } from './push-deploy.ts';
import { startQueue } from './queue.ts';
import { createLogFilters } from './result/filter-logs.ts';
import { createArtifactHashes } from './result/hash-artifacts.ts';
import { fetchWork } from './source/fetch-commit.ts';
import { createMissingSources } from './source/missing-sources.ts';
import { createRepacks } from './source/repack-mirrors.ts';
import { clearSnapshots } from './source/snapshots.ts';
import { suiteWork } from './suite-job.ts';
import { startSweep } from './sweep.ts';
import { startSchedules } from './trigger/fire-schedules.ts';
import { type LookOutcome, watchRepositories } from './trigger/watch-repositories.ts';
import { createJobMeter, listRunningJobs } from './usage.ts';

/** How long a stop waits for Docker to answer pending requests. */
const DOCKER_GRACE_MS = 2_000;

type Workers = {
  /** The position of a queued build, and why it does not start yet. */
  waiting(build: Build): { position: number; reason: string } | undefined;
  /** The same of a queued compile. */
  waitingCompile(dependency: Dependency): { position: number; reason: string } | undefined;
  slots(): number;
  slotsUsed(): number;
  compileSlots(): number;
  compilesRunning(): number;
  /** Why Docker cannot be used now; undefined when it can. */
  dockerUnavailable(): string | undefined;
  hasFreeSpace(): boolean;
  freeDiskBytes(): number;
  /** The limit of all caches together (CACHE_TOTAL); 0 is no limit. */
  cacheTotalBytes(): number;
  /** The machines that run containers, as of the last check; undefined if there is only this one. */
  nodes(): readonly EngineNode[] | undefined;
  stop(): Promise<void>;
};

export async function startWorkers(options: {
  settings: Settings;
  db: Db;
  live: Live;
  log: Log;
  onBuildFinished(build: Build): void;
  onDelivery(outcome: DeliveryOutcome): void;
  onLook(outcome: LookOutcome): void;
  onFiring(outcome: FiringOutcome): void;
  /** The address of the server, known when it listens. */
  baseUrl?: () => string;
  /** Tests look up the packages of the host in another directory. */
  hostRoot?: string;
  /** The demo and tests do not wait for a minute. See SwarmEngineOptions. */
  lostAfterMs?: number;
}): Promise<Workers> {
  const { settings, db, live, log } = options;
  const dataDirectory = settings.data;
  await sweepUploads(uploadDirectory(dataDirectory));
  await clearSshLeftovers(dataDirectory);
  await clearSnapshots(db, dataDirectory);
  const stopping = new AbortController();
  let sweep: ReturnType<typeof startSweep> | undefined;
  const fileSystems = createFileSystems(dataDirectory);
  const host = createContainerHost({
    engine: openEngine(settings, {
      instance: instanceOf(db),
      preparesNetworks: true,
      registryAuth: registry => registryAuthOf(db, registry),
      hostRoot: options.hostRoot,
      lostAfterMs: options.lostAfterMs,
      baseUrl: options.baseUrl,
      onRulesRestored: network =>
        log.warn('firewall rules of the network were missing or not first, and were restored', { network }),
      onCapacity: () => live.publish(['queue']),
    }),
    log,
    // Containers and volumes may have changed while Docker was unavailable.
    onAvailable: () => {
      live.publish(['queue']);
      sweep?.sweep();
      findDockerRoot();
    },
    isBusy: () => slots.used() > 0,
  });
  const findDockerRoot = async () => {
    // On another host, the path would be on another disk.
    if (!settings.dockerHost.startsWith('unix:')) return;
    try {
      fileSystems.setDockerRoot(await host.engine.findDataRoot());
    } catch (error) {
      log.debug('directory of Docker could not be read', { cause: error });
    }
  };
  const caches = createCaches({
    db,
    host,
    log,
    limitBytes: settings.cacheLimitBytes,
    total: settings.cacheTotal,
    fileSystemBytes: fileSystems.dockerTotalBytes,
  });
  const disk = watchDisk({
    minFreeBytes: settings.minFreeDiskBytes,
    workspaceLimitBytes: settings.diskBytes,
    cacheLimitBytes: settings.cacheLimitBytes,
    log,
    free: fileSystems.free,
    jobs: () => listRunningJobs(db),
    measure: createJobMeter({ db, host, caches, dataDirectory, log }),
    recordCache: caches.record,
    emptyCache: caches.emptyLeastRecentlyUsed,
    isGone: async ({ kind, id }) =>
      (await host.engine.inspectContainer(resourceName({ instance: instanceOf(db), kind, id: `${id}` }))) ===
      undefined,
    wake: topic => live.publish([topic]),
  });
  const slots = createContainerSlots({
    concurrency: settings.concurrency,
    capacity: host.engine.capacity,
    compileSlots: settings.compileSlots,
    dataDirectory,
    dockerUnavailable: host.unavailable,
    hasFreeSpace: disk.hasFreeSpace,
  });
  const repacks = createRepacks({ log, stopping: stopping.signal });
  const shared = { db, live, log, dataDirectory, stopping: stopping.signal };
  const artifacts = createArtifacts({ db, host, dataDirectory, runAs: settings.runAs });
  const prepare = { host, settings, attach: artifacts.attachToSuite, openCache: caches.open };
  const early = createEarlyStarts({ ...shared, ...prepare, freeSlots: slots.free });
  const fetch = {
    ...shared,
    early,
    mutex: createKeyedMutex(),
    repacks,
    handledForcePushes: new Set<bigint>(),
  };
  const filters = createLogFilters(shared);
  const hashes = createArtifactHashes(shared);
  const sources = createMissingSources(fetch);
  const jobOptions = {
    ...shared,
    ...prepare,
    early,
    disk,
    artifacts,
    recipeMutex: createKeyedMutex(),
    fetchSource: sources.fetch,
    onFinished: (build: Build) => {
      filters.add(build.id);
      hashes.add(build.id);
      options.onBuildFinished(build);
    },
  };
  const wake = () => live.publish(['queue']);
  const pushOptions = { ...fetch, logLimitBytes: settings.logLimitBytes };
  const queue = startQueue({
    live,
    log,
    lanes: [
      {
        slots: createHostSlots(wake),
        isOpen: disk.hasFreeSpace,
        kinds: [deployWork(db, (deploy, isResumed) => pushDeploy(pushOptions, deploy, isResumed))],
      },
      { slots: createHostSlots(wake), isOpen: disk.hasFreeSpace, kinds: [fetchWork(fetch), sources] },
      {
        slots: {
          ...slots,
          begin(groups) {
            const release = slots.begin(groups);
            early.yieldSlots();
            return release;
          },
        },
        isOpen: slots.isOpen,
        claimTogether: db.write,
        kinds: [suiteWork(jobOptions, sources.isMissing), compileWork(jobOptions, slots)],
      },
    ],
  });
  const batches = startBatches({ db, live, log, retention: settings.retention });
  const schedules = startSchedules({ db, live, log, dataDirectory, onFiring: options.onFiring });
  const repositories = watchRepositories({
    db,
    live,
    log,
    dataDirectory,
    rate: settings.pollRate,
    onLook: options.onLook,
    onFiring: options.onFiring,
  });
  const deliveries = startDeliveries({
    db,
    live,
    log,
    allow: settings.webhookAllow,
    proxy: proxyOf(process.env),
    baseUrl: settings.baseUrl,
    onOutcome: options.onDelivery,
  });
  sweep = startSweep({
    db,
    log,
    host,
    artifacts,
    caches,
    filters,
    hashes,
    early,
    dataDirectory,
    retentionMs: settings.retentionMs,
    artifactsMs: settings.artifactsMs,
  });
  // Frees the volume of an emptied cache without delay.
  const unwatchCaches = live.watch(CACHES_TOPIC, () => void sweep?.sweep());

  return {
    waiting: build =>
      build.buildState === 'enqueued'
        ? { position: positionOf(db, build), reason: slots.waitReason('build') }
        : undefined,
    waitingCompile(dependency) {
      const waiting = findWaitingCompile(db, dependency);
      return waiting && { reason: slots.waitReason('dependency'), ...waiting };
    },
    slots: slots.total,
    slotsUsed: slots.used,
    compileSlots: slots.compileSlots,
    compilesRunning: slots.compilesRunning,
    nodes: () => host.engine.nodes(),
    dockerUnavailable: host.unavailable,
    hasFreeSpace: disk.hasFreeSpace,
    freeDiskBytes: disk.freeBytes,
    cacheTotalBytes: caches.totalBytes,
    async stop() {
      stopping.abort();
      host.stop();
      disk.stop();
      unwatchCaches();
      sweep?.stop();
      batches.stop();
      const grace = setTimeout(host.close, DOCKER_GRACE_MS);
      await Promise.all([
        queue.stop(),
        schedules.stop(),
        repositories.stop(),
        deliveries.stop(),
        repacks.idle(),
        filters.idle(),
        hashes.idle(),
        early.stop(),
        host.engine
          .removePrepared()
          .catch(error => log.debug('left for the sweep', { what: 'prepared network', cause: error })),
      ]);
      clearTimeout(grace);
      host.close();
      await closeKept(dataDirectory);
    },
  };
}

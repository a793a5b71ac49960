// The engine as the workers see it: whether it is available, and what a container needs before it can start.

import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import { createDockerEngine } from '../engine/docker/docker-engine.ts';
import {
  type Engine,
  EngineUnavailable,
  ImageMissing,
  NetworkMissing,
  type PreparedImage,
} from '../engine/engine.ts';
import type { Log } from '../log.ts';

const PROBE_FIRST_MS = 500;
const PROBE_MOST_MS = 5_000;
/** How long the rules of a firewall that was reloaded may be missing for containers that run. */
const PROTECT_EVERY_MS = 2_000;

export type ContainerHost = {
  engine: Engine;
  /** Why no container can be started now; undefined when one can. */
  unavailable(): string | undefined;
  /** Reports that a call found the engine unavailable: it is asked until it answers again. */
  reportUnavailable(cause: EngineUnavailable): void;
  /** Resolves when the engine answers again. */
  whenAvailable(signal: AbortSignal): Promise<void>;
  prepare(image: string): Promise<{ image: PreparedImage; network: string }>;
  /** Starts it. Where somebody has pruned the image `host` or the network, they are made again first. */
  startContainer(plan: ContainerPlan): Promise<string>;
  /** Checks the engine no more; calls to it can still be made. */
  stop(): void;
  /** Ends every request to the engine. */
  close(): void;
};

export function createContainerHost(options: {
  dockerHost: string;
  instance: string;
  network: string;
  runAs: { uid: number; gid: number };
  log: Log;
  onAvailable: () => void;
  /** Whether containers may be running. */
  isBusy: () => boolean;
}): ContainerHost {
  const engine = createDockerEngine({
    ...options,
    onRulesRestored: network =>
      options.log.warn('firewall rules of the network were missing or behind others, and are set again', {
        network,
      }),
  });
  const back = new Set<() => void>();
  // Nothing is started before it has answered once: a build would only be claimed to be given back.
  let reason: string | undefined = 'it has not answered yet';
  // Kept while the engine is available: each check of them would delay the start of a build.
  let hostImage: Promise<PreparedImage> | undefined;
  let networkName: Promise<string> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  const probe = (delayMs: number) => {
    timer = setTimeout(async () => {
      try {
        await engine.ping();
      } catch (cause) {
        if (stopped) return;
        reason = (cause as Error).message;
        if (delayMs === 0) options.log.warn('Docker is away', { cause: reason });
        probe(Math.min(delayMs * 2 || PROBE_FIRST_MS, PROBE_MOST_MS));
        return;
      }
      if (stopped) return;
      reason = undefined;
      if (delayMs > 0) options.log.info('Docker is back');
      for (const resolve of back) resolve();
      back.clear();
      options.onAvailable();
    }, delayMs);
  };

  const forget = () => {
    hostImage = undefined;
    networkName = undefined;
  };
  const reportUnavailable: ContainerHost['reportUnavailable'] = cause => {
    if (reason !== undefined || stopped) return;
    reason = cause.message;
    // A restarted engine may have lost its rules and networks.
    forget();
    options.log.warn('Docker is away', { cause: cause.message });
    probe(PROBE_FIRST_MS);
  };
  const prepareHost = () => {
    hostImage ??= engine.prepareImage(HOST_IMAGE);
    return hostImage;
  };
  const ensureNetwork = () => {
    networkName ??= engine.ensureNetwork();
    return networkName;
  };
  const prepare: ContainerHost['prepare'] = async image => {
    try {
      const [prepared, name] = await Promise.all([
        image === HOST_IMAGE ? prepareHost() : engine.prepareImage(image),
        ensureNetwork(),
      ]);
      return { image: prepared, network: name };
    } catch (cause) {
      forget();
      throw cause;
    }
  };
  const startContainer: ContainerHost['startContainer'] = async plan => {
    try {
      return await engine.startContainer(plan);
    } catch (error) {
      forget();
      if (!(error instanceof ImageMissing || error instanceof NetworkMissing)) throw error;
      await prepare(HOST_IMAGE);
      return await engine.startContainer(plan);
    }
  };
  // A start checks them too; this is for containers that run while a firewall is reloaded.
  let isChecking = false;
  let hasFailed = false;
  const checks = setInterval(async () => {
    if (isChecking || reason !== undefined || !options.isBusy()) return;
    isChecking = true;
    try {
      await engine.protectNetwork();
      hasFailed = false;
    } catch (error) {
      forget();
      if (error instanceof EngineUnavailable) reportUnavailable(error);
      else if (!hasFailed)
        options.log.error('firewall rules of the network cannot be checked', { cause: error });
      hasFailed = true;
    }
    isChecking = false;
  }, PROTECT_EVERY_MS);
  probe(0);

  return {
    engine,
    unavailable: () => reason,
    reportUnavailable,
    whenAvailable: signal =>
      new Promise((resolve, reject) => {
        // Before anything else: after a stop nobody notices any more that the engine is away.
        if (signal.aborted) return reject(signal.reason);
        if (reason === undefined) return resolve();
        const leave = () => {
          back.delete(come);
          reject(signal.reason);
        };
        const come = () => {
          signal.removeEventListener('abort', leave);
          resolve();
        };
        back.add(come);
        signal.addEventListener('abort', leave, { once: true });
      }),
    prepare,
    startContainer,
    stop() {
      stopped = true;
      clearTimeout(timer);
      clearInterval(checks);
    },
    close: engine.close,
  };
}

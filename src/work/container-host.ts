// Tracks whether Docker is available, and prepares the image and the network that a container needs.

import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import {
  type Engine,
  EngineUnavailable,
  ImageMissing,
  NetworkMissing,
  type PreparedImage,
} from '../engine/engine.ts';
import type { Log } from '../log.ts';

/** Requests that waited for the start of the server come first. */
const BEGIN_MS = 150;
const PROBE_FIRST_MS = 500;
const PROBE_MAX_MS = 5_000;
/** How long firewall rules may be missing after a reload of the firewall. */
const PROTECT_EVERY_MS = 2_000;

export type ContainerHost = {
  engine: Engine;
  /** Why no container can be started now; undefined when one can. */
  unavailable(): string | undefined;
  /** Starts to probe the engine until it answers again. */
  reportUnavailable(cause: EngineUnavailable): void;
  /** Resolves when the engine answers again. */
  whenAvailable(signal: AbortSignal): Promise<void>;
  prepare(image: string): Promise<{ image: PreparedImage; network: string }>;
  /** Starts a container. Recreates the image `host` or the network if they were pruned. */
  startContainer(plan: ContainerPlan): Promise<string>;
  /** Stops the checks. The engine can still be called. */
  stop(): void;
  /** Aborts every request to the engine. */
  close(): void;
};

export function createContainerHost(options: {
  engine: Engine;
  log: Log;
  onAvailable: () => void;
  /** Whether containers may be running. */
  isBusy: () => boolean;
}): ContainerHost {
  const { engine } = options;
  const waiting = new Set<() => void>();
  // Nothing starts before the first answer: a build would be claimed only to be queued again.
  let reason: string | undefined = 'it has not answered yet';
  // Cached while the engine is available, because checking them would delay each build.
  let hostImage: Promise<PreparedImage> | undefined;
  let networkName: Promise<string> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  const probe = (delayMs: number) => {
    timer = setTimeout(async () => {
      try {
        await engine.ping();
      } catch (error) {
        if (stopped) return;
        reason = (error as Error).message;
        if (delayMs === BEGIN_MS) options.log.warn('Docker is unavailable', { cause: reason });
        probe(delayMs === BEGIN_MS ? PROBE_FIRST_MS : Math.min(delayMs * 2, PROBE_MAX_MS));
        return;
      }
      if (stopped) return;
      reason = undefined;
      if (delayMs > BEGIN_MS) options.log.info('Docker is available again');
      for (const resolve of waiting) resolve();
      waiting.clear();
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
    // A restarted engine may have lost its networks and firewall rules.
    forget();
    options.log.warn('Docker is unavailable', { cause: cause.message });
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
    } catch (error) {
      forget();
      throw error;
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
  // For containers that run while the firewall is reloaded. Each start checks the rules too.
  let isChecking = false;
  let hasFailed = false;
  const checks = setInterval(async () => {
    // Without a slot no start would check them, and missing rules may be why no node has one.
    const isNeeded = options.isBusy() || engine.capacity()?.slots === 0;
    if (isChecking || reason !== undefined || !isNeeded) return;
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
  probe(BEGIN_MS);

  return {
    engine,
    unavailable: () => reason,
    reportUnavailable,
    whenAvailable: signal =>
      new Promise((resolve, reject) => {
        // First, because after a stop `reason` is no longer updated.
        if (signal.aborted) return reject(signal.reason);
        if (reason === undefined) return resolve();
        const onAbort = () => {
          waiting.delete(onAvailable);
          reject(signal.reason);
        };
        const onAvailable = () => {
          signal.removeEventListener('abort', onAbort);
          resolve();
        };
        waiting.add(onAvailable);
        signal.addEventListener('abort', onAbort, { once: true });
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

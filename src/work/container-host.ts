// The Docker Engine as the workers see it: whether it is there, and what a container needs before it can start.

import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { createEngine, type Engine } from '../engine/docker/container.ts';
import { EngineUnavailable } from '../engine/docker/docker.ts';
import { createImages, HOST_IMAGE, type Images, type PreparedImage } from '../engine/docker/image.ts';
import { createNetwork, OWN_BRIDGE } from '../engine/docker/network.ts';
import type { Log } from '../log.ts';

const PROBE_FIRST_MS = 500;
const PROBE_MOST_MS = 5_000;
/** How long the rules of a firewall that was reloaded may be missing for containers that run. */
const PROTECT_EVERY_MS = 2_000;

export type ContainerHost = {
  engine: Engine;
  images: Images;
  /** Why no container can be started now; undefined when one can. */
  unavailable(): string | undefined;
  /** Says that a call found the engine away: it is asked until it is back. */
  reportUnavailable(cause: EngineUnavailable): void;
  /** Resolves when the engine answers again. */
  whenAvailable(signal: AbortSignal): Promise<void>;
  prepare(image: string): Promise<{ image: PreparedImage; network: string }>;
  /** Starts it, but never before the firewall rules of its network are in force. */
  startContainer(plan: ContainerPlan): Promise<string>;
  /** Whether the container is the one that checks the firewall rules. */
  isGuard(containerId: string): boolean;
  /** Makes the image `host` and the network again, which somebody may have pruned. */
  mend(): Promise<void>;
  /** Looks for the engine no more; what it was asked may still be answered. */
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
  const engine = createEngine({ dockerHost: options.dockerHost });
  const images = createImages(engine.door, options.instance);
  const back = new Set<() => void>();
  // Nothing is started before it has answered once: a build would only be claimed to be given back.
  let reason: string | undefined = 'it has not answered yet';
  // Kept while the engine is there: each look at them would come before the start of a build.
  let hostImage: Promise<PreparedImage> | undefined;
  let networkName: Promise<string> | undefined;
  let isFirstCheck = true;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  const probe = (delayMs: number) => {
    timer = setTimeout(async () => {
      try {
        await engine.version();
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
    hostImage ??= images.prepareImage(HOST_IMAGE, options.runAs);
    return hostImage;
  };
  const network = createNetwork(engine.door, {
    instance: options.instance,
    setting: options.network,
    hostImage: prepareHost,
  });
  const ensureNetwork = () => {
    networkName ??= network.ensure();
    return networkName;
  };
  const prepare: ContainerHost['prepare'] = async image => {
    try {
      const [prepared, name] = await Promise.all([
        image === HOST_IMAGE ? prepareHost() : images.prepareImage(image, options.runAs),
        ensureNetwork(),
      ]);
      return { image: prepared, network: name };
    } catch (cause) {
      forget();
      throw cause;
    }
  };
  const protect = async (name: string) => {
    try {
      const found = await network.protect(name);
      // A server that has just started may be the first on this host, or after a reboot.
      if (found === 'restored' && !isFirstCheck)
        options.log.warn('firewall rules of the network were missing or behind others, and are set again', {
          network: name,
        });
      isFirstCheck = false;
    } catch (cause) {
      forget();
      throw cause;
    }
  };
  // A start checks them too; this is for containers that run while a firewall is reloaded.
  let isChecking = false;
  let hasFailed = false;
  const checks = setInterval(async () => {
    if (options.network !== OWN_BRIDGE || isChecking || reason !== undefined || !options.isBusy()) return;
    isChecking = true;
    try {
      await protect(await ensureNetwork());
      hasFailed = false;
    } catch (cause) {
      if (cause instanceof EngineUnavailable) reportUnavailable(cause);
      else if (!hasFailed) options.log.error('firewall rules of the network cannot be checked', { cause });
      hasFailed = true;
    }
    isChecking = false;
  }, PROTECT_EVERY_MS);
  probe(0);

  return {
    engine,
    images,
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
    startContainer: plan => engine.startContainer(plan, protect(plan.network)),
    isGuard: network.isGuard,
    async mend() {
      forget();
      await prepare(HOST_IMAGE);
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
      clearInterval(checks);
    },
    close() {
      network.close();
      engine.door.close();
    },
  };
}

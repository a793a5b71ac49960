// Everything that an instance has in Docker: found by its label, and removed where no server uses it any more.
import { setTimeout as delay } from 'node:timers/promises';
import type { RunAs } from '../../domain/container/container-plan.ts';
import type { Engine } from './container.ts';
import { EngineRefused } from './docker.ts';
import { createImages, HOST_IMAGE } from './image.ts';
import { createNetwork, listNetworks, OWN_BRIDGE } from './network.ts';

export type Traces = { containers: string[]; volumes: string[]; networks: string[]; images: string[] };

const REMOVAL_MS = 15_000;

export async function findTraces(engine: Engine, instance: string): Promise<Traces> {
  return {
    containers: (await engine.listContainers(instance)).map(({ name }) => name),
    volumes: (await engine.listVolumes(instance)).map(({ name }) => name),
    networks: await listNetworks(engine.door, instance),
    images: await createImages(engine.door, instance).listMadeImages(),
  };
}

/** Containers first, since volumes cannot go before them. Both are named to `onRemoved`. */
export async function removeContainersAndVolumes(
  engine: Engine,
  instance: string,
  onRemoved: (what: string) => void = () => {},
): Promise<void> {
  const deadlineAt = performance.now() + REMOVAL_MS;
  for (;;) {
    const containers = await engine.listContainers(instance);
    for (const { containerId } of containers) await engine.removeContainer(containerId);
    const volumes = await engine.listVolumes(instance);
    for (const { name } of volumes) await engine.removeVolume(name);
    const left = [...(await engine.listContainers(instance)), ...(await engine.listVolumes(instance))];
    const isGone = (name: string) => left.every(one => one.name !== name);
    for (const { name } of containers) if (isGone(name)) onRemoved(`container ${name}`);
    for (const { name } of volumes) if (isGone(name)) onRemoved(`volume ${name}`);
    if (left.length === 0) return;
    if (performance.now() > deadlineAt)
      throw new EngineRefused(
        `Docker still has ${left.map(({ name }) => name).join(', ')}: remove it by hand`,
        409,
      );
    // One that somebody else is removing is gone in a moment, and Docker does not say when.
    await delay(100);
  }
}

/** The instance's own bridge and its firewall rules; no container may be on it. */
export async function removeNetworkAndRules(
  engine: Engine,
  { instance, runAs }: { instance: string; runAs: RunAs },
  onRemoved: (what: string) => void = () => {},
): Promise<void> {
  const images = createImages(engine.door, instance);
  const network = createNetwork(engine.door, {
    instance,
    setting: OWN_BRIDGE,
    hostImage: () => images.prepareImage(HOST_IMAGE, runAs),
  });
  try {
    const { names, rules } = await network.remove();
    for (const name of names) onRemoved(`network ${name}`);
    if (rules > 0) onRemoved(`${rules} firewall ${rules === 1 ? 'rule' : 'rules'}`);
  } finally {
    network.close();
  }
}

/** Images that a container still uses, of another instance for example, stay. */
export async function removeMadeImages(
  engine: Engine,
  instance: string,
  onRemoved: (what: string) => void,
): Promise<void> {
  const images = createImages(engine.door, instance);
  for (const name of await images.listMadeImages())
    if (await images.removeImage(name)) onRemoved(`image ${name}`);
}

// Lists and removes everything that an instance has in the engine, once no server uses the instance.
import { setTimeout as delay } from 'node:timers/promises';
import { type Engine, EngineRefused, GUARD_KIND } from './engine.ts';

/** A removal that is under way takes this long on a busy host: Docker waits for the container to exit. */
const REMOVAL_MS = 60_000;

type OnRemoved = (what: string) => void;

/** Whether a server uses the instance: then its guard container runs. */
export const isServed = async (engine: Engine) =>
  (await engine.listContainers()).some(({ owner, running }) => owner.kind === GUARD_KIND && running);

/** One line for each container, volume, network and image. */
export const listOwned = async (engine: Engine) => [
  ...(await engine.listContainers()).map(({ name }) => `container ${name}`),
  ...(await engine.listVolumes()).map(({ name }) => `volume ${name}`),
  ...(await engine.listNetworks()).map(name => `network ${name}`),
  ...(await engine.listCreatedImages()).map(name => `image ${name}`),
];

/** Containers go first: a volume in use cannot be removed. */
export async function removeContainersAndVolumes(
  engine: Engine,
  onRemoved: OnRemoved = () => {},
): Promise<void> {
  const deadlineAt = performance.now() + REMOVAL_MS;
  for (;;) {
    const containers = await engine.listContainers();
    for (const { containerId } of containers) await engine.removeContainer(containerId);
    const volumes = await engine.listVolumes();
    for (const { name } of volumes) await engine.removeVolume(name);
    const remaining = [...(await engine.listContainers()), ...(await engine.listVolumes())];
    const isGone = (name: string) => remaining.every(one => one.name !== name);
    for (const { name } of containers) if (isGone(name)) onRemoved(`container ${name}`);
    for (const { name } of volumes) if (isGone(name)) onRemoved(`volume ${name}`);
    if (remaining.length === 0) return;
    if (performance.now() > deadlineAt)
      throw new EngineRefused(
        `Docker still has ${remaining.map(({ name }) => name).join(', ')}: remove it by hand`,
      );
    // Another process may be removing it, and Docker does not report the end of that.
    await delay(100);
  }
}

/** The network must have no containers. Returns the names of nodes that did not respond, whose rules are still there. */
export async function removeNetworkAndRules(
  engine: Engine,
  onRemoved: OnRemoved = () => {},
): Promise<string[]> {
  const { names, rules, unreached = [] } = await engine.removeNetworks();
  for (const name of names) onRemoved(`network ${name}`);
  if (rules > 0) onRemoved(`${rules} firewall ${rules === 1 ? 'rule' : 'rules'}`);
  return unreached;
}

/** Keeps an image that a container uses, for example of another instance. */
export async function removeCreatedImages(engine: Engine, onRemoved: OnRemoved): Promise<void> {
  for (const name of await engine.listCreatedImages())
    if (await engine.removeImage(name)) onRemoved(`image ${name}`);
}

// Lists and removes everything that an instance has in the engine, for an instance that no server uses any more.
import { setTimeout as delay } from 'node:timers/promises';
import { type Engine, EngineRefused, GUARD_KIND } from './engine.ts';

const REMOVAL_MS = 15_000;

type OnRemoved = (what: string) => void;

/** Whether a server is using the instance, as far as its containers show it. */
export const isServed = async (engine: Engine) =>
  (await engine.listContainers()).some(({ owner, running }) => owner.kind === GUARD_KIND && running);

/** What there is, one line each. */
export const listOwned = async (engine: Engine) => [
  ...(await engine.listContainers()).map(({ name }) => `container ${name}`),
  ...(await engine.listVolumes()).map(({ name }) => `volume ${name}`),
  ...(await engine.listNetworks()).map(name => `network ${name}`),
  ...(await engine.listMadeImages()).map(name => `image ${name}`),
];

/** Containers go first, since a volume cannot be removed before them. */
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
    const left = [...(await engine.listContainers()), ...(await engine.listVolumes())];
    const isGone = (name: string) => left.every(one => one.name !== name);
    for (const { name } of containers) if (isGone(name)) onRemoved(`container ${name}`);
    for (const { name } of volumes) if (isGone(name)) onRemoved(`volume ${name}`);
    if (left.length === 0) return;
    if (performance.now() > deadlineAt)
      throw new EngineRefused(
        `Docker still has ${left.map(({ name }) => name).join(', ')}: remove it by hand`,
      );
    // What another process is removing is gone in a moment, and Docker does not report when.
    await delay(100);
  }
}

/** There may be no container on the network. */
export async function removeNetworkAndRules(engine: Engine, onRemoved: OnRemoved = () => {}): Promise<void> {
  const { names, rules } = await engine.removeNetworks();
  for (const name of names) onRemoved(`network ${name}`);
  if (rules > 0) onRemoved(`${rules} firewall ${rules === 1 ? 'rule' : 'rules'}`);
}

/** An image that a container uses, of another instance for example, stays. */
export async function removeMadeImages(engine: Engine, onRemoved: OnRemoved): Promise<void> {
  for (const name of await engine.listMadeImages())
    if (await engine.removeImage(name)) onRemoved(`image ${name}`);
}

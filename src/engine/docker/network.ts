// Owns the network that containers run in: a bridge of Assay's own from which neither each other, nor the host's
// ports, nor link-local addresses can be reached. One for each instance. Which one a container joins is in its plan.
import { createHash } from 'node:crypto';
import { labelsOf, type Ownership, ownershipOf } from '../../domain/container/container-plan.ts';
import { type DockerDoor, EngineRefused, isRefused } from './docker.ts';
import { createFirewall, type FirewallOptions } from './firewall.ts';

export const OWN_BRIDGE = 'bridge';

export type NetworkOptions = Pick<FirewallOptions, 'instance' | 'hostImage'> & {
  /** The setting NETWORK: `bridge`, `none`, or the name of a Docker network. */
  setting: string;
};

export type Network = {
  /** Makes sure of it and returns its name, for plans. */
  ensure(): Promise<string>;
  /**
   * Resolves when a container may be started in the network of that name: the firewall rules of the own bridge are in
   * force. `restored` when some of them were missing.
   */
  protect(name: string): Promise<'intact' | 'restored'>;
  /** Whether the container is the one that checks the rules. */
  isGuard(containerId: string): boolean;
  /** Removes the instance's own network and its rules; returns the names of what there was, and how many rules. */
  remove(): Promise<{ names: string[]; rules: number }>;
  close(): void;
};

export function createNetwork(door: DockerDoor, options: NetworkOptions): Network {
  const { instance, setting } = options;
  const name = networkName(instance);
  const firewall = createFirewall(door, { ...options, bridge: name });
  return {
    ensure: () => ensureNetwork(door, instance, setting),
    protect: async used => (used === name ? await firewall.protect() : 'intact'),
    isGuard: firewall.isGuard,
    async remove() {
      const names = await listNetworks(door, instance);
      for (const found of names)
        await door.call('remove a network', () => door.docker.getNetwork(found).remove());
      return { names, rules: await firewall.removeRules() };
    },
    close: firewall.close,
  };
}

/** The names of those that have the instance's label. */
export async function listNetworks({ docker, call }: DockerDoor, instance: string): Promise<string[]> {
  const filters = { label: [`assay.instance=${instance}`] };
  const found = await call('list networks', () => docker.listNetworks({ filters }));
  return found.map(({ Name }) => Name);
}

async function ensureNetwork(door: DockerDoor, instance: string, setting: string): Promise<string> {
  if (setting === 'none') return 'none';
  if (setting === 'host')
    throw new Error('NETWORK host would give containers the network of the host: refused.');
  if (setting !== OWN_BRIDGE) {
    if (!(await findNetwork(door, setting)))
      throw new Error(`Docker has no network ${setting} (setting NETWORK).`);
    return setting;
  }
  if (await isRootless(door))
    throw new Error(
      "Docker runs rootless, where no firewall rule keeps containers from the host's ports: set NETWORK to none, or to a network of your own.",
    );
  const name = networkName(instance);
  const found = await findNetwork(door, name);
  if (found && ownershipOf(found.Labels)?.instance !== instance) {
    throw new EngineRefused(`A network called ${name} is there already, and is not ours.`, 409);
  }
  if (!found) await createBridge(door, name, { instance, kind: 'network', id: name });
  return name;
}

/** What Docker answers when every range of addresses that it may give to a network is in use. */
const NO_ADDRESSES = /address pool/i;

async function createBridge({ docker, call }: DockerDoor, name: string, owner: Ownership): Promise<void> {
  try {
    await call('create a network', () =>
      docker.createNetwork({
        Name: name,
        Driver: 'bridge',
        CheckDuplicate: true,
        Labels: labelsOf(owner),
        Options: {
          'com.docker.network.bridge.name': name,
          'com.docker.network.bridge.enable_icc': 'false',
          'com.docker.network.bridge.enable_ip_masquerade': 'true',
        },
      }),
    );
  } catch (error) {
    if (!(error instanceof EngineRefused && NO_ADDRESSES.test(error.message))) throw error;
    throw new EngineRefused(
      `Docker has no addresses left for the network of this server: remove networks that nobody uses (docker network prune; assay cleanup for what a former data directory left), or give it more with default-address-pools in /etc/docker/daemon.json and restart it. Docker says: ${error.message}`,
      error.status,
    );
  }
}

async function findNetwork({ docker, call }: DockerDoor, name: string) {
  try {
    return (await call('inspect a network', () => docker.getNetwork(name).inspect())) as {
      Id: string;
      Labels: Record<string, string>;
    };
  } catch (error) {
    if (isRefused(error, 404)) return undefined;
    throw error;
  }
}

/** Its containers leave through a process of the user's on the host, past every rule that could be set for the bridge. */
async function isRootless({ docker, call }: DockerDoor): Promise<boolean> {
  const { SecurityOptions } = (await call('info', () => docker.info())) as {
    SecurityOptions?: string[] | null;
  };
  return (SecurityOptions ?? []).some(option => option.startsWith('name=rootless'));
}

/** Of the network and of its bridge: at most 15 characters, or the kernel refuses it. */
function networkName(instance: string): string {
  return `assay-${createHash('sha256').update(instance).digest('hex').slice(0, 8)}`;
}

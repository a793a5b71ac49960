// The network of the instance: a separate bridge, from which containers reach neither each other, nor the host's ports, nor
// link-local addresses.
import { createHash } from 'node:crypto';
import { labelsOf, ownershipOf } from '../../domain/container/container-plan.ts';
import { EngineRefused, type Network, OWN_BRIDGE, type PreparedImage } from '../engine.ts';
import { unlessRefused } from './client.ts';
import type { EngineContext } from './create-container.ts';
import { createFirewall } from './firewall.ts';

export type NetworkOptions = {
  /** The setting NETWORK: `bridge`, `none`, or the name of a Docker network. */
  network: string;
  /** The rules are set with the host's own iptables. */
  hostImage(): Promise<PreparedImage>;
  /** Called when rules that had been set were missing or no longer first. */
  onRulesRestored?: ((network: string) => void) | undefined;
};

export type DockerNetwork = Network & {
  /** The name of the instance's own network. */
  bridge: string;
  /**
   * Calls `start`, which starts a container once `isProtected` resolves: then the rules of the network are active. Starts that
   * overlap share a check of the rules, because it takes several processes.
   */
  startProtected: <T>(network: string, start: (isProtected: Promise<unknown>) => Promise<T>) => Promise<T>;
  close: () => void;
};

export function createNetwork(context: EngineContext, options: NetworkOptions): DockerNetwork {
  const { call, instance } = context;
  const bridge = networkName(instance);
  const firewall = createFirewall(context, bridge, options.hostImage);
  // The first server on a host, or the first after a reboot, finds no rules.
  let isFirstCheck = true;
  /** The check of a start that is in progress. Other starts use it too. */
  let shared: Promise<unknown> | undefined;

  const protect = async () => {
    const found = await firewall.protect();
    if (found === 'restored' && !isFirstCheck) options.onRulesRestored?.(bridge);
    isFirstCheck = false;
    return found;
  };
  const startProtected: DockerNetwork['startProtected'] = async (network, start) => {
    // Only the instance's bridge has rules.
    if (network !== bridge) return await start(Promise.resolve());
    if (shared) return await start(shared);
    shared = protect();
    // The start awaits it later.
    shared.catch(() => {});
    try {
      return await start(shared);
    } finally {
      shared = undefined;
    }
  };
  const listNetworks = async () => {
    const filters = { label: [`assay.instance=${instance}`] };
    return (await call('list networks', docker => docker.listNetworks({ filters }))).map(({ Name }) => Name);
  };

  return {
    bridge,
    ensureNetwork: () => ensureNetwork(context, bridge, options.network),
    startProtected,
    protectNetwork: async () => (options.network === OWN_BRIDGE ? await protect() : 'intact'),
    listNetworks,
    async removeNetworks() {
      const names = await listNetworks();
      for (const name of names) await removeNetwork(context, name);
      return { names, rules: await firewall.removeRules() };
    },
    close: firewall.close,
  };
}

async function ensureNetwork(context: EngineContext, bridge: string, setting: string): Promise<string> {
  if (setting === 'none') return 'none';
  if (setting === 'host')
    throw new EngineRefused('NETWORK must not be host: containers would use the network of the host.');
  if (setting !== OWN_BRIDGE) {
    if (!(await findNetwork(context, setting)))
      throw new EngineRefused(`Docker has no network ${setting} (setting NETWORK).`);
    return setting;
  }
  if (await isRootless(context))
    throw new EngineRefused(
      "Docker runs rootless, where no firewall rule can block containers from the host's ports: set NETWORK to none, or to your own network.",
    );
  const found = await findNetwork(context, bridge);
  if (found && ownershipOf(found.Labels)?.instance !== context.instance)
    throw new EngineRefused(`A network called ${bridge} exists and does not belong to this server.`);
  if (!found) await createBridge(context, bridge);
  return bridge;
}

/** Docker's message when all its address ranges are in use. */
const NO_ADDRESSES = /address pool/i;

async function createBridge({ call, instance }: EngineContext, name: string): Promise<void> {
  try {
    await call('create a network', docker =>
      docker.createNetwork({
        Name: name,
        Driver: 'bridge',
        CheckDuplicate: true,
        Labels: labelsOf({ instance, kind: 'network', id: name }),
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
      `Docker has no addresses left for the network of this server: remove unused networks (docker network prune, or assay cleanup for those of a former data directory), or add addresses with default-address-pools in /etc/docker/daemon.json and restart Docker. Docker reports: ${error.message}`,
    );
  }
}

/** Docker's message when a container is connected to the network, or when Docker has miscounted under load. */
const IN_USE = /has active endpoints/;

async function removeNetwork({ call }: EngineContext, name: string): Promise<void> {
  try {
    await call('remove a network', docker => docker.getNetwork(name).remove());
  } catch (error) {
    if (!(error instanceof EngineRefused && IN_USE.test(error.message))) throw error;
    throw new EngineRefused(
      `Docker does not remove the network ${name}, because a container is connected to it: disconnect the container, and try again. If "docker network inspect ${name}" lists none, Docker has lost count of them: restart Docker first.`,
    );
  }
}

async function findNetwork({ call }: EngineContext, name: string) {
  const find = () => call('inspect a network', docker => docker.getNetwork(name).inspect());
  return (await unlessRefused([404], find)) as { Labels: Record<string, string> } | undefined;
}

/** In rootless mode, traffic of containers comes from a user process on the host, to which rules for the bridge do not apply. */
async function isRootless({ call }: EngineContext): Promise<boolean> {
  const { SecurityOptions } = (await call('info', docker => docker.info())) as {
    SecurityOptions?: string[] | null;
  };
  return (SecurityOptions ?? []).some(option => option.startsWith('name=rootless'));
}

/** The name of the network and its bridge. The kernel allows 15 characters. */
function networkName(instance: string): string {
  return `assay-${createHash('sha256').update(instance).digest('hex').slice(0, 8)}`;
}

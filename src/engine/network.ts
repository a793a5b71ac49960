// Owns the network containers run in: a bridge of Assay's own from which neither each other, nor the host's
// ports, nor link-local addresses can be reached. Which one a container joins is in its plan.
import { createHash } from 'node:crypto';
import { labelsOf, type Mount, type Ownership, ownershipOf } from '../domain/container-plan.ts';
import { type DockerDoor, EngineRefused, isRefused } from './docker.ts';

export const OWN_BRIDGE = 'bridge';

export interface NetworkNeeds {
  instance: string;
  /** The setting NETWORK: `bridge`, `none`, or the name of a Docker network. */
  setting: string;
  /** The image `host` and its mounts: the rules are set with the host's own iptables. */
  hostImage: { reference: string; mounts: Mount[] };
}

/** Makes sure of it and tells the name for plans. Asked again, it mends what is missing. */
export async function ensureNetwork(door: DockerDoor, needs: NetworkNeeds): Promise<string> {
  const { instance, setting, hostImage } = needs;
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
  const name = `assay-${short(instance)}`;
  const bridge = bridgeName(instance);
  const labels: Ownership = { instance, kind: 'network', id: name };
  const found = await findNetwork(door, name);
  if (found && ownershipOf(found.Labels)?.instance !== instance) {
    throw new EngineRefused(`A network called ${name} is there already, and is not ours.`, 409);
  }
  // Rules first: no container is ever on the bridge without them.
  await applyRules(door, { bridge, instance, hostImage });
  if (!found) {
    await door.call('create a network', abortSignal =>
      door.docker.createNetwork({
        Name: name,
        Driver: 'bridge',
        CheckDuplicate: true,
        Labels: labelsOf(labels),
        Options: {
          'com.docker.network.bridge.name': bridge,
          'com.docker.network.bridge.enable_icc': 'false',
          'com.docker.network.bridge.enable_ip_masquerade': 'true',
        },
        abortSignal,
      }),
    );
  }
  return name;
}

/** Takes the instance's own bridge and its rules away. */
export async function removeNetwork(door: DockerDoor, needs: Omit<NetworkNeeds, 'setting'>): Promise<void> {
  const { instance, hostImage } = needs;
  const name = `assay-${short(instance)}`;
  const found = await findNetwork(door, name);
  if (found && ownershipOf(found.Labels)?.instance === instance) {
    await door.call('remove a network', abortSignal =>
      door.docker.getNetwork(found.Id).remove({ abortSignal }),
    );
  }
  await applyRules(door, { bridge: bridgeName(instance), instance, hostImage, remove: true });
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

function short(instance: string): string {
  return createHash('sha256').update(instance).digest('hex').slice(0, 8);
}

/** At most 15 characters, or the kernel refuses it. */
function bridgeName(instance: string): string {
  return `assay-${short(instance)}`;
}

// $1 the bridge, $2 `set` or `remove`. REJECT, so that a suite that tries is told at once and does not hang;
// where the kernel lacks it, DROP. IPv6 is off on the bridge, and closed too where ip6tables works.
const RULES = `
PATH=/usr/sbin:/sbin:/usr/bin:/bin
command -v iptables >/dev/null || exit 3
forward=DOCKER-USER
iptables -w 10 -n -L DOCKER-USER >/dev/null 2>&1 || forward=FORWARD
rule() {
  tool=$1 chain=$2 where=$3
  for verdict in REJECT DROP; do
    while [ "$4" = remove ] && $tool -w 10 -D $chain $where -m comment --comment "$5" -j $verdict 2>/dev/null; do :; done
    [ "$4" = set ] && $tool -w 10 -C $chain $where -m comment --comment "$5" -j $verdict 2>/dev/null && return 0
  done
  [ "$4" = remove ] && return 0
  $tool -w 10 -I $chain 1 $where -m comment --comment "$5" -j REJECT 2>/dev/null ||
    $tool -w 10 -I $chain 1 $where -m comment --comment "$5" -j DROP
}
rule iptables INPUT "-i $1" "$2" "$1" || exit 4
rule iptables $forward "-i $1 -d 169.254.0.0/16" "$2" "$1" || exit 4
command -v ip6tables >/dev/null && rule ip6tables INPUT "-i $1" "$2" "$1" 2>/dev/null
exit 0
`;

interface Rules {
  bridge: string;
  instance: string;
  hostImage: { reference: string; mounts: Mount[] };
  remove?: boolean;
}

/** The server need not be root: a container with this one capability, gone in a moment, sets the rules. */
async function applyRules({ docker, call }: DockerDoor, rules: Rules): Promise<void> {
  const { bridge, instance, hostImage, remove = false } = rules;
  const container = await call('create a container', abortSignal =>
    docker.createContainer({
      Image: hostImage.reference,
      User: '0:0',
      Entrypoint: ['/bin/sh', '-c', RULES, 'assay', bridge, remove ? 'remove' : 'set'],
      Labels: labelsOf({ instance, kind: 'network', id: bridge }),
      HostConfig: {
        NetworkMode: 'host',
        // On an engine with user namespaces the host's network is for those outside of them.
        UsernsMode: 'host',
        CapDrop: ['ALL'],
        CapAdd: ['NET_ADMIN', 'NET_RAW'],
        SecurityOpt: ['no-new-privileges:true'],
        LogConfig: { Type: 'json-file', Config: {} },
        Mounts: hostImage.mounts.map(({ type, source, target, readOnly }) => ({
          Type: type,
          Source: source,
          Target: target,
          ReadOnly: readOnly,
        })),
      },
      abortSignal,
    }),
  );
  try {
    await call('set firewall rules', abortSignal => container.start({ abortSignal }));
    const { StatusCode: status } = await call('set firewall rules', abortSignal =>
      container.wait({ abortSignal }),
    );
    if (status === 0) return;
    if (status === 3) {
      throw new Error(
        'The host has no iptables: install it, or set NETWORK to none or to a network of your own.',
      );
    }
    const said = await call('set firewall rules', () => container.logs({ stdout: true, stderr: true }));
    throw new Error(`Firewall rules for ${bridge} could not be set (status ${status}): ${readable(said)}`);
  } finally {
    await call('remove a container', abortSignal => container.remove({ force: true, v: true, abortSignal }));
  }
}

function readable(said: Buffer | string): string {
  return said
    .toString()
    .replace(/[^\x20-\x7e\n]+/g, '')
    .trim()
    .slice(0, 400);
}

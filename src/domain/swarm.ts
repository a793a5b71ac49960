// The names that Assay and the nodes of a Docker Swarm agree on, and the layout of the directory that they share. The node
// script sets them up; src/engine/swarm uses them.

/** An engine label of every node that runs containers, from its daemon.json. */
export const NODE_LABEL = 'assay';
/** A generic resource of the node, from its daemon.json: how many containers of jobs it runs at once. */
export const SLOT_RESOURCE = 'assay-slot';

/** A label of the containers of jobs. Its value says whose they are. */
export const TASK_LABEL = 'assay.task';
/** The name of the service that something belongs to. */
export const SERVICE_LABEL = 'assay.service';

/** A network of each node: its config-only network, and the network that is made of it. The latter names its bridge too. */
export type SwarmNetwork = { name: string; config: string; isInternal: boolean };
/** NETWORK=bridge: containers reach other machines, but neither nodes nor each other. */
export const OPEN_NETWORK: SwarmNetwork = {
  name: 'assay-open',
  config: 'assay-open-node',
  isInternal: false,
};
/** NETWORK=none: containers reach nothing. */
export const CLOSED_NETWORK: SwarmNetwork = {
  name: 'assay-closed',
  config: 'assay-closed-node',
  isInternal: true,
};

/** Everything in SHARED. Nodes mount it at the same path. It has no keys. */
export const sharedPaths = (shared: string) => ({
  jobs: `${shared}/jobs`,
  mirrors: `${shared}/mirrors`,
  snapshots: `${shared}/snapshots`,
  /** Caches and workspaces. */
  volumes: `${shared}/volumes`,
  /** What one attempt of a job writes. */
  attempts: `${shared}/attempts`,
  /** The addresses of all nodes, and a file of each node that says when its firewall rules were checked last. */
  nodes: `${shared}/nodes`,
});

/** The name of Assay's registry in references to images: the host and port of BASE_URL. Throws if Docker accepts no such name. */
export function registryOf(baseUrl: string): string {
  const { hostname, port, protocol } = new URL(baseUrl);
  if (!/^[a-z0-9]+(?:[.-]+[a-z0-9]+)*$/.test(hostname))
    throw new Error(
      `nodes cannot pull images from ${hostname}: BASE_URL must have a host name without underscores, or an IPv4 address`,
    );
  // Without a port, Docker would take a host name without a dot for a part of the path.
  return `${hostname}:${port || (protocol === 'http:' ? '80' : '443')}`;
}

// Finds what is left of jobs that have ended, on every machine and on the shared file system.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { sharedPaths } from '../../../src/domain/swarm.ts';
import { GUARD_KIND } from '../../../src/engine/engine.ts';
import type { SwarmAppliance } from '../../support/swarm-appliance.ts';

const HOLDER_KIND = 'holder';

/** Every node keeps one of each while a server uses the swarm, and Docker some that have ended. */
const isOfNode = (name: string) => [GUARD_KIND, HOLDER_KIND].some(kind => name.includes(`-${kind}-`));
/** A cache is kept as long as its suite. */
const isCache = (name: string) => name.includes('-cache-');

export async function findSwarmOrphans({ swarm }: SwarmAppliance): Promise<string[]> {
  const { call } = swarm.context;
  const services = (await call('list services', docker => docker.listServices())) as unknown as {
    Spec: { Name: string };
  }[];
  const secrets = (await call('list secrets', docker => docker.listSecrets())) as unknown as {
    Spec: { Name: string };
  }[];
  const found = [
    ...services
      .map(({ Spec }) => Spec.Name)
      .filter(name => !isOfNode(name))
      .map(name => `service ${name}`),
    ...secrets.map(({ Spec }) => `secret ${Spec.Name}`),
  ];
  for (const machine of swarm.machines) {
    const { call: ask } = machine.docker;
    for (const { Names, State } of await ask('list containers', docker =>
      docker.listContainers({ all: true }),
    ))
      if (!isOfNode(Names.join())) found.push(`container ${Names.join()} of ${machine.name}, ${State}`);
    const { Volumes } = await ask('list volumes', docker => docker.listVolumes());
    for (const { Name } of Volumes ?? []) if (!isCache(Name)) found.push(`volume ${Name} of ${machine.name}`);
  }
  const { attempts, jobs, volumes } = sharedPaths(swarm.shared);
  for (const directory of [attempts, jobs])
    found.push(...readdirSync(directory).map(name => join(directory, name)));
  found.push(
    ...readdirSync(volumes)
      .filter(name => !isCache(name))
      .map(name => join(volumes, name)),
  );
  return found;
}

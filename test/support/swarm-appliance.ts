// A complete server whose containers run on the machines of a swarm, for end-to-end tests.
import { join } from 'node:path';
import type { Settings } from '../../src/config.ts';
import type { SwarmMachinesOptions } from '../../src/demo/swarm-machines.ts';
import { type Appliance, startAppliance } from './appliance.ts';
import { freePort } from './ports.ts';
import { startSwarm, type TestSwarm } from './swarm.ts';

export type SwarmAppliance = Appliance & { swarm: TestSwarm };

export async function startSwarmAppliance(
  overrides: Partial<Settings> = {},
  machines: Omit<SwarmMachinesOptions, 'directory'> = {},
  beginWork?: Parameters<typeof startAppliance>[1],
): Promise<SwarmAppliance> {
  const swarm = await startSwarm(machines);
  try {
    const port = await freePort();
    const appliance = await startAppliance({ ...swarmSettings(swarm, port), ...overrides }, beginWork);
    const registry = { host: `${swarm.hostAddress}:${port}`, caFile: join(appliance.data, 'tls', 'ca.pem') };
    await Promise.all(swarm.machines.map(machine => machine.trust(registry)));
    const add = async () => {
      const machine = await swarm.add();
      await machine.trust(registry);
      return machine;
    };
    return {
      ...appliance,
      swarm: { ...swarm, add },
      async close() {
        try {
          await appliance.close();
        } finally {
          await swarm.close();
        }
      },
    };
  } catch (error) {
    await swarm.close();
    throw error;
  }
}

export const swarmSettings = (swarm: TestSwarm, port: number) =>
  ({
    engine: 'swarm',
    shared: swarm.shared,
    dockerHost: `unix://${swarm.managerSocket}`,
    listen: { host: swarm.hostAddress, port },
    baseUrl: `https://${swarm.hostAddress}:${port}`,
    network: 'bridge',
  }) satisfies Partial<Settings>;

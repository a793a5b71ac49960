// A machine of a swarm, as the server knows it.

import type { Ownership } from './container/container-plan.ts';

/** A machine that runs containers. */
export type EngineNode = {
  id: string;
  name: string;
  role: 'manager' | 'worker';
  address: string;
  /** `ready`, or why it does not respond. */
  state: string;
  availability: 'active' | 'pause' | 'drain';
  engineVersion: string;
  cpus: number;
  memoryBytes: number;
  /** How many containers of jobs it runs at once; 0 if it was not set up for them. */
  slots: number;
  /** What runs there now. */
  running: Ownership[];
  /** Why it gets no new containers; undefined if it does. */
  unusable: string | undefined;
};

// How many containers of jobs run at once, and why a job that waits for one does not start yet.

import { hideHostPaths } from '../domain/host-paths.ts';
import type { Slots } from './host-slots.ts';

export type ContainerSlots = Slots & {
  used(): number;
  /** Whether a container could be started now, if a slot is free. */
  isOpen(): boolean;
  /** Why what waits for a container does not start yet. */
  waitReason(): string;
};

export function createContainerSlots(options: {
  concurrency: number;
  dataDirectory: string;
  /** Why Docker cannot be used now. */
  dockerAway(): string | undefined;
  hasFreeSpace(): boolean;
}): ContainerSlots {
  const { concurrency, dockerAway, hasFreeSpace } = options;
  const taken = new Set<symbol>();
  const isFull = () => taken.size >= concurrency;
  return {
    used: () => taken.size,
    isFull,
    mayBegin: () => !isFull(),
    begin() {
      const slot = Symbol('slot');
      taken.add(slot);
      return () => void taken.delete(slot);
    },
    isOpen: () => hasFreeSpace() && dockerAway() === undefined,
    waitReason() {
      const away = dockerAway();
      if (away !== undefined) return `Docker is away: ${hideHostPaths(away, options.dataDirectory)}`;
      if (!hasFreeSpace()) return 'The disk of the appliance is nearly full.';
      return isFull() ? `All ${concurrency} slots are taken.` : 'It starts in a moment.';
    },
  };
}

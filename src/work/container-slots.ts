// Limits how many containers of jobs run at once, and explains why a job is waiting.

import { hideHostPaths } from '../domain/host-paths.ts';
import type { Slots } from './host-slots.ts';

type ContainerSlots = Slots & {
  used(): number;
  /** Whether Docker and the disk allow a new container. */
  isOpen(): boolean;
  /** Why a queued job does not start yet. */
  waitReason(): string;
};

export function createContainerSlots(options: {
  concurrency: number;
  dataDirectory: string;
  /** Why Docker cannot be used now; undefined when it can. */
  dockerUnavailable(): string | undefined;
  hasFreeSpace(): boolean;
}): ContainerSlots {
  const { concurrency, dockerUnavailable, hasFreeSpace } = options;
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
    isOpen: () => hasFreeSpace() && dockerUnavailable() === undefined,
    waitReason() {
      const reason = dockerUnavailable();
      if (reason !== undefined)
        return `Docker is unavailable: ${hideHostPaths(reason, options.dataDirectory)}`;
      if (!hasFreeSpace()) return 'The disk of the appliance is nearly full.';
      return isFull() ? `All ${concurrency} slots are taken.` : 'It starts in a moment.';
    },
  };
}

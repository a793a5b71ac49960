// Limits how many containers of jobs run at once, and how many of them are compiles. Explains why a job is waiting.

import { hideHostPaths } from '../domain/host-paths.ts';
import type { Capacity } from '../engine/engine.ts';
import type { Slots } from './host-slots.ts';
import type { JobKind } from './job.ts';

type ContainerSlots = Slots & {
  used(): number;
  /** How many containers could be started now. */
  free(): number;
  total(): number;
  /** How many slots compiles may take. */
  compileSlots(): number;
  compilesRunning(): number;
  /** Whether Docker and the disk allow a new container. */
  isOpen(): boolean;
  /** Why a queued job does not start yet. */
  waitReason(kind: JobKind): string;
};

/** The group of compiles. Builds have another. */
const COMPILE: JobKind = 'dependency';

export function createContainerSlots(options: {
  /** CONCURRENCY, if the engine does not know its own capacity. */
  concurrency: number;
  /** Of all nodes, if there are several. */
  capacity?(): Capacity | undefined;
  /** COMPILE_SLOTS. One slot stays for builds, unless there is only one. */
  compileSlots: number | undefined;
  dataDirectory: string;
  /** Why Docker cannot be used now; undefined when it can. */
  dockerUnavailable(): string | undefined;
  hasFreeSpace(): boolean;
}): ContainerSlots {
  const { dockerUnavailable, hasFreeSpace } = options;
  const slots = () => options.capacity?.()?.slots ?? options.concurrency;
  const compileSlots = () =>
    Math.max(1, Math.min(options.compileSlots ?? Math.floor(slots() / 2), slots() - 1));
  const taken = new Set<{ isCompile: boolean }>();
  const compilesRunning = () => [...taken].filter(({ isCompile }) => isCompile).length;
  const isFull = () => taken.size >= slots();
  const areCompilesFull = () => compilesRunning() >= compileSlots();
  const isOpen = () => hasFreeSpace() && dockerUnavailable() === undefined;
  return {
    total: slots,
    used: () => taken.size,
    free: () => (isOpen() ? Math.max(0, slots() - taken.size) : 0),
    compileSlots,
    compilesRunning,
    isFull,
    mayBegin: groups => !isFull() && !(groups.includes(COMPILE) && areCompilesFull()),
    begin(groups) {
      const slot = { isCompile: groups.includes(COMPILE) };
      taken.add(slot);
      return () => void taken.delete(slot);
    },
    isOpen,
    waitReason(kind) {
      const reason = dockerUnavailable();
      if (reason !== undefined)
        return `Docker is unavailable: ${hideHostPaths(reason, options.dataDirectory)}`;
      if (!hasFreeSpace()) return 'The disk of the appliance is nearly full.';
      const missing = options.capacity?.()?.reason;
      if (missing !== undefined) return missing;
      if (isFull()) return `All ${slots()} slots are taken.`;
      return kind === COMPILE && areCompilesFull()
        ? `All ${compileSlots()} slots for compiles are taken.`
        : 'It starts in a moment.';
    },
  };
}

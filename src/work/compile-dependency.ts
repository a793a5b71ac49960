// A dependency's compile from claim to artifact.

import type { QueueParts } from './queue.ts';
import type { RunParts } from './run-suite.ts';

export function createCompiler(_parts: RunParts): QueueParts['compile'] {
  return { claim: () => undefined, run: async () => {} };
}

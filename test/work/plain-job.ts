// A container run with default values, whose files are in the directory.
import { join } from 'node:path';
import type { ContainerRun } from '../../src/work/follow-container.ts';

export const plainJob = (directory: string, overrides: Partial<ContainerRun> = {}) => ({
  topic: 'build:1',
  name: 'assay-x-build-1',
  nonce: 'abc',
  outputFile: join(directory, 'output'),
  logPath: join(directory, 'build.log'),
  logLimitBytes: 1_000_000,
  secrets: [],
  deadlineAt: Date.now() + 60_000,
  stopReason: () => undefined,
  evict: () => {},
  isDiskFull: () => false,
  describeStep: () => undefined,
  ...overrides,
});

// The container of a build, with default values, and with its files in the directory.
import { join } from 'node:path';
import type { ContainerRun } from '../../src/work/follow-container.ts';

export const plainJob = (directory: string, of: Partial<ContainerRun> = {}) => ({
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
  describeStep: () => undefined,
  ...of,
});

// A job of a build like any other, with its files in the directory.
import { join } from 'node:path';
import type { Job } from '../../src/work/run-job.ts';

export const plainJob = (directory: string, of: Partial<Job> = {}): Job => ({
  topic: 'build:1',
  name: 'assay-x-build-1',
  nonce: 'abc',
  outputFile: join(directory, 'output'),
  logPath: join(directory, 'build.log'),
  logLimitBytes: 1_000_000,
  secrets: [],
  deadlineAt: Date.now() + 60_000,
  diskBytes: 0,
  condemn: () => {},
  stopReason: () => undefined,
  describeStep: () => undefined,
  ...of,
});

// Keeps the jobs of Node's thread pool going. glibc before 2.41 may lose the signal that wakes a thread of the pool. The job
// then waits until another one is queued, which may be never in a quiet process.

import { stat } from 'node:fs';

const EVERY_MS = 1_000;

/** Queues a small job from time to time. Does not keep the process alive. */
export function keepThreadPoolGoing(): void {
  setInterval(() => stat('/', () => {}), EVERY_MS).unref();
}

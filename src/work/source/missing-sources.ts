// Fetches commits of builds that are no longer in the mirror. These fetches take turns with those of requests. Meanwhile, no
// other build of the project starts.

import { hostIn } from '../host-slots.ts';
import type { WaitingItem, WorkKind } from '../queue.ts';
import type { FetchOptions } from './fetch-mirror.ts';
import { fetchSource, type SourceProject } from './source.ts';

type MissingSources = WorkKind & {
  fetch(project: SourceProject, hash: string, signal: AbortSignal): Promise<void>;
  isMissing(projectId: bigint): boolean;
};

export function createMissingSources(options: FetchOptions): MissingSources {
  const missing = new Set<WaitingItem & { projectId: bigint; isClaimed: boolean }>();
  const wake = () => options.live.publish(['queue']);
  let count = 0;
  return {
    listWaiting: () => [...missing].filter(({ isClaimed }) => !isClaimed),
    listClaimed: () => [],
    isMissing: id => [...missing].some(({ projectId }) => projectId === id),
    fetch(project, hash, signal) {
      const done = Promise.withResolvers<void>();
      const onAbort = () => done.reject(signal.reason);
      signal.addEventListener('abort', onAbort);
      const item = {
        key: `source ${++count}`,
        owner: `source ${project.id}`,
        enqueuedAt: project.id,
        groups: [hostIn(project.repositoryUrl)],
        projectId: project.id,
        isClaimed: false,
        claim() {
          item.isClaimed = true;
          return () => fetchSource(options, project, hash, signal).then(done.resolve, done.reject);
        },
      };
      missing.add(item);
      if (signal.aborted) onAbort();
      wake();
      return done.promise.finally(() => {
        signal.removeEventListener('abort', onAbort);
        missing.delete(item);
        wake();
      });
    },
  };
}

// Follows the firehose of the project, records every event, and lets callers wait for events.
import type { ApiClient, StreamEvent } from './api-client.ts';

export type Watch = {
  listen(listener: (event: StreamEvent) => void): void;
  /** Resolves when the events so far satisfy `isEnough`; rejects if the stream ends before that. */
  until(isEnough: (events: readonly StreamEvent[]) => boolean): Promise<void>;
};

export async function watchProject(api: ApiClient, projectId: string): Promise<Watch> {
  const events: StreamEvent[] = [];
  const listeners = new Set<(event: StreamEvent) => void>();
  const ready = Promise.withResolvers<void>();
  const broken = Promise.withResolvers<never>();
  // There may be no caller waiting when it fails.
  broken.promise.catch(() => {});
  (async () => {
    for await (const event of api.follow(`/projects/${projectId}/firehose`)) {
      if (event.event === 'state') ready.resolve();
      else events.push(event);
      for (const listener of listeners) listener(event);
    }
    throw new Error("the project's firehose ended");
  })().catch(broken.reject);
  await Promise.race([ready.promise, broken.promise]);
  return {
    listen: listener => listeners.add(listener),
    async until(isEnough) {
      const enough = Promise.withResolvers<void>();
      const check = () => {
        if (isEnough(events)) enough.resolve();
      };
      listeners.add(check);
      check();
      try {
        await Promise.race([enough.promise, broken.promise]);
      } finally {
        listeners.delete(check);
      }
    },
  };
}

// Notifications within this process: a topic is published after its change is durable, and the watchers read the row again.

export type Live = {
  /** Calls `wake` after each change of the topic, until the returned function is called. */
  watch(topic: string, wake: () => void): () => void;
  /** The same for several topics. Fast for thousands, of which few change at a time. A set is not copied. */
  watchAny(topics: Iterable<string>, wake: () => void): () => void;
  publish(topics: Iterable<string>): void;
  watchers(): number;
};

export function createLive(): Live {
  const byTopic = new Map<string, Set<() => void>>();
  const groups = new Set<{ topics: ReadonlySet<string>; wake: () => void }>();
  return {
    watch(topic, wake) {
      let watchers = byTopic.get(topic);
      if (!watchers) {
        watchers = new Set();
        byTopic.set(topic, watchers);
      }
      watchers.add(wake);
      return () => {
        watchers.delete(wake);
        if (watchers.size === 0 && byTopic.get(topic) === watchers) byTopic.delete(topic);
      };
    },
    watchAny(topics, wake) {
      const group = { topics: topics instanceof Set ? topics : new Set(topics), wake };
      groups.add(group);
      return () => void groups.delete(group);
    },
    publish(topics) {
      for (const topic of topics) {
        for (const wake of byTopic.get(topic) ?? []) wake();
        for (const group of groups) if (group.topics.has(topic)) group.wake();
      }
    },
    watchers() {
      let count = groups.size;
      for (const watchers of byTopic.values()) count += watchers.size;
      return count;
    },
  };
}

// How many fetches or pushes run at once, and with which Git hosts. A call that takes longer than a moment no longer counts
// among the quick ones: a host that is slow, or hangs, holds a part of the places and never those that quick hosts need.

export type Slots = {
  /** Whether a call to these hosts may begin now. */
  mayBegin(hosts: readonly string[]): boolean;
  /** Whether none may begin, whatever the host. */
  isFull(): boolean;
  /** Takes a place; the returned function gives it back. */
  begin(hosts: readonly string[]): () => void;
};

type Call = { hosts: readonly string[]; isSlow: boolean };

const QUICK_AT_ONCE = 4;
const SLOW_AFTER_MS = 3_000;
const PER_SLOW_HOST = 4;
/** Past this many slow calls, a host that is not known to be quick gets one place at a time. */
const SLOW_AT_ONCE = 16;
const ALL_AT_ONCE = 32;

/** `onChange` is called when a place becomes free because a call turned out to be slow. */
export function createHostSlots(onChange: () => void, slowAfterMs = SLOW_AFTER_MS): Slots {
  const calls = new Set<Call>();
  /** Hosts whose last call ended within a moment. */
  const quickHosts = new Set<string>();

  const count = (holds: (call: Call) => boolean) => [...calls].filter(holds).length;
  const areQuick = (hosts: readonly string[]) => hosts.every(host => quickHosts.has(host));
  const isFull = () => calls.size >= ALL_AT_ONCE || count(call => !call.isSlow) >= QUICK_AT_ONCE;

  return {
    isFull,
    mayBegin(hosts) {
      if (isFull()) return false;
      const hasItsPart = (host: string) => {
        const own = [...calls].filter(call => call.hosts.includes(host));
        return own.length >= PER_SLOW_HOST && own.some(call => call.isSlow);
      };
      if (hosts.some(hasItsPart)) return false;
      if (areQuick(hosts)) return true;
      // For a host that was slow, or of which nothing is known, the last place is not taken.
      const isUnderWay = count(call => call.hosts.some(host => hosts.includes(host))) > 0;
      const slowMost = isUnderWay ? SLOW_AT_ONCE : ALL_AT_ONCE - QUICK_AT_ONCE;
      return (
        count(call => call.isSlow || !areQuick(call.hosts)) < slowMost &&
        count(call => !call.isSlow && !areQuick(call.hosts)) < QUICK_AT_ONCE - 1
      );
    },
    begin(hosts) {
      const call: Call = { hosts, isSlow: false };
      calls.add(call);
      const timer = setTimeout(() => {
        call.isSlow = true;
        for (const host of hosts) quickHosts.delete(host);
        onChange();
      }, slowAfterMs);
      return () => {
        clearTimeout(timer);
        calls.delete(call);
        if (!call.isSlow) for (const host of hosts) quickHosts.add(host);
      };
    },
  };
}

/** The host in `<user>@<host>:<path>.git`. */
export function hostIn(repositoryUrl: string): string {
  return repositoryUrl.slice(repositoryUrl.indexOf('@') + 1, repositoryUrl.indexOf(':')).toLowerCase();
}

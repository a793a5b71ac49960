// Limits how many fetches or pushes run at once, in all and for each Git host. A call that takes long stops counting as
// quick, so a slow or hanging host never uses up the slots that quick hosts need.

export type Slots = {
  /** Whether work of these groups may begin now. A group is a Git host here. */
  mayBegin(groups: readonly string[]): boolean;
  /** Whether no work may begin, of any group. */
  isFull(): boolean;
  /** Takes a slot. The returned function frees it, and may be called twice. */
  begin(groups: readonly string[]): () => void;
};

type Call = { hosts: readonly string[]; isSlow: boolean };

const MAX_QUICK = 4;
const SLOW_AFTER_MS = 3_000;
const MAX_PER_SLOW_HOST = 4;
/** With this many slow calls, a host that is not known to be quick gets one slot at a time. */
const MAX_SLOW = 16;
const MAX_CALLS = 32;

/** `onChange` is called when a call turns out to be slow, which frees a quick slot. */
export function createHostSlots(onChange: () => void, slowAfterMs = SLOW_AFTER_MS): Slots {
  const calls = new Set<Call>();
  /** Hosts whose last call was quick. */
  const quickHosts = new Set<string>();

  const count = (holds: (call: Call) => boolean) => [...calls].filter(holds).length;
  const areQuick = (hosts: readonly string[]) => hosts.every(host => quickHosts.has(host));
  const isFull = () => calls.size >= MAX_CALLS || count(call => !call.isSlow) >= MAX_QUICK;

  return {
    isFull,
    mayBegin(hosts) {
      if (isFull()) return false;
      const isAtLimit = (host: string) => {
        const own = [...calls].filter(call => call.hosts.includes(host));
        return own.length >= MAX_PER_SLOW_HOST && own.some(call => call.isSlow);
      };
      if (hosts.some(isAtLimit)) return false;
      if (areQuick(hosts)) return true;
      // The last quick slot is reserved for hosts that are known to be quick.
      const hasCalls = count(call => call.hosts.some(host => hosts.includes(host))) > 0;
      const maxSlow = hasCalls ? MAX_SLOW : MAX_CALLS - MAX_QUICK;
      return (
        count(call => call.isSlow || !areQuick(call.hosts)) < maxSlow &&
        count(call => !call.isSlow && !areQuick(call.hosts)) < MAX_QUICK - 1
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

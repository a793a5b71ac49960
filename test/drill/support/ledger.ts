// Records what was answered. After a crash, every entry must read as it was last answered, or as a change leaves it
// that was in progress at the time of the crash.
import { inspect, isDeepStrictEqual } from 'node:util';

type Entry = {
  read: () => Promise<unknown>;
  kept: unknown;
  /** Changes that were requested but not answered: each may have happened. */
  open: unknown[];
  isChecked: boolean;
};

export type Ledger = {
  /** Requests a change. Once it is answered with success, `read` must return `value` until the next change. */
  change(
    name: string,
    read: () => Promise<unknown>,
    value: unknown,
    ask: () => Promise<boolean>,
  ): Promise<boolean>;
  /** Records an answer that has no earlier state. */
  keep(name: string, read: () => Promise<unknown>, value: unknown): void;
  /** Reads the entries that changed since the last check, or all. Returns those that differ. */
  check(all?: boolean): Promise<string[]>;
  answered(): number;
};

export function createLedger(): Ledger {
  const entries = new Map<string, Entry>();
  let answered = 0;
  const entryOf = (name: string, read: Entry['read']): Entry => {
    const entry = entries.get(name) ?? { read, kept: undefined, open: [], isChecked: false };
    entries.set(name, entry);
    return entry;
  };
  return {
    answered: () => answered,
    keep(name, read, value) {
      answered += 1;
      Object.assign(entryOf(name, read), { kept: value, isChecked: false });
    },
    async change(name, read, value, ask) {
      const entry = entryOf(name, read);
      entry.open.push(value);
      const happened = await ask();
      answered += 1;
      // An open earlier change happened before this one, or never.
      if (happened) Object.assign(entry, { kept: value, open: [], isChecked: false });
      else entry.open = entry.open.filter(one => one !== value);
      return happened;
    },
    async check(all = false) {
      const lost: string[] = [];
      for (const [name, entry] of entries) {
        if ((entry.isChecked && !all && entry.open.length === 0) || entry.kept === undefined) continue;
        const found = await entry.read();
        entry.isChecked = true;
        if (![entry.kept, ...entry.open].some(value => isDeepStrictEqual(value, found)))
          lost.push(`${name}: answered ${inspect(entry.kept)}, found ${inspect(found)}`);
      }
      return lost;
    },
  };
}

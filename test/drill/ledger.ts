// What was answered, and so must be there: after a crash every entry reads as it was answered last, or, where a change
// was on its way when the crash came, as that change would leave it.
import { inspect, isDeepStrictEqual } from 'node:util';

type Entry = {
  read: () => Promise<unknown>;
  kept: unknown;
  /** Changes that were asked for and not answered: each may have happened. */
  open: unknown[];
  isChecked: boolean;
};

export type Ledger = {
  /** Asks for a change; once it is answered with yes, `read` must give `value`, until it is changed again. */
  change(
    name: string,
    read: () => Promise<unknown>,
    value: unknown,
    ask: () => Promise<boolean>,
  ): Promise<boolean>;
  /** Something answered that has no earlier state. */
  keep(name: string, read: () => Promise<unknown>, value: unknown): void;
  /** Reads what changed since the last time, or all; says what is not as it was answered. */
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
      // Whatever was open before a change happened before it, or not at all.
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

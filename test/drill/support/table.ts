// The results of a drill, one line each. The drill fails if a line that must be 0, or true, or below a limit is not.

export type Table = {
  /** A count or a measurement, without a limit. */
  report(name: string, figure: number | string): void;
  /** Must be empty. */
  mustBeEmpty(name: string, found: readonly string[]): void;
  /** Must not exceed the limit. */
  atMost(name: string, figure: number, bound: number, unit: string): void;
  /** Must be true. */
  mustBeTrue(name: string, isTrue: boolean, details?: string): void;
  print(): void;
  /** The failed lines, with details; empty if there are none. */
  failures(): string[];
};

const SHOWN = 5;

/** `slack` multiplies the limits of times, for a machine that other work shares. */
export function createTable(title: string, slack: number): Table {
  const lines: [name: string, figure: string][] = [];
  const failed: string[] = [];
  const line = (name: string, figure: string, holds = true, why: readonly string[] = []) => {
    lines.push([name, holds ? figure : `${figure}  FAILED`]);
    if (holds) return;
    const more = why.length > SHOWN ? [`… and ${why.length - SHOWN} more`] : [];
    failed.push([`${name}: ${figure}`, ...why.slice(0, SHOWN), ...more].join('\n    '));
  };
  return {
    report: (name, figure) => line(name, String(figure)),
    mustBeEmpty: (name, found) => line(name, String(found.length), found.length === 0, found),
    atMost(name, figure, limit, unit) {
      const bound = unit === 'ms' ? limit * slack : limit;
      line(name, `${Math.round(figure)} ${unit} (at most ${Math.round(bound)})`, figure <= bound);
    },
    mustBeTrue: (name, does, otherwise = '') =>
      line(name, does ? 'ok' : 'no', does, otherwise ? [otherwise] : []),
    print() {
      const width = Math.max(...lines.map(([name]) => name.length));
      console.log(`\n${title}`);
      for (const [name, figure] of lines) console.log(`  ${name.padEnd(width)}  ${figure}`);
      for (const failure of failed) console.log(`\n  ${failure}`);
    },
    failures: () => failed,
  };
}

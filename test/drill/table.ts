// What a drill did and what it lost, a line each; a line that must be 0, or hold, and does not is the drill's failure.

export type Table = {
  /** Something that was done, or measured. */
  tell(name: string, figure: number | string): void;
  /** Something that must not have happened. */
  none(name: string, found: readonly string[]): void;
  /** Something that must stay under a bound. */
  atMost(name: string, figure: number, bound: number, unit: string): void;
  /** Something that must hold. */
  holds(name: string, does: boolean, otherwise?: string): void;
  print(): void;
  /** What failed, with its particulars; empty when nothing did. */
  failures(): string[];
};

const SHOWN = 5;

/** `slack` is for times alone: how many times longer they may be where other work shares the machine. */
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
    tell: (name, figure) => line(name, String(figure)),
    none: (name, found) => line(name, String(found.length), found.length === 0, found),
    atMost(name, figure, usual, unit) {
      const bound = unit === 'ms' ? usual * slack : usual;
      line(name, `${Math.round(figure)} ${unit} (at most ${Math.round(bound)})`, figure <= bound);
    },
    holds: (name, does, otherwise = '') => line(name, does ? 'ok' : 'no', does, otherwise ? [otherwise] : []),
    print() {
      const width = Math.max(...lines.map(([name]) => name.length));
      console.log(`\n${title}`);
      for (const [name, figure] of lines) console.log(`  ${name.padEnd(width)}  ${figure}`);
      for (const failure of failed) console.log(`\n  ${failure}`);
    },
    failures: () => failed,
  };
}

// Shows the progress of long work on a terminal, and formats sizes. Prints nothing when the output is not a terminal.

type Progress = {
  update(doneBytes: number, totalBytes: number): void;
  /** Removes the line. */
  end(): void;
};

const REDRAW_MS = 100;
const BAR_COLUMNS = 24;
const DEFAULT_COLUMNS = 80;

export function createProgress(what: string, out: NodeJS.WriteStream = process.stderr): Progress {
  if (!out.isTTY || process.env.TERM === 'dumb') return { update() {}, end() {} };
  const startedAt = performance.now();
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    update(doneBytes, totalBytes) {
      const now = performance.now();
      if (now - drawnAt < REDRAW_MS) return;
      drawnAt = now;
      const percent = totalBytes === 0 ? 100 : Math.floor((100 * doneBytes) / totalBytes);
      const seconds = Math.round((now - startedAt) / 1000);
      const numbers = `${String(percent).padStart(3)} %  ${sizeText(doneBytes)}  ${seconds} s`;
      const done = Math.round((BAR_COLUMNS * percent) / 100);
      const bar = `[${'#'.repeat(done)}${'.'.repeat(BAR_COLUMNS - done)}] `;
      // A line that is wider than the terminal would wrap, and could not be redrawn.
      const free = (out.columns || DEFAULT_COLUMNS) - numbers.length - 2;
      const shownBar = free - what.length - 1 >= bar.length ? bar : '';
      out.write(`\r\x1b[K${what.slice(0, Math.max(0, free))} ${shownBar}${numbers}`);
    },
    end() {
      if (drawnAt > 0) out.write('\r\x1b[K');
    },
  };
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function sizeText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

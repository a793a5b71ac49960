// How the client prints: colours on a terminal, tables, ages and durations. Text of others cannot control the terminal.

const COLOURS = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36 } as const;
export type Colour = keyof typeof COLOURS;

export type Style = {
  isTerminal: boolean;
  columns: number;
  paint(colour: Colour, text: string): string;
};

const DEFAULT_COLUMNS = 80;

/** Of standard output, or of another stream. */
export function styleOf(environment: NodeJS.ProcessEnv, out: NodeJS.WriteStream = process.stdout): Style {
  const isTerminal = out.isTTY === true && environment.TERM !== 'dumb';
  const isColoured = isTerminal && !environment.NO_COLOR;
  return {
    isTerminal,
    get columns() {
      return out.columns || Number(environment.COLUMNS) || DEFAULT_COLUMNS;
    },
    paint: (colour, text) => (isColoured ? `\x1b[${COLOURS[colour]}m${text}\x1b[0m` : text),
  };
}

const STATE_COLOURS: Record<string, Colour> = {
  passed: 'green',
  compiled: 'green',
  deployed: 'green',
  failed: 'red',
  compile_failed: 'red',
  errored: 'magenta',
  timed_out: 'magenta',
  running: 'blue',
  building: 'blue',
  fetching: 'blue',
  compiling: 'blue',
  deploying: 'blue',
  canceled: 'yellow',
};

export const stateText = (state: string) => state.replaceAll('_', ' ');

export const colourOf = (state: string): Colour => STATE_COLOURS[state] ?? 'dim';

export const paintState = ({ paint }: Style, state: string, text = stateText(state)): string =>
  paint(colourOf(state), text);

/** Replaces control characters, which names, messages and branches of others may contain. */
export const plain = (text: string): string =>
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, '\ufffd');

/** The lines of a text, each without control characters. */
export const plainLines = (text: string): string[] =>
  text === ''
    ? []
    : text
        .replace(/\n+$/, '')
        .split('\n')
        .map(line => plain(line.replace(/\r$/, '').replaceAll('\t', '  ')));

const COLOUR_CODES = /\x1b\[\d*m/g;
const INVISIBLE = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
const WIDE =
  /^[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]$/u;
const columnsOf = (character: string) => (INVISIBLE.test(character) ? 0 : WIDE.test(character) ? 2 : 1);

/** How many columns of a terminal the text takes. It may be painted. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text.replaceAll(COLOUR_CODES, '')) width += columnsOf(character);
  return width;
}

/** The text up to a number of columns, with an ellipsis if something is missing. It must not be painted. */
export function cut(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let kept = '';
  let width = 0;
  for (const character of text) {
    width += columnsOf(character);
    if (width > columns - 1) break;
    kept += character;
  }
  return columns > 0 ? `${kept}…` : '';
}

/** Rows with aligned columns. Cells may be painted. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows)
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, widthOf(cell));
  return rows.map(row =>
    row
      .map((cell, at) =>
        at === row.length - 1 ? cell : cell + ' '.repeat((widths[at] ?? 0) - widthOf(cell)),
      )
      .join('  ')
      .trimEnd(),
  );
}

/** Cuts the cells of these columns, down to the given widths, so that the rows fit the width of the terminal. */
export function fitRows(
  { isTerminal, columns }: Style,
  rows: readonly (readonly string[])[],
  least: Readonly<Record<number, number>>,
): string[][] {
  const widths: number[] = [];
  for (const row of rows)
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, widthOf(cell));
  let excess = isTerminal ? widths.reduce((sum, width) => sum + width + 2, -2) - columns : 0;
  while (excess > 0) {
    const [widest] = Object.entries(least)
      .map(([at, min]) => ({ at: Number(at), spare: (widths[Number(at)] ?? 0) - min }))
      .sort((a, b) => b.spare - a.spare);
    if (!widest || widest.spare <= 0) break;
    widths[widest.at] = (widths[widest.at] ?? 0) - 1;
    excess -= 1;
  }
  return rows.map(row =>
    row.map((cell, at) => cut(cell, at in least ? (widths[at] ?? 0) : Number.MAX_VALUE)),
  );
}

/** `42 s`, `3 min 05 s`, `2 h 10 min`. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, '0')} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
}

/** `just now`, `5 min ago`, `3 h ago`, `2 days ago`. */
export function ageText(time: string, nowMs = Date.now()): string {
  const minutes = Math.floor((nowMs - Date.parse(time)) / 60_000);
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ago`;
  return `${Math.floor(hours / 24)} days ago`;
}

/** An id and its exact form, as records have them. */
const ID_PAIR = /"(\w+)":\d+,"(\1_(?:str|ref))":"(\d+)"/g;

/** One record on a line. Ids have more digits than a number in JavaScript: the digits of their exact form are printed. */
export const jsonLine = (record: unknown): string =>
  `${JSON.stringify(record).replaceAll(ID_PAIR, '"$1":$3,"$2":"$3"')}\n`;

/** Everything that moves the cursor or more. Line breaks, tabs and colours stay. */
const CONTROLS = /[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[\d{0,2}m)/g;

/** Writes to standard output, and waits while a slow reader has too much. Ends the process if nobody reads any more (`| head`). */
export async function write(text: string | Uint8Array): Promise<void> {
  if (process.stdout.destroyed) process.exit(0);
  const { stdout } = process;
  // Names were made plain one by one. Logs, which are bytes, are printed as they are.
  const shown = stdout.isTTY && typeof text === 'string' ? text.replaceAll(CONTROLS, '\ufffd') : text;
  if (stdout.write(shown) || stdout.destroyed) return;
  await new Promise<void>(resolve => {
    const done = () => {
      stdout.off('drain', done).off('close', done);
      resolve();
    };
    stdout.on('drain', done).on('close', done);
  });
}

// A small terminal emulator: applies what a program prints, and returns what is on the screen. Wraps lines at the edge, and wraps
// them again when the width changes, as most terminals do.

type Row = {
  cells: string[];
  /** Whether the next row continues this one. */
  wraps: boolean;
};

const SEQUENCE = /^\x1b(?:\[([?\d;]*)([A-Za-z])|[78=>])/;

export type TerminalScreen = {
  write(text: string): void;
  resize(columns: number, rows: number): void;
  /** What is visible, without empty rows at the end. */
  visible(): string[];
  /** With what has been scrolled off the top. */
  all(): string[];
  isCursorVisible(): boolean;
};

export function createTerminalScreen(columns: number, height: number): TerminalScreen {
  let rows: Row[] = [{ cells: [], wraps: false }];
  let row = 0;
  let column = 0;
  let isCursorVisible = true;

  const current = () => rows[row] as Row;
  const top = () => Math.max(0, rows.length - height);
  const nextRow = () => {
    row += 1;
    if (row === rows.length) rows.push({ cells: [], wraps: false });
  };
  const put = (character: string) => {
    if (column === columns) {
      current().wraps = true;
      nextRow();
      column = 0;
    }
    const { cells } = current();
    while (cells.length < column) cells.push(' ');
    cells[column] = character;
    column += 1;
  };
  const apply = (parameters: string, final: string) => {
    const count = Number(parameters) || 1;
    if (final === 'A') row = Math.max(top(), row - count);
    else if (final === 'B') row = Math.min(rows.length - 1, row + count);
    else if (final === 'K')
      Object.assign(current(), { cells: current().cells.slice(0, column), wraps: false });
    else if (final === 'J') {
      Object.assign(current(), { cells: current().cells.slice(0, column), wraps: false });
      for (const below of rows.slice(row + 1)) Object.assign(below, { cells: [], wraps: false });
    } else if (parameters === '?25') isCursorVisible = final === 'h';
    else if (final === 'C') column = Math.min(columns - 1, column + count);
    else if (final === 'D') column = Math.max(0, column - count);
    else if (final === 'G') column = count - 1;
    else if (final !== 'm' && !parameters.startsWith('?'))
      throw new Error(`the emulator does not know CSI ${parameters}${final}`);
  };
  const text = (list: readonly Row[]) => {
    const lines = list.map(({ cells }) => cells.join('').trimEnd());
    while (lines.at(-1) === '') lines.pop();
    return lines;
  };

  return {
    write(written) {
      for (let rest = written; rest !== ''; ) {
        const [sequence, parameters = '', final = ''] = SEQUENCE.exec(rest) ?? [];
        if (sequence !== undefined) {
          if (final !== '') apply(parameters, final);
          rest = rest.slice(sequence.length);
          continue;
        }
        const [character = ''] = rest;
        if (character === '\n') {
          nextRow();
          // Without a carriage return, the column stays.
        } else if (character === '\r') column = 0;
        else if (character >= ' ') put(character);
        rest = rest.slice(character.length);
      }
    },
    resize(newColumns, newHeight) {
      const reflowed: Row[] = [];
      let cursor = 0;
      for (let at = 0; at < rows.length; ) {
        let end = at;
        while (rows[end]?.wraps) end += 1;
        const line = rows.slice(at, end + 1).flatMap(({ cells }) => cells);
        const offset = row >= at && row <= end ? (row - at) * columns + column : undefined;
        const pieces = Math.max(1, Math.ceil(line.length / newColumns));
        for (let piece = 0; piece < pieces; piece += 1) {
          if (offset !== undefined && piece === Math.min(pieces - 1, Math.floor(offset / newColumns))) {
            cursor = reflowed.length;
            column = Math.min(newColumns, offset - piece * newColumns);
          }
          reflowed.push({
            cells: line.slice(piece * newColumns, (piece + 1) * newColumns),
            wraps: piece < pieces - 1,
          });
        }
        at = end + 1;
      }
      rows = reflowed;
      row = cursor;
      columns = newColumns;
      height = newHeight;
    },
    visible: () => text(rows.slice(top())),
    all: () => text(rows),
    isCursorVisible: () => isCursorVisible,
  };
}

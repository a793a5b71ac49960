// Reads printed text as a terminal does: lines of runs of one style each. It applies colours, carriage returns,
// backspaces and erasing, and drops all other commands. It creates no elements.

/** @import { Line, Rgb, Run, Section, ShowLine, Style } from './types.ts' */
import { MAX_SECTION_CHARACTERS, readSection } from './log-groups.js';

/** @typedef {[character: string, style: Style]} Cell */

/** A longer line is cut: the raw log has all of it. */
const MAX_COLUMNS = 20_000;
/** An escape sequence without an end is kept for the next write up to this length. */
const MAX_UNFINISHED = 4_096;
const MAX_SECTIONS = 20;

const token =
  /\x1b\[([0-9:;<=>?]*)[ -/]*([@-~])|\x1b\]([^\x07\x1b]*)(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]|[^\x00-\x08\x0b-\x1f\x7f]+/g;
const unfinished = /\x1b(?:\[[0-9:;<=>? -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)$/;
const commands = /[\x00-\x08\x0b-\x1f\x7f]/;

/** @type {Map<string, Style>} */
const styles = new Map();

/**
 * Styles are compared by identity: equal styles are one object.
 * @param {Style} style
 */
function uniqueStyle(style) {
  const key = JSON.stringify(style);
  const known = styles.get(key) ?? style;
  styles.set(key, known);
  return known;
}
const plain = uniqueStyle({});

/**
 * `show` gets each line that has ended, and at the end of a write the line that has only begun.
 * @param {ShowLine} show
 */
export function createTerminal(show) {
  let style = plain;
  // The line so far: text while it has no commands, otherwise one cell for each character.
  let text = '';
  /** @type {Cell[] | undefined} */
  let cells;
  let column = 0;
  let rest = '';
  /** @type {Section[]} */
  let sections = [];

  /**
   * @param {Cell[]} row
   * @param {string} character
   */
  function put(row, character) {
    while (row.length < column) row.push([' ', plain]);
    if (column < MAX_COLUMNS) row[column] = [character, style];
    column += 1;
  }
  /** @returns {Cell[]} */
  function toCells() {
    const row = Array.from(text, character => /** @type {Cell} */ ([character, plain]));
    column = row.length;
    text = '';
    return row;
  }
  /**
   * @param {Cell[]} row
   * @param {number} mode
   */
  function erase(row, mode) {
    if (mode === 2) row.length = 0;
    else if (mode === 1) row.fill([' ', plain], 0, column);
    else row.length = Math.min(row.length, column);
  }
  /**
   * A mark of GitLab ends with a carriage return. It is not part of the text.
   * @param {Cell[]} row
   */
  function takeSection(row) {
    if (row[0]?.[0] !== 's' || row[7]?.[0] !== '_' || row.length > MAX_SECTION_CHARACTERS) return;
    const found = readSection(row.map(([character]) => character).join(''));
    if (!found) return;
    row.length = 0;
    if (sections.length < MAX_SECTIONS) sections.push(found);
  }
  /**
   * @param {Cell[]} row
   * @param {RegExpExecArray} command
   */
  function apply(row, [command, parameters = '', final, system]) {
    const count = Math.max(1, Number.parseInt(parameters, 10) || 0);
    if (final === 'm') style = nextStyle(style, parameters);
    else if (final === 'K') erase(row, Number(parameters) || 0);
    else if (final === 'G') column = Math.min(count - 1, MAX_COLUMNS);
    else if (final === 'C') column = Math.min(column + count, MAX_COLUMNS);
    else if (final === 'D') column = Math.max(0, column - count);
    else if (system?.startsWith('8;'))
      style = uniqueStyle({ ...style, link: system.split(';').slice(2).join(';') || undefined });
    else if (command === '\r') {
      takeSection(row);
      column = 0;
    } else if (command === '\b') column = Math.max(0, column - 1);
  }
  /** @param {string} printed */
  function feed(printed) {
    if (!cells && style === plain && !commands.test(printed)) {
      if (text.length <= MAX_COLUMNS) text += printed;
      return;
    }
    cells ??= toCells();
    for (const match of printed.matchAll(token)) {
      if (commands.test(match[0].charAt(0))) apply(cells, match);
      else for (const character of match[0]) put(cells, character);
    }
  }
  function currentLine() {
    if (!cells) return cut(text);
    /** @type {Run[]} */
    const runs = [];
    for (const [character, look] of cells) {
      const last = runs.at(-1);
      if (last?.style === look) last.text += character;
      else runs.push({ text: character, style: look });
    }
    /** @type {Line} */
    const whole = cut(runs.map(run => run.text).join(''));
    if (sections.length > 0) whole.sections = sections;
    if (runs.some(run => run.style !== plain)) whole.runs = runs;
    return whole;
  }

  return {
    /** @param {string} printed */
    write(printed) {
      let from = 0;
      for (;;) {
        const end = printed.indexOf('\n', from);
        if (end < 0) break;
        const line = rest + printed.slice(from, printed[end - 1] === '\r' && end > from ? end - 1 : end);
        rest = '';
        feed(line);
        show(currentLine(), true, end + 1);
        text = '';
        cells = undefined;
        sections = [];
        column = 0;
        from = end + 1;
      }
      const begun = rest + printed.slice(from);
      rest = unfinished.exec(begun)?.[0] ?? '';
      if (rest.length > MAX_UNFINISHED) rest = '';
      const whole = begun.slice(0, begun.length - rest.length);
      if (whole !== '') feed(whole);
      if (cells || text !== '') show(currentLine(), false, printed.length);
    },
  };
}

/**
 * @param {string} text
 * @returns {Line}
 */
function cut(text) {
  return {
    text:
      text.length > MAX_COLUMNS
        ? `${text.slice(0, MAX_COLUMNS)} … the raw log has the rest of this line`
        : text,
  };
}

/** @type {Record<number, Style>} */
const switches = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
  9: { strike: true },
  22: { bold: undefined, dim: undefined },
  23: { italic: undefined },
  24: { underline: undefined },
  27: { inverse: undefined },
  29: { strike: undefined },
  39: { fore: undefined },
  49: { back: undefined },
};

/**
 * The style after an SGR command.
 * @param {Style} style
 * @param {string} parameters
 */
function nextStyle(style, parameters) {
  const codes = parameters.split(/[;:]/).map(code => Number.parseInt(code, 10) || 0);
  /** @type {Style} */
  let next = { ...style };
  for (let code = codes.shift(); code !== undefined; code = codes.shift()) {
    if (code === 0) next = { link: style.link };
    else if (switches[code]) Object.assign(next, switches[code]);
    else if (code >= 30 && code <= 37) next.fore = code - 30;
    else if (code >= 90 && code <= 97) next.fore = code - 82;
    else if (code >= 40 && code <= 47) next.back = code - 40;
    else if (code >= 100 && code <= 107) next.back = code - 92;
    else if (code === 38 || code === 48) {
      const colour = takeColour(codes, parameters.includes(':'));
      if (colour !== undefined) next[code === 38 ? 'fore' : 'back'] = colour;
    }
  }
  // One order of names and no empty ones, so that equal styles have equal keys.
  const entries = Object.entries(next).filter(([, value]) => value !== undefined);
  return uniqueStyle(Object.fromEntries(entries.sort()));
}

/**
 * @param {number[]} codes
 * @param {boolean} hasColons
 */
function takeColour(codes, hasColons) {
  const kind = codes.shift();
  if (kind === 5) return Math.min(255, codes.shift() ?? 0);
  if (kind !== 2) return undefined;
  // With colons a colour space comes before the three values.
  if (hasColons && codes.length > 3) codes.shift();
  // In steps of eight, so that a gradient does not make a style for each character.
  const [red = 0, green = 0, blue = 0] = codes.splice(0, 3).map(value => Math.min(255, value) & ~7);
  return /** @type {Rgb} */ ([red, green, blue]);
}

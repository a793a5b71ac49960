// What was printed, as a terminal shows it: lines of runs of one style each. Colours, text that is written over after a
// carriage return or backspace, and erasing are obeyed; all other commands are dropped. Makes no elements.

/** Past this a line is cut: the raw log has all of it. */
const MAX_COLUMNS = 20_000;
const MAX_HELD = 4_096;

const token =
  /\x1b\[([0-9:;<=>?]*)[ -/]*([@-~])|\x1b\]([^\x07\x1b]*)(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]|[^\x00-\x08\x0b-\x1f\x7f]+/g;
const unfinished = /\x1b(?:\[[0-9:;<=>? -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)$/;
const commands = /[\x00-\x08\x0b-\x1f\x7f]/;

/** Styles are compared by identity: of equal ones there is one. */
const styles = new Map();
function styleOf(look) {
  const key = JSON.stringify(look);
  const known = styles.get(key);
  if (known) return known;
  styles.set(key, look);
  return look;
}
export const plain = styleOf({});

/** `show(line, isWhole, end)` gets each line that has ended, and last the one that has only begun; `end` is how far what was written has been read. */
export function createTerminal(show) {
  let style = plain;
  // The line so far: as text while nothing but text came, else as one cell for each character.
  let text = '';
  let cells;
  let column = 0;
  let held = '';

  const put = character => {
    while (cells.length < column) cells.push([' ', plain]);
    if (column < MAX_COLUMNS) cells[column] = [character, style];
    column += 1;
  };
  const toCells = () => {
    cells = Array.from(text, character => [character, plain]);
    column = cells.length;
    text = '';
  };
  const erase = how => {
    if (how === 2) cells = [];
    else if (how === 1)
      for (let at = 0; at < Math.min(column, cells.length); at += 1) cells[at] = [' ', plain];
    else cells.length = Math.min(cells.length, column);
  };
  const obey = (match, parameters, final, system) => {
    const count = Math.max(1, Number.parseInt(parameters, 10) || 0);
    if (final === 'm') style = dress(style, parameters);
    else if (final === 'K') erase(Number(parameters) || 0);
    else if (final === 'G') column = Math.min(count - 1, MAX_COLUMNS);
    else if (final === 'C') column = Math.min(column + count, MAX_COLUMNS);
    else if (final === 'D') column = Math.max(0, column - count);
    else if (system?.startsWith('8;'))
      style = styleOf({ ...style, link: system.split(';').slice(2).join(';') || undefined });
    else if (match === '\r') column = 0;
    else if (match === '\b') column = Math.max(0, column - 1);
  };
  const feed = part => {
    if (!cells && style === plain && !commands.test(part)) {
      if (text.length <= MAX_COLUMNS) text += part;
      return;
    }
    if (!cells) toCells();
    for (const [match, parameters, final, system] of part.matchAll(token)) {
      if (commands.test(match[0])) obey(match, parameters, final, system);
      else for (const character of match) put(character);
    }
  };
  const line = () => {
    if (!cells) return cut(text);
    const runs = [];
    for (const [character, look] of cells) {
      const last = runs.at(-1);
      if (last?.style === look) last.text += character;
      else runs.push({ text: character, style: look });
    }
    const whole = cut(runs.map(run => run.text).join(''));
    return runs.some(run => run.style !== plain) ? { ...whole, runs } : whole;
  };

  return {
    write(printed) {
      let from = 0;
      for (;;) {
        const end = printed.indexOf('\n', from);
        if (end < 0) break;
        const part = held + printed.slice(from, printed[end - 1] === '\r' && end > from ? end - 1 : end);
        held = '';
        feed(part);
        show(line(), true, end + 1);
        text = '';
        cells = undefined;
        column = 0;
        from = end + 1;
      }
      let rest = held + printed.slice(from);
      held = unfinished.exec(rest)?.[0] ?? '';
      if (held.length > MAX_HELD) held = '';
      rest = rest.slice(0, rest.length - held.length);
      if (rest !== '') feed(rest);
      if (cells || text !== '') show(line(), false, printed.length);
    },
    /** Whether a line has begun and not ended. */
    get isInLine() {
      return cells !== undefined || text !== '';
    },
  };
}

function cut(text) {
  return {
    text:
      text.length > MAX_COLUMNS
        ? `${text.slice(0, MAX_COLUMNS)} … the raw log has the rest of this line`
        : text,
  };
}

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

/** SGR: the style after `parameters`. Colours are an index of 256, or [red, green, blue]. */
function dress(style, parameters) {
  const codes = parameters.split(/[;:]/).map(code => Number.parseInt(code, 10) || 0);
  let next = { ...style };
  while (codes.length > 0) {
    const code = codes.shift();
    if (code === 0) next = style.link === undefined ? {} : { link: style.link };
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
  // One order of names, and no empty ones: equal styles have equal keys.
  return styleOf(
    Object.fromEntries(
      Object.entries(next)
        .filter(([, value]) => value !== undefined)
        .sort(),
    ),
  );
}

function takeColour(codes, hasColons) {
  const kind = codes.shift();
  if (kind === 5) return Math.min(255, codes.shift() ?? 0);
  if (kind !== 2) return undefined;
  // With colons a colour space stands before the three.
  if (hasColons && codes.length > 3) codes.shift();
  // Steps of eight, so that a gradient does not make a style for each character.
  return codes.splice(0, 3).map(value => Math.min(255, value) & ~7);
}

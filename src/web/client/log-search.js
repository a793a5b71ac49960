// Search in a log: while the reader types, with the number of matches, from one to the next. Matches are marked with
// highlights, which leave the rows alone.

/** @import { Lines, Match } from './types.ts' */
import { getElement } from './dom.js';

/** A single letter is everywhere: more matches than this are not counted. */
const MAX_MATCHES = 10_000;
const MAX_MARKED = 2_000;
const PAUSE_MS = 120;

/**
 * @param {HTMLElement} form
 * @param {Lines} lines
 * @param {() => void} onMove
 */
export function createSearch(form, lines, onMove) {
  const input = getElement(form, 'input', HTMLInputElement);
  const count = getElement(form, 'output', HTMLOutputElement);
  /** @type {Match[]} */
  let matches = [];
  let at = -1;
  let searchedRows = 0;
  /** @type {number | undefined} */
  let timer;

  function expression() {
    const wanted = input.value;
    return wanted === '' ? undefined : new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'gi');
  }
  /**
   * Searches from the first line, or only what was added since.
   * @param {number} from
   */
  function search(from) {
    const wanted = expression();
    if (from === 0) matches = [];
    for (let row = from; wanted && row < lines.texts.length && matches.length < MAX_MATCHES; row += 1)
      for (const match of (lines.texts[row] ?? '').matchAll(wanted))
        matches.push({ row, start: match.index, end: match.index + match[0].length });
    searchedRows = lines.texts.length;
  }
  function paint() {
    const hasQuery = input.value !== '';
    const current = matches[at];
    const all = matches.length < MAX_MATCHES ? matches.length : `${MAX_MATCHES}+`;
    count.textContent = !hasQuery ? '' : matches.length === 0 ? 'None' : `${at + 1} of ${all}`;
    form.classList.toggle('none', hasQuery && matches.length === 0);
    for (const row of document.querySelectorAll('.here')) row.classList.remove('here');
    if (current) lines.rowOf(current.row)?.classList.add('here');
    if (!globalThis.Highlight) return;
    const first = Math.max(0, at - MAX_MARKED / 2);
    // Matches in rows that do not exist yet are marked when they do.
    const made = matches.slice(first, first + MAX_MARKED).filter(({ row }) => lines.rowOf(row, false));
    CSS.highlights.set('found', new Highlight(...made.map(rangeOf)));
    CSS.highlights.set('found-here', new Highlight(...(current ? [rangeOf(current)] : [])));
  }
  /** @param {Match} match */
  function rangeOf({ row, start, end }) {
    const range = document.createRange();
    const element = lines.rowOf(row);
    if (!element) return range;
    const text = element.querySelector('summary > span') ?? element;
    range.setStart(...positionIn(text, start));
    range.setEnd(...positionIn(text, end));
    return range;
  }
  /** @param {1 | -1} step */
  function go(step) {
    const next = (at + step + matches.length) % matches.length;
    const match = matches[next];
    if (!match) return;
    at = next;
    onMove();
    lines.reveal(match.row, rangeOf(match));
    paint();
  }
  function searchAll() {
    search(0);
    at = -1;
    paint();
    go(1);
  }

  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(searchAll, PAUSE_MS);
  });
  form.addEventListener('submit', event => {
    event.preventDefault();
    go(1);
  });
  getElement(form, '[data-log-previous]', HTMLElement).addEventListener('click', () => go(-1));
  input.addEventListener('keydown', event => {
    if (event.key === 'Enter' && event.shiftKey) {
      event.preventDefault();
      go(-1);
    } else if (event.key === 'Escape') {
      input.value = '';
      searchAll();
      input.blur();
    }
  });

  return {
    repaint() {
      if (input.value !== '') paint();
    },
    /** Searches lines that were added, without moving. */
    grow() {
      if (input.value === '' || searchedRows === lines.texts.length) return;
      // The last one may have grown.
      const from = Math.max(0, searchedRows - 1);
      matches = matches.filter(match => match.row < from);
      search(from);
      paint();
    },
  };
}

/**
 * The text node, and the position in it, of a position in the text of an element.
 * @param {Element} element
 * @param {number} offset
 * @returns {[node: Node, offset: number]}
 */
function positionIn(element, offset) {
  const walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let left = offset;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!(node instanceof Text) || node.parentElement?.className === 'n') continue;
    if (left <= node.length) return [node, left];
    left -= node.length;
  }
  return [element, element.childNodes.length];
}

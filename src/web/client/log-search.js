// Finding text in a log: as one types, with the number of places, from one to the next. Marks without touching the rows.

/** A single letter is everywhere: past this nobody counts. */
const MAX_FOUND = 10_000;
const MAX_MARKED = 2_000;
const PAUSE_MS = 120;

export function createSearch(form, lines, onMove) {
  const input = form.querySelector('input');
  const count = form.querySelector('output');
  let matches = [];
  let at = -1;
  let searchedRows = 0;
  let pause;

  const expression = () => {
    const wanted = input.value;
    return wanted === '' ? undefined : new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'gi');
  };
  /** From the first line, or only what has come since. */
  function look(from) {
    const wanted = expression();
    if (from === 0) matches = [];
    for (let row = from; wanted && row < lines.texts.length && matches.length < MAX_FOUND; row += 1) {
      const text = lines.texts[row];
      for (let match = wanted.exec(text); match; match = wanted.exec(text))
        matches.push({ row, start: match.index, end: wanted.lastIndex });
    }
    searchedRows = lines.texts.length;
  }
  function paint() {
    const isAsked = input.value !== '';
    const all = matches.length < MAX_FOUND ? matches.length : `${MAX_FOUND}+`;
    count.textContent = !isAsked ? '' : matches.length === 0 ? 'None' : `${at + 1} of ${all}`;
    form.classList.toggle('none', isAsked && matches.length === 0);
    for (const row of document.querySelectorAll('.here')) row.classList.remove('here');
    if (matches[at]) lines.rowOf(matches[at].row).classList.add('here');
    if (!globalThis.Highlight) return;
    const first = Math.max(0, at - MAX_MARKED / 2);
    // Those whose rows are not made yet get their mark when they are.
    const made = matches.slice(first, first + MAX_MARKED).filter(({ row }) => lines.rowOf(row, false));
    CSS.highlights.set('found', new Highlight(...made.map(rangeOf)));
    CSS.highlights.set('found-here', new Highlight(...(matches[at] ? [rangeOf(matches[at])] : [])));
  }
  function rangeOf({ row, start, end }) {
    const range = document.createRange();
    const element = lines.rowOf(row);
    const text = element.querySelector('summary > span') ?? element;
    range.setStart(...place(text, start));
    range.setEnd(...place(text, end));
    return range;
  }
  function go(step) {
    if (matches.length === 0) return;
    at = (at + step + matches.length) % matches.length;
    onMove();
    lines.reveal(matches[at].row, rangeOf(matches[at]));
    paint();
  }
  function begin() {
    look(0);
    at = -1;
    paint();
    go(1);
  }

  input.addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(begin, PAUSE_MS);
  });
  form.addEventListener('submit', event => {
    event.preventDefault();
    go(1);
  });
  form.querySelector('[data-log-previous]').addEventListener('click', () => go(-1));
  input.addEventListener('keydown', event => {
    if (event.key === 'Enter' && event.shiftKey) {
      event.preventDefault();
      go(-1);
    } else if (event.key === 'Escape') {
      input.value = '';
      begin();
      input.blur();
    }
  });
  document.addEventListener('keydown', event => {
    const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
    if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });

  return {
    repaint() {
      if (input.value !== '') paint();
    },
    /** More lines have come: found in them too, without moving. */
    grow() {
      if (input.value === '' || searchedRows === lines.texts.length) return;
      // The last one may have gone on.
      const from = Math.max(0, searchedRows - 1);
      matches = matches.filter(match => match.row < from);
      look(from);
      paint();
    },
  };
}

/** The text node and the place in it that stand for a place in the text of an element. */
function place(element, offset) {
  const walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let left = offset;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node.parentElement.className === 'n') continue;
    if (left <= node.length) return [node, left];
    left -= node.length;
  }
  return [element, element.childNodes.length];
}

// The lines of a log on the page: rows in blocks that the browser lays out only when they are looked at, folds where a
// part of the work begins, links to lines, and links inside what was printed.

import { classOf } from './log-colours.js';

const BLOCK_ROWS = 500;
/** Lines of the service with which a part of the work begins. */
const partBegins = /^\[assay\] (?:checkout of|launch|suite|reading the|unpacking|compiling) /;
const serviceMark = '[assay] ';
const address = /https?:\/\/[^\s<>"'`\x00-\x1f]+/g;

const rowTemplate = document.createElement('div');
rowTemplate.className = 'l';
rowTemplate.append(' ');
// Copied at once, a block of rows costs a fifth of what they cost one by one.
const blockTemplate = document.createDocumentFragment();
for (let row = 0; row < BLOCK_ROWS; row += 1) blockTemplate.append(rowTemplate.cloneNode(true));
const numberTemplate = document.createElement('a');
numberTemplate.className = 'n';
// Reached by mouse or by the address: a hundred thousand stops for the tab key help nobody.
numberTemplate.tabIndex = -1;

/** The link to a line, which shows its number. */
function renderNumber(number) {
  const link = numberTemplate.cloneNode();
  link.href = `#L${number}`;
  link.textContent = number;
  return link;
}

/** `onNumber(link, line)` may add to the number of a line, which is made when someone comes near it. */
export function createLines(container, onNumber) {
  const inner = document.createElement('div');
  inner.className = 'log-inner';
  container.append(inner);
  let rows = [];
  let texts = [];
  let starts = [];
  let folds = [];
  /** Lines that are not on the page yet: those of one batch come together. */
  let pending = [];
  let block;
  let columns = 0;
  let shownColumns = 0;
  let isLastWhole = true;
  let picked = readPicked();
  let awaited = picked;

  const near = new IntersectionObserver(
    entries => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        target.classList.add('near');
        numberRows(target.childNodes);
      }
    },
    { rootMargin: '600px 0px' },
  );
  const numberRows = some => {
    for (const row of some) {
      const number = Number(row.id.slice(1));
      const link = renderNumber(number);
      onNumber(link, number - 1);
      row.prepend(link);
    }
  };

  /** Puts what is pending on the page. */
  function flush() {
    for (let from = 0; from < pending.length; ) {
      if (!block || block.childElementCount >= BLOCK_ROWS) {
        block = document.createElement('div');
        block.className = 'b';
        (folds.at(-1)?.body ?? inner).append(block);
        near.observe(block);
      }
      const part = pending.slice(from, from + BLOCK_ROWS - block.childElementCount);
      from += part.length;
      const fresh = makeRows(part.length);
      for (const [at, row] of [...fresh.childNodes].entries()) {
        dress(row, part[at]);
        rows.push(row);
      }
      if (block.classList.contains('near')) numberRows(fresh.childNodes);
      block.append(fresh);
      // Told, since the browser has not laid it out and cannot know.
      block.style.setProperty('--rows', block.childElementCount);
    }
    pending = [];
  }
  function dress(row, line) {
    const number = rows.length + 1;
    row.id = `L${number}`;
    fill(row, line);
    if (line.text.startsWith(serviceMark)) row.classList.add('service');
    if (picked && number >= picked.first && number <= picked.last) row.classList.add('picked');
  }
  /** The line stands beside its fold and heads it; what follows is in it. */
  function beginFold(line) {
    flush();
    const before = folds.at(-1);
    const row = rowTemplate.cloneNode(true);
    dress(row, line);
    const text = document.createElement('span');
    text.append(...row.childNodes);
    const head = document.createElement('summary');
    head.append(text);
    const body = document.createElement('div');
    const fold = document.createElement('details');
    fold.append(head, body);
    fold.open = true;
    row.classList.replace('l', 'part');
    row.append(renderNumber(rows.length + 1), fold);
    onNumber(row.firstChild, rows.length);
    inner.append(row);
    const part = { fold, head, body, line: rows.length, isTouched: false };
    rows.push(row);
    folds.push(part);
    block = undefined;
    head.addEventListener('click', () => {
      part.isTouched = true;
    });
    // What came before went well, or this part would not have begun.
    if (before && !before.isTouched && !before.body.querySelector('.picked')) before.fold.open = false;
  }
  function measure(text) {
    // A tab or a letter of another script may take the room of several.
    const extra = /[^\x20-\x7e]/.test(text)
      ? text.replace(/[\x20-\x7e]/g, '').length + 7 * (text.split('\t').length - 1)
      : 0;
    columns = Math.max(columns, text.length + extra);
  }
  /** The line that goes on, or a new one, which begins at the byte `start`. */
  function show(line, isWhole, start) {
    if (isLastWhole) {
      texts.push(line.text);
      starts.push(start);
      pending.push(line);
    } else {
      texts[texts.length - 1] = line.text;
      if (pending.length > 0) pending[pending.length - 1] = line;
      else replaceLast(line);
    }
    measure(line.text);
    // A line of the service may come in two pieces: whether a part begins is known when it is whole.
    if (isWhole && partBegins.test(line.text)) {
      if (pending.length === 0) rows.pop().remove();
      else pending.pop();
      beginFold(line);
    }
    isLastWhole = isWhole;
  }
  function replaceLast(line) {
    const row = rows.at(-1);
    const number = row.querySelector('.n');
    fill(row, line);
    row.classList.toggle('service', line.text.startsWith(serviceMark));
    if (number) row.prepend(number);
  }
  /** After a batch of lines. */
  function settle() {
    flush();
    if (columns > shownColumns) inner.style.setProperty('--columns', columns);
    shownColumns = columns;
    if (awaited && rows[awaited.first - 1]) {
      const { first } = awaited;
      awaited = undefined;
      reveal(first - 1);
    }
  }
  /** Brings a line into view, and where it is long the range in it. */
  function reveal(at, range) {
    const row = rows[at];
    if (!row) return;
    const fold = row.parentElement.closest('details');
    if (fold) fold.open = true;
    (row.querySelector('.n') ?? row).scrollIntoView({ block: 'center', inline: 'nearest' });
    if (!range) return;
    const [found, seen] = [range.getBoundingClientRect(), container.getBoundingClientRect()];
    if (found.right > seen.right || found.left < seen.left + seen.width / 4)
      container.scrollLeft += found.left - seen.left - seen.width / 2;
  }

  function pick(next) {
    for (const row of container.querySelectorAll('.picked')) row.classList.remove('picked');
    picked = next;
    if (!next) return;
    for (const row of rows.slice(next.first - 1, next.last)) row.classList.add('picked');
  }
  container.addEventListener('click', event => {
    const number = event.target.closest('.n');
    if (!number || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = Number(number.hash.slice(2));
    const from = event.shiftKey && picked ? picked.from : at;
    pick({ from, first: Math.min(from, at), last: Math.max(from, at) });
    history.replaceState(
      null,
      '',
      picked.first === picked.last ? `#L${at}` : `#L${picked.first}-L${picked.last}`,
    );
  });
  addEventListener('hashchange', () => {
    pick(readPicked());
    if (picked) reveal(picked.first - 1);
  });

  return {
    show,
    settle,
    reveal,
    get rows() {
      return rows;
    },
    get texts() {
      return texts;
    },
    get starts() {
      return starts;
    },
    get folds() {
      return folds;
    },
    /** A link to a line brought the reader here. */
    get isAimed() {
      return picked !== undefined;
    },
    clear() {
      inner.replaceChildren();
      near.disconnect();
      [rows, texts, starts, folds, pending] = [[], [], [], [], []];
      block = undefined;
      isLastWhole = true;
    },
  };
}

function makeRows(count) {
  if (count === BLOCK_ROWS) return blockTemplate.cloneNode(true);
  const rows = document.createDocumentFragment();
  for (let row = 0; row < count; row += 1) rows.append(rowTemplate.cloneNode(true));
  return rows;
}

function readPicked() {
  const [, first, last = first] = /^#L([1-9]\d{0,8})(?:-L([1-9]\d{0,8}))?$/.exec(location.hash) ?? [];
  if (!first) return undefined;
  const [low, high] = [Number(first), Number(last)].sort((a, b) => a - b);
  return { from: low, first: low, last: high };
}

function fill(row, { text, runs }) {
  if (!runs && !text.includes('://')) setText(row, text);
  else row.replaceChildren(...(runs ?? [{ text, style: undefined }]).flatMap(renderRun));
}

function setText(row, text) {
  const only = row.firstChild;
  if (only === row.lastChild && only?.nodeType === Node.TEXT_NODE) only.data = text;
  else row.textContent = text;
}

function renderRun({ text, style }) {
  const parts = style?.link ? [renderLink(style.link, text)] : withLinks(text);
  const name = style && classOf(style);
  if (!name) return parts;
  const span = document.createElement('span');
  span.className = name;
  span.append(...parts);
  return [span];
}

/** Text and elements: every web address in it a link. */
function withLinks(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(address)) {
    const found = trim(match[0]);
    parts.push(text.slice(from, match.index), renderLink(found, found));
    from = match.index + found.length;
  }
  parts.push(text.slice(from));
  return parts.filter(part => part !== '');
}

/** What ends a sentence or closes a bracket around an address is no part of it. */
function trim(found) {
  let kept = found.replace(/[.,;:!?]+$/, '');
  for (const [open, close] of ['()', '[]', '{}'])
    while (kept.endsWith(close) && kept.split(close).length > kept.split(open).length)
      kept = kept.slice(0, -1).replace(/[.,;:!?]+$/, '');
  return kept;
}

function renderLink(href, text) {
  const url = URL.parse(href);
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') return document.createTextNode(text);
  const link = document.createElement('a');
  link.href = url.href;
  link.textContent = text;
  link.target = '_blank';
  link.rel = 'noopener noreferrer';
  return link;
}

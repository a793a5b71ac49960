// The lines of a log on the page. They come as blocks of plain text, which is quick and which the browser's own search
// finds; rows with colours, numbers and links are made of a block when someone comes near it, and of the others when
// there is time. A block that nobody looks at is not laid out. Folds begin where a part of the work does.

import { fill } from './log-runs.js';

const BLOCK_ROWS = 500;
/** Lines of the service with which a part of the work begins. */
const partBegins = /^\[assay\] (?:checkout of|launch|suite|reading the|unpacking|compiling) /;
const serviceMark = '[assay] ';

const rowTemplate = document.createElement('div');
rowTemplate.className = 'l';
const numberTemplate = document.createElement('a');
numberTemplate.className = 'n';
// Reached by mouse or by the address: a hundred thousand stops for the tab key help nobody.
numberTemplate.tabIndex = -1;

const whenIdle =
  globalThis.requestIdleCallback ?? (work => setTimeout(() => work({ timeRemaining: () => 10 }), 50));

/** `onNumber(link, line)` may add to the number of a line; `onRows` is told when rows were made. */
export function createLines(container, { onNumber, onRows }) {
  const inner = document.createElement('div');
  inner.className = 'log-inner';
  container.append(inner);
  let texts = [];
  let starts = [];
  /** Of each line the block it is in, or the part it heads. */
  let places = [];
  let folds = [];
  let waiting = [];
  let block;
  let columns = 0;
  let shownColumns = 0;
  let isLastWhole = true;
  let picked = readPicked();
  let awaited = picked;

  const blockOf = new WeakMap();
  const near = new IntersectionObserver(
    entries => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) number(blockOf.get(target));
    },
    { rootMargin: '600px 0px' },
  );

  function renderNumber(line) {
    const link = numberTemplate.cloneNode();
    link.href = `#L${line + 1}`;
    link.textContent = line + 1;
    onNumber(link, line);
    return link;
  }
  function renderRow(line, content) {
    const row = rowTemplate.cloneNode();
    row.id = `L${line + 1}`;
    fill(row, content);
    if (content.text.startsWith(serviceMark)) row.classList.add('service');
    if (picked && line + 1 >= picked.first && line < picked.last) row.classList.add('picked');
    return row;
  }
  /** Rows in place of the text of a block. */
  function make(one) {
    if (one.isMade) return;
    one.isMade = true;
    one.shown = one.lines.length;
    one.rows = one.lines.map((content, at) => renderRow(one.first + at, content));
    one.element.replaceChildren(...one.rows);
    one.element.classList.add('made');
  }
  /** Numbers before the rows of a block that someone comes near. */
  function number(one) {
    near.unobserve(one.element);
    make(one);
    one.isNumbered = true;
    for (const [at, row] of one.rows.entries()) row.prepend(renderNumber(one.first + at));
    onRows();
  }
  const makeOthers = idle => {
    // Not the last one: it may be growing, and goes on faster as text.
    while (waiting.length > 1 && idle.timeRemaining() > 3) make(waiting.shift());
    if (waiting.length > 1) whenIdle(makeOthers);
    else onRows();
  };

  function nextBlock() {
    const element = document.createElement('div');
    element.className = 'b';
    (folds.at(-1)?.body ?? inner).append(element);
    block = { element, first: texts.length, lines: [], rows: [], shown: 0, isMade: false, isNumbered: false };
    blockOf.set(element, block);
    near.observe(element);
    waiting.push(block);
    if (waiting.length === 2) whenIdle(makeOthers);
  }
  /** What of the block is not on the page yet. */
  function flush() {
    if (!block || block.shown === block.lines.length) return;
    const { element, lines, first } = block;
    if (block.isMade)
      for (let at = block.shown; at < lines.length; at += 1) {
        const row = renderRow(first + at, lines[at]);
        if (block.isNumbered) row.prepend(renderNumber(first + at));
        block.rows.push(row);
        element.append(row);
      }
    else element.textContent = lines.map(({ text }) => text || ' ').join('\n');
    block.shown = lines.length;
    // Told, since the browser has not laid it out and cannot know.
    element.style.setProperty('--rows', lines.length);
  }
  /** The line stands beside its fold and heads it; what follows is in it. */
  function beginFold(content) {
    flush();
    block = undefined;
    const before = folds.at(-1);
    const line = texts.length - 1;
    // Without links: the whole of it opens and closes the fold.
    const row = renderRow(line, { text: content.text });
    row.classList.replace('l', 'part');
    const text = document.createElement('span');
    text.textContent = content.text;
    const head = document.createElement('summary');
    head.append(text);
    const body = document.createElement('div');
    const fold = document.createElement('details');
    fold.append(head, body);
    fold.open = true;
    row.replaceChildren(renderNumber(line), fold);
    inner.append(row);
    const part = { fold, head, body, row, line, isTouched: false };
    places[line] = part;
    folds.push(part);
    head.addEventListener('click', () => {
      part.isTouched = true;
    });
    // What came before went well, or this part would not have begun.
    const isAimedAt = picked && before && picked.first > before.line && picked.first <= line;
    if (before && !before.isTouched && !isAimedAt) before.fold.open = false;
  }
  function measure(text) {
    // A tab or a letter of another script may take the room of several.
    const extra = /[^\x20-\x7e]/.test(text)
      ? text.replace(/[\x20-\x7e]/g, '').length + 7 * (text.split('\t').length - 1)
      : 0;
    columns = Math.max(columns, text.length + extra);
  }

  /** The line that goes on, or a new one, which begins at the byte `start`. */
  function show(content, isWhole, start) {
    if (!isLastWhole) takeBack();
    measure(content.text);
    // A line of the service may come in two pieces: whether a part begins is known when it is whole.
    const isPart = isWhole && partBegins.test(content.text);
    if (!isPart && (!block || block.lines.length === BLOCK_ROWS)) {
      flush();
      nextBlock();
    }
    texts.push(content.text);
    starts.push(start);
    if (isPart) beginFold(content);
    else {
      places.push(block);
      block.lines.push(content);
    }
    isLastWhole = isWhole;
  }
  /** The last line, which goes on, makes room for what it has become. */
  function takeBack() {
    texts.pop();
    starts.pop();
    places.pop();
    block.lines.pop();
    if (block.shown <= block.lines.length) return;
    block.shown = block.lines.length;
    block.rows.pop()?.remove();
  }
  /** After a batch of lines. */
  function settle() {
    flush();
    if (columns > shownColumns) inner.style.setProperty('--columns', columns);
    shownColumns = columns;
    if (awaited && texts.length >= awaited.first) {
      const { first } = awaited;
      awaited = undefined;
      reveal(first - 1);
    }
  }
  /** The row of a line; undefined where it is not made, unless it must be. */
  function rowOf(line, mustBe = true) {
    const place = places[line];
    if (!place || place.row) return place?.row;
    if (mustBe) make(place);
    return place.rows[line - place.first];
  }
  /** Brings a line into view, and where it is long the range in it. */
  function reveal(line, range) {
    const row = rowOf(line);
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
    for (let line = next.first - 1; line < Math.min(next.last, texts.length); line += 1)
      rowOf(line, false)?.classList.add('picked');
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
    rowOf,
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
    /** Nothing more will come. */
    end() {
      if (block) make(block);
    },
    clear() {
      inner.replaceChildren();
      near.disconnect();
      [texts, starts, places, folds, waiting] = [[], [], [], [], []];
      block = undefined;
      isLastWhole = true;
    },
  };
}

function readPicked() {
  const [, first, last = first] = /^#L([1-9]\d{0,8})(?:-L([1-9]\d{0,8}))?$/.exec(location.hash) ?? [];
  if (!first) return undefined;
  const [low, high] = [Number(first), Number(last)].sort((a, b) => a - b);
  return { from: low, first: low, last: high };
}

// The lines of a log on the page. They arrive as blocks of plain text, which is fast and which the browser's own search
// finds. A block gets rows with colours, numbers and links when the reader comes near it, or when the browser is idle.
// Blocks out of sight are not laid out. A fold begins where a phase of the job does.

/** @import { Block, Fold, Line, Selected } from './types.ts' */
import { fill } from './log-runs.js';

const BLOCK_ROWS = 500;
/** Lines of the service with which a phase begins. */
const phaseBegins = /^\[assay\] (?:checkout of|launch|suite|reading the|unpacking|compiling) /;
const serviceMark = '[assay] ';

const rowTemplate = document.createElement('div');
rowTemplate.className = 'l';
const numberTemplate = document.createElement('a');
numberTemplate.className = 'n';
// Reached by mouse or by the address: a hundred thousand stops for the tab key help nobody.
numberTemplate.tabIndex = -1;

/** @type {(work: (idle: { timeRemaining(): number }) => void) => void} */
const whenIdle =
  globalThis.requestIdleCallback ?? (work => setTimeout(() => work({ timeRemaining: () => 10 }), 50));

/**
 * `onNumber` may add to the number of a line; `onRows` is called when rows were made.
 * @param {HTMLElement} container
 * @param {{ onNumber: (link: HTMLElement, line: number) => void, onRows: () => void }} handlers
 */
export function createLines(container, { onNumber, onRows }) {
  const inner = document.createElement('div');
  inner.className = 'log-inner';
  container.append(inner);
  /** @type {string[]} */
  let texts = [];
  /** @type {number[]} */
  let starts = [];
  /**
   * For each line, the block it is in or the fold it heads.
   * @type {(Block | Fold)[]}
   */
  let places = [];
  /** @type {Fold[]} */
  let folds = [];
  /** @type {Block[]} */
  let waiting = [];
  /** @type {Block | undefined} */
  let block;
  let columns = 0;
  let shownColumns = 0;
  let isLastWhole = true;
  let selected = readSelected();
  let awaited = selected;

  /** @type {WeakMap<Element, Block>} */
  const blockOf = new WeakMap();
  const near = new IntersectionObserver(
    entries => {
      for (const { isIntersecting, target } of entries) {
        const found = blockOf.get(target);
        if (isIntersecting && found) addNumbers(found);
      }
    },
    { rootMargin: '600px 0px' },
  );

  /** @param {number} line */
  function renderNumber(line) {
    const link = /** @type {HTMLAnchorElement} */ (numberTemplate.cloneNode());
    link.href = `#L${line + 1}`;
    link.textContent = String(line + 1);
    onNumber(link, line);
    return link;
  }
  /**
   * @param {number} line
   * @param {Line} content
   */
  function renderRow(line, content) {
    const row = /** @type {HTMLDivElement} */ (rowTemplate.cloneNode());
    row.id = `L${line + 1}`;
    fill(row, content);
    if (content.text.startsWith(serviceMark)) row.classList.add('service');
    if (selected && line + 1 >= selected.first && line < selected.last) row.classList.add('picked');
    return row;
  }
  /**
   * Replaces the text of a block by rows.
   * @param {Block} one
   */
  function makeRows(one) {
    if (one.isMade) return;
    one.isMade = true;
    one.shown = one.lines.length;
    one.rows = one.lines.map((content, at) => renderRow(one.first + at, content));
    one.element.replaceChildren(...one.rows);
    one.element.classList.add('made');
  }
  /**
   * Numbers the rows of a block that the reader comes near.
   * @param {Block} one
   */
  function addNumbers(one) {
    near.unobserve(one.element);
    makeRows(one);
    one.isNumbered = true;
    for (const [at, row] of one.rows.entries()) row.prepend(renderNumber(one.first + at));
    onRows();
  }
  /** @param {{ timeRemaining(): number }} idle */
  function makeWaiting(idle) {
    // Not the last one: it may be growing, and text grows faster than rows.
    while (waiting.length > 1 && idle.timeRemaining() > 3) {
      const next = waiting.shift();
      if (next) makeRows(next);
    }
    if (waiting.length > 1) whenIdle(makeWaiting);
    else onRows();
  }

  function addBlock() {
    const element = document.createElement('div');
    element.className = 'b';
    (folds.at(-1)?.body ?? inner).append(element);
    /** @type {Block} */
    const added = {
      element,
      first: texts.length,
      lines: [],
      rows: [],
      shown: 0,
      isMade: false,
      isNumbered: false,
    };
    blockOf.set(element, added);
    near.observe(element);
    waiting.push(added);
    if (waiting.length === 2) whenIdle(makeWaiting);
    return added;
  }
  /** Puts what is new in the last block on the page. */
  function flush() {
    if (!block || block.shown === block.lines.length) return;
    const { element, lines, rows, first, shown } = block;
    if (block.isMade)
      for (const [at, content] of lines.slice(shown).entries()) {
        const row = renderRow(first + shown + at, content);
        if (block.isNumbered) row.prepend(renderNumber(first + shown + at));
        rows.push(row);
        element.append(row);
      }
    else element.textContent = lines.map(({ text }) => text || ' ').join('\n');
    block.shown = lines.length;
    // The browser has not laid it out and cannot know its height.
    element.style.setProperty('--rows', String(lines.length));
  }
  /**
   * The line heads a fold; what follows is in it.
   * @param {string} title
   */
  function beginFold(title) {
    flush();
    block = undefined;
    const before = folds.at(-1);
    const line = texts.length - 1;
    // Without links: all of it opens and closes the fold.
    const row = renderRow(line, { text: title });
    row.classList.replace('l', 'part');
    const text = document.createElement('span');
    text.textContent = title;
    const head = document.createElement('summary');
    head.append(text);
    const body = document.createElement('div');
    const details = document.createElement('details');
    details.append(head, body);
    details.open = true;
    row.replaceChildren(renderNumber(line), details);
    inner.append(row);
    /** @type {Fold} */
    const fold = { details, head, body, row, line, isTouched: false };
    places[line] = fold;
    folds.push(fold);
    head.addEventListener('click', () => {
      fold.isTouched = true;
    });
    // The phase before went well, or this one would not have begun.
    const isTarget = selected && before && selected.first > before.line && selected.first <= line;
    if (before && !before.isTouched && !isTarget) before.details.open = false;
  }
  /** @param {string} text */
  function measure(text) {
    // A tab or a character of another script may take several columns.
    const extra = /[^\x20-\x7e]/.test(text)
      ? text.replace(/[\x20-\x7e]/g, '').length + 7 * (text.split('\t').length - 1)
      : 0;
    columns = Math.max(columns, text.length + extra);
  }

  /**
   * Adds a line, or replaces the last one where that has not ended.
   * @param {Line} content
   * @param {boolean} isWhole
   * @param {number} start The byte of the log where the line begins.
   */
  function show(content, isWhole, start) {
    if (!isLastWhole) removeLast();
    isLastWhole = isWhole;
    measure(content.text);
    // A line of the service may come in two pieces: whether a phase begins is known when it is whole.
    const isHead = isWhole && phaseBegins.test(content.text);
    if (!isHead && (!block || block.lines.length === BLOCK_ROWS)) {
      flush();
      block = addBlock();
    }
    texts.push(content.text);
    starts.push(start);
    if (isHead) beginFold(content.text);
    else if (block) {
      places.push(block);
      block.lines.push(content);
    }
  }
  function removeLast() {
    texts.pop();
    starts.pop();
    places.pop();
    if (!block) return;
    block.lines.pop();
    if (block.shown <= block.lines.length) return;
    block.shown = block.lines.length;
    block.rows.pop()?.remove();
  }
  /** Called after a batch of lines. */
  function settle() {
    flush();
    if (columns > shownColumns) inner.style.setProperty('--columns', String(columns));
    shownColumns = columns;
    if (awaited && texts.length >= awaited.first) {
      const { first } = awaited;
      awaited = undefined;
      reveal(first - 1);
    }
  }
  /**
   * The row of a line; undefined where there is no such line, or no row yet and `isForced` is false.
   * @param {number} line
   */
  function rowOf(line, isForced = true) {
    const place = places[line];
    if (!place || 'row' in place) return place?.row;
    if (isForced) makeRows(place);
    return place.rows[line - place.first];
  }
  /**
   * Brings a line into view, and where it is long the range in it.
   * @param {number} line
   * @param {Range} [range]
   */
  function reveal(line, range) {
    const row = rowOf(line);
    if (!row) return;
    const details = row.parentElement?.closest('details');
    if (details) details.open = true;
    (row.querySelector('.n') ?? row).scrollIntoView({ block: 'center', inline: 'nearest' });
    if (!range) return;
    const [found, seen] = [range.getBoundingClientRect(), container.getBoundingClientRect()];
    if (found.right > seen.right || found.left < seen.left + seen.width / 4)
      container.scrollLeft += found.left - seen.left - seen.width / 2;
  }

  /** @param {Selected | undefined} next */
  function select(next) {
    for (const row of container.querySelectorAll('.picked')) row.classList.remove('picked');
    selected = next;
    if (!next) return;
    for (let line = next.first - 1; line < Math.min(next.last, texts.length); line += 1)
      rowOf(line, false)?.classList.add('picked');
  }
  container.addEventListener('click', event => {
    const number = event.target instanceof Element && event.target.closest('.n');
    if (!(number instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = Number(number.hash.slice(2));
    const from = event.shiftKey && selected ? selected.from : at;
    const [first, last] = [Math.min(from, at), Math.max(from, at)];
    select({ from, first, last });
    history.replaceState(null, '', first === last ? `#L${at}` : `#L${first}-L${last}`);
  });
  addEventListener('hashchange', () => {
    select(readSelected());
    if (selected) reveal(selected.first - 1);
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
    /** Whether a link to a line brought the reader here. */
    get hasTarget() {
      return selected !== undefined;
    },
    /** Nothing more will come. */
    end() {
      if (block) makeRows(block);
    },
    clear() {
      inner.replaceChildren();
      near.disconnect();
      texts = [];
      starts = [];
      places = [];
      folds = [];
      waiting = [];
      block = undefined;
      isLastWhole = true;
    },
  };
}

/** @returns {Selected | undefined} */
function readSelected() {
  const [, first, last = first] = /^#L([1-9]\d{0,8})(?:-L([1-9]\d{0,8}))?$/.exec(location.hash) ?? [];
  if (!first) return undefined;
  const [one, other] = [Number(first), Number(last)];
  return { from: Math.min(one, other), first: Math.min(one, other), last: Math.max(one, other) };
}

// The lines of a log on the page. They arrive as blocks of plain text, which is fast and which the browser's own search
// finds. A block gets rows with colours, numbers and links when the reader comes near it, or when the browser is idle.
// Blocks out of sight are not laid out. Phases of the job, and groups that commands print (log-groups.js), are folds.

/** @import { Block, Fold, GroupBegin, GroupMark, Line, Selected } from './types.ts' */
import { isDiffSecond, mayBeDiff, readMarks } from './log-groups.js';
import { fill } from './log-runs.js';

const BLOCK_ROWS = 500;
/** Later groups are shown as lines: a log can have more than a browser can show as elements. */
const MAX_FOLDS = 2_000;
/** A group in a deeper one ends that one, as if it had been printed: it may never end. */
const MAX_DEPTH = 8;
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
  /**
   * Those that have not ended, the innermost last.
   * @type {Fold[]}
   */
  let openFolds = [];
  /**
   * The last line, where it may begin a group or a diff.
   * @type {{ content: Line, start: number } | undefined}
   */
  let undecided;
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

  /** Where the next line belongs. */
  const current = () => openFolds.at(-1)?.body ?? inner;

  function addBlock() {
    const element = document.createElement('div');
    element.className = 'b';
    current().append(element);
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
   * The last line heads a fold; what follows is in it.
   * @param {GroupBegin} mark
   */
  function beginFold({ kind, name, title, opening, isDim = false }) {
    flush();
    block = undefined;
    const line = texts.length - 1;
    // Without links: all of it opens and closes the fold.
    const row = renderRow(line, { text: title });
    row.className = row.className.replace(/^l/, `part ${kind}`);
    row.classList.toggle('dim', isDim);
    const text = document.createElement('span');
    text.textContent = title;
    const head = document.createElement('summary');
    head.append(text);
    const body = document.createElement('div');
    const details = document.createElement('details');
    details.append(head, body);
    details.open = opening !== 'never';
    row.replaceChildren(renderNumber(line), details);
    current().append(row);
    /** @type {Fold} */
    const fold = {
      details,
      head,
      body,
      row,
      kind,
      name,
      opening,
      line,
      endLine: undefined,
      isTouched: false,
    };
    places[line] = fold;
    folds.push(fold);
    openFolds.push(fold);
    head.addEventListener('click', () => {
      fold.isTouched = true;
    });
  }
  /**
   * Ends a fold and those in it before `line`. They went well, or nothing would follow: they are closed.
   * @param {Fold} fold
   * @param {number} line
   */
  function endFold(fold, line) {
    flush();
    block = undefined;
    for (const one of openFolds.splice(openFolds.indexOf(fold))) {
      one.endLine = line;
      const isTarget = selected && selected.first > one.line && selected.first <= line;
      if (one.opening === 'current' && !one.isTouched && !isTarget) one.details.open = false;
    }
  }
  /**
   * Begins and ends folds; false if the line is to be shown as one.
   * @param {GroupMark[]} marks
   * @param {Line} content
   * @param {number} start
   */
  function applyMarks(marks, content, start) {
    /** @type {Fold | undefined} */
    let found;
    for (const mark of marks) {
      if (mark.does === 'begin') continue;
      found = openFolds.findLast(({ kind, name }) => kind === mark.kind && name === mark.name) ?? found;
      if (!found) continue;
      if (mark.does === 'end' && openFolds.includes(found)) endFold(found, texts.length);
      if (mark.does === 'open') {
        found.opening = 'always';
        found.details.open = true;
      }
    }
    const last = marks.at(-1);
    if (last?.does === 'begin' && folds.length < MAX_FOLDS) {
      const innermost = openFolds.at(-1);
      const [outermost] = openFolds;
      if (last.kind === 'phase') {
        if (outermost) endFold(outermost, texts.length);
      } else if (innermost && innermost.kind !== 'phase')
        if ((last.kind === 'buildkite' && innermost.kind === 'buildkite') || openFolds.length > MAX_DEPTH)
          endFold(innermost, texts.length);
      texts.push(last.title);
      starts.push(start);
      beginFold(last);
      return true;
    }
    // What only ends a group is not shown. Its number belongs to the head of the group.
    if (!found || last?.does === 'begin' || (content.sections && content.text !== '')) return false;
    texts.push('');
    starts.push(start);
    places.push(found);
    return true;
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
    const isOfDiff = undecided && isDiffSecond(content.text, isWhole);
    if (undecided && isOfDiff !== undefined) {
      const before = undecided;
      undecided = undefined;
      if (!isOfDiff) {
        removeLast();
        const marks = readMarks(before.content);
        if (!marks || !applyMarks(marks, before.content, before.start)) addLine(before.content, before.start);
      }
    }
    // A line may come in two pieces: whether a group begins is known when it is whole.
    const marks = isWhole && !isOfDiff ? readMarks(content) : undefined;
    if (marks && folds.length < MAX_FOLDS && mayBeDiff(content.text)) undecided = { content, start };
    else if (marks && applyMarks(marks, content, start)) return;
    addLine(content, start);
  }
  /**
   * @param {Line} content
   * @param {number} start
   */
  function addLine(content, start) {
    if (!block || block.lines.length === BLOCK_ROWS) {
      flush();
      block = addBlock();
    }
    texts.push(content.text);
    starts.push(start);
    places.push(block);
    block.lines.push(content);
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
  /** @param {HTMLElement} row */
  function openAround(row) {
    for (let details = row.parentElement?.closest('details'); details; ) {
      details.open = true;
      details = details.parentElement?.closest('details');
    }
  }
  /**
   * The fold in which a job has failed: the last one, unless something was printed after it.
   */
  function failedFold() {
    const last = folds.at(-1);
    if (last?.endLine === undefined) return last;
    const after = texts.slice(last.endLine);
    return after.every(text => text === '' || text.startsWith(serviceMark)) ? last : openFolds.at(-1);
  }
  /**
   * Brings a line into view, and where it is long the range in it.
   * @param {number} line
   * @param {Range} [range]
   */
  function reveal(line, range) {
    const row = rowOf(line);
    if (!row) return;
    openAround(row);
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
    /** Opens the last fold of a job that has failed, and returns the line where what failed began. */
    markFailure() {
      const last = folds.at(-1);
      if (last) {
        last.details.open = true;
        openAround(last.row);
      }
      const failed = failedFold();
      /** @type {Element | null | undefined} */
      let row = failed?.row;
      for (; row; row = row.parentElement?.closest('.part'))
        row.querySelector('summary')?.classList.add('bad');
      return failed?.line;
    },
    /** @param {boolean} isOpen */
    toggleAll(isOpen) {
      for (const fold of folds) {
        fold.isTouched = true;
        fold.details.open = isOpen;
      }
    },
    clear() {
      inner.replaceChildren();
      near.disconnect();
      texts = [];
      starts = [];
      places = [];
      folds = [];
      openFolds = [];
      undecided = undefined;
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

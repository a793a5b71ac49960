// The live log of a build or a compile: loaded from its beginning, growing while the job prints, followed at the bottom.
// It also keeps the head of the page current. log-lines.js makes rows, log-terminal.js reads colours.

/** @import { LogOwner, LogState } from './types.ts' */
import { getElement, listElements, showState, sleep } from './dom.js';
import { createFollow } from './log-follow.js';
import { createLines } from './log-lines.js';
import { createSearch } from './log-search.js';
import { createTerminal } from './log-terminal.js';
import { createTimes, formatDuration } from './log-times.js';
import { RETRY_MS, reconnectLater } from './stream.js';

/** The first screen is shown at once; later batches may take longer, but not so long that the page feels slow. */
const FIRST_BATCH_MS = 12;
const BATCH_MS = 40;
/** The position in the queue changes without an event of the build. */
const QUEUE_REFRESH_MS = 5_000;
/** @type {readonly (LogState | undefined)[]} */
const badStates = ['failed', 'errored', 'timed_out', 'compile_failed'];
/** @type {readonly (LogState | undefined)[]} */
const queuedStates = ['enqueued', 'enqueued_for_compile'];

const view = getElement(document, '[data-log]', HTMLElement);
const container = getElement(view, '[data-log-lines]', HTMLElement);
const note = getElement(view, '[data-log-note]', HTMLElement);
const status = getElement(view, '[data-log-status]', HTMLElement);
const followButton = getElement(view, '[data-log-follow]', HTMLElement);
const endButton = getElement(view, '[data-log-end]', HTMLElement);
const failureButton = getElement(view, '[data-log-failure]', HTMLElement);
const foldsButton = getElement(view, '[data-log-folds]', HTMLElement);
const fullButton = getElement(view, '[data-log-full]', HTMLElement);
const { log: base = '', again } = view.dataset;
const head = `${location.pathname}?part=head`;
const encoder = new TextEncoder();

const lines = createLines(container, {
  onNumber: (link, line) => times.timeNumber(link, line),
  onRows: () => search.repaint(),
});
const times = createTimes(base, container, lines);
const search = createSearch(getElement(view, '.log-search', HTMLElement), lines, () => follow.set(false));
for (const control of listElements(view, '.log-bar [hidden]')) control.hidden = false;

let isGrowing = view.dataset.growing === 'yes';
/** A page whose job can run again shows its progress at the top: it is not scrolled away until someone asks to follow. */
let isFollowing = false;
const isFollowingAtFirst = isGrowing && !again && !lines.hasTarget;
const follow = createFollow(container, followButton, { isGrowing: () => isGrowing, onChange: noteFollowing });
/** How many lines the reader has seen, or chose not to follow; undefined while everything before is being loaded. */
let seenLines = /** @type {number | undefined} */ (undefined);
/** The line where what failed began. */
let failureLine = /** @type {number | undefined} */ (undefined);
let shownState = /** @type {LogState | undefined} */ (view.dataset.state);
let shownNode = view.dataset.node;
/** Bytes received, and the byte where the line that is being read begins. */
let received = 0;
let lineStart = 0;
/** @type {{ offset: number, text: string }[]} */
let queue = [];
let isWorking = false;
/** @type {LogOwner | undefined} */
let ended;
let terminal = createTerminal(showLine);
/** The byte of the log at a position of the text that is being read. */
let byteAt = (/** @type {number} */ position) => position;

function startOver() {
  lines.clear();
  queue = [];
  received = 0;
  lineStart = 0;
  terminal = createTerminal(showLine);
  times.startOver();
}

/** Reads what was received in batches: the page stays usable while a long log arrives. */
async function work() {
  if (isWorking) return;
  isWorking = true;
  while (queue.length > 0) {
    const until = performance.now() + (lines.texts.length === 0 ? FIRST_BATCH_MS : BATCH_MS);
    for (let next = queue.shift(); next; next = performance.now() < until ? queue.shift() : undefined)
      read(next);
    showNote('');
    lines.settle();
    follow.stick();
    showNewLines();
    await sleep(0);
  }
  isWorking = false;
  if (isGrowing) seenLines ??= lines.texts.length;
  foldsButton.hidden = lines.folds.length === 0;
  search.grow();
  times.grow(received);
  if (ended) finish(ended);
}

/** @param {{ offset: number, text: string }} chunk */
function read({ text, offset }) {
  const isAscii = !/[^\x00-\x7f]/.test(text);
  byteAt = position => offset + (isAscii ? position : encoder.encode(text.slice(0, position)).length);
  terminal.write(text);
}

/** @type {import('./types.ts').ShowLine} */
function showLine(line, isWhole, end) {
  lines.show(line, isWhole, lineStart);
  if (isWhole) lineStart = byteAt(end);
}

/** @param {string} [words] */
function showNote(words = '') {
  note.textContent = words;
  note.hidden = words === '';
  container.hidden = lines.texts.length === 0;
}

function connect() {
  const source = new EventSource(`${base}/stream?from=${received}`);
  source.addEventListener('log', event => {
    const { offset, text } = JSON.parse(event.data);
    // Another run has started the log from scratch.
    if (offset !== received) startOver();
    received = Number(event.lastEventId);
    queue.push({ offset, text });
    work();
  });
  source.addEventListener('state', event => noteState(JSON.parse(event.data)));
  source.addEventListener('end', event => {
    source.close();
    /** @type {LogOwner} */
    const owner = JSON.parse(event.data);
    ended = owner;
    noteState(owner);
    work();
  });
  source.addEventListener('open', () => {
    if (!ended) showNote(lines.texts.length === 0 ? view.dataset.empty : '');
  });
  source.addEventListener('error', () => {
    if (source.readyState !== EventSource.CLOSED) showTrouble();
    else reconnectLater(connect, head, { onTrouble: showTrouble, onEnd: showEnd });
  });
}
const showTrouble = () => showNote('The connection was lost. Reconnecting…');
const showEnd = () => showNote('You have signed out, or may no longer see this log. Reload the page.');

/** @param {LogOwner} owner */
function noteState(owner) {
  const state = owner.build_state ?? owner.marketplace_state;
  if (state === shownState && owner.node === shownNode) return;
  shownState = state;
  shownNode = owner.node;
  refresh();
}

/**
 * Everything was received and is shown.
 * @param {LogOwner} owner
 */
function finish(owner) {
  isGrowing = false;
  lines.end();
  followButton.hidden = true;
  if (lines.texts.length === 0) showNote(view.dataset.empty);
  else if (badStates.includes(shownState)) failureLine = lines.markFailure();
  failureButton.hidden = failureLine === undefined;
  follow.stick();
  times.finish(Date.parse(owner.finished_at ?? ''));
  view.dataset.whole = 'yes';
  // Opened again, because it reports at once what has changed since.
  if (again) watchChanges(again);
}

/** @type {EventSource | undefined} */
let changes;

/**
 * Keeps the head current while the job waits and runs. Afterwards anyone may start it again: the page then shows that run.
 * @param {string} address
 */
function watchChanges(address) {
  changes?.close();
  const source = new EventSource(address);
  changes = source;
  /** @type {{ is_unfinished: boolean, run: number } | undefined} */
  let last;
  source.addEventListener('changed', event => {
    const now = JSON.parse(event.data);
    if (isGrowing) refresh();
    else if (now.is_unfinished || (last && now.run !== last.run)) showNextRun();
    else if (last) refresh();
    last = now;
  });
  source.addEventListener('error', () => {
    if (source.readyState === EventSource.CLOSED) reconnectLater(() => watchChanges(address), head);
  });
}

function showNextRun() {
  isGrowing = true;
  ended = undefined;
  view.dataset.empty = view.dataset.againEmpty ?? '';
  delete view.dataset.whole;
  followButton.hidden = false;
  failureButton.hidden = true;
  seenLines = undefined;
  follow.set(false);
  startOver();
  connect();
}

let lastHead = '';
let announced = document.querySelector('[data-announce]')?.textContent ?? '';
/** Without the tokens of forms, which differ in each response. @param {Element} part */
function contentOf(part) {
  return part.outerHTML.replaceAll(/(name="csrf" value=")[^"]*/g, '$1');
}
/** The parts of the page as the server sent them, by their ids. */
const shownParts = new Map(listElements(document, '[data-live]').map(part => [part.id, contentOf(part)]));
let isRefreshing = false;
let isStale = false;

/**
 * Loads the head of the page again. One request at a time, so that an older answer never replaces a newer one. What
 * changes meanwhile, or could not be loaded, is requested again.
 */
async function refresh() {
  isStale = true;
  if (isRefreshing) return;
  isRefreshing = true;
  while (isStale) {
    // A question that is open, or a form that is being sent, must not be replaced.
    while (document.querySelector('dialog[open], [data-busy]')) await sleep(1_000);
    isStale = false;
    const response = await fetch(head).catch(() => undefined);
    const text = await response?.text().catch(() => undefined);
    // Signed out, or no longer there: another request would not help.
    if (response?.redirected || response?.status === 404) break;
    if (response?.ok && text !== undefined) showHead(text);
    else {
      isStale = true;
      await sleep(RETRY_MS);
    }
  }
  isRefreshing = false;
}

/** @param {string} text */
function showHead(text) {
  if (text === lastHead) return;
  lastHead = text;
  const fresh = new DOMParser().parseFromString(text, 'text/html');
  for (const part of listElements(document, '[data-live]')) {
    const next = fresh.getElementById(part.id);
    // A part that is the same keeps what someone entered there, such as a chosen file.
    if (!next || contentOf(next) === shownParts.get(part.id)) continue;
    shownParts.set(part.id, contentOf(next));
    const focused = part.contains(document.activeElement) ? document.activeElement?.textContent : undefined;
    for (const open of part.querySelectorAll('details[open][id]'))
      next.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute('open', '');
    part.replaceWith(next);
    if (focused)
      listElements(next, 'a, button')
        .find(one => one.textContent === focused)
        ?.focus();
  }
  const step = document.querySelector('[data-announce]')?.textContent ?? '';
  if (document.title !== fresh.title) status.textContent = fresh.title;
  else if (step !== '' && step !== announced) status.textContent = step;
  announced = step;
  showState(fresh);
  document.dispatchEvent(new Event('assay:shown'));
}

/** @param {HTMLElement} button */
const isPressed = button => button.getAttribute('aria-pressed') === 'true';
/** @param {boolean} isOn */
function noteFollowing(isOn) {
  isFollowing = isOn;
  if (seenLines !== undefined) seenLines = lines.texts.length;
  showNewLines();
}
/** The button to the end of the log counts what was printed since the reader stopped following. */
function showNewLines() {
  const count = isFollowing ? 0 : lines.texts.length - (seenLines ?? lines.texts.length);
  const label = count > 0 ? `${count} new line${count === 1 ? '' : 's'}` : 'End';
  // An unchanged label costs no layout while a long log arrives.
  if (endButton.textContent !== label) endButton.textContent = label;
  endButton.classList.toggle('fresh', count > 0);
}
endButton.addEventListener('click', () => {
  follow.set(isGrowing);
  follow.goToEnd();
});
failureButton.addEventListener('click', () => {
  follow.set(false);
  if (failureLine !== undefined) lines.reveal(failureLine);
});
foldsButton.addEventListener('click', () => {
  const isOpening = !lines.folds.some(({ details }) => details.open);
  lines.toggleAll(isOpening);
  foldsButton.textContent = isOpening ? 'Collapse all' : 'Expand all';
});

/**
 * Shows nothing but the log, on the whole screen where the browser can do that.
 * @param {boolean} isOn
 */
function setFull(isOn) {
  const root = document.documentElement;
  root.classList.toggle('log-full', isOn);
  fullButton.setAttribute('aria-pressed', String(isOn));
  if (isOn) root.requestFullscreen?.().catch(() => {});
  else if (document.fullscreenElement) document.exitFullscreen();
  follow.stick();
}
fullButton.addEventListener('click', () => setFull(!isPressed(fullButton)));
document.addEventListener('fullscreenchange', () => {
  if (!document.fullscreenElement) setFull(false);
});
addEventListener('keydown', ({ key, target }) => {
  if (key !== 'Escape' || !isPressed(fullButton) || document.querySelector('dialog[open]')) return;
  if (target instanceof HTMLInputElement) return;
  setFull(false);
  fullButton.focus();
});
rememberToggle('[data-log-wrap]', 'assay-log-wrap', isOn => container.classList.toggle('wrap', isOn));
rememberToggle('[data-log-times]', 'assay-log-times', isOn => times.toggle(isOn));

/**
 * A button that is on or off, and stays so from log to log.
 * @param {string} selector
 * @param {string} key
 * @param {(isOn: boolean) => void} apply
 */
function rememberToggle(selector, key, apply) {
  const button = getElement(view, selector, HTMLElement);
  const set = (/** @type {boolean} */ isOn) => {
    button.setAttribute('aria-pressed', String(isOn));
    apply(isOn);
  };
  button.addEventListener('click', () => {
    set(!isPressed(button));
    localStorage.setItem(key, isPressed(button) ? 'on' : '');
  });
  if (localStorage.getItem(key)) set(true);
}

/**
 * When a running duration was first seen, by the browser's clock: the server's may differ.
 * @type {WeakMap<Element, number>}
 */
const firstSeenAt = new WeakMap();
/** @param {Element} running */
function msSinceSeen(running) {
  const seenAt = firstSeenAt.get(running) ?? performance.now();
  firstSeenAt.set(running, seenAt);
  return performance.now() - seenAt;
}
setInterval(() => {
  for (const running of listElements(document, '[data-running-ms]'))
    running.textContent = formatDuration(Number(running.dataset.runningMs) + msSinceSeen(running));
  for (const bar of document.querySelectorAll('progress')) {
    const { runningUntil } = bar.dataset;
    if (runningUntil === undefined) continue;
    const from = Number(bar.dataset.runningFrom ?? bar.value);
    bar.dataset.runningFrom = String(from);
    bar.value = Math.min(from + msSinceSeen(bar), Number(runningUntil));
  }
}, 1_000);
setInterval(() => {
  if (queuedStates.includes(shownState) && !document.hidden) refresh();
}, QUEUE_REFRESH_MS);

document.addEventListener('assay:changed', refresh);
follow.set(isFollowingAtFirst);
if (!isGrowing) followButton.hidden = true;
foldsButton.hidden = true;
failureButton.hidden = true;
if (again && isGrowing) watchChanges(again);
connect();

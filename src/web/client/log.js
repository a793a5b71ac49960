// The live log of a build or a compile: comes from its beginning, grows as it is printed, follows at the bottom; keeps
// the head of the page true meanwhile. Rows are log-lines.js, colours log-terminal.js, search log-search.js.

import { createLines } from './log-lines.js';
import { createSearch } from './log-search.js';
import { createTerminal } from './log-terminal.js';
import { createTimes } from './log-times.js';
import { RETRY_MS, takeUpAgain } from './stream.js';

/** The first screen is there at once; the rest may take the time that nobody feels. */
const FIRST_SLICE_MS = 12;
const SLICE_MS = 40;
/** A place in the queue changes without the build's own state. */
const WAITING_MS = 5_000;
const NEAR_BOTTOM_PX = 24;
const BELOW_PX = 16;
const bad = ['failed', 'errored', 'timed_out', 'compile_failed'];
const waiting = ['enqueued', 'enqueued_for_compile'];

const view = document.querySelector('[data-log]');
const container = view.querySelector('[data-log-lines]');
const note = view.querySelector('[data-log-note]');
const status = view.querySelector('[data-log-status]');
const base = view.dataset.log;
const head = `${location.pathname}?part=head`;
const encoder = new TextEncoder();

const lines = createLines(container, {
  onNumber: (link, line) => times.timeNumber(link, line),
  onRows: () => search.repaint(),
});
const times = createTimes(base, container, lines);
const search = createSearch(view.querySelector('.log-search'), lines, () => setFollowing(false));
for (const control of view.querySelectorAll('.log-bar [hidden]')) control.hidden = false;

let isGrowing = view.dataset.growing === 'yes';
let isFollowing = isGrowing && !lines.isAimed;
let shownState = view.dataset.state;
/** Bytes that have come, and where the line that is being read began. */
let received = 0;
let lineStart = 0;
let queue = [];
let isWorking = false;
let ended;
let terminal;
let isSticking = false;

function startOver() {
  lines.clear();
  queue = [];
  received = 0;
  lineStart = 0;
  terminal = undefined;
  times.startOver();
}

/** Reads what has come, a slice at a time: the page stays usable while a long log arrives. */
async function work() {
  if (isWorking) return;
  isWorking = true;
  while (queue.length > 0) {
    const until = performance.now() + (lines.texts.length === 0 ? FIRST_SLICE_MS : SLICE_MS);
    while (queue.length > 0 && performance.now() < until) read(queue.shift());
    say('');
    lines.settle();
    stick();
    await new Promise(resolve => setTimeout(resolve));
  }
  isWorking = false;
  search.grow();
  times.grow(received);
  if (ended) finish();
}

function read({ text, offset }) {
  const isPlain = !/[^\x00-\x7f]/.test(text);
  const bytesTo = end => offset + (isPlain ? end : encoder.encode(text.slice(0, end)).length);
  terminal ??= createTerminal((line, isWhole, end) => {
    lines.show(line, isWhole, lineStart);
    if (isWhole) lineStart = reading.bytesTo(end);
  });
  reading.bytesTo = bytesTo;
  terminal.write(text);
}
/** What is being read just now, for a terminal that outlives it. */
const reading = { bytesTo: () => 0 };

function say(words) {
  note.textContent = words;
  note.hidden = words === '';
  container.hidden = lines.texts.length === 0;
}

function connect() {
  const source = new EventSource(`${base}/stream?from=${received}`);
  source.addEventListener('log', event => {
    const { offset, text } = JSON.parse(event.data);
    // Shorter than it was: another run has begun it anew.
    if (offset !== received) startOver();
    received = Number(event.lastEventId);
    queue.push({ offset, text });
    work();
  });
  source.addEventListener('state', event => noteState(JSON.parse(event.data)));
  source.addEventListener('end', event => {
    source.close();
    ended = JSON.parse(event.data);
    noteState(ended);
    work();
  });
  source.addEventListener('open', () => {
    if (!ended) say(lines.texts.length === 0 ? view.dataset.empty : '');
  });
  source.addEventListener('error', () => {
    if (source.readyState !== EventSource.CLOSED) sayBroken();
    else takeUpAgain(connect, head, { onTrouble: sayBroken, onEnd: sayOver });
  });
}
const sayBroken = () => say('The connection broke off. It is tried again, and goes on where it was.');
const sayOver = () =>
  say('It goes no further here: you have signed out, or may no longer see it. Load the page again.');

function noteState(record) {
  const state = record.build_state ?? record.marketplace_state;
  if (state === shownState) return;
  shownState = state;
  refresh();
}

/** Everything has come and is shown. */
function finish() {
  isGrowing = false;
  lines.end();
  view.querySelector('[data-log-follow]').hidden = true;
  if (lines.texts.length === 0) say(view.dataset.empty);
  else if (bad.includes(shownState)) lines.folds.at(-1)?.head.classList.add('bad');
  times.finish(Date.parse(ended.finished_at ?? ''));
  view.dataset.whole = 'yes';
  if (view.dataset.again) awaitAnother();
}

/** What has ended may be begun again by anyone: the page goes on with that. */
function awaitAnother() {
  const source = new EventSource(view.dataset.again);
  let last;
  source.addEventListener('changed', event => {
    const now = JSON.parse(event.data);
    if (now.is_under_way || (last && now.run !== last.run)) {
      source.close();
      beginAgain();
    } else if (last) refresh();
    last = now;
  });
  source.addEventListener('error', () => {
    if (source.readyState === EventSource.CLOSED) takeUpAgain(awaitAnother, head);
  });
}

function beginAgain() {
  isGrowing = true;
  ended = undefined;
  view.dataset.empty = view.dataset.againEmpty;
  delete view.dataset.whole;
  view.querySelector('[data-log-follow]').hidden = false;
  setFollowing(belowSight() <= NEAR_BOTTOM_PX);
  startOver();
  connect();
}

/**
 * The head again, as the server writes it. One request at a time: an older answer never comes after a newer one.
 * What changes meanwhile, or could not be fetched, is asked for again.
 */
let lastHead = '';
let isRefreshing = false;
let isStale = false;
async function refresh() {
  isStale = true;
  if (isRefreshing) return;
  isRefreshing = true;
  while (isStale) {
    // What is being asked or sent just now must not be pulled away.
    while (document.querySelector('dialog[open], [data-busy]')) await pause(1_000);
    isStale = false;
    const response = await fetch(head).catch(() => undefined);
    const text = await response?.text().catch(() => undefined);
    // Signed out, or no longer there: asking again would not help.
    if (response?.redirected || response?.status === 404) break;
    if (response?.ok && text !== undefined) showHead(text);
    else {
      isStale = true;
      await pause(RETRY_MS);
    }
  }
  isRefreshing = false;
}
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

function showHead(text) {
  if (text === lastHead) return;
  lastHead = text;
  const fresh = new DOMParser().parseFromString(text, 'text/html');
  for (const part of document.querySelectorAll('[data-live]')) {
    const next = fresh.getElementById(part.id);
    if (!next) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.textContent : undefined;
    for (const open of part.querySelectorAll('details[open][id]'))
      next.querySelector(`#${open.id}`)?.setAttribute('open', '');
    part.replaceWith(next);
    if (focused) [...next.querySelectorAll('a, button')].find(one => one.textContent === focused)?.focus();
  }
  if (document.title !== fresh.title) status.textContent = fresh.title;
  document.title = fresh.title;
  document.querySelector('link[rel=icon]').href = fresh.querySelector('link[rel=icon]').href;
}

function setFollowing(wanted) {
  isFollowing = wanted;
  view.querySelector('[data-log-follow]').setAttribute('aria-pressed', wanted);
}

/** How far the end of the log is below what is in sight; there may be more on the page after it. */
const belowSight = () => container.getBoundingClientRect().bottom - innerHeight;

function stick() {
  if (!isFollowing || isSticking) return;
  isSticking = true;
  const move = () => {
    const below = belowSight() + BELOW_PX;
    const before = scrollY;
    if (isFollowing && below > 0) scrollBy({ top: below, behavior: 'instant' });
    isSticking = scrollY > before;
    if (!isSticking) return;
    // Wrapped lines that were not laid out before turn out taller than was thought.
    requestAnimationFrame(move);
  };
  requestAnimationFrame(move);
}

let lastY = scrollY;
addEventListener(
  'scroll',
  () => {
    if (scrollY < lastY) {
      // Nobody's wish: a fold that closes with the end still in sight, or a browser that makes room for the focus
      // of “Follow” while the page is about to move.
      if (belowSight() > 0 && !isSticking) setFollowing(false);
    } else if (isGrowing && scrollY > lastY && belowSight() <= NEAR_BOTTOM_PX) setFollowing(true);
    lastY = scrollY;
  },
  { passive: true },
);
// Before the page has moved: or a line that comes in between would pull it back down.
addEventListener('wheel', event => event.deltaY < 0 && setFollowing(false), { passive: true });
addEventListener('touchmove', () => setFollowing(false), { passive: true });
addEventListener('keydown', event => {
  if (['PageUp', 'ArrowUp', 'Home'].includes(event.key)) setFollowing(false);
});

const pressed = button => button.getAttribute('aria-pressed') === 'true';
view.querySelector('[data-log-follow]').addEventListener('click', event => {
  setFollowing(!pressed(event.currentTarget));
  stick();
});
remembered('[data-log-wrap]', 'assay-log-wrap', isOn => container.classList.toggle('wrap', isOn));
remembered('[data-log-times]', 'assay-log-times', isOn => times.toggle(isOn));

/** A button that is on or off, and stays so from log to log. */
function remembered(selector, key, apply) {
  const button = view.querySelector(selector);
  const set = isOn => {
    button.setAttribute('aria-pressed', isOn);
    apply(isOn);
  };
  button.addEventListener('click', () => {
    set(!pressed(button));
    localStorage.setItem(key, pressed(button) ? 'on' : '');
  });
  if (localStorage.getItem(key)) set(true);
}

/** When a running duration was first seen, on a clock that no server shares. */
const seenAt = new WeakMap();
setInterval(() => {
  for (const running of document.querySelectorAll('[data-running-ms]')) {
    if (!seenAt.has(running)) seenAt.set(running, performance.now());
    const since = performance.now() - seenAt.get(running);
    running.textContent = times.durationWords(Number(running.dataset.runningMs) + since);
  }
}, 1_000);
setInterval(() => {
  if (waiting.includes(shownState) && !document.hidden) refresh();
}, WAITING_MS);

setFollowing(isFollowing);
if (!isGrowing) view.querySelector('[data-log-follow]').hidden = true;
connect();

// Keeps a page current: when the page's stream reports an event, the parts marked `data-live` are requested again and
// changed in place. Without it a page shows the state at the time it was loaded.

import { listElements, showState } from './dom.js';
import { morph } from './morph.js';
import { RETRY_MS, reconnectLater, TIMEOUT_MS } from './stream.js';

const GATHER_MS = 300;
/** A build of many suites has many events: the page is not requested again for each. */
const PAUSE_MS = 1_000;
/** Nobody sees a hidden page. Its title and icon may come later. */
const HIDDEN_PAUSE_MS = 5_000;
const [source] = listElements(document, '[data-stream]');
const page = source?.dataset.page ?? location.pathname + location.search;
/** @type {number | undefined} */
let timer;
/** Apart from the other, so that an event is shown before the next look. @type {number | undefined} */
let pollTimer;
let isLoading = false;
let isStale = false;
/** Whether only the title and the icon are current. */
let isBehind = false;
let refreshedAt = Number.NEGATIVE_INFINITY;

function refreshSoon(delayMs = GATHER_MS) {
  if (timer !== undefined) return;
  const pauseMs = refreshedAt + (document.hidden ? HIDDEN_PAUSE_MS : PAUSE_MS) - performance.now();
  timer = setTimeout(
    () => {
      timer = undefined;
      refresh();
    },
    Math.max(delayMs, pauseMs),
  );
}

async function refresh() {
  if (isLoading) {
    isStale = true;
    return;
  }
  isLoading = true;
  refreshedAt = performance.now();
  const isHidden = document.hidden;
  if (isHidden) isBehind = true;
  // The stream may be back already, and report nothing until the next change.
  let mustRetry = true;
  try {
    // The server leaves out the parts that the page has already, which it knows by their hashes.
    const known = listElements(document, '[data-hash]').map(part => part.dataset.hash ?? '');
    const answer = await fetch(page, {
      redirect: 'manual',
      headers: { 'assay-live': isHidden ? 'head' : `parts ${known.join(' ')}` },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), 'text/html'));
    // The session has ended, or the page is gone.
    mustRetry = !answer.ok && answer.type !== 'opaqueredirect' && ![401, 403, 404].includes(answer.status);
    if (!isHidden) isBehind = false;
  } catch {
    // The server is away for a moment.
  }
  isLoading = false;
  if (mustRetry) refreshSoon(RETRY_MS);
  else if (isStale || (isBehind && !document.hidden)) refreshSoon();
  isStale = false;
  poll();
}

/** @param {Document} fresh */
function show(fresh) {
  showState(fresh);
  const focused = document.activeElement;
  for (const part of listElements(fresh, 'body > [data-live]')) {
    for (const button of listElements(part, '[data-copy]')) button.hidden = false;
    const shown = document.getElementById(part.id);
    if (shown) morph(shown, part);
  }
  // A browser that cannot move an element takes the focus from it.
  if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected)
    focused.focus({ preventScroll: true });
  document.dispatchEvent(new Event('assay:shown'));
}

/** Some changes have no event: parts that wait for one say how often to look. */
function poll() {
  clearTimeout(pollTimer);
  const [part] = listElements(document, '[data-poll]');
  if (part) pollTimer = setTimeout(refresh, Number(part.dataset.poll));
}

/** @type {EventSource | undefined} */
let stream;
function listen() {
  if (!source?.dataset.stream) return;
  stream?.close();
  const current = new EventSource(source.dataset.stream);
  stream = current;
  let isKnown = false;
  current.addEventListener('state', () => {
    // The first one is what the page shows already; later ones come after the stream was broken.
    if (isKnown) refreshSoon();
    isKnown = true;
  });
  for (const type of source.dataset.events?.split(' ') ?? [])
    current.addEventListener(type, () => refreshSoon());
  current.addEventListener('error', () => {
    if (current.readyState === EventSource.CLOSED) reconnectLater(listenAgain, page);
  });
}

function listenAgain() {
  listen();
  refresh();
}

if (source) {
  listen();
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && isBehind) refreshSoon();
  });
  addEventListener('pagehide', () => stream?.close());
  addEventListener('pageshow', event => {
    if (event.persisted) listenAgain();
  });
}
poll();

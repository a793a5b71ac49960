// Keeps the wall screen current for weeks: loads it again after each change and every minute, says when the connection is
// lost, and reloads the whole page after an upgrade of the server.

import { getElement, showState } from './dom.js';

const GATHER_MS = 500;
const REFRESH_MS = 60_000;
const RETRY_MS = 5_000;
const TIMEOUT_MS = 15_000;

const wall = getElement(document, '#wall', HTMLElement);
const lost = getElement(document, '#wall-lost', HTMLElement);
/** @type {number | undefined} */
let timer;
let dueAt = Number.POSITIVE_INFINITY;
/** @type {EventSource | undefined} */
let stream;

/** @param {number} delayMs */
function refreshIn(delayMs) {
  const at = Date.now() + delayMs;
  if (at >= dueAt) return;
  clearTimeout(timer);
  dueAt = at;
  timer = setTimeout(refresh, delayMs);
}

const formatTime = () => new Date().toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

/** @param {boolean} isConnected */
function showConnection(isConnected) {
  if (lost.hidden === isConnected) return;
  lost.hidden = isConnected;
  getElement(lost, '[data-since]', HTMLElement).textContent = formatTime();
}

async function refresh() {
  let isConnected = false;
  try {
    const answer = await fetch(location.href, {
      redirect: 'manual',
      cache: 'no-store',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    // The session has ended, or the link was revoked.
    if (answer.type === 'opaqueredirect' || [401, 403, 404].includes(answer.status)) return location.reload();
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fresh = page.querySelector('#wall');
      if (!(fresh instanceof HTMLElement) || fresh.dataset.build !== wall.dataset.build)
        return location.reload();
      wall.replaceChildren(...fresh.childNodes);
      showState(page);
      showClock();
      isConnected = true;
    }
  } catch {
    // The server cannot be reached: the screen says so, and tries again.
  }
  showConnection(isConnected);
  dueAt = Number.POSITIVE_INFINITY;
  if (isConnected && !stream) listen();
  refreshIn(isConnected ? REFRESH_MS : RETRY_MS);
}

function listen() {
  const current = new EventSource(wall.dataset.stream ?? '');
  stream = current;
  current.addEventListener('changed', () => refreshIn(GATHER_MS));
  current.addEventListener('error', () => {
    if (current.readyState === EventSource.CLOSED) stream = undefined;
    refreshIn(GATHER_MS);
  });
}

function showClock() {
  const clock = wall.querySelector('[data-clock]');
  const time = formatTime();
  if (clock && clock.textContent !== time) clock.textContent = time;
}

showClock();
setInterval(showClock, 1_000);
listen();
refreshIn(REFRESH_MS);

// Keeps a page current: when the page's stream reports an event, the parts marked `data-live` are replaced by those of
// the page loaded again. Without it a page shows the state at the time it was loaded.

import { listElements } from './dom.js';
import { reconnectLater } from './stream.js';

const GATHER_MS = 300;
const TIMEOUT_MS = 15_000;
const [source] = listElements(document, '[data-stream]');
const page = source?.dataset.page ?? location.pathname + location.search;
/** @type {number | undefined} */
let timer;
let isLoading = false;
let isStale = false;

function refreshSoon(delayMs = GATHER_MS) {
  if (timer !== undefined) return;
  timer = setTimeout(() => {
    timer = undefined;
    refresh();
  }, delayMs);
}

async function refresh() {
  if (isLoading) {
    isStale = true;
    return;
  }
  isLoading = true;
  try {
    const answer = await fetch(page, { redirect: 'error', signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), 'text/html'));
  } catch {
    // The server is away for a moment: the page is loaded again when the stream is back.
  }
  isLoading = false;
  if (isStale) refreshSoon();
  isStale = false;
  poll();
}

/**
 * How to find the same control again after its part was replaced.
 * @param {Element | null} element
 */
function selectorOf(element) {
  if (element?.id) return `#${CSS.escape(element.id)}`;
  const href = element?.getAttribute('href');
  if (href) return `a[href="${CSS.escape(href)}"]`;
  const form = element && 'form' in element && element.form;
  const action = form instanceof HTMLFormElement && form.getAttribute('action');
  return action ? `form[action="${CSS.escape(action)}"] button` : undefined;
}

/** @param {Document} fresh */
function show(fresh) {
  document.title = fresh.title;
  const icon = document.querySelector('link[rel=icon]');
  const freshIcon = fresh.querySelector('link[rel=icon]');
  if (icon && freshIcon && icon.getAttribute('href') !== freshIcon.getAttribute('href'))
    icon.replaceWith(freshIcon);
  for (const part of listElements(document, '[data-live]')) {
    const next = fresh.getElementById(part.id);
    if (!next || next.outerHTML === part.dataset.shown) continue;
    const shown = next.outerHTML;
    const focused = part.contains(document.activeElement) ? selectorOf(document.activeElement) : undefined;
    for (const open of part.querySelectorAll('details[open][id]'))
      next.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute('open', '');
    for (const button of listElements(next, '[data-copy]')) button.hidden = false;
    part.replaceWith(next);
    next.dataset.shown = shown;
    if (focused) listElements(next, focused)[0]?.focus();
  }
  document.dispatchEvent(new Event('assay:shown'));
}

/** Some changes have no event: parts that wait for one say how often to look. */
function poll() {
  const [part] = listElements(document, '[data-poll]');
  if (part) refreshSoon(Number(part.dataset.poll));
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
  addEventListener('pagehide', () => stream?.close());
  addEventListener('pageshow', event => {
    if (event.persisted) listenAgain();
  });
}
poll();

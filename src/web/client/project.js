// Keeps pages up to date, a project's and the lists: what happens is told by the page's stream, and the parts marked
// `data-live` are taken from the page read again. Without it a page shows how things stood when it was loaded.

import { takeUpAgain } from './stream.js';

const GATHER_MS = 300;
const source = document.querySelector('[data-stream]');
const page = source?.dataset.page ?? location.pathname + location.search;
let waiting;
let reading = false;
let again = false;

function refreshSoon(delayMs = GATHER_MS) {
  if (waiting !== undefined) return;
  waiting = setTimeout(() => {
    waiting = undefined;
    refresh();
  }, delayMs);
}

async function refresh() {
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  try {
    const answer = await fetch(page, { redirect: 'error', signal: AbortSignal.timeout(15_000) });
    if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), 'text/html'));
  } catch {
    // Away for a moment: the stream comes back and tells of it.
  }
  reading = false;
  if (again) refreshSoon();
  again = false;
  poll();
}

/** How to find the same control again after its part was replaced. */
function placeOf(element) {
  if (element?.id) return `#${CSS.escape(element.id)}`;
  const href = element?.getAttribute?.('href');
  if (href) return `a[href="${CSS.escape(href)}"]`;
  const action = element?.form?.getAttribute('action');
  return action ? `form[action="${CSS.escape(action)}"] button` : undefined;
}

function show(fresh) {
  document.title = fresh.title;
  const icon = document.querySelector('link[rel=icon]');
  const freshIcon = fresh.querySelector('link[rel=icon]');
  if (icon && freshIcon && icon.getAttribute('href') !== freshIcon.getAttribute('href'))
    icon.replaceWith(freshIcon);
  for (const part of document.querySelectorAll('[data-live]')) {
    const next = fresh.getElementById(part.id);
    if (!next || next.outerHTML === part.dataset.shown) continue;
    const shown = next.outerHTML;
    const place = part.contains(document.activeElement) ? placeOf(document.activeElement) : undefined;
    for (const open of part.querySelectorAll('details[open][id]'))
      next.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute('open', '');
    for (const button of next.querySelectorAll('[data-copy]')) button.hidden = false;
    part.replaceWith(next);
    next.dataset.shown = shown;
    if (place) next.querySelector(place)?.focus();
  }
  document.dispatchEvent(new Event('assay:shown'));
}

/** Some things are told of by no event: parts that wait for one say how often to look. */
function poll() {
  const part = document.querySelector('[data-poll]');
  if (part) refreshSoon(Number(part.dataset.poll));
}

let stream;
function listen() {
  stream?.close();
  stream = new EventSource(source.dataset.stream);
  let known = false;
  stream.addEventListener('state', () => {
    // The first one is what the page shows already; later ones come after the stream was broken.
    if (known) refreshSoon();
    known = true;
  });
  for (const type of source.dataset.events.split(' ')) stream.addEventListener(type, () => refreshSoon());
  stream.addEventListener('error', event => {
    if (event.target.readyState === EventSource.CLOSED) takeUpAgain(listenAnew, page);
  });
}

function listenAnew() {
  listen();
  refresh();
}

if (source) {
  listen();
  addEventListener('pagehide', () => stream.close());
  addEventListener('pageshow', event => {
    if (event.persisted) listenAnew();
  });
}
poll();

// Shows a notification when a watched build or commit ends, as long as a page of Assay is open. One of the open pages
// asks for the states of all that are watched; the others wait until it is closed.

import { listElements, makeElement } from './dom.js';
import { readSetting, writeSetting } from './settings.js';

const FIRST_MS = 3_000;
const LONGEST_MS = 60_000;
const TIMEOUT_MS = 15_000;
const MAX_WATCHED = 50;

const [account] = listElements(document, '[data-switch]');
/** The paths of what this account watches in this browser. */
const setting = `assay-watched-${account?.dataset.switch ?? ''}`;

/** @typedef {{ href: string, project: string, name: string, label: string, isFinished: boolean }} Watched */

/** @returns {string[]} */
const readWatched = () => readSetting(setting).split(' ').filter(Boolean);
/** @param {string[]} hrefs */
const writeWatched = hrefs => writeSetting(setting, hrefs.slice(-MAX_WATCHED).join(' '));
const isAllowed = () => 'Notification' in window && Notification.permission === 'granted';

/** @param {...(Node | string)} content */
function explain(...content) {
  document.querySelector('.watch-note')?.remove();
  const note = makeElement('p', 'flash note watch-note', ...content);
  note.setAttribute('role', 'status');
  document.querySelector('main')?.prepend(note);
}

function showButtons() {
  const watched = readWatched();
  for (const button of listElements(document, '[data-watch]')) {
    button.hidden = false;
    const isOn = isAllowed() && watched.includes(button.dataset.watch ?? '');
    button.setAttribute('aria-pressed', String(isOn));
  }
}

/** @param {HTMLElement} button */
async function toggle(button) {
  const href = button.dataset.watch ?? '';
  const others = readWatched().filter(one => one !== href);
  const isOn = button.getAttribute('aria-pressed') === 'true';
  document.querySelector('.watch-note')?.remove();
  if (!isOn && !('Notification' in window))
    return explain(
      'This browser cannot show notifications. The title and the icon of this tab show the state.',
    );
  // Asked only after a click.
  if (!isOn && (await Notification.requestPermission()) !== 'granted')
    return explain(
      'Your browser blocks notifications of this site. Allow them in the settings of the browser for this site, then choose Notify me again. Until then, the title and the icon of this tab show the state.',
    );
  writeWatched(isOn ? others : [...others, href]);
  showButtons();
  wake();
}

/** @param {Watched} ended */
function notify({ href, label, name, project }) {
  const title = `${label}: ${name}`;
  try {
    const notification = new Notification(title, { body: project, tag: href });
    notification.onclick = () => {
      notification.close();
      window.focus();
      if (location.pathname !== href) open(href, '_blank');
    };
  } catch {
    // Browsers of phones do not allow it to pages.
    const link = makeElement('a', '', title);
    link.href = href;
    explain(link, ` in ${project}.`);
  }
}

/** Ends the pause before the next request. */
let wake = () => {};

/** Asks for the states. True if something ended. */
async function check() {
  const hrefs = readWatched();
  const query = new URLSearchParams(hrefs.map(href => ['of', href]));
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(`/ui/watched?${query}`, { signal, redirect: 'error' }).catch(() => undefined);
  if (!response?.ok) return false;
  /** @type {{ watched: Watched[] }} */
  const { watched } = await response.json();
  const running = watched.filter(({ isFinished }) => !isFinished).map(({ href }) => href);
  // Something may have been added meanwhile.
  writeWatched(readWatched().filter(href => running.includes(href) || !hrefs.includes(href)));
  const ended = watched.filter(({ isFinished }) => isFinished);
  for (const one of ended) notify(one);
  if (ended.length > 0) showButtons();
  return ended.length > 0;
}

async function watch() {
  for (let pauseMs = FIRST_MS; ; ) {
    const isWatching = isAllowed() && readWatched().length > 0;
    /** @type {boolean} */
    const isWoken = await new Promise(resolve => {
      wake = () => resolve(true);
      if (isWatching) setTimeout(() => resolve(false), pauseMs);
    });
    const hasEnded = isAllowed() && readWatched().length > 0 && (await check());
    pauseMs = isWoken || hasEnded ? FIRST_MS : Math.min(pauseMs * 1.5, LONGEST_MS);
  }
}

if (account) {
  showButtons();
  document.addEventListener('click', event => {
    const button = event.target instanceof Element && event.target.closest('[data-watch]');
    if (button instanceof HTMLElement) toggle(button);
  });
  // The page shows a change, or another page watches something else.
  document.addEventListener('assay:shown', () => {
    showButtons();
    wake();
  });
  addEventListener('storage', ({ key }) => {
    if (key !== setting) return;
    showButtons();
    wake();
  });
  navigator.locks?.request(setting, watch);
}

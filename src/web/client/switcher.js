// The quick switcher as a dialog over every page: a combobox whose list the server sends while the user types. Without
// a query it lists what was visited last, which only this browser knows.

import { listElements, makeElement } from './dom.js';
import { readSetting, writeSetting } from './settings.js';

const TYPING_MS = 120;
const TIMEOUT_MS = 10_000;
const VISITS_KEPT = 12;
/** Pages that are remembered, and what they show. */
const remembered = /^\/ui\/(?:projects\/\d+(?:\/(suites|builds|commits)\/\d+)?|(dependencies)\/\d+)$/;
/** @type {Record<string, string>} */
const kinds = { suites: 'Suite', builds: 'Build', commits: 'Commit', dependencies: 'Dependency' };

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const [opener] = listElements(document, 'a[data-switch]');
/** Of this account, so that the next one who signs in here does not see it. */
const setting = `assay-visited-${opener?.dataset.switch ?? ''}`;

/** @typedef {{ href: string, name: string, kind: string }} Visit */

/** @returns {Visit[]} */
function readVisits() {
  try {
    return JSON.parse(readSetting(setting) || '[]');
  } catch {
    return [];
  }
}

function rememberVisit() {
  const [, part, other] = remembered.exec(location.pathname) ?? [];
  const name = opener?.dataset.title;
  if (!name || !remembered.test(location.pathname)) return;
  const visit = { href: location.pathname, name, kind: kinds[part ?? other ?? ''] ?? 'Project' };
  const others = readVisits().filter(({ href }) => href !== visit.href);
  writeSetting(setting, JSON.stringify([visit, ...others].slice(0, VISITS_KEPT)));
}

/** A list like the server's, of the pages visited last except this one. */
function listVisits() {
  const section = makeElement('section');
  section.append(makeElement('h2', '', 'Recently visited'));
  for (const { href, name, kind } of readVisits()) {
    if (href === location.pathname) continue;
    const link = makeElement('a');
    link.href = href;
    link.append(makeElement('span', 'switch-name', name), ' ', makeElement('span', 'switch-note', kind));
    section.append(link);
  }
  return section;
}

function openSwitcher() {
  const dialog = makeElement('dialog', 'switcher');
  dialog.setAttribute('aria-label', 'Go to');
  const input = makeElement('input');
  input.type = 'search';
  input.placeholder = 'Project, suite, build or dependency';
  input.autocomplete = 'off';
  input.spellcheck = false;
  input.setAttribute('role', 'combobox');
  input.setAttribute('aria-label', input.placeholder);
  input.setAttribute('aria-autocomplete', 'list');
  input.setAttribute('aria-controls', 'switch-list');
  const list = makeElement('div', 'switch-list');
  list.id = 'switch-list';
  list.setAttribute('role', 'listbox');
  list.setAttribute('aria-label', 'Results');
  const note = makeElement('p', 'switch-status quiet');
  note.setAttribute('role', 'status');
  const bar = makeElement('form', 'switch-bar', input, makeElement('button', 'button plain', 'Close'));
  bar.method = 'dialog';
  dialog.append(bar, list, note);

  /** @type {HTMLElement[]} */
  let options = [];
  let chosen = -1;

  /** @param {number} at */
  function choose(at) {
    options[chosen]?.setAttribute('aria-selected', 'false');
    chosen = at;
    const option = options[chosen];
    option?.setAttribute('aria-selected', 'true');
    option?.scrollIntoView({ block: 'nearest' });
    if (option) input.setAttribute('aria-activedescendant', option.id);
    else input.removeAttribute('aria-activedescendant');
  }

  /** @param {Element[]} sections */
  function show(sections, text = '') {
    options = [];
    const groups = sections.map((section, at) => {
      const group = makeElement('div');
      const heading = makeElement('div', 'switch-group');
      heading.id = `switch-group-${at}`;
      heading.textContent = section.querySelector('h2')?.textContent ?? '';
      group.setAttribute('role', 'group');
      group.setAttribute('aria-labelledby', heading.id);
      group.append(heading);
      for (const link of listElements(section, 'a')) {
        link.id = `switch-${options.length}`;
        link.setAttribute('role', 'option');
        link.setAttribute('aria-selected', 'false');
        link.tabIndex = -1;
        options.push(link);
        group.append(link);
      }
      return group;
    });
    list.replaceChildren(...groups);
    list.hidden = options.length === 0;
    input.setAttribute('aria-expanded', String(options.length > 0));
    const count = options.length === 1 ? '1 result' : `${options.length} results`;
    note.textContent = text || (options.length > 0 ? count : '');
    choose(options.length > 0 ? 0 : -1);
  }

  /** @type {AbortController | undefined} */
  let request;
  /** @type {number | undefined} */
  let timer;
  /** What the list answers; Enter waits until it is what was typed. */
  let answered = '';
  /** @type {{ isNewTab: boolean } | undefined} */
  let waiting;

  /** @param {boolean} isNewTab */
  function go(isNewTab) {
    const link = options[chosen];
    if (!(link instanceof HTMLAnchorElement)) return;
    if (isNewTab) open(link.href, '_blank', 'noopener');
    else link.click();
  }

  async function load() {
    const query = input.value.trim();
    const current = new AbortController();
    request = current;
    try {
      const signal = AbortSignal.any([current.signal, AbortSignal.timeout(TIMEOUT_MS)]);
      const address = `/ui/switch?part=list&q=${encodeURIComponent(query)}`;
      const response = await fetch(address, { signal, redirect: 'error' });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
      const text = fresh.querySelector('p')?.textContent ?? '';
      answered = query;
      show([...fresh.querySelectorAll('section')], text);
      if (waiting) go(waiting.isNewTab);
    } catch {
      if (!current.signal.aborted) show([], 'The server did not respond. Try again.');
    }
    if (request === current) waiting = undefined;
  }

  function update() {
    request?.abort();
    clearTimeout(timer);
    waiting = undefined;
    const visits = listVisits();
    if (input.value.trim() === '' && visits.querySelector('a')) {
      answered = '';
      show([visits]);
    } else timer = setTimeout(load, input.value === '' ? 0 : TYPING_MS);
  }

  input.addEventListener('input', update);
  input.addEventListener('keydown', event => {
    if (event.isComposing) return;
    const { key } = event;
    const step = key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0;
    if (step !== 0 && options.length > 0) choose((chosen + step + options.length) % options.length);
    else if (key === 'Enter') {
      const isNewTab = event.ctrlKey || event.metaKey;
      if (answered === input.value.trim()) go(isNewTab);
      else waiting = { isNewTab };
    } else return;
    event.preventDefault();
  });
  list.addEventListener('click', event => {
    // The page may be the one that is open already, or the link may open a tab.
    if (event.target instanceof Element && event.target.closest('a')) dialog.close();
  });
  dialog.addEventListener('close', () => {
    request?.abort();
    clearTimeout(timer);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
  show([]);
  update();
}

if (opener) {
  rememberVisit();
  opener.setAttribute('aria-keyshortcuts', isMac ? 'Meta+K' : 'Control+K');
  opener.setAttribute('aria-haspopup', 'dialog');
  opener.title = isMac ? 'Go to (⌘K)' : 'Go to (Ctrl+K)';
  opener.addEventListener('click', event => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openSwitcher();
  });
  document.addEventListener('keydown', event => {
    const isOurs = (isMac ? event.metaKey : event.ctrlKey) && !event.altKey && !event.shiftKey;
    if (!isOurs || event.key.toLowerCase() !== 'k') return;
    event.preventDefault();
    if (!document.querySelector('dialog[open]')) openSwitcher();
  });
  for (const form of document.querySelectorAll('form[action="/ui/sign-out"]'))
    form.addEventListener('submit', () => writeSetting(setting, ''));
}

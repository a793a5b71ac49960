// Keyboard shortcuts. An element names its keys in `data-keys`, such as "f" or "g p", and its purpose in
// `data-keys-label` if its text does not say it. The help dialog lists what works on this page, and switches them off.

import { listElements, makeElement } from './dom.js';
import { readSetting, writeSetting } from './settings.js';

const SEQUENCE_MS = 2_000;
const SETTING = 'assay-shortcuts';
/** Lists whose rows `j` and `k` move through; the first one on the page with a link in each row. */
const LISTS = ['main [data-rows]', 'main table, main .request-list, main .search-hits'];

const isOn = () => readSetting(SETTING) !== 'off';

/** @param {HTMLElement} element */
const keysOf = element => element.dataset.keys?.split(',') ?? [];

/** Elements with keys that can be used now; those of the page itself come before those of the frame. */
function listTargets() {
  const found = listElements(document, '[data-keys]').filter(
    one => one.closest('header') || one.checkVisibility(),
  );
  return [...found.filter(one => one.closest('main')), ...found.filter(one => !one.closest('main'))];
}

/** @param {string} keys */
const findTarget = keys => listTargets().find(one => keysOf(one).includes(keys));

/** The first link of each row, which stands for the row. */
function listRows() {
  for (const selector of LISTS)
    for (const list of listElements(document, selector)) {
      const links = listElements(list, 'tbody tr, :scope > li')
        .filter(row => row.checkVisibility())
        .flatMap(row => listElements(row, 'a[href]').slice(0, 1));
      if (links.length > 0) return links;
    }
  return [];
}

/** @param {1 | -1} step */
function moveToRow(step) {
  const links = listRows();
  const row = document.activeElement?.closest('tr, li');
  const at = links.findIndex(link => row?.contains(link));
  const next = at < 0 ? links[0] : links[at + step];
  next?.focus();
  next?.closest('tr, li')?.scrollIntoView({ block: 'nearest' });
}

/** @param {HTMLElement} target */
function use(target) {
  if (target instanceof HTMLInputElement) {
    target.focus();
    target.select();
  } else if (target.matches('a, button')) target.click();
  else {
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: 'end' });
  }
}

let pending = '';
/** @type {number | undefined} */
let pendingTimer;

/** @param {KeyboardEvent} event */
function isForFields({ target, isComposing }) {
  return (
    isComposing ||
    (target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null)
  );
}

document.addEventListener('keydown', event => {
  const { key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || key.length !== 1) return;
  if (isForFields(event) || document.querySelector('dialog[open]') || !isOn()) return;
  const keys = pending === '' ? key : `${pending} ${key}`;
  clearTimeout(pendingTimer);
  pending = '';
  const step = keys === 'j' ? 1 : keys === 'k' ? -1 : undefined;
  const target = findTarget(keys);
  if (keys === '?') showHelp();
  else if (step && listRows().length > 0) moveToRow(step);
  else if (target) {
    if (event.repeat) return;
    use(target);
  } else if (listTargets().some(one => keysOf(one).some(some => some.startsWith(`${keys} `)))) {
    pending = keys;
    pendingTimer = setTimeout(() => {
      pending = '';
    }, SEQUENCE_MS);
  } else return;
  event.preventDefault();
});

/** @param {HTMLElement} element */
function labelOf(element) {
  const label = element instanceof HTMLInputElement ? element.labels?.[0]?.textContent : element.textContent;
  return element.dataset.keysLabel ?? element.ariaLabel ?? label?.trim() ?? '';
}

/** What works on this page, in two groups. */
function listShortcuts() {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const target of listTargets())
    for (const keys of keysOf(target)) if (!found.has(keys)) found.set(keys, labelOf(target));
  const hasRows = listRows().length > 0;
  /** @type {[keys: string, label: string][]} */
  const fixed = [
    ...(hasRows
      ? /** @type {[string, string][]} */ ([
          ['j', 'Next row'],
          ['k', 'Previous row'],
          ['Enter', 'Open the row'],
        ])
      : []),
    ...listElements(document, '[data-switch]').map(
      one =>
        /** @type {[string, string]} */ ([
          one.ariaKeyShortcuts?.replace('Control', 'Ctrl').replace('Meta', '⌘') ?? '',
          'Quick switcher',
        ]),
    ),
    ['?', 'Show these shortcuts'],
  ];
  return {
    'On this page': [...[...found].filter(([keys]) => !keys.includes(' ')), ...fixed],
    'Go to': [...found].filter(([keys]) => keys.includes(' ')),
  };
}

function showHelp() {
  const heading = makeElement('h2', '', 'Keyboard shortcuts');
  heading.id = 'shortcuts-head';
  const groups = Object.entries(listShortcuts())
    .filter(([, shortcuts]) => shortcuts.length > 0)
    .map(([name, shortcuts]) => {
      const items = shortcuts.map(([keys, label]) => {
        const shown = keys.split(/[ +]/).map(key => makeElement('kbd', '', key));
        return makeElement('div', '', makeElement('dt', '', ...shown), makeElement('dd', '', label));
      });
      return makeElement('div', '', makeElement('h3', '', name), makeElement('dl', '', ...items));
    });
  const columns = makeElement('div', 'shortcut-groups', ...groups);
  const toggle = makeElement('input');
  toggle.type = 'checkbox';
  toggle.checked = isOn();
  const choice = makeElement(
    'label',
    'shortcut-choice',
    toggle,
    ' Use shortcuts of a single key in this browser',
  );
  const close = makeElement('button', 'button plain', 'Close');
  const form = makeElement('form', 'buttons', close);
  form.method = 'dialog';
  const dialog = makeElement('dialog', 'wide', heading, columns, choice, form);
  dialog.setAttribute('aria-labelledby', heading.id);
  toggle.addEventListener('change', () => {
    writeSetting(SETTING, toggle.checked ? '' : 'off');
    columns.classList.toggle('off', !toggle.checked);
    announceKeys();
  });
  columns.classList.toggle('off', !toggle.checked);
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

/** Assistive technology learns of single keys; there is no notation for keys one after the other. */
function announceKeys() {
  for (const element of listElements(document, '[data-keys]')) {
    const [single] = keysOf(element).filter(keys => keys.length === 1);
    if (single && isOn()) element.setAttribute('aria-keyshortcuts', single);
    else element.removeAttribute('aria-keyshortcuts');
  }
}

announceKeys();
document.addEventListener('assay:shown', announceKeys);
for (const part of listElements(document, '[data-shortcuts]')) {
  part.hidden = false;
  part.querySelector('button')?.addEventListener('click', showHelp);
}

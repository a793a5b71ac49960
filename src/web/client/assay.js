// What every page gains from scripts: relative times that stay current, copy buttons, filters, and a confirmation before
// something is lost. Every page works without it.

/** @type {[unit: Intl.RelativeTimeFormatUnit, ms: number][]} */
const units = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

/** @param {number} ms */
function formatRelative(ms) {
  const distance = ms - Date.now();
  for (const [unit, size] of units)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

function updateTimes() {
  for (const time of document.querySelectorAll('time')) {
    if (time.dateTime === '') continue;
    const words = formatRelative(Date.parse(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
  }
}
setInterval(updateTimes, 20_000);
updateTimes();

/** @param {string} selector */
const listElements = (selector, parent = /** @type {ParentNode} */ (document)) =>
  [...parent.querySelectorAll(selector)].filter(one => one instanceof HTMLElement);

for (const button of listElements('[data-copy]')) button.hidden = false;
document.addEventListener('click', async event => {
  const button = event.target instanceof Element && event.target.closest('[data-copy]');
  if (!(button instanceof HTMLElement)) return;
  const text = button.parentElement?.querySelector('.copy-text');
  if (!text) return;
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = 'Copied';
  } catch {
    // Without the permission to copy, the text is selected for the reader to do it.
    getSelection()?.selectAllChildren(text);
    button.textContent = 'Selected';
  }
  setTimeout(() => {
    button.textContent = label;
  }, 2_000);
});

for (const input of document.querySelectorAll('input')) {
  const listId = input.dataset.filter;
  if (listId === undefined) continue;
  const apply = () => {
    // Looked up each time: the list may have been replaced since.
    const list = document.getElementById(listId);
    if (!list) return;
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const item of listElements('[data-filter-text]', list)) {
      item.hidden = !words.every(word => item.dataset.filterText?.includes(word));
      if (!item.hidden) shown += 1;
    }
    for (const group of listElements('[data-filter-group]', list))
      group.hidden = !group.querySelector('[data-filter-text]:not([hidden])');
    for (const none of listElements(`[data-filter-none="${listId}"]`)) none.hidden = shown > 0;
  };
  input.addEventListener('input', apply);
  document.addEventListener('assay:shown', apply);
  input.addEventListener('keydown', event => {
    if (event.key === 'Escape') {
      input.value = '';
      apply();
    }
  });
}

document.addEventListener('keydown', event => {
  const { target } = event;
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target instanceof Element && target.closest('input, textarea, select, [contenteditable]')) return;
  const search = document.querySelector('input[type=search]');
  if (!(search instanceof HTMLInputElement)) {
    // A page without a search of its own leads to the search in logs.
    const link = document.querySelector('.top a[href="/ui/search"]');
    if (link instanceof HTMLElement) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  event.preventDefault();
  search.focus();
  search.select();
});

/**
 * Asks in a dialog. The focus begins on the answer that changes nothing; Escape gives the same answer.
 * @param {string} question
 * @param {{ yes: string, no: string }} labels
 * @returns {Promise<boolean>}
 */
function confirmInDialog(question, labels) {
  const dialog = document.createElement('dialog');
  const text = document.createElement('p');
  text.id = 'question';
  text.textContent = question;
  dialog.setAttribute('aria-labelledby', text.id);
  const form = document.createElement('form');
  form.method = 'dialog';
  form.className = 'buttons';
  /** @type {[value: string, label: string, look: string][]} */
  const choices = [
    ['', labels.no, 'plain'],
    ['yes', labels.yes, 'danger'],
  ];
  for (const [value, label, look] of choices) {
    const button = document.createElement('button');
    button.value = value;
    button.textContent = label;
    button.className = `button ${look}`;
    form.append(button);
  }
  dialog.append(text, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise(resolve => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}

document.addEventListener('submit', async event => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement)) return;
  const { confirm: question, yes = 'Continue', no = 'Back' } = form.dataset;
  if (!question || form.dataset.confirmed) return;
  event.preventDefault();
  if (!(await confirmInDialog(question, { yes, no }))) return;
  form.dataset.confirmed = 'yes';
  // Its part of the page may have been replaced meanwhile, and a form outside of the document cannot be sent.
  if (!form.isConnected) {
    form.hidden = true;
    document.body.append(form);
  }
  form.requestSubmit(event.submitter);
});

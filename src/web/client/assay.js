// What pages gain where scripts run: times that stay true, copy buttons, filters, questions before something is lost.
// Every page works without it. The live log is log.js.

const units = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

function sinceWords(ms) {
  const distance = ms - Date.now();
  for (const [unit, size] of units)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

function tick() {
  for (const time of document.querySelectorAll('time[datetime]')) {
    const words = sinceWords(Date.parse(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
  }
}
setInterval(tick, 20_000);
tick();

for (const button of document.querySelectorAll('[data-copy]')) button.hidden = false;
document.addEventListener('click', async event => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  button.dataset.label ??= button.textContent;
  const text = button.parentElement.querySelector('.copy-text');
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = 'Copied';
  } catch {
    // Without leave to copy, the text is selected for the person to do it.
    getSelection().selectAllChildren(text);
    button.textContent = 'Selected';
  }
  setTimeout(() => {
    button.textContent = button.dataset.label;
  }, 2_000);
});

for (const input of document.querySelectorAll('[data-filter]')) {
  const apply = () => {
    // Looked for each time: the list may have been read again since.
    const list = document.getElementById(input.dataset.filter);
    if (!list) return;
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const item of list.querySelectorAll('[data-filter-text]')) {
      item.hidden = !item.dataset.filterText.includes(wanted);
      if (!item.hidden) shown += 1;
    }
    for (const group of list.querySelectorAll('[data-filter-group]'))
      group.hidden = !group.querySelector('[data-filter-text]:not([hidden])');
    const none = document.querySelector(`[data-filter-none="${input.dataset.filter}"]`);
    if (none) none.hidden = shown > 0;
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

/** Asks in a dialog; its first button says what will be done, in the words of the form's own. */
function ask(question, word) {
  return new Promise(resolve => {
    const dialog = document.createElement('dialog');
    const text = document.createElement('p');
    text.id = 'question';
    text.textContent = question;
    dialog.setAttribute('aria-labelledby', text.id);
    const form = document.createElement('form');
    form.method = 'dialog';
    form.className = 'buttons';
    for (const [value, label, look] of [
      ['', 'Back', 'plain'],
      ['yes', word, 'danger'],
    ]) {
      const button = document.createElement('button');
      button.value = value;
      button.textContent = label;
      button.className = `button ${look}`;
      form.append(button);
    }
    dialog.append(text, form);
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

document.addEventListener('submit', async event => {
  const form = event.target;
  const question = form.dataset?.confirm;
  if (!question || form.dataset.confirmed) return;
  event.preventDefault();
  const word = event.submitter?.textContent ?? 'Go on';
  if (!(await ask(question, word))) return;
  form.dataset.confirmed = 'yes';
  // Its part of the page may have been replaced meanwhile, and a form that is nowhere cannot be sent.
  if (!form.isConnected) {
    form.hidden = true;
    document.body.append(form);
  }
  form.requestSubmit(event.submitter);
});

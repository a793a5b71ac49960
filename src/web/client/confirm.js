// Asks in a dialog before a form with a question is sent.

/**
 * The focus begins on the answer that changes nothing; Escape gives the same answer.
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

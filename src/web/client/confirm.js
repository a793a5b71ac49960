// Asks in a dialog before a form with a question is sent.

import { makeElement } from './dom.js';

/**
 * The focus begins on the answer that changes nothing; Escape gives the same answer.
 * @param {string} question
 * @param {{ yes: string, no: string }} labels
 * @returns {Promise<boolean>}
 */
function confirmInDialog(question, labels) {
  const text = makeElement('p', '', question);
  text.id = 'question';
  const answer = makeElement('button', 'button danger', labels.yes);
  answer.value = 'yes';
  const form = makeElement('form', 'buttons', makeElement('button', 'button plain', labels.no), answer);
  form.method = 'dialog';
  const dialog = makeElement('dialog', '', text, form);
  dialog.setAttribute('aria-labelledby', text.id);
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

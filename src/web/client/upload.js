// Uploads with a progress bar: sends what the plain form would send, shows the progress, and can be stopped.

import { getElement } from './dom.js';

document.addEventListener('submit', event => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.matches('[data-upload]')) return;
  event.preventDefault();
  const panel = getElement(form, '[data-upload-progress]', HTMLElement);
  const bar = getElement(panel, 'progress', HTMLProgressElement);
  const words = getElement(panel, '[data-upload-words]', HTMLElement);
  const stop = getElement(panel, '[data-upload-stop]', HTMLButtonElement);
  const submit = getElement(form, '[type=submit]', HTMLButtonElement);
  const error = getElement(form, '[role=alert]', HTMLElement);

  const request = new XMLHttpRequest();
  /** @param {string} message */
  const fail = message => {
    delete form.dataset.busy;
    panel.hidden = true;
    submit.disabled = false;
    error.textContent = message;
    error.hidden = false;
    getElement(form, '[type=file]', HTMLInputElement).focus();
  };
  request.upload.addEventListener('progress', ({ loaded, total }) => {
    bar.value = total > 0 ? loaded / total : 0;
    // Rounded down to steps of 5: a screen reader announces each change.
    const percent = Math.floor((loaded / total) * 20) * 5;
    const text = loaded < total ? `${percent} %` : 'Checking…';
    if (words.textContent !== text) words.textContent = text;
  });
  request.addEventListener('load', () => {
    /** @type {{ to?: string, error?: string } | null} */
    const answer = request.response;
    if (answer?.to) location.assign(answer.to);
    else fail(answer?.error ?? 'The upload was not accepted. Reload the page and try again.');
  });
  request.addEventListener('error', () => fail('The connection was lost during the upload. Try again.'));
  request.addEventListener('abort', () => fail('The upload was stopped.'));
  stop.onclick = () => request.abort();

  request.open('POST', form.action);
  request.setRequestHeader('accept', 'application/json');
  request.responseType = 'json';
  const body = new FormData(form);
  form.dataset.busy = 'yes';
  bar.value = 0;
  words.textContent = '0 %';
  panel.hidden = false;
  submit.disabled = true;
  error.hidden = true;
  request.send(body);
});

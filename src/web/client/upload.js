// Uploads with a progress bar: sends what the plain form would send, shows the progress, and can be stopped. Afterwards
// the page shows what became of it, without being loaded again.

import { getElement } from './dom.js';

document.addEventListener('submit', event => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.matches('[data-upload]')) return;
  event.preventDefault();
  const panel = getElement(form, '[data-upload-progress]', HTMLElement);
  const bar = getElement(panel, 'progress', HTMLProgressElement);
  const words = getElement(panel, '[data-upload-words]', HTMLElement);
  const speed = getElement(panel, '[data-upload-speed]', HTMLElement);
  const stop = getElement(panel, '[data-upload-stop]', HTMLButtonElement);
  const submit = getElement(form, '[type=submit]', HTMLButtonElement);
  const error = getElement(form, '[role=alert]', HTMLElement);

  const request = new XMLHttpRequest();
  const end = () => {
    delete form.dataset.busy;
    panel.hidden = true;
    submit.disabled = false;
  };
  /** @param {string} message */
  const fail = message => {
    end();
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
    const seconds = (performance.now() - startedAt) / 1000;
    const rate = seconds >= 1 ? `, ${formatSize(loaded / seconds)}/s` : '';
    speed.textContent = loaded < total ? `of ${formatSize(total)}${rate}` : '';
  });
  request.addEventListener('load', () => {
    /** @type {{ error?: string } | null} */
    const answer = request.response;
    if (request.status !== 200)
      return fail(answer?.error ?? 'The upload was not accepted. Reload the page and try again.');
    end();
    form.reset();
    form.closest('details')?.removeAttribute('open');
    // It asked for this upload, or is about something earlier.
    document.querySelector('.flash.done')?.remove();
    document.dispatchEvent(new Event('assay:changed'));
  });
  request.addEventListener('error', () => fail('The connection was lost during the upload. Try again.'));
  request.addEventListener('abort', () => fail('The upload was stopped.'));
  stop.onclick = () => request.abort();

  request.open('POST', form.action);
  request.setRequestHeader('accept', 'application/json');
  request.responseType = 'json';
  const body = new FormData(form);
  const startedAt = performance.now();
  form.dataset.busy = 'yes';
  bar.value = 0;
  words.textContent = '0 %';
  speed.textContent = '';
  panel.hidden = false;
  submit.disabled = true;
  error.hidden = true;
  request.send(body);
});

/** @param {number} bytes */
function formatSize(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

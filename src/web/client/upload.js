// Uploads with a progress bar: sends what the plain form would send, shows how far it is, and can be stopped.

document.addEventListener('submit', event => {
  const form = event.target;
  if (!form.matches('[data-upload]')) return;
  event.preventDefault();
  const panel = form.querySelector('[data-upload-progress]');
  const bar = panel.querySelector('progress');
  const words = panel.querySelector('[data-upload-words]');
  const stop = panel.querySelector('[data-upload-stop]');
  const submit = form.querySelector('[type=submit]');
  const error = form.querySelector('[role=alert]');

  const request = new XMLHttpRequest();
  const end = trouble => {
    delete form.dataset.busy;
    panel.hidden = true;
    submit.disabled = false;
    error.textContent = trouble;
    error.hidden = trouble === '';
    if (trouble !== '') form.querySelector('[type=file]').focus();
  };
  request.upload.addEventListener('progress', ({ loaded, total }) => {
    bar.value = total > 0 ? loaded / total : 0;
    // Rounded down, and in steps: a screen reader is told of each change.
    const percent = Math.floor((loaded / total) * 20) * 5;
    const text = loaded < total ? `${percent} %` : 'Checking…';
    if (words.textContent !== text) words.textContent = text;
  });
  request.addEventListener('load', () => {
    if (request.response?.to) location.assign(request.response.to);
    else end(request.response?.error ?? 'It was not accepted. Load the page again, and try once more.');
  });
  request.addEventListener('error', () => end('The upload broke off. Try again.'));
  request.addEventListener('abort', () => end('The upload was stopped.'));
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

// Shows the next times of a schedule while its expression is typed. Without scripts, a button does it.

import { listElements } from './dom.js';

const GATHER_MS = 400;
const TIMEOUT_MS = 15_000;
const [shown] = listElements(document, '[data-times]');
const form = shown?.closest('form');
const address = shown?.dataset.times;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** @type {AbortController | undefined} */
let asking;

async function update() {
  if (!shown || !form || !address) return;
  asking?.abort();
  const current = new AbortController();
  asking = current;
  const body = new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, String(value)]));
  try {
    const answer = await fetch(address, {
      method: 'POST',
      body,
      signal: AbortSignal.any([current.signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    if (!answer.ok) return;
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById(shown.id);
    if (next) shown.replaceChildren(...next.childNodes);
  } catch {
    // The times stay as they are, and are checked when the form is sent.
  }
}

for (const button of listElements(document, '[data-show-times]')) button.hidden = true;
form?.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(update, GATHER_MS);
});

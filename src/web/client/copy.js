// Buttons that copy the text next to them.

import { listElements } from './dom.js';

for (const button of listElements(document, '[data-copy]')) button.hidden = false;
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

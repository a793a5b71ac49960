// Fields that filter a list while the user types.

import { listElements } from './dom.js';

for (const input of document.querySelectorAll('input')) {
  const listId = input.dataset.filter;
  if (listId === undefined) continue;
  const apply = () => {
    // Looked up each time: the list may have been replaced since.
    const list = document.getElementById(listId);
    if (!list) return;
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const item of listElements(list, '[data-filter-text]')) {
      item.hidden = !words.every(word => item.dataset.filterText?.includes(word));
      if (!item.hidden) shown += 1;
    }
    for (const group of listElements(list, '[data-filter-group]'))
      group.hidden = !group.querySelector('[data-filter-text]:not([hidden])');
    for (const none of listElements(document, `[data-filter-none="${listId}"]`)) none.hidden = shown > 0;
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

// Continues a search on the same page: older results are added below. While nothing is found, it continues by itself.

import { getElement } from './dom.js';

const results = getElement(document, '#search-results', HTMLElement);
const find = (/** @type {ParentNode} */ parent, /** @type {string} */ selector) =>
  /** @type {HTMLElement | null} */ (parent.querySelector(selector));

/** @param {HTMLAnchorElement} link */
async function continueSearch(link) {
  link.setAttribute('aria-disabled', 'true');
  link.textContent = 'Searching older builds…';
  const response = await fetch(link.href).catch(() => undefined);
  const text =
    response?.ok && !response.redirected ? await response.text().catch(() => undefined) : undefined;
  const fresh = text === undefined ? undefined : new DOMParser().parseFromString(text, 'text/html');
  const list = fresh && find(fresh, '.search-hits');
  if (!fresh || !list) {
    link.removeAttribute('aria-disabled');
    link.textContent = 'The search was interrupted. Try again';
    return;
  }
  const counted = find(results, '[data-search-count]');
  const count =
    Number(counted?.dataset.searchCount) + Number(find(fresh, '[data-search-count]')?.dataset.searchCount);
  const hits = getElement(results, '.search-hits', HTMLElement);
  hits.append(...list.children);
  const lines = hits.querySelectorAll('ul > li').length;
  const status = find(fresh, '[data-search-status]');
  if (status) {
    const freshCount = getElement(status, '[data-search-count]', HTMLElement);
    freshCount.dataset.searchCount = String(count);
    freshCount.textContent = count.toLocaleString('en');
    if (lines > 0 && status.firstChild)
      status.firstChild.textContent = `${lines === 1 ? '1 line' : `${lines} lines`} in ${hits.children.length === 1 ? '1 build' : `${hits.children.length} builds`}. Searched `;
    find(results, '[data-search-status]')?.replaceWith(status);
  }
  const rest = [...(find(fresh, '#search-results')?.children ?? [])].filter(
    one => one.matches('.older, .quiet') && (lines === 0 || !one.matches('.quiet')),
  );
  link.closest('p')?.replaceWith(...rest);
  continueIfEmpty();
}

function continueIfEmpty() {
  const next = results.querySelector('[data-search-next]');
  if (next instanceof HTMLAnchorElement && !results.querySelector('.search-hits > li')) continueSearch(next);
}

results.addEventListener('click', event => {
  const link = event.target instanceof Element && event.target.closest('[data-search-next]');
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  if (link.getAttribute('aria-disabled') !== 'true') continueSearch(link);
});

getElement(document, '.search-form', HTMLFormElement).addEventListener('submit', event => {
  const { currentTarget } = event;
  if (!(currentTarget instanceof HTMLFormElement)) return;
  // Empty filters only make the address long.
  for (const control of currentTarget.elements)
    if ((control instanceof HTMLInputElement || control instanceof HTMLSelectElement) && control.value === '')
      control.disabled = true;
});
addEventListener('pageshow', () => {
  for (const control of document.querySelectorAll('.search-form :disabled'))
    control.removeAttribute('disabled');
});
continueIfEmpty();

// Fills in the form of a new dependency as soon as an archive is chosen, unless something was typed there already.

import { getElement, listElements } from './dom.js';

const form = getElement(document, '[data-recipe]', HTMLFormElement);

/** @param {HTMLElement} field */
const isChanged = field =>
  (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) &&
  field.value !== field.defaultValue;

getElement(form, '[type=file]', HTMLInputElement).addEventListener('change', () => {
  if (!listElements(document, 'form[method=post] :is(input, textarea)').some(isChanged)) form.requestSubmit();
});

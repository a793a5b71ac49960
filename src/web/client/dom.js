// Finds and makes elements of a page with their types, so that a page and its script cannot drift apart unnoticed.

/**
 * The first element that matches; throws where there is none of this type.
 * @template {Element} T
 * @param {ParentNode} parent
 * @param {string} selector
 * @param {new () => T} type
 */
export function getElement(parent, selector, type) {
  const found = parent.querySelector(selector);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${selector}`);
}

/**
 * All elements that match.
 * @param {ParentNode} parent
 * @param {string} selector
 */
export function listElements(parent, selector) {
  return [...parent.querySelectorAll(selector)].filter(one => one instanceof HTMLElement);
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} name
 * @param {string} className
 * @param {...(Node | string)} children
 */
export function makeElement(name, className = '', ...children) {
  const element = document.createElement(name);
  if (className !== '') element.className = className;
  element.append(...children);
  return element;
}

/**
 * Takes the title and the icon, which show the state, from a fresh copy of the page.
 * @param {Document} fresh
 */
export function showState(fresh) {
  if (document.title !== fresh.title) document.title = fresh.title;
  const icon = document.querySelector('link[rel=icon]');
  const freshIcon = fresh.querySelector('link[rel=icon]');
  if (icon && freshIcon && icon.getAttribute('href') !== freshIcon.getAttribute('href'))
    icon.replaceWith(freshIcon);
}

/** @param {number} ms */
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

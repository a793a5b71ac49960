// Changes a part of the page in place until it looks like a fresh copy. Elements that are in both stay the same
// elements, so scroll positions, focus, selected text, open details, hover and what somebody typed survive.

/** Attributes that belong to the reader or to a script, not to the server. */
const ownAttributes = ['open', 'data-label', 'data-confirmed', 'data-busy'];

/**
 * What an element is about. A row, a cell or an item is about the first thing that it links to.
 * @param {Node} node
 * @returns {string}
 */
function keyOf(node) {
  if (!(node instanceof Element)) return '';
  if (node.id) return `#${node.id}`;
  const target = node.getAttribute('href') ?? node.getAttribute('action');
  if (target !== null) return target;
  if (!['TR', 'TH', 'TD', 'LI'].includes(node.nodeName)) return '';
  const link = node.querySelector('a[href], form[action]');
  return link ? keyOf(link) : '';
}

/**
 * Makes `shown` look like `fresh`, which is an element of another document with the same name. An element of `fresh`
 * with `data-same` has no content: the shown one is up to date.
 * @param {Element} shown
 * @param {Element} fresh
 */
export function morph(shown, fresh) {
  if (fresh.hasAttribute('data-same')) return;
  for (const { name } of [...shown.attributes])
    if (!fresh.hasAttribute(name) && !ownAttributes.includes(name) && !isRevealed(shown, name))
      shown.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (shown.getAttribute(name) !== value && !ownAttributes.includes(name) && !isRevealed(shown, name))
      shown.setAttribute(name, value);
  // The words of a time are kept current by a script.
  if (shown.nodeName === 'TIME' && shown.textContent !== '') return;
  morphChildren(shown, fresh);
}

/**
 * A copy button appears only if scripts run.
 * @param {Element} element
 * @param {string} attribute
 */
const isRevealed = (element, attribute) => attribute === 'hidden' && element.hasAttribute('data-copy');

/**
 * @param {Element} shown
 * @param {Element} fresh
 */
function morphChildren(shown, fresh) {
  /** @type {Map<string, Node[]>} */
  const unmatched = new Map();
  /** @param {Node} node */
  const kindOf = node => `${node.nodeName} ${keyOf(node)}`;
  for (const node of shown.childNodes) {
    const kind = kindOf(node);
    const others = unmatched.get(kind);
    if (others) others.push(node);
    else unmatched.set(kind, [node]);
  }
  const wanted = [...fresh.childNodes].map(node => ({ node, match: unmatched.get(kindOf(node))?.shift() }));
  for (const nodes of unmatched.values()) for (const node of nodes) shown.removeChild(node);
  let next = shown.firstChild;
  for (const { node, match } of wanted) {
    if (!match) shown.insertBefore(node, next);
    else if (match === next) next = next.nextSibling;
    else move(shown, match, next);
    if (match instanceof Element && node instanceof Element) morph(match, node);
    else if (match && match.nodeValue !== node.nodeValue) match.nodeValue = node.nodeValue;
  }
}

/**
 * Moves a child. Where the browser can, its focus and its scroll positions move along.
 * @param {Element} parent
 * @param {Node} child
 * @param {Node | null} before
 */
function move(parent, child, before) {
  if (typeof parent.moveBefore === 'function') parent.moveBefore(child, before);
  else parent.insertBefore(child, before);
}

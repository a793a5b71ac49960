// Fills a row of the log with text and elements: colours become classes, web addresses become links. Never uses markup
// from the log.

/** @import { Line, Run } from './types.ts' */
import { classOf } from './log-colours.js';

const address = /https?:\/\/[^\s<>"'`\x00-\x1f]+/g;

/**
 * @param {HTMLElement} row
 * @param {Line} line
 */
export function fill(row, { text, runs }) {
  if (!runs && !text.includes('://')) row.textContent = text;
  else row.replaceChildren(...(runs ?? [{ text, style: undefined }]).flatMap(renderRun));
}

/**
 * @param {Run} run
 * @returns {(string | Node)[]}
 */
function renderRun({ text, style }) {
  const nodes = style?.link ? [renderLink(style.link, text)] : withLinks(text);
  const name = style && classOf(style);
  if (!name) return nodes;
  const span = document.createElement('span');
  span.className = name;
  span.append(...nodes);
  return [span];
}

/**
 * The text, with a link for every web address in it.
 * @param {string} text
 */
function withLinks(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(address)) {
    const found = trim(match[0]);
    nodes.push(text.slice(from, match.index), renderLink(found, found));
    from = match.index + found.length;
  }
  nodes.push(text.slice(from));
  return nodes.filter(node => node !== '');
}

/**
 * Without the punctuation that ends a sentence, and without a bracket that closes around the address.
 * @param {string} found
 */
function trim(found) {
  let kept = found.replace(/[.,;:!?]+$/, '');
  for (const [open = '', close = ''] of ['()', '[]', '{}'])
    while (kept.endsWith(close) && kept.split(close).length > kept.split(open).length)
      kept = kept.slice(0, -1).replace(/[.,;:!?]+$/, '');
  return kept;
}

/**
 * @param {string} href
 * @param {string} text
 */
function renderLink(href, text) {
  const url = URL.parse(href);
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') return document.createTextNode(text);
  const link = document.createElement('a');
  link.href = url.href;
  link.textContent = text;
  link.target = '_blank';
  link.rel = 'noopener noreferrer';
  return link;
}

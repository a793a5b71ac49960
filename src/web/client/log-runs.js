// What was printed on a line as text and elements: colours as classes, web addresses as links. Never as markup.

import { classOf } from './log-colours.js';

const address = /https?:\/\/[^\s<>"'`\x00-\x1f]+/g;

export function fill(row, { text, runs }) {
  if (!runs && !text.includes('://')) row.textContent = text;
  else row.replaceChildren(...(runs ?? [{ text, style: undefined }]).flatMap(renderRun));
}

function renderRun({ text, style }) {
  const parts = style?.link ? [renderLink(style.link, text)] : withLinks(text);
  const name = style && classOf(style);
  if (!name) return parts;
  const span = document.createElement('span');
  span.className = name;
  span.append(...parts);
  return [span];
}

/** Text and elements: every web address in it a link. */
function withLinks(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(address)) {
    const found = trim(match[0]);
    parts.push(text.slice(from, match.index), renderLink(found, found));
    from = match.index + found.length;
  }
  parts.push(text.slice(from));
  return parts.filter(part => part !== '');
}

/** What ends a sentence or closes a bracket around an address is no part of it. */
function trim(found) {
  let kept = found.replace(/[.,;:!?]+$/, '');
  for (const [open, close] of ['()', '[]', '{}'])
    while (kept.endsWith(close) && kept.split(close).length > kept.split(open).length)
      kept = kept.slice(0, -1).replace(/[.,;:!?]+$/, '');
  return kept;
}

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

// The parts of a page that are marked `data-live`, as client/project.js requests them after a change. What the browser
// has already is left out, so that an open page costs little while builds run.

import { createHash } from 'node:crypto';

/**
 * The live parts of a rendered page. A part, or a live part inside of it, whose hash is among `known` becomes an empty
 * element with `data-same`; the others get their hash as `data-hash`.
 */
export function renderLiveParts(page: string, known: ReadonlySet<string>): string {
  const parts: string[] = [];
  mapLiveParts(page, part => {
    const text = renderPart(part, known);
    parts.push(text);
    return text;
  });
  return parts.join('\n');
}

type Part = { tag: string; attributes: string; content: string };

function renderPart({ tag, attributes, content }: Part, known: ReadonlySet<string>): string {
  const hash = hashOf(attributes + content);
  if (known.has(hash)) return `<${tag}${attributes} data-same></${tag}>`;
  return `<${tag}${attributes} data-hash="${hash}">${mapLiveParts(content, part => renderPart(part, known))}</${tag}>`;
}

/**
 * Without what is different in every response: the words of a relative time, which the browser keeps current, and the
 * tokens of forms, of which every one stays valid.
 */
const hashOf = (text: string) =>
  createHash('sha1')
    .update(text.replaceAll(/(<time [^>]*>)[^<]*|(name="csrf" value=")[^"]*/g, '$1$2'))
    .digest('base64url')
    .slice(0, 8);

/** Values are escaped: neither quotes nor angle brackets occur in one. */
const openTag =
  /<([a-z][a-z0-9]*)((?:\s+[a-z][a-z-]*(?:="[^"]*")?)*\s+data-live(?:\s+[a-z][a-z-]*(?:="[^"]*")?)*)>/g;

/** Replaces each outermost live part of `text` by what `replace` returns for it. */
function mapLiveParts(text: string, replace: (part: Part) => string): string {
  let mapped = '';
  let from = 0;
  openTag.lastIndex = 0;
  for (let open = openTag.exec(text); open; openTag.lastIndex = from, open = openTag.exec(text)) {
    const [whole, tag = '', attributes = ''] = open;
    const begin = open.index + whole.length;
    const end = endOf(text, tag, begin);
    mapped += text.slice(from, open.index) + replace({ tag, attributes, content: text.slice(begin, end) });
    from = end + tag.length + 3;
  }
  return mapped + text.slice(from);
}

/** Where the closing tag of an element begins whose content begins at `from`. */
function endOf(text: string, tag: string, from: number): number {
  const tags = new RegExp(`<(/?)${tag}[\\s>]`, 'g');
  tags.lastIndex = from;
  let depth = 1;
  for (let found = tags.exec(text); found; found = tags.exec(text)) {
    depth += found[1] === '/' ? -1 : 1;
    if (depth === 0) return found.index;
  }
  throw new Error(`<${tag} data-live> has no end`);
}

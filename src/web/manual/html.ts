// Renders a topic of the manual as HTML. Raw HTML in the Markdown is shown as text.

import { raw } from 'hono/html';
import { Marked, type Tokens } from 'marked';
import { escapeHtml } from '../frame/escape-html.ts';
import type { Html } from '../frame/visit.ts';
import { plainText, type Topic, targetOf } from './manual.ts';

const rendered = new Map<string, Html>();

/** Everything below the title. */
export function renderTopic(topic: Topic): Html {
  const known = rendered.get(topic.name) ?? raw(render(topic));
  rendered.set(topic.name, known);
  return known;
}

export function render(topic: Topic): string {
  let headings = 0;
  const marked = new Marked({
    renderer: {
      html: ({ text }) => escapeHtml(text),
      image: ({ text }) => escapeHtml(text),
      heading({ tokens, depth }) {
        const { id } = topic.sections[headings] as Topic['sections'][number];
        headings += 1;
        if (depth === 1) return '';
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)} <a class="anchor" href="#${id}" aria-label="Link to ${escapeHtml(plainText(tokens))}">#</a></h${depth}>\n`;
      },
      code: ({ text }) =>
        `<div class="copy"><pre class="copy-text"><code>${escapeHtml(text)}</code></pre><button class="button plain" type="button" data-copy hidden>Copy</button></div>\n`,
      link({ href, tokens }) {
        return `<a href="${escapeHtml(hrefOf(href))}">${this.parser.parseInline(tokens)}</a>`;
      },
      table({ header, rows }) {
        // One element, because on a narrow screen a cell is laid out as a label and this element.
        const inline = (cell: Tokens.TableCell) => `<span>${this.parser.parseInline(cell.tokens)}</span>`;
        const labels = header.map(cell => escapeHtml(plainText(cell.tokens)));
        const columns = header.map(cell => `<th role="columnheader" scope="col">${inline(cell)}</th>`);
        const lines = rows.map(row => {
          const cells = row.map((cell, at) =>
            at === 0
              ? `<th role="rowheader" scope="row" data-label="${labels[at]}">${inline(cell)}</th>`
              : `<td role="cell" data-label="${labels[at]}">${inline(cell)}</td>`,
          );
          return `<tr role="row">${cells.join('')}</tr>`;
        });
        return `<table class="cards" role="table"><thead role="rowgroup"><tr role="row">${columns.join('')}</tr></thead><tbody role="rowgroup">${lines.join('')}</tbody></table>\n`;
      },
    },
  });
  return marked.parser([...topic.tokens]);
}

function hrefOf(href: string): string {
  const { topic, id, path } = targetOf(href);
  return path ?? `${topic === undefined ? '' : `/ui/manual/${topic}`}${id === undefined ? '' : `#${id}`}`;
}

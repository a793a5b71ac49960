// A topic of the manual as plain text, wrapped to the width of the terminal.

import type { MarkedToken, Token, Tokens } from 'marked';
import { findTopic, plainText, type Topic, targetOf } from '../web/manual/manual.ts';

type Style = { columns: number; isBold: boolean };

export const printTopic = (name: string, style: Style) => renderText(findTopic(name) as Topic, style);

export function renderText(topic: Topic, style: Style): string {
  const blocks = (topic.tokens as MarkedToken[]).flatMap(token => renderBlock(token, 2, topic, style));
  return `${blocks.join('\n\n')}\n`;
}

/** Each block is some lines, which a blank line separates from the next block. */
function renderBlock(token: MarkedToken, indent: number, topic: Topic, style: Style): string[] {
  const bold = (text: string) => (style.isBold ? text.replaceAll(/\S+/g, '\x1b[1m$&\x1b[0m') : text);
  const inline = (tokens: readonly Token[]) => renderInline(tokens, topic, bold);
  const wrapped = (text: string, by = indent, mark = '') => wrap(text, style.columns, by, mark);
  switch (token.type) {
    case 'heading':
      return [wrap(bold(plainText(token.tokens)), style.columns, token.depth > 2 ? indent : 0, '')];
    case 'paragraph':
      return [wrapped(inline(token.tokens))];
    case 'code':
      return [token.text.replaceAll(/^(?=.)/gm, ' '.repeat(indent + 2))];
    case 'list':
      return [
        token.items
          .map((item, at) => {
            const mark = token.ordered ? `${Number(token.start || 1) + at}. ` : '- ';
            return renderItem(item, mark, indent, topic, style, inline);
          })
          .join('\n'),
      ];
    case 'table':
      return [token.rows.map(row => renderRow(row, token.header, indent, style, inline, bold)).join('\n')];
    case 'blockquote':
      return (token.tokens as MarkedToken[]).flatMap(one => renderBlock(one, indent + 2, topic, style));
    default:
      return [];
  }
}

type Inline = (tokens: readonly Token[]) => string;

function renderItem(
  item: Tokens.ListItem,
  mark: string,
  indent: number,
  topic: Topic,
  style: Style,
  inline: Inline,
): string {
  const [first, ...rest] = item.tokens as MarkedToken[];
  const text = first && 'tokens' in first && first.tokens ? inline(first.tokens) : item.text;
  const below = rest.flatMap(one => renderBlock(one, indent + mark.length, topic, style));
  return [wrap(text, style.columns, indent + mark.length, mark), ...below].join('\n');
}

/** A row is its first cell, with the others below it: it fits a terminal of any width. */
function renderRow(
  row: readonly Tokens.TableCell[],
  header: readonly Tokens.TableCell[],
  indent: number,
  style: Style,
  inline: Inline,
  bold: (text: string) => string,
): string {
  const [name, ...others] = row.map(({ tokens }) => inline(tokens));
  const lines = others.flatMap((text, at) => {
    if (text === '') return [];
    const label = others.length > 1 ? `${plainText(header[at + 1]?.tokens ?? [])}: ` : '';
    return [wrap(label + text, style.columns, indent + 4, '')];
  });
  return [wrap(bold(name ?? ''), style.columns, indent, ''), ...lines].join('\n');
}

function renderInline(tokens: readonly Token[], topic: Topic, bold: (text: string) => string): string {
  return (tokens as MarkedToken[])
    .map(token => {
      switch (token.type) {
        case 'strong':
          return bold(renderInline(token.tokens, topic, text => text));
        case 'codespan':
          return `\`${token.text}\``;
        case 'link': {
          const text = renderInline(token.tokens, topic, bold);
          const { topic: name, path } = targetOf(token.href);
          if (path !== undefined) return `${text} (${path})`;
          return name === undefined || name === topic.name ? text : `${text} (assay help ${name})`;
        }
        case 'br':
          return ' ';
        default:
          if ('tokens' in token && token.tokens) return renderInline(token.tokens, topic, bold);
          return 'text' in token ? token.text : '';
      }
    })
    .join('');
}

/** Wraps text to `columns`, indented, with `mark` before the first line. A word that is too long gets its own line. */
function wrap(text: string, columns: number, indent: number, mark: string): string {
  const lengthOf = (word: string) => word.replaceAll(/\x1b\[\d+m/g, '').length;
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/).filter(Boolean))
    if (line !== '' && indent + lengthOf(line) + 1 + lengthOf(word) > columns) {
      lines.push(line);
      line = word;
    } else line += line === '' ? word : ` ${word}`;
  lines.push(line);
  return lines.map((one, at) => (at === 0 ? mark.padStart(indent) : ' '.repeat(indent)) + one).join('\n');
}

// Collects every text that users can see on pages, in errors and in results, from the strings and templates of the sources.
// Run as a script, it prints them as one list, to be read as texts alone: node test/support/texts.ts [PATH]
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export type Text = { file: string; line: number; text: string };

const root = join(import.meta.dirname, '../..');
const SOURCES = ['src/{web,domain,contract,work,api}/**/*.ts', 'src/web/client/*.js'];
const MANUAL = 'src/web/manual/*.md';

/** A slash after one of these starts a regular expression. */
const beforeRegex = /(?:^|[(,=:[!&|?{};>+]|\breturn)\s*$/;

type Literal = { at: number; text: string };

/** The strings and templates of a source file. An expression in a template becomes "…". */
export function literalsOf(source: string): Literal[] {
  const found: Literal[] = [];
  let at = 0;
  const skipTo = (end: string) => {
    const next = source.indexOf(end, at);
    at = next < 0 ? source.length : next + end.length;
  };
  const readString = (quote: string) => {
    const start = at;
    let text = '';
    for (at += 1; source[at] !== quote && at < source.length; at += 1)
      text += source[at] === '\\' ? unescaped(source[++at] ?? '') : source[at];
    at += 1;
    found.push({ at: start, text });
  };
  const readTemplate = () => {
    const start = at;
    let text = '';
    at += 1;
    while (source[at] !== '`' && at < source.length)
      if (source.startsWith('${', at)) {
        at += 2;
        readCode('}');
        text += '…';
      } else if (source[at] === '\\') {
        text += unescaped(source[at + 1] ?? '');
        at += 2;
      } else text += source[at++];
    at += 1;
    found.push({ at: start, text });
  };
  const skipRegex = () => {
    let isInClass = false;
    for (at += 1; at < source.length && (isInClass || source[at] !== '/'); at += 1)
      if (source[at] === '\\') at += 1;
      else if (source[at] === '[') isInClass = true;
      else if (source[at] === ']') isInClass = false;
    at += 1;
  };
  /** Reads until the bracket that closes an expression in a template, or the end of the file. */
  const readCode = (end?: string) => {
    let depth = 0;
    while (at < source.length) {
      const character = source[at] as string;
      if (character === end && depth === 0) {
        at += 1;
        return;
      }
      if (character === '{') depth += 1;
      if (character === '}') depth -= 1;
      if (source.startsWith('//', at)) skipTo('\n');
      else if (source.startsWith('/*', at)) skipTo('*/');
      else if (character === "'" || character === '"') readString(character);
      else if (character === '`') readTemplate();
      else if (character === '/' && beforeRegex.test(source.slice(Math.max(0, at - 20), at))) skipRegex();
      else at += 1;
    }
  };
  readCode();
  return found;
}

const unescaped = (character: string) => ({ n: '\n', t: '\t' })[character] ?? character;

/** Attributes whose value people read. */
const spoken =
  /(?:aria-label|title|placeholder|alt|data-confirm|data-empty|data-again-empty|label)="([^"]*)"/g;

/** The text of a literal as people read it: without tags, but with the attributes that are read. */
function readable(literal: string): string[] {
  const attributes = [...literal.matchAll(spoken)].map(([, text = '']) => text);
  const text = literal.replaceAll(/<\/?[a-z][^>]*>/gi, ' ').replaceAll(/&(?:amp|lt|gt|quot);/g, '&');
  return [...text.split('\n'), ...attributes].map(one => one.replaceAll(/\s+/g, ' ').trim());
}

const isText = (text: string) =>
  /\p{L}{2}/u.test(text) && (/\p{L} \S|\S… | …\p{L}/u.test(text) || /^\p{Lu}\p{L}+[.:…]?$/u.test(text));
const isCode = /^[\w./:@-]+$|[<>={}]|^(?:SELECT|UPDATE|INSERT|DELETE|ALTER|CREATE)\b|=>/;

export function collectTexts(...patterns: readonly string[]): Text[] {
  const files = globSync(patterns.length > 0 ? patterns : SOURCES, { cwd: root }).sort();
  return files.flatMap(file => {
    const source = readFileSync(join(root, file), 'utf8');
    return literalsOf(source).flatMap(({ at, text }) =>
      readable(text)
        .filter(one => isText(one) && !(isCode.test(one) && !/^\p{Lu}/u.test(one)))
        .map(one => ({ file, line: source.slice(0, at).split('\n').length, text: one })),
    );
  });
}

/** The lines of the manual, whose words people read on pages as well. */
export function collectManual(): Text[] {
  return globSync(MANUAL, { cwd: root })
    .sort()
    .flatMap(file =>
      readFileSync(join(root, file), 'utf8')
        .split('\n')
        .map((text, at) => ({ file, line: at + 1, text })),
    );
}

if (import.meta.main)
  for (const { file, line, text } of collectTexts(...process.argv.slice(2)))
    process.stdout.write(`${file}:${line}\t${text}\n`);

// Which lines of a log report an error, and which of them are kept to recognise the failure of a build later.

import { createHash } from 'node:crypto';
import { normaliseLine } from './failure-line.ts';
import { removeEscapes } from './log-query.ts';

/** How many lines are kept of a build. */
export const MAX_ERROR_LINES = 20;
const MAX_TEXT = 500;
/** A shorter line, such as `FAILED`, says nothing. */
const MIN_NORMALISED = 10;

/** Not as a part of a file name, an option or a longer word. */
const word = (words: string) => `(?<![-_/.\\w])(?:${words})(?![-_/\\w]|\\.\\w)`;
const WORDS = new RegExp(
  [
    word('errors?|fail(?:ed|ures?|ing)?|fatal|panic(?:ked)?|exception|traceback|assertion|aborted'),
    word('segmentation fault|core dumped|undefined reference|not ok|permission denied|connection refused'),
    word('no such file or directory|command not found|cannot find|timed out|out of memory|no space left'),
    '[✗✕✖✘]',
  ].join('|'),
  'i',
);
/** Class names, such as TypeError. */
const CLASSES = /[A-Z]\w*(?:Error|Exception)\b/;
const HARMLESS = [
  // Counts of nothing.
  /\b(?:0|no|zero|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?|ing)?)\b/i,
  /\b(?:errors?|fail(?:ed|ures?|ing)?)(?:\s*[:=]\s*|\s+)0\b/i,
  // What passed, lines of the service, and commands that a shell prints.
  /^\s*(?:[✓✔]|ok\b|pass(?:ed)?\b|\[assay\]|\+ )/i,
  /\bwarning\b/i,
];

export const isErrorLine = (text: string): boolean =>
  (WORDS.test(text) || CLASSES.test(text)) && !HARMLESS.some(pattern => pattern.test(text));

/** `line` counts from 1; 0 if the text is not from the log. */
export type ErrorLine = { line: number; text: string; hash: Buffer };

/** Undefined if the line says too little to recognise a failure by it. */
export function toErrorLine(text: string, line: number): ErrorLine | undefined {
  const shown = removeEscapes(text)
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '')
    .trim();
  const normalised = normaliseLine(shown);
  if (normalised.length < MIN_NORMALISED) return undefined;
  const hash = createHash('sha256').update(normalised).digest().subarray(0, 16);
  return { line, text: shown.slice(0, MAX_TEXT).toWellFormed(), hash };
}

/** Keeps the first and the last of many error lines, each once. */
export function createErrorLines(limit = MAX_ERROR_LINES) {
  const first = new Map<string, ErrorLine>();
  const last = new Map<string, ErrorLine>();
  const half = Math.ceil(limit / 2);
  return {
    add(found: ErrorLine): void {
      const key = found.hash.toString('latin1');
      if (first.has(key) || last.has(key)) return;
      if (first.size < half) first.set(key, found);
      else {
        last.set(key, found);
        const [oldest] = last.keys();
        if (last.size > limit - half && oldest !== undefined) last.delete(oldest);
      }
    },
    list: (): ErrorLine[] => [...first.values(), ...last.values()],
  };
}

// Renders the badge of a project as SVG.

import { describeCounts, type TestCounts } from '../domain/result/test-result.ts';

const colours: Record<string, string> = {
  passed: '#2da44e',
  failed: '#cf222e',
  errored: '#9a6700',
  canceled: '#6e7781',
  skipped: '#6e7781',
};

const LABEL = 'assay';
const LETTER_WIDTH = 6.6;
const PADDING = 12;

/** `tests` counts them, for the tooltip. */
export function renderBadge(state: string, tests?: TestCounts): string {
  const left = Math.round(LABEL.length * LETTER_WIDTH + PADDING);
  const right = Math.round(state.length * LETTER_WIDTH + PADDING);
  const title = `${LABEL}: ${state}${tests ? `, ${describeCounts(tests)}` : ''}`;
  const text = (x: number, words: string, length: number) =>
    `<text x="${x}" y="14" textLength="${length}" fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">${words}</text>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${left + right}" height="20" role="img" aria-label="${title}">`,
    `<title>${title}</title>`,
    `<rect width="${left}" height="20" fill="#424a53"/>`,
    `<rect x="${left}" width="${right}" height="20" fill="${colours[state] ?? '#6e7781'}"/>`,
    text(left / 2, LABEL, left - PADDING),
    text(left + right / 2, state, right - PADDING),
    '</svg>',
  ].join('');
}

// How a step of a build begins in its log: with a line of the service, which src/work/suite-job.ts writes.

export const SERVICE_LINE = '[assay] ';
export const STEP_LINES = ['checkout of ', 'launch ', 'suite '].map(text => SERVICE_LINE + text);
export const LONGEST_STEP = Math.max(...STEP_LINES.map(text => text.length));

/** Where the last step begins in a piece of a log. -1 if none begins in it, after the end of another line. */
export function lastStepIn(piece: Buffer): number {
  for (let at = piece.lastIndexOf(`\n${SERVICE_LINE}`); at !== -1; ) {
    const start = at + 1;
    const text = piece.toString('latin1', start, start + LONGEST_STEP);
    if (STEP_LINES.some(step => text.startsWith(step))) return start;
    at = at === 0 ? -1 : piece.lastIndexOf(`\n${SERVICE_LINE}`, at - 1);
  }
  return -1;
}

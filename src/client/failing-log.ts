// The end of a failed build's log: what its last step printed, at most some hundred lines.

import { readBytes } from './connection.ts';
import type { ProjectSession } from './session.ts';

const MAX_LINES = 200;
/** Lines may be long. */
const MAX_BYTES = 256 << 10;
/** How a step begins in a log. */
const STEP = /^\[assay\] (?:checkout of|launch|suite) /gm;

export type LogEnd = {
  bytes: Uint8Array;
  /** Whether the log has more lines, before these. */
  isCut: boolean;
};

export async function readLogEnd({ connection }: ProjectSession, logPath: string): Promise<LogEnd> {
  const response = await connection.open('GET', logPath, { headers: { range: `bytes=-${MAX_BYTES}` } });
  const [, start = '0'] = /^bytes (\d+)-/.exec(response.headers['content-range'] ?? '') ?? [];
  return endOf(await readBytes(response), start !== '0');
}

/** The last step, and of it the last lines. */
export function endOf(log: Buffer, hasMore: boolean): LogEnd {
  // Each byte is one character, so that what is kept stays as it is.
  const text = log.toString('latin1');
  const stepAt = [...text.matchAll(STEP)].at(-1)?.index;
  let from = stepAt ?? (hasMore ? text.indexOf('\n') + 1 : 0);
  let at = text.endsWith('\n') ? text.length - 1 : text.length;
  for (let lines = 0; lines < MAX_LINES && at >= from; lines += 1) at = text.lastIndexOf('\n', at - 1);
  if (at >= from) from = at + 1;
  return { bytes: log.subarray(from), isCut: hasMore || from > 0 };
}

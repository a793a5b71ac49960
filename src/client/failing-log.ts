// The end of a failed build's log: what its last step printed, at most some hundred lines.

import { lastStepIn } from '../domain/result/log-step.ts';
import { readBytes } from './connection.ts';
import type { ProjectSession } from './session.ts';

const MAX_LINES = 200;
/** Lines may be long. */
const MAX_BYTES = 256 << 10;
const NEWLINE = 0x0a;

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
  const stepAt = lastStepIn(log);
  let from = stepAt === -1 ? (hasMore ? log.indexOf(NEWLINE) + 1 : 0) : stepAt;
  let at = log.at(-1) === NEWLINE ? log.length - 1 : log.length;
  let lines = 0;
  for (; lines < MAX_LINES && at > from; lines += 1) at = log.lastIndexOf(NEWLINE, at - 1);
  if (lines === MAX_LINES && at >= from) from = at + 1;
  return { bytes: log.subarray(from), isCut: hasMore || from > 0 };
}

// Prints the log of a build or of a compile: as it is or line by line, whole or while it grows.

import type { Connection } from './connection.ts';
import { followEvents } from './event-stream.ts';
import { write } from './output.ts';

const NEWLINE = 0x0a;

/** Prints pieces of a log, which begin at an offset in it. */
export type LogPrinter = {
  print(bytes: Buffer, offset: number): Promise<void>;
  /** Prints a last line that has no end. */
  end(): Promise<void>;
};

export const plainPrinter: LogPrinter = { print: bytes => write(bytes), end: async () => {} };

/** `format` gets a line with its end, and its offset in the log. */
export function linePrinter(format: (line: Buffer, offset: number) => string | Buffer): LogPrinter {
  let kept: Buffer = Buffer.alloc(0);
  let keptAt = 0;
  return {
    async print(bytes, offset) {
      if (kept.length === 0) keptAt = offset;
      kept = kept.length === 0 ? bytes : Buffer.concat([kept, bytes]);
      const lines: Buffer[] = [];
      let start = 0;
      for (let at = kept.indexOf(NEWLINE); at !== -1; at = kept.indexOf(NEWLINE, start)) {
        const line = format(kept.subarray(start, at + 1), keptAt + start);
        lines.push(typeof line === 'string' ? Buffer.from(line) : line);
        start = at + 1;
      }
      kept = Buffer.from(kept.subarray(start));
      keptAt += start;
      if (lines.length > 0) await write(Buffer.concat(lines));
    },
    async end() {
      if (kept.length > 0) await write(format(kept, keptAt));
    },
  };
}

/** A line of a log as the text of a record. */
export const textOfLine = (line: Buffer) => line.toString('utf8').replace(/\r?\n$/, '');

/** Follows a firehose with a log to its end, and returns the last record. */
export async function followLog<LoggedRecord>(
  connection: Connection,
  path: string,
  printer: LogPrinter | undefined,
  onState: (record: LoggedRecord) => void = () => {},
): Promise<LoggedRecord> {
  let printed = 0;
  const events = followEvents(connection, path, {
    onInterrupted: () => process.stderr.write('assay: connection lost, trying again\n'),
    onResumed: () => process.stderr.write('assay: connected again\n'),
  });
  for await (const { event, data } of events) {
    if (event === 'log') {
      const { offset, text } = JSON.parse(data) as { offset: number; text: string };
      const bytes = Buffer.from(text);
      // A server that was killed may have lost the end of the log. It sends it again.
      const skipped = Math.min(bytes.length, Math.max(0, printed - offset));
      await printer?.print(bytes.subarray(skipped), offset + skipped);
      printed = Math.max(printed, offset + bytes.length);
    } else if (event === 'state') onState(JSON.parse(data) as LoggedRecord);
    else if (event === 'end') {
      await printer?.end();
      return JSON.parse(data) as LoggedRecord;
    }
  }
  throw new Error('the firehose ended before the log');
}

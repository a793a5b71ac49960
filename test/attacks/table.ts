// A table of attacks: each row is a test of its own. How many there are of each kind, and how many came to what they
// must, is said at the end: of this file, or of the whole run where ATTACK_COUNTS names the file to gather it in.
import { appendFileSync } from 'node:fs';
import { basename } from 'node:path';
import { describe, test } from 'node:test';
import { type Count, tableOf } from './count.ts';

const counts: Count[] = [];
const file = basename(process.argv[1] as string, '.test.ts');
process.on('exit', () => {
  const { ATTACK_COUNTS } = process.env;
  if (ATTACK_COUNTS)
    appendFileSync(ATTACK_COUNTS, counts.map(count => `${JSON.stringify(count)}\n`).join(''));
  else process.stdout.write(tableOf(counts));
});

/** `judge` carries a row's attack out and asserts what it must come to. */
export function attacks<Row>(
  kind: string,
  table: Readonly<Record<string, Row>> | readonly Row[],
  judge: (row: Row, name: string) => Promise<void> | void,
  { concurrency = 1, skip }: { concurrency?: number; skip?: string | undefined } = {},
): void {
  const entries = Array.isArray(table)
    ? table.map((row): [string, Row] => [JSON.stringify(row).slice(0, 120), row])
    : Object.entries(table as Record<string, Row>);
  const count = { file, kind, rows: skip ? 0 : entries.length, asRequired: 0 };
  counts.push(count);
  describe(kind, { concurrency, skip: skip ?? false }, () => {
    for (const [name, row] of entries)
      test(name, async () => {
        await judge(row, name);
        count.asRequired += 1;
      });
  });
}

// Runs a table of attacks, each row as a test. Reports how many attacks of each kind there are and how many were
// blocked: at the end of the file, or in the file that ATTACK_COUNTS names.
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

/** `attack` runs the attack of a row and asserts that it is blocked. */
export function attacks<Row>(
  kind: string,
  table: Readonly<Record<string, Row>> | readonly Row[],
  attack: (row: Row, name: string) => Promise<void> | void,
  { concurrency = 1, skip }: { concurrency?: number; skip?: string | undefined } = {},
): void {
  const entries = Array.isArray(table)
    ? table.map((row): [string, Row] => [JSON.stringify(row).slice(0, 120), row])
    : Object.entries(table as Record<string, Row>);
  const count = { file, kind, rows: skip ? 0 : entries.length, blocked: 0 };
  counts.push(count);
  describe(kind, { concurrency, skip: skip ?? false }, () => {
    for (const [name, row] of entries)
      test(name, async () => {
        await attack(row, name);
        count.blocked += 1;
      });
  });
}

// A table of attacks: each row is a test of its own, and the number of rows is said at the end of the file.
import { after, describe, test } from 'node:test';

let rows = 0;
after(() => process.stdout.write(`${rows} attacks\n`));

/** `judge` carries a row's attack out and asserts what it must come to. */
export function attacks<Row>(
  title: string,
  table: Readonly<Record<string, Row>> | readonly Row[],
  judge: (row: Row, name: string) => Promise<void> | void,
  { concurrency = 1, skip }: { concurrency?: number; skip?: string | undefined } = {},
): void {
  const entries = Array.isArray(table)
    ? table.map((row): [string, Row] => [JSON.stringify(row).slice(0, 120), row])
    : Object.entries(table as Record<string, Row>);
  describe(title, { concurrency, skip: skip ?? false }, () => {
    for (const [name, row] of entries) {
      rows += 1;
      test(name, () => judge(row, name));
    }
  });
}

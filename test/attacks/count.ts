// Formats the number of attacks: a line for each kind, grouped by file, and the total. Run directly, it prints the
// counts that a whole test run collected: `node test/attacks/count.ts FILE`.
import { readFileSync } from 'node:fs';

export type Count = { file: string; kind: string; rows: number; blocked: number };

export function tableOf(counts: readonly Count[]): string {
  const sum = (of: 'rows' | 'blocked') => counts.reduce((total, count) => total + count[of], 0);
  const lines: string[][] = [['attack', 'rows', 'blocked']];
  let heading = '';
  for (const { file, kind, rows, blocked } of counts.toSorted((a, b) => a.file.localeCompare(b.file))) {
    if (file !== heading) lines.push([file]);
    heading = file;
    lines.push([`  ${kind}`, String(rows), String(blocked)]);
  }
  lines.push(['all', String(sum('rows')), String(sum('blocked'))]);
  const width = Math.max(...lines.map(([kind = '']) => kind.length));
  return lines
    .map(([kind = '', rows = '', blocked = '']) =>
      `${kind.padEnd(width)}  ${rows.padStart(5)}  ${blocked.padStart(7)}`.trimEnd().concat('\n'),
    )
    .join('');
}

if (import.meta.main) {
  const gathered = readFileSync(process.argv[2] as string, 'utf8')
    .split('\n')
    .filter(Boolean);
  process.stdout.write(tableOf(gathered.map(line => JSON.parse(line) as Count)));
}

// The count of attacks as people read it: a line for each kind, by the file that holds them, and all of them together.
// Run by itself it shows what the files of a whole run gathered: `node test/attacks/count.ts FILE`.
import { readFileSync } from 'node:fs';

export type Count = { file: string; kind: string; rows: number; asRequired: number };

export function tableOf(counts: readonly Count[]): string {
  const sum = (of: 'rows' | 'asRequired') => counts.reduce((total, count) => total + count[of], 0);
  const lines: string[][] = [['attack', 'rows', 'as required']];
  let heading = '';
  for (const { file, kind, rows, asRequired } of counts.toSorted((a, b) => a.file.localeCompare(b.file))) {
    if (file !== heading) lines.push([file]);
    heading = file;
    lines.push([`  ${kind}`, String(rows), String(asRequired)]);
  }
  lines.push(['all', String(sum('rows')), String(sum('asRequired'))]);
  const width = Math.max(...lines.map(([kind = '']) => kind.length));
  return lines
    .map(([kind = '', rows = '', asRequired = '']) =>
      `${kind.padEnd(width)}  ${rows.padStart(5)}  ${asRequired.padStart(11)}`.trimEnd().concat('\n'),
    )
    .join('');
}

if (import.meta.main) {
  const gathered = readFileSync(process.argv[2] as string, 'utf8')
    .split('\n')
    .filter(Boolean);
  process.stdout.write(tableOf(gathered.map(line => JSON.parse(line) as Count)));
}

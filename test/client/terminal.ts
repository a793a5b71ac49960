// What a terminal shows after a program has written to it: enough of its control sequences for the client.

/** The lines at the end, without colours and without space at their ends. */
export function renderTerminal(written: string): string[] {
  const lines: string[][] = [[]];
  let row = 0;
  let column = 0;
  const lineAt = (at: number): string[] => {
    while (lines.length <= at) lines.push([]);
    return lines[at] as string[];
  };
  for (const [token = '', count, command] of written.matchAll(/\x1b\[\??(\d*)(?:;\d+)*([A-Za-z])|./gsu))
    if (command === 'A') row = Math.max(0, row - Number(count || 1));
    else if (command === 'K') lineAt(row).length = Math.min(lineAt(row).length, column);
    else if (command === 'J') {
      lineAt(row).length = Math.min(lineAt(row).length, column);
      lines.length = row + 1;
    } else if (command !== undefined || token === '\x07') continue;
    else if (token === '\r') column = 0;
    else if (token === '\n') {
      row += 1;
      lineAt(row);
    } else {
      const line = lineAt(row);
      while (line.length < column) line.push(' ');
      line[column++] = token;
    }
  return lines.map(line => line.join('').trimEnd());
}

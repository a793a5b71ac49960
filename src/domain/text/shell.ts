// Quoting for POSIX shells.

export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

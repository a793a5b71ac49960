// Requests for a part of a response, and conditional requests.

export type ByteRange = { start: number; end: number };

/** A single satisfiable range of bytes; undefined for anything else: then the response is the whole. */
export function readRange(header: string | null, size: number): ByteRange | undefined {
  const range = readAnyRange(header, size);
  return range && range.start <= range.end && range.start < size ? range : undefined;
}

/** Whether the request asks for a single range that begins after the end. */
export function isBeyondEnd(header: string | null, size: number): boolean {
  return readAnyRange(header, size) !== undefined && readRange(header, size) === undefined;
}

function readAnyRange(header: string | null, size: number): ByteRange | undefined {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/i.exec(header?.trim() ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  // A range that ends before it begins is not one, and is ignored.
  if (first !== '' && last !== '' && Number(last) < Number(first)) return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return { start, end };
}

/** Whether the client has the response with this ETag already. */
export function isNotModified({ headers }: Request, etag: string): boolean {
  const sent = headers.get('if-none-match');
  if (sent === null) return false;
  const plain = (tag: string) => tag.trim().replace(/^W\//, '');
  return sent.trim() === '*' || sent.split(',').some(tag => plain(tag) === plain(etag));
}

/** The Range header; null if it applies only to another version of the response (If-Range). */
export function rangeFor({ headers }: Request, etag: string): string | null {
  const condition = headers.get('if-range');
  return condition === null || condition.trim() === etag ? headers.get('range') : null;
}

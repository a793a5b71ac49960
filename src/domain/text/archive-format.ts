// Tells an archive by its first bytes, never by its name. Whether it is whole is left to the compile that unpacks it.

export type ArchiveFormat = 'tar' | 'gzip' | 'bzip2' | 'xz' | 'zstd' | 'zip';
export type DetectedFormat = { format: ArchiveFormat; contentType: string };

/** As many bytes as a tar's header has: with fewer a tar is not told. */
export const detectionBytes = 512;

const magics: { format: ArchiveFormat; contentType: string; magic: number[] }[] = [
  { format: 'gzip', contentType: 'application/gzip', magic: [0x1f, 0x8b, 0x08] },
  { format: 'xz', contentType: 'application/x-xz', magic: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00] },
  { format: 'zstd', contentType: 'application/zstd', magic: [0x28, 0xb5, 0x2f, 0xfd] },
  { format: 'zip', contentType: 'application/zip', magic: [0x50, 0x4b, 0x03, 0x04] },
];

export function detectFormat(firstBytes: Buffer): DetectedFormat | undefined {
  const found = magics.find(({ magic }) => magic.every((byte, at) => firstBytes[at] === byte));
  if (found) return { format: found.format, contentType: found.contentType };
  if (isBzip2(firstBytes)) return { format: 'bzip2', contentType: 'application/x-bzip2' };
  if (isTar(firstBytes)) return { format: 'tar', contentType: 'application/x-tar' };
  return undefined;
}

/** `BZh` alone could begin a text; the first block, or the end of an empty one, has a mark of its own. */
function isBzip2(bytes: Buffer): boolean {
  if (!/^BZh[1-9]$/.test(bytes.toString('latin1', 0, 4))) return false;
  const mark = bytes.toString('hex', 4, 10);
  return mark === '314159265359' || mark === '177245385090';
}

/** The sum over the header, its own field read as spaces, is there in every dialect of tar, `ustar` only in newer ones. */
function isTar(bytes: Buffer): boolean {
  if (bytes.length < detectionBytes || bytes[0] === 0) return false;
  const stored = /^ *([0-7]+)[ \0]/.exec(bytes.toString('latin1', 148, 157))?.[1];
  if (stored === undefined) return false;
  // Some old tars summed signed bytes.
  let unsigned = 0;
  let signed = 0;
  for (let at = 0; at < detectionBytes; at++) {
    const byte = at >= 148 && at < 156 ? 0x20 : bytes[at]!;
    unsigned += byte;
    signed += byte > 0x7f ? byte - 0x100 : byte;
  }
  const sum = Number.parseInt(stored, 8);
  return sum === unsigned || sum === signed;
}

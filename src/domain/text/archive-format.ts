// Detects the format of an archive by its first bytes. The compile that unpacks it finds out whether it is complete.

export type ArchiveFormat = 'tar' | 'gzip' | 'bzip2' | 'xz' | 'zstd' | 'zip';
export type DetectedFormat = { format: ArchiveFormat; contentType: string };

/** The size of a tar header: fewer bytes are not enough to recognize a tar. */
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

/** A text file could start with `BZh`, so the magic number of the first block or of the end of the stream must follow. */
function isBzip2(bytes: Buffer): boolean {
  if (!/^BZh[1-9]$/.test(bytes.toString('latin1', 0, 4))) return false;
  const magic = bytes.toString('hex', 4, 10);
  return magic === '314159265359' || magic === '177245385090';
}

/** Every dialect of tar has the header checksum; only newer ones have `ustar`. The checksum field itself counts as spaces. */
function isTar(bytes: Buffer): boolean {
  if (bytes.length < detectionBytes || bytes[0] === 0) return false;
  const stored = /^ *([0-7]+)[ \0]/.exec(bytes.toString('latin1', 148, 157))?.[1];
  if (stored === undefined) return false;
  // Some old implementations sum signed bytes.
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

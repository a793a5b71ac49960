// Removes the symbols and section headers of an ELF executable, which are a quarter of Node's size and never loaded. `strip`
// of binutils would do the same, but a fresh machine lacks it and it knows only the architecture it runs on.

export type Machine = 'x64' | 'arm64';

const PROGRAM_HEADER_BYTES = 56;
const SECTION_TABLE_FIELD = 40;
const SECTION_COUNT_FIELD = 60;

/** The processor that an ELF executable is for. */
export function machineOf(elf: Buffer): Machine {
  const isElf64 = elf.subarray(0, 6).equals(Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1]));
  const machine = isElf64 ? ({ 62: 'x64', 183: 'arm64' } as const)[elf.readUInt16LE(18)] : undefined;
  if (machine === undefined) throw new Error('not a 64-bit Linux executable for x64 or arm64');
  return machine;
}

/** The same executable, up to the end of its last segment. */
export function strip(elf: Buffer): Buffer {
  machineOf(elf);
  const table = Number(elf.readBigUInt64LE(32));
  const ends = Array.from({ length: elf.readUInt16LE(56) }, (_, index) => {
    const header = elf.subarray(table + index * PROGRAM_HEADER_BYTES);
    return Number(header.readBigUInt64LE(8) + header.readBigUInt64LE(32));
  });
  const stripped = Buffer.from(elf.subarray(0, Math.max(...ends)));
  stripped.fill(0, SECTION_TABLE_FIELD, SECTION_TABLE_FIELD + 8);
  stripped.fill(0, SECTION_COUNT_FIELD, SECTION_COUNT_FIELD + 4);
  return stripped;
}

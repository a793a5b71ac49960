// Owns taking the symbol tables off an ELF executable: a quarter of Node's size. Done here rather than
// with binutils, which a fresh machine lacks and which knows only the architecture it runs on.

const sectionHeaderBytes = 64;
const programHeaderBytes = 56;
const allocatedFlag = 2n;
const infoIsSectionFlag = 0x40n;
const loadableType = 1;
const noBitsType = 8;

type Section = { header: Buffer; type: number; flags: bigint; offset: number; size: number; index: number };

export type Machine = 'x64' | 'arm64';

/** Which processor an ELF executable is for. */
export function machineOf(elf: Buffer): Machine {
  const isElf64 = elf.subarray(0, 6).equals(Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1]));
  const machine = isElf64 ? ({ 62: 'x64', 183: 'arm64' } as const)[elf.readUInt16LE(18)] : undefined;
  if (machine === undefined) throw new Error('not a 64-bit Linux executable for x64 or arm64');
  return machine;
}

/** The same executable without the sections that are never loaded into memory. */
export function strip(elf: Buffer): Buffer {
  machineOf(elf);
  const sections = readSections(elf);
  const names = sections[elf.readUInt16LE(62)];
  if (names === undefined) throw new Error('the executable has no section names');

  const kept = sections.filter(section => section.index === 0 || isLoaded(section));
  kept.push(names);
  const newIndex = new Map(kept.map((section, index) => [section.index, index]));
  const body = elf.subarray(0, loadedEnd(elf, kept));
  const nameTable = elf.subarray(names.offset, names.offset + names.size);
  const padding = Buffer.alloc(-(body.length + nameTable.length) & 7);
  const headers = kept.map(section => {
    const header = Buffer.from(section.header);
    if (section === names) header.writeBigUInt64LE(BigInt(body.length), 24);
    header.writeUInt32LE(newIndex.get(header.readUInt32LE(40)) ?? 0, 40);
    if (section.flags & infoIsSectionFlag)
      header.writeUInt32LE(newIndex.get(header.readUInt32LE(44)) ?? 0, 44);
    return header;
  });

  const stripped = Buffer.concat([body, nameTable, padding, ...headers]);
  stripped.writeBigUInt64LE(BigInt(stripped.length - headers.length * sectionHeaderBytes), 40);
  stripped.writeUInt16LE(headers.length, 60);
  stripped.writeUInt16LE(headers.length - 1, 62);
  return stripped;
}

function readSections(elf: Buffer): Section[] {
  const table = Number(elf.readBigUInt64LE(40));
  return Array.from({ length: elf.readUInt16LE(60) }, (_, index) => {
    const start = table + index * sectionHeaderBytes;
    const header = elf.subarray(start, start + sectionHeaderBytes);
    return {
      header,
      index,
      type: header.readUInt32LE(4),
      flags: header.readBigUInt64LE(8),
      offset: Number(header.readBigUInt64LE(24)),
      size: Number(header.readBigUInt64LE(32)),
    };
  });
}

function isLoaded(section: Section): boolean {
  return (section.flags & allocatedFlag) !== 0n;
}

function loadedEnd(elf: Buffer, sections: Section[]): number {
  const table = Number(elf.readBigUInt64LE(32));
  const ends = sections.filter(s => isLoaded(s) && s.type !== noBitsType).map(s => s.offset + s.size);
  for (let index = 0; index < elf.readUInt16LE(56); index++) {
    const header = elf.subarray(table + index * programHeaderBytes);
    if (header.readUInt32LE(0) !== loadableType) continue;
    ends.push(Number(header.readBigUInt64LE(8) + header.readBigUInt64LE(32)));
  }
  return Math.max(...ends);
}

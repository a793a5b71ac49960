// The storage format of a build's test results: compressed columns, with the bytes of equal significance side by side.

import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { createResultTable, type ResultTable } from '../../domain/result/comparison.ts';
import { inSteps, type Steps } from '../../domain/result/steps.ts';

const FORMAT = 1;
const HEADER_BYTES = 5;
const BYTES_PER_TEST = 9;

export function* packResults({ numbers, results, changes, durations }: ResultTable): Steps<Buffer> {
  const { length } = numbers;
  const bytes = Buffer.alloc(HEADER_BYTES + length * BYTES_PER_TEST);
  bytes.writeUInt8(FORMAT);
  bytes.writeUInt32LE(length, 1);
  const column = (at: number) => HEADER_BYTES + at * length;
  let previous = 0;
  yield* inSteps(length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      const number = numbers[at] as number;
      const step = number - previous;
      previous = number;
      const duration = durations[at] as number;
      for (let byte = 0; byte < 4; byte += 1) {
        bytes[column(byte) + at] = step >>> (8 * byte);
        bytes[column(4 + byte) + at] = duration >>> (8 * byte);
      }
      bytes[column(8) + at] = (results[at] as number) | ((changes[at] as number) << 2);
    }
  });
  return zstdCompressSync(bytes);
}

export function* unpackResults(packed: Buffer): Steps<ResultTable> {
  const bytes = zstdDecompressSync(packed);
  if (bytes.readUInt8() !== FORMAT) throw new Error('the test results have an unknown format');
  const length = bytes.readUInt32LE(1);
  const table = createResultTable(length);
  const column = (at: number) => bytes.subarray(HEADER_BYTES + at * length, HEADER_BYTES + (at + 1) * length);
  const columns = Array.from({ length: BYTES_PER_TEST }, (_, at) => column(at));
  const [n0, n1, n2, n3, d0, d1, d2, d3, codes] = columns as [
    Buffer,
    Buffer,
    Buffer,
    Buffer,
    Buffer,
    Buffer,
    Buffer,
    Buffer,
    Buffer,
  ];
  const word = (a: Buffer, b: Buffer, c: Buffer, d: Buffer, at: number) =>
    ((a[at] as number) | ((b[at] as number) << 8) | ((c[at] as number) << 16) | ((d[at] as number) << 24)) >>>
    0;
  let number = 0;
  yield* inSteps(length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      number += word(n0, n1, n2, n3, at);
      table.numbers[at] = number;
      table.durations[at] = word(d0, d1, d2, d3, at);
      const code = codes[at] as number;
      table.results[at] = code & 3;
      table.changes[at] = code >>> 2;
    }
  });
  return table;
}

// The tests of a build while its reports are read. There may be 100,000: their names are bytes in a few blocks and their
// results numbers in arrays, because objects would take several times the memory. Only failures are objects.

import { randomInt } from 'node:crypto';
import { type ReportedTest, testResults } from './test-result.ts';

type Failure = Pick<ReportedTest, 'isFlaky' | 'retries' | 'message' | 'details'>;

export type TestTable = {
  /** Finds or adds the test of a class whose name is these bytes. */
  numberOf(classNumber: number, bytes: Buffer, start: number, end: number): number;
  get(test: number): ReportedTest;
  set(test: number, values: Failure & Pick<ReportedTest, 'result' | 'durationMs'>): void;
  /** The number of its file; 0 if it has none. */
  fileOf(test: number): number;
  setFile(test: number, fileNumber: number): void;
  readonly size: number;
};

const BLOCK_BYTES = 64 * 1024;
const NO_DURATION = -1;
/** Of the hash function FNV-1a. */
const PRIME = 0x01000193;
const passed = testResults.indexOf('passed');

/** Classes and files are referred to by their index. `maxTests` may be added. A name has at most 64 KiB. */
export function createTestTable(
  maxTests: number,
  classnames: readonly string[],
  files: readonly string[],
): TestTable {
  const hashes = new Int32Array(maxTests);
  const classNumbers = new Uint32Array(maxTests);
  const fileNumbers = new Uint32Array(maxTests);
  const nameOffsets = new Uint32Array(maxTests);
  const nameLengths = new Uint16Array(maxTests);
  const results = new Uint8Array(maxTests).fill(passed);
  const durations = new Int32Array(maxTests).fill(NO_DURATION);
  const failures = new Map<number, Failure>();
  const blocks: Buffer[] = [];
  let usedBytes = BLOCK_BYTES;
  let size = 0;
  // Twice as many places as tests, a power of two. A place holds the number of a test plus one.
  const places = new Uint32Array(2 ** Math.ceil(Math.log2(maxTests * 2)));
  const lastPlace = places.length - 1;
  // Nobody can choose names that all have the same place.
  const seed = randomInt(2 ** 32);

  const hashOf = (classNumber: number, bytes: Buffer, start: number, end: number): number => {
    let hash = Math.imul(seed ^ classNumber, PRIME);
    for (let at = start; at < end; at++) hash = Math.imul(hash ^ bytes[at]!, PRIME);
    return hash ^ (hash >>> 15);
  };

  const isNamed = (test: number, bytes: Buffer, start: number, end: number): boolean => {
    const offset = nameOffsets[test]! % BLOCK_BYTES;
    return blockOf(test).compare(bytes, start, end, offset, offset + nameLengths[test]!) === 0;
  };

  const blockOf = (test: number): Buffer => blocks[Math.floor(nameOffsets[test]! / BLOCK_BYTES)]!;

  const nameOf = (test: number): string => {
    const offset = nameOffsets[test]! % BLOCK_BYTES;
    return blockOf(test).toString('utf8', offset, offset + nameLengths[test]!);
  };

  const append = (bytes: Buffer, start: number, end: number): void => {
    if (usedBytes + end - start > BLOCK_BYTES) {
      blocks.push(Buffer.allocUnsafeSlow(BLOCK_BYTES));
      usedBytes = 0;
    }
    bytes.copy(blocks.at(-1)!, usedBytes, start, end);
    nameOffsets[size] = (blocks.length - 1) * BLOCK_BYTES + usedBytes;
    nameLengths[size] = end - start;
    usedBytes += end - start;
  };

  return {
    numberOf(classNumber, bytes, start, end) {
      const hash = hashOf(classNumber, bytes, start, end);
      let place = hash & lastPlace;
      for (; places[place] !== 0; place = (place + 1) & lastPlace) {
        const test = places[place]! - 1;
        if (hashes[test] === hash && classNumbers[test] === classNumber && isNamed(test, bytes, start, end))
          return test;
      }
      append(bytes, start, end);
      hashes[size] = hash;
      classNumbers[size] = classNumber;
      places[place] = size + 1;
      return size++;
    },

    set(test, { result, durationMs, isFlaky, retries, message, details }) {
      results[test] = testResults.indexOf(result);
      durations[test] = durationMs ?? NO_DURATION;
      if (isFlaky || retries > 0 || message !== '' || details !== '')
        failures.set(test, { isFlaky, retries, message, details });
    },

    get(test) {
      const failure = failures.get(test);
      const durationMs = durations[test]!;
      return {
        classname: classnames[classNumbers[test]!]!,
        name: nameOf(test),
        file: files[fileNumbers[test]!] || undefined,
        result: testResults[results[test]!]!,
        durationMs: durationMs === NO_DURATION ? undefined : durationMs,
        isFlaky: failure?.isFlaky ?? false,
        retries: failure?.retries ?? 0,
        message: failure?.message ?? '',
        details: failure?.details ?? '',
      };
    },

    fileOf: test => fileNumbers[test]!,

    setFile(test, fileNumber) {
      fileNumbers[test] = fileNumber;
    },

    get size() {
      return size;
    },
  };
}

// The identity of tests: which cases of reports are the same test, within a build and from build to build.

import { hash } from 'node:crypto';
import { isFailure, type ReportedTest } from './test-result.ts';

export const KEY_BYTES = 16;

/** Cannot occur in a name: XML does not allow it. */
const VOLATILE_MARK = '\u0001';

/** Parts of names that change from run to run: UUIDs, addresses in memory, identity hashes of Java, temporary paths. */
const VOLATILE =
  /[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}|0x[\da-f]{6,}|(?<=\w)@[\da-f]{5,8}\b|\/(?:(?:private\/)?(?:var\/)?tmp|var\/folders)\/[^\s"'`<>()[\]{},;|]+/gi;

export function withoutVolatileParts(name: string): string {
  return name.replaceAll(VOLATILE, VOLATILE_MARK);
}

/** Returns the key of each test of one build. Each is asked for once. */
export function createTestKeys(): (test: Pick<ReportedTest, 'classname' | 'name'>) => Buffer {
  const volatileNames = new Map<string, number>();
  return test => {
    const name = `${test.classname}\0${test.name}`;
    const stable = withoutVolatileParts(name);
    // Names that differ only in volatile parts are different tests of one build. Their order distinguishes them.
    const earlier = volatileNames.get(stable) ?? 0;
    if (stable !== name) volatileNames.set(stable, earlier + 1);
    // By way of a string: a buffer of its own for each of 100,000 hashes would often start garbage collection.
    const digest = hash('sha256', earlier === 0 ? stable : `${stable}\0${earlier}`, 'latin1');
    return Buffer.from(digest.slice(0, KEY_BYTES), 'latin1');
  };
}

/** Merges two cases of one test. One that failed and passed in one build passed, and is flaky. */
export function mergeRepeated(first: ReportedTest, second: ReportedTest): ReportedTest {
  const cases = [first, second];
  const failure = cases.findLast(({ result }) => isFailure(result));
  const pass = cases.findLast(({ result }) => result === 'passed');
  const decisive = pass ?? failure ?? second;
  const explained = failure ?? cases.findLast(({ isFlaky }) => isFlaky) ?? decisive;
  return {
    ...decisive,
    file: decisive.file ?? first.file,
    isFlaky: first.isFlaky || second.isFlaky || (pass !== undefined && failure !== undefined),
    retries: first.retries + second.retries + 1,
    message: explained.message,
    details: explained.details,
  };
}

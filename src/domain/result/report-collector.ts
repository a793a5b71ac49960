// Collects the tests of the reports of a build, each once. Everything that is kept is bounded, and secrets in it are masked.

import {
  type Case,
  failuresOf,
  openReport,
  type Remarks,
  type ReportReader,
  ReportStop,
  resultOf,
} from './junit.ts';
import { createKeep, type Excerpt, excerptOf } from './kept-text.ts';
import { mergeRepeated } from './test-identity.ts';
import type { ReportedTests } from './test-result.ts';
import { createTestTable } from './test-table.ts';

const MAX_CASES = 100_000;
const MAX_MESSAGE_BYTES = 4 * 1024;
const MAX_DETAILS_BYTES = 16 * 1024;
/** Of all messages of a build, and of all its details. */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;
const MAX_NAMES_BYTES = 32 * 1024 * 1024;
const CASES_AT_ONCE = 64;
const MIN_OUTPUT_BYTES = 1024;

export type ReportCollector = {
  /** Begins a report. One is open at a time. Its functions throw a ReportStop at a limit. */
  openReport(): ReportReader;
  /** Each test once, when all reports have ended. */
  readonly tests: ReportedTests;
  /** The time of all test cases, including repeated ones. */
  readonly durationMs: number;
};

const firstLine = (excerpt: Excerpt | undefined) => excerpt?.head.trimStart().split('\n', 1)[0] ?? '';

/** `secrets` are masked in all texts that are kept. */
export function createReportCollector(secrets: readonly string[]): ReportCollector {
  const classnames = createIndex();
  const files = createIndex('');
  const table = createTestTable(MAX_CASES, classnames.texts, files.texts);
  const keep = createKeep(secrets);
  /** They are recorded together, because each copy of a string takes its time. */
  let pending: Case[] = [];
  /** How often the report has a distinct test of the same name. */
  const occurrences = new Map<number, number>();
  let lastClass: { given: string; kept: number } | undefined;
  let cases = 0;
  let nameBytes = 0;
  let messageBytes = 0;
  let detailsBytes = 0;
  let durationMs = 0;

  const classOf = (given: string): number => {
    // The cases of a class stand together.
    if (lastClass?.given !== given) lastClass = { given, kept: classnames.indexOf(keep.name(given)) };
    return lastClass.kept;
  };

  const keepMessage = ({ message: given, type, text, output }: Remarks): string => {
    const first = given.trim() || firstLine(text) || type || firstLine(output);
    const message = keep.text(excerptOf(first), Math.min(MAX_MESSAGE_BYTES, MAX_KEPT_BYTES - messageBytes));
    messageBytes += Buffer.byteLength(message);
    return message;
  };

  const keepDetails = (one: Remarks): string => {
    let left = Math.min(MAX_DETAILS_BYTES, MAX_KEPT_BYTES - detailsBytes);
    const sections: string[] = [];
    const add = (excerpt: Excerpt | undefined, reservedBytes: number) => {
      const section = excerpt ? keep.text(excerpt, left - reservedBytes) : '';
      if (section === '') return;
      sections.push(section);
      left -= Buffer.byteLength(section) + 2;
    };
    add(one.text, one.output || one.attachments.length > 0 ? MIN_OUTPUT_BYTES : 0);
    add(excerptOf(one.attachments.map(path => `[[ATTACHMENT|${path}]]`).join('\n')), 0);
    add(one.output, 0);
    const details = sections.join('\n\n');
    detailsBytes += Buffer.byteLength(details);
    return details;
  };

  /** Finds or adds the test. */
  const testOf = (one: Case, names: Buffer, start: number, end: number): number => {
    const file = one.file === undefined ? 0 : files.indexOf(keep.name(one.file));
    let classNumber = classOf(one.classname);
    let test = table.numberOf(classNumber, names, start, end);
    const knownFile = table.fileOf(test);
    if (knownFile !== 0 && file !== 0 && knownFile !== file) {
      // Another test of the same name, not the same one again.
      classNumber = classnames.indexOf(`${classnames.texts[classNumber]} (${files.texts[file]})`);
      test = table.numberOf(classNumber, names, start, end);
    }
    if (one.isDistinct) {
      const count = (occurrences.get(test) ?? 0) + 1;
      occurrences.set(test, count);
      if (count > 1) {
        const name = Buffer.from(`${names.toString('utf8', start, end)} (${count})`);
        test = table.numberOf(classNumber, name, 0, name.length);
      }
    }
    if (file !== 0) table.setFile(test, file);
    return test;
  };

  const record = (one: Case, names: Buffer, start: number, end: number): void => {
    const knownTests = table.size;
    const test = testOf(one, names, start, end);
    const result = resultOf(one);
    const remarks =
      result === 'skipped' || !one.remarks || failuresOf(one.remarks) === 0 ? undefined : one.remarks;
    const values = {
      result,
      durationMs: one.durationMs === undefined ? undefined : Math.round(one.durationMs),
      isFlaky: remarks !== undefined && result === 'passed',
      retries: remarks?.retries ?? 0,
      message: remarks ? keepMessage(remarks) : '',
      details: remarks ? keepDetails(remarks) : '',
    };
    if (table.size > knownTests) table.set(test, values);
    else {
      const earlier = table.get(test);
      table.set(test, mergeRepeated(earlier, { ...earlier, ...values }));
    }
  };

  const recordPending = (): void => {
    const recorded = pending;
    const names = keep.names(recorded.map(one => one.name));
    pending = [];
    nameBytes += names.length;
    let start = 0;
    for (const one of recorded) {
      let end = start;
      while (names[end] !== 0) end++;
      record(one, names, start, end);
      start = end + 1;
    }
  };

  const add = (one: Case): void => {
    if (cases === MAX_CASES)
      throw new ReportStop(`The build has more than ${MAX_CASES} test cases. The rest was left out.`);
    if (nameBytes + classnames.bytes + files.bytes > MAX_NAMES_BYTES)
      throw new ReportStop('The names of the tests are too long in total. The rest was left out.');
    cases++;
    durationMs += one.durationMs ?? 0;
    pending.push(one);
    if (pending.length === CASES_AT_ONCE) recordPending();
  };

  return {
    openReport() {
      occurrences.clear();
      return openReport(add, recordPending);
    },
    get tests() {
      return { length: table.size, at: table.get };
    },
    get durationMs() {
      return Math.round(durationMs);
    },
  };
}

/** Numbers texts from 0 in order of their first appearance. */
function createIndex(...known: string[]) {
  const texts: string[] = [];
  const numbers = new Map<string, number>();
  let bytes = 0;
  const indexOf = (text: string): number => {
    const number = numbers.get(text);
    if (number !== undefined) return number;
    numbers.set(text, texts.length);
    bytes += text.length;
    return texts.push(text) - 1;
  };
  for (const text of known) indexOf(text);
  return {
    texts: texts as readonly string[],
    indexOf,
    get bytes() {
      return bytes;
    },
  };
}

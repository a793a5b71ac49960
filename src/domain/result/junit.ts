// Turns the elements of JUnit XML reports into tests. There is no standard: what the many writers of such reports do
// differently is known here. Everything that is kept is bounded, and secrets in it are masked.

import { append, createKeep, type Excerpt, excerptOf, MAX_NAME_CHARACTERS } from './kept-text.ts';
import { mergeRepeated } from './test-identity.ts';
import type { ReportedTest, TestResult } from './test-result.ts';
import { createTestTable } from './test-table.ts';

export const MAX_CASES = 100_000;
const MAX_MESSAGE_BYTES = 4 * 1024;
const MAX_DETAILS_BYTES = 16 * 1024;
/** Of all messages of a build, and of all its details. */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;
const MAX_NAMES_BYTES = 32 * 1024 * 1024;
const CASES_AT_ONCE = 64;
const MIN_OUTPUT_BYTES = 1024;
const MAX_ATTACHMENTS = 20;
/** A whole number from here on is in nanoseconds: as seconds it would be more than a day, and tests take longer than 86 µs. */
const NANOSECONDS_FROM = 86_400;
const MAX_DURATION_MS = 30 * 86_400_000;

/** A report that is not read any further. The message is for users. */
export class ReportStop extends Error {}

/** Receives the elements of a report in document order. The text of an element may come in pieces. */
export type ReportEvents = {
  open(element: string, attributes: Readonly<Record<string, string>>): void;
  text(text: string): void;
  close(): void;
};

type ReportReader = ReportEvents & {
  /** Ends the report. A test case that is still open counts if it has failed already. */
  end(): void;
  /** Whether the report holds a test suite. */
  readonly hasSuite: boolean;
};

export type ReportCollector = {
  /** Begins a report. One is open at a time. Its functions throw a ReportStop at a limit. */
  openReport(): ReportReader;
  /** Each test once. They are made one by one. */
  list(): Iterable<ReportedTest>;
  /** The time of all test cases, including repeated ones. */
  readonly durationMs: number;
};

type Suite = { name: string; file: string | undefined };

type Case = {
  classname: string;
  name: string;
  file: string | undefined;
  durationMs: number | undefined;
  isDisabled: boolean;
  isMarkedFlaky: boolean;
  isSkipped: boolean;
  /** Whether another case of the same name in this report is another test, not the same one again. */
  isDistinct: boolean;
  remarks: Remarks | undefined;
};

/** What a case holds. Most hold nothing. */
type Remarks = {
  failed: number;
  errored: number;
  /** Failures of other attempts. */
  retries: number;
  /** Of the first failure. */
  message: string;
  type: string;
  text: Excerpt | undefined;
  output: Excerpt | undefined;
  attachments: string[];
};

const firstLine = (excerpt: Excerpt | undefined) => excerpt?.head.trimStart().split('\n', 1)[0] ?? '';

const failuresOf = ({ failed, errored, retries }: Remarks) => failed + errored + retries;

/** An open element, and where its text goes. */
type Frame = 'suite' | 'case' | 'text' | 'output' | 'other';

const disabled = new Set(['disabled', 'ignored', 'notrun', 'suppressed', 'skipped']);
const isDisabled = (status: string | undefined) => status !== undefined && disabled.has(status.toLowerCase());

const scriptFile = /\.[cm]?[jt]sx?$/;
const separator = ' › ';

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
    *list() {
      for (let test = 0; test < table.size; test++) yield table.get(test);
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

function openReport(add: (one: Case) => void, recordPending: () => void): ReportReader {
  const suites: Suite[] = [];
  const cases: Case[] = [];
  const frames: Frame[] = [];
  let hasSuite = false;

  const openSuite = ({ name, file, filepath }: Readonly<Record<string, string>>): void => {
    suites.push({ name: name ?? '', file: file ?? filepath ?? suites.at(-1)?.file });
  };

  const openCase = (attributes: Readonly<Record<string, string>>): void => {
    const { name, id, status, result, flaky } = attributes;
    const file = projectPath(attributes.file ?? suites.at(-1)?.file);
    const isNode = isNodeCase(attributes, suites, file);
    cases.push({
      classname: classnameOf(attributes, suites, file, isNode),
      name: name || id || '(no name)',
      file,
      durationMs: parseDurationMs(attributes.time),
      isDisabled: isDisabled(status) || isDisabled(result),
      isMarkedFlaky: flaky === 'true',
      isSkipped: false,
      isDistinct: isNode,
      remarks: undefined,
    });
  };

  const openFailure = (
    one: Case,
    { message, type, file, line }: Readonly<Record<string, string>>,
  ): Remarks => {
    const remarks = remarksOf(one);
    remarks.text ??= excerptOf('');
    if (failuresOf(remarks) > 0) append(remarks.text, `\n\n${message ?? ''}\n`);
    else {
      remarks.message = message ?? '';
      remarks.type = type ?? '';
    }
    if (file !== undefined) {
      one.file ??= projectPath(file);
      append(remarks.text, `${projectPath(file)}${line === undefined ? '' : `:${line}`}\n`);
    }
    return remarks;
  };

  const openElement = (element: string, attributes: Readonly<Record<string, string>>): Frame => {
    const one = cases.at(-1);
    switch (element) {
      case 'testsuites':
        hasSuite = true;
        return 'other';
      case 'testsuite':
        hasSuite = true;
        openSuite(attributes);
        return 'suite';
      case 'testcase':
        openCase(attributes);
        return 'case';
    }
    if (one === undefined) return 'other';
    switch (element) {
      case 'failure':
        openFailure(one, attributes).failed++;
        return 'text';
      case 'error':
        openFailure(one, attributes).errored++;
        return 'text';
      case 'flakyFailure':
      case 'flakyError':
      case 'rerunFailure':
      case 'rerunError':
        openFailure(one, attributes).retries++;
        return 'text';
      case 'system-out':
      case 'system-err':
        return 'output';
      case 'skipped':
        one.isSkipped = true;
        return 'other';
      case 'property': {
        const { name, value = '' } = attributes;
        if (name !== 'attachment' || value.length > MAX_NAME_CHARACTERS) return 'other';
        const { attachments } = remarksOf(one);
        if (attachments.length < MAX_ATTACHMENTS) attachments.push(value);
        return 'other';
      }
      default: {
        const outer = frames.at(-1);
        return outer === 'text' || outer === 'output' ? outer : 'other';
      }
    }
  };

  return {
    open(element, attributes) {
      frames.push(openElement(element, attributes));
    },

    text(text) {
      const frame = frames.at(-1);
      const one = cases.at(-1);
      if (one === undefined || (frame !== 'text' && frame !== 'output')) return;
      const remarks = remarksOf(one);
      remarks[frame] ??= excerptOf('');
      append(remarks[frame], text);
    },

    close() {
      const frame = frames.pop();
      if (frame === 'suite') suites.pop();
      if (frame === 'case') add(cases.pop()!);
    },

    end() {
      try {
        for (const one of cases.reverse()) if (one.remarks && failuresOf(one.remarks) > 0) add(one);
      } catch (error) {
        // The case is one too many.
        if (!(error instanceof ReportStop)) throw error;
      }
      recordPending();
    },

    get hasSuite() {
      return hasSuite;
    },
  };
}

function remarksOf(one: Case): Remarks {
  one.remarks ??= {
    failed: 0,
    errored: 0,
    retries: 0,
    message: '',
    type: '',
    text: undefined,
    output: undefined,
    attachments: [],
  };
  return one.remarks;
}

/** Without a class name the names of the enclosing suites say where a test belongs. */
function classnameOf(
  attributes: Readonly<Record<string, string>>,
  suites: readonly Suite[],
  file: string | undefined,
  isNode: boolean,
): string {
  const classname = isNode && attributes.classname === 'test' ? '' : attributes.classname || attributes.class;
  const names = () => suites.flatMap(({ name }) => (name === '' ? [] : [name])).join(separator);
  const described = classname || names();
  // In JavaScript a class name is a description, which several files may use.
  const isAmbiguous = file !== undefined && scriptFile.test(file) && !described.includes(file);
  if (isAmbiguous && described !== '') return `${file}${separator}${described}`;
  return described || file || attributes.classname || '';
}

/** Node writes the enclosing suites as class name, or `test`. It never repeats a test. */
function isNodeCase(
  { classname }: Readonly<Record<string, string>>,
  suites: readonly Suite[],
  file: string | undefined,
): boolean {
  if (classname === 'test') return suites[0]?.name !== 'pytest';
  return (
    file !== undefined && scriptFile.test(file) && classname === suites.map(({ name }) => name).join('.')
  );
}

function projectPath(file: string | undefined): string | undefined {
  return file?.replace(/^(?:file:\/\/)?\/srv\/project\//, '');
}

function resultOf({ isDisabled, isMarkedFlaky, isSkipped, remarks }: Case): TestResult {
  if (isDisabled) return 'skipped';
  if (remarks && remarks.failed + remarks.errored > 0 && !isMarkedFlaky)
    return remarks.failed > 0 ? 'failed' : 'errored';
  return isSkipped ? 'skipped' : 'passed';
}

/**
 * Reads a time in seconds: with an exponent, with separators of thousands (`1,234.5`), with a decimal comma (`0,25`). A whole
 * number that would be more than a day is in nanoseconds. Returns undefined for what is no credible time.
 */
export function parseDurationMs(time: string | undefined): number | undefined {
  if (time === undefined) return undefined;
  // Nearly all times are like this.
  const plain = Number(time);
  if (plain >= 0 && time.includes('.')) return credible(plain * 1e3);
  let text = time.trim().replace(/\s*s$/, '');
  if (text.includes(',')) {
    const hasThousands = /^[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?$/.test(text);
    text = hasThousands ? text.replaceAll(',', '') : text.replaceAll('.', '').replace(',', '.');
  }
  if (!/^\d*\.?\d*(?:e[+-]?\d+)?$/i.test(text) || !/^\.?\d/.test(text)) return undefined;
  const seconds = Number(text);
  const isNanoseconds = seconds >= NANOSECONDS_FROM && /^\d+$/.test(text);
  return credible(isNanoseconds ? seconds / 1e6 : seconds * 1e3);
}

const credible = (durationMs: number) => (durationMs <= MAX_DURATION_MS ? durationMs : undefined);

// Turns the elements of JUnit XML reports into tests. There is no standard: what the many writers of such reports do
// differently is known here. Everything that is kept is bounded, and secrets in it are masked.

import { createHash } from 'node:crypto';
import { createMask } from '../text/mask.ts';
import type { ReportedTest, TestResult } from './test-result.ts';

export const MAX_CASES = 100_000;
const MAX_MESSAGE_BYTES = 4 * 1024;
const MAX_DETAILS_BYTES = 16 * 1024;
/** Of all messages of a build, and of all its details. */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;
const MAX_NAME_CHARACTERS = 1_000;
const MAX_NAME_BYTES = 4 * MAX_NAME_CHARACTERS;
const MAX_NAMES_CHARACTERS = 32 * 1024 * 1024;
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

export type TestCollector = {
  /** Begins a report. One is open at a time. Its functions throw a ReportStop at a limit. */
  openReport(): ReportReader;
  /** Each test once. */
  list(): ReportedTest[];
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
  failed: number;
  errored: number;
  /** Failures of other attempts. */
  retries: number;
  message: string;
  text: Excerpt | undefined;
  output: Excerpt | undefined;
  attachments: string[];
};

/** An open element. */
type Frame = {
  suite: Suite | undefined;
  testCase: Case | undefined;
  /** Where its text goes. */
  target: 'text' | 'output' | undefined;
};

const disabled = new Set(['disabled', 'ignored', 'notrun', 'suppressed', 'skipped']);
// An escape character is forbidden in XML. The reader replaces it, and leaves a reference to it as it is.
const colours = /(?:\uFFFD|&#(?:27|x1b);)\[[0-9;]*m/gi;
const scriptFile = /\.[cm]?[jt]sx?$/;
const separator = ' › ';
const gap = '\n[…]\n';

/** `secrets` are masked in all texts that are kept. */
export function createTestCollector(secrets: readonly string[]): TestCollector {
  const classes = new Map<string, Map<string, ReportedTest>>();
  const files = new Map<string, string>();
  const keep = createKeep(secrets);
  let lastClassname: { given: string; kept: string } | undefined;
  let cases = 0;
  let nameCharacters = 0;
  let messageBytes = 0;
  let detailsBytes = 0;
  let durationMs = 0;

  const countName = (name: string): string => {
    nameCharacters += name.length;
    if (nameCharacters > MAX_NAMES_CHARACTERS)
      throw new ReportStop('The names of the tests are too long in total. The rest was left out.');
    return name;
  };

  const keepClassname = (given: string): string => {
    // The cases of a class stand together.
    if (lastClassname?.given !== given) lastClassname = { given, kept: keepName(keep, given) };
    return lastClassname.kept;
  };

  const keepFile = (file: string): string => {
    const kept = keepName(keep, file);
    const known = files.get(kept);
    if (known === undefined) files.set(countName(kept), kept);
    return known ?? kept;
  };

  const testsOf = (classname: string): Map<string, ReportedTest> => {
    let tests = classes.get(classname);
    if (tests === undefined) {
      tests = new Map();
      classes.set(countName(classname), tests);
    }
    return tests;
  };

  const keepMessage = (one: Case): string => {
    const first =
      one.message.trim() === '' ? (one.text?.head.trimStart().split('\n', 1)[0] ?? '') : one.message;
    const message = keep(excerptOf(first), Math.min(MAX_MESSAGE_BYTES, MAX_KEPT_BYTES - messageBytes));
    messageBytes += Buffer.byteLength(message);
    return message;
  };

  const keepDetails = (one: Case): string => {
    let left = Math.min(MAX_DETAILS_BYTES, MAX_KEPT_BYTES - detailsBytes);
    const sections: string[] = [];
    const add = (excerpt: Excerpt | undefined, reservedBytes: number) => {
      const section = excerpt ? keep(excerpt, left - reservedBytes) : '';
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

  const record = (one: Case): void => {
    if (cases === MAX_CASES)
      throw new ReportStop(`The build has more than ${MAX_CASES} test cases. The rest was left out.`);
    cases++;
    durationMs += one.durationMs ?? 0;
    const file = one.file === undefined ? undefined : keepFile(one.file);
    const name = keepName(keep, one.name);
    let classname = keepClassname(one.classname);
    let tests = testsOf(classname);
    let earlier = tests.get(name);
    if (earlier?.file !== undefined && file !== undefined && earlier.file !== file) {
      // Another test of the same name, not the same one again.
      classname = `${classname} (${file})`;
      tests = testsOf(classname);
      earlier = tests.get(name);
    }
    const result = resultOf(one);
    const hasFailed = result !== 'skipped' && one.failed + one.errored + one.retries > 0;
    const test: ReportedTest = {
      classname,
      name,
      file,
      result,
      durationMs: one.durationMs === undefined ? undefined : Math.round(one.durationMs),
      isFlaky: hasFailed && result === 'passed',
      retries: one.retries,
      message: hasFailed && !earlier?.message ? keepMessage(one) : '',
      details: hasFailed && !earlier?.details ? keepDetails(one) : '',
    };
    if (earlier === undefined) tests.set(countName(name), test);
    else repeat(earlier, test);
  };

  return {
    openReport: () => openReport(record),
    list: () => [...classes.values()].flatMap(tests => [...tests.values()]),
    get durationMs() {
      return Math.round(durationMs);
    },
  };
}

function openReport(record: (one: Case) => void): ReportReader {
  const suites: Suite[] = [];
  const cases: Case[] = [];
  const frames: Frame[] = [];
  let hasSuite = false;

  const openSuite = (attributes: Readonly<Record<string, string>>): Suite => {
    const { name, file, filepath } = attributes;
    hasSuite = true;
    const suite = { name: name ?? '', file: file ?? filepath ?? suites.at(-1)?.file };
    suites.push(suite);
    return suite;
  };

  const openCase = (attributes: Readonly<Record<string, string>>): Case => {
    const { name, id, status, result, flaky } = attributes;
    const file = projectPath(attributes.file ?? suites.at(-1)?.file);
    const one: Case = {
      classname: classnameOf(attributes, suites, file),
      name: name || id || '(no name)',
      file,
      durationMs: parseDurationMs(attributes.time),
      isDisabled: disabled.has(status?.toLowerCase() ?? '') || disabled.has(result?.toLowerCase() ?? ''),
      isMarkedFlaky: flaky === 'true',
      isSkipped: false,
      failed: 0,
      errored: 0,
      retries: 0,
      message: '',
      text: undefined,
      output: undefined,
      attachments: [],
    };
    cases.push(one);
    return one;
  };

  const openFailure = (one: Case, { message, type, file, line }: Readonly<Record<string, string>>): void => {
    const isFirst = one.failed + one.errored + one.retries === 0;
    one.text ??= excerptOf('');
    if (isFirst) one.message = message || type || '';
    else append(one.text, `\n\n${message ?? ''}\n`);
    if (file !== undefined) {
      one.file ??= projectPath(file);
      append(one.text, `${projectPath(file)}${line === undefined ? '' : `:${line}`}\n`);
    }
  };

  return {
    open(element, attributes) {
      const one = cases.at(-1);
      const frame: Frame = { suite: undefined, testCase: undefined, target: frames.at(-1)?.target };
      switch (element) {
        case 'testsuites':
          hasSuite = true;
          frame.target = undefined;
          break;
        case 'testsuite':
          frame.suite = openSuite(attributes);
          frame.target = undefined;
          break;
        case 'testcase':
          frame.testCase = openCase(attributes);
          frame.target = undefined;
          break;
        case 'failure':
        case 'error':
        case 'flakyFailure':
        case 'flakyError':
        case 'rerunFailure':
        case 'rerunError':
          if (one === undefined) break;
          openFailure(one, attributes);
          if (element === 'failure') one.failed++;
          else if (element === 'error') one.errored++;
          else one.retries++;
          frame.target = 'text';
          break;
        case 'skipped':
          if (one) one.isSkipped = true;
          break;
        case 'system-out':
        case 'system-err':
          frame.target = one && 'output';
          break;
        case 'property':
          if (attributes.name === 'attachment' && one && one.attachments.length < MAX_ATTACHMENTS)
            one.attachments.push((attributes.value ?? '').slice(0, MAX_NAME_CHARACTERS));
          break;
      }
      frames.push(frame);
    },

    text(text) {
      const target = frames.at(-1)?.target;
      const one = cases.at(-1);
      if (target === undefined || one === undefined) return;
      one[target] ??= excerptOf('');
      append(one[target], text);
    },

    close() {
      const frame = frames.pop();
      if (frame?.suite) suites.pop();
      if (frame?.testCase) {
        cases.pop();
        record(frame.testCase);
      }
    },

    end() {
      for (const one of cases.reverse()) if (one.failed + one.errored > 0) record(one);
      cases.length = 0;
    },

    get hasSuite() {
      return hasSuite;
    },
  };
}

/** Without a class name the names of the enclosing suites say where a test belongs. */
function classnameOf(
  { classname, class: className }: Readonly<Record<string, string>>,
  suites: readonly Suite[],
  file: string | undefined,
): string {
  const names = () => {
    const given = suites.map(suite => suite.name).filter(name => name !== '');
    return given.length > 0 ? given.join(separator) : (file ?? '');
  };
  if (file === undefined || !scriptFile.test(file)) return classname || className || names();
  // In JavaScript the class name is a description, which several files may use. Node has 'test' where there is none.
  const description = classname === 'test' && suites.length === 0 ? '' : classname || names();
  if (description.includes(file)) return description;
  return description === '' ? file : `${file}${separator}${description}`;
}

function projectPath(file: string | undefined): string | undefined {
  return file?.replace(/^(?:file:\/\/)?\/srv\/project\//, '');
}

function resultOf(one: Case): TestResult {
  if (one.isDisabled) return 'skipped';
  if (one.failed + one.errored > 0 && !one.isMarkedFlaky) return one.failed > 0 ? 'failed' : 'errored';
  return one.isSkipped ? 'skipped' : 'passed';
}

/** Adds another attempt to a test: it passed if any attempt did, and is flaky if any other failed. */
function repeat(test: ReportedTest, next: ReportedTest): void {
  const results = [test.result, next.result];
  const hasPassed = results.includes('passed');
  const hasFailed = results.includes('failed') || results.includes('errored');
  test.isFlaky ||= next.isFlaky || (hasPassed && hasFailed);
  test.result = (['passed', 'failed', 'errored', 'skipped'] as const).find(result =>
    results.includes(result),
  )!;
  test.retries += next.retries + 1;
  test.durationMs = next.durationMs ?? test.durationMs;
  test.message ||= next.message;
  test.details ||= next.details;
}

/**
 * Reads a time in seconds: with an exponent, with separators of thousands (`1,234.5`), with a decimal comma (`0,25`). A whole
 * number that would be more than a day is in nanoseconds. Returns undefined for what is no credible time.
 */
export function parseDurationMs(time: string | undefined): number | undefined {
  if (time === undefined) return undefined;
  let text = time.trim().replace(/\s*s$/, '');
  if (text.includes(',')) {
    const hasThousands = /^[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?$/.test(text);
    text = hasThousands ? text.replaceAll(',', '') : text.replaceAll('.', '').replace(',', '.');
  }
  if (!/^\d*\.?\d*(?:e[+-]?\d+)?$/i.test(text) || !/^\.?\d/.test(text)) return undefined;
  const seconds = Number(text);
  const isNanoseconds = seconds >= NANOSECONDS_FROM && /^\d+$/.test(text);
  const durationMs = isNanoseconds ? seconds / 1e6 : seconds * 1e3;
  return durationMs <= MAX_DURATION_MS ? durationMs : undefined;
}

/** The head and the tail of a text of any length. */
type Excerpt = { head: string; tail: string; isCut: boolean };

const EXCERPT_HALF = MAX_DETAILS_BYTES / 2;

function excerptOf(text: string): Excerpt {
  const excerpt = { head: '', tail: '', isCut: false };
  append(excerpt, text);
  return excerpt;
}

function append(excerpt: Excerpt, text: string): void {
  const toHead = Math.min(text.length, EXCERPT_HALF - excerpt.head.length);
  if (toHead > 0) excerpt.head += text.slice(0, toHead);
  if (toHead === text.length) return;
  excerpt.tail += text.slice(toHead);
  if (excerpt.tail.length <= 2 * EXCERPT_HALF) return;
  excerpt.tail = excerpt.tail.slice(-EXCERPT_HALF);
  excerpt.isCut = true;
}

type Keep = (excerpt: Excerpt, maxBytes: number) => string;

/**
 * Returns a function that copies a text: without colours, masked, and cut to a number of bytes. A copy is needed because a
 * substring keeps all of the text in memory that it was taken from.
 */
function createKeep(secrets: readonly string[]): Keep {
  const mask = createMask(secrets);
  const whole = (bytes: Buffer) => Buffer.concat([mask.push(bytes), mask.end()]).toString();
  // What the mask holds back may be the beginning of a secret that is cut off.
  const beginning = (bytes: Buffer) => {
    const text = mask.push(bytes).toString();
    mask.end();
    return text;
  };
  return ({ head, tail, isCut }, maxBytes) => {
    if (maxBytes <= 0) return '';
    const all = Buffer.from((isCut ? head : head + tail).replace(colours, '').trim());
    if (!isCut && all.length <= maxBytes) return whole(all);
    const end = isCut ? Buffer.from(tail.replace(colours, '').trimEnd()) : all;
    const availableBytes = maxBytes - Buffer.byteLength(gap);
    const half = end.subarray(-Math.floor(availableBytes / 2));
    // The end of a secret that is cut off cannot be recognised, but each line of a secret is masked.
    const line = half.indexOf('\n');
    const shownEnd = line === -1 ? '' : whole(half.subarray(line + 1));
    return beginning(cutBytes(all, availableBytes - Buffer.byteLength(shownEnd))) + gap + shownEnd;
  };
}

/** Cuts between characters. */
function cutBytes(bytes: Buffer, maxBytes: number): Buffer {
  let end = Math.max(0, Math.min(maxBytes, bytes.length));
  while (end < bytes.length && end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end);
}

/** A long name is cut, and stays distinct. */
function keepName(keep: Keep, name: string): string {
  if (name.length <= MAX_NAME_CHARACTERS) return keep(excerptOf(name), MAX_NAME_BYTES);
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 12);
  const head = keep({ head: name.slice(0, MAX_NAME_CHARACTERS), tail: '', isCut: true }, MAX_NAME_BYTES);
  return `${head.slice(0, -gap.length)}… ${hash}`;
}

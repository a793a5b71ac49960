// Turns the elements of JUnit XML reports into test cases. There is no standard: what the many writers of such reports do
// differently is known here.

import { append, type Excerpt, excerptOf, MAX_NAME_CHARACTERS } from './kept-text.ts';
import type { TestResult } from './test-result.ts';

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

export type ReportReader = ReportEvents & {
  /** Ends the report. A test case that is still open counts if it has failed already. */
  end(): void;
  /** Whether the report holds a test suite. */
  readonly hasSuite: boolean;
};

type Suite = { name: string; file: string | undefined };

export type Case = {
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
export type Remarks = {
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

export const failuresOf = ({ failed, errored, retries }: Remarks) => failed + errored + retries;

/** An open element, and where its text goes. */
type Frame = 'suite' | 'case' | 'text' | 'output' | 'other';

const disabled = new Set(['disabled', 'ignored', 'notrun', 'suppressed', 'skipped']);
const isDisabled = (status: string | undefined) => status !== undefined && disabled.has(status.toLowerCase());

const scriptFile = /\.[cm]?[jt]sx?$/;
const separator = ' › ';

/** Calls `add` for each test case, and `recordPending` at the end of the report. */
export function openReport(add: (one: Case) => void, recordPending: () => void): ReportReader {
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

export function resultOf({ isDisabled, isMarkedFlaky, isSkipped, remarks }: Case): TestResult {
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

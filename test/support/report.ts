// Reads test reports as the server does.
import { createReportCollector } from '../../src/domain/result/report-collector.ts';
import type { ReportedTest, ReportedTests, TestResult } from '../../src/domain/result/test-result.ts';
import { readReportXml, type XmlProblem } from '../../src/engine/junit-xml.ts';

type Read = { tests: ReportedTest[]; problem: XmlProblem | undefined; durationMs: number };

export async function readReport(xml: string | Buffer, secrets: string[] = []): Promise<Read> {
  return await readReportBytes([Buffer.from(xml as string)], secrets);
}

export async function readReportBytes(bytes: Iterable<Buffer>, secrets: string[] = []): Promise<Read> {
  const collector = createReportCollector(secrets);
  const report = collector.openReport();
  const problem = await readReportXml(asyncOf(bytes), report);
  report.end();
  return { tests: listTests(collector.tests), problem, durationMs: collector.durationMs };
}

export const listTests = (tests: ReportedTests): ReportedTest[] =>
  Array.from({ length: tests.length }, (_, at) => tests.at(at) as ReportedTest);

async function* asyncOf(bytes: Iterable<Buffer>): AsyncGenerator<Buffer> {
  yield* bytes;
}

/** The number of tests of each result that occurs, and of flaky ones. */
export function countTests(tests: readonly ReportedTest[]): Partial<Record<TestResult | 'flaky', number>> {
  const counts: Partial<Record<TestResult | 'flaky', number>> = {};
  for (const { result, isFlaky } of tests) {
    counts[result] = (counts[result] ?? 0) + 1;
    if (isFlaky) counts.flaky = (counts.flaky ?? 0) + 1;
  }
  return counts;
}

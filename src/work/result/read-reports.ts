// Reads the test reports among the artifacts of a build. Reports are hostile: what cannot be read is left out and explained.

import { createReportCollector } from '../../domain/result/report-collector.ts';
import type { ReportedTests } from '../../domain/result/test-result.ts';
import { maskText } from '../../domain/text/mask.ts';
import { openContent } from '../../engine/archive/zip-content.ts';
import { isReport, readReportXml } from '../../engine/junit-xml.ts';
import type { NewBuildArtifact } from '../../store/result/build-artifacts.ts';

const HEAD_BYTES = 4 * 1024;
const MAX_REPORTS_BYTES = 100 * 1024 * 1024;
const MAX_PROBLEMS = 10;

export type BuildReports = {
  /** The artifacts that are reports. */
  paths: string[];
  /** Each test once, with secrets masked. */
  tests: ReportedTests;
  /** The time of all test cases, including repeated ones. */
  durationMs: number;
  /** A line for each report that is not well-formed or was not read to its end; null if there is none. */
  malformed: string | null;
};

/**
 * A report is an artifact that the suite's globs name as one, and each other `*.xml` whose root is a test suite. Returns
 * undefined if there is none. `zip` holds the content of the artifacts. Throws when `signal` is aborted.
 */
export async function readReports(
  zip: string,
  artifacts: readonly NewBuildArtifact[],
  secrets: readonly string[],
  signal: AbortSignal,
): Promise<BuildReports | undefined> {
  const collector = createReportCollector(secrets);
  const paths: string[] = [];
  const problems: string[] = [];
  let readBytes = 0;
  for (const artifact of artifacts) {
    signal.throwIfAborted();
    const { path, sizeBytes } = artifact;
    const isXml = /\.xml$/i.test(path);
    if (!isXml && !artifact.report) continue;
    const hasSuite = isReport(await readHead(zip, artifact));
    // A glob may match more than the reports. Of XML that is none, its author wants to know.
    if (!hasSuite && !(isXml && artifact.report)) continue;
    paths.push(path);
    readBytes += sizeBytes;
    if (readBytes > MAX_REPORTS_BYTES) {
      problems.push(
        `${path}: The reports are larger than 100 MiB in total. This one and the rest were left out.`,
      );
      break;
    }
    const report = collector.openReport();
    const problem = await readReportXml(unlessAborted(openContent(zip, artifact), signal), report);
    report.end();
    if (problem) problems.push(`${path}, line ${problem.line}: ${problem.message}`);
    else if (!report.hasSuite) problems.push(`${path}: It holds no test suite. Is it a JUnit XML report?`);
  }
  if (paths.length === 0) return undefined;
  return {
    paths,
    tests: collector.tests,
    durationMs: collector.durationMs,
    malformed: problems.length === 0 ? null : maskText(secrets, describe(problems)),
  };
}

async function* unlessAborted(bytes: AsyncIterable<Buffer>, signal: AbortSignal): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    signal.throwIfAborted();
    yield chunk;
  }
}

async function readHead(zip: string, artifact: NewBuildArtifact): Promise<Buffer> {
  const end = Math.min(HEAD_BYTES, artifact.sizeBytes) - 1;
  if (end < 0) return Buffer.alloc(0);
  return Buffer.concat(await openContent(zip, artifact, { start: 0, end }).toArray());
}

function describe(problems: readonly string[]): string {
  const more = problems.length - MAX_PROBLEMS;
  return [
    ...problems.slice(0, MAX_PROBLEMS),
    ...(more > 0 ? [`${more} more ${more === 1 ? 'report has' : 'reports have'} problems.`] : []),
  ].join('\n');
}

// Reading a report of 100,000 test cases from the artifacts of a build: the speed compared with the bare XML parser, in
// alternating rounds, and in a process of its own the longest stall of the event loop and the growth of memory.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SaxesParser } from 'saxes';
import { createReportCollector } from '../../src/domain/result/report-collector.ts';
import { createZip } from '../../src/engine/archive/build-zip.ts';
import { readReportXml } from '../../src/engine/junit-xml.ts';
import { readReports } from '../../src/work/result/read-reports.ts';
import { median, report, residentBytesOf } from './support.ts';
import { type LongestStall, longestOf, watchPauses } from './support-pauses.ts';
import type { Stall } from './support-stall-meter.ts';

const CASES = 100_000;
const CASES_OF_CLASS = 100;
const FAILING_EVERY = 50;
const ROUNDS = 7;
const PIECE_BYTES = 64 * 1024;
const SAMPLE_MS = 5;
const SECRETS = ['correct-horse-battery', 'a-token-of-the-suite'];
const running = new AbortController().signal;

type Artifacts = Parameters<typeof readReports>[1];

export async function benchReports(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-bench-'));
  try {
    const xml = Buffer.from(makeReport());
    const file = join(directory, 'build.zip');
    const artifacts = await writeZip(file, xml);
    const bare: number[] = [];
    const ours: number[] = [];
    for (let round = 0; round <= ROUNDS; round++) {
      const [bareMs, oursMs] = [cpuMsOf(() => parseBare(xml)), await parse(xml)];
      // The first round is slower, because the code is not compiled yet.
      if (round === 0) continue;
      bare.push(bareMs);
      ours.push(oursMs);
    }
    const show = (values: number[]) => values.map(value => Math.round(value)).join(', ');
    console.log(
      `${CASES} test cases, ${(xml.length / 1e6).toFixed(1)} MB: ${show(ours)} ms, bare parser ${show(bare)} ms`,
    );
    report('speed of reading test reports ÷ bare parser', median(bare) / median(ours), '≥', 0.5);
    const { stall, grownBytes } = await measureAlone(file, artifacts);
    console.log(`of the longest stall, ${stall.cpuMs.toFixed(0)} ms were spent on the processor`);
    report('longest stall while test reports are read', stall.ms, '≤', 50, ' ms');
    report('growth of memory while test reports are read', grownBytes / 1e6, '≤', 60, ' MB');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function makeReport(): string {
  const lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites>'];
  for (let at = 0; at < CASES; at++) {
    const classname = `com.example.shop.module${Math.floor(at / CASES_OF_CLASS)}.CartTest`;
    if (at % CASES_OF_CLASS === 0) lines.push(`<testsuite name="${classname}" tests="${CASES_OF_CLASS}">`);
    const head = `  <testcase classname="${classname}" name="test_total_with_discount_${at}[param-${at % 7}]" time="0.0${at % 90}1"`;
    if (at % FAILING_EVERY !== 0) lines.push(`${head}/>`);
    else
      lines.push(
        `${head}>`,
        '    <failure message="expected 1 but was 2" type="AssertionError">AssertionError: expected 1 but was 2',
        ...Array.from(
          { length: 20 },
          (_, frame) => `      at com.example.shop.Cart.total(Cart.java:${frame})`,
        ),
        '    </failure>',
        '  </testcase>',
      );
    if (at % CASES_OF_CLASS === CASES_OF_CLASS - 1) lines.push('</testsuite>');
  }
  return [...lines, '</testsuites>', ''].join('\n');
}

async function writeZip(file: string, xml: Buffer): Promise<Artifacts> {
  await using zip = await createZip(file);
  await zip.add(
    { path: 'report.xml', sizeBytes: xml.length, isExecutable: false, modifiedAt: new Date(0) },
    (async function* () {
      yield xml;
    })(),
  );
  return (await zip.finish()).map(entry => ({ ...entry, report: false }));
}

async function read(file: string, artifacts: Artifacts): Promise<void> {
  const found = await readReports(file, artifacts, SECRETS, running);
  if (!found || found.malformed !== null) throw new Error('the report was not read');
}

async function parse(xml: Buffer): Promise<number> {
  const before = process.cpuUsage();
  const collector = createReportCollector(SECRETS);
  const reader = collector.openReport();
  const problem = await readReportXml(piecesOf(xml), reader);
  reader.end();
  const { user } = process.cpuUsage(before);
  if (problem || collector.tests.length !== CASES) throw new Error('the report was not read');
  return user / 1e3;
}

async function* piecesOf(xml: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < xml.length; at += PIECE_BYTES) yield xml.subarray(at, at + PIECE_BYTES);
}

function parseBare(xml: Buffer): void {
  let events = 0;
  const parser = new SaxesParser();
  const count = () => {
    events++;
  };
  parser.on('opentag', count);
  parser.on('closetag', count);
  parser.on('text', count);
  for (let at = 0; at < xml.length; at += PIECE_BYTES)
    parser.write(xml.toString('utf8', at, Math.min(at + PIECE_BYTES, xml.length)));
  parser.close();
  if (events < CASES) throw new Error('the report was not parsed');
}

/** Processor time, because the machine may be busy. */
function cpuMsOf(work: () => void): number {
  const before = process.cpuUsage();
  work();
  return process.cpuUsage(before).user / 1e3;
}

async function measureAlone(
  file: string,
  artifacts: Artifacts,
): Promise<{ stall: LongestStall; grownBytes: number }> {
  const child = fork(import.meta.filename, [file, JSON.stringify(artifacts)], {
    execArgv: ['--import', join(import.meta.dirname, 'support-stall-meter.ts')],
  });
  const [ready] = await once(child, 'message');
  if (ready !== 'ready') throw new Error('the process that reads did not start');
  const idleBytes = residentBytesOf(child.pid as number);
  let peakBytes = idleBytes;
  const sampling = setInterval(() => {
    peakBytes = Math.max(peakBytes, residentBytesOf(child.pid as number));
  }, SAMPLE_MS);
  const pauses = await watchPauses();
  // The meter answers each message with the stalls since the last one.
  child.send('begin');
  const messages: unknown[] = [];
  child.on('message', message => messages.push(message));
  while (!messages.includes('done')) await once(child, 'message');
  messages.length = 0;
  child.send('end');
  while (messages.length === 0) await once(child, 'message');
  clearInterval(sampling);
  child.disconnect();
  const stall = await longestOf(messages[0] as Stall[], pauses);
  await pauses.end();
  return { stall, grownBytes: peakBytes - idleBytes };
}

if (process.argv[1] === import.meta.filename && process.send) {
  const [file, artifacts] = process.argv.slice(2) as [string, string];
  process.on('message', message => {
    if (message === 'begin')
      setTimeout(async () => {
        await read(file, JSON.parse(artifacts) as Artifacts);
        process.send?.('done');
      }, 100);
  });
  process.channel?.ref();
  setTimeout(() => process.send?.('ready'), 500);
}

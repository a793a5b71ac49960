import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createZip } from '../../../src/engine/archive/build-zip.ts';
import { readReports } from '../../../src/work/result/read-reports.ts';
import { countTests, listTests } from '../../support/report.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-reports-'));
after(() => rmSync(directory, { recursive: true }));
const running = new AbortController().signal;

/** Writes a ZIP as the collection of artifacts does. `reports` match the suite's globs. */
async function zipOf(files: Record<string, string | Buffer>, reports: string[] = []) {
  const file = join(directory, `${Math.random()}.zip`);
  await using zip = await createZip(file);
  for (const [path, content] of Object.entries(files)) {
    const bytes = Buffer.from(content as string);
    await zip.add(
      { path, sizeBytes: bytes.length, isExecutable: false, modifiedAt: new Date(0) },
      (async function* () {
        yield bytes;
      })(),
    );
  }
  const entries = await zip.finish();
  return { file, artifacts: entries.map(entry => ({ ...entry, report: reports.includes(entry.path) })) };
}

async function read(files: Record<string, string | Buffer>, reports: string[] = [], secrets: string[] = []) {
  const { file, artifacts } = await zipOf(files, reports);
  const found = await readReports(file, artifacts, secrets, running);
  return found && { ...found, tests: listTests(found.tests) };
}

const suite = (cases: string) => `<?xml version="1.0"?>\n<testsuite name="s">\n${cases}\n</testsuite>\n`;
const passing = (name: string) => `<testcase classname="c" name="${name}" time="0.5"/>`;
const failing = (name: string, message = '') =>
  `<testcase classname="c" name="${name}" time="0.5"><failure message="${message}"/></testcase>`;

test('reads XML with a test suite, and what the globs name, and nothing else', async () => {
  const found = await read(
    {
      'a.xml': suite(passing('one')),
      'coverage.xml': '<coverage><testsuite><testcase name="no"/></testsuite></coverage>',
      'deep/TEST-b.XML': suite(failing('two')),
      'empty.xml': '',
      'page.html': suite(passing('no')),
      'report.txt': suite(passing('three')),
      'results/index.html': '<!doctype html><title>Results</title>',
      'results/style.css': 'a {}',
    },
    ['report.txt', 'results/index.html', 'results/style.css'],
  );
  assert.deepEqual(found?.paths, ['a.xml', 'deep/TEST-b.XML', 'report.txt']);
  assert.deepEqual(
    found?.tests.map(({ name, result }) => `${name} ${result}`),
    ['one passed', 'two failed', 'three passed'],
  );
  assert.equal(found?.durationMs, 1_500);
  assert.equal(found?.malformed, null);
});

test('a build without reports has none', async () => {
  assert.equal(await read({ 'a.txt': 'x', 'pom.xml': '<project/>' }), undefined);
  assert.equal(await read({}), undefined);
});

test('a test that several reports hold is one test', async () => {
  const found = await read({
    'attempt-1.xml': suite(failing('a', 'refused') + failing('b')),
    'attempt-2.xml': suite(passing('a') + failing('b')),
  });
  assert.deepEqual(countTests(found?.tests ?? []), { passed: 1, failed: 1, flaky: 1 });
  assert.deepEqual(
    found?.tests.map(({ retries, message }) => [retries, message]),
    [
      [1, 'refused'],
      [1, ''],
    ],
  );
});

test('what is wrong with a report is said with its file and line, and the others count', async () => {
  const found = await read(
    {
      'cut.xml': `<testsuite>\n${passing('a')}\n${failing('b')}\n<testcase name="c">`,
      'entity.xml': '<!DOCTYPE testsuite [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<testsuite name="&x;"/>',
      'fine.xml': suite(passing('d')),
      'other.xml': '<coverage/>',
      'random.xml': Buffer.from([0xff, 0xfe, 1, 2, 3]),
    },
    ['other.xml', 'random.xml'],
  );
  assert.deepEqual(
    found?.tests.map(({ name }) => name),
    ['a', 'b', 'd'],
  );
  assert.deepEqual(found?.malformed?.split('\n'), [
    'cut.xml, line 4: The report is cut off.',
    'entity.xml, line 1: The report has a document type (DOCTYPE). Such a report is not read.',
    'other.xml: It holds no test suite. Is it a JUnit XML report?',
    'random.xml, line 1: The report is not well-formed: text data outside of root node.',
  ]);
});

test('many broken reports are explained in a few lines', async () => {
  const files = Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`${at}.xml`, '<testsuite>']));
  const lines = (await read(files))?.malformed?.split('\n') ?? [];
  assert.equal(lines.length, 11);
  assert.equal(lines.at(-1), '20 more reports have problems.');
});

test('secrets are masked in all that is returned', async () => {
  const secret = 'correct-horse-battery';
  const found = await read(
    {
      [`${secret}.xml`]: `<testsuite name="${secret}"><testcase name="${secret}"><failure message="${secret}">${secret}</failure>`,
    },
    [],
    [secret],
  );
  assert.deepEqual(
    found?.tests.map(({ classname, name, message, details }) => [classname, name, message, details]),
    [['***', '***', '***', '***']],
  );
  assert.equal(found?.malformed, '***.xml, line 1: The report is cut off.');
});

test('reports of more than 100 MiB in total are left out', async () => {
  const padding = ' '.repeat(30 * 1024 * 1024);
  const files = Object.fromEntries(
    Array.from({ length: 5 }, (_, at) => [`${at}.xml`, suite(passing(`${at}`)) + padding]),
  );
  const found = await read(files);
  assert.equal(found?.tests.length, 3);
  assert.match(found?.malformed ?? '', /^3\.xml: The reports are larger than 100 MiB in total/);
});

test('others run while a large report is read, and a server that stops does not wait for its end', async () => {
  const cases = Array.from({ length: 20_000 }, (_, at) => passing(`t${at}`)).join('\n');
  const { file, artifacts } = await zipOf({ 'a.xml': suite(cases) });
  const stopping = new AbortController();
  const reading = readReports(file, artifacts, [], stopping.signal);
  let turns = 0;
  const counting = (async () => {
    while (!stopping.signal.aborted) {
      turns++;
      await nextTurn();
      if (turns === 10) stopping.abort(new Error('stopping'));
    }
  })();
  await assert.rejects(reading, /stopping/);
  await counting;
  assert.equal(turns, 10);
});

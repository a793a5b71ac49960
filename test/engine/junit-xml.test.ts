import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isReport } from '../../src/engine/junit-xml.ts';
import { countTests, readReport, readReportBytes } from '../support/report.ts';

const MIB = 1024 * 1024;

/** Yields the parts; an entry of a list is a text and how often it is repeated. */
function* repeated(...parts: (string | [string, number])[]): Generator<Buffer> {
  for (const part of parts) {
    const [text, times] = typeof part === 'string' ? [part, 1] : part;
    const block = Buffer.from(text.repeat(Math.min(times, Math.ceil(MIB / text.length))));
    const perBlock = block.length / Buffer.byteLength(text);
    for (let left = times; left > 0; left -= perBlock)
      yield left >= perBlock ? block : block.subarray(0, left * Buffer.byteLength(text));
  }
}

/** Reads a report, and asserts that it takes neither much memory nor very long. */
async function readHostile(...parts: (string | [string, number])[]) {
  const before = process.memoryUsage().rss;
  const startedAt = performance.now();
  let highest = before;
  const meter = setInterval(() => {
    highest = Math.max(highest, process.memoryUsage().rss);
  }, 5);
  const read = await readReportBytes(repeated(...parts));
  clearInterval(meter);
  const seconds = (performance.now() - startedAt) / 1e3;
  const megabytes = (Math.max(highest, process.memoryUsage().rss) - before) / 1e6;
  assert.ok(megabytes < 150, `it took ${megabytes} MB`);
  assert.ok(seconds < 60, `it took ${seconds} s`);
  return { ...read, seconds, megabytes };
}

const open = '<testsuite name="s"><testcase classname="c" name="before"/><testcase classname="c" name="a">';

type Hostile = {
  attack: string;
  parts: (string | [string, number])[];
  message: RegExp | undefined;
  tests: number;
};

const attacks: Hostile[] = [
  {
    attack: 'entities that expand to a billion others',
    parts: [
      '<?xml version="1.0"?><!DOCTYPE testsuites [<!ENTITY a "lol">',
      '<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">',
      ']><testsuites><testcase name="&c;"/></testsuites>',
    ],
    message: /DOCTYPE/,
    tests: 0,
  },
  {
    attack: 'an external entity',
    parts: [
      '<!DOCTYPE testsuite [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&x;"/></testsuite>',
    ],
    message: /DOCTYPE/,
    tests: 0,
  },
  {
    attack: 'a document type of 31 MiB',
    parts: ['<!DOCTYPE testsuite [', ['<!ENTITY x "y">', 2 * MIB], ']><testsuite/>'],
    message: /DOCTYPE/,
    tests: 0,
  },
  {
    attack: 'a document type that does not end',
    parts: ['<!DOCTYPE testsuite [', ['"', 3 * MIB]],
    message: /DOCTYPE/,
    tests: 0,
  },
  {
    attack: 'an unknown entity',
    parts: [open, '<failure message="&nbsp;">&unknown;</failure></testcase></testsuite>'],
    message: /undefined entity/,
    tests: 2,
  },
  {
    attack: 'one text of 31 MiB',
    parts: [open, '<failure>', ['x', 31 * MIB], '</failure></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'one text of 8 MiB of references',
    parts: [open, '<failure>', ['&#1;&lt;', MIB], '</failure></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'one CDATA section of 9 MiB of line ends',
    parts: [open, '<failure><![CDATA[', ['\r\n]', 3 * MIB], ']]></failure></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'one comment of 8 MiB',
    parts: [open, '<failure><!--', ['-x', 4 * MIB], '--></failure></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'one processing instruction of 8 MiB',
    parts: [open, '<?x ', ['?y', 4 * MIB], '?></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'one attribute of 10 MiB',
    parts: [open, '<failure message="', ['&amp;', 2 * MIB], '"/></testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: 'a file of more than 32 MiB',
    parts: [open, '<failure>', ['x', 40 * MIB], '</failure></testcase></testsuite>'],
    message: /larger than 32 MiB/,
    tests: 2,
  },
  {
    attack: '100,000 nested elements',
    parts: [open, ['<a>', 100_000], ['</a>', 100_000], '</testcase></testsuite>'],
    message: /nested more than 64 deep/,
    tests: 1,
  },
  {
    attack: '100,000 nested suites',
    parts: [
      ['<testsuite>', 100_000],
      ['</testsuite>', 100_000],
    ],
    message: /nested more than 64 deep/,
    tests: 0,
  },
  {
    attack: 'a million attributes',
    parts: [
      '<testsuite><testcase ',
      Array.from({ length: 1_000_000 }, (_, at) => `a${at}="" `).join(''),
      '/></testsuite>',
    ],
    message: /more than 256 attributes/,
    tests: 0,
  },
  {
    attack: 'a million attributes of the same name',
    parts: ['<testsuite><testcase ', ['a="" ', 1_000_000], '/></testsuite>'],
    message: /more than 256 attributes/,
    tests: 0,
  },
  {
    attack: 'an element name of 31 MiB',
    parts: [open, '<', ['x', 31 * MIB], '/></testcase></testsuite>'],
    message: /name that is too long/,
    tests: 1,
  },
  {
    attack: 'an entity name of 31 MiB',
    parts: [open, '&', ['x', 31 * MIB], ';</testcase></testsuite>'],
    message: /name that is too long/,
    tests: 1,
  },
  {
    attack: 'an unknown declaration',
    parts: [open, '<!', ['x', 5 * MIB]],
    message: /incorrect syntax/,
    tests: 1,
  },
  {
    attack: '300,000 failures in one case',
    parts: [open, ['<failure message="m">t</failure>', 300_000], '</testcase></testsuite>'],
    message: undefined,
    tests: 2,
  },
  {
    attack: '300,000 suites',
    parts: ['<testsuites>', ['<testsuite name="x"/>', 300_000], '</testsuites>'],
    message: undefined,
    tests: 0,
  },
  {
    attack: 'a million empty elements after the root',
    parts: ['<testsuite/>', ['<testsuite/>', 1_000_000]],
    message: /only one root/,
    tests: 0,
  },
];

for (const { attack, parts, message, tests } of attacks)
  test(`survives ${attack}`, async t => {
    const read = await readHostile(...parts);
    t.diagnostic(`${read.seconds.toFixed(2)} s, ${read.megabytes.toFixed(0)} MB more`);
    if (message === undefined) assert.equal(read.problem, undefined);
    else assert.match(read.problem?.message ?? 'no message', message);
    assert.equal(read.tests.length, tests);
    for (const one of read.tests) assert.ok(one.message.length <= 4096 && one.details.length <= 16_384);
  });

test('text is passed on once, however long it is, and comments are not', async () => {
  const lines = Array.from({ length: 30_000 }, (_, at) => `line ${at}`);
  for (const wrap of [(text: string) => text, (text: string) => `<![CDATA[${text}]]>`]) {
    const { tests } = await readReport(
      `<testsuite><testcase name="a"><failure message="m"><!--${'hidden '.repeat(20_000)}-->${wrap(lines.join('\n'))}</failure></testcase></testsuite>`,
    );
    const [head, tail] = tests[0]!.details.split('\n[…]\n');
    assert.ok(lines.join('\n').startsWith(head!));
    assert.ok(lines.join('\n').endsWith(tail!));
  }
});

test('a report that is cut at any byte counts as far as it was read, and says so', async () => {
  const report = Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>
<!-- ü -->
<testsuites>
  <testsuite name="s">
    <testcase classname="c" name="ä"/>
    <testcase classname="c" name="b"><failure message="€">x &lt; y <![CDATA[ ]] ]]></failure></testcase>
    <?x y?>
    <testcase classname="c" name="d"><skipped/></testcase>
    <testcase classname="c" name="e"></testcase>
  </testsuite>
</testsuites>`);
  const whole = await readReport(report);
  assert.equal(whole.problem, undefined);
  assert.deepEqual(countTests(whole.tests), { passed: 2, failed: 1, skipped: 1 });
  let least = 0;
  for (let length = 0; length < report.length; length++) {
    const { tests, problem } = await readReport(report.subarray(0, length));
    assert.ok(problem, `cut at ${length}`);
    assert.match(problem.message, /cut off|holds no XML element/);
    const line = report.subarray(0, length).toString().split('\n').length;
    assert.equal(problem.line, line, `cut at ${length}`);
    assert.ok(tests.length >= least, `cut at ${length}`);
    least = tests.length;
    for (const one of tests) {
      const same = whole.tests.find(other => other.name === one.name);
      assert.equal(one.result, same?.result, `cut at ${length}`);
    }
  }
  assert.equal(least, 4);
});

test('how the bytes are split makes no difference', async () => {
  const report = Buffer.from(
    `<testsuites>\r\n${Array.from({ length: 1_500 }, (_, at) => `<testcase classname="c€" name="t${at} 😀 &amp;"><failure message="&#27;[31m é">ä\r\n\x1b</failure></testcase>`).join('\r\n')}</testsuites>`,
  );
  const whole = await readReport(report);
  assert.equal(whole.problem, undefined);
  for (const size of [997, 4_096, 65_535, 65_537, 100_000]) {
    const chunks = Array.from({ length: Math.ceil(report.length / size) }, (_, at) =>
      report.subarray(at * size, (at + 1) * size),
    );
    assert.deepEqual(await readReportBytes(chunks), whole);
  }
});

const text = 'Größe ß';
const encoded = (declared: string) =>
  `<?xml version="1.0" encoding="${declared}"?><testsuite><testcase name="${text}"/></testsuite>`;
const bigEndian = (bytes: Buffer) => Buffer.from(bytes).swap16();

const encodings: [string, Buffer, string][] = [
  ['UTF-8', Buffer.from(encoded('UTF-8')), text],
  ['UTF-8 with a byte order mark', Buffer.from(`\uFEFF${encoded('utf-8')}`), text],
  ['UTF-8 without a declaration', Buffer.from(`<testsuite><testcase name="${text}"/></testsuite>`), text],
  ['Latin-1', Buffer.from(encoded('ISO-8859-1'), 'latin1'), text],
  ['Windows-1252', Buffer.from(encoded('windows-1252'), 'latin1'), text],
  ['UTF-16 with a byte order mark', Buffer.from(`\uFEFF${encoded('UTF-16')}`, 'utf16le'), text],
  ['UTF-16 in big endian order', bigEndian(Buffer.from(`\uFEFF${encoded('UTF-16')}`, 'utf16le')), text],
  ['UTF-16 without a byte order mark', Buffer.from(encoded('UTF-16LE'), 'utf16le'), text],
  ['UTF-16 in big endian order without a mark', bigEndian(Buffer.from(encoded('x'), 'utf16le')), text],
  ['UTF-8 declared as UTF-16', Buffer.from(encoded('utf-16')), text],
  ['UTF-8 with an unknown encoding declared', Buffer.from(encoded('klingon')), text],
  ['UTF-8 with an empty encoding declared', Buffer.from(encoded('')), text],
  ['Latin-1 declared as UTF-8', Buffer.from(encoded('UTF-8'), 'latin1'), 'Gr\uFFFD\uFFFDe \uFFFD'],
  ['UTF-8 declared as Latin-1', Buffer.from(encoded('latin1')), 'GrÃ¶ÃŸe ÃŸ'],
  [
    'UTF-8 with control characters',
    Buffer.from(encoded('UTF-8').replace('ß', '\x00\x1b')),
    'Grö\uFFFD\uFFFDe ß',
  ],
];

for (const [name, bytes, expected] of encodings)
  test(`reads ${name}`, async () => {
    const { tests } = await readReport(bytes);
    assert.deepEqual(
      tests.map(one => one.name),
      [expected],
    );
  });

test('random bytes are no report, and are read without harm', async () => {
  let seed = 15;
  const next = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed >> 8;
  };
  const tokens = [
    '<',
    '>',
    '/',
    '&',
    ';',
    '"',
    "'",
    '=',
    '<!',
    '<?',
    '[CDATA[',
    ']]>',
    '--',
    ' ',
    '\n',
    'testcase',
  ];
  tokens.push('testsuite', 'failure', 'name', '\uFFFF', '😀', '#x', 'xml', '<testcase name="', '</');
  for (let round = 0; round < 300; round++) {
    const bytes =
      round % 2
        ? Buffer.from(Array.from({ length: 200 }, () => next() & 0xff))
        : Buffer.from(
            `<testsuite>${Array.from({ length: 100 }, () => tokens[next() % tokens.length]).join('')}`,
          );
    const { problem } = await readReport(bytes);
    assert.ok(problem, bytes.toString('latin1'));
    assert.ok(problem.message.length < 300);
  }
  const megabyte = Buffer.from(Array.from({ length: MIB }, () => next() & 0xff));
  assert.ok((await readReport(megabyte)).problem);
});

test('a report is recognised by its root', () => {
  const reports = [
    '<testsuites/>',
    '<testsuite name="a">',
    '\uFEFF<?xml version="1.0"?>\n<!-- made by hand -->\n<testsuites>',
    '<j:testsuite xmlns:j="x">',
    '<!DOCTYPE testsuites [',
  ];
  for (const head of reports) assert.ok(isReport(Buffer.from(head)), head);
  assert.ok(isReport(Buffer.from('\uFEFF<testsuites>', 'utf16le')));
  const others = [
    '',
    '<',
    '<coverage>',
    '<testsuitesx>',
    '<project><testsuite/></project>',
    '<?xml',
    'testsuite',
    '<!--',
  ];
  for (const head of [...others, '<?x?>'.repeat(5_000), '<!--->'.repeat(5_000)])
    assert.ok(!isReport(Buffer.from(head)), head.slice(0, 99));
});

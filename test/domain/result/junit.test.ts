import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseDurationMs } from '../../../src/domain/result/junit.ts';
import type { TestResult } from '../../../src/domain/result/test-result.ts';
import { countTests, readReport } from '../../support/report.ts';

type Dialect = {
  dialect: string;
  xml: string;
  counts: Partial<Record<TestResult | 'flaky', number>>;
  /** `classname | name` of each test. */
  tests?: string[];
};

const dialects: Dialect[] = [
  {
    dialect: 'one suite as the root',
    xml: `<?xml version="1.0"?>
      <testsuite name="sums" tests="2"><testcase classname="Sums" name="adds"/><testcase classname="Sums" name="carries"/></testsuite>`,
    counts: { passed: 2 },
    tests: ['Sums | adds', 'Sums | carries'],
  },
  {
    dialect: 'nested suites with cases at each level',
    xml: `<testsuites name="all"><testsuite name="outer"><testcase name="first"/>
      <testsuite name="inner"><testcase name="second"/><testsuite name="core"><testcase name="third"><failure/></testcase></testsuite></testsuite>
      <testcase name="fourth"/></testsuite><testcase name="fifth"/></testsuites>`,
    counts: { passed: 4, failed: 1 },
    tests: [
      'outer | first',
      'outer › inner | second',
      'outer › inner › core | third',
      'outer | fourth',
      ' | fifth',
    ],
  },
  {
    dialect: 'an empty report',
    xml: '<testsuites/>',
    counts: {},
  },
  {
    dialect: 'failure, error and skipped, with wrong counters',
    xml: `<testsuites tests="99" failures="0"><testsuite name="s" tests="x" disabled="-1" skip="2" timestamp="2026-03-07T10:36:56 UTC">
      <testcase classname="c" name="a"/><testcase classname="c" name="b"><failure message="no"/></testcase>
      <testcase classname="c" name="d"><error type="Crash"/></testcase><testcase classname="c" name="e"><skipped/></testcase></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1, errored: 1, skipped: 1 },
  },
  {
    dialect: 'several failures in one case',
    xml: `<testsuite><testcase classname="c" name="a"><failure message="one">at 1</failure><failure message="two">at 2</failure><error message="three"/></testcase></testsuite>`,
    counts: { failed: 1 },
  },
  {
    dialect: 'Surefire: flakyFailure and flakyError in a passing case',
    xml: `<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" name="net.example.FetchTest">
      <testcase name="fetches" classname="net.example.FetchTest" time="0.1"><flakyFailure message="timed out" type="Timeout"><stackTrace><![CDATA[at FetchTest:12]]></stackTrace><system-out>try 1</system-out><system-err>slow</system-err></flakyFailure></testcase>
      <testcase name="parses" classname="net.example.FetchTest"><flakyError type="NPE"><stackTrace>at Parse:3</stackTrace></flakyError></testcase>
      <testcase name="closes" classname="net.example.FetchTest"/></testsuite>`,
    counts: { passed: 3, flaky: 2 },
  },
  {
    dialect: 'Surefire: rerunFailure and rerunError in a failing case',
    xml: `<testsuite><testcase name="a" classname="T"><failure message="first"/><rerunFailure message="second"><stackTrace>x</stackTrace></rerunFailure></testcase>
      <testcase name="b" classname="T"><error message="first"/><rerunError message="second"/><rerunError message="third"/></testcase></testsuite>`,
    counts: { failed: 1, errored: 1 },
  },
  {
    dialect: 'pytest-rerunfailures: the same case several times',
    xml: `<testsuites><testsuite name="pytest"><testcase classname="tests.test_net" name="test_get"><failure message="refused"/></testcase>
      <testcase classname="tests.test_net" name="test_get"/><testcase classname="tests.test_net" name="test_put"><failure/></testcase>
      <testcase classname="tests.test_net" name="test_put"><failure/></testcase></testsuite></testsuites>`,
    counts: { passed: 1, flaky: 1, failed: 1 },
  },
  {
    dialect: 'TestNG: skipped, then failed or passed',
    xml: `<testsuite name="ng"><testcase classname="N" name="a"><skipped/></testcase><testcase classname="N" name="a"><failure/></testcase>
      <testcase classname="N" name="b"><skipped/></testcase><testcase classname="N" name="b"/>
      <testcase classname="N" name="c"><skipped/></testcase><testcase classname="N" name="c"><skipped/></testcase></testsuite>`,
    counts: { failed: 1, passed: 1, skipped: 1 },
  },
  {
    dialect: 'GdUnit: each attempt as a failure of one case',
    xml: `<testsuites flaky="1"><testsuite name="Player" package="game/test"><testcase name="test_jump" classname="Player"><failure message="attempt 1"/><failure message="attempt 2"/></testcase></testsuite></testsuites>`,
    counts: { failed: 1 },
  },
  {
    dialect: 'Firebase: a failure in a case that is marked flaky',
    xml: `<testsuite name="s" flakes="1"><testcase classname="c" name="a" flaky="true"><failure>once</failure></testcase><testcase classname="c" name="b"><failure>always</failure></testcase></testsuite>`,
    counts: { passed: 1, flaky: 1, failed: 1 },
  },
  {
    dialect: 'PHPUnit: class instead of classname, nested suites, a file',
    xml: `<testsuites><testsuite name="unit"><testsuite name="App\\CartTest" file="/srv/project/tests/CartTest.php">
      <testcase name="testTotal" class="App\\CartTest" file="/srv/project/tests/CartTest.php" line="12" assertions="2" time="0.004"/>
      <testsuite name="App\\CartTest::testTax"><testcase name="testTax with data set &quot;zero&quot;" assertions="1"><failure type="Expectation">no tax</failure></testcase></testsuite>
      </testsuite></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1 },
    tests: [
      'App\\CartTest | testTotal',
      'unit › App\\CartTest › App\\CartTest::testTax | testTax with data set "zero"',
    ],
  },
  {
    dialect: 'CUnit: ids, no class names, exponents in times',
    xml: `<testsuites><testsuite name="list" id="1"><testcase id="append" time="1.7e-05"/><testcase id="drop" time="0"><failure message="list.c:7" type="Failure"/></testcase></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1 },
    tests: ['list | append', 'list | drop'],
  },
  {
    dialect: 'container-structure-test: no class names, nanoseconds',
    xml: `<testsuites><testsuite><testcase name="Command Test: shell" time="350000000"></testcase><testcase name="File Test: passwd" time="91000"><failure>no such file</failure></testcase></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1 },
  },
  {
    dialect: 'disabled and ignored, even with a failure',
    xml: `<testsuite name="s"><testcase classname="c" name="a" status="disabled"><failure message="old"/></testcase><testcase classname="c" name="b" status="ignored"/><testcase classname="c" name="d" status="run"/></testsuite>`,
    counts: { skipped: 2, passed: 1 },
  },
  {
    dialect: 'GoogleTest: notrun, suppressed, skipped, several failures',
    xml: `<testsuites tests="4" failures="1" disabled="1" name="AllTests"><testsuite name="Queue" tests="4">
      <testcase name="Push" file="queue_test.cc" line="4" status="run" result="completed" time="0." classname="Queue"/>
      <testcase name="DISABLED_Pop" status="notrun" result="suppressed" time="0." classname="Queue"/>
      <testcase name="Peek" status="run" result="skipped" classname="Queue"><skipped message="queue_test.cc:9"><![CDATA[queue_test.cc:9]]></skipped></testcase>
      <testcase name="Size" status="run" result="completed" classname="Queue"><failure message="queue_test.cc:14&#x0A;Expected 1" type=""><![CDATA[queue_test.cc:14]]></failure><failure message="second" type=""/></testcase></testsuite></testsuites>`,
    counts: { passed: 1, skipped: 2, failed: 1 },
  },
  {
    dialect: 'pytest: parameters in names, output',
    xml: `<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="0" failures="1" skipped="1" tests="3" time="0.031" timestamp="2026-01-05T09:00:00.123456" hostname="box">
      <testcase classname="tests.test_maths" name="test_add[1-2]" time="0.001"/><testcase classname="tests.test_maths" name="test_add[2-2]" time="0.001"><failure message="assert 4 == 5">def test_add</failure></testcase>
      <testcase classname="tests.test_maths.TestDiv" name="test_zero"><skipped type="pytest.skip" message="later">tests/test_maths.py:8: later</skipped></testcase></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1, skipped: 1 },
    tests: [
      'tests.test_maths | test_add[1-2]',
      'tests.test_maths | test_add[2-2]',
      'tests.test_maths.TestDiv | test_zero',
    ],
  },
  {
    dialect: 'jest-junit: the path of descriptions as class name, a file',
    xml: `<testsuites name="jest tests"><testsuite name="cart" tests="2"><testcase classname="cart › total" name="adds tax" time="0.003" file="src/cart.test.ts"/><testcase classname="cart › total" name="rounds" file="src/cart.test.ts"><failure>Error: 1 is not 2</failure></testcase></testsuite></testsuites>`,
    counts: { passed: 1, failed: 1 },
    tests: ['src/cart.test.ts › cart › total | adds tax', 'src/cart.test.ts › cart › total | rounds'],
  },
  {
    dialect: 'node --test: tests of the same name in two files are two tests',
    xml: `<testsuites><testcase name="starts" time="0.002" classname="test" file="/srv/project/test/a.test.js"/><testcase name="starts" classname="test" file="/srv/project/test/b.test.js" failure="no"><failure type="testCodeFailure" message="no">x ]]> y</failure></testcase>
      <testsuite name="outer"><testsuite name="inner"><testcase name="works" classname="outer.inner" file="/srv/project/test/a.test.js"/><testcase name="later" classname="outer.inner" file="/srv/project/test/a.test.js"><skipped type="todo" message="true"/></testcase></testsuite></testsuite><!-- tests 4 --></testsuites>`,
    counts: { passed: 2, failed: 1, skipped: 1 },
    tests: [
      'test/a.test.js | starts',
      'test/b.test.js | starts',
      'test/a.test.js › outer.inner | works',
      'test/a.test.js › outer.inner | later',
    ],
  },
  {
    dialect: 'node --test before it named files: tests of the same name are different tests',
    xml: `<testsuites><testcase name="starts" time="0.1" classname="test"/><testcase name="starts" classname="test" failure="no"><failure type="testCodeFailure" message="no"/></testcase>
      <testsuite name="outer" hostname="box"><testcase name="works" classname="test"><failure/></testcase></testsuite>
      <testsuite name="outer" hostname="box"><testcase name="works" classname="test"/></testsuite></testsuites>`,
    counts: { passed: 2, failed: 2 },
    tests: ['test | starts', 'test | starts (2)', 'outer | works', 'outer | works (2)'],
  },
  {
    dialect: 'pytest in a file test.py, repeated',
    xml: `<testsuites><testsuite name="pytest"><testcase classname="test" name="test_a"><failure/></testcase><testcase classname="test" name="test_a"/></testsuite></testsuites>`,
    counts: { passed: 1, flaky: 1 },
    tests: ['test | test_a'],
  },
  {
    dialect: 'Catch2 and xUnit: file and line on the failure',
    xml: `<testsuites><testsuite name="catch"><testcase classname="exe.global" name="Vectors" time="0.1"><failure message="v.size() == 5" type="REQUIRE">FAILED: 4 == 5 at vectors.cpp:33</failure></testcase>
      <testcase classname="exe.global" name="Maps"><failure file="maps.cpp" line="8"/></testcase></testsuite></testsuites>`,
    counts: { failed: 2 },
  },
  {
    dialect: 'ctest --output-junit: run, fail, notrun, disabled',
    xml: `<testsuite name="Linux-c++" tests="4" failures="1" disabled="1" skipped="1" hostname="" time="0" timestamp="2026-05-01T00:00:00">
      <testcase name="a" classname="a" time="0.01" status="run"><properties/><system-out>fine</system-out></testcase>
      <testcase name="b" classname="b" time="0.01" status="fail"><failure message=""/><properties/><system-out>boom</system-out></testcase>
      <testcase name="c" classname="c" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out/></testcase>
      <testcase name="d" classname="d" time="0" status="disabled"><skipped message="Disabled"/></testcase></testsuite>`,
    counts: { passed: 1, failed: 1, skipped: 2 },
  },
  {
    dialect: 'gotestsum: packages, subtests, a rerun',
    xml: `<testsuites tests="4" failures="2"><testsuite tests="4" failures="2" time="0.010000" name="example.org/net" timestamp="2026-05-01T00:00:00Z"><properties><property name="go.version" value="go1.19"/></properties>
      <testcase classname="example.org/net" name="TestDial" time="0.000000"><failure message="Failed" type="">dial_test.go:9: refused</failure></testcase><testcase classname="example.org/net" name="TestDial" time="0.000000"/>
      <testcase classname="example.org/net" name="TestParse/empty"/><testcase classname="example.org/net" name="TestParse"><failure message="Failed" type=""/></testcase></testsuite></testsuites>`,
    counts: { passed: 2, flaky: 1, failed: 1 },
  },
  {
    dialect: 'cargo nextest: no counters of skipped, reruns',
    xml: `<testsuites name="nextest-run" tests="3" failures="1" errors="0" uuid="0f0f" timestamp="2026-05-01T00:00:00.000+00:00" time="0.1"><testsuite name="crate" tests="3" disabled="0" errors="0" failures="1">
      <testcase name="tests::ok" classname="crate" timestamp="2026-05-01T00:00:00.000+00:00" time="0.01"/>
      <testcase name="tests::flaky" classname="crate"><flakyFailure message="thread panicked" type="test failure with exit code 101"><system-err>x</system-err></flakyFailure></testcase>
      <testcase name="tests::bad" classname="crate"><failure message="m" type="t">text</failure><rerunFailure type="t">text</rerunFailure><system-out>o</system-out></testcase></testsuite></testsuites>`,
    counts: { passed: 2, flaky: 1, failed: 1 },
  },
  {
    dialect: 'Bazel test.xml: one case for a whole target',
    xml: `<?xml version="1.0" encoding="UTF-8"?><testsuites><testsuite name="pkg/app_test" tests="1" failures="0" errors="1"><testcase name="pkg/app_test" status="run" duration="3" time="3"><error message="exited with error code 1"></error></testcase><system-out>Generated test.log (if the file is not UTF-8, then this may be unreadable): <![CDATA[exec ]]></system-out></testsuite></testsuites>`,
    counts: { errored: 1 },
    tests: ['pkg/app_test | pkg/app_test'],
  },
  {
    dialect: 'attachments as a property and in the output',
    xml: `<testsuite name="ui"><testcase classname="c" name="a"><properties><property name="attachment" value="shots/a.png"/></properties><failure message="differs"/><system-out>[[ATTACHMENT|shots/b.png]]</system-out></testcase></testsuite>`,
    counts: { failed: 1 },
  },
  {
    dialect: 'Perl: separators of thousands',
    xml: `<testsuites><testsuite name="t_basic_t" tests="1" time="1,234.5"><testcase name="1 - loads" time="1,234.5"></testcase><system-out><![CDATA[ok 1]]></system-out><system-err></system-err></testsuite></testsuites>`,
    counts: { passed: 1 },
  },
  {
    dialect: 'a namespace before each name',
    xml: `<j:testsuites xmlns:j="urn:j"><j:testsuite name="s"><j:testcase classname="c" name="a"><j:failure/></j:testcase></j:testsuite></j:testsuites>`,
    counts: { failed: 1 },
  },
];

for (const { dialect, xml, counts, tests } of dialects)
  test(`reads ${dialect}`, async () => {
    const read = await readReport(xml);
    assert.equal(read.problem, undefined);
    assert.deepEqual(countTests(read.tests), counts);
    if (tests)
      assert.deepEqual(
        read.tests.map(one => `${one.classname} | ${one.name}`),
        tests,
      );
  });

const one = async (inside: string, attributes = '', secrets: string[] = []) => {
  const { tests } = await readReport(
    `<testsuite name="s"><testcase name="a" ${attributes}>${inside}</testcase></testsuite>`,
    secrets,
  );
  assert.equal(tests.length, 1);
  return tests[0]!;
};

test('a time is in seconds, or in nanoseconds if it is a whole number that is more than a day', () => {
  const times: [string | undefined, number | undefined][] = [
    [undefined, undefined],
    ['', undefined],
    ['0', 0],
    ['0.', 0],
    ['.5', 500],
    ['1.5', 1_500],
    [' 2.25s ', 2_250],
    ['1.7e-05', 0.017],
    ['1E3', 1_000_000],
    ['1,234.5', 1_234_500],
    ['1,234', 1_234_000],
    ['1,234,567.25', 1_234_567_250],
    ['0,25', 250],
    ['12,5', 12_500],
    ['1.234,5', 1_234_500],
    ['86399', 86_399_000],
    ['86400', 0.0864],
    ['350000000', 350],
    ['90000.5', 90_000_500],
    ['-1', undefined],
    ['NaN', undefined],
    ['Infinity', undefined],
    ['1e300', undefined],
    ['0x10', undefined],
    ['e5', undefined],
    ['soon', undefined],
    ['1:30', undefined],
  ];
  for (const [text, ms] of times) {
    const read = parseDurationMs(text);
    if (ms === undefined || read === undefined) assert.equal(read, ms, `${text}`);
    else assert.ok(Math.abs(read - ms) < 1e-6 * Math.max(1, ms), `${text} is ${read}`);
  }
});

test('the time of a report includes repeated cases, and a test has the time of its last attempt', async () => {
  const { tests, durationMs } = await readReport(
    `<testsuite><testcase classname="c" name="a" time="1.5"><failure/></testcase><testcase classname="c" name="a" time="0.25"/><testcase classname="c" name="b" time="0.0004"/></testsuite>`,
  );
  assert.equal(durationMs, 1_750);
  assert.deepEqual(
    tests.map(({ durationMs, retries, isFlaky }) => ({ durationMs, retries, isFlaky })),
    [
      { durationMs: 250, retries: 1, isFlaky: true },
      { durationMs: 0, retries: 0, isFlaky: false },
    ],
  );
});

test('the message is the attribute, else the first line of the text, else the type, else the first line of the output', async () => {
  assert.equal((await one('<failure message="no" type="T">text</failure>')).message, 'no');
  assert.equal((await one('<failure>\n  first\n  second</failure>')).message, 'first');
  assert.equal((await one('<failure type="T">text</failure>')).message, 'text');
  assert.equal((await one('<error type="java.lang.Error"/>')).message, 'java.lang.Error');
  assert.equal((await one('<failure message=""/><system-out>boom\nbang</system-out>')).message, 'boom');
});

test('details hold the text of all failures, where they are, attachments and the output, each of failing cases only', async () => {
  const failing = await one(
    `<properties><property name="attachment" value="a.png"/></properties><system-out>before</system-out>
     <failure message="one" file="/srv/project/a.c" line="3">text <b>bold</b></failure><failure message="two">other</failure><system-err>after</system-err>`,
  );
  assert.equal(failing.file, 'a.c');
  assert.equal(
    failing.details,
    'a.c:3\ntext bold\n\ntwo\nother\n\n[[ATTACHMENT|a.png]]\n\nbeforeafter'.replace('\n\n\n', '\n\n'),
  );
  const passing = await one('<system-out>noise</system-out>');
  assert.equal(passing.details, '');
  assert.equal((await one('<skipped message="later">text</skipped>')).message, '');
});

test('a flaky test keeps the message and the stack of its failure', async () => {
  const { tests } = await readReport(
    `<testsuite><testcase classname="c" name="a"><flakyFailure message="timed out"><stackTrace>at a:1</stackTrace></flakyFailure></testcase>
     <testcase classname="c" name="b"/><testcase classname="c" name="b"><failure message="late">at b:2</failure></testcase></testsuite>`,
  );
  assert.deepEqual(
    tests.map(({ result, isFlaky, retries, message, details }) => [
      result,
      isFlaky,
      retries,
      message,
      details,
    ]),
    [
      ['passed', true, 1, 'timed out', 'at a:1'],
      ['passed', true, 1, 'late', 'at b:2'],
    ],
  );
});

test('colour codes are removed from messages and details', async () => {
  const { message, details } = await one(
    '<failure message="&#27;[31mred&#x1B;[0m #x1B[1mbold#x1B[0m">\x1b[1;32mgreen\x1b[0m and \x07bell</failure>',
  );
  assert.equal(message, 'red bold');
  assert.equal(details, 'green and \uFFFDbell');
});

test('long messages and details keep head and tail, at most 4 KiB and 16 KiB', async () => {
  const lines = Array.from({ length: 20_000 }, (_, at) => `zeile ${at} ÄÖ€😀`).join('\n');
  const { message, details } = await one(
    `<failure message="${lines.replaceAll('\n', '&#10;')}">${lines}</failure><system-out>${lines}</system-out>`,
  );
  for (const [text, max] of [
    [message, 4096],
    [details, 16_384],
  ] as const) {
    assert.ok(
      Buffer.byteLength(text) <= max && Buffer.byteLength(text) > max * 0.9,
      `${Buffer.byteLength(text)}`,
    );
    assert.match(text, /^zeile 0 ÄÖ€😀\n/);
    assert.match(text, /\n\[…\]\nzeile 199\d\d/);
    assert.match(text, /zeile 19999 ÄÖ€😀$/);
    assert.ok(!text.includes('\uFFFD'));
  }
  const long = await one(`<failure message="${'x'.repeat(300_000)}"/>`);
  assert.ok(Buffer.byteLength(long.message) <= 4096 && long.message.startsWith('x'.repeat(4_000)));
});

test('a build keeps at most 4 MiB of details and 4 MiB of messages', async () => {
  const line = `${'d'.repeat(99)}\n`;
  const cases = Array.from(
    { length: 1_200 },
    (_, at) =>
      `<testcase classname="c" name="t${at}"><failure message="${line.repeat(50)}">${line.repeat(180)}</failure></testcase>`,
  );
  const { tests } = await readReport(`<testsuite>${cases.join('')}</testsuite>`);
  const total = (field: 'message' | 'details') => tests.reduce((sum, test) => sum + test[field].length, 0);
  assert.equal(tests.length, 1_200);
  for (const field of ['message', 'details'] as const)
    assert.ok(total(field) > 4_000_000 && total(field) <= 4 * 1024 * 1024, `${total(field)}`);
});

test('secrets are masked in names, files, messages and details, even where a text is cut', async () => {
  const secret = 'correct-horse-battery';
  const { tests } = await readReport(
    `<testsuite><testcase classname="c ${secret}" name="n ${secret}" file="${secret}.c"><failure message="m ${secret}">t ${secret}&#10;</failure><system-out>o ${secret}</system-out></testcase></testsuite>`,
    [secret],
  );
  assert.ok(!JSON.stringify(tests).includes(secret));
  assert.deepEqual(
    tests.map(({ classname, name, file, message, details }) => ({ classname, name, file, message, details })),
    [{ classname: 'c ***', name: 'n ***', file: '***.c', message: 'm ***', details: 't ***\n\no ***' }],
  );
  // Whatever place the text is cut at, no part of the secret is left.
  for (let shift = 0; shift < secret.length + 2; shift++) {
    const text = 'y'.repeat(shift) + secret.repeat(2_000);
    const cut = await one(`<failure message="${text}">${text}</failure>`, '', [secret]);
    for (const kept of [cut.message, cut.details]) {
      assert.match(kept, /^y*\*\*\*/);
      assert.doesNotMatch(kept, /correct|horse|battery/);
    }
    const name = (await readReport(`<testsuite><testcase name="${text}"/></testsuite>`, [secret])).tests[0]!
      .name;
    assert.doesNotMatch(name, /correct|horse|battery/);
  }
});

test('a long name is cut and stays distinct', async () => {
  const { tests } = await readReport(
    `<testsuite><testcase name="${'n'.repeat(5_000)}1"/><testcase name="${'n'.repeat(5_000)}2"/><testcase name=""/></testsuite>`,
  );
  assert.equal(new Set(tests.map(test => test.name)).size, 3);
  for (const { name } of tests) assert.ok(name.length < 1_100 && name !== '');
});

test('more than 100,000 cases are left out, with a message', async () => {
  const cases = Array.from(
    { length: 100_010 },
    (_, at) => `<testcase classname="c${at >> 7}" name="t${at}"/>\n`,
  );
  const { tests, problem } = await readReport(`<testsuite>\n${cases.join('')}</testsuite>`);
  assert.equal(tests.length, 100_000);
  assert.deepEqual(problem, {
    line: 100_002,
    message: 'The build has more than 100000 test cases. The rest was left out.',
  });
});

// The comparison of inputs, and the sentences that explain a difference.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareInputs, type Differences, listCauses } from '../../../src/domain/result/build-diff.ts';
import type { BuildInputs } from '../../../src/domain/result/build-inputs.ts';

const inputs: BuildInputs = {
  command: 'make check',
  image: 'tools',
  imageId: 'sha256:1',
  variables: [
    { name: 'MODE', fingerprint: 'a' },
    { name: 'TOKEN', fingerprint: 'b' },
  ],
  dependencies: [{ id: '1', name: 'zlib', artifact: 'aaaa', launch: 'x' }],
  limits: { MEMORY: 100, NETWORK: 'none' },
};
const differences = (changes: Partial<Differences>): Differences => ({
  inputs: compareInputs(inputs, inputs),
  isSameCommit: true,
  range: undefined,
  tests: undefined,
  log: undefined,
  ...changes,
});
const changed = (after: Partial<BuildInputs>) =>
  differences({ inputs: compareInputs(inputs, { ...inputs, ...after }) });
const [zlib] = inputs.dependencies;
const commit = (authorName: string, subject = 'Fix it') => ({
  hash: 'a'.repeat(40),
  subject,
  authorName,
  authoredDate: '2026-01-01T00:00:00+00:00',
});

test('each change is described by a sentence', () => {
  const oneFile = { path: 'a', change: 'modified' as const };
  const range = {
    commits: [commit('Ada')],
    commitsTotal: 1,
    missingTotal: 0,
    files: [oneFile],
    filesTotal: 1,
  };
  const table: [Differences, kind: string, text: string][] = [
    [
      changed({ dependencies: [{ ...zlib!, artifact: 'bbbb' }] }),
      'dependencies',
      'The dependency zlib was compiled again with a different result.',
    ],
    [
      changed({ dependencies: [{ ...zlib!, launch: 'y' }] }),
      'dependencies',
      'The dependency zlib has a different launch command or environment.',
    ],
    [changed({ dependencies: [] }), 'dependencies', 'The dependency zlib was removed.'],
    [
      changed({
        dependencies: [zlib!, ...['a', 'b', 'c', 'd'].map(name => ({ ...zlib!, id: name, name }))],
      }),
      'dependencies',
      'The dependencies a, b, c and 1 more were added.',
    ],
    [
      changed({ imageId: 'sha256:2' }),
      'image',
      'The image tools was replaced by another one of the same name.',
    ],
    [changed({ image: 'other', imageId: 'sha256:2' }), 'image', 'The image changed from tools to other.'],
    [changed({ image: 'other', imageId: null }), 'image', 'The image changed from tools to other.'],
    [changed({ command: 'make' }), 'command', 'The command of the suite changed.'],
    [
      changed({ variables: [{ name: 'MODE', fingerprint: 'z' }, inputs.variables[1]!] }),
      'variables',
      'The variable MODE has a different value.',
    ],
    [
      changed({ variables: [{ name: 'NEW', fingerprint: 'z' }] }),
      'variables',
      'The variable NEW was added; the variables MODE and TOKEN were removed.',
    ],
    [
      changed({ limits: { MEMORY: 3 * 1024 ** 3, NETWORK: 'none', PIDS: 10 } }),
      'limits',
      'The settings of the server changed: MEMORY from 100 to 3 GiB, PIDS from none to 10.',
    ],
    [differences({ isSameCommit: false, range }), 'commits', '1 commit by Ada, 1 file changed: Fix it.'],
    [
      differences({
        isSameCommit: false,
        range: {
          ...range,
          commits: [commit('Ada'), commit('Bob'), commit('Ada')],
          commitsTotal: 30,
          missingTotal: 2,
          filesTotal: 40,
        },
      }),
      'commits',
      '30 commits by Ada and Bob, 40 files changed. 2 commits of the other build are not in this one.',
    ],
    [differences({ isSameCommit: false }), 'commits', 'The commit is different.'],
  ];
  for (const [given, kind, text] of table) assert.deepEqual(listCauses(given), [{ kind, text }]);
});

test('an input other than the code comes before the code, and both before what was printed', () => {
  const everything = listCauses({
    ...changed({
      command: 'make',
      imageId: 'sha256:2',
      dependencies: [],
      variables: [],
      limits: { MEMORY: 50 },
    }),
    isSameCommit: false,
    tests: {
      failing: [{ id: 1n, classname: 'c', name: 'adds' }],
      failingTotal: 2,
      fixed: [],
      fixedTotal: 0,
    },
    log: { lines: [{ line: 7, text: 'boom' }], cutBecause: null },
  });
  assert.deepEqual(
    everything.map(({ kind }) => kind),
    ['dependencies', 'image', 'command', 'variables', 'limits', 'commits', 'tests', 'log'],
  );
  assert.equal(everything[6]?.text, '2 tests fail that did not fail before: adds and 1 more.');
  assert.equal(everything[7]?.text, 'The log differs first in line 7: boom');
});

test('the same inputs point to chance, before tests and log; inputs that were not recorded point to nothing', () => {
  const log = { lines: [{ line: 1, text: 'x' }], cutBecause: null };
  const kinds = (given: Differences) => listCauses(given).map(({ kind }) => kind);
  assert.deepEqual(kinds(differences({ log })), ['chance', 'log']);
  assert.deepEqual(kinds(differences({ inputs: undefined, log })), ['log']);
  assert.deepEqual(kinds(differences({ inputs: undefined })), []);
  assert.deepEqual(kinds(differences({ isSameCommit: false, log })), ['commits', 'log']);
});

test('long names do not make long sentences', () => {
  const many = Array.from({ length: 500 }, (_, at) => ({ name: `V${at}`.repeat(100), fingerprint: 'z' }));
  const [cause] = listCauses(changed({ variables: many }));
  assert.ok((cause?.text.length ?? 0) < 1_000);
});

test('an image that was never prepared is compared by its name', () => {
  assert.equal(compareInputs(inputs, { ...inputs, imageId: null }).image.isChanged, false);
  assert.equal(compareInputs({ ...inputs, imageId: null }, { ...inputs, image: 'x' }).image.isChanged, true);
  assert.equal(compareInputs(inputs, { ...inputs, image: 'renamed' }).image.isChanged, false);
});

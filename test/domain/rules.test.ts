// Rules: every subject and operator, and what is recorded about the decision.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type CommitDetails,
  createEvaluator,
  evaluatePartially,
  operators,
  type Rule,
  subjects,
} from '../../src/domain/rules.ts';
import { processorMs } from '../support/processor.ts';

const commit: CommitDetails = {
  message: 'Fix the parser\n\nIt ate newlines [ci skip]',
  branches: ['main', 'release/1.2'],
  tags: [],
  files: ['src/parser.ts', 'docs/a.md'],
  ref: '0123456789abcdef0123456789abcdef01234567',
  authorName: 'Ada',
  authorEmail: 'ada@example.org',
  committerName: 'Grace',
  committerEmail: 'grace@example.org',
  trigger: 'schedule',
  triggerName: 'Nightly',
};

const evaluateRules = <R extends Rule>(rules: readonly R[], commit: CommitDetails) =>
  createEvaluator(commit)(rules);

const holds = (subject: Rule['subject'], operator: Rule['operator'], value: string) =>
  evaluateRules([{ subject, operator, value }], commit).runs;

test('a suite without rules always runs', () => {
  assert.deepEqual(evaluateRules([], commit), { runs: true, rules: [] });
});

test('a suite runs only when all of its rules hold, and each rule records the value it saw', () => {
  const evaluation = evaluateRules(
    [
      { id: 7n, subject: 'commit.branches', operator: 'equals', value: 'main' },
      { id: 8n, subject: 'commit.author_name', operator: 'equals', value: 'Bob' },
    ],
    commit,
  );
  assert.deepEqual(evaluation, {
    runs: false,
    rules: [
      {
        id: 7n,
        subject: 'commit.branches',
        operator: 'equals',
        value: 'main',
        holds: true,
        saw: commit.branches,
      },
      { id: 8n, subject: 'commit.author_name', operator: 'equals', value: 'Bob', holds: false, saw: 'Ada' },
    ],
  });
});

test('every subject reads its own field', () => {
  const own: Record<Rule['subject'], string> = {
    'commit.message': 'Fix the',
    'commit.branches': 'release/',
    'commit.tags': '',
    'commit.files': 'docs/',
    'commit.ref': '01234567',
    'commit.author_name': 'Ada',
    'commit.author_email': 'ada@',
    'commit.committer_name': 'Gra',
    'commit.committer_email': 'grace@',
    'request.trigger': 'sche',
    'request.trigger_name': 'Night',
  };
  for (const subject of subjects) {
    assert.equal(holds(subject, 'starts_with', own[subject]), subject !== 'commit.tags', subject);
    assert.equal(holds(subject, 'starts_with', 'nothing like it'), false, subject);
  }
});

test('operators on text', () => {
  const table: [Rule['operator'], string, boolean][] = [
    ['contains', 'parser', true],
    ['contains', 'Parser', false],
    ['does_not_contain', 'parser', false],
    ['does_not_contain', '[skip]', true],
    ['equals', commit.message, true],
    ['equals', 'Fix the parser', false],
    ['does_not_equal', 'Fix the parser', true],
    ['does_not_equal', commit.message, false],
    ['starts_with', 'Fix', true],
    ['starts_with', 'fix', false],
    ['ends_with', 'skip]', true],
    ['ends_with', 'skip', false],
    ['matches', 'Fix*newlines*', true],
    ['matches', 'Fix', false],
    ['does_not_match', 'Fix*', false],
    ['does_not_match', 'Fix', true],
  ];
  assert.deepEqual(new Set(table.map(row => row[0])), new Set(operators));
  for (const [operator, value, expected] of table) {
    assert.equal(holds('commit.message', operator, value), expected, `${operator} ${value}`);
  }
});

test('on a list, a positive operator needs one matching element, and a negative one allows none', () => {
  const table: [Rule['subject'], Rule['operator'], string, boolean][] = [
    ['commit.branches', 'equals', 'main', true],
    ['commit.branches', 'equals', 'mai', false],
    ['commit.branches', 'does_not_equal', 'main', false],
    ['commit.branches', 'does_not_equal', 'dev', true],
    ['commit.branches', 'matches', 'release/*', true],
    ['commit.files', 'does_not_match', 'docs/*', false],
    ['commit.files', 'does_not_match', 'test/*', true],
    ['commit.files', 'does_not_contain', '.md', false],
    ['commit.files', 'ends_with', '.ts', true],
    ['commit.tags', 'matches', '*', false],
    ['commit.tags', 'does_not_match', '*', true],
    ['commit.tags', 'does_not_equal', 'v1', true],
  ];
  for (const [subject, operator, value, expected] of table) {
    assert.equal(holds(subject, operator, value), expected, `${subject} ${operator} ${value}`);
  }
});

test('a long list is shortened, but the deciding element is still shown', () => {
  const files = Array.from({ length: 100_000 }, (_, index) => `file-${index}`);
  const rule: Rule = { subject: 'commit.files', operator: 'equals', value: 'file-99999' };
  const [result] = evaluateRules([rule], { ...commit, files }).rules;
  assert.equal(result?.holds, true);
  assert.equal(result?.saw.length, 51);
  assert.ok(result?.saw.includes('file-99999'));
  assert.equal(result?.saw.at(-1), '… 99950 more');
});

test('a long text is cut between characters', () => {
  const message = `${'x'.repeat(999)}😀${'y'.repeat(5_000)}`;
  const [result] = evaluateRules([{ subject: 'commit.message', operator: 'contains', value: 'y' }], {
    ...commit,
    message,
  }).rules;
  assert.equal(result?.saw, `${'x'.repeat(999)}…`);
});

test('a rule that several suites share is evaluated once, and each suite keeps its own result', () => {
  let asked = 0;
  const evaluateOne = createEvaluator({
    ...commit,
    get message() {
      asked++;
      return commit.message;
    },
  });
  const rule: Rule = { subject: 'commit.message', operator: 'contains', value: 'parser' };
  const [result] = evaluateOne([{ ...rule, id: 1n }]).rules;
  assert.deepEqual(result, { ...rule, id: 1n, holds: true, saw: commit.message });
  asked = 0;
  assert.equal(evaluateOne([{ ...rule, id: 2n }]).rules[0]?.id, 2n);
  assert.equal(asked, 0);
  assert.equal(evaluateOne([{ ...rule, value: 'else' }]).runs, false);
  assert.equal(evaluateOne([{ ...rule, operator: 'does_not_contain' }]).runs, false);
});

test('without the paths of a commit, a rule that needs them and is not decided by others leaves the suite open', () => {
  const inPart = (operator: Rule['operator'], value: string, ...more: Rule[]) => {
    const rule: Rule = { subject: 'commit.files', operator, value };
    const { runs, rules } = evaluatePartially([rule, ...more], commit, 500);
    return [runs, ...rules.map(({ isOpen }) => isOpen)];
  };
  const forbids: Rule = { subject: 'commit.branches', operator: 'equals', value: 'elsewhere' };
  assert.deepEqual(inPart('starts_with', 'src/'), [true, false]);
  assert.deepEqual(inPart('starts_with', 'lib/'), [undefined, true]);
  assert.deepEqual(inPart('does_not_match', 'docs/*'), [false, false]);
  assert.deepEqual(inPart('does_not_match', 'lib/*'), [undefined, true]);
  assert.deepEqual(inPart('starts_with', 'lib/', forbids), [false, true, false]);
  const open: Rule = { subject: 'commit.files', operator: 'contains', value: 'lib' };
  const { rules } = evaluatePartially([open, forbids], commit, 500);
  assert.deepEqual(
    rules.map(({ saw }) => saw),
    [[...commit.files, '… 500 more'], commit.branches],
  );
  assert.equal(evaluatePartially([open], commit, 0).runs, false, 'nothing is missing');
});

test('a long rule value is evaluated against a long message in linear time', () => {
  const value = `${'a'.repeat(2_000)}b${'a'.repeat(2_000)}`;
  const message = 'a'.repeat(1_000_000);
  for (const operator of ['contains', 'does_not_contain'] as const) {
    const workedMs = processorMs(() => {
      const result = evaluateRules([{ subject: 'commit.message', operator, value }], { ...commit, message });
      assert.equal(result.runs, operator === 'does_not_contain');
    });
    assert.ok(workedMs < 500, `${operator}: ${workedMs} ms`);
  }
});

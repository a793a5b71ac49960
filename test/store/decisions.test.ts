// The rule decisions of a request: packed into one row, and read back unchanged.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEvaluator, type RuleResult } from '../../src/domain/rules.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { migrate, steps } from '../../src/store/database/migrations.ts';
import { packDecisions, unpackDecisions } from '../../src/store/database/packed-decisions.ts';
import { temporaryDirectory } from '../cli/program.ts';

const files = Array.from({ length: 500 }, (_, at) => `source/directory-${at % 7}/file-number-${at}.c`);

test('decisions are read back unchanged, and what many suites share is stored once', () => {
  const evaluate = createEvaluator({
    message: 'A change of "everything" ä\u2028',
    branches: ['main'],
    tags: [],
    files,
    ref: 'c'.repeat(40),
    authorName: 'A',
    authorEmail: 'a@example.com',
    committerName: 'A',
    committerEmail: 'a@example.com',
    trigger: '',
    triggerName: '',
  });
  const decisions = Array.from({ length: 1000 }, (_, at) => ({
    suiteId: 9007199254740993n + BigInt(at),
    suiteName: `Suite ${at}`,
    ...evaluate([
      { subject: 'commit.files', operator: 'matches', value: '**/*.c' },
      { subject: 'commit.files', operator: 'equals', value: files[at % 500] as string },
      { subject: 'commit.message', operator: 'contains', value: `everything${at % 2 ? '' : '!'}` },
    ]),
  }));
  const packed = packDecisions(decisions);
  assert.deepEqual(unpackDecisions(packed), decisions);
  const plainBytes = JSON.stringify(decisions.map(({ rules }) => rules)).length;
  assert.ok(packed.length < plainBytes / 50, `${packed.length} bytes instead of ${plainBytes}`);
});

test('decisions of older versions are packed by the upgrade', () => {
  using directory = temporaryDirectory();
  const sqlite = openSqlite(`${directory.path}/assay.db`);
  const step = steps.findIndex(one => String(one).includes('DROP TABLE suite_decisions'));
  migrate(sqlite, step);
  sqlite.exec(
    `INSERT INTO accounts (id, email, kind, admin, standing, created_at) VALUES (1, 'a', 'user', 0, 'active', 0);
     INSERT INTO projects (id, owner_id, name, description, repository_url, build_state, badge, cancel_superseded, ssh_public_key, ssh_private_key, created_at)
     VALUES (1, 1, 'p', '', '', 'new', 0, 0, x'', x'', 0);
     INSERT INTO build_requests (id, project_id, commit_ref, branch, build_state, created_by, created_at)
     VALUES (9007199254740993, 1, 'main', 'main', 'passed', 'a', 0), (9007199254740995, 1, 'main', 'main', 'passed', 'a', 0);`,
  );
  const rules: RuleResult[] = [
    { subject: 'commit.files', operator: 'matches', value: '**', holds: true, saw: files.slice(0, 3) },
    { subject: 'commit.message', operator: 'contains', value: 'x', holds: false, saw: 'ä "quoted"' },
  ];
  const insert = sqlite.prepare('INSERT INTO suite_decisions VALUES (?, ?, ?, ?, ?)');
  for (const suiteId of [1n, 9007199254740997n])
    insert.run(9007199254740993n, suiteId, `Suite ${suiteId}`, suiteId === 1n ? 1 : 0, JSON.stringify(rules));
  insert.run(9007199254740995n, 1n, 'Suite 1', 1, '[]');
  migrate(sqlite, step + 1);
  const rows = sqlite
    .prepare('SELECT build_request_id, decisions, begun FROM request_decisions ORDER BY 1')
    .safeIntegers()
    .raw()
    .all() as [bigint, Buffer, bigint | null][];
  assert.deepEqual(
    rows.map(([id, bytes, begun]) => [id, unpackDecisions(bytes), begun]),
    [
      [
        9007199254740993n,
        [
          { suiteId: 1n, suiteName: 'Suite 1', runs: true, rules },
          { suiteId: 9007199254740997n, suiteName: 'Suite 9007199254740997', runs: false, rules },
        ],
        null,
      ],
      [9007199254740995n, [{ suiteId: 1n, suiteName: 'Suite 1', runs: true, rules: [] }], null],
    ],
  );
  sqlite.close();
});

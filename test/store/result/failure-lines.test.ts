// The error lines of builds, and where they were seen before.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { listSeenLines, recordFailureLines } from '../../../src/store/result/failure-lines.ts';
import { addBuilds, addProject, openFixture } from '../fixture.ts';

test('a line that other builds have too shows how often, and the first and last of them', async () => {
  using fixture = openFixture();
  const { db, now, path } = fixture;
  const project = addProject(db);
  const other = addProject(db);
  const logPath = join(dirname(path), 'log');
  const fail = async (log: string, where = project) => {
    now.ms += 60_000;
    const [id] = addBuilds(db, where, [1n]).builds as [bigint];
    writeFileSync(logPath, log);
    await recordFailureLines(db, { id, projectId: where.id }, logPath);
    return id;
  };
  const refused = (at: number) => `start\n[${at} ms] Error: connection refused by port ${at}\n`;
  const first = await fail(refused(1));
  await fail(refused(20), other);
  await fail(refused(300));
  const last = await fail(`${refused(4000)}more\nError: something else is wrong\n`);
  const shown = listSeenLines(db, { id: last, projectId: project.id });
  assert.deepEqual(
    shown.map(({ line, text, otherBuilds }) => [line, text, otherBuilds]),
    [
      [2, '[4000 ms] Error: connection refused by port 4000', 2],
      [4, 'Error: something else is wrong', 0],
    ],
  );
  assert.equal(shown[0]?.first?.id, first);
  assert.equal(shown[0]?.first?.createdAt, now.ms - 4 * 60_000 + 60_000);
  assert.equal(shown[1]?.first, undefined);
  assert.equal(listSeenLines(db, { id: first, projectId: project.id })[0]?.last?.id, last);
});

test('recording again replaces the lines, and a log of many errors keeps twenty', async () => {
  using fixture = openFixture();
  const { db, path } = fixture;
  const project = addProject(db);
  const logPath = join(dirname(path), 'log');
  const [id] = addBuilds(db, project, [1n]).builds as [bigint];
  const letters = (at: number) => [...String(at)].map(digit => 'ghijklmnop'[Number(digit)]).join('');
  const noise = 'a line without any problem\n'.repeat(300_000);
  const errors = Array.from({ length: 500 }, (_, at) => `error: in the part ${letters(at)}\n`).join('');
  writeFileSync(logPath, noise + errors);
  for (let round = 0; round < 2; round += 1)
    await recordFailureLines(db, { id, projectId: project.id }, logPath);
  const shown = listSeenLines(db, { id, projectId: project.id });
  assert.equal(shown.length, 20);
  assert.equal(shown[0]?.line, 300_001);
  assert.equal(shown.at(-1)?.line, 300_500);
  await recordFailureLines(db, { id: 1n, projectId: project.id }, logPath);
  assert.deepEqual(listSeenLines(db, { id: 1n, projectId: project.id }), [], 'a deleted build has none');
});

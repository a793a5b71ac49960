// The named pipe and the entry by which a container that was started early learns what to run.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import type { ContainerPlan } from '../../src/domain/container/container-plan.ts';
import { BEGIN_ENTRY, BEGIN_PIPE, renderEntry } from '../../src/domain/container/waiting-plan.ts';
import {
  beginDirectory,
  createBegin,
  createPipe,
  hasBegin,
  hasNoEntry,
  removeBegin,
  signalBegin,
  writeEntry,
} from '../../src/engine/begin.ts';

test('a waiting shell runs the entry once, with its environment, whether it waits before or after the signal', async t => {
  const job = mkdtempSync(join(tmpdir(), 'assay-begin-'));
  t.after(() => rmSync(job, { recursive: true }));
  assert.ok(!hasBegin(job) && !hasNoEntry(job));
  createBegin(job);
  await createPipe(job);
  assert.ok(hasBegin(job) && hasNoEntry(job));
  const wait = () => {
    const child = spawn('sh', ['-c', `read -r LINE <${BEGIN_PIPE} && . ./${BEGIN_ENTRY}`], {
      cwd: beginDirectory(job),
    });
    return Promise.all([text(child.stdout), once(child, 'exit')]);
  };
  const waiting = wait();
  const odd = `it's "$HOME" \`id\`\nand more`;
  const plan = { command: ['printf', '%s|%s', odd, '$ODD'], environment: { ODD: odd } };
  await writeEntry(job, renderEntry(plan as unknown as ContainerPlan));
  assert.ok(!hasNoEntry(job));
  {
    using _signal = signalBegin(job);
    const [output, [status]] = await waiting;
    assert.equal(output, `${odd}|$ODD`);
    assert.equal(status, 0);
  }
  {
    // Nobody reads it: it does not block, and the line waits for the next reader while the pipe is open.
    using _first = signalBegin(job);
    using _second = signalBegin(job);
    const [output] = await wait();
    assert.equal(output, `${odd}|$ODD`);
  }
  await removeBegin(job);
  assert.ok(!hasBegin(job));
});

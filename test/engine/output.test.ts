// The output of real containers: every byte once, in order, and the verdict in the same file.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { OutputRecord } from '../../src/engine/output.ts';
import { exitOf, type Fixture, follow, openFixture, textOf } from './docker/fixture.ts';

const launch = (name: string, script: string, limitSeconds = 60) =>
  ({ name, script, limitSeconds, environment: 'suite' }) as const;

describe('the output of a container', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  it('has a million lines, each once and in order', async () => {
    const line = '.'.repeat(90);
    const { file, nonce, plan } = await fixture.begin(`seq -f '%08.0f ${line}' 1 1000000`);
    const containerId = await fixture.engine.startContainer(plan);
    const seen = createHash('sha256');
    let bytes = 0;
    let largest = 0;
    let status: number | undefined;
    for await (const record of follow(file, nonce)) {
      if (record.kind === 'exit') status = record.status;
      if (record.kind !== 'bytes') continue;
      assert.equal(record.nextOffset - record.rawOffset, record.bytes.length);
      seen.update(record.bytes);
      bytes += record.bytes.length;
      largest = Math.max(largest, record.bytes.length);
    }
    await fixture.engine.removeContainer(containerId);
    const expected = createHash('sha256');
    for (let number = 1; number <= 1_000_000; number += 1) {
      expected.update(`${String(number).padStart(8, '0')} ${line}\n`);
    }
    assert.equal(status, 0);
    assert.equal(bytes, 100_000_000);
    assert.equal(seen.digest('hex'), expected.digest('hex'));
    assert.ok(largest <= 256 * 1024 + 256, `chunks stay small: ${largest}`);
  });

  it('keeps the order of output before and after a write to /dev/stderr', async () => {
    const { text } = await fixture.run(
      'echo one; echo two >/dev/stderr; echo three >&2; echo four >/dev/stdout',
    );
    assert.equal(text, 'one\ntwo\nthree\nfour\n');
  });

  it('ends when the command does, even if other processes keep its output open', async () => {
    const { text, exit } = await fixture.run(
      '(while :; do echo noise; done) & sleep 1000 & echo done; exit 7',
    );
    assert.equal(exit?.status, 7);
    assert.match(text, /^done$/m);
  });

  it('says whether the directory of artifacts is empty', async () => {
    const directory = '/srv/artifacts';
    for (const [script, isEmpty] of [
      [':', true],
      [`rm -rf ${directory}/* && mkdir ${directory}/x && rmdir ${directory}/x`, true],
      [`touch ${directory}/file`, false],
      [`touch ${directory}/.hidden; exit 3`, false],
      [`touch ${directory}/..two-dots`, false],
      [`ln -s nowhere ${directory}/link`, false],
      [`touch "${directory}/*"`, false],
      [`touch ${directory}/file; chmod 0 ${directory}`, false],
      [`chmod 644 ${directory}`, false],
      [`touch ${directory}/file; kill -9 $PPID`, false],
    ] as const) {
      const { exit } = await fixture.run(script);
      assert.equal(exit?.hasNoArtifacts, isEmpty, script);
    }
  });

  it('keeps bytes unchanged: no newline, NUL, control characters, broken UTF-8', async () => {
    const { records } = await fixture.run(`printf 'a\\000\\036assay:\\377\\036b'`);
    const bytes = Buffer.concat(records.flatMap(record => (record.kind === 'bytes' ? [record.bytes] : [])));
    assert.deepEqual(bytes, Buffer.from('a\x00\x1eassay:\xff\x1eb', 'latin1'));
  });

  it('is not confused by a suite that prints its process list', async () => {
    const { text, exit } = await fixture.run('cat /proc/[0-9]*/cmdline; echo end; exit 4');
    assert.equal(exit?.status, 4);
    assert.match(text, /end\n$/);
  });

  it('contains the exit status, or 128 + the number of a signal', async () => {
    for (const [command, status] of [
      ['exit 0', 0],
      ['exit 250', 250],
      ['kill -9 $$', 137],
      ['kill -TERM 0', 143],
      ['not-a-command-at-all', 127],
      ['-x', 127],
    ] as const) {
      const { exit, text } = await fixture.run(command);
      assert.equal(exit?.status, status, command);
      assert.doesNotMatch(text, /Killed|Terminated/, 'the entry shell adds no words of its own');
    }
  });

  it('reports that memory ran out', async () => {
    const { exit } = await fixture.run('tail /dev/zero', { memoryBytes: 32 * 1024 * 1024 });
    assert.equal(exit?.status, 137);
    assert.equal(exit.outOfMemory, true);
    assert.equal((await fixture.run('exit 1')).exit?.outOfMemory, false);
  });

  it('can be followed from any byte, without a gap or a repetition', async () => {
    const { file, nonce, containerId } = await fixture.run('seq 1 2000', {
      steps: [launch('first', 'echo launched')],
    });
    await fixture.engine.removeContainer(containerId);
    const whole: OutputRecord[] = [];
    for await (const record of follow(file, nonce)) whole.push(record);
    for (const record of whole) {
      const rest: OutputRecord[] = [];
      for await (const later of follow(file, nonce, {
        fromByte: record.nextOffset,
        gone: AbortSignal.abort(),
      })) {
        rest.push(later);
      }
      const kept = textOf(whole.filter(({ nextOffset }) => nextOffset <= record.nextOffset));
      assert.equal(kept + textOf(rest), textOf(whole));
      if (record.kind !== 'exit') assert.equal(exitOf(rest)?.status, 0);
    }
  });

  it('ends without an exit status when the container is killed', async () => {
    const { file, nonce, plan } = await fixture.begin('echo begun; sleep 1000');
    const containerId = await fixture.engine.startContainer(plan);
    const gone = new AbortController();
    const records: OutputRecord[] = [];
    for await (const record of follow(file, nonce, { gone: gone.signal })) {
      records.push(record);
      if (record.kind !== 'bytes') continue;
      await fixture.engine.stopContainer(containerId);
      assert.equal((await fixture.engine.waitForExit(containerId))?.exitCode, 137);
      gone.abort();
    }
    assert.equal(textOf(records), 'begun\n');
    assert.equal(exitOf(records), undefined);
  });
});

describe('steps before the command', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  it('run in order, leave daemons for the command, and are marked in the output', async () => {
    const { records, text } = await fixture.run('echo command; kill -0 "$(cat /tmp/daemon)" && echo alive', {
      steps: [
        launch('launch-1', 'echo one; sleep 1000 & echo $! >/tmp/daemon'),
        launch('launch-2', 'echo two'),
      ],
    });
    assert.equal(text, 'one\ntwo\ncommand\nalive\n');
    const order = records.map(record => {
      if (record.kind === 'step') return `${record.name} ${record.phase}`;
      return record.kind === 'bytes' ? record.bytes.toString().trim() : `${record.kind}`;
    });
    assert.deepEqual(order.slice(0, 6), [
      'launch-1 begin',
      'one',
      'launch-1 end',
      'launch-2 begin',
      'two',
      'launch-2 end',
    ]);
  });

  it('end the run if one fails, and the exit names it', async () => {
    const { text, exit } = await fixture.run('echo never', {
      steps: [launch('launch-1', 'echo no; exit 9')],
    });
    assert.equal(text, 'no\n');
    assert.equal(exit?.name, 'launch-1');
    assert.equal(exit.status, 9);
  });

  it('end the run if one does not return in time', async () => {
    const { text, exit } = await fixture.run('echo never', {
      steps: [launch('launch-1', 'echo up; sleep 1000; echo never', 1)],
    });
    assert.deepEqual([text, exit?.name, exit?.overran], ['up\n', 'launch-1', true]);
    const killed = await fixture.run('echo never', { steps: [launch('launch-1', 'kill -9 $$')] });
    assert.deepEqual([killed.exit?.status, killed.exit?.overran], [137, false]);
  });

  it('end the run if one does not return in time, without the programs timeout and setsid, and with bash', async () => {
    const over = (target: string, source: string) => ({
      type: 'bind' as const,
      source,
      target,
      readOnly: true,
    });
    for (const mounts of [
      ['/usr/bin/timeout', '/usr/bin/setsid'].map(program => over(program, '/dev/null')),
      [over('/usr/bin/dash', '/bin/bash')],
    ]) {
      const { exit } = await fixture.run('echo never', {
        steps: [launch('launch-1', 'sleep 1000', 1)],
        mounts,
      });
      assert.deepEqual([exit?.name, exit?.overran], ['launch-1', true]);
    }
  });

  it('leave nothing of the limit behind, and report how long they took', async () => {
    const { text, records } = await fixture.run('cat /proc/[0-9]*/comm; ls -A /tmp', {
      steps: [launch('launch-1', 'sleep 0.3')],
    });
    assert.doesNotMatch(text, /sleep|assay-step/);
    const end = records.find(record => record.kind === 'step' && record.phase === 'end');
    assert.ok(end?.kind === 'step' && end.phase === 'end' && Number(end.durationMs) >= 290, `${text}`);
  });

  it('continue after one that may fail, in time or not', async () => {
    const { text, exit } = await fixture.run('echo command', {
      steps: [
        { ...launch('check-1', 'echo one; exit 3'), mayFail: true },
        { ...launch('check-2', 'echo two; sleep 1000', 1), mayFail: true },
      ],
    });
    assert.equal(text, 'one\ntwo\ncommand\n');
    assert.deepEqual([exit?.name, exit?.status, exit?.overran], ['main', 0, false]);
  });

  it('see search paths only if the suite sets them', async () => {
    const show = 'echo "$PATH|$LD_LIBRARY_PATH|$PKG_CONFIG_PATH|$SECRET"';
    const { text } = await fixture.run(show, {
      environment: { SECRET: 'shown' },
      used: [{ prefix: '/opt/a' }, { prefix: '/opt/b', libraryPath: false }],
      steps: [{ name: 'own', script: show, environment: 'service' }],
    });
    const [service, suite] = text.split('\n');
    assert.match(service ?? '', /^\/usr[^|]*\|\|\|$/);
    assert.match(
      suite ?? '',
      /^\/opt\/a\/bin:\/opt\/a\/sbin:\/opt\/b\/bin:\/opt\/b\/sbin:\/usr[^|]*\|\/opt\/a\/lib:\/opt\/a\/lib64\|\/opt\/a\/lib\/pkgconfig:.*:\/opt\/b\/share\/pkgconfig\|shown$/,
    );
  });
});

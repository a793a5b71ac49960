// Suites that signal every process they can: the processes that wait for the command and carry its output survive.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { RELAYED_STATUS } from '../../../src/domain/container/entry-script.ts';
import type { PreparedImage } from '../../../src/engine/engine.ts';
import { busyboxRoot } from '../../support/busybox.ts';
import { type Fixture, openFixture } from './fixture.ts';

const numbersTo = (last: number) => Array.from({ length: last }, (_, index) => `${index + 1}\n`).join('');
const run = promisify(execFile);
/** Not every image has pkill. */
const PKILL = `
  named() {
    for process in /proc/[0-9]*; do
      read -r name <"$process/comm" && [ "$name" = "$2" ] && kill -s "$1" "\${process#/proc/}"
    done
    :
  }
`;

describe('a command that kills processes', () => {
  let fixture: Fixture;
  const images = new Map<string, PreparedImage>();
  const made: string[] = [];
  before(async () => {
    fixture = await openFixture();
    const withShell = (source: string) => {
      const shell = { type: 'bind' as const, source, target: '/usr/bin/dash', readOnly: true };
      return { ...fixture.host, mounts: [...fixture.host.mounts, shell] };
    };
    images.set('host', fixture.host);
    images.set('bash', withShell('/bin/bash'));
    // As in Alpine, if coreutils are installed.
    images.set("busybox's shell", withShell('/usr/bin/busybox'));
    const root = join(fixture.directory, 'busybox');
    const name = `assay-test/${fixture.instance}`;
    await busyboxRoot(root);
    await run('tar', ['-C', root, '-cf', `${root}.tar`, '.']);
    await fixture.engine.importImage(`${root}.tar`, name);
    const image = await fixture.engine.prepareImage(name);
    made.push(name, image.reference);
    images.set('busybox', image);
  });
  after(async () => {
    await fixture.close();
    for (const image of made) await fixture.docker.getImage(image).remove({ force: true });
  });

  const runIn = (kind: string, command: string) =>
    fixture.run(PKILL + command, { image: images.get(kind) as PreparedImage });

  for (const kind of ['host', 'bash', "busybox's shell", 'busybox']) {
    it(`keeps its own exit status and all output when it survives, in ${kind}`, async () => {
      for (const [command, status] of [
        ['named TERM cat', 0],
        ['named TERM cat; exit 3', 3],
        ['kill 1', 0],
        ['kill -9 1; kill -STOP 1; exit 4', 4],
        ["trap '' TERM; named TERM sh; kill $PPID; exit 5", 5],
        ["trap '' HUP INT TERM; for s in HUP INT TERM; do kill -$s -1; done; exit 6", 6],
      ] as const) {
        const { exit, text } = await runIn(kind, `echo before; ${command}`.replace('; ', '; seq 3000; '));
        assert.equal(exit?.status, status, `${command}: ${text.slice(-200)}`);
        assert.equal(text, `before\n${numbersTo(3_000)}`, command);
      }
    });

    it(`is reported as ended by the signal that it sent itself, in ${kind}`, async () => {
      for (const [command, status] of [
        ['named TERM sh; sleep 100', 143],
        ['kill -TERM -1; kill -s TERM $$; sleep 100', 143],
        ['kill -9 $PPID; sleep 100', 137],
      ] as const) {
        const { exit, text } = await runIn(kind, `sleep 1000 & echo before; ${command}; echo never`);
        assert.equal(exit?.status, status, command);
        assert.equal(text, 'before\n', command);
      }
    });

    it(`leaves no zombie process, and passes no ignored signal on, in ${kind}`, async () => {
      const { text, exit } = await runIn(
        kind,
        `(sh -c 'echo $$ >/tmp/orphan; exit 1' &)
         until [ -s /tmp/orphan ]; do sleep 0.01; done
         orphan=$(cat /tmp/orphan)
         while kill -0 "$orphan" 2>/dev/null; do sleep 0.01; done
         grep -E 'Sig(Blk|Ign)' /proc/self/status`,
      );
      assert.equal(exit?.status, 0, text);
      // BusyBox's shell ignores SIGQUIT and passes that on.
      const ignored = kind.startsWith('busybox') ? '4' : '0';
      assert.equal(text, `SigBlk:\t0000000000000000\nSigIgn:\t000000000000000${ignored}\n`);
    });
  }

  for (const kind of ['host', 'bash'])
    it(`keeps all output when every other process is killed, although its status is lost, in ${kind}`, async () => {
      for (const command of [
        'kill -KILL -1; echo after',
        'sleep 1000 & kill -KILL -1; seq 50000; echo after',
      ]) {
        const { exit, text, state } = await runIn(kind, `seq 3000; ${command}`);
        assert.equal(exit, undefined, command);
        assert.equal(state?.exitCode, RELAYED_STATUS);
        const more = command.includes('50000') ? numbersTo(50_000) : '';
        assert.ok(text === `${numbersTo(3_000)}${more}after\n`, `${command}: ${text.slice(-100)}`);
      }
    });

  it('ends without a recorded exit status when it kills the relay of an image that lacks tools', async () => {
    const { exit, state } = await runIn('busybox', 'echo before; kill -KILL -1; echo after; exit 3');
    assert.equal(exit, undefined);
    assert.equal(state?.exitCode, RELAYED_STATUS);
  });
});

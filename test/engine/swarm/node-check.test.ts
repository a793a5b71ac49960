// The check that runs on a node before a command: it runs once, and only in a container that is restricted enough.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { guardedCommand, guardedEntry, NODE_REFUSALS } from '../../../src/domain/container/remote-script.ts';
import { busyboxRoot } from '../../support/busybox.ts';

const NONCE = 'ab'.repeat(16);
const IMAGE = `assay-test-node-check-${process.pid}`;
const RESTRICTED = ['--cap-drop', 'ALL', '--security-opt', 'no-new-privileges'];

describe('the check of a node', () => {
  let directory: string;
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'assay-node-check-'));
    await busyboxRoot(join(directory, 'root'));
    // Busybox's own shell has setpriv built in, which would set what the engine did not.
    const root = join(directory, 'root');
    for (const name of ['sh', 'setpriv']) rmSync(join(root, 'bin', name), { force: true });
    copyFileSync('/bin/dash', join(root, 'bin/sh'));
    const { stdout } = await promisify(execFile)('ldd', ['/bin/dash']);
    for (const [library] of stdout.matchAll(/\/\S+/g)) {
      mkdirSync(dirname(join(root, library)), { recursive: true });
      copyFileSync(library, join(root, library));
    }
    await promisify(execFile)('sh', ['-c', `tar -C ${directory}/root -c . | docker import - ${IMAGE}`]);
  });
  after(async () => {
    await promisify(execFile)('docker', ['rmi', '-f', IMAGE]);
    rmSync(directory, { recursive: true, force: true });
  });

  let count = 0;
  /** Runs the check in a plain container. Returns what it wrote to the output of the job. */
  async function check(options: {
    flags?: string[];
    marker?: string | undefined;
    usr?: string;
    runs?: number;
    seconds?: number;
    command?: string;
  }) {
    const { flags = RESTRICTED, marker = `${now()} 123`, usr = '', runs = 1, seconds = 60 } = options;
    const { command = 'echo "ran $ASSAY_NODE" >>/srv/.assay/output\n' } = options;
    const place = join(directory, `check-${++count}`);
    for (const name of ['attempt', 'nodes']) mkdirSync(join(place, name), { recursive: true });
    chmodSync(join(place, 'attempt'), 0o777);
    writeFileSync(join(place, 'output'), '');
    chmodSync(join(place, 'output'), 0o666);
    if (marker !== '') writeFileSync(join(place, 'nodes', 'node-1'), `${marker}\n`);
    writeFileSync(join(place, 'entry'), guardedEntry(command));
    const mounts = ['attempt', 'nodes', 'output', 'entry'].flatMap(name => [
      '-v',
      `${place}/${name}:/srv/.assay/${name}`,
    ]);
    for (let run = 0; run < runs; run++)
      await promisify(execFile)('docker', [
        ...['run', '--rm', '--network', 'none', '--user', '1000:1000', '--env', 'ASSAY_NODE=node-1'],
        ...flags,
        ...mounts,
        IMAGE,
        ...guardedCommand({ nonce: NONCE, seconds, usr }),
      ]).catch(error => assert.equal(error.code, 125, error.stderr));
    return readFileSync(join(place, 'output'), 'utf8');
  }
  const now = () => Math.floor(Date.now() / 1000);
  const refusal = (status: number) => {
    assert.ok(NODE_REFUSALS[status]);
    return `\x1eassay:${NONCE}:begin node\x1e\x1eassay:${NONCE}:exit node ${status} within within empty\x1e`;
  };

  it('runs the command in a restricted container, without telling it the node', async () => {
    assert.equal(await check({ usr: '123' }), 'ran \n');
  });
  it('runs the command once, however often the container is started', async () => {
    assert.equal(await check({ runs: 3 }), 'ran \n');
  });
  it('kills the command at its deadline, because a node that is cut off cannot be told to', async () => {
    const command = 'sh -c \'trap : TERM; sleep 60; echo late\'\necho "status $?" >>/srv/.assay/output\n';
    assert.equal(await check({ command, seconds: 1 }), 'status 137\n');
  });
  it('refuses a container with capabilities', async () => {
    const flags = ['--user', '0:0', '--security-opt', 'no-new-privileges'];
    assert.equal(await check({ flags }), refusal(91));
  });
  it('refuses a container that could gain privileges, if the image has no setpriv', async () => {
    assert.equal(await check({ flags: ['--cap-drop', 'ALL'] }), refusal(92));
  });
  it('refuses a container without a filter of system calls', async () => {
    assert.equal(
      await check({ flags: [...RESTRICTED, '--security-opt', 'seccomp=unconfined'] }),
      refusal(93),
    );
  });
  for (const [name, marker] of [
    ['are missing', ''],
    ['are old', `${now() - 60} 123`],
    ['have no time', 'x'],
  ] as const)
    it(`refuses a node whose firewall rules were not checked: they ${name}`, async () => {
      assert.equal(await check({ marker }), refusal(94));
    });
  it('refuses a node with another /usr', async () => {
    assert.equal(await check({ usr: '124' }), refusal(95));
  });
});

// The compiled code that `assay serve` keeps in its data directory: used by the next start, and never trusted blindly.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, readFileSync, renameSync, statSync, symlinkSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { runAssay, serve, temporaryDirectory } from './program.ts';

/** Prints whether V8 was given compiled code, and whether it accepted it. */
const REPORT_SCRIPTS = `
const vm = require('node:vm');
vm.Script = class extends vm.Script {
  constructor(code, options) {
    super(code, options);
    if (/\\/(server|commands)\\.cjs$/.test(options?.filename))
      process.stderr.write(\`compiled code: \${{ undefined: 'none', true: 'rejected', false: 'used' }[this.cachedDataRejected]}\\n\`);
  }
};`;

/** The server finds that it was busy at first. Prints how busy it was found to be. */
const REPORT_BUSY = `
const utilizations = [0.9, 0.01];
performance.eventLoopUtilization = before => {
  if (!before) return { idle: 0, active: 0, utilization: 0 };
  const utilization = utilizations.shift();
  process.stderr.write(\`utilization \${utilization}\\n\`);
  return { idle: 0, active: 0, utilization };
};`;

describe('the compiled code of the server', () => {
  const directory = temporaryDirectory();
  after(() => directory[Symbol.dispose]());
  const data = join(directory.path, 'data');
  const path = join(data, 'code-cache');
  const reporter = join(directory.path, 'report.cjs');
  writeFileSync(reporter, REPORT_SCRIPTS);
  const env = { NODE_OPTIONS: `--require ${reporter}` };
  let kept: Buffer;

  /** Starts the server, and returns which compiled code it used. */
  async function start(whileRunning = async () => {}): Promise<string | undefined> {
    const server = await serve(data, { env });
    try {
      assert.equal((await server.ask('GET', '/ping')).status, 200);
      await whileRunning();
      return /^compiled code: (.*)$/m.exec(server.stderr())?.[1];
    } finally {
      await server.end('SIGTERM');
    }
  }

  /** Resolves when the compiled code is in the data directory, which must exist. */
  async function written(dataDirectory: string): Promise<void> {
    const watcher = watch(dataDirectory);
    while (!statSync(join(dataDirectory, 'code-cache'), { throwIfNoEntry: false }))
      await once(watcher, 'change', { signal: AbortSignal.timeout(30_000) });
    watcher.close();
  }

  before(async () => {
    await runAssay(['user', 'add', 'user@example.org', '--data', data]);
    assert.equal(await start(() => written(data)), 'none');
    kept = readFileSync(path);
  });

  test('it is written when the server is not busy', async () => {
    const other = join(directory.path, 'busy');
    await runAssay(['user', 'add', 'user@example.org', '--data', other]);
    writeFileSync(join(directory.path, 'busy.cjs'), REPORT_BUSY);
    const server = await serve(other, {
      env: { NODE_OPTIONS: `--require ${join(directory.path, 'busy.cjs')}` },
    });
    try {
      await written(other);
      assert.deepEqual(server.stderr().match(/^utilization .*$/gm), ['utilization 0.9', 'utilization 0.01']);
    } finally {
      await server.end('SIGTERM');
    }
  });

  test('it is private, and the next start uses it', async () => {
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(await start(), 'used');
  });

  test('one that is damaged, cut off or empty is not used', async () => {
    const damaged = Buffer.from(kept);
    damaged[damaged.length >> 1] = (damaged[damaged.length >> 1] as number) ^ 1;
    for (const bytes of [damaged, kept.subarray(0, 100_000), kept.subarray(0, 20), '']) {
      writeFileSync(path, bytes);
      assert.equal(await start(), 'none');
    }
  });

  test('one that others could have written, or that is a link or a directory, is not used', async () => {
    writeFileSync(path, kept);
    assert.equal(await start(), 'used');
    chmodSync(path, 0o666);
    assert.equal(await start(), 'none');
    chmodSync(path, 0o600);
    renameSync(path, join(directory.path, 'elsewhere'));
    symlinkSync(join(directory.path, 'elsewhere'), path);
    assert.equal(await start(), 'none');
  });

  test('other commands do not use it', async () => {
    renameSync(join(directory.path, 'elsewhere'), path);
    const listed = await runAssay(['user', 'list', '--data', data], env);
    assert.equal(listed.status, 0, listed.stderr);
    assert.match(listed.stderr, /^compiled code: none$/m);
  });
});

// The systemd unit, judged by systemd's own tools, and the settings file beside it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const directory = join(import.meta.dirname, '../../systemd');
const unitPath = join(directory, 'assay.service');
const analyze = (...args: string[]) =>
  execFileSync('systemd-analyze', args, { encoding: 'utf8', stdio: 'pipe', timeout: 30_000 });

test('the unit exposes no more than a hardened service does', () => {
  const report = analyze('security', '--offline=yes', '--threshold=20', unitPath);
  assert.match(report, /Overall exposure level for assay\.service: [01]\.\d/);
});

test('systemd has nothing to complain of in the unit', t => {
  const work = mkdtempSync(join(tmpdir(), 'assay-unit-'));
  t.after(() => rmSync(work, { recursive: true }));
  const copy = join(work, 'assay.service');
  // The executable is not installed where this runs; any other stands in for it.
  const unit = readFileSync(unitPath, 'utf8').replace(
    'ExecStart=/usr/local/bin/assay',
    `ExecStart=${process.execPath}`,
  );
  writeFileSync(copy, unit);
  assert.equal(
    execFileSync('sh', ['-c', 'exec systemd-analyze verify "$0" 2>&1', copy], { encoding: 'utf8' }),
    '',
  );
});

test('every setting is in the settings file once, commented out', () => {
  const lines = readFileSync(join(directory, 'assay.env'), 'utf8').split('\n');
  assert.deepEqual(
    lines.filter(line => line !== '' && !line.startsWith('#')),
    [],
  );
  const names = lines.flatMap(line => /^#([A-Z_]+)=/.exec(line)?.[1] ?? []);
  assert.deepEqual(names.toSorted(), [
    ...['ASSAY_BASE_URL', 'ASSAY_CONCURRENCY', 'ASSAY_CPUS', 'ASSAY_DATA', 'ASSAY_DISK', 'ASSAY_IMAGE'],
    ...[
      'ASSAY_LISTEN',
      'ASSAY_LOG_LIMIT',
      'ASSAY_MEMORY',
      'ASSAY_MIN_FREE_DISK',
      'ASSAY_NETWORK',
      'ASSAY_PIDS',
    ],
    ...['ASSAY_RETENTION_DAYS', 'ASSAY_RUN_AS', 'ASSAY_TIMEOUT', 'ASSAY_TLS_CERT', 'ASSAY_TLS_KEY'],
    ...['ASSAY_WEBHOOK_ALLOW', 'DOCKER_HOST'],
  ]);
});

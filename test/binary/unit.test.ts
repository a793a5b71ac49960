// The systemd unit, checked with systemd's own tools, and the settings file.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { settings } from '../../src/config.ts';

const directory = join(import.meta.dirname, '../../systemd');
const unitPath = join(directory, 'assay.service');
const analyze = (...args: string[]) =>
  execFileSync('systemd-analyze', args, { encoding: 'utf8', stdio: 'pipe', timeout: 30_000 });

test('the unit has the exposure level of a hardened service', () => {
  const report = analyze('security', '--offline=yes', '--threshold=20', unitPath);
  assert.match(report, /Overall exposure level for assay\.service: [01]\.\d/);
});

test('systemd-analyze verify reports nothing', t => {
  const work = mkdtempSync(join(tmpdir(), 'assay-unit-'));
  t.after(() => rmSync(work, { recursive: true }));
  const copy = join(work, 'assay.service');
  // The executable is not installed here; any other program replaces it.
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

test('the unit allows the file modes that git sets in a mirror', () => {
  const place = mkdtempSync(join(tmpdir(), 'assay-unit-'));
  try {
    const mirror = { mirror: join(place, 'mirror.git'), url: 'git@host.invalid:x.git' };
    const ssh = { dataDirectory: place, privateKey: '' };
    // The umask of the unit. The host does not exist, but the mirror is created anyway.
    const script = `process.umask(0o077);
      const { fetchMirror } = await import(${JSON.stringify(join(directory, '../src/engine/git/mirror.ts'))});
      await fetchMirror(${JSON.stringify({ ...mirror, ssh })}).catch(() => {});`;
    const traced = ['-f', '-e', 'trace=/^f?chmod(at)?$', '-o', join(place, 'trace')];
    execFileSync('strace', [...traced, process.execPath, '--input-type=module', '-e', script], {
      timeout: 60_000,
    });
    const modes = [...readFileSync(join(place, 'trace'), 'utf8').matchAll(/, 0(\d+)\) += 0/g)];
    assert.ok(modes.length > 3, 'git sets file modes');
    const isMarked = modes.some(([, mode]) => (Number.parseInt(mode ?? '', 8) & 0o6000) !== 0);
    if (isMarked)
      assert.doesNotMatch(
        readFileSync(join(directory, 'assay.service'), 'utf8'),
        /^(RestrictSUIDSGID|DynamicUser)=yes/m,
      );
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
});

test('every setting is in the settings file once, commented out', () => {
  const lines = readFileSync(join(directory, 'assay.env'), 'utf8').split('\n');
  assert.deepEqual(
    lines.filter(line => line !== '' && !line.startsWith('#')),
    [],
  );
  const names = lines.flatMap(line => /^#([A-Z_]+)=/.exec(line)?.[1] ?? []);
  const expected = [...settings.map(({ name }) => `ASSAY_${name}`), 'DOCKER_HOST'];
  assert.deepEqual(names.toSorted(), expected.toSorted());
});

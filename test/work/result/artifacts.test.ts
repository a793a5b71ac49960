// The files that builds produce: which of them are kept, from which images, and what is left out.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { openContent } from '../../../src/engine/archive/zip-content.ts';
import { buildFilesPath } from '../../../src/store/data/paths.ts';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

const LIMIT_BYTES = 20 << 20;

describe('The files of a build', { concurrency: 4 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 4, artifactLimitBytes: LIMIT_BYTES });
  });
  after(() => assay.close());

  type Row = { path: string; offset: number; size: number; stored: number; method: number; report: number };

  const fileOf = (build: Wire) => buildFilesPath(assay.data, BigInt(build.id_str as string));
  const rowsOf = (build: Wire) =>
    (
      assay.app.db.sqlite
        .prepare(
          'SELECT path, "offset", size_bytes AS size, stored_bytes AS stored, method, report FROM build_artifacts WHERE build_id = ? ORDER BY path',
        )
        .all(BigInt(build.id_str as string)) as Record<keyof Row, unknown>[]
    ).map(row => ({
      path: String(row.path),
      offset: Number(row.offset),
      size: Number(row.size),
      stored: Number(row.stored),
      method: Number(row.method),
      report: Number(row.report),
    }));
  const pathsOf = (build: Wire) => rowsOf(build).map(({ path }) => path);
  const contentOf = async (build: Wire, path: string) => {
    const row = rowsOf(build).find(one => one.path === path) as Row;
    const slice = { offset: row.offset, sizeBytes: row.size, storedBytes: row.stored, method: row.method };
    return (await buffer(openContent(fileOf(build), slice))).toString();
  };

  test('in /srv/artifacts and of the globs are kept, with paths, content and execute bit', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: [
        'mkdir -p $ASSAY_ARTIFACTS/a/b coverage/sub out && echo one >/srv/artifacts/a/b/one.txt',
        'seq 100000 >/srv/artifacts/numbers && printf "#!/bin/sh\\n" >/srv/artifacts/tool && chmod +x /srv/artifacts/tool',
        'echo x >coverage/index.html; echo y >coverage/sub/y.js; echo "<testsuites/>" >out/junit.xml; echo no >out/other',
      ].join('\n'),
      artifacts: 'coverage/**\nmissing/*',
      reports: 'out/*.xml',
    });
    assert.equal(build.build_state, 'passed');
    assert.deepEqual(pathsOf(build), [
      'a/b/one.txt',
      'coverage/index.html',
      'coverage/sub/y.js',
      'numbers',
      'out/junit.xml',
      'tool',
    ]);
    assert.deepEqual(
      rowsOf(build)
        .filter(({ report }) => report === 1)
        .map(({ path }) => path),
      ['out/junit.xml'],
    );
    assert.equal(await contentOf(build, 'a/b/one.txt'), 'one\n');
    assert.equal(await contentOf(build, 'numbers'), execFileSync('seq', ['100000'], { encoding: 'utf8' }));
    assert.equal(build.artifacts, 6);
    assert.equal(
      build.artifacts_bytes,
      rowsOf(build).reduce((sum, { size }) => sum + size, 0),
    );
    assert.equal('artifacts_truncated' in build, false);
    assert.match(log, /\[assay\] kept 6 artifacts, \d+ bytes\n\[assay\] tests: the reports have none\n$/);
    const listed = execFileSync('unzip', ['-Z', fileOf(build)], { encoding: 'utf8' });
    assert.match(listed, /^-rwxr-xr-x .* tool$/m);
    assert.match(listed, /^-rw-r--r-- .* numbers$/m);
  });

  test('have their SHA-256 in the list, and as ETag, a moment after the verdict if they are large', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: 'head -c 17M /dev/urandom >/srv/artifacts/large; sha256sum </srv/artifacts/large',
    });
    const path = `/projects/${project.id}/builds/${build.id_str}/artifacts`;
    const sum = /^([0-9a-f]{64}) /m.exec(log)?.[1];
    const list = async () => ((await assay.ask('GET', path)) as unknown as Wire[])[0] as Wire;
    let artifact = await list();
    while (artifact.sha256 === null) artifact = await list();
    assert.equal(artifact.sha256, sum);
    const response = await assay.client.get(`${path}/${artifact.id_str}`, assay.as);
    assert.equal(response.headers.etag, `"${sum}"`);
  });

  test('are kept when the command fails, and none of a build without any', async () => {
    const project = await assay.project();
    const failed = await project.runOne({ command: 'echo x >/srv/artifacts/x; exit 3' });
    assert.equal(failed.build.build_state, 'failed');
    assert.deepEqual(pathsOf(failed.build), ['x']);
    assert.match(failed.log, /kept 1 artifact, 2 bytes\n\[assay\] the command exited with 3\n$/);
    const without = await project.runOne({ command: 'mkdir /srv/artifacts/empty', artifacts: 'none/**' });
    assert.equal('artifacts' in without.build, false);
    assert.doesNotMatch(without.log, /\[assay\] (kept|not kept|collecting|the artifacts)/);
    assert.equal(existsSync(fileOf(without.build)), false);
  });

  test('are kept when it is canceled after it began', async () => {
    const project = await assay.project();
    await project.suite({ command: 'echo x >/srv/artifacts/x; echo ready; sleep 600' });
    const request = await project.request();
    const { id_str: id } = await project.buildOf(request);
    await project.logHas(id as string, 'ready');
    await project.cancel(`builds/${id}`);
    const build = await project.finishedBuild(id as string);
    assert.equal(build.build_state, 'canceled');
    assert.deepEqual(pathsOf(build), ['x']);
  });

  test('that are links, pipes or badly named are left out, and the log counts them', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: [
        'cd /srv/artifacts && echo good >good && ln -s /etc/passwd link && ln -s / root && mkfifo pipe',
        'echo bad >"$(printf \'new\\nline\')"; echo bad >"$(printf \'latin\\351\')"; echo bad >"$(printf \'\\033[31mred\')"',
        'echo fine >"Ünï 日本.txt"; echo fine >"-rf"; echo fine >"..."; echo fine >"a\\\\b"',
        // A path of more than 1,024 bytes.
        'd=$(printf %0200d 1); mkdir -p $d/$d/$d/$d/$d && cd $d/$d/$d/$d/$d && echo long >$d',
        'cd /srv/project && ln -s /srv/.assay secret && mkdir real && ln -s /etc real/etc',
      ].join('\n'),
      artifacts: 'secret/**\nsecret/environment\nreal/etc/passwd\nreal/**',
      variables: { TOKEN: 'very-secret-token' },
    });
    assert.equal(build.build_state, 'passed', log);
    assert.deepEqual(pathsOf(build), ['-rf', '...', 'a\\b', 'good', 'Ünï 日本.txt'].sort());
    assert.match(
      log,
      /not kept as artifacts: 4 links, 1 pipe, socket or device, 4 names that are not printable UTF-8 or longer than 1024 bytes\n/,
    );
    assert.equal('artifacts_truncated' in build, false);
  });

  test('past ARTIFACT_LIMIT are left out before they are read, and the log says what to do', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: [
        'cd /srv/artifacts && echo first >a && head -c 15000000 /dev/urandom >b && head -c 15000000 /dev/zero >c',
        'echo after >d && truncate -s 1T e && echo lost >f',
      ].join('\n'),
    });
    assert.equal(build.build_state, 'passed');
    assert.equal(build.artifacts_truncated, true);
    assert.deepEqual(pathsOf(build), ['a', 'b', 'd']);
    assert.match(
      log,
      /the artifacts are incomplete because of ARTIFACT_LIMIT \(20971520 bytes\): 2 files were left out, the first is c; keep less, or ask an administrator to raise the limit\n/,
    );
  });

  test('past 10,000 are left out', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: 'cd /srv/artifacts && for i in $(seq 10050); do echo $i >$i; done',
    });
    assert.equal(build.artifacts, 10_000);
    assert.equal(build.artifacts_truncated, true);
    assert.match(log, /only the first 10000 files were kept; pack small files into an archive\n/);
    assert.equal(rowsOf(build).length, 10_000);
  });
});

// Git LFS in builds: content is fetched only over SSH and replaces the pointers; otherwise the log says so.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import type { Fields } from '../support/client.ts';
import type { Repository } from '../support/journey.ts';

const SERVER = fileURLToPath(new URL('../support/git-lfs-transfer.ts', import.meta.url));
const ATTRIBUTES = '*.bin filter=lfs diff=lfs merge=lfs -text\n';

const oidOf = (content: string) => createHash('sha256').update(content).digest('hex');
const pointerTo = (content: string) =>
  `version https://git-lfs.github.com/spec/v1\noid sha256:${oidOf(content)}\nsize ${content.length}\n`;

describe('Files of Git LFS', { concurrency: 2 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 2 });
  });
  after(() => assay.close());

  /** A host with additional programs. */
  function programs(scripts: Record<string, string>): string {
    const directory = mkdtempSync(join(assay.data, 'programs-'));
    for (const [name, script] of Object.entries(scripts)) {
      writeFileSync(join(directory, name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(directory, name), 0o755);
    }
    return directory;
  }
  const transfer = `exec ${process.execPath} ${SERVER} "$@"`;

  function keep(repository: Repository, ...contents: string[]): void {
    const objects = join(repository.directory, 'lfs/objects');
    mkdirSync(objects, { recursive: true });
    for (const content of contents) writeFileSync(join(objects, oidOf(content)), content);
  }

  const printedIn = (log: string) => log.slice(log.lastIndexOf('[assay]')).trimEnd().split('\n').slice(1);

  async function run(repository: Repository, path: string, command: string, fields: Fields = {}) {
    const project = await assay.project(repository, fields);
    assay.sshd.addKey(project.key, `PATH=${path}:$PATH exec sh -c "$SSH_ORIGINAL_COMMAND"`);
    await project.suite({ command });
    const { builds, state, request } = await project.run();
    assert.equal(state, 'passed', String(request.error));
    const log = await project.log(builds[0]?.id_str as string);
    return { project, buildId: builds[0]?.id_str as string, log, printed: printedIn(log) };
  }

  test('have their content, whatever the image contains, and git finds nothing changed', async () => {
    const big = 'big content '.repeat(20_000);
    const repository = assay.repository({
      files: {
        '.gitattributes': ATTRIBUTES,
        'a.bin': pointerTo(big),
        'deep/it is.bin': pointerTo('small\n'),
        'plain.bin': 'not a pointer\n',
        // The LFS configuration of a repository is ignored.
        '.lfsconfig': '[lfs]\n\turl = http://127.0.0.1:1/elsewhere\n',
      },
    });
    keep(repository, big, 'small\n');
    const { printed, log } = await run(
      repository,
      programs({ 'git-lfs-transfer': transfer }),
      'sha256sum <a.bin; cat "deep/it is.bin" plain.bin; git status --porcelain',
    );
    assert.deepEqual(printed, [`${oidOf(big)}  -`, 'small', 'not a pointer']);
    assert.doesNotMatch(log, /pointers/);
  });

  test('of submodules have theirs too', async () => {
    const lib = assay.repository({ files: { '.gitattributes': ATTRIBUTES, 'x.bin': pointerTo('in lib\n') } });
    keep(lib, 'in lib\n');
    const outer = assay.repository({
      files: { '.gitmodules': `[submodule "lib"]\n\tpath = lib\n\turl = ../${basename(lib.directory)}\n` },
      submodules: { lib: lib.hashes[0] as string },
    });
    const { printed } = await run(outer, programs({ 'git-lfs-transfer': transfer }), 'cat lib/x.bin', {
      submodules: 'on',
    });
    assert.deepEqual(printed, ['in lib']);
  });

  test('are marked as used by each build, and fetched again after they were removed as unused', async () => {
    const repository = assay.repository({
      files: { '.gitattributes': ATTRIBUTES, 'a.bin': pointerTo('content\n') },
    });
    keep(repository, 'content\n');
    const { project, buildId, printed } = await run(
      repository,
      programs({ 'git-lfs-transfer': transfer }),
      'head -c 7 a.bin; echo',
    );
    assert.deepEqual(printed, ['content']);
    const oid = oidOf('content\n');
    const mirror = join(assay.data, 'mirrors', `${project.id}.git`);
    const object = join(mirror, 'lfs/objects', oid.slice(0, 2), oid.slice(2, 4), oid);
    const rerun = async () => {
      const build = await project.finishedBuild(await project.rerun(buildId));
      assert.equal(build.build_state, 'passed', String(build.error));
      return project.log(build.id_str as string);
    };
    utimesSync(object, 1, 1);
    await rerun();
    assert.ok(Date.now() - statSync(object).mtimeMs < 3600_000);

    rmSync(object);
    const fetched = await rerun();
    assert.deepEqual(printedIn(fetched), ['content']);
    assert.match(fetched, /fetching it again/);

    // The host may have lost it meanwhile: then the build runs without it.
    rmSync(object);
    rmSync(join(repository.directory, 'lfs/objects', oid));
    const lost = await rerun();
    assert.match(lost, /1 of 1 files of Git LFS are pointers/);
    assert.deepEqual(printedIn(lost), ['version']);
  });

  test('that the host does not have stay pointers, and the log says how many', async () => {
    const repository = assay.repository({
      files: { '.gitattributes': ATTRIBUTES, 'a.bin': pointerTo('lost\n'), 'b.bin': pointerTo('kept\n') },
    });
    keep(repository, 'kept\n');
    const { log, printed } = await run(
      repository,
      programs({ 'git-lfs-transfer': transfer }),
      'head -c 7 a.bin; echo; cat b.bin',
    );
    assert.match(log, /^\[assay\] 1 of 2 files of Git LFS are pointers, not their content: /);
    assert.deepEqual(printed, ['version', 'kept']);
  });

  test('are fetched only over SSH: no URL that a host names is ever called', async () => {
    let calls = 0;
    const server = createServer((_, response) => {
      calls += 1;
      response.end('{}');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const href = `http://127.0.0.1:${(server.address() as AddressInfo).port}/lfs`;
    try {
      const repository = assay.repository({
        files: {
          '.gitattributes': ATTRIBUTES,
          'a.bin': pointerTo('x\n'),
          '.lfsconfig': `[lfs]\n\turl = ${href}\n[remote "origin"]\n\tlfsurl = ${href}\n`,
        },
      });
      const path = programs({});
      const asked = join(path, 'asked');
      writeFileSync(
        join(path, 'git-lfs-authenticate'),
        `#!/bin/sh\ntouch ${asked}\necho '{"href":"${href}"}'\n`,
        { mode: 0o755 },
      );
      const { log, printed } = await run(repository, path, 'head -c 7 a.bin');
      assert.match(
        log,
        /^\[assay\] 1 of 1 files of Git LFS are pointers, not their content: the host did not provide them over SSH/,
      );
      assert.deepEqual(printed, ['version']);
      assert.ok(!existsSync(asked), 'it is not even asked for one');
      assert.equal(calls, 0);
    } finally {
      server.close();
    }
  });

  test('whose content does not match the pointer are refused', async () => {
    const repository = assay.repository({
      files: { '.gitattributes': ATTRIBUTES, 'a.bin': pointerTo('right\n') },
    });
    keep(repository, 'right\n');
    const stored = join(repository.directory, 'lfs/objects', oidOf('right\n'));
    writeFileSync(stored, 'wrong\n');
    const { log, printed } = await run(
      repository,
      programs({ 'git-lfs-transfer': transfer }),
      'head -c 7 a.bin',
    );
    assert.equal(readFileSync(stored, 'utf8'), 'wrong\n');
    assert.match(log, /1 of 1 files of Git LFS are pointers/);
    assert.deepEqual(printed, ['version']);
  });
});

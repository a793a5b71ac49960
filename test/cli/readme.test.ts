// The README's shell examples, run as they are written against a real server, in the shells that people use.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { root } from '../../build/bundle.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import { parseExact, type Wire } from '../support/client.ts';
import { openDependencies, packTree } from '../work/dependencies-room.ts';
import { temporaryDirectory } from './program.ts';

const readme = readFileSync(join(root, 'README.md'), 'utf8');
const blocksOf = (text: string) =>
  [...text.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block as string);

/** As somebody's terminal would run it: each is told not to read anybody's configuration. */
const shells: [string, string[]][] = [
  ['bash', ['--norc', '--noprofile', '-e', '-c']],
  ['zsh', ['-f', '-e', '-c']],
  ['dash', ['-e', '-c']],
];

test('no example has a comment: zsh takes one that is typed for arguments', () => {
  const blocks = blocksOf(readme);
  assert.ok(blocks.length > 5);
  for (const block of blocks) assert.doesNotMatch(block, /(^|\s)#/, block);
});

describe('the first project, with curl', { timeout: 300_000 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance();
  });
  after(() => assay.close());

  const [, section = ''] = /^## The first project, with curl\n(.*?)^## /ms.exec(readme) ?? [];
  const lines = blocksOf(section).join('').trimEnd().split('\n');

  for (const [shell, args] of shells)
    test(`works in ${shell}`, async () => {
      using place = temporaryDirectory();
      const repository = assay.repository({
        message: 'First\n',
        files: { Makefile: 'check:\n\t@echo checked; ! command -v hello || hello\n' },
      });
      const [email = '', key = ''] = Buffer.from(assay.as.split(' ')[1] as string, 'base64')
        .toString()
        .split(/:(.*)/);
      const filled: Record<string, string> = {
        'sudo cat /var/lib/assay/': `cat ${assay.data}/`,
        'https://localhost:8443': assay.client.origin,
        'git@git.example.org:team/website.git': repository.url,
        'YOU@EXAMPLE.ORG': email,
        API_KEY: key,
        // Names are for one of all shells.
        'name=Website': `name=Website-${shell}`,
        'name=zlib': `name=zlib-${shell}`,
        // It goes on for ever.
        'api -N $P/firehose': 'api -N --max-time 3 $P/firehose || test $? = 28',
      };
      writeFileSync(join(place.path, 'zlib-1.3.1.tar.gz'), sourceArchive());
      let definitions = '';
      const run = async (written: string): Promise<string> => {
        let line = written;
        for (const [name, value] of Object.entries(filled)) line = line.replaceAll(name, () => value);
        assert.doesNotMatch(line, /[A-Z]+_ID/, 'everything is filled in');
        const { stdout } = await promisify(execFile)(shell, [...args, definitions + line], {
          cwd: place.path,
          timeout: 120_000,
        });
        if (/^\w+(=|\(\))/.test(line)) definitions += `${line}\n`;
        return stdout;
      };

      const outputs = new Map<string, string>();
      const response = (written: string) => {
        const [, output = ''] = [...outputs].find(([line]) => line.startsWith(written)) ?? [];
        return parseExact(output).response as Wire;
      };
      for (const line of lines) {
        outputs.set(line, await run(line));
        if (line.startsWith('api $A/projects ')) {
          const { id_str, ssh_public_key } = response(line);
          filled.PROJECT_ID = id_str as string;
          assay.sshd.addKey(ssh_public_key as string);
        } else if (line.startsWith('api $P/suites ')) filled.SUITE_ID = response(line).id_str as string;
        else if (line.startsWith('api $P/build_requests ')) {
          // They are there when the commit is fetched.
          const build = await assay
            .knownProject(filled.PROJECT_ID as string)
            .buildOf(response(line).id_str as string);
          filled.COMMIT_ID = build.commit_id_str as string;
          filled.BUILD_ID = build.id_str as string;
        } else if (line.startsWith('api $A/dependencies '))
          filled.DEPENDENCY_ID = response(line).id_ref as string;
      }
      const { BUILD_ID, COMMIT_ID, DEPENDENCY_ID, PROJECT_ID, SUITE_ID } = filled as Record<string, string>;
      const idsOf = (written: string) => (response(written) as unknown as Wire[]).map(({ id_str }) => id_str);
      assert.deepEqual(idsOf('api $P/commits'), [COMMIT_ID]);
      assert.deepEqual(idsOf('api $P/commits/COMMIT_ID/builds'), [BUILD_ID]);
      assert.match(outputs.get('api -N $P/builds/BUILD_ID/firehose') ?? '', /^event: end$/m);
      assert.match(outputs.get('api $P/builds/BUILD_ID/log') ?? '', /^checked$/m);
      assert.match(outputs.get('api -N $P/firehose') ?? '', /^event: state$/m);
      assert.equal(response('api -X POST -T ').marketplace_state, 'enqueued_for_compile');
      assert.equal(response('api $P/suites/SUITE_ID/dependencies ').id_ref, DEPENDENCY_ID);
      const compiled = await openDependencies(assay).finished(DEPENDENCY_ID as string);
      assert.equal(compiled.state, 'compiled', compiled.log);
      const { log } = (await assay.knownProject(PROJECT_ID as string).run()).of(SUITE_ID as string);
      assert.match(log, /^checked\n(.*\/)hello\nhello\n$/m);
    });
});

/** What stands for the sources of zlib. */
const sourceArchive = () =>
  packTree(
    {
      'zlib-1.3.1/configure':
        '#!/bin/sh\nprintf "install:\\n\\tinstall -D hello %s/bin/hello\\n" "$(echo "$1" | cut -c10-)" >Makefile\n',
      'zlib-1.3.1/hello': '#!/bin/sh\necho hello\n',
    },
    'tar -czf - *',
  );

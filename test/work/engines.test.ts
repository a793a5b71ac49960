// What a build gets from any engine. Each case runs on the engine of this host and on three machines of a swarm.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { recordImage } from '../../src/store/images.ts';
import { pollUntil } from '../drill/support/poll.ts';
import { findSwarmOrphans } from '../drill/swarm/orphans.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import type { Wire } from '../support/client.ts';
import { hasPrinted, type ProjectJourney, type SuiteFields } from '../support/journey.ts';
import { type SwarmAppliance, startSwarmAppliance } from '../support/swarm-appliance.ts';
import { openDependencies, tarOf, useIn } from './dependencies/fixture.ts';

const MIB = 1024 ** 2;
const NOT_IMPORTED = 'never/imported:1';

type Case = SuiteFields & {
  expect: { build_state: string; exit_code: number | null; error?: RegExp };
  log?: RegExp[];
  check?(log: string, build: Wire, project: ProjectJourney): void | Promise<void>;
};

const passed = { build_state: 'passed', exit_code: 0 };

const CASES: Record<string, Case> = {
  'passes a command that exits with 0': { command: 'echo hello', expect: passed, log: [/^hello$/m] },
  'fails a command that exits with another status': {
    command: 'echo bad; exit 7',
    expect: { build_state: 'failed', exit_code: 7 },
    log: [/^bad$/m, /exited with 7/],
  },
  'reports the signal that ended a command': {
    command: 'kill -9 $$',
    expect: { build_state: 'failed', exit_code: 137 },
    log: [/SIGKILL/],
  },
  'reports that memory ran out': {
    command: 'x=$(head -c 300m /dev/zero | tr "\\0" x); echo "$x" | wc -c',
    expect: { build_state: 'failed', exit_code: 137 },
    log: [/out of memory/],
  },
  'keeps every line of a long output': {
    command: 'seq 100000',
    expect: passed,
    check: log =>
      assert.deepEqual(
        log.match(/^\d+$/gm),
        Array.from({ length: 100_000 }, (_, index) => `${index + 1}`),
      ),
  },
  'restricts the container': {
    command:
      'grep -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status; id -u; cat /proc/sys/net/ipv4/ip_forward >/dev/null; nproc',
    expect: passed,
    log: [/^CapEff:\s0000000000000000$/m, /^NoNewPrivs:\s1$/m, /^Seccomp:\s2$/m, /^1000$/m],
  },
  'passes names and variables as they are': {
    name: '{{.Node.ID}} {{ x $(id)',
    variables: { SECRET: '{{.Node.Hostname}} s3cret', QUOTED: 'a \'b\' "c" $HOME\nsecond line' },
    command:
      'echo "<$ASSAY_SUITE>"; printf %s "$SECRET" | wc -c; printf %s "$QUOTED" | tail -n 1; echo "$SECRET"; env | grep -c ASSAY_NODE',
    expect: { build_state: 'failed', exit_code: 1 },
    log: [/^<\{\{\.Node\.ID\}\} \{\{ x \$\(id\)>$/m, /^25$/m, /^0$/m],
    check: log => assert.ok(!log.includes('s3cret')),
  },
  'keeps artifacts and files of the workspace': {
    artifacts: 'out/*.txt',
    reports: 'junit.xml',
    command:
      'mkdir out; echo a >out/a.txt; echo b >out/b.log; mkdir "$ASSAY_ARTIFACTS/d"; echo c >"$ASSAY_ARTIFACTS/d/c"; chmod 700 "$ASSAY_ARTIFACTS/d"; echo "<testsuite><testcase name=\'one\'/></testsuite>" >junit.xml',
    expect: passed,
    async check(_, build, project) {
      const found = (await project.ask('GET', `/builds/${build.id_str}/artifacts`)) as unknown as Wire[];
      assert.deepEqual(found.map(({ path }) => path).sort(), ['d/c', 'junit.xml', 'out/a.txt']);
      const { tests } = await project.buildRecord(build.id_str as string);
      assert.equal((tests as Wire | null)?.passed, 1);
    },
  },
  'has a writable cache, home and shared memory': {
    command: 'touch /srv/cache/x ~/x /tmp/x && truncate -s 1M /dev/shm/x && git status --porcelain',
    expect: passed,
  },
  'cannot run in an image that is missing': {
    image: NOT_IMPORTED,
    command: 'echo never',
    expect: { build_state: 'errored', exit_code: null, error: /never\/imported:1/ },
    check: log => assert.ok(!hasPrinted(log, 'never\n')),
  },
};

for (const engine of ['single', 'swarm'] as const)
  describe(`a build with ENGINE=${engine}`, () => {
    let appliance: Appliance;
    before(async () => {
      const limits = { concurrency: 3, memoryBytes: 256 * MIB };
      appliance = await (engine === 'single' ? startAppliance(limits) : startSwarmAppliance(limits));
      recordImage(appliance.app.db, NOT_IMPORTED, 'sha256:0');
    });
    after(() => appliance?.close());

    describe('of one request', () => {
      let ran: Awaited<ReturnType<ProjectJourney['run']>>;
      let project: ProjectJourney;
      const suites = new Map<string, string>();
      before(async () => {
        project = await appliance.project();
        for (const [name, { expect: _, log: __, check: ___, ...fields }] of Object.entries(CASES))
          suites.set(name, await project.suite(fields));
        ran = await project.run();
      });
      for (const [name, { expect, log: patterns = [], check }] of Object.entries(CASES))
        it(name, async () => {
          const { build, log } = ran.of(suites.get(name) as string);
          const { error, ...fields } = expect;
          assert.deepEqual({ build_state: build.build_state, exit_code: build.exit_code }, fields, log);
          if (error) assert.match(build.error as string, error);
          for (const pattern of patterns) assert.match(log, pattern);
          await check?.(log, build, project);
        });
      it('has no container, secret or file afterwards', async () => {
        if (engine === 'single') await appliance.containersUntil(names => names.length === 0);
        else {
          const find = () => findSwarmOrphans(appliance as SwarmAppliance);
          assert.deepEqual(await pollUntil(60_000, find, found => found.length === 0), []);
        }
      });
      it('says on which node it ran', () => {
        const nodes = new Set(
          ran.builds.filter(({ exit_code }) => exit_code !== null).map(({ node }) => node),
        );
        if (engine === 'single') assert.deepEqual([...nodes], [undefined]);
        else for (const node of nodes) assert.match(node as string, /^machine-[123]$/);
      });
    });

    it('is stopped by a cancel', async () => {
      const project = await appliance.project();
      await project.suite({ command: 'echo begun; sleep 1000' });
      const build = await project.buildOf(await project.request());
      await project.logHas(build.id_str as string, 'begun');
      await project.cancel(`builds/${build.id_str}`);
      assert.equal((await project.finishedBuild(build.id_str as string)).build_state, 'canceled');
    });

    it('finds compiled dependencies, the first one first', async () => {
      const fixture = openDependencies(appliance);
      const prefix = '/opt/shared';
      const make = (name: string, related: string[] = []) =>
        fixture.compiled(
          tarOf({ 'bin/both': `#!/bin/sh\necho ${name}\n`, [`bin/${name}`]: '#!/bin/sh\necho own\n' }),
          {
            prefix,
            command: `chmod +x bin/*; mkdir -p ${prefix}; cp -R bin ${prefix}; ls ${prefix}/bin | wc -l`,
            ...(related.length > 0 && { 'related_dependencies[]': related }),
          },
        );
      const first = await make('first');
      const second = await make('second', [first]);
      const { build, log } = await useIn(
        await appliance.project(),
        [second, first],
        `both; first; second; ! touch ${prefix}/x 2>/dev/null`,
      );
      assert.equal(build.build_state, 'passed', log);
      assert.match(log, /^second\nown\nown$/m);
    });
  });

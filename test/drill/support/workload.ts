// The project that a drill works on: suites that count their runs and number their lines, a dependency, two deploy
// targets that count their pushes, and a webhook for each kind of event.
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Fields, Wire } from '../../support/client.ts';
import { addCommits, createRepository } from '../../support/repository.ts';
import { tarOf } from '../../work/dependencies/fixture.ts';
import type { DrillEnvironment } from './environment.ts';
import { pollUntil } from './poll.ts';

export type Workload = {
  projectId: string;
  path: string;
  suites: { id: string; lines: number }[];
  /** Compiled, and used by the second suite. */
  dependencyId: string;
  strategyId: string;
  notificationIds: string[];
  /** Adds a commit to the main branch. */
  commit(): void;
  /** The accepted pushes, by target. */
  pushes(): { manual: string[]; automatic: string[] };
};

export const SLOW_LINES = 120;
export const FAST_LINES = 5_000;
export const COMPILE_LINES = 60;
export const PREFIX = '/srv/dependency';
const COMPILE_MS = 60_000;

/** Appends a line for each run of the command, in the cache, which outlives the container. */
const NOTE_RUN = 'echo "$ASSAY_BUILD_ID" >>/srv/cache/runs';
const SLOW_SUITE = `${NOTE_RUN}
i=0
while [ $i -lt ${SLOW_LINES} ]; do
  i=$((i + 1))
  echo "line $i"
  [ $((i % 10)) -ne 0 ] || sleep 0.1
done`;
const FAST_SUITE = `${NOTE_RUN}
tool >/dev/null || exit 3
seq -f 'line %.0f' 1 ${FAST_LINES}`;
export const SHOW_RUNS = 'cat /srv/cache/runs';

export const COMPILE_COMMAND = `number=$(cat number)
i=0
while [ $i -lt ${COMPILE_LINES} ]; do
  i=$((i + 1))
  echo "compile $number line $i"
  [ $((i % 20)) -ne 0 ] || sleep 0.1
done
mkdir -p ${PREFIX}/bin && cp tool ${PREFIX}/bin/`;

/** A different archive for each number, recognized by its size. */
export const archiveOf = (number: number, padding = 0) =>
  tarOf({
    number: `${number}\n`,
    tool: `#!/bin/sh\necho tool ${number}\n`,
    padding: 'x'.repeat(number * 512 + padding),
  });

export async function createWorkload(environment: DrillEnvironment): Promise<Workload> {
  const make = async (path: string, form: Fields): Promise<Wire> => {
    const answer = await environment.ask('POST', path, form);
    if (answer.status >= 300) throw new Error(`POST ${path}: ${answer.text}`);
    return answer.record;
  };
  const directory = (name: string) => join(environment.sshd.repositoriesDirectory, name);
  createRepository(directory('source.git'), [{ message: 'First\n', files: { 'README.md': 'Hello\n' } }]);
  for (const name of ['manual.git', 'automatic.git']) {
    createRepository(directory(name));
    countPushes(directory(name));
  }
  const project = await make('/projects', {
    name: 'Drill',
    repository_url: environment.sshd.urlFor('source.git'),
    description: '0',
  });
  environment.sshd.addKey(project.ssh_public_key as string);
  const projectId = project.id_str as string;
  const path = `/projects/${projectId}`;

  const suites: Workload['suites'] = [];
  for (const [name, command, lines] of [
    ['slow', SLOW_SUITE, SLOW_LINES],
    ['fast', FAST_SUITE, FAST_LINES],
  ] as const) {
    const suite = await make(`${path}/suites`, { name, command, description: '0' });
    suites.push({ id: suite.id_str as string, lines });
  }
  const strategy = (name: string, automatic: boolean) =>
    make(`${path}/deploy_strategies`, {
      name,
      strategy_type: 'git',
      'options[repository_url]': environment.sshd.urlFor(`${name}.git`),
      'options[local_branch]': 'main',
      'options[remote_branch]': 'live',
      ...(automatic && { 'options[automatic]': 'true' }),
    });
  const manual = await strategy('manual', false);
  await strategy('automatic', true);
  const notificationIds: string[] = [];
  for (const type of ['build', 'dependency'])
    notificationIds.push(
      (
        await make(`${path}/notifications`, {
          notifiable_type: type,
          name: 'webhook',
          'options[url]': environment.receiver.url,
        })
      ).id_str as string,
    );

  const [dependencyId = '', second = ''] = await Promise.all([
    compileDependency(environment, make, 'base', 0),
    // With the same prefix, so that builds mount a union of both.
    compileDependency(environment, make, 'more', 1),
  ]);
  for (const id of [dependencyId, second])
    await make(`${path}/suites/${suites[1]?.id}/dependencies`, { dependency_id: id });

  let commits = 0;
  return {
    projectId,
    path,
    suites,
    dependencyId,
    strategyId: manual.id_str as string,
    notificationIds,
    commit() {
      commits += 1;
      addCommits(directory('source.git'), [
        {
          message: `Commit ${commits}\n`,
          files: { 'count.txt': `${commits}\n` },
          authoredAt: `${1_710_000_000 + commits} +0000`,
        },
      ]);
    },
    pushes: () => ({
      manual: readPushes(directory('manual.git')),
      automatic: readPushes(directory('automatic.git')),
    }),
  };
}

async function compileDependency(
  environment: DrillEnvironment,
  make: (path: string, form: Fields) => Promise<Wire>,
  name: string,
  number: number,
): Promise<string> {
  const id = (await make('/dependencies', { name, command: COMPILE_COMMAND, prefix: PREFIX }))
    .id_ref as string;
  const body = archiveOf(number);
  await environment.client().call('POST', `/dependencies/${id}/archive`, { as: environment.as, body });
  const compiled = await pollUntil(
    COMPILE_MS,
    async () => (await environment.ask('GET', `/dependencies/${id}`)).record.marketplace_state,
    state => state === 'compiled' || state === 'compile_failed',
  );
  if (compiled !== 'compiled') throw new Error(`the dependency ${name} of the drill is ${compiled}`);
  return id;
}

/**
 * One hook that delays a push, and one that records each change of the branch. Not post-receive, which git skips when
 * the client has disconnected.
 */
function countPushes(repository: string): void {
  const hook = (name: string, text: string) => {
    const path = join(repository, 'hooks', name);
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
  };
  const pushes = join(repository, 'pushes');
  hook('pre-receive', 'cat >/dev/null; sleep 0.2');
  hook(
    'reference-transaction',
    `[ "$1" = committed ] || exit 0
while read -r old new ref; do [ "$ref" != refs/heads/live ] || echo "$new" >>${pushes}; done`,
  );
  appendFileSync(pushes, '');
}

function readPushes(repository: string): string[] {
  const path = join(repository, 'pushes');
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').filter(Boolean) : [];
}

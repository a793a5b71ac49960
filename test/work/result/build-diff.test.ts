// A suite that breaks in different ways, with a real repository, real containers and a real dependency: each time, the
// comparison with the last build that passed names what was changed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';
import { openDependencies, PREFIX, tarOf } from '../dependencies/fixture.ts';

const OLD_SECRET = 'fast-and-not-to-be-found';
const NEW_SECRET = 'slow-and-not-to-be-found';

let assay: Appliance;
before(async () => {
  assay = await startAppliance({ concurrency: 1 });
});
after(() => assay.close());

test('what was changed is named first, each time a suite breaks', async () => {
  const dependencies = openDependencies(assay);
  const dependency = await dependencies.compiled(tarOf({ answer: 'yes' }), { name: 'zlib' });
  const repository = assay.repository({ message: 'Begin\n', files: { check: 'echo checked\n' } });
  const project = await assay.project(repository);
  const command = `date; test "$(cat ${PREFIX}/answer)" = yes || { echo wrong answer; exit 3; }; test "$MODE" = ${OLD_SECRET} || exit 4; sh check`;
  const suite = await project.suite({ command, variables: { MODE: OLD_SECRET } });
  await project.ask('POST', `/suites/${suite}/dependencies`, { dependency_id: dependency });
  const [variable] = (await project.ask(
    'GET',
    `/suites/${suite}/environment_variables`,
  )) as unknown as Wire[];
  const setVariable = (content: string) =>
    project.ask('PUT', `/suites/${suite}/environment_variables/${variable?.id_str}`, { content });
  const runUntil = async (state: string) => {
    const { build, log } = (await project.run()).of(suite);
    assert.equal(build.build_state, state, log);
    return build;
  };
  const diffOf = (build: Wire) => project.ask('GET', `/builds/${build.id_str}/diff`);
  const causesOf = (diff: Wire) => (diff.causes as Wire[]).map(({ kind }) => kind);

  const good = await runUntil('passed');
  await dependencies.upload(dependency, tarOf({ answer: 'no' }));
  await dependencies.finished(dependency);
  const byDependency = await diffOf(await runUntil('failed'));
  assert.equal((byDependency.against as Wire).id_str, good.id_str);
  assert.deepEqual(causesOf(byDependency), ['dependencies', 'log']);
  assert.match((byDependency.causes as Wire[])[0]?.text as string, /zlib was compiled again/);
  const { lines } = byDependency.log as { lines: Wire[] };
  assert.deepEqual(
    lines.map(({ text }) => text),
    ['wrong answer'],
    'the time that was printed does not count',
  );

  await dependencies.upload(dependency, tarOf({ answer: 'yes' }));
  await dependencies.finished(dependency);
  await runUntil('passed');
  await setVariable(NEW_SECRET);
  const byVariable = await diffOf(await runUntil('failed'));
  assert.equal(causesOf(byVariable)[0], 'variables');
  assert.deepEqual(byVariable.variables, { added: [], removed: [], changed: ['MODE'] });
  assert.deepEqual(byVariable.exit_code, { before: 0, after: 4, changed: true });

  await setVariable(OLD_SECRET);
  await runUntil('passed');
  const [broken] = repository.add({ message: 'Break it\n', files: { check: 'exit 7\n' } });
  const byCommit = await diffOf(await runUntil('failed'));
  assert.equal(causesOf(byCommit)[0], 'commits');
  const commits = byCommit.commits as { list: Wire[]; files: Wire[] };
  assert.deepEqual(
    commits.list.map(({ ref, subject }) => [ref, subject]),
    [[broken, 'Break it']],
  );
  assert.deepEqual(commits.files, [{ path: 'check', change: 'modified' }]);

  await project.ask('PUT', `/suites/${suite}`, { command: 'exit 1' });
  repository.add({ message: 'Fix it\n', files: { check: 'true\n' } });
  const byCommand = await diffOf(await runUntil('failed'));
  assert.deepEqual(causesOf(byCommand).slice(0, 2), ['command', 'commits']);

  // In another process: reading the database here would drop the locks on it. The files of the job are removed later.
  const search = spawnSync('grep', ['-rlsF', '--exclude-dir=jobs', NEW_SECRET, assay.data], {
    encoding: 'utf8',
  });
  assert.equal(search.stdout, '');
});

// The checks that can run right after each crash while work continues: what was delivered, pushed, run and logged so
// far. checks.ts checks everything again at the end.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Wire } from '../../support/client.ts';
import type { Driver } from '../support/driver.ts';
import type { DrillEnvironment } from '../support/environment.ts';
import type { Workload } from '../support/workload.ts';
import { examineBuild, listPushedTwice, listRepeated, readEvents } from './checks.ts';

/** Returns what is wrong. Each build is checked once, after the first crash that finds it ended. */
export function createCheckAfterKill(
  environment: DrillEnvironment,
  workload: Workload,
  driver: Driver,
): () => Promise<string[]> {
  const known = new Set<string>();
  let newest = '0';
  return async () => {
    const { received, problems } = environment.receiver;
    // Taken before the events are read: later deliveries are checked the next time.
    const delivered = [...received.keys()];
    const ended = new Set<string>();
    for (const event of await readEvents(environment, workload, newest)) {
      newest = event.id_str as string;
      known.add(newest);
      if (event.type === 'build.finished') ended.add((event.build as Wire).id_str as string);
    }
    const found = [
      ...problems,
      ...delivered.filter(id => !known.has(id)).map(id => `event ${id} was delivered but does not exist`),
      ...listPushedTwice(workload).map(push => `pushed twice: ${push}`),
      ...listRepeated(await readRuns(environment)).map(id => `the command of build ${id} was run again`),
    ];
    for (const id of ended) {
      const { wrong, missing, repeated } = await examineBuild(environment, workload, driver, id);
      found.push(...wrong, ...missing, ...repeated);
    }
    return found;
  };
}

/** The builds whose command ran, as recorded by the suites in their caches. */
async function readRuns({ engine }: DrillEnvironment): Promise<string[]> {
  const listed = await engine.docker(
    ...['volume', 'ls', '--filter', 'label=assay.kind=cache', '--format', '{{.Mountpoint}}'],
  );
  return listed
    .split('\n')
    .filter(Boolean)
    .map(mountpoint => join(mountpoint, 'runs'))
    .filter(path => existsSync(path))
    .flatMap(path => readFileSync(path, 'utf8').split('\n').filter(Boolean));
}

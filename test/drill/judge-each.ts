// What can be judged right after each crash, while the work goes on: what was delivered, pushed, run and logged so far. The
// rest, and all of this once more, is judged when everything has ended.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Wire } from '../support/client.ts';
import type { Driver } from './driver.ts';
import { examineBuild, listPushedTwice, listRepeated, readEvents } from './judge.ts';
import type { Room } from './room.ts';
import type { Scene } from './scene.ts';

/** Says what is wrong; each build is looked at once, after the first crash that finds it ended. */
export function createEachJudge(room: Room, scene: Scene, driver: Driver): () => Promise<string[]> {
  const known = new Set<string>();
  let newest = '0';
  return async () => {
    const { got, troubles } = room.receiver;
    // Before the events are read: what comes meanwhile is for the next time.
    const delivered = [...got.keys()];
    const ended = new Set<string>();
    for (const event of await readEvents(room, scene, newest)) {
      newest = event.id_str as string;
      known.add(newest);
      if (event.type === 'build.finished') ended.add((event.build as Wire).id_str as string);
    }
    const found = [
      ...troubles,
      ...delivered.filter(id => !known.has(id)).map(id => `event ${id} was delivered and is not there`),
      ...listPushedTwice(scene).map(push => `pushed twice: ${push}`),
      ...listRepeated(await readRuns(room)).map(id => `the command of build ${id} was run again`),
    ];
    for (const id of ended) {
      const { wrong, missing, repeated } = await examineBuild(room, scene, driver, id);
      found.push(...wrong, ...missing, ...repeated);
    }
    return found;
  };
}

/** The builds whose command ran, as the suites noted it in their caches. */
async function readRuns({ engine }: Room): Promise<string[]> {
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

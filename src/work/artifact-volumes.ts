// Makes artifacts available to containers on this machine. Each artifact has one Docker volume, filled from the data
// directory. Artifacts that share a prefix are mounted as a union, without copying.

import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  type ArtifactMount,
  MISSING_ARTIFACT,
  nestedPairs,
  type PlacedArtifact,
  planArtifactMounts,
} from '../domain/container/artifact-mounts.ts';
import {
  LAYERS_DIRECTORY,
  type Mount,
  prefixVolumeName,
  resourceName,
} from '../domain/container/container-plan.ts';
import { directoriesTar, openArtifact } from '../engine/archive/artifact-tar.ts';
import type { UnionPlan, VolumeDirectory } from '../engine/engine.ts';
import { findArtifact, setArtifactVolume } from '../store/artifacts.ts';
import { artifactPath } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import type { ArtifactOptions, ArtifactStorage, Holds } from './artifact-storage.ts';
import { CannotRun } from './job.ts';

/** After this time, a volume is mounted or never will be. */
const RESERVED_MS = 2 * 60_000;
const UPPER_DIRECTORY = 'upper';
const WORK_DIRECTORY = 'work';

export function createArtifactVolumes(
  { db, host, dataDirectory, runAs }: ArtifactOptions,
  { hold, isHeld }: Holds,
): ArtifactStorage {
  const instance = instanceOf(db);
  const nameOf = (kind: string, id: string) => resourceName({ instance, kind, id });
  const { engine } = host;
  const filling = new Map<string, Promise<string>>();
  const reservedAt = new Map<string, number>();
  /** Whether an artifact has a directory at a path. The content of an artifact never changes. */
  const directories = new Map<string, boolean>();
  const directoryKey = (hash: string, inside: string) => `${hash} ${inside}`;

  const reserve = (name: string) => reservedAt.set(name, Date.now());

  async function findReady(hash: string): Promise<string | undefined> {
    const name = findArtifact(db, hash)?.volume;
    return name && (await engine.hasVolume(name)) ? name : undefined;
  }

  /** Fills a new volume, and records its name when it is complete, so that an incomplete one is never used. */
  async function fill(hash: string): Promise<string> {
    const file = artifactPath(dataDirectory, hash);
    if (!existsSync(file)) throw new CannotRun(MISSING_ARTIFACT);
    const name = nameOf('artifact', `${hash.slice(0, 16)}-${randomBytes(4).toString('hex')}`);
    reserve(name);
    const owner = { instance, kind: 'artifact', id: hash };
    await engine.createVolume({ name, owner });
    await engine.fillVolume(name, () => openArtifact(file));
    setArtifactVolume(db, hash, name);
    return name;
  }

  async function readyVolume(hash: string): Promise<string> {
    const found = filling.has(hash) ? undefined : await findReady(hash);
    if (found) return found;
    let work = filling.get(hash);
    if (!work) {
      const release = hold(hash);
      work = fill(hash).finally(() => {
        filling.delete(hash);
        release();
      });
      filling.set(hash, work);
    }
    return work;
  }

  async function findNestedDirectories(
    artifacts: readonly PlacedArtifact[],
    volumes: Map<string, string>,
    writable?: string,
  ): Promise<void> {
    for (const { hash, inside } of nestedPairs(artifacts, writable)) {
      if (directories.has(directoryKey(hash, inside))) continue;
      const volume = volumes.get(hash) as string;
      directories.set(directoryKey(hash, inside), await engine.hasDirectory({ volume, inside }));
    }
  }

  /** A volume with empty directories. It is filled at each use, because that is cheaper than checking it. */
  async function mountPointVolume(paths: readonly string[]): Promise<string> {
    const name = nameOf('mountpoints', digest(paths.join('\n')));
    reserve(name);
    await engine.createVolume({ name, owner: { instance, kind: 'mountpoints', id: '' } });
    await engine.fillVolume(name, () => directoriesTar(paths, runAs));
    return name;
  }

  /** In order of precedence. */
  async function layersOf(place: ArtifactMount, volumes: Map<string, string>): Promise<VolumeDirectory[]> {
    const layers = place.layers.map(({ hash, inside }) => ({ volume: volumes.get(hash) as string, inside }));
    if (place.mountPoints.length === 0) return layers;
    return [{ volume: await mountPointVolume(place.mountPoints), inside: '' }, ...layers];
  }

  async function createUnion(union: UnionPlan, target: string): Promise<void> {
    reserve(union.name);
    if (!(await engine.createUnion(union)))
      throw new CannotRun(
        `Too many dependencies share the prefix ${target}: change the prefix of some of them.`,
      );
  }

  async function mountPlace(place: ArtifactMount, volumes: Map<string, string>): Promise<Mount[]> {
    const { target, mountPoints } = place;
    const [first] = place.layers;
    if (place.layers.length === 1 && first?.inside === '' && mountPoints.length === 0)
      return [readOnlyMount(volumes.get(first.hash) as string, target)];
    const layers = await layersOf(place, volumes);
    const name = nameOf('union', digest(JSON.stringify(layers)));
    await createUnion({ name, owner: { instance, kind: 'union', id: '' }, layers }, target);
    return [readOnlyMount(name, target), ...layerMounts(layers)];
  }

  async function readyAll(artifacts: readonly PlacedArtifact[]): Promise<Map<string, string>> {
    const ready = await Promise.all(
      [...new Set(artifacts.map(({ hash }) => hash))].map(
        async hash => [hash, await readyVolume(hash)] as const,
      ),
    );
    for (const [, name] of ready) reserve(name);
    return new Map(ready);
  }

  async function mountAll(places: readonly ArtifactMount[], volumes: Map<string, string>): Promise<Mount[]> {
    const mounts = (await Promise.all(places.map(place => mountPlace(place, volumes)))).flat();
    // A volume can be a layer of several unions.
    return [...new Map(mounts.map(mount => [mount.target, mount])).values()];
  }

  const isInside = (hash: string, inside: string) => directories.get(directoryKey(hash, inside)) ?? false;
  const buildVolume = (id: bigint) => prefixVolumeName(instance, id);
  const buildUnion = (id: bigint) => `${buildVolume(id)}-union`;

  return {
    async attach(artifacts) {
      const volumes = await readyAll(artifacts);
      await findNestedDirectories(artifacts, volumes);
      return { mounts: await mountAll(planArtifactMounts(artifacts, isInside), volumes), layers: [] };
    },

    async attachPrefix(id, prefix, related) {
      const volume = buildVolume(id);
      const owner = { instance, kind: 'prefix', id: id.toString() };
      const volumes = await readyAll(related);
      await findNestedDirectories(related, volumes, prefix);
      const places = planArtifactMounts(related, isInside, prefix);
      const own = places.find(({ writable }) => writable) as ArtifactMount;
      await engine.createVolume({ name: volume, owner });
      const mounts = await mountAll(
        places.filter(place => place !== own),
        volumes,
      );
      if (own.layers.length === 0) {
        await engine.claimVolume(volume);
        return {
          source: { volume, inside: '' },
          mounts: [...mounts, writableMount(volume, prefix)],
          layers: [],
        };
      }
      await engine.fillVolume(volume, () => directoriesTar([UPPER_DIRECTORY, WORK_DIRECTORY], runAs));
      const layers = await layersOf(own, volumes);
      const writable = { volume, upper: UPPER_DIRECTORY, work: WORK_DIRECTORY };
      await createUnion({ name: buildUnion(id), owner, layers, writable }, prefix);
      const unmounted = layerMounts([writable, ...layers]).filter(layer =>
        mounts.every(({ target }) => target !== layer.target),
      );
      return {
        source: { volume, inside: UPPER_DIRECTORY },
        mounts: [...mounts, writableMount(buildUnion(id), prefix), ...unmounted],
        layers: [],
      };
    },

    volumesOf: id => [buildUnion(id), buildVolume(id)],

    ready: async hash => void (await readyVolume(hash)),

    isVolumeNeeded(name, { kind, id }) {
      const isReserved = Date.now() - (reservedAt.get(name) ?? 0) < RESERVED_MS;
      if (isReserved) return true;
      reservedAt.delete(name);
      return kind === 'artifact' && (isHeld(id) || findArtifact(db, id)?.volume === name);
    },
  };
}

const digest = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 16);

const readOnlyMount = (source: string, target: string): Mount => ({
  type: 'volume',
  source,
  target,
  readOnly: true,
  copy: false,
});

const writableMount = (source: string, target: string): Mount => ({
  ...readOnlyMount(source, target),
  readOnly: false,
});

/** Docker does not know that a union uses these volumes. Mounting them as well protects them from a prune. */
const layerMounts = (layers: readonly { volume: string }[]) =>
  [...new Set(layers.map(({ volume }) => volume))].map(name =>
    readOnlyMount(name, `${LAYERS_DIRECTORY}/${name}`),
  );

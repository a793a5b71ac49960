// Composes the images that the nodes of a swarm pull from Assay: the layers of an image of the manager's engine, and one for
// each dependency. A layer is stored once, or generated from its artifact, and has the same digest each time.

import { createHash, hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { MISSING_ARTIFACT } from '../../domain/container/artifact-mounts.ts';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { EngineRefused } from '../engine.ts';
import { findPlace, indexLayer, type LayerIndex, type Place } from './image-paths.ts';
import {
  type ArtifactSource,
  explainUnreadable,
  LAYER_FORMAT,
  openArtifactLayer,
  openClearingLayer,
  openWritableLayer,
} from './layers.ts';
import { type ImageConfig, readSavedImage, type SavedImage } from './saved-image.ts';
import {
  type GeneratedLayer,
  type KeptBlob,
  MANIFEST_TYPE,
  openImageFiles,
  type StoredImages,
  versionOf,
} from './stored-images.ts';

export type ImageLayer =
  /** The artifact of a dependency, read-only. `file` is its stored tar. */
  | { kind: 'artifact'; hash: string; prefix: string; file: string }
  /** The prefix of a compile: it and the directories below it belong to `owner`. Always on top. */
  | { kind: 'writable'; prefix: string; owner: RunAs };

type ArtifactLayer = Extract<ImageLayer, { kind: 'artifact' }>;
type WritableLayer = Extract<ImageLayer, { kind: 'writable' }>;

export type ImageStore = StoredImages & {
  /**
   * The reference of an image by digest, which nodes can pull from now on. `layers` are in order of precedence: the first one
   * wins. Like a mount, they hide what the image has at their prefix. Throws EngineRefused if an artifact is missing.
   */
  compose(image: string, layers: readonly ImageLayer[]): Promise<string>;
  /** Removes what was not used for `unusedMs`. What a running job needs was used when it started. */
  sweep(unusedMs: number): Promise<void>;
};

type ImageStoreOptions = {
  directory: string;
  /** `host:port`, known when the server listens. */
  registry: string | (() => string);
  /** The image as `docker save` writes it. */
  exportImage(reference: string): Promise<Readable>;
  /** The id of an image of the manager's engine. */
  identify(reference: string): Promise<string>;
};

/** The repository of all composed images. */
export const REPOSITORY = 'assay/image';
const CONFIG_TYPE = 'application/vnd.docker.container.image.v1+json';
const LAYER_TYPE = 'application/vnd.docker.image.rootfs.diff.tar';
/** Docker refuses images with more layers. */
const MAX_LAYERS = 125;
/** How many compositions are remembered. Others are composed again from what is stored. */
const REMEMBERED = 500;
const TOUCH_EVERY_MS = 60_000;

type Composition = {
  digest: string;
  /** Everything that it consists of. */
  paths: string[];
  artifacts: { file: string; version: string }[];
  touchedAt: number;
};

/** By key. */
type GeneratedLayers = Map<string, { digest: string; layer: GeneratedLayer }>;

/** A layer on top of those of the image. */
type AddedLayer = KeptBlob & { path: string; description: string };

export function createImageStore(options: ImageStoreOptions): ImageStore {
  const files = openImageFiles(options.directory);
  const compositions = new Map<string, Composition>();
  const once = shareWork();
  let generated: GeneratedLayers | undefined;

  /** The image, exported if it is not stored yet. */
  const readBase = (imageId: string): Promise<SavedImage> =>
    once(`base ${imageId}`, async () => {
      const stored = await files.findRecord<SavedImage>('bases', imageId);
      if (stored && files.touch(basePaths(imageId, stored))) return stored;
      const saved = await readSavedImage(await options.exportImage(imageId), async content => {
        const layer = await files.keepBlob(content);
        if (!(await files.findRecord('indexes', layer.digest)))
          await files.keepRecord('indexes', layer.digest, await indexLayer(files.blobPath(layer.digest)));
        return layer;
      });
      // Last: a base with a record is complete.
      await files.keepRecord('bases', imageId, saved);
      return saved;
    });

  const basePaths = (imageId: string, { layers }: SavedImage) => [
    files.recordPath('bases', imageId),
    ...layers.flatMap(({ digest }) => [files.blobPath(digest), files.recordPath('indexes', digest)]),
  ];

  /** A function that finds where prefixes are in the image. */
  async function readPlaces({ layers }: SavedImage): Promise<(prefix: string) => Place> {
    const indexes: LayerIndex[] = [];
    for (const { digest } of layers.toReversed()) {
      const index = await files.findRecord<LayerIndex>('indexes', digest);
      if (!index) throw new Error(`the index of the layer ${digest} is missing`);
      indexes.push(index);
    }
    return prefix => findPlace(indexes, prefix);
  }

  async function readGenerated(): Promise<GeneratedLayers> {
    if (generated) return generated;
    const found: GeneratedLayers = new Map();
    for (const name of files.listRecords('generated')) {
      const layer = await files.findRecord<GeneratedLayer>('generated', name);
      if (layer) found.set(layer.key, { digest: `sha256:${name}`, layer });
    }
    generated ??= found;
    return generated;
  }

  /** The digest of an artifact's layer. The artifact is read only if it was not before. */
  async function addArtifact(
    layer: ArtifactLayer,
    { root, parents }: Place,
    writable: ArtifactSource['writable'],
  ): Promise<AddedLayer> {
    const key = keyOf([LAYER_FORMAT, layer.hash, root, parents, writable]);
    const description = `artifact ${layer.hash} at ${layer.prefix}`;
    return once(`artifact ${key}`, async () => {
      const version = await versionOf(layer.file);
      if (version === undefined) throw new EngineRefused(MISSING_ARTIFACT);
      const known = (await readGenerated()).get(key);
      const source = { file: layer.file, root, parents, writable };
      if (known && known.layer.fileVersion === version && known.layer.file === layer.file) {
        const path = files.recordPath('generated', known.digest);
        if (files.touch([path]))
          return { digest: known.digest, sizeBytes: known.layer.sizeBytes, path, description };
      }
      try {
        const measured = await measure(openArtifactLayer(source));
        const record = { ...source, key, sizeBytes: measured.sizeBytes, fileVersion: version };
        await files.keepRecord('generated', measured.digest, record);
        (await readGenerated()).set(key, { digest: measured.digest, layer: record });
        return { ...measured, path: files.recordPath('generated', measured.digest), description };
      } catch (error) {
        throw explainUnreadable(error);
      }
    });
  }

  async function addStored(content: Readable, description: string): Promise<AddedLayer> {
    try {
      const kept = await files.keepBlob(content as AsyncIterable<Buffer>);
      return { ...kept, path: files.blobPath(kept.digest), description };
    } catch (error) {
      throw explainUnreadable(error);
    }
  }

  /** From the bottom to the top. */
  async function addLayers(base: SavedImage, layers: readonly ImageLayer[]): Promise<AddedLayer[]> {
    if (layers.length === 0) return [];
    const placeOf = await readPlaces(base);
    const places = layers.map(({ prefix }) => placeOf(prefix));
    const occupied = new Map(places.filter(({ exists }) => exists).map(place => [place.root, place]));
    const artifacts = layers.flatMap((layer, at) =>
      layer.kind === 'artifact' ? [{ layer, place: places[at] as Place }] : [],
    );
    const added: AddedLayer[] = [];
    if (occupied.size > 0)
      added.push(await addStored(openClearingLayer([...occupied.values()]), 'prefixes of dependencies'));
    // A compile may change what related dependencies have in its prefix.
    const writableAt = layers.findIndex(({ kind }) => kind === 'writable');
    const own = layers[writableAt] as WritableLayer | undefined;
    const writable = own && { root: (places[writableAt] as Place).root, owner: own.owner };
    const mayOverlap = ({ root }: Place) =>
      writable !== undefined && (root === '' || `${writable.root}/`.startsWith(`${root}/`));
    for (const { layer, place } of artifacts.toReversed())
      added.push(await addArtifact(layer, place, mayOverlap(place) ? writable : undefined));
    const sources = artifacts.map(({ layer, place }) => ({ ...place, file: layer.file }));
    for (const [at, layer] of layers.entries()) {
      if (layer.kind !== 'writable') continue;
      const content = openWritableLayer(places[at] as Place, layer.owner, sources);
      added.push(await addStored(content, `prefix ${layer.prefix} of a compile`));
    }
    return added;
  }

  async function build(imageId: string, layers: readonly ImageLayer[]): Promise<Composition> {
    const base = await readBase(imageId);
    // One more hides what the image has at the prefixes.
    const count = base.layers.length + layers.length + 1;
    if (count > MAX_LAYERS)
      throw new EngineRefused(
        `Docker does not accept an image with ${count} layers: use fewer dependencies, or an image with fewer layers.`,
      );
    const added = await addLayers(base, layers);
    const config = await files.keepBlob([jsonOf(extend(base.config, added))]);
    const manifest = await files.keepBlob([
      jsonOf({
        schemaVersion: 2,
        mediaType: MANIFEST_TYPE,
        config: { mediaType: CONFIG_TYPE, size: config.sizeBytes, digest: config.digest },
        layers: [...base.layers, ...added].map(({ digest, sizeBytes }) => ({
          mediaType: LAYER_TYPE,
          size: sizeBytes,
          digest,
        })),
      }),
    ]);
    const artifacts = await Promise.all(
      layers
        .filter(layer => layer.kind === 'artifact')
        .map(async ({ file }) => ({ file, version: (await versionOf(file)) ?? '' })),
    );
    return {
      digest: manifest.digest,
      paths: [
        ...basePaths(imageId, base),
        ...added.map(({ path }) => path),
        files.blobPath(config.digest),
        files.blobPath(manifest.digest),
      ],
      artifacts,
      touchedAt: Date.now(),
    };
  }

  async function isComplete(composition: Composition): Promise<boolean> {
    for (const { file, version } of composition.artifacts)
      if ((await versionOf(file)) !== version) return false;
    if (Date.now() - composition.touchedAt < TOUCH_EVERY_MS) return true;
    composition.touchedAt = Date.now();
    return files.touch(composition.paths);
  }

  async function compose(image: string, given: readonly ImageLayer[]): Promise<string> {
    const imageId = await options.identify(image);
    const layers = eachOnce(given);
    const key = keyOf([imageId, layers]);
    const composition = await once(`image ${key}`, async () => {
      const remembered = compositions.get(key);
      const found = remembered && (await isComplete(remembered)) ? remembered : await build(imageId, layers);
      compositions.delete(key);
      compositions.set(key, found);
      for (const oldest of compositions.keys()) {
        if (compositions.size <= REMEMBERED) break;
        compositions.delete(oldest);
      }
      return found;
    });
    const registry = typeof options.registry === 'string' ? options.registry : options.registry();
    return `${registry}/${REPOSITORY}@${composition.digest}`;
  }

  return {
    compose,
    findManifest: files.findManifest,
    findBlob: files.findBlob,
    async sweep(unusedMs) {
      // Those that are in use get marked again with the next job, at the latest.
      await files.sweep(unusedMs);
      for (const composition of compositions.values()) composition.touchedAt = 0;
      generated = undefined;
    },
  };
}

/** Concurrent calls with the same key share one run of `work`. */
function shareWork() {
  const running = new Map<string, Promise<unknown>>();
  return <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const found = running.get(key) as Promise<T> | undefined;
    if (found) return found;
    const started = work().finally(() => running.delete(key));
    running.set(key, started);
    return started;
  };
}

/** Two dependencies may have the same artifact. */
function eachOnce(layers: readonly ImageLayer[]): ImageLayer[] {
  const keyed = layers.map((layer): [string, ImageLayer] => [
    layer.kind === 'artifact' ? `${layer.hash} ${layer.prefix}` : `writable ${layer.prefix}`,
    layer,
  ]);
  return keyed
    .filter(([key], at) => keyed.findIndex(([other]) => other === key) === at)
    .map(([, layer]) => layer);
}

/** The configuration of the image with more layers. */
function extend(config: ImageConfig, added: readonly AddedLayer[]): ImageConfig {
  const { rootfs, history, created } = config;
  const more = added.map(({ description }) => ({
    ...(created && { created }),
    created_by: `assay: ${description}`,
  }));
  return {
    ...config,
    rootfs: { ...rootfs, diff_ids: [...rootfs.diff_ids, ...added.map(({ digest }) => digest)] },
    ...(history && { history: [...history, ...more] }),
  };
}

async function measure(content: Readable): Promise<KeptBlob> {
  const sha256 = createHash('sha256');
  let sizeBytes = 0;
  for await (const chunk of content as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    sha256.update(chunk);
  }
  return { digest: `sha256:${sha256.digest('hex')}`, sizeBytes };
}

const jsonOf = (value: unknown) => Buffer.from(JSON.stringify(value));
const keyOf = (value: unknown) => hash('sha256', JSON.stringify(value));

// An image store over saved images and artifacts that a test chooses, without Docker.
import { mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { extract, type Header } from 'tar-stream';
import { captureTar } from '../../../src/engine/archive/artifact-tar.ts';
import { createImageStore, type ImageLayer, type ImageStore } from '../../../src/engine/swarm/image-store.ts';
import { type ArtifactTree, tarOfVolume } from '../../support/dependency-artifact.ts';
import { type Saved, savedByOldDocker, streamOf, type TarEntry, tarOf } from '../../support/saved-image.ts';

export type Entry = Pick<Header, 'name'> & {
  type: string;
  mode: number;
  uid: number;
  gid: number;
  linkname: string | null;
  content: string;
};

export type StoreFixture = {
  directory: string;
  store: ImageStore;
  /** Another store over the same files, as after a restart. */
  reopen(): ImageStore;
  /** Adds an image; it becomes the one with the name `base`. */
  addImage(...layers: TarEntry[][]): Promise<Saved>;
  setImage(saved: Saved): void;
  artifact(prefix: string, tree: ArtifactTree): Promise<Extract<ImageLayer, { kind: 'artifact' }>>;
  /** How often an image was exported. */
  exports: number;
  /** Changes what an export sends. */
  onExport: ((tar: Buffer) => Readable) | undefined;
  close(): void;
};

/** `images` is the directory of the store, if it is not one of its own. */
export function createStoreFixture(images?: string): StoreFixture {
  const directory = mkdtempSync(join(tmpdir(), 'assay-images-'));
  const saved = new Map<string, Saved>();
  let base: Saved | undefined;
  let artifacts = 0;
  const open = () =>
    createImageStore({
      directory: images ?? join(directory, 'images'),
      registry: 'assay.example.org:443',
      identify: async () => base?.id ?? '',
      exportImage: async reference => {
        fixture.exports += 1;
        const { tar } = saved.get(reference) as Saved;
        return fixture.onExport?.(tar) ?? streamOf(tar);
      },
    });
  const fixture: StoreFixture = {
    directory,
    store: open(),
    reopen: open,
    exports: 0,
    onExport: undefined,
    setImage(image) {
      saved.set(image.id, image);
      base = image;
    },
    async addImage(...layers) {
      const image = await savedByOldDocker(await Promise.all(layers.map(tarOf)));
      fixture.setImage(image);
      return image;
    },
    async artifact(prefix, tree) {
      artifacts += 1;
      const file = join(directory, `artifact-${artifacts}`);
      const { hash } = await captureTar(tarOfVolume(tree), {
        file,
        prefix,
        owner: { uid: 1000, gid: 1000 },
        mayContinue: () => true,
      });
      const kept = join(directory, `${hash}.tar.zst`);
      renameSync(file, kept);
      return { kind: 'artifact', hash, prefix, file: kept };
    },
    close: () => rmSync(directory, { recursive: true, force: true }),
  };
  return fixture;
}

export async function readAll(stream: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

type Manifest = {
  config: { digest: string; size: number };
  layers: { digest: string; size: number; mediaType: string }[];
};

export const digestIn = (reference: string) => reference.slice(reference.indexOf('@') + 1);

export async function manifestOf(store: ImageStore, reference: string): Promise<Manifest> {
  const found = await store.findManifest(digestIn(reference));
  if (!found) throw new Error(`no manifest ${reference}`);
  return JSON.parse(found.content.toString());
}

export async function blobOf(store: ImageStore, digest: string): Promise<Buffer> {
  const found = await store.findBlob(digest);
  if (!found) throw new Error(`no blob ${digest}`);
  return readAll(found.open());
}

export async function entriesOf(tar: Buffer): Promise<Entry[]> {
  const entries: Entry[] = [];
  const reader = extract();
  reader.end(tar);
  for await (const entry of reader) {
    const { name, type, mode, uid, gid, linkname } = entry.header;
    const content = (await readAll(entry)).toString();
    entries.push({ name, type, mode, uid, gid, linkname, content } as Entry);
  }
  return entries;
}

// Owns images: `host`, made on the spot; others, prepared once for our user; and imports from a file.
// What they hold besides is skeleton.ts's.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { extract } from 'tar-stream';
import { labelsOf, type Mount, type RunAs } from '../../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../../domain/names.ts';
import { formatOf, openPlain } from '../archive/archive-reader.ts';
import { type DockerDoor, EngineRefused, ImageMissing, isRefused, readProgress } from './docker.ts';
import { hostMounts, hostTar, userNameIn, workspaceTar } from './skeleton.ts';

export { HOST_IMAGE };

/** What a plan needs of an image. */
export interface PreparedImage {
  reference: string;
  mounts: Mount[];
  /** Of the user that commands run as. */
  userName: string;
  /** Without git the checkout is made beside it: src/domain/container/checkout-script.ts. */
  hasGit: boolean;
}

export interface StoredImage {
  imageId: string;
  names: string[];
  sizeBytes: number;
  createdAt: Date;
}

const LONG_CALL_MS = 15 * 60_000;
/** A list of users or groups; it is held in memory. */
const READ_BYTES_AT_MOST = 8 * 1024 ** 2;
/** Which image a prepared one was made from. */
const BASE_LABEL = 'assay.base';
/** Which instance made an image. Containers inherit it: it is not the label by which they are found. */
const MAKER_LABEL = 'assay.made-by';
const USER_LABEL = 'assay.user';
/** Changes with what is put into images, so that those prepared before are prepared again. */
const SKELETON = 'skeleton 2';
const GIT_PLACES = ['/usr/bin/git', '/usr/local/bin/git', '/bin/git'];

export type Images = ReturnType<typeof createImages>;

export function createImages({ docker, call }: DockerDoor, instance: string) {
  const underWay = new Map<string, Promise<PreparedImage>>();
  const hostTars = new Map<string, Buffer>();

  async function findImage(name: string) {
    try {
      return await call('inspect an image', () => docker.getImage(name).inspect());
    } catch (error) {
      if (isRefused(error, 404, 400)) return undefined;
      throw error;
    }
  }

  /** Two builds that need the same image at once make it once. */
  async function prepareImage(name: string, runAs: RunAs): Promise<PreparedImage> {
    const key = `${name} ${runAs.uid}:${runAs.gid}`;
    const begun = underWay.get(key);
    if (begun) return await begun;
    const work = name === HOST_IMAGE ? prepareHost(runAs) : prepareOther(name, runAs);
    underWay.set(key, work);
    try {
      return await work;
    } finally {
      underWay.delete(key);
    }
  }

  async function prepareHost(runAs: RunAs): Promise<PreparedImage> {
    const key = `${runAs.uid}:${runAs.gid}`;
    const tar = hostTars.get(key) ?? (await hostTar(runAs));
    hostTars.set(key, tar);
    const tag = digest(tar);
    const reference = `assay/host:${tag}`;
    if (!(await findImage(reference))) {
      await call('import the image host', async abortSignal =>
        readProgress(
          await docker.importImage(tar as never, {
            repo: 'assay/host',
            tag,
            changes: `LABEL ${MAKER_LABEL}=${instance}`,
            abortSignal,
          }),
        ),
      );
    }
    return { reference, mounts: hostMounts(), userName: userNameIn('', runAs), hasGit: true };
  }

  async function prepareOther(name: string, runAs: RunAs): Promise<PreparedImage> {
    const base = await findImage(name);
    if (!base)
      throw new ImageMissing(`Docker has no image ${name}: bring it in with assay image import FILE.`);
    const tag = digest(`${SKELETON} ${base.Id} ${runAs.uid}:${runAs.gid}`);
    const reference = `assay/prepared:${tag}`;
    const found = await findImage(reference);
    if (found) {
      const labels = found.Config.Labels ?? {};
      const userName = labels[USER_LABEL] as string;
      return { reference, mounts: [], userName, hasGit: labels['assay.git'] === 'yes' };
    }
    const container = await call('create a container', abortSignal =>
      docker.createContainer({
        Image: base.Id,
        Entrypoint: ['/bin/sh'],
        Labels: labelsOf({ instance, kind: 'image', id: tag }),
        NetworkDisabled: true,
        abortSignal,
      }),
    );
    const read = (path: string) => readFromContainer(container, path);
    try {
      const passwd = await read('/etc/passwd');
      const userName = userNameIn(passwd, runAs);
      const tar = await workspaceTar(runAs, passwd, await read('/etc/group'));
      await call('prepare an image', abortSignal => container.putArchive(tar, { path: '/', abortSignal }));
      const hasGit = await hasOneOf(container, GIT_PLACES);
      // What the image said of itself stays; of the container it was made in, nothing does.
      const config = {
        ...base.Config,
        Labels: {
          ...base.Config.Labels,
          'assay.git': hasGit ? 'yes' : 'no',
          [USER_LABEL]: userName,
          [BASE_LABEL]: base.Id,
          [MAKER_LABEL]: instance,
        },
      };
      await call(
        'prepare an image',
        abortSignal =>
          container.commit({
            _query: { container: container.id, repo: 'assay/prepared', tag },
            _body: config,
            abortSignal,
          } as object),
        { deadlineMs: LONG_CALL_MS },
      );
      return { reference, mounts: [], userName, hasGit };
    } finally {
      await call('remove a container', abortSignal =>
        container.remove({ force: true, v: true, abortSignal }),
      );
    }
  }

  async function readFromContainer(container: ReturnType<typeof docker.getContainer>, path: string) {
    try {
      // The deadline holds to the end of the file: an engine may go away in the middle of it.
      return await call('read from an image', async abortSignal =>
        (await firstFile(await container.getArchive({ path, abortSignal }), path)).toString(),
      );
    } catch (error) {
      if (isRefused(error, 404)) return '';
      throw error;
    }
  }

  async function hasOneOf(
    container: ReturnType<typeof docker.getContainer>,
    paths: string[],
  ): Promise<boolean> {
    for (const path of paths) {
      try {
        const answer = await call('look into an image', abortSignal =>
          container.infoArchive({ path, abortSignal }),
        );
        // Nothing is in it, but it must be read to its end before the connection is free.
        answer.resume();
        return true;
      } catch (error) {
        if (!isRefused(error, 404)) throw error;
      }
    }
    return false;
  }

  /** Takes a `docker save` archive or a root file system, told by what is in it, and gives it the name. */
  async function importImage(file: string, name: string): Promise<void> {
    const former = await findImage(name);
    await bringIn(file, splitName(name));
    if (former) await removeUnnamed(former.Id);
  }

  async function bringIn(file: string, reference: { repo: string; tag: string }): Promise<void> {
    const kind = await archiveKind(file);
    if (kind === 'unknown') {
      // Packed in a way only Docker reads: it is asked for the one, then for the other.
      try {
        await loadSaved(file, reference);
      } catch (error) {
        if (!(error instanceof EngineRefused)) throw error;
        await importRoot(file, reference);
      }
    } else if (kind === 'saved') await loadSaved(file, reference);
    else await importRoot(file, reference);
  }

  async function loadSaved(file: string, reference: { repo: string; tag: string }): Promise<void> {
    const lines = await call(
      'load an image',
      async abortSignal =>
        readProgress(await docker.loadImage((await sourceOf(file)) as never, { abortSignal } as object)),
      { deadlineMs: LONG_CALL_MS },
    );
    const loaded = lines.map(line => /^Loaded image(?: ID)?: (\S+)$/.exec(line)?.[1]).find(Boolean);
    if (!loaded) throw new EngineRefused(`Docker found no image in ${file}.`, 400);
    await call('name an image', abortSignal => docker.getImage(loaded).tag({ ...reference, abortSignal }));
  }

  async function importRoot(file: string, { repo, tag }: { repo: string; tag: string }): Promise<void> {
    await call(
      'import an image',
      async abortSignal =>
        readProgress(await docker.importImage((await sourceOf(file)) as never, { repo, tag, abortSignal })),
      { deadlineMs: LONG_CALL_MS },
    );
  }

  /** An image that lost its last name is of no use, and holds its room together with what was prepared from it. */
  async function removeUnnamed(imageId: string): Promise<void> {
    const image = await findImage(imageId);
    if (!image || image.RepoTags.length + image.RepoDigests.length > 0) return;
    const filters = { label: [`${BASE_LABEL}=${imageId}`] };
    const prepared = await call('list images', abortSignal => docker.listImages({ filters, abortSignal }));
    for (const { Id } of [...prepared, image]) await removeImage(Id);
  }

  /** False when it stays: a container uses it, or it is gone already, with the last one that was made from it. */
  async function removeImage(name: string): Promise<boolean> {
    try {
      await call('remove an image', abortSignal => docker.getImage(name).remove({ abortSignal }));
      return true;
    } catch (error) {
      if (isRefused(error, 404, 409)) return false;
      throw error;
    }
  }

  /** The names of the images that this instance made: not those that were imported. */
  async function listMadeImages(): Promise<string[]> {
    const filters = { label: [`${MAKER_LABEL}=${instance}`] };
    const found = await call('list images', abortSignal => docker.listImages({ filters, abortSignal }));
    return found.flatMap(({ RepoTags }) => RepoTags ?? []).filter(name => name.startsWith('assay/'));
  }

  /** Only for an image that an administrator named. */
  async function pullImage(name: string): Promise<void> {
    const { repo, tag } = splitName(name);
    await call(
      'pull an image',
      async abortSignal => readProgress(await docker.createImage({ fromImage: repo, tag, abortSignal })),
      { deadlineMs: LONG_CALL_MS },
    );
  }

  async function listImages(): Promise<StoredImage[]> {
    const found = await call('list images', abortSignal => docker.listImages({ abortSignal }));
    return found.map(image => ({
      imageId: image.Id,
      names: (image.RepoTags ?? []).filter(name => name !== '<none>:<none>'),
      sizeBytes: image.Size,
      createdAt: new Date(image.Created * 1000),
    }));
  }

  return { prepareImage, importImage, pullImage, listImages, listMadeImages, removeImage };
}

function digest(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 20);
}

/** A colon after the last slash begins the tag; one before it, a registry's port. */
function splitName(name: string): { repo: string; tag: string } {
  const colon = name.indexOf(':', name.lastIndexOf('/') + 1);
  return colon === -1
    ? { repo: name, tag: 'latest' }
    : { repo: name.slice(0, colon), tag: name.slice(colon + 1) };
}

/** Docker 20.10 decompresses gzip, bzip2 and xz by itself, but not zstd. */
async function sourceOf(file: string): Promise<NodeJS.ReadableStream> {
  return (await formatOf(file)) === 'zstd' ? openPlain(file, 'zstd') : createReadStream(file);
}

async function archiveKind(file: string): Promise<'saved' | 'root' | 'unknown'> {
  const format = await formatOf(file);
  if (format === 'bzip2' || format === 'xz') return 'unknown';
  const plain = openPlain(file, format);
  const entries = extract();
  plain.on('error', error => entries.destroy(error));
  // The loop below hears of it as well; without a listener of its own an archive that is cut off would end the program.
  entries.on('error', () => {});
  plain.pipe(entries);
  try {
    for await (const entry of entries) {
      const name = entry.header.name.replace(/^\.\//, '');
      if (name === 'manifest.json' || name === 'oci-layout') return 'saved';
      entry.resume();
    }
    return 'root';
  } catch (cause) {
    throw new EngineRefused(`${file} is not a whole archive: ${(cause as Error).message}.`, 400);
  } finally {
    plain.destroy();
  }
}

async function firstFile(stream: NodeJS.ReadableStream, path: string): Promise<Buffer> {
  const entries = extract();
  const source = stream as Readable;
  source.on('error', error => entries.destroy(error));
  // The loop below hears of it as well; without a listener of its own it would end the program.
  entries.on('error', () => {});
  source.pipe(entries);
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  try {
    for await (const entry of entries) {
      if (entry.header.type !== 'file') {
        entry.resume();
        continue;
      }
      for await (const chunk of entry as AsyncIterable<Buffer>) {
        sizeBytes += chunk.length;
        if (sizeBytes > READ_BYTES_AT_MOST)
          throw new EngineRefused(`${path} in the image is too large to be taken over.`, 400);
        chunks.push(chunk);
      }
    }
  } finally {
    source.destroy();
  }
  return Buffer.concat(chunks);
}

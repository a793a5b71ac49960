// Images: creates the image `host`, prepares others for the user that commands run as, and imports images from files.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../../domain/names.ts';
import { formatOf, openPlain } from '../archive/archive-reader.ts';
import { readEntries } from '../archive/tar-files.ts';
import { EngineRefused, ImageMissing, type Images, type PreparedImage } from '../engine.ts';
import { type DockerClient, type DockerContainer, readProgress, unlessRefused } from './client.ts';
import { type EngineContext, withInternalContainer } from './create-container.ts';
import { fingerprintHost } from './host-packages.ts';
import { hostMounts, hostTar, userNameIn, workspaceTar } from './skeleton.ts';

const LONG_CALL_MS = 15 * 60_000;
/** For /etc/passwd and /etc/group, which are read into memory. */
const LONGEST_FILE_BYTES = 8 * 1024 ** 2;
/** The image that a prepared one is based on. */
const BASE_LABEL = 'assay.base';
/** The instance that created an image. Not `assay.instance`, because containers inherit labels and are found by that one. */
const MAKER_LABEL = 'assay.made-by';
const USER_LABEL = 'assay.user';
const GIT_LABEL = 'assay.git';
const HOST_REPOSITORY = 'assay/host';
const GIT_PATHS = ['/usr/bin/git', '/usr/local/bin/git', '/bin/git'];

export function createImages(
  context: EngineContext,
  { runAs, hostRoot }: { runAs: RunAs; hostRoot?: string | undefined },
): Images {
  const { call, instance } = context;
  const pending = new Map<string, Promise<PreparedImage>>();
  let tarOfHost: Buffer | undefined;
  let skeleton: string | undefined;

  const findImage = (name: string) =>
    unlessRefused([404, 400], () => call('inspect an image', docker => docker.getImage(name).inspect()));

  /** Concurrent builds that need the same image prepare it once. */
  function prepareImage(name: string): Promise<PreparedImage> {
    const work =
      pending.get(name) ??
      (name === HOST_IMAGE ? prepareHost() : prepareOther(name)).finally(() => pending.delete(name));
    pending.set(name, work);
    return work;
  }

  async function prepareHost(): Promise<PreparedImage> {
    tarOfHost ??= await hostTar(runAs);
    const tar = tarOfHost;
    const tag = digest(tar);
    const reference = `${HOST_REPOSITORY}:${tag}`;
    const changes = `LABEL ${MAKER_LABEL}=${instance}`;
    if (!(await findImage(reference)))
      await call('import the image host', async docker =>
        readProgress(await docker.importImage(tar as never, { repo: HOST_REPOSITORY, tag, changes })),
      );
    // The id that Docker gave the image depends on the time of the import.
    const imageId = reference;
    return { reference, imageId, mounts: hostMounts(), userName: userNameIn('', runAs), hasGit: true };
  }

  async function prepareOther(name: string): Promise<PreparedImage> {
    const base = await findImage(name);
    if (!base) throw new ImageMissing(`Docker has no image ${name}: import it with assay image import FILE.`);
    // When what is added to images changes, they are prepared again.
    skeleton ??= digest(await workspaceTar(runAs, '', ''));
    const tag = digest(`${skeleton} ${base.Id}`);
    const reference = `assay/prepared:${tag}`;
    const found = await findImage(reference);
    const imageId = base.Id;
    if (found) {
      const labels = found.Config.Labels ?? {};
      const userName = labels[USER_LABEL] as string;
      return { reference, imageId, mounts: [], userName, hasGit: labels[GIT_LABEL] === 'yes' };
    }
    const spec = { kind: 'image', image: base.Id, command: ['/bin/sh'] };
    return withInternalContainer(context, spec, {}, async container => {
      const passwd = await readFile(container, '/etc/passwd');
      const userName = userNameIn(passwd, runAs);
      const tar = await workspaceTar(runAs, passwd, await readFile(container, '/etc/group'));
      await call('prepare an image', () => container.putArchive(tar, { path: '/' }));
      const hasGit = await hasAny(container, GIT_PATHS);
      // Keeps the configuration of the image, not that of this container.
      const config = {
        ...base.Config,
        Labels: {
          ...base.Config.Labels,
          [GIT_LABEL]: hasGit ? 'yes' : 'no',
          [USER_LABEL]: userName,
          [BASE_LABEL]: base.Id,
          [MAKER_LABEL]: instance,
        },
      };
      const query = { container: container.id, repo: 'assay/prepared', tag };
      await call('prepare an image', () => container.commit({ _query: query, _body: config } as object), {
        deadlineMs: LONG_CALL_MS,
      });
      return { reference, imageId, mounts: [], userName, hasGit };
    });
  }

  const identifyImage: Images['identifyImage'] = async ({ reference, imageId }) =>
    reference.startsWith(`${HOST_REPOSITORY}:`) ? `${imageId} ${await fingerprintHost(hostRoot)}` : imageId;

  /** Empty if there is no such file. The deadline includes reading, because the engine may stop meanwhile. */
  async function readFile(container: DockerContainer, path: string): Promise<string> {
    const content = await unlessRefused([404], () =>
      call('read from an image', async () => firstFile(await container.getArchive({ path }), path)),
    );
    return content?.toString() ?? '';
  }

  async function hasAny(container: DockerContainer, paths: string[]): Promise<boolean> {
    for (const path of paths) {
      const response = await unlessRefused([404], () =>
        call('inspect a path in an image', () => container.infoArchive({ path })),
      );
      // The body is empty, but the connection is released only when it is read.
      response?.resume();
      if (response) return true;
    }
    return false;
  }

  async function importImage(file: string, name: string): Promise<void> {
    const previous = await findImage(name);
    await load(file, splitName(name));
    if (previous) await removeUnnamed(previous.Id);
  }

  async function load(file: string, reference: Reference): Promise<void> {
    const kind = await archiveKind(file);
    if (kind === 'unknown') {
      // Only Docker can read the compression, so try both.
      try {
        await loadSaved(file, reference);
      } catch (error) {
        if (!(error instanceof EngineRefused)) throw error;
        await importRoot(file, reference);
      }
    } else if (kind === 'saved') await loadSaved(file, reference);
    else await importRoot(file, reference);
  }

  async function loadSaved(file: string, reference: Reference): Promise<void> {
    const lines = await call(
      'load an image',
      async docker => readProgress(await docker.loadImage((await sourceOf(file)) as never)),
      { deadlineMs: LONG_CALL_MS },
    );
    const loaded = lines.map(line => /^Loaded image(?: ID)?: (\S+)$/.exec(line)?.[1]).find(Boolean);
    if (!loaded) throw new EngineRefused(`Docker found no image in ${file}.`);
    await call('name an image', docker => docker.getImage(loaded).tag(reference));
  }

  async function importRoot(file: string, { repo, tag }: Reference): Promise<void> {
    await call(
      'import an image',
      async docker => readProgress(await docker.importImage((await sourceOf(file)) as never, { repo, tag })),
      { deadlineMs: LONG_CALL_MS },
    );
  }

  /** Removes an image that lost its last name, and the images prepared from it. */
  async function removeUnnamed(imageId: string): Promise<void> {
    const image = await findImage(imageId);
    if (!image || image.RepoTags.length + image.RepoDigests.length > 0) return;
    const filters = { label: [`${BASE_LABEL}=${imageId}`] };
    const prepared = await call('list images', docker => docker.listImages({ filters }));
    for (const { Id } of [...prepared, image]) await removeImage(Id);
  }

  async function removeImage(name: string): Promise<boolean> {
    // 409: a container uses it.
    const removed = await unlessRefused([404, 409], () =>
      call('remove an image', docker => docker.getImage(name).remove()),
    );
    return removed !== undefined;
  }

  async function listCreatedImages(): Promise<string[]> {
    const filters = { label: [`${MAKER_LABEL}=${instance}`] };
    const found = await call('list images', docker => docker.listImages({ filters }));
    return found.flatMap(({ RepoTags }) => RepoTags ?? []).filter(name => name.startsWith('assay/'));
  }

  async function pullImage(name: string): Promise<void> {
    const { repo, tag } = splitName(name);
    await call(
      'pull an image',
      async docker => readProgress(await docker.createImage({ fromImage: repo, tag })),
      { deadlineMs: LONG_CALL_MS },
    );
  }

  async function listImages() {
    const found = await call('list images', docker => docker.listImages());
    return found.map(image => ({
      imageId: image.Id,
      names: (image.RepoTags ?? []).filter(name => name !== '<none>:<none>'),
      sizeBytes: image.Size,
    }));
  }

  return {
    prepareImage,
    identifyImage,
    importImage,
    pullImage,
    listImages,
    listCreatedImages,
    // Nothing is stored besides the images of Docker.
    sweepImages: async () => {},
    removeImage,
  };
}

/** The id of an image. Throws ImageMissing. */
export async function findImageId({ call }: DockerClient, reference: string): Promise<string> {
  const found = await unlessRefused([404, 400], () =>
    call('inspect an image', docker => docker.getImage(reference).inspect()),
  );
  if (!found) throw new ImageMissing(`Docker has no image ${reference}.`);
  return found.Id;
}

/** The image as `docker save` writes it. The reader has to notice an early end. Docker prepares all of it first. */
export const exportImage = ({ call, download }: DockerClient, reference: string): Promise<Readable> =>
  call('export an image', () => download(`/images/${encodeURI(reference)}/get`), {
    deadlineMs: LONG_CALL_MS,
  });

function digest(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 20);
}

type Reference = { repo: string; tag: string };

/** A colon after the last slash starts the tag; one before it, the port of a registry. */
function splitName(name: string): Reference {
  const colon = name.indexOf(':', name.lastIndexOf('/') + 1);
  return colon === -1
    ? { repo: name, tag: 'latest' }
    : { repo: name.slice(0, colon), tag: name.slice(colon + 1) };
}

/** Docker 20.10 decompresses gzip, bzip2 and xz, but not zstd. */
async function sourceOf(file: string): Promise<NodeJS.ReadableStream> {
  return (await formatOf(file)) === 'zstd' ? openPlain(file, 'zstd') : createReadStream(file);
}

async function archiveKind(file: string): Promise<'saved' | 'root' | 'unknown'> {
  const format = await formatOf(file);
  if (format === 'bzip2' || format === 'xz') return 'unknown';
  try {
    for await (const entry of readEntries(openPlain(file, format))) {
      const name = entry.header.name.replace(/^\.\//, '');
      if (name === 'manifest.json' || name === 'oci-layout') return 'saved';
      entry.resume();
    }
    return 'root';
  } catch (error) {
    throw new EngineRefused(`${file} is not a complete archive: ${(error as Error).message}.`);
  }
}

async function firstFile(stream: NodeJS.ReadableStream, path: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const entry of readEntries(stream as Readable)) {
    if (entry.header.type !== 'file') {
      entry.resume();
      continue;
    }
    for await (const chunk of entry as AsyncIterable<Buffer>) {
      sizeBytes += chunk.length;
      if (sizeBytes > LONGEST_FILE_BYTES) throw new EngineRefused(`${path} in the image is too large.`);
      chunks.push(chunk);
    }
  }
  return Buffer.concat(chunks);
}

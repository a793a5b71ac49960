// `assay image …`: lists images, chooses the default, and imports one from a file.

import { statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import {
  type Command,
  type Invocation,
  JSON_LINE,
  print,
  printLines,
  UsageError,
} from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import { HOST_IMAGE, taggedImage } from '../domain/names.ts';
import { detectFormat, detectionBytes } from '../domain/text/archive-format.ts';
import { createDockerEngine } from '../engine/docker/docker-engine.ts';
import type { Images, StoredImage } from '../engine/engine.ts';
import { DataError } from '../store/data/data.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { findDefaultImage, listImages, recordImage, setDefaultImage } from '../store/images.ts';
import { DATA_LINE, settingFlags, withData } from './command.ts';

/** An image name as Docker defines it, without the port of a registry and without a digest. */
const NAME = /^[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:\/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[\w][\w.-]{0,127})?$/;

function withImages<T>(
  invocation: Invocation,
  use: (context: { db: Db; images: Images; configured: string }) => Promise<T>,
): Promise<T> {
  return withData(invocation, (db, settings) => {
    const { environment } = invocation;
    const images = createDockerEngine({ ...settings, instance: instanceOf(db), environment });
    return use({ db, images, configured: settings.image });
  });
}

async function findInDocker(images: Images, name: string): Promise<StoredImage | undefined> {
  return (await images.listImages()).find(({ names }) => names.includes(taggedImage(name)));
}

const list: Command = {
  name: 'image list',
  summary: 'Lists the images that containers can run in; * marks the default.',
  positionals: [],
  flags: { ...settingFlags, json: 'flag' },
  help: [JSON_LINE, DATA_LINE],
  run: invocation =>
    withImages(invocation, async ({ db, images, configured }) => {
      const chosen = findDefaultImage(db) ?? configured;
      const stored = await images.listImages();
      const names = new Set([HOST_IMAGE, chosen, ...listImages(db).map(({ name }) => name)]);
      const records = [...names].map(name => {
        const found = stored.find(one => one.names.includes(taggedImage(name)));
        return {
          name,
          default: name === chosen,
          image_id: found?.imageId ?? null,
          size_bytes: found?.sizeBytes ?? null,
          present: name === HOST_IMAGE || found !== undefined,
        };
      });
      const width = Math.max(...records.map(({ name }) => name.length));
      const lines = records.map(
        one => `${one.default ? '*' : ' '} ${one.name.padEnd(width)}  ${describe(one)}`,
      );
      return print(invocation, records, lines);
    }),
};

function describe(one: { name: string; present: boolean; size_bytes: number | null }): string {
  if (one.name === HOST_IMAGE) return "this server's own /usr, read-only; created when it is needed";
  return one.present ? sizeText(one.size_bytes ?? 0) : 'missing in Docker: import it again';
}

const use: Command = {
  name: 'image use',
  summary: 'Makes an image the default, for builds that begin from now on.',
  positionals: ['NAME'],
  flags: { ...settingFlags, pull: 'flag' },
  help: [
    'NAME is `host`, an imported image, or any other image that Docker has. It overrides the setting IMAGE.',
    '',
    '  --pull                pulls it from a registry if Docker does not have it; no other command does that',
    DATA_LINE,
  ],
  run: invocation =>
    withImages(invocation, async ({ db, images }) => {
      const name = invocation.positionals[0] ?? '';
      if (name !== HOST_IMAGE && !(await findInDocker(images, name))) {
        if (!invocation.flags.has('--pull'))
          throw new UsageError(
            `Docker has no image ${name}: import it with "assay image import FILE --name ${name}"`,
          );
        await images.pullImage(name);
        const pulled = await findInDocker(images, name);
        if (pulled) recordImage(db, name, pulled.imageId);
      }
      setDefaultImage(db, name);
      return printLines(`${name} is the default image`);
    }),
};

const importImage: Command = {
  name: 'image import',
  summary: 'Imports an image from a file: from `docker save`, or the tar of a root file system.',
  positionals: ['FILE'],
  flags: { ...settingFlags, name: 'value' },
  help: ['  --name NAME           the name for suites and dependencies [the name of FILE]', DATA_LINE],
  async run(invocation) {
    const file = invocation.positionals[0] ?? '';
    const name = invocation.flags.get('--name') ?? nameOf(file);
    if (!statSync(file, { throwIfNoEntry: false })?.isFile())
      throw new UsageError(`there is no file ${file}`);
    if (!NAME.test(name) || name === HOST_IMAGE || name.startsWith('assay/'))
      throw new UsageError(
        `${JSON.stringify(name)} cannot be the name of an image: choose one with --name, such as debian or team/tools:2`,
      );
    await checkFormat(file);
    return withImages(invocation, async ({ db, images }) => {
      await images.importImage(file, name);
      const found = await findInDocker(images, name);
      if (!found) throw new DataError(`Docker did not keep the image ${name}: is its disk full?`);
      recordImage(db, name, found.imageId);
      return printLines(
        `${name}: ${sizeText(found.sizeBytes)}; "assay image use ${name}" makes it the default`,
      );
    });
  },
};

/** Refuses files that are no tar. Docker would take minutes to do that, with a worse message. */
async function checkFormat(path: string): Promise<void> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(detectionBytes), 0, detectionBytes, 0);
    const format = detectFormat(buffer.subarray(0, bytesRead))?.format;
    if (format === undefined || format === 'zip')
      throw new UsageError(`${path} is not a tar, plain or compressed: make one with "docker save" or tar`);
  } finally {
    await file.close();
  }
}

/** For example, debian-12 for `Debian-12.tar.gz`. */
function nameOf(file: string): string {
  return basename(file)
    .replace(/(\.(tar|tgz|tbz2?|txz|tzst|gz|bz2|xz|zst))+$/i, '')
    .toLowerCase();
}

export const imageCommands: readonly Command[] = [list, use, importImage];

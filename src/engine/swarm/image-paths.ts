// Finds where a prefix is in an image: what a mount at that path would show through links, and the directories above it.

import { createReadStream } from 'node:fs';
import { readEntries } from '../archive/tar-files.ts';
import { EngineRefused } from '../engine.ts';

/** Without a slash at the beginning, as in tars. */
export type Directory = { path: string; mode: number; uid: number; gid: number };

/** The directories and links of one layer, and what it removes from those below it. */
export type LayerIndex = {
  directories: Record<string, [mode: number, uid: number, gid: number]>;
  links: Record<string, string>;
  removed: string[];
  /** Directories whose content in layers below is hidden. */
  opaque: string[];
};

/** Where the content of a prefix goes. */
export type Place = {
  root: string;
  /** The directories above it, as the image has them. A layer that lacks them gets ones that only root can enter. */
  parents: Directory[];
  /** Whether the image has a directory there. */
  exists: boolean;
};

export const WHITEOUT = '.wh.';
export const OPAQUE = '.wh..wh..opq';
const MAX_LINKS = 40;

/** Reads the plain tar of a layer. */
export async function indexLayer(file: string): Promise<LayerIndex> {
  const directories: LayerIndex['directories'] = {};
  const links: LayerIndex['links'] = {};
  const removed: string[] = [];
  const opaque: string[] = [];
  for await (const entry of readEntries(createReadStream(file, { highWaterMark: 1 << 20 }))) {
    const { name, type, mode = 0o755, uid = 0, gid = 0, linkname } = entry.header;
    const path = segmentsOf(name).join('/');
    const directory = path.slice(0, Math.max(0, path.lastIndexOf('/')));
    const last = path.slice(path.lastIndexOf('/') + 1);
    if (last === OPAQUE) opaque.push(directory);
    else if (last.startsWith(WHITEOUT))
      removed.push([...segmentsOf(directory), last.slice(WHITEOUT.length)].join('/'));
    else if (type === 'directory') directories[path] = [mode & 0o7777, uid, gid];
    else if (type === 'symlink') links[path] = linkname ?? '';
    entry.resume();
  }
  return { directories, links, removed, opaque };
}

/** `indexes` are those of all layers, the topmost first. */
export function findPlace(indexes: readonly LayerIndex[], prefix: string): Place {
  const layers = indexes.map(index => ({
    ...index,
    removed: new Set(index.removed),
    opaque: new Set(index.opaque),
  }));

  const find = (path: string): Directory | { link: string } | undefined => {
    for (const { directories, links, removed, opaque } of layers) {
      if (Object.hasOwn(links, path)) return { link: links[path] as string };
      if (Object.hasOwn(directories, path)) {
        const [mode, uid, gid] = directories[path] as [number, number, number];
        return { path, mode, uid, gid };
      }
      const isHidden = pathsTo(path).some(
        above => removed.has(above) || (above !== path && (opaque.has(above) || Object.hasOwn(links, above))),
      );
      if (isHidden) return undefined;
    }
    return undefined;
  };

  let at: string[] = [];
  const rest = segmentsOf(prefix);
  for (let links = 0; rest.length > 0; ) {
    const segment = rest.shift() as string;
    if (segment === '..') {
      at.pop();
      continue;
    }
    const found = find([...at, segment].join('/'));
    if (!found || !('link' in found)) {
      at.push(segment);
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) throw new EngineRefused(`The links of the image at ${prefix} lead in a circle.`);
    if (found.link.startsWith('/')) at = [];
    rest.unshift(...segmentsOf(found.link));
  }
  const root = at.join('/');
  if (root === '') throw new EngineRefused(`${prefix} is a link to the root directory in the image.`);
  return {
    root,
    parents: pathsTo(root)
      .slice(0, -1)
      .map(path => {
        const found = find(path);
        return found && 'path' in found ? found : { path, mode: 0o755, uid: 0, gid: 0 };
      }),
    exists: find(root) !== undefined,
  };
}

const segmentsOf = (path: string) => path.split('/').filter(segment => segment !== '' && segment !== '.');

/** `a`, `a/b` and `a/b/c` for the last one. */
export const pathsTo = (path: string): string[] =>
  path.split('/').map((_, at, segments) => segments.slice(0, at + 1).join('/'));

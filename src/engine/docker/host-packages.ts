// Identifies what is installed on the host, for the image `host`, which mounts the host's /usr. The fingerprint changes when
// a package is installed, upgraded or removed, and when files are added to /usr/local. It reads no file and scans no tree:
// only the package databases and the directories that packages add files to are inspected.
import { createHash } from 'node:crypto';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** They are written at each change of a package. The others are written when a library or an alternative changes. */
const DATABASES = [
  'var/lib/dpkg/status',
  'var/lib/rpm/Packages',
  'var/lib/rpm/Packages.db',
  'var/lib/rpm/rpmdb.sqlite',
  'usr/lib/sysimage/rpm/Packages.db',
  'usr/lib/sysimage/rpm/rpmdb.sqlite',
  'lib/apk/db/installed',
  'usr/lib/apk/db/installed',
  'var/lib/pacman/local',
  'etc/ld.so.cache',
  'etc/alternatives',
];

/** Directories, and how many levels below them are inspected. */
const DIRECTORIES: readonly (readonly [path: string, depth: number])[] = [
  ...['bin', 'sbin', 'libexec', 'share/aclocal', 'share/pkgconfig'].map(name => [`usr/${name}`, 0] as const),
  // With those of an architecture, for example usr/lib/x86_64-linux-gnu/pkgconfig.
  ...['include', 'lib', 'lib32', 'lib64'].map(name => [`usr/${name}`, 2] as const),
  ...['bin', 'sbin', 'include', 'lib', 'lib64', 'libexec', 'share'].map(
    name => [`usr/local/${name}`, 2] as const,
  ),
];

export async function fingerprintHost(root = '/'): Promise<string> {
  const found = await Promise.all([
    ...DATABASES.map(async path => [await describe(root, path)]),
    ...DIRECTORIES.map(([path, depth]) => describeDirectories(root, path, depth)),
  ]);
  return createHash('sha256').update(found.flat().join('\n')).digest('hex').slice(0, 32);
}

async function describeDirectories(root: string, path: string, depth: number): Promise<string[]> {
  const entries = depth === 0 ? [] : await readdir(join(root, path), { withFileTypes: true }).catch(() => []);
  const names = entries.filter(entry => entry.isDirectory()).map(({ name }) => name);
  const inside = await Promise.all(
    names.toSorted().map(name => describeDirectories(root, `${path}/${name}`, depth - 1)),
  );
  return [await describe(root, path), ...inside.flat()];
}

/** A file that is missing or cannot be read is part of the fingerprint too. */
async function describe(root: string, path: string): Promise<string> {
  try {
    const { size, mtimeNs, ctimeNs } = await lstat(join(root, path), { bigint: true });
    return `${path} ${size} ${mtimeNs} ${ctimeNs}`;
  } catch (error) {
    return `${path} ${(error as NodeJS.ErrnoException).code}`;
  }
}

// What the containers that use dependencies find in their environment: search paths, variables, and a directory for each
// daemon.

import { parseEnvironment } from '../dependency.ts';
import { RUN_DIRECTORY } from './container-plan.ts';
import type { SearchPath } from './entry-script.ts';

/** A dependency as its users see it. */
export type MountedDependency = {
  id: bigint;
  name: string;
  /** Where it was compiled to. */
  prefix: string;
  /** Lines of NAME=value. */
  environment: string;
  /** Whether its libraries are on LD_LIBRARY_PATH. */
  libraryPath: boolean;
};

const LIBRARY_PATH = 'LD_LIBRARY_PATH';

/** The directories of a prefix that are on each search path. */
const SEARCH_PATHS: readonly (SearchPath & { name: string })[] = [
  { name: 'PATH', directories: ['/bin', '/sbin'] },
  { name: LIBRARY_PATH, directories: ['/lib', '/lib64'] },
  { name: 'PKG_CONFIG_PATH', directories: ['/lib/pkgconfig', '/lib64/pkgconfig', '/share/pkgconfig'] },
  { name: 'CPATH', directories: ['/include'] },
  { name: 'LIBRARY_PATH', directories: ['/lib', '/lib64'] },
  { name: 'CMAKE_PREFIX_PATH', directories: [''] },
  { name: 'ACLOCAL_PATH', directories: ['/share/aclocal'] },
  { name: 'MANPATH', directories: ['/share/man'], endsEmpty: true },
];

/** `used` are in search order. */
export function searchPathsOf(used: readonly MountedDependency[]): SearchPath[] {
  const all = new Set(used.map(({ prefix }) => prefix));
  const withLibraries = new Set(used.filter(one => one.libraryPath).map(({ prefix }) => prefix));
  return SEARCH_PATHS.map(path => ({
    ...path,
    directories: [...all]
      .filter(prefix => path.name !== LIBRARY_PATH || withLibraries.has(prefix))
      .flatMap(prefix => path.directories.map(directory => prefix + directory)),
  })).filter(({ directories }) => directories.length > 0);
}

/** The variables that the dependencies set. Of two with the same name, that of the earlier dependency is used. */
export function variablesOfDependencies(
  used: readonly MountedDependency[],
): { name: string; content: string }[] {
  const run = runDirectories(used);
  const contents = new Map<string, string>();
  for (const { id, prefix, environment } of used) {
    const replace = (text: string) =>
      text
        .replaceAll(/\$(?:PREFIX\b|\{PREFIX\})/g, () => prefix)
        .replaceAll(/\$(?:ASSAY_RUN\b|\{ASSAY_RUN\})/g, () => run.get(id) as string);
    for (const { name, value } of parseEnvironment(environment))
      if (!contents.has(name)) contents.set(name, replace(value));
  }
  return [...contents].map(([name, content]) => ({ name, content }));
}

/** The path of a socket has at most 107 bytes. */
const LONGEST_DIRECTORY_NAME = 50;

/**
 * The directory for the daemon of each dependency, by id. It is named after the dependency; if two would have the same
 * name, the later one gets a number.
 */
export function runDirectories(used: readonly { id: bigint; name: string }[]): Map<bigint, string> {
  const taken = new Set<string>();
  return new Map(
    used.map(({ id, name }) => {
      const plain = name
        .replaceAll(/[^A-Za-z0-9._-]+/g, '-')
        .replaceAll(/^[.-]+|[.-]+$/g, '')
        .slice(0, LONGEST_DIRECTORY_NAME);
      const base = plain === '' ? 'dependency' : plain;
      let directory = base;
      for (let number = 2; taken.has(directory); number += 1) directory = `${base}-${number}`;
      taken.add(directory);
      return [id, `${RUN_DIRECTORY}/${directory}`];
    }),
  );
}

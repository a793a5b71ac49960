// The artifacts of a build as a tree of directories with sizes, cut so that a page stays small whatever the build produced.

export type File = { id: bigint; path: string; sizeBytes: number };

export type Directory = {
  /** Without a slash at its end; empty for the top. */
  path: string;
  /** The last part of the path. Several if each directory has only one other in it. */
  name: string;
  files: number;
  sizeBytes: number;
  /** Directories first. */
  children: (Directory | File)[];
};

export const isDirectory = (node: Directory | File): node is Directory => 'children' in node;
export const baseName = (path: string) => path.slice(path.lastIndexOf('/') + 1);

/** The directory `path` of the files, with everything below it. `files` are in order of path. */
export function treeOf(files: readonly File[], path: string): Directory {
  const top: Directory = { path, name: path, files: 0, sizeBytes: 0, children: [] };
  const known = new Map([[path, top]]);
  const find = (wanted: string): Directory => {
    const found = known.get(wanted);
    if (found) return found;
    const made: Directory = { path: wanted, name: baseName(wanted), files: 0, sizeBytes: 0, children: [] };
    known.set(wanted, made);
    find(parentOf(wanted)).children.push(made);
    return made;
  };
  const prefix = path === '' ? '' : `${path}/`;
  for (const file of files) if (file.path.startsWith(prefix)) find(parentOf(file.path)).children.push(file);
  return joinSingles(addUp(top));
}

const parentOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf('/')));

/** Counts the files of a directory, and puts directories first. */
function addUp(directory: Directory): Directory {
  const directories = directory.children.filter(isDirectory);
  const files = directory.children.filter((one): one is File => !isDirectory(one));
  for (const one of directories) addUp(one);
  for (const { sizeBytes } of [...directories, ...files]) directory.sizeBytes += sizeBytes;
  directory.files = directories.reduce((sum, one) => sum + one.files, files.length);
  directory.children = [...directories, ...files];
  return directory;
}

/** Shows a directory that has nothing but another one in it as one: `target/site`. */
function joinSingles(directory: Directory): Directory {
  return {
    ...directory,
    children: directory.children.map(child => {
      if (!isDirectory(child)) return child;
      const joined = joinSingles(child);
      const [only] = joined.children;
      return joined.children.length === 1 && only && isDirectory(only)
        ? { ...only, name: `${joined.name}/${only.name}` }
        : joined;
    }),
  };
}

/** The directories whose content fits into `rows` rows beside that of `top`: those nearest to the top first. */
export function chooseShown(top: Directory, rows: number): ReadonlySet<Directory> {
  const shown = new Set<Directory>();
  let left = rows - top.children.length;
  let level = top.children.filter(isDirectory);
  while (level.length > 0) {
    const fitting = level.filter(directory => {
      if (directory.children.length > left) return false;
      left -= directory.children.length;
      shown.add(directory);
      return true;
    });
    level = fitting.flatMap(directory => directory.children.filter(isDirectory));
  }
  return shown;
}

/** Shows characters that change how a name looks, such as marks for writing from right to left. */
export const visibleName = (name: string) =>
  name.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

// Globs for files in a workspace: `*` and `?` do not match `/`, and `**` as a whole segment matches any number of segments.

import { compileGlob } from './glob.ts';

const MAX_GLOBS = 50;
const MAX_GLOB_BYTES = 1_024;

export type PathGlob = {
  /** The longest directory or file in front of the first wildcard; '' if there is none. Everything it matches is in it. */
  base: string;
  matches(path: string): boolean;
};

const ANY_SEGMENTS = '**';

/** One glob for each line that is not empty. */
const linesOf = (text: string) =>
  text
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '');

/** Whether a text is a valid list of globs: relative, without `..`, and not too many. */
export function checkPathGlobs(text: string): 'invalid_format' | undefined {
  const lines = linesOf(text);
  const isValid = (line: string) =>
    Buffer.byteLength(line) <= MAX_GLOB_BYTES &&
    !/^\/|[\u0000-\u001f\u007f\\]|\/\//.test(line) &&
    !line.split('/').some(segment => segment === '..' || segment === '.');
  return lines.length <= MAX_GLOBS && lines.every(isValid) ? undefined : 'invalid_format';
}

export const parsePathGlobs = (text: string): PathGlob[] => linesOf(text).map(parsePathGlob);

function parsePathGlob(glob: string): PathGlob {
  const segments = glob.split('/');
  const firstWildcard = segments.findIndex(segment => /[*?[]/.test(segment) || segment === '');
  const base = segments.slice(0, firstWildcard < 0 ? undefined : firstWildcard).join('/');
  // Without a wildcard it names a file, or a directory with everything in it. So does one that ends with a slash.
  if (segments.at(-1) === '') segments.pop();
  if (firstWildcard < 0 || glob.endsWith('/')) segments.push(ANY_SEGMENTS);
  const parts = segments.map(segment => (segment === ANY_SEGMENTS ? undefined : compileGlob(segment)));
  return { base, matches: path => matchSegments(parts, path.split('/')) };
}

/**
 * Undefined stands for `**`. Goes through the path once, and notes how many parts can have matched so far: the time does not
 * grow exponentially with the number of `**`.
 */
function matchSegments(
  parts: readonly (((segment: string) => boolean) | undefined)[],
  segments: readonly string[],
): boolean {
  /** A `**` may match nothing. */
  const withEmpty = (reached: Set<number>) => {
    for (const at of reached) if (at < parts.length && parts[at] === undefined) reached.add(at + 1);
    return reached;
  };
  let reached = withEmpty(new Set([0]));
  for (const segment of segments) {
    const next = new Set<number>();
    for (const at of reached) {
      const part = parts[at];
      if (at < parts.length && part === undefined) next.add(at);
      else if (part?.(segment)) next.add(at + 1);
    }
    reached = withEmpty(next);
  }
  return reached.has(parts.length);
}

/** The directories and files to read so that every match of the globs is found, without those inside others. */
export function basesOf(globs: readonly PathGlob[]): string[] {
  const bases = [...new Set(globs.map(({ base }) => base))].sort();
  return bases.filter(
    base => !bases.some(other => other !== base && (other === '' || base.startsWith(`${other}/`))),
  );
}

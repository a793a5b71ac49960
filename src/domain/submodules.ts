// Validates the submodules that a commit declares and resolves their URLs. A commit's content is untrusted input.

export const submoduleSettings = ['off', 'on', 'recursive'] as const;
export type SubmoduleSetting = (typeof submoduleSettings)[number];

export const SUBMODULE_DEPTH_MAX = 5;
export const SUBMODULES_MAX = 64;
const TEXT_MAX_BYTES = 1_024;

/** A submodule as a commit declares it. */
export type Submodule = { name: string; path: string; url: string; hash: string };

/** A submodule to check out. `path` is relative to the project's directory; `parent` is the submodule that contains it. */
export type PlacedSubmodule = Submodule & {
  parent: PlacedSubmodule | undefined;
  /** The directory name of its mirror, below the project's submodule mirrors. */
  mirror: string;
  /** Whether its mirror has Git LFS objects. */
  hasLfs: boolean;
};

const SCP = /^(?!-)[\w.-]+@(?!-)[\w.-]+:(?!-)[\w.~/+-]+$/;
const SSH = /^ssh:\/\/(?!-)[\w.-]+@(?!-)[\w.-]+(?::\d{1,5})?\/(?!-)[\w.~/+-]+$/;

/** `<user>@<host>:<path>` or `ssh://<user>@<host>[:<port>]/<path>`, and nothing that git or ssh could take for anything else. */
export function isSshUrl(url: string): boolean {
  return (SCP.test(url) || SSH.test(url)) && !url.includes('..') && url.length <= TEXT_MAX_BYTES;
}

/** The URL to fetch a submodule from; a relative one is resolved against its parent's. Undefined if it is not an SSH URL. */
export function resolveSubmoduleUrl(url: string, parentUrl: string): string | undefined {
  if (!/^\.\.?\//.test(url)) return isSshUrl(url) ? url : undefined;
  let base = parentUrl.replace(/\/+$/, '');
  let separator = '/';
  let rest = url;
  for (;;) {
    if (rest.startsWith('./')) rest = rest.slice(2);
    else if (rest.startsWith('../')) {
      if (separator === ':') return undefined;
      rest = rest.slice(3);
      const slash = base.lastIndexOf('/');
      if (slash < 0) separator = ':';
      const end = slash < 0 ? base.lastIndexOf(':') : slash;
      if (end < 0) return undefined;
      base = base.slice(0, end);
    } else break;
  }
  const resolved = `${base}${separator}${rest.replace(/\/+$/, '')}`;
  return isSshUrl(resolved) ? resolved : undefined;
}

/** The reason why the submodule cannot be checked out, or undefined. */
export function checkSubmodule({ name, path }: Pick<Submodule, 'name' | 'path'>): string | undefined {
  for (const text of [name, path]) {
    const segments = text.split(/[/\\]/);
    const isPlain =
      Buffer.byteLength(text) <= TEXT_MAX_BYTES &&
      !/\p{Cc}/u.test(text) &&
      segments.every(
        segment => segment !== '' && segment !== '.' && segment !== '..' && segment.toLowerCase() !== '.git',
      );
    if (!isPlain) return 'its name or path is not a plain one';
  }
  return undefined;
}

/** Git stores a submodule's repository under its name, so no name may be the parent directory of another. */
export function namesCollide(names: readonly string[]): boolean {
  const all = new Set(names);
  return (
    all.size < names.length ||
    names.some(name => {
      const segments = name.split('/');
      return segments.some((_, index) => index > 0 && all.has(segments.slice(0, index).join('/')));
    })
  );
}

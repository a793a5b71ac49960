// Submodules: where one is fetched from, and which of them a checkout takes. What a commit says of them is not trusted.

export const submoduleSettings = ['off', 'on', 'recursive'] as const;
export type SubmoduleSetting = (typeof submoduleSettings)[number];

export const SUBMODULE_DEPTH_MAX = 5;
export const SUBMODULES_MAX = 64;
const TEXT_MAX_BYTES = 1_024;

/** What a commit says of one submodule. */
export type Submodule = { name: string; path: string; url: string; hash: string };

/** One that is checked out: `path` is below the project's directory, `parent` the one it is part of. */
export type PlacedSubmodule = Submodule & {
  parent: PlacedSubmodule | undefined;
  /** The name of its mirror among those of the project's submodules. */
  mirror: string;
  /** Whether its mirror has content that pointers of Git LFS stand for. */
  hasLfs: boolean;
};

const SCP = /^(?!-)[\w.-]+@(?!-)[\w.-]+:(?!-)[\w.~/+-]+$/;
const SSH = /^ssh:\/\/(?!-)[\w.-]+@(?!-)[\w.-]+(?::\d{1,5})?\/(?!-)[\w.~/+-]+$/;

/** Whether it is `<user>@<host>:<path>` or `ssh://<user>@<host>[:<port>]/<path>`, and nothing that git or ssh could read otherwise. */
export function isSshUrl(url: string): boolean {
  return (SCP.test(url) || SSH.test(url)) && !url.includes('..') && url.length <= TEXT_MAX_BYTES;
}

/** The address a submodule is fetched from; a relative one begins at its parent's. Undefined where it is none over SSH. */
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

/** Why the submodule cannot be checked out as it is described; undefined where it can. */
export function checkSubmodule({ name, path }: Pick<Submodule, 'name' | 'path'>): string | undefined {
  for (const text of [name, path]) {
    const parts = text.split(/[/\\]/);
    const isPlain =
      Buffer.byteLength(text) <= TEXT_MAX_BYTES &&
      !/\p{Cc}/u.test(text) &&
      parts.every(part => part !== '' && part !== '.' && part !== '..' && part.toLowerCase() !== '.git');
    if (!isPlain) return 'its name or path is not a plain one';
  }
  return undefined;
}

/** Git keeps a submodule's repository under its name: one such name cannot be inside another. */
export function namesCollide(names: readonly string[]): boolean {
  const all = new Set(names);
  return (
    all.size < names.length ||
    names.some(name => {
      const parts = name.split('/');
      return parts.some((_, index) => index > 0 && all.has(parts.slice(0, index).join('/')));
    })
  );
}

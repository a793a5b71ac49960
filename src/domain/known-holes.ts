// Versions of git, Docker and runc with known holes. A distribution may have mended one under the same number: whoever
// tells of it says so too. Looking the versions up is src/engine/host.ts's.

export type Program = 'git' | 'docker' | 'runc';

export type Hole = {
  program: Program;
  ids: string;
  what: string;
  /** The first sound version of each series that was mended; a series that is not listed was mended with the newest. */
  mendedIn: readonly string[];
};

const holes: readonly Hole[] = [
  {
    program: 'git',
    ids: 'CVE-2022-23521, CVE-2022-41903',
    what: 'a crafted repository can run code',
    mendedIn: [
      ...['2.30.7', '2.31.6', '2.32.5', '2.33.6', '2.34.6', '2.35.6', '2.36.4', '2.37.5', '2.38.3', '2.39.1'],
    ],
  },
  {
    program: 'git',
    ids: 'CVE-2024-32002',
    what: 'a clone with crafted submodules can run code',
    mendedIn: ['2.39.4', '2.40.2', '2.41.1', '2.42.2', '2.43.4', '2.44.1', '2.45.1'],
  },
  {
    program: 'git',
    ids: 'CVE-2025-48384',
    what: 'a clone with crafted submodules can run code',
    mendedIn: ['2.43.7', '2.44.4', '2.45.4', '2.46.4', '2.47.3', '2.48.2', '2.49.1', '2.50.1'],
  },
  {
    program: 'docker',
    ids: 'CVE-2022-36109',
    what: "groups that were taken from a container's user are not",
    mendedIn: ['20.10.18'],
  },
  {
    program: 'docker',
    ids: 'CVE-2024-41110',
    what: 'authorization plugins can be passed by',
    mendedIn: ['23.0.15', '25.0.6', '26.1.5', '27.1.1'],
  },
  {
    program: 'runc',
    ids: 'CVE-2024-21626',
    what: 'a crafted image can reach the host',
    mendedIn: ['1.1.12'],
  },
  {
    program: 'runc',
    ids: 'CVE-2025-31133, CVE-2025-52565, CVE-2025-52881',
    what: 'a crafted image can reach the host',
    mendedIn: ['1.2.8', '1.3.3', '1.4.0'],
  },
];

/** The numbers that a version begins with: 20.10.24 of "20.10.24+dfsg1". */
export function versionIn(text: string): string | undefined {
  return /\d+(?:\.\d+)+/.exec(text)?.[0];
}

/** Negative where `left` is older; what one lacks counts as zero. */
export function compareVersions(left: string, right: string): number {
  const [a, b] = [left, right].map(text => text.split('.').map(Number)) as [number[], number[]];
  for (let at = 0; at < Math.max(a.length, b.length); at++) {
    const difference = (a[at] ?? 0) - (b[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

export function holesIn(program: Program, text: string): Hole[] {
  const version = versionIn(text);
  if (version === undefined) return [];
  const series = version.split('.').slice(0, 2).join('.');
  return holes.filter(hole => {
    if (hole.program !== program) return false;
    const own = hole.mendedIn.find(mended => mended.startsWith(`${series}.`));
    return compareVersions(version, own ?? (hole.mendedIn.at(-1) as string)) < 0;
  });
}

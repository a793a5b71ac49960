// Builds the script that checks out a commit inside a container from the project's mirror, without copying history.

import type { PlacedSubmodule } from '../submodules.ts';
import { shellQuote } from '../text/shell.ts';
import {
  type ContainerPlan,
  MIRROR_DIRECTORY,
  type Mount,
  mirrorMount,
  outputMount,
  PROJECT_DIRECTORY,
  SNAPSHOT_DIRECTORY,
  SUBMODULES_DIRECTORY,
  snapshotMount,
  submodulesMount,
} from './container-plan.ts';
import { type EntryStep, entryCommand } from './entry-script.ts';

export type Checkout = {
  /** The full hash. */
  hash: string;
  /** When, in milliseconds, for the reflog. Git ignores an entry of the time 0. */
  at: number;
  /** The branch to check out by name. Without it HEAD is detached. */
  branch?: string;
  /** The URL of `origin`. It is informational: nothing can be fetched inside the container. */
  originUrl?: string;
  /** Parents come before their children. */
  submodules?: readonly PlacedSubmodule[];
  /** Whether the mirror has Git LFS objects. */
  hasLfs?: boolean;
  /** Whether the commit is in a snapshot, which borrows from the mirror. */
  hasSnapshot?: boolean;
};

export const CHECKOUT_STEP = 'checkout';

/**
 * Writes the repository by hand instead of with `git init`: no template, no hooks, and few processes and files, because every
 * build makes a checkout. Git reads only the configuration below, so attributes can name filters but none is defined, and git
 * enters no submodule by itself. Passing the mirror as --git-dir avoids the ownership check of repository discovery.
 */
export function checkoutStep(checkout: Checkout): EntryStep {
  if (!/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(checkout.hash)) throw new Error('A checkout needs a full hash.');
  const { branch, hash, at, submodules = [], hasLfs = false, hasSnapshot = false } = checkout;
  const isLastCommand = submodules.length === 0 && !hasLfs;
  const submodulesWithLfs = submodules.filter(submodule => submodule.hasLfs);
  const head = branch === undefined ? hash : `ref: refs/heads/${branch}`;
  const lines = [
    'umask 022',
    `cd ${PROJECT_DIRECTORY} || exit 1`,
    `mkdir -p ${DIRECTORIES.map(name => `.git/${name}`).join(' ')}${branch === undefined ? ' .git/logs' : ''} || exit 1`,
    `printf '%s\\n' ${MIRROR_DIRECTORY}/objects${hasSnapshot ? ` ${SNAPSHOT_DIRECTORY}` : ''} >.git/objects/info/alternates || exit 1`,
    `printf '%s' ${shellQuote(configuration(checkout))} >.git/config || exit 1`,
    'export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1',
    `git --git-dir=${MIRROR_DIRECTORY} ${LIST_REFS} >.git/packed-refs || exit 1`,
    ...(branch === undefined
      ? []
      : [`printf '%s\\n' ${shellQuote(`${hash} refs/heads/${branch}`)} >>.git/packed-refs`]),
    `printf '%s\\n' ${shellQuote(head)} >.git/HEAD || exit 1`,
    // `git status` reads the reflog to report where HEAD is detached.
    ...(branch === undefined ? [writeReflog(hash, at)] : []),
    isLastCommand ? `exec git ${CHECK_OUT} ${hash}` : `git ${CHECK_OUT} ${hash} || exit 1`,
    ...(submodules.length === 0 ? [] : [SUBMODULE_FUNCTION]),
    ...submodules.map(submodule => `${submoduleCall(submodule, submodules)} || exit 1`),
    ...(hasLfs || submodulesWithLfs.length > 0 ? [LFS_FUNCTION] : []),
    ...(hasLfs ? [`lfs . ${MIRROR_DIRECTORY} || exit 1`] : []),
    ...submodulesWithLfs.map(
      ({ path, mirror }) => `lfs ${shellQuote(`./${path}`)} ${SUBMODULES_DIRECTORY}/${mirror} || exit 1`,
    ),
  ];
  return { name: CHECKOUT_STEP, script: lines.join('\n'), environment: 'service' };
}

// Lists both in one process: branches become branches of the remote, tags stay as they are.
const LIST_REFS = `for-each-ref --format='%(objectname) %(if:equals=refs/heads)%(refname:rstrip=-2)%(then)refs/remotes/origin/%(refname:lstrip=2)%(else)%(refname)%(end)' refs/heads refs/tags`;
// Not `git reset`, which would write HEAD again, and ORIG_HEAD.
const CHECK_OUT = '-c core.hooksPath=/dev/null -c checkout.workers=2 read-tree --reset -u';

/** Git creates others when it needs them. Scripts expect `info`, to which they add what git should ignore. */
const DIRECTORIES = ['objects/info', 'refs', 'info'];

// Writes a submodule where git itself would put it: its repository inside its parent's, and a `.git` file in its directory
// that points there. Arguments: repository, directory, mirror, hash, path to the repository, configuration.
const SUBMODULE_FUNCTION = `submodule() {
  mkdir -p ${DIRECTORIES.map(name => `"$1/${name}"`).join(' ')} "$2" || return 1
  printf '%s\\n' "$3/objects" >"$1/objects/info/alternates" || return 1
  printf '%s' "$6" >"$1/config" || return 1
  git --git-dir="$3" ${LIST_REFS} >"$1/packed-refs" || return 1
  printf '%s\\n' "$4" >"$1/HEAD" || return 1
  printf 'gitdir: %s\\n' "$5" >"$2/.git" || return 1
  git -C "$2" ${CHECK_OUT} "$4"
}`;

// Replaces LFS pointers by their content without git-lfs, which an image need not have. Git would report these files as
// modified, so they are marked as unchanged. Arguments: directory, mirror.
const LFS_FUNCTION = `lfs() (
  cd "$1" || exit 1
  : >/tmp/.assay-lfs
  git ls-files -z -- ':(attr:filter=lfs)' | xargs -0 -r sh -c '
    mirror=$1; shift
    for file; do
      [ -f "$file" ] && [ ! -h "$file" ] || continue
      printf "%s\\0" "$file" >>/tmp/.assay-lfs
      oid=$(head -c 200 -- "$file" | sed -n "s/^oid sha256:\\([0-9a-f]\\{64\\}\\)$/\\1/p")
      [ -n "$oid" ] || continue
      rest=\${oid#??}
      content=$mirror/lfs/objects/\${oid%"$rest"}/\${rest%"\${rest#??}"}/$oid
      [ -f "$content" ] || continue
      cat -- "$content" >"$file" || exit 255
    done' sh "$2" || exit 1
  git update-index -z --assume-unchanged --stdin </tmp/.assay-lfs
  rm -f /tmp/.assay-lfs
)`;

function submoduleCall(submodule: PlacedSubmodule, all: readonly PlacedSubmodule[]): string {
  const repository = repositoryOf(submodule);
  const config = configuration(
    { hash: submodule.hash, originUrl: submodule.url, submodules: all },
    submodule,
  );
  return [
    repository,
    `./${submodule.path}`,
    `${SUBMODULES_DIRECTORY}/${submodule.mirror}`,
    submodule.hash,
    relativePath(submodule.path, repository),
    config,
  ]
    .map(shellQuote)
    .reduce((call, argument) => `${call} ${argument}`, 'submodule');
}

/** The path from one directory of the checkout to another. The two share no leading directory: all repositories are in `.git`. */
const relativePath = (from: string, to: string) => `${'../'.repeat(from.split('/').length)}${to}`;

const repositoryOf = ({ name, parent }: PlacedSubmodule): string =>
  `${parent ? repositoryOf(parent) : '.git'}/modules/${name}`;

type VolumeCheckout = {
  /** The suite's plan, which provides user, limits and owner. */
  suite: ContainerPlan;
  /** The image `host`, which has git. */
  host: { reference: string; mounts: Mount[] };
  step: EntryStep;
  mirror: string;
  snapshot?: string | undefined;
  /** The directory of the submodule mirrors, if there are any. */
  submoduleMirrors?: string | undefined;
  volume: string;
  outputFile: string;
  nonce: string;
};

/**
 * For images without git: a container of the image `host` makes the checkout in a volume, which the suite's container then
 * mounts with `workspaceMount`. It runs first and has its own output file.
 */
export function volumeCheckoutPlan(options: VolumeCheckout): ContainerPlan {
  const { suite, host, step, mirror, snapshot, submoduleMirrors, volume, outputFile, nonce } = options;
  return {
    ...suite,
    name: `${suite.name}-checkout`,
    image: host.reference,
    command: entryCommand({ nonce, steps: [step] }),
    environment: {},
    mounts: [
      ...host.mounts,
      outputMount(outputFile),
      mirrorMount(mirror),
      ...(snapshot === undefined ? [] : [snapshotMount(snapshot)]),
      ...(submoduleMirrors === undefined ? [] : [submodulesMount(submoduleMirrors)]),
      workspaceMount(volume),
    ],
    network: 'none',
    ...(suite.remote && { remote: { ...suite.remote, layers: [], kept: [] } }),
  };
}

export function workspaceMount(volume: string): Mount {
  return { type: 'volume', source: volume, target: PROJECT_DIRECTORY, readOnly: false };
}

function writeReflog(hash: string, at: number): string {
  const entry = `${'0'.repeat(hash.length)} ${hash} Assay <assay@localhost> ${Math.floor(at / 1000)} +0000`;
  return `printf '%s\\tcheckout: moving from origin to %s\\n' '${entry}' ${hash} >.git/logs/HEAD`;
}

/** The git configuration of the checkout, or of the submodule `of`. */
function configuration(
  { hash, branch, originUrl, submodules = [] }: Omit<Checkout, 'at'>,
  of?: PlacedSubmodule,
): string {
  const sha256 = hash.length === 64;
  const origin = originUrl ?? MIRROR_DIRECTORY;
  return [
    '[core]',
    `\trepositoryformatversion = ${sha256 ? 1 : 0}`,
    '\tfilemode = true',
    '\tbare = false',
    '\tlogallrefupdates = true',
    ...(of ? [`\tworktree = "${escapeConfig(relativePath(repositoryOf(of), of.path))}"`] : []),
    ...(sha256 ? ['[extensions]', '\tobjectformat = sha256'] : []),
    '[remote "origin"]',
    `\turl = "${escapeConfig(origin)}"`,
    '\tfetch = +refs/heads/*:refs/remotes/origin/*',
    ...submodules
      .filter(({ parent }) => parent === of)
      .flatMap(({ name, url }) => [
        `[submodule "${escapeConfig(name)}"]`,
        '\tactive = true',
        `\turl = "${escapeConfig(url)}"`,
      ]),
    ...(branch === undefined
      ? []
      : [
          `[branch "${escapeConfig(branch)}"]`,
          '\tremote = origin',
          `\tmerge = "refs/heads/${escapeConfig(branch)}"`,
        ]),
    '',
  ].join('\n');
}

function escapeConfig(text: string): string {
  if (/[\x00-\x1f]/.test(text)) throw new Error('A git configuration must not contain control characters.');
  return text.replace(/[\\"]/g, '\\$&');
}

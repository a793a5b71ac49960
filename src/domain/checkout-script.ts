// Owns the script that makes a checkout inside a container out of a project's mirror, without copying history.
// Fetching the mirror is src/engine/git.ts's; running the script, src/domain/entry-script.ts's.
import {
  type ContainerPlan,
  MIRROR_DIRECTORY,
  type Mount,
  mirrorMount,
  outputMount,
  PROJECT_DIRECTORY,
} from './container-plan.ts';
import { type EntryStep, entryCommand } from './entry-script.ts';

export interface Checkout {
  /** The full hash. */
  hash: string;
  /** Set when a branch was asked for: it is checked out by name; else HEAD is detached. */
  branch?: string;
  /** Where `origin` points; shown by git inside, of no other use there. */
  originUrl?: string;
}

export const CHECKOUT_STEP = 'checkout';

/**
 * A repository written by hand rather than by `git init`: no template, no hooks, and two processes fewer. The
 * only configuration read is the one below, so attributes can name filters but none is defined; submodules are
 * never entered. Naming the mirror by --git-dir spares the ownership check that discovery would make.
 */
export function checkoutStep(checkout: Checkout): EntryStep {
  if (!/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(checkout.hash)) throw new Error('A checkout needs a full hash.');
  const { branch, hash } = checkout;
  const head = branch === undefined ? hash : `ref: refs/heads/${branch}`;
  const lines = [
    'umask 022',
    `cd ${PROJECT_DIRECTORY} || exit 1`,
    'mkdir -p .git/objects/info .git/objects/pack .git/refs/heads .git/refs/tags .git/info || exit 1',
    `printf '%s\\n' ${MIRROR_DIRECTORY}/objects >.git/objects/info/alternates || exit 1`,
    `printf '%s' ${quote(configuration(checkout))} >.git/config || exit 1`,
    'export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1',
    // One process for both kinds of names: a branch becomes one of the remote's, a tag stays as it is.
    `git --git-dir=${MIRROR_DIRECTORY} for-each-ref --format='%(objectname) %(if:equals=refs/heads)%(refname:rstrip=-2)%(then)refs/remotes/origin/%(refname:lstrip=2)%(else)%(refname)%(end)' refs/heads refs/tags >.git/packed-refs || exit 1`,
    ...(branch === undefined
      ? []
      : [`printf '%s\\n' ${quote(`${hash} refs/heads/${branch}`)} >>.git/packed-refs`]),
    `printf '%s\\n' ${quote(head)} >.git/HEAD || exit 1`,
    // The line by which git says where a detached HEAD came from.
    ...(branch === undefined ? ['mkdir .git/logs', cameFrom(hash)] : []),
    `exec git -c core.hooksPath=/dev/null -c checkout.workers=2 -c advice.detachedHead=false reset -q --hard ${hash} --`,
  ];
  return { name: CHECKOUT_STEP, script: lines.join('\n'), environment: 'service' };
}

export interface VolumeCheckout {
  /** The suite's own plan: user, limits and owner are taken from it. */
  suite: ContainerPlan;
  /** The image `host`, which has git. */
  host: { reference: string; mounts: Mount[] };
  step: EntryStep;
  mirror: string;
  volume: string;
  outputFile: string;
  nonce: string;
}

/**
 * For an image without git alone: a container of the image `host` that makes the checkout in a volume, which the
 * suite's container then mounts by workspaceMount. It runs first, and has an output file of its own.
 */
export function volumeCheckoutPlan(needs: VolumeCheckout): ContainerPlan {
  const { suite, host, step, mirror, volume, outputFile, nonce } = needs;
  return {
    ...suite,
    name: `${suite.name}-checkout`,
    image: host.reference,
    command: entryCommand({ nonce, steps: [step] }),
    environment: {},
    mounts: [...host.mounts, outputMount(outputFile), mirrorMount(mirror), workspaceMount(volume)],
    network: 'none',
  };
}

export function workspaceMount(volume: string): Mount {
  return { type: 'volume', source: volume, target: PROJECT_DIRECTORY, readOnly: false };
}

function cameFrom(hash: string): string {
  const from = `${'0'.repeat(hash.length)} ${hash} Assay <assay@localhost>`;
  return `printf '%s %s +0000\\tcheckout: moving from origin to %s\\n' '${from}' "$(date +%s)" ${hash} >.git/logs/HEAD`;
}

function configuration({ hash, branch, originUrl }: Checkout): string {
  const sha256 = hash.length === 64;
  const origin = originUrl ?? MIRROR_DIRECTORY;
  return [
    '[core]',
    `\trepositoryformatversion = ${sha256 ? 1 : 0}`,
    '\tfilemode = true',
    '\tbare = false',
    '\tlogallrefupdates = true',
    ...(sha256 ? ['[extensions]', '\tobjectformat = sha256'] : []),
    '[remote "origin"]',
    `\turl = "${escapeConfig(origin)}"`,
    '\tfetch = +refs/heads/*:refs/remotes/origin/*',
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
  if (/[\x00-\x1f]/.test(text)) throw new Error('Control characters do not belong in a git configuration.');
  return text.replace(/[\\"]/g, '\\$&');
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// A deploy from start to end: exactly that commit, never forced, never twice. After a push whose end was not seen, be it for
// a crash, a cancel or a broken connection, the remote is asked where its branch stands.

import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DeployEvent } from '../domain/deploy.ts';
import { hideHostPaths } from '../domain/host-paths.ts';
import { GitFailure } from '../engine/git/git.ts';
import { branchContains } from '../engine/git/history.ts';
import { pushCommit, remoteBranchHead } from '../engine/git/push.ts';
import type { SshAccess } from '../engine/git/ssh.ts';
import { openLog } from '../store/data/log-file.ts';
import { deployLogPath, mirrorPath } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { findDeploy } from '../store/deploys.ts';
import { findProject, type Project, privateKeyOf } from '../store/projects.ts';
import { listFirstDeploys } from '../store/queue.ts';
import { type Deploy, moveDeploy } from '../store/transition.ts';
import { watchCancellation } from './cancellation.ts';
import { type FetchOptions, fetchProject, logFailure } from './fetch-mirror.ts';
import { hostIn } from './host-slots.ts';
import type { WorkKind } from './queue.ts';

/** Why a deploy did not happen, in words for its record and log. */
class NotDeployed extends Error {}

/** What git prints when the remote has let it in and is about to be sent the commit. */
const BEGINS_TO_SEND = /^(?:Enumerating objects|Writing objects|Total )/;
/** After a cancel somebody waits for the answer. */
const ASK_AFTER_CANCEL_MS = 20_000;

/** Deploys, as work of the queue: one of a project at a time. */
export function deployWork(db: Db, push: (deploy: Deploy, isResumed: boolean) => Promise<void>): WorkKind {
  const list = (state: Deploy['state']) =>
    listFirstDeploys(db)
      .filter(({ deploy }) => deploy.state === state)
      .map(({ deploy, repositoryUrl }) => ({
        deploy,
        key: `deploy ${deploy.projectId}`,
        owner: `deploy ${deploy.projectId}`,
        enqueuedAt: deploy.id,
        hosts: [hostIn(deploy.repositoryUrl), hostIn(repositoryUrl)],
      }));
  return {
    listWaiting: () =>
      list('enqueued').map(item => ({
        ...item,
        claim() {
          const claimed = moveDeploy(db, item.deploy.id, 'start');
          return claimed && (() => push(claimed, false));
        },
      })),
    listClaimed: () => list('deploying').map(item => ({ ...item, run: () => push(item.deploy, true) })),
  };
}

/** `interrupted`: the last server may have pushed already. */
export async function pushDeploy(
  options: FetchOptions & { logLimitBytes: number },
  deploy: Deploy,
  interrupted: boolean,
): Promise<void> {
  const { db, stopping } = options;
  const project = findProject(db, deploy.projectId);
  if (!project) return;
  const path = deployLogPath(options.dataDirectory, deploy.id);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const log = await openLog({ path, limitBytes: options.logLimitBytes });
  const find = () => findDeploy(db, deploy.projectId, deploy.id);
  const cancellation = watchCancellation(options, [
    [`deploy:${deploy.id}`, () => find()?.cancelBecause === null],
    [`project:${project.id}`, () => findProject(db, project.id) !== undefined],
  ]);
  const access = {
    url: deploy.repositoryUrl,
    remoteBranch: deploy.remoteBranch,
    ssh: sshOf(options, project),
  };
  const finish = async (event: DeployEvent, lines: string[], error?: string) => {
    await log.finish(lines);
    moveDeploy(db, deploy.id, event, error === undefined ? {} : { error });
  };
  // Whether something was sent, by this server or the last one, of which it is not known whether it arrived.
  let isOpen = interrupted;
  try {
    await log.line(`deploy of ${deploy.commitRef} to ${deploy.remoteBranch} of ${deploy.repositoryUrl}`);
    if (
      interrupted &&
      (await remoteBranchHead({ ...access, signal: cancellation.signal })) === deploy.commitRef
    )
      return await finish('deploy', [
        'the push had arrived before the appliance was interrupted',
        'deployed',
      ]);
    await requireOnBranch(options, project, deploy, cancellation.signal);
    // What the remote printed is worth less than what became of the push.
    const notKept = (error: unknown) =>
      options.log.warn('output of a deploy could not be kept', { deploy: deploy.id, cause: error });
    const pushed = await pushCommit({
      ...access,
      mirror: mirrorPath(options.dataDirectory, project.id),
      hash: deploy.commitRef,
      signal: cancellation.signal,
      onOutput: text => {
        isOpen ||= BEGINS_TO_SEND.test(text);
        // Paths that the remote names are its own.
        const shown = text.startsWith('remote:') ? text : hideHostPaths(text, options.dataDirectory);
        log.append(Buffer.from(shown), 0).catch(notKept);
      },
    });
    isOpen = interrupted;
    if (pushed.result === 'rejected') throw new NotDeployed(pushed.reason);
    await finish('deploy', ['deployed']);
  } catch (error) {
    // What a stop interrupts goes on at the next start; of what was deleted nothing is kept.
    const row = findProject(db, project.id) && find();
    if (stopping.aborted || !row) return;
    const because = row.cancelBecause;
    if (because === null && !(error instanceof NotDeployed))
      logFailure(options.log, 'deploy failed', { deploy: deploy.id }, error);
    const stands = isOpen ? await whereBranchStands(options, access, because !== null) : undefined;
    if (stopping.aborted) return;
    if (stands?.head === deploy.commitRef)
      return await finish('deploy', ['the push had arrived all the same', 'deployed']);
    const unknown = stands?.unknown && hideHostPaths(stands.unknown, options.dataDirectory);
    if (because !== null)
      await finish(
        'cancel',
        [`canceled ${because}`, ...(stands ? [unknown ?? standing(deploy, stands.head)] : [])],
        unknown,
      );
    else {
      const lines = [
        hideHostPaths(reasonOf(error), options.dataDirectory),
        ...(unknown === undefined ? [] : [unknown]),
      ];
      await finish('fail', lines, lines.join(' '));
    }
  } finally {
    cancellation.stopWatching();
    // Also where the disk is too full to end it: nobody else would.
    await log.close();
  }
}

type Stands = { head?: string | undefined; unknown?: string };

/** After a push whose end was not seen: it may have arrived, and is never repeated to find out. */
async function whereBranchStands(
  { stopping }: FetchOptions,
  access: { url: string; remoteBranch: string; ssh: SshAccess },
  isCanceled: boolean,
): Promise<Stands> {
  try {
    return {
      head: await remoteBranchHead({
        ...access,
        signal: stopping,
        ...(isCanceled && { deadlineMs: ASK_AFTER_CANCEL_MS }),
      }),
    };
  } catch (error) {
    if (!(error instanceof GitFailure)) throw error;
    return {
      unknown: `Whether the push arrived is not known, because the remote did not say where ${access.remoteBranch} stands (${error.reason}) Look there before you deploy again.`,
    };
  }
}

const standing = ({ remoteBranch }: Deploy, head: string | undefined) =>
  head === undefined
    ? `the remote has no branch ${remoteBranch}; a hook that still runs there may make it yet`
    : `the remote's branch ${remoteBranch} stands at ${head}; a hook that still runs there may move it yet`;

const sshOf = (options: FetchOptions, project: Project) => ({
  dataDirectory: options.dataDirectory,
  privateKey: privateKeyOf(options.db, project),
});

/** A mirror may be behind the repository, and hold what was withdrawn since: neither its yes nor its no is believed before a fetch. */
async function requireOnBranch(
  options: FetchOptions,
  project: Project,
  deploy: Deploy,
  signal: AbortSignal,
): Promise<void> {
  await fetchProject(options, project, signal);
  const mirror = mirrorPath(options.dataDirectory, project.id);
  if (!(await branchContains(mirror, deploy.localBranch, deploy.commitRef)))
    throw new NotDeployed(
      `The branch ${deploy.localBranch} does not contain the commit ${deploy.commitRef}.`,
    );
}

function reasonOf(error: unknown): string {
  if (error instanceof GitFailure) return error.reason;
  if (error instanceof NotDeployed) return error.message;
  return `The service could not push: ${(error as Error).message}`;
}

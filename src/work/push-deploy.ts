// Pushes a deploy: exactly its commit, never forced, never twice. If the result of a push is unknown after a crash, a cancel
// or a broken connection, it reads the remote branch instead of pushing again.

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
import { hostIn } from './host-slots.ts';
import type { WorkKind } from './queue.ts';
import { type FetchOptions, fetchProject, logFailure } from './source/fetch-mirror.ts';

/** The deploy was refused. The message goes to its record and log. */
class NotDeployed extends Error {}

/** What git prints when it begins to send the commit. */
const SENDING_STARTED = /^(?:Enumerating objects|Writing objects|Total )/;
/** Short, because a user is waiting for the cancel. */
const CANCEL_DEADLINE_MS = 20_000;

/** Connects deploys to the queue, one of a project at a time. */
export function deployWork(db: Db, push: (deploy: Deploy, isResumed: boolean) => Promise<void>): WorkKind {
  const list = (state: Deploy['state']) =>
    listFirstDeploys(db)
      .filter(({ deploy }) => deploy.state === state)
      .map(({ deploy, repositoryUrl }) => ({
        deploy,
        key: `deploy ${deploy.projectId}`,
        owner: `deploy ${deploy.projectId}`,
        enqueuedAt: deploy.id,
        groups: [hostIn(deploy.repositoryUrl), hostIn(repositoryUrl)],
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

/** `isResumed` means that a previous server may have pushed already. */
export async function pushDeploy(
  options: FetchOptions & { logLimitBytes: number },
  deploy: Deploy,
  isResumed: boolean,
): Promise<void> {
  const { db, stopping } = options;
  const project = findProject(db, deploy.projectId);
  if (!project) return;
  const path = deployLogPath(options.dataDirectory, deploy.id);
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
  // Whether a commit may have been sent and it is unknown whether it arrived.
  let isUncertain = isResumed;
  try {
    await log.line(`deploy of ${deploy.commitRef} to ${deploy.remoteBranch} of ${deploy.repositoryUrl}`);
    if (
      isResumed &&
      (await remoteBranchHead({ ...access, signal: cancellation.signal })) === deploy.commitRef
    )
      return await finish('deploy', ['the push had arrived before the server was interrupted', 'deployed']);
    await requireOnBranch(options, project, deploy, cancellation.signal);
    // The push counts even if its output cannot be stored.
    const warnNotStored = (error: unknown) =>
      options.log.warn('output of a deploy could not be stored', { deploy: deploy.id, cause: error });
    const pushed = await pushCommit({
      ...access,
      mirror: mirrorPath(options.dataDirectory, project.id),
      hash: deploy.commitRef,
      signal: cancellation.signal,
      onOutput: text => {
        isUncertain ||= SENDING_STARTED.test(text);
        // Paths in lines of the remote are its own.
        const shown = text.startsWith('remote:') ? text : hideHostPaths(text, options.dataDirectory);
        log.append(Buffer.from(shown), 0).catch(warnNotStored);
      },
    });
    isUncertain = isResumed;
    if (pushed.result === 'rejected') throw new NotDeployed(pushed.reason);
    await finish('deploy', ['deployed']);
  } catch (error) {
    // After a stop, the next server continues. A deleted deploy needs no record.
    const row = findProject(db, project.id) && find();
    if (stopping.aborted || !row) return;
    const because = row.cancelBecause;
    if (because === null && !(error instanceof NotDeployed))
      logFailure(options.log, 'deploy failed', { deploy: deploy.id }, error);
    const remote = isUncertain ? await readRemoteBranch(options, access, because !== null) : undefined;
    if (stopping.aborted) return;
    if (remote?.head === deploy.commitRef)
      return await finish('deploy', ['the push had arrived', 'deployed']);
    const unknown = remote?.unknown && hideHostPaths(remote.unknown, options.dataDirectory);
    if (because !== null)
      await finish(
        'cancel',
        [`canceled ${because}`, ...(remote ? [unknown ?? describeBranch(deploy, remote.head)] : [])],
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
    await log.close();
  }
}

type RemoteState = { head?: string | undefined; unknown?: string };

/** Reads the remote branch after a push with an unknown result. */
async function readRemoteBranch(
  { stopping }: FetchOptions,
  access: { url: string; remoteBranch: string; ssh: SshAccess },
  isCanceled: boolean,
): Promise<RemoteState> {
  try {
    return {
      head: await remoteBranchHead({
        ...access,
        signal: stopping,
        ...(isCanceled && { deadlineMs: CANCEL_DEADLINE_MS }),
      }),
    };
  } catch (error) {
    if (!(error instanceof GitFailure)) throw error;
    return {
      unknown: `Whether the push arrived is not known, because ${access.remoteBranch} could not be read: ${error.reason} Look at the remote before you deploy again.`,
    };
  }
}

const describeBranch = ({ remoteBranch }: Deploy, head: string | undefined) =>
  head === undefined
    ? `the remote has no branch ${remoteBranch}; a hook that is still running may create it`
    : `the remote's branch ${remoteBranch} is at ${head}; a hook that is still running may move it`;

const sshOf = (options: FetchOptions, project: Project) => ({
  dataDirectory: options.dataDirectory,
  privateKey: privateKeyOf(options.db, project),
});

/** Fetches first, because the mirror may lack new commits, or contain commits that were removed. */
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

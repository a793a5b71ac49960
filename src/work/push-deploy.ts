// A deploy from start to end: exactly that commit, never forced, never twice. One that a crash interrupted begins by asking
// the remote where its branch stands.

import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { GitFailure } from '../engine/git.ts';
import { branchContains } from '../engine/history.ts';
import { pushCommit, remoteBranchHead } from '../engine/push.ts';
import { openLog } from '../store/log-file.ts';
import { deployLogPath, mirrorPath } from '../store/paths.ts';
import { findProject, type Project, privateKeyOf } from '../store/projects.ts';
import { type Deploy, moveDeploy } from '../store/transition.ts';
import { type FetchParts, fetchProject } from './fetch-commit.ts';

/** Why a deploy did not happen, in words for its record and log. */
class NotDeployed extends Error {}

export async function pushDeploy(
  parts: FetchParts & { logLimitBytes: number },
  deploy: Deploy,
): Promise<void> {
  const { db, stopping } = parts;
  const interrupted = deploy.state === 'deploying';
  if (!interrupted && !moveDeploy(db, deploy.id, 'start')) return;
  const project = findProject(db, deploy.projectId);
  if (!project) return;
  const path = deployLogPath(parts.dataDirectory, deploy.id);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const log = await openLog({ path, limitBytes: parts.logLimitBytes });
  try {
    const say = (text: string) => log.line(text);
    await say(`deploy of ${deploy.commitRef} to ${deploy.remoteBranch} of ${deploy.repositoryUrl}`);
    const access = {
      url: deploy.repositoryUrl,
      remoteBranch: deploy.remoteBranch,
      ssh: sshOf(parts, project),
    };
    if (interrupted && (await remoteBranchHead({ ...access, signal: stopping })) === deploy.commitRef) {
      await say('the push had arrived before the appliance was interrupted');
    } else {
      await requireOnBranch(parts, project, deploy);
      // What the remote says of it is worth less than what became of the push.
      const notKept = (cause: unknown) =>
        parts.log.warn('words of a deploy could not be kept', { deploy: deploy.id, cause });
      const pushed = await pushCommit({
        ...access,
        mirror: mirrorPath(parts.dataDirectory, project.id),
        hash: deploy.commitRef,
        signal: stopping,
        onOutput: text => void log.append(Buffer.from(text), 0).catch(notKept),
      });
      // The push that a crash interrupted may have arrived while this one was on its way.
      if (
        pushed.result === 'rejected' &&
        !(interrupted && (await remoteBranchHead({ ...access, signal: stopping })) === deploy.commitRef)
      )
        throw new NotDeployed(pushed.reason);
    }
    await log.finish(['deployed']);
    moveDeploy(db, deploy.id, 'deploy');
  } catch (cause) {
    // What a stop interrupts goes on at the next start.
    if (stopping.aborted) return;
    const error = reasonOf(cause);
    if (!(cause instanceof GitFailure || cause instanceof NotDeployed))
      parts.log.error('deploy failed', { deploy: deploy.id, cause });
    await log.finish([error]);
    moveDeploy(db, deploy.id, 'fail', { error });
  } finally {
    // Also where the disk is too full to end it: nobody else would.
    await log.close();
  }
}

const sshOf = (parts: FetchParts, project: Project) => ({
  dataDirectory: parts.dataDirectory,
  privateKey: privateKeyOf(parts.db, project),
});

/** A mirror may be behind the repository, and hold what was withdrawn since: neither its yes nor its no is believed before a fetch. */
async function requireOnBranch(parts: FetchParts, project: Project, deploy: Deploy): Promise<void> {
  await fetchProject(parts, project);
  const mirror = mirrorPath(parts.dataDirectory, project.id);
  if (!(await branchContains(mirror, deploy.localBranch, deploy.commitRef)))
    throw new NotDeployed(
      `The branch ${deploy.localBranch} does not contain the commit ${deploy.commitRef}.`,
    );
}

function reasonOf(cause: unknown): string {
  if (cause instanceof GitFailure) return cause.reason;
  if (cause instanceof NotDeployed) return cause.message;
  return `The service could not push: ${(cause as Error).message}`;
}

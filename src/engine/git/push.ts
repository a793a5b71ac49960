// Pushes one commit to one remote branch for a deploy, never forced, and reads the head of a remote branch.

import { fullHash, GitFailure, hostOf, plainName, runGit } from './git.ts';
import { type SshAccess, withSsh } from './ssh.ts';

type Push = {
  mirror: string;
  url: string;
  hash: string;
  remoteBranch: string;
  ssh: SshAccess;
  signal?: AbortSignal;
  stallMs?: number;
  /** Receives complete lines of git and of the remote's hooks. Of a line that redraws itself, only the last state. */
  onOutput?: (text: string) => void;
};

/** `up_to_date`: the branch was already at that commit. `rejected`: the remote is unchanged. */
type PushOutcome = { result: 'pushed' | 'up_to_date' } | { result: 'rejected'; reason: string };

const STALL_MS = 60_000;
const DEADLINE_MS = 3_600_000;
const HEAD_DEADLINE_MS = 60_000;

export async function pushCommit(push: Push): Promise<PushOutcome> {
  const host = hostOf(push.url);
  const target = `refs/heads/${plainName(push.remoteBranch)}`;
  // The left side is a full hash: an empty one would delete the branch.
  const refspec = `${fullHash(push.hash)}:${target}`;
  const lines = { output: splitLines(push.onOutput), messages: splitLines(push.onOutput) };
  const { output, exitCode, messages } = await withSsh(push.ssh, ssh =>
    runGit(
      [
        'push',
        '--porcelain',
        '--progress',
        '--no-verify',
        '--no-recurse-submodules',
        '--',
        push.url,
        refspec,
      ],
      {
        repository: push.mirror,
        ssh,
        host,
        signal: push.signal,
        stallMs: push.stallMs ?? STALL_MS,
        deadlineMs: DEADLINE_MS,
        acceptedExitCodes: [0, 1],
        onOutput: (chunk, from) => lines[from].add(chunk),
      },
    ),
  ).finally(() => {
    lines.messages.end();
    lines.output.end();
  });
  const [, flag, summary = ''] = /^([ *=!])\t[^\t]*\t([^\n]*)/m.exec(output) ?? [];
  if (exitCode === 0 && flag === '=') return { result: 'up_to_date' };
  if (exitCode === 0 && (flag === ' ' || flag === '*')) return { result: 'pushed' };
  if (flag !== '!') throw new GitFailure('git did not report the result of the push.', messages);
  return { result: 'rejected', reason: await explainRejection(push, summary) };
}

async function explainRejection(push: Push, summary: string): Promise<string> {
  if (!/non-fast-forward|fetch first|stale info/.test(summary)) {
    const reason = /\(([^)]*)\)/.exec(summary)?.[1] ?? summary;
    return `The remote refused the push to ${push.remoteBranch}: ${reason}.`;
  }
  const head = await remoteBranchHead(push);
  if (head && (await isAncestor(push.mirror, push.hash, head))) {
    return `The remote branch ${push.remoteBranch} already contains the commit and is ahead of it, so there is nothing to push.`;
  }
  return `The remote branch ${push.remoteBranch} has commits that this one does not include, and a push is never forced: merge them first.`;
}

// Exit status 128: the mirror does not have the head, so the two cannot be compared.
async function isAncestor(mirror: string, hash: string, head: string): Promise<boolean> {
  const { exitCode } = await runGit(['merge-base', '--is-ancestor', hash, head], {
    repository: mirror,
    acceptedExitCodes: [0, 1, 128],
  });
  return exitCode === 0;
}

type RemoteBranch = {
  url: string;
  remoteBranch: string;
  ssh: SshAccess;
  signal?: AbortSignal;
  deadlineMs?: number;
};

/** Undefined if the remote has no such branch. */
export async function remoteBranchHead(branch: RemoteBranch): Promise<string | undefined> {
  const host = hostOf(branch.url);
  const name = `refs/heads/${plainName(branch.remoteBranch)}`;
  const { output } = await withSsh(branch.ssh, ssh =>
    runGit(['ls-remote', '--', branch.url, name], {
      ssh,
      host,
      signal: branch.signal,
      deadlineMs: branch.deadlineMs ?? HEAD_DEADLINE_MS,
    }),
  );
  const found = output.split('\n').map(line => line.split('\t'));
  return found.find(([, ref]) => ref === name)?.[0];
}

function splitLines(onOutput: Push['onOutput']) {
  const decoder = new TextDecoder();
  let rest = '';
  const emit = (line: string) => {
    const shown = line.slice(line.lastIndexOf('\r', line.length - 2) + 1).trimEnd();
    if (shown !== '') onOutput?.(`${shown}\n`);
  };
  return {
    add(chunk: Buffer) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) emit(line);
    },
    end() {
      emit(rest + decoder.decode());
      rest = '';
    },
  };
}

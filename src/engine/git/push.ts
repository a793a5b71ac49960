// A deploy's way out: one commit pushed to one branch, never forced, and the question where that branch
// stands. Which commit may go where is decided in work/push-deploy.ts.
import { fullHash, GitFailure, hostOf, plainName, runGit } from './git.ts';
import { type SshAccess, withSsh } from './ssh.ts';

export interface Push {
  mirror: string;
  url: string;
  hash: string;
  remoteBranch: string;
  ssh: SshAccess;
  signal?: AbortSignal;
  stallMs?: number;
  // Whole lines, as git and the remote's hooks print them; of a line that redraws itself the last state.
  onOutput?: (text: string) => void;
}

// `up_to_date`: the branch stood at that commit already. `rejected`: the remote is as it was.
export type PushOutcome = { result: 'pushed' | 'up_to_date' } | { result: 'rejected'; reason: string };

const STALL_MS = 60_000;
const DEADLINE_MS = 3_600_000;
const ASK_DEADLINE_MS = 60_000;

export async function pushCommit(push: Push): Promise<PushOutcome> {
  const host = hostOf(push.url);
  const target = `refs/heads/${plainName(push.remoteBranch)}`;
  // The left side is a full hash, never empty: an empty one would delete the branch.
  const refspec = `${fullHash(push.hash)}:${target}`;
  const said = { output: splitLines(push.onOutput), messages: splitLines(push.onOutput) };
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
        onOutput: (chunk, from) => said[from].add(chunk),
      },
    ),
  ).finally(() => {
    said.messages.end();
    said.output.end();
  });
  const [, flag, summary = ''] = /^([ *=!])\t[^\t]*\t([^\n]*)/m.exec(output) ?? [];
  if (exitCode === 0 && flag === '=') return { result: 'up_to_date' };
  if (exitCode === 0 && (flag === ' ' || flag === '*')) return { result: 'pushed' };
  if (flag !== '!') throw new GitFailure('git did not say what became of the push.', messages);
  return { result: 'rejected', reason: await whyRejected(push, summary) };
}

async function whyRejected(push: Push, summary: string): Promise<string> {
  if (!/non-fast-forward|fetch first|stale info/.test(summary)) {
    const said = /\(([^)]*)\)/.exec(summary)?.[1] ?? summary;
    return `The remote refused the push to ${push.remoteBranch}: ${said}.`;
  }
  const head = await remoteBranchHead(push);
  if (head && (await isAncestor(push.mirror, push.hash, head))) {
    return `The remote branch ${push.remoteBranch} already contains the commit and is ahead of it, so there is nothing to push.`;
  }
  return `The remote branch ${push.remoteBranch} has commits that this one does not build on, and a push is never forced: bring them together first.`;
}

// A head that this mirror does not know cannot be compared: exit 128.
async function isAncestor(mirror: string, hash: string, head: string): Promise<boolean> {
  const { exitCode } = await runGit(['merge-base', '--is-ancestor', hash, head], {
    repository: mirror,
    acceptedExitCodes: [0, 1, 128],
  });
  return exitCode === 0;
}

export interface AskRemoteBranch {
  url: string;
  remoteBranch: string;
  ssh: SshAccess;
  signal?: AbortSignal;
  deadlineMs?: number;
}

// undefined: the remote has no such branch.
export async function remoteBranchHead(ask: AskRemoteBranch): Promise<string | undefined> {
  const host = hostOf(ask.url);
  const name = `refs/heads/${plainName(ask.remoteBranch)}`;
  const { output } = await withSsh(ask.ssh, ssh =>
    runGit(['ls-remote', '--', ask.url, name], {
      ssh,
      host,
      signal: ask.signal,
      deadlineMs: ask.deadlineMs ?? ASK_DEADLINE_MS,
    }),
  );
  const found = output.split('\n').map(line => line.split('\t'));
  return found.find(([, ref]) => ref === name)?.[0];
}

function splitLines(onOutput: Push['onOutput']) {
  const decoder = new TextDecoder();
  let rest = '';
  const say = (line: string) => {
    const shown = line.slice(line.lastIndexOf('\r', line.length - 2) + 1).trimEnd();
    if (shown !== '') onOutput?.(`${shown}\n`);
  };
  return {
    add(chunk: Buffer) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) say(line);
    },
    end() {
      say(rest + decoder.decode());
      rest = '';
    },
  };
}

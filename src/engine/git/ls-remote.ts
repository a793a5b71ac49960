// Lists the branches and tags of a remote repository, without a mirror.

import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { shellQuote } from '../../domain/text/shell.ts';
import { GitFailure, hostOf, runGit } from './git.ts';
import { type SshAccess, type SshSession, withSsh } from './ssh.ts';

export type ListRemote = { url: string; ssh: SshAccess; signal?: AbortSignal; deadlineMs?: number };

export type RemoteRefs = {
  /** Its full name. Undefined if the repository is empty or its HEAD is no branch. */
  defaultBranch: string | undefined;
  /** Hashes by full name. An annotated tag has the hash of the commit that it names. */
  refs: Map<string, string>;
  /** Equal for equal answers. */
  digest: string;
};

const DEADLINE_MS = 30_000;
const OUTPUT_MAX_BYTES = 32 * 1024 ** 2;
// git keeps the whole answer in memory before it prints the first line. Hosts may also send refs that are not asked for.
const ANSWER_MAX_BYTES = 64 * 1024 ** 2;
const TOO_LARGE = 'the answer of the host is too large';
const SHOWN_CHARACTERS = 80;
// ssh prefers sntrup761, which takes nine tenths of the time of a look, here and on the host. It protects what is sent from
// quantum computers of the future: code is worth that, a list of refs is not.
const KEY_EXCHANGE = '^curve25519-sha256';

/** Throws a GitFailure unless the answer is complete and every line of it is valid. */
export async function listRemote(list: ListRemote): Promise<RemoteRefs> {
  const host = hostOf(list.url);
  const tooLarge = `The host ${host} lists more branches and tags than can be read: delete old ones.`;
  const answer = readAnswer(host);
  try {
    await withSsh({ ...list.ssh, keyExchange: KEY_EXCHANGE }, async session =>
      runGit(['ls-remote', '--symref', '--', list.url, 'HEAD', 'refs/heads/*', 'refs/tags/*'], {
        ssh: await limitAnswer(session),
        host,
        signal: list.signal,
        deadlineMs: list.deadlineMs ?? DEADLINE_MS,
        outputMax: { bytes: OUTPUT_MAX_BYTES, reason: tooLarge },
        isStreamed: true,
        onOutput: (chunk, from) => {
          if (from === 'output') answer.add(chunk);
        },
      }),
    );
  } catch (error) {
    if (error instanceof GitFailure && error.detail.includes(TOO_LARGE))
      throw new GitFailure(tooLarge, error.detail);
    throw error;
  }
  return answer.end();
}

/**
 * Ends the connection when the host has sent too much. dd passes on each piece at once; head would wait for more. dd counts
 * reads, even of less than a block, so blocks are small: what arrives in pieces must not use up the count.
 */
async function limitAnswer(session: SshSession): Promise<SshSession> {
  const script = join(session.directory, 'limited-ssh');
  const pid = shellQuote(join(session.directory, 'pid'));
  const config = shellQuote(join(session.directory, 'config'));
  await writeFile(
    script,
    `sh -c 'echo $$ >"$0"; exec ssh -F "$@"' ${pid} ${config} "$@" | {
  dd bs=1k count=${ANSWER_MAX_BYTES / 1024} status=none
  [ "$(head -c 1 | wc -c)" -eq 0 ] || echo 'fatal: ${TOO_LARGE}' >&2
}
`,
  );
  return {
    ...session,
    environment: { ...session.environment, GIT_SSH_COMMAND: `sh ${shellQuote(script)}` },
  };
}

function readAnswer(host: string) {
  const refs = new Map<string, string>();
  const digest = createHash('sha256');
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let defaultBranch: string | undefined;
  let lastRef = '';
  let rest = '';
  let invalid: string | undefined;

  const isValid = (line: string): boolean => {
    const [, target, hash, name = '', peeled] =
      /^(?:ref: (refs\/[^\t]+)|([0-9a-f]{40}|[0-9a-f]{64}))\t([^\t^]+)(\^\{\})?$/.exec(line) ?? [];
    if (!isRefName(name) || (target !== undefined && !isRefName(target))) return false;
    if (target !== undefined) {
      if (name === 'HEAD' && target.startsWith('refs/heads/')) defaultBranch = target;
    } else if (/^refs\/(?:heads|tags)\//.test(name)) {
      // The commit of an annotated tag follows the tag itself.
      if (peeled ? name !== lastRef : refs.has(name)) return false;
      refs.set(name, hash as string);
      lastRef = peeled ? '' : name;
    }
    return true;
  };

  return {
    add(chunk: Buffer): void {
      if (invalid !== undefined) return;
      digest.update(chunk);
      try {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
        rest = lines.pop() ?? '';
        invalid = lines.find(line => !isValid(line));
      } catch {
        invalid = chunk.toString();
      }
    },
    end(): RemoteRefs {
      if (rest !== '') invalid ??= rest;
      if (invalid !== undefined)
        throw new GitFailure(
          `The host ${host} sent a list of branches and tags with an invalid line (${JSON.stringify(invalid.slice(0, SHOWN_CHARACTERS))}): check the repository with git fsck.`,
        );
      return { defaultBranch, refs, digest: digest.digest('hex') };
    },
  };
}

/** The rules of `git check-ref-format`. */
function isRefName(name: string): boolean {
  return (
    !/[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\/\/|\/\.|\.$|\/$|\.lock(?:\/|$)/.test(name) &&
    /^(?:HEAD$|refs\/.)/.test(name)
  );
}

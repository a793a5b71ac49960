// Turns the error output of git and ssh into one sentence that says what to do.

import { CONNECT_TIMEOUT_MS } from './ssh.ts';

type FailureContext = { host?: string; connectTimeoutMs?: number };

type Explanation = [
  pattern: RegExp,
  sentence: (found: RegExpExecArray, host: string, seconds: number) => string,
];

// The first match is used, so causes come before their consequences.
const EXPLANATIONS: Explanation[] = [
  [/spawn git ENOENT/, () => 'git is not installed on this server: install it and try again.'],
  [
    /ssh: (?:not found|command not found|No such file)|cannot run ssh\b/,
    () => 'The OpenSSH client is not installed on this server: install it and try again.',
  ],
  [
    /No space left on device|Disk quota exceeded/,
    () => "The disk of this server is full: free disk space in the data directory's file system.",
  ],
  [
    /^(?:\S+: line \d+: |\S+: )?((?:Bad configuration option|[^\n]*bad configuration options|[^\n]*(?:garbage at end of line|[Mm]issing argument|Bad number|unsupported option))[^\n]*)/m,
    ([, line]) => `The file ssh/config in the data directory has a mistake (${line}): correct it.`,
  ],
  [
    /Host key for (\S+) has changed/,
    ([, changed]) =>
      `The host key of ${changed} has changed, so nothing was sent to it. If the change is legitimate, remove its line from ssh/known_hosts in the data directory.`,
  ],
  [
    /Host key verification failed|No \S+ host key is known/,
    (_, host) =>
      `The host key of ${host} could not be verified: add the right one to ssh/known_hosts in the data directory.`,
  ],
  [
    /Could not resolve hostname (\S+?):/,
    ([, name]) =>
      `The host name ${name} cannot be resolved: check the repository URL, or the server's name service.`,
  ],
  [
    /connect to host (\S+) port (\d+): Connection refused/,
    ([, name, port]) =>
      `The host ${name} refuses connections on port ${port}: check that its SSH server is running.`,
  ],
  [
    /timed out|Timeout, server \S+ not responding/,
    (_, host, seconds) =>
      `The host ${host} did not answer within ${seconds} s: check the repository URL, the host and the network in between.`,
  ],
  [
    /No route to host|Network is unreachable/,
    (_, host) => `The host ${host} cannot be reached from this server: check the network.`,
  ],
  [
    /no matching (host key type|key exchange method|cipher|MAC) found/,
    ([, kind], host) =>
      `This server and the host ${host} have no ${kind} in common: update the host's SSH server, or allow its algorithm in ssh/config in the data directory.`,
  ],
  [
    /Permission denied \([^)]*\)|Too many authentication failures/,
    (_, host) =>
      `The host ${host} refused the project's key: install the project's SSH public key in the repository.`,
  ],
  [
    /does not appear to be a git repository|[Rr]epository not found|[Rr]epository '[^']*' (?:not found|does not exist)|project you were looking for could not be found|not a git repository: /,
    (_, host) =>
      `The host ${host} has no such repository, or the project's key has no access to it: check the repository URL.`,
  ],
  [
    /Exceeded MaxStartups|Not allowed at this time|kex_exchange_identification|Connection (?:closed|reset) by|Broken pipe/,
    (_, host) =>
      `The host ${host} closed the connection: check that its SSH server accepts connections from here, and try again.`,
  ],
  [
    /protocol error: bad line length/,
    (_, host) =>
      `The host ${host} answered with something that is not git: check that a login as that user prints nothing.`,
  ],
  [
    /^(?:fatal|error): (fsck error[^\n]*|object \w+: [^\n]*)/m,
    ([, line]) => `The repository has an object that git considers damaged or dangerous (${line}).`,
  ],
  [
    /early EOF|hung up unexpectedly|unexpected disconnect|index-pack failed|invalid index-pack output/,
    (_, host) => `The connection to ${host} was interrupted: try again.`,
  ],
];

export function explain(
  stderr: string,
  { host = 'of the repository', connectTimeoutMs = CONNECT_TIMEOUT_MS }: FailureContext = {},
): string {
  const seconds = Math.ceil(connectTimeoutMs / 1000);
  for (const [pattern, sentence] of EXPLANATIONS) {
    const found = pattern.exec(stderr);
    if (found) return sentence(found, host, seconds);
  }
  return `git failed: ${findMessage(stderr) ?? 'it gave no reason.'}`;
}

function findMessage(stderr: string): string | undefined {
  const lines = stderr.split('\n').map(line => line.trim());
  return lines.find(line => /^(?:fatal|error): /.test(line)) ?? lines.findLast(line => line !== '');
}

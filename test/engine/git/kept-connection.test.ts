// SSH connections that are kept between fetches: when they are used, when not, and that they end.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { closeKept } from '../../../src/engine/git/kept-connection.ts';
import { fetchMirror } from '../../../src/engine/git/mirror.ts';
import { pushCommit } from '../../../src/engine/git/push.ts';
import { clearSshLeftovers } from '../../../src/engine/git/ssh.ts';
import { failure, startGitHost } from '../../support/git-host.ts';

const { sshd, dataDirectory, ssh, remote } = await startGitHost();
const repository = remote([{ message: 'First\n', files: { a: '1' } }]);
const { publicKey, privateKey } = generateKeyPair('kept');
const refused = failure(/refused the project's key/);
const directory = join(dataDirectory, 'tmp', 'kept');

const fetchOf = (options: { data?: string; key?: string; name?: string } = {}) => ({
  mirror: repository.mirror,
  url: repository.url,
  ssh: { dataDirectory: options.data ?? dataDirectory, privateKey: options.key ?? privateKey },
  connectionName: options.name ?? '7',
});
const socketOf = (name = '7') => {
  const [found] = readdirSync(directory).filter(one => one.startsWith(`${name}-`));
  return found && join(directory, found);
};
/** The process that keeps a connection. */
function keeperOf(socket: string): number {
  const args = ['-F', '/dev/null', '-o', `ControlPath=${socket}`, '-O', 'check', 'kept'];
  const printed = execFileSync('sh', ['-c', 'ssh "$@" 2>&1', 'sh', ...args], { encoding: 'utf8' });
  return Number(/pid=(\d+)/.exec(printed)?.[1]);
}

beforeEach(async () => {
  sshd.addKey(publicKey);
  await fetchMirror(fetchOf());
  // Whoever connects again is refused from now on.
  sshd.removeKey(publicKey);
});
afterEach(() => closeKept(dataDirectory));

test('the next fetch uses the connection of the last one, until it is closed', async () => {
  await fetchMirror(fetchOf());
  const keeper = keeperOf(socketOf() as string);
  await closeKept(dataDirectory, '8');
  await fetchMirror(fetchOf());
  await closeKept(dataDirectory, '7');
  assert.equal(socketOf(), undefined);
  await assert.rejects(fetchMirror(fetchOf()), refused);
  assert.ok(!existsSync(`/proc/${keeper}/exe`), 'the process is still there');
});

test('another name and another key have connections of their own', async () => {
  await assert.rejects(fetchMirror(fetchOf({ name: '77' })), refused);
  const other = generateKeyPair('other');
  await assert.rejects(fetchMirror(fetchOf({ key: other.privateKey })), refused);
  await fetchMirror(fetchOf());
});

test('a push connects again', async () => {
  const push = {
    mirror: repository.mirror,
    url: repository.url,
    hash: repository.hashes[0] as string,
    remoteBranch: 'deployed',
    ssh: { ...ssh, privateKey },
    onOutput: () => {},
  };
  await assert.rejects(pushCommit(push as never), refused);
});

test('a connection that was made with another ssh/config or other known hosts is not used', async () => {
  for (const file of ['config', 'known_hosts']) {
    sshd.addKey(publicKey);
    await fetchMirror(fetchOf());
    sshd.removeKey(publicKey);
    await fetchMirror(fetchOf());
    const later = Date.now() / 1000 + 5;
    utimesSync(join(dataDirectory, 'ssh', file), later, later);
    await assert.rejects(fetchMirror(fetchOf()), refused, file);
    const now = Date.now() / 1000 - 5;
    utimesSync(join(dataDirectory, 'ssh', file), now, now);
  }
});

test('if the connection is broken, the fetch connects again', async () => {
  const socket = socketOf() as string;
  process.kill(keeperOf(socket), 'SIGKILL');
  await assert.rejects(fetchMirror(fetchOf()), refused);
  sshd.addKey(publicKey);
  await fetchMirror(fetchOf());
  sshd.endSessions();
  await fetchMirror(fetchOf());
  await closeKept(dataDirectory);
  // A process that accepts the call, and never answers it properly.
  const broken = createServer(connection => connection.on('error', () => {}).end('nothing useful')).listen(
    socket,
  );
  await once(broken, 'listening');
  await fetchMirror(fetchOf());
  broken.close();
});

test('the connections of a killed server are closed at the next start', async () => {
  const keeper = keeperOf(socketOf() as string);
  await clearSshLeftovers(dataDirectory);
  assert.deepEqual(readdirSync(directory), []);
  assert.ok(!existsSync(`/proc/${keeper}/exe`), 'the process is still there');
});

test('in a data directory with a long path, every fetch connects again', async () => {
  const parent = mkdtempSync(join(tmpdir(), 'assay-kept-'));
  const data = join(parent, 'x'.repeat(80));
  mkdirSync(join(data, 'ssh'), { recursive: true });
  writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
  try {
    sshd.addKey(publicKey);
    await fetchMirror(fetchOf({ data }));
    sshd.removeKey(publicKey);
    await assert.rejects(fetchMirror(fetchOf({ data })), refused);
  } finally {
    rmSync(parent, { recursive: true, force: true });
  }
});

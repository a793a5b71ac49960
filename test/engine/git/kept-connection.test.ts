// SSH connections that are kept between fetches: when they are used, when not, and that they end.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { closeKept, withKeptSsh } from '../../../src/engine/git/kept-connection.ts';
import { type FetchMirror, fetchMirror } from '../../../src/engine/git/mirror.ts';
import { pushCommit } from '../../../src/engine/git/push.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { failure, startGitHost } from '../../support/git-host.ts';

const { sshd, dataDirectory, remote } = await startGitHost();
const repository = remote([{ message: 'First\n', files: { a: '1' } }]);
const { publicKey, privateKey } = generateKeyPair('kept');
const refused = failure(/refused the project's key/);
const tmp = join(dataDirectory, 'tmp');

const fetchOf = (options: { data?: string; key?: string; name?: string } = {}) => ({
  mirror: repository.mirror,
  url: repository.url,
  ssh: { dataDirectory: options.data ?? dataDirectory, privateKey: options.key ?? privateKey },
  connection: { name: options.name ?? '7' },
});

/** The processes that keep connections of a data directory. */
function listKeepers(data = dataDirectory): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return command.startsWith('ssh\0') && command.includes(join(data, 'tmp'));
      } catch {
        // It has ended meanwhile.
        return false;
      }
    })
    .map(Number);
}
const untilNoneKept = async (data = dataDirectory) =>
  assert.deepEqual(
    await pollUntil(
      10_000,
      async () => listKeepers(data),
      found => found.length === 0,
      20,
    ),
    [],
  );

beforeEach(async () => {
  sshd.addKey(publicKey);
  await fetchMirror(fetchOf());
  // Whoever connects again is refused from now on.
  sshd.removeKey(publicKey);
});
afterEach(async () => {
  await closeKept(dataDirectory);
  assert.deepEqual(readdirSync(tmp), []);
  assert.deepEqual(listKeepers(), []);
});

test('the next fetch uses the connection of the last one, until it is closed', async () => {
  await fetchMirror(fetchOf());
  await closeKept(dataDirectory, '8');
  await fetchMirror(fetchOf());
  assert.equal(listKeepers().length, 1);
  await closeKept(dataDirectory, '7');
  assert.deepEqual(listKeepers(), []);
  assert.deepEqual(readdirSync(tmp), []);
  await assert.rejects(fetchMirror(fetchOf()), refused);
});

test('the key is not on the disk while the connection is kept, and only its owner can read the directory', () => {
  const [name = ''] = readdirSync(tmp);
  assert.equal(statSync(join(tmp, name)).mode & 0o777, 0o700);
  assert.ok(!existsSync(join(tmp, name, 'key')));
  assert.ok(existsSync(join(tmp, name, 'socket')));
});

test('the host gets the version of the protocol over a kept connection too', async () => {
  await closeKept(dataDirectory);
  const asked = join(sshd.repositoriesDirectory, 'asked');
  sshd.addKey(publicKey, `echo "$GIT_PROTOCOL" >>${asked}; exec sh -c "$SSH_ORIGINAL_COMMAND"`);
  await fetchMirror(fetchOf());
  const { connection: _, ...fetch } = fetchOf();
  await fetchMirror(fetch);
  const [kept, plain] = readFileSync(asked, 'utf8').split('\n');
  assert.equal(kept, plain);
  assert.match(kept ?? '', /version=2/);
});

test('another name and another key have connections of their own', async () => {
  await assert.rejects(fetchMirror(fetchOf({ name: '77' })), refused);
  await fetchMirror(fetchOf());
  const other = generateKeyPair('other');
  await assert.rejects(fetchMirror(fetchOf({ key: other.privateKey })), refused);
  // One name has one connection.
  await assert.rejects(fetchMirror(fetchOf()), refused);
});

test('a push connects again', async () => {
  const push = {
    mirror: repository.mirror,
    url: repository.url,
    hash: repository.hashes[0] as string,
    remoteBranch: 'deployed',
    ssh: { dataDirectory, privateKey },
  };
  await assert.rejects(pushCommit(push), refused);
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
  }
});

test('a connection whose process or host has gone is replaced', async () => {
  process.kill(listKeepers()[0] as number, 'SIGKILL');
  await assert.rejects(fetchMirror(fetchOf()), refused);
  sshd.addKey(publicKey);
  await fetchMirror(fetchOf());
  sshd.endSessions();
  await fetchMirror(fetchOf());
});

test('a fetch on a connection that does not answer is repeated without it', async () => {
  process.kill(listKeepers()[0] as number, 'SIGSTOP');
  await assert.rejects(fetchMirror(fetchOf()), refused);
  assert.deepEqual(listKeepers(), []);
});

test('a canceled fetch ends its connection, and with it what runs on the host', async () => {
  await closeKept(dataDirectory);
  const pidFile = join(sshd.repositoriesDirectory, 'pid');
  sshd.addKey(publicKey, `echo $$ >${pidFile}.new; mv ${pidFile}.new ${pidFile}; exec cat >/dev/null`);
  const canceled = new AbortController();
  const fetch = fetchMirror({ ...fetchOf(), signal: canceled.signal });
  const until = (isMet: () => boolean) =>
    pollUntil(
      10_000,
      async () => isMet(),
      met => met,
      20,
    );
  assert.ok(await until(() => existsSync(pidFile)));
  canceled.abort();
  await assert.rejects(fetch, failure(/canceled/));
  assert.deepEqual(listKeepers(), []);
  const pid = readFileSync(pidFile, 'utf8').trim();
  assert.ok(await until(() => !existsSync(`/proc/${pid}`)));
});

test('a connection that is no longer wanted is closed at once, or after the call that uses it', async () => {
  sshd.addKey(publicKey);
  let close = () => {};
  let watching = 0;
  const watch: NonNullable<FetchMirror['connection']>['watch'] = given => {
    close = given;
    watching += 1;
    return () => {
      watching -= 1;
    };
  };
  const fetch = { ...fetchOf(), connection: { name: '9', watch } };
  await fetchMirror(fetch);
  assert.equal(listKeepers().length, 2);
  close();
  assert.equal(watching, 0);
  await fetchMirror(fetch);
  await fetchMirror({ ...fetch, onOutput: () => close() });
  assert.equal(watching, 0);
  await closeKept(dataDirectory, '9');
  assert.equal(listKeepers().length, 1);
});

test('two calls at the same time both succeed, and one connection is kept', async () => {
  sshd.addKey(publicKey);
  const call = { name: '9', destination: repository.url.split(':')[0] as string, host: 'h', openMs: 10_000 };
  const ssh = { dataDirectory, privateKey };
  await Promise.all([1, 2].map(() => withKeptSsh(ssh, call, async () => {})));
  assert.equal(listKeepers().length, 2);
});

test('no more than 16 connections are kept', async () => {
  sshd.addKey(publicKey);
  const ssh = { dataDirectory, privateKey };
  const destination = repository.url.split(':')[0] as string;
  for (let name = 0; name < 4; name++)
    await Promise.all(
      [0, 1, 2, 3, 4].map(at =>
        withKeptSsh(ssh, { name: `${name} ${at}`, destination, host: 'h', openMs: 60_000 }, async () => {}),
      ),
    );
  const kept = await pollUntil(
    10_000,
    async () => listKeepers().length,
    found => found <= 16,
    20,
  );
  assert.equal(kept, 16);
});

test('connections end with the process, even if it is killed', async () => {
  await closeKept(dataDirectory);
  sshd.addKey(publicKey);
  const script = `import { fetchMirror } from ${JSON.stringify(join(import.meta.dirname, '../../../src/engine/git/mirror.ts'))};
await fetchMirror(JSON.parse(process.argv[1]));
console.log('fetched');
setInterval(() => {}, 1000);`;
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', script, '--', JSON.stringify(fetchOf())],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = once(child, 'exit');
  await once(child.stdout, 'data');
  assert.equal(listKeepers().length, 1);
  child.kill('SIGKILL');
  await ended;
  await untilNoneKept();
  rmSync(tmp, { recursive: true });
  mkdirSync(tmp);
});

test('the path of the data directory may be long', async () => {
  const parent = mkdtempSync(join(tmpdir(), 'assay-kept-'));
  const data = join(parent, 'x'.repeat(200), "it's 100% long");
  mkdirSync(join(data, 'ssh'), { recursive: true });
  writeFileSync(join(data, 'ssh', 'config'), sshd.clientConfig);
  try {
    sshd.addKey(publicKey);
    await fetchMirror(fetchOf({ data }));
    sshd.removeKey(publicKey);
    await fetchMirror(fetchOf({ data }));
    await closeKept(data);
    await untilNoneKept(data);
  } finally {
    rmSync(parent, { recursive: true, force: true });
  }
});

// SSH keys, the client configuration, and the messages for errors of ssh and git.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { formatKeyPair, generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { explain } from '../../../src/engine/git/explain.ts';
import { clearSshLeftovers, withSsh } from '../../../src/engine/git/ssh.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-ssh-test-'));
after(() => rmSync(directory, { recursive: true, force: true }));

function sshKeygen(...args: string[]): string {
  return execFileSync('ssh-keygen', args, { encoding: 'utf8' }).trim();
}

test('ssh-keygen reads both halves of a generated key pair', () => {
  for (const comment of [
    'assay project 7',
    'a',
    'ab',
    'abc',
    'abcd',
    'abcde',
    'abcdef',
    'abcdefg',
    'Ünïcode',
  ]) {
    const { publicKey, privateKey } = generateKeyPair(comment);
    const file = join(directory, 'key');
    writeFileSync(file, privateKey, { mode: 0o600 });
    assert.match(publicKey, /^ssh-ed25519 AAAA\S+ \S/);
    assert.equal(sshKeygen('-y', '-P', '', '-f', file), publicKey);
    rmSync(file);
  }
});

test('two key pairs are never the same', () => {
  assert.notEqual(generateKeyPair('x').publicKey, generateKeyPair('x').publicKey);
});

test('a line break in the comment cannot add a line to an authorized_keys file', () => {
  const parts = { seed: Buffer.alloc(32, 1), point: Buffer.alloc(32, 2), check: Buffer.alloc(4) };
  const { publicKey } = formatKeyPair({ ...parts, comment: 'one\nssh-ed25519 AAAA evil' });
  assert.equal(publicKey.split('\n').length, 1);
});

test('the private key is on disk only during the call, and only for this user', async () => {
  const dataDirectory = join(directory, 'data');
  const { privateKey } = generateKeyPair('x');
  const seen = await withSsh({ dataDirectory, privateKey }, async session => {
    const key = join(session.directory, 'key');
    assert.ok(session.directory.startsWith(join(dataDirectory, 'tmp')));
    assert.equal(statSync(session.directory).mode & 0o777, 0o700);
    assert.equal(statSync(key).mode & 0o777, 0o600);
    assert.equal(readFileSync(key, 'utf8'), privateKey);
    assert.ok(!JSON.stringify(session.environment).includes('PRIVATE KEY'));
    return session.directory;
  });
  assert.ok(!existsSync(seen));
  await assert.rejects(
    withSsh({ dataDirectory, privateKey }, () => Promise.reject(new Error('inside'))),
    /inside/,
  );
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), []);
});

test('keys that a killed process left behind are removed, and nothing else', async () => {
  const dataDirectory = join(directory, 'crashed');
  await clearSshLeftovers(dataDirectory);
  mkdirSync(join(dataDirectory, 'tmp', 'ssh-abc'), { recursive: true });
  mkdirSync(join(dataDirectory, 'tmp', 'upload'));
  writeFileSync(join(dataDirectory, 'tmp', 'ssh-abc', 'key'), 'secret');
  await clearSshLeftovers(dataDirectory);
  assert.deepEqual(readdirSync(join(dataDirectory, 'tmp')), ['upload']);
});

// `ssh -G` prints the settings that ssh would use, without connecting.
async function settingsFor(
  dataDirectory: string,
  host: string,
  keyExchange?: string,
): Promise<Map<string, string>> {
  const { privateKey } = generateKeyPair('x');
  const access = { dataDirectory, privateKey, ...(keyExchange && { keyExchange }) };
  const printed = await withSsh(access, async session =>
    execFileSync('ssh', ['-F', join(session.directory, 'config'), '-G', host], { encoding: 'utf8' }),
  );
  const pairs = printed.split('\n').map(line => line.split(/ (.*)/s).slice(0, 2) as [string, string]);
  return new Map(pairs.reverse());
}

test("the administrator's aliases, ports and jump hosts apply, but never a weaker login or host key check", async () => {
  const dataDirectory = join(directory, 'a data 100% directory');
  mkdirSync(join(dataDirectory, 'ssh'), { recursive: true });
  writeFileSync(
    join(dataDirectory, 'ssh', 'config'),
    `ServerAliveInterval 7
     Host forge
       HostName forge.internal
       Port 2222
       ProxyJump bastion
     Host *
       StrictHostKeyChecking no
       PasswordAuthentication yes
       IdentityAgent SSH_AUTH_SOCK
       UserKnownHostsFile /dev/null`,
  );
  const settings = await settingsFor(dataDirectory, 'forge');
  assert.equal(settings.get('hostname'), 'forge.internal');
  assert.equal(settings.get('port'), '2222');
  assert.equal(settings.get('proxyjump'), 'bastion');
  assert.equal(settings.get('serveraliveinterval'), '7');
  assert.equal(settings.get('stricthostkeychecking'), 'accept-new');
  assert.equal(settings.get('passwordauthentication'), 'no');
  assert.equal(settings.get('identityagent'), 'none');
  assert.equal(settings.get('userknownhostsfile'), join(dataDirectory, 'ssh', 'known_hosts'));
  assert.equal(settings.get('connecttimeout'), '15');
  assert.equal((await settingsFor(dataDirectory, 'bastion')).get('stricthostkeychecking'), 'accept-new');
});

test('a call can prefer a key exchange that costs less, unless ssh/config names another', async () => {
  const dataDirectory = join(directory, 'key exchange');
  mkdirSync(join(dataDirectory, 'ssh'), { recursive: true });
  writeFileSync(join(dataDirectory, 'ssh', 'config'), 'Host strict\n  KexAlgorithms ecdh-sha2-nistp256');
  const orderOf = async (host: string) =>
    (await settingsFor(dataDirectory, host, '^curve25519-sha256')).get('kexalgorithms')?.split(',') ?? [];
  const order = await orderOf('forge');
  assert.equal(order[0], 'curve25519-sha256');
  assert.ok(order.length > 1);
  assert.deepEqual(await orderOf('strict'), ['ecdh-sha2-nistp256']);
});

const EXPLAINED: [output: string, message: RegExp][] = [
  [
    'git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.',
    /refused the project's key/,
  ],
  [
    'ssh: Could not resolve hostname nowhere.test: Name or service not known',
    /host name nowhere\.test cannot be resolved/,
  ],
  ['ssh: connect to host h port 22: Connection refused', /refuses connections on port 22/],
  ['ssh: connect to host h port 22: Connection timed out', /host forge did not answer within 15 s/],
  ['Connection timed out during banner exchange', /did not answer within 15 s/],
  ['ssh: connect to host h port 22: No route to host', /cannot be reached/],
  ["fatal: '/x.git' does not appear to be a git repository", /has no such repository/],
  ['ERROR: Repository not found.\nfatal: Could not read from remote repository.', /has no such repository/],
  [
    'Host key for [h]:22 has changed and you have requested strict checking.',
    /\[h\]:22 has changed.*ssh\/known_hosts/,
  ],
  [
    '/d/config: line 3: Bad configuration option: colour',
    /ssh\/config .* mistake \(Bad configuration option: colour\)/,
  ],
  ['fatal: write error: No space left on device', /disk of this server is full/],
  ['kex_exchange_identification: Connection closed by remote host', /closed the connection/],
  [
    'Unable to negotiate with h port 22: no matching host key type found. Their offer: x',
    /no host key type in common/,
  ],
  ['fatal: protocol error: bad line length character: Hell', /not git/],
  ['fatal: the remote end hung up unexpectedly\nfatal: early EOF', /was interrupted/],
  [
    'error: object 1234: hasDotgit: contains .git\nfatal: fsck error in packed object',
    /damaged or dangerous/,
  ],
  ['warning: something\nfatal: a new kind of trouble', /^git failed: fatal: a new kind of trouble$/],
  ['', /gave no reason/],
];

test('errors of ssh and git are explained in plain words', () => {
  for (const [output, reported] of EXPLAINED)
    assert.match(explain(output, { host: 'forge' }), reported, output);
});

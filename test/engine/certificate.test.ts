// The server's own certificates, checked with the real openssl and a real TLS client.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect, createServer, getCACertificates, setDefaultCACertificates } from 'node:tls';
import { ensureCertificate, loadCertificate, trustAuthorities } from '../../src/engine/certificate.ts';

const dayMs = 86_400_000;
let root = '';
before(() => {
  root = mkdtempSync(join(tmpdir(), 'assay-certificate-'));
});
after(() => rmSync(root, { recursive: true }));

const freshDirectory = () => join(mkdtempSync(join(root, 'd-')), 'tls');
const openssl = (...args: string[]) =>
  execFileSync('openssl', args, { encoding: 'utf8', timeout: 10_000, stdio: 'pipe' });
const inDays = (days: number) => new Date(Date.now() + days * dayMs);
const strictlyVerified = (directory: string, ...more: string[]) =>
  openssl(
    ...['verify', '-x509_strict', '-purpose', 'sslserver', ...more],
    ...['-CAfile', join(directory, 'ca.pem'), join(directory, 'server.pem')],
  );

test('a first certificate passes strict verification for every requested host', async () => {
  const directory = freshDirectory();
  const made = await ensureCertificate({
    directory,
    hosts: ['CI.example.org', '192.0.2.7', '[2001:db8::7]'],
  });
  for (const name of ['ci.example.org', 'localhost']) strictlyVerified(directory, '-verify_hostname', name);
  for (const address of ['192.0.2.7', '2001:db8::7', '127.0.0.1', '::1']) {
    strictlyVerified(directory, '-verify_ip', address);
  }
  assert.throws(() => strictlyVerified(directory, '-verify_hostname', 'other.example.org'));
  const days = (new X509Certificate(made.cert).validToDate.getTime() - Date.now()) / dayMs;
  assert.ok(days > 390 && days <= 397, `${days} days`);
});

test('authority and server have the extensions that strict clients require', async () => {
  const directory = freshDirectory();
  await ensureCertificate({ directory, hosts: ['ci.example.org'] });
  const text = (file: string) =>
    openssl('x509', '-in', join(directory, file), '-noout', '-text').replace(/\s+/g, ' ');
  const authority = text('ca.pem');
  assert.match(authority, /Basic Constraints: critical CA:TRUE, pathlen:0/);
  assert.match(authority, /Key Usage: critical Certificate Sign, CRL Sign/);
  assert.match(authority, /Subject Key Identifier/);
  assert.match(authority, /Subject: O = Assay, CN = Assay CA [0-9a-f]{8}/);
  const server = text('server.pem');
  assert.match(server, /Basic Constraints: critical CA:FALSE/);
  assert.match(server, /Key Usage: critical Digital Signature/);
  assert.match(server, /Extended Key Usage: TLS Web Server Authentication/);
  assert.match(server, /Authority Key Identifier/);
  assert.match(server, /ASN1 OID: prime256v1/);
});

test('a client that trusts only the authority completes a handshake by name and by address', async () => {
  const directory = freshDirectory();
  const made = await ensureCertificate({ directory, hosts: [] });
  const server = createServer({ cert: made.cert, key: made.key }, socket =>
    socket.on('error', () => socket.destroy()).end(),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  for (const servername of ['localhost', '']) {
    const socket = connect({
      port,
      host: '127.0.0.1',
      servername,
      ca: readFileSync(join(directory, 'ca.pem')),
    });
    await once(socket, 'secureConnect');
    assert.equal(socket.authorized, true);
    socket.resume().end();
    await once(socket, 'close');
  }
  server.close();
});

test('keys are readable by the owner only, and no temporary file is left', async () => {
  const directory = freshDirectory();
  await ensureCertificate({ directory, hosts: [] });
  const modes = readdirSync(directory).map(name => [name, statSync(join(directory, name)).mode & 0o777]);
  assert.deepEqual(Object.fromEntries(modes), {
    'ca.key': 0o600,
    'ca.pem': 0o644,
    'server.key': 0o600,
    'server.pem': 0o644,
  });
  assert.equal(statSync(directory).mode & 0o777, 0o700);
});

test('a valid certificate is reused unchanged', async () => {
  const directory = freshDirectory();
  const first = await ensureCertificate({ directory, hosts: ['2001:db8::7', 'ci.example.org'] });
  const second = await ensureCertificate({ directory, hosts: ['2001:DB8:0::7', 'CI.example.org'] });
  assert.equal(second.cert, first.cert);
  assert.equal(second.key, first.key);
});

test('a new host, or less than thirty days, renews the server certificate and keeps the authority', async () => {
  const directory = freshDirectory();
  const first = await ensureCertificate({ directory, hosts: ['a.example.org'] });
  const authority = readFileSync(join(directory, 'ca.pem'), 'utf8');
  const other = await ensureCertificate({ directory, hosts: ['b.example.org'] });
  assert.notEqual(other.cert, first.cert);
  strictlyVerified(directory, '-verify_hostname', 'b.example.org');

  const early = await ensureCertificate({ directory, hosts: ['b.example.org'], now: inDays(366) });
  assert.equal(early.cert, other.cert);
  const due = await ensureCertificate({ directory, hosts: ['b.example.org'], now: inDays(367) });
  assert.notEqual(due.cert, other.cert);
  assert.ok(due.endsAt > inDays(763));
  assert.equal(readFileSync(join(directory, 'ca.pem'), 'utf8'), authority);
  strictlyVerified(directory, '-attime', String(Math.floor(inDays(368).getTime() / 1000)));
});

test('an authority that would end before its server certificate is renewed with its old key and name', async () => {
  const directory = freshDirectory();
  await ensureCertificate({ directory, hosts: [] });
  const oldAuthority = join(directory, 'old.pem');
  writeFileSync(oldAuthority, readFileSync(join(directory, 'ca.pem')));
  const late = inDays(3400);
  await ensureCertificate({ directory, hosts: [], now: late });
  const [before, now] = [oldAuthority, join(directory, 'ca.pem')].map(
    path => new X509Certificate(readFileSync(path)),
  );
  assert.equal(now?.subject, before?.subject);
  assert.ok(now && now.validToDate > inDays(3400 + 3649));
  const atTime = String(Math.floor(late.getTime() / 1000));
  strictlyVerified(directory, '-attime', atTime);
  const server = join(directory, 'server.pem');
  openssl('verify', '-x509_strict', '-attime', atTime, '-CAfile', oldAuthority, server);
});

test('concurrent requests create it once, and all get the same', async () => {
  const directory = freshDirectory();
  const made = await Promise.all(
    Array.from({ length: 4 }, () => ensureCertificate({ directory, hosts: [] })),
  );
  assert.equal(new Set(made.map(({ cert, key }) => cert + key)).size, 1);
});

test('missing, damaged or mismatched files are created again', async () => {
  const directory = freshDirectory();
  const path = (name: string) => join(directory, name);
  let { cert } = await ensureCertificate({ directory, hosts: [] });
  const stranger = freshDirectory();
  await ensureCertificate({ directory: stranger, hosts: [] });
  const harms: (() => void)[] = [
    () => unlinkSync(path('server.key')),
    () => writeFileSync(path('server.pem'), 'not a certificate'),
    () => writeFileSync(path('server.key'), readFileSync(join(stranger, 'server.key'))),
    () => writeFileSync(path('ca.pem'), readFileSync(path('ca.pem'), 'utf8').slice(0, 200)),
    () => unlinkSync(path('ca.key')),
  ];
  for (const harm of harms) {
    harm();
    const made = await ensureCertificate({ directory, hosts: [] });
    assert.notEqual(made.cert, cert, harm.toString());
    strictlyVerified(directory);
    ({ cert } = await ensureCertificate({ directory, hosts: [] }));
    assert.equal(cert, made.cert, harm.toString());
  }
});

test('a host that no certificate can name is refused', async () => {
  const directory = freshDirectory();
  await assert.rejects(
    ensureCertificate({ directory, hosts: ['not a host'] }),
    /"not a host" is not a host name/,
  );
});

test('authorities of a file are trusted in addition to the known ones; a file without any is refused', async t => {
  const directory = freshDirectory();
  await ensureCertificate({ directory, hosts: [] });
  const trusted = getCACertificates('default');
  t.after(() => setDefaultCACertificates(trusted));
  const path = join(directory, 'ca.pem');
  const authority = readFileSync(path, 'utf8');
  writeFileSync(path, `# The authority of the company\n${authority}\n${trusted[0]}`);
  await trustAuthorities(path);
  const subjects = (list: readonly string[]) =>
    new Set(list.map(pem => new X509Certificate(pem).fingerprint256));
  assert.deepEqual(subjects(getCACertificates('default')), subjects([...trusted, authority]));

  await assert.rejects(
    trustAuthorities(join(directory, 'none.pem')),
    /^Error: CA_CERTS: .*none\.pem cannot be read/,
  );
  for (const text of [
    '',
    'words',
    authority.replace(/\n.{20}/, '\n'),
    readFileSync(join(directory, 'ca.key'), 'utf8'),
  ]) {
    writeFileSync(path, text);
    await assert.rejects(
      trustAuthorities(path),
      /^Error: CA_CERTS: .*does not contain certificates in PEM form/,
    );
  }
});

test("an administrator's own files are used if they are valid, and refused with the reason otherwise", async () => {
  const directory = freshDirectory();
  const path = (name: string) => join(directory, name);
  const { endsAt, cert: chain, authorityFingerprint } = await ensureCertificate({ directory, hosts: [] });
  const cert = path('server.pem');
  const key = path('server.key');
  assert.deepEqual(await loadCertificate(cert, key), {
    cert: readFileSync(cert, 'utf8'),
    key: readFileSync(key, 'utf8'),
    endsAt,
    authorityFingerprint: new X509Certificate(readFileSync(cert)).fingerprint256,
  });
  writeFileSync(path('chain.pem'), chain);
  assert.equal((await loadCertificate(path('chain.pem'), key)).authorityFingerprint, authorityFingerprint);
  const printed = openssl('x509', '-in', path('ca.pem'), '-noout', '-fingerprint', '-sha256');
  assert.equal(printed.trim(), `sha256 Fingerprint=${authorityFingerprint}`);
  await assert.rejects(loadCertificate(cert, path('ca.key')), /TLS_KEY: .*ca\.key does not belong to/);
  await assert.rejects(loadCertificate(key, key), /TLS_CERT: .*does not contain a certificate/);
  await assert.rejects(loadCertificate(cert, cert), /TLS_KEY: .*does not contain a private key/);
  await assert.rejects(
    loadCertificate(path('none.pem'), key),
    /TLS_CERT: .*none\.pem cannot be read \(ENOENT\)/,
  );
  await assert.rejects(loadCertificate(cert, key, inDays(400)), /TLS_CERT: .*expired on/);
  await assert.rejects(loadCertificate(cert, key, inDays(-2)), /TLS_CERT: .*not valid before/);
  openssl('pkey', '-in', key, '-aes256', '-passout', 'pass:secret-word', '-out', path('locked.key'));
  await assert.rejects(loadCertificate(cert, path('locked.key')), /without a passphrase/);
});

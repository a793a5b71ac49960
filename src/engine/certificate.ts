// Creates and renews the certificate authority and the server certificate of the appliance, and checks PEM files that an
// administrator provides. src/app.ts decides when to renew.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  X509Certificate,
} from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { chmod, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { isIPv4, isIPv6 } from 'node:net';
import { dirname, join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { domainToASCII } from 'node:url';
import { syncDirectory } from '../fsync.ts';

type Certificate = {
  /** PEM: the server's certificate, then its chain. */
  cert: string;
  /** PEM, PKCS#8. */
  key: string;
  endsAt: Date;
  /** SHA-256 of the last certificate of the chain: what a client shows before it trusts the server. */
  authorityFingerprint: string;
};

type Pair = { certificate: X509Certificate; key: KeyObject };

const dayMs = 86_400_000;
const authorityLifetimeMs = 3650 * dayMs;
// Browsers refuse server certificates that are valid for more than 398 days.
const serverLifetimeMs = 397 * dayMs;
const renewBeforeMs = 30 * dayMs;
// A client whose clock is slightly behind still accepts a new certificate.
const clockSkewMs = 3_600_000;
const curve = { namedCurve: 'P-256' };
const ecdsa = { ...curve, name: 'ECDSA', hash: 'SHA-256' };
const alwaysCovered = ['localhost', '127.0.0.1', '::1'];

type CertificateOptions = { directory: string; hosts: string[]; now?: Date };

const lastCalls = new Map<string, Promise<unknown>>();

/** Serialized by directory: a reload may coincide with the daily check, and both write. */
export function ensureCertificate(options: CertificateOptions): Promise<Certificate> {
  const previous = lastCalls.get(options.directory) ?? Promise.resolve();
  const current = previous.catch(() => {}).then(() => ensure(options));
  lastCalls.set(options.directory, current);
  return current;
}

async function ensure({
  directory,
  now = new Date(),
  hosts: names,
}: CertificateOptions): Promise<Certificate> {
  const hosts = [...new Set([...names.map(plainHost), ...alwaysCovered])];
  mkdirSync(directory, { recursive: true, mode: 0o700 });

  const authority = readPair(directory, 'ca');
  const server = readPair(directory, 'server');
  const usable =
    authority !== undefined &&
    server !== undefined &&
    isCurrent(authority.certificate, now, 0) &&
    isCurrent(server.certificate, now, renewBeforeMs) &&
    server.certificate.verify(authority.certificate.publicKey) &&
    hosts.every(host => covers(server.certificate, host));
  if (usable) return present(server, authority);

  const signer =
    authority !== undefined && isCurrent(authority.certificate, now, serverLifetimeMs)
      ? authority
      : await issueAuthority(
          directory,
          authority?.key ?? readKey(readIfExists(join(directory, 'ca.key'))),
          now,
        );
  return present(await issueServer(directory, signer, hosts, now), signer);
}

/** Reads the administrator's files (TLS_CERT, TLS_KEY). Throws if a client would refuse them. */
export async function loadCertificate(
  certPath: string,
  keyPath: string,
  now = new Date(),
): Promise<Certificate> {
  const cert = await readSetting('TLS_CERT', certPath);
  const key = await readSetting('TLS_KEY', keyPath);
  const certificate = parse(
    'TLS_CERT',
    certPath,
    'a certificate in PEM form',
    () => new X509Certificate(cert),
  );
  const privateKey = parse('TLS_KEY', keyPath, 'a private key in PEM form without a passphrase', () =>
    createPrivateKey(key),
  );
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new Error(
      `TLS_KEY: ${keyPath} does not belong to the first certificate in ${certPath} (the server's own comes first, then its chain)`,
    );
  }
  if (certificate.validFromDate > now) {
    throw new Error(`TLS_CERT: ${certPath} is not valid before ${certificate.validFromDate.toISOString()}`);
  }
  if (certificate.validToDate <= now) {
    throw new Error(
      `TLS_CERT: ${certPath} expired on ${certificate.validToDate.toISOString()}: replace it with a renewed one`,
    );
  }
  const chain = cert.match(PEM_CERTIFICATE) ?? [];
  const authority = parse(
    'TLS_CERT',
    certPath,
    'a valid chain',
    () => new X509Certificate(chain.at(-1) ?? cert),
  );
  return {
    cert,
    key,
    endsAt: certificate.validToDate,
    authorityFingerprint: authority.fingerprint256,
  };
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Trusts the authorities in a PEM file (CA_CERTS) for all outgoing HTTPS, in addition to the public ones. */
export async function trustAuthorities(path: string): Promise<void> {
  const pem = await readSetting('CA_CERTS', path);
  const certificates = parse('CA_CERTS', path, 'certificates in PEM form', () => {
    const found = [...pem.matchAll(PEM_CERTIFICATE)].map(([one]) => new X509Certificate(one).toString());
    if (found.length === 0) throw new Error('none found');
    return found;
  });
  setDefaultCACertificates([...getCACertificates('default'), ...certificates]);
}

function present(server: Pair, authority: Pair): Certificate {
  return {
    cert: `${server.certificate}${authority.certificate}`,
    key: pemOf(server.key),
    endsAt: server.certificate.validToDate,
    authorityFingerprint: authority.certificate.fingerprint256,
  };
}

const createKey = () => generateKeyPairSync('ec', curve).privateKey;
const pemOf = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' }).toString();

// A new authority with the old key keeps its name, so that clients that trust the old one keep working.
async function issueAuthority(directory: string, oldKey: KeyObject | undefined, now: Date): Promise<Pair> {
  const key = oldKey ?? createKey();
  const fingerprint = createHash('sha256').update(
    createPublicKey(key).export({ type: 'spki', format: 'der' }),
  );
  const name = `O=Assay, CN=Assay CA ${fingerprint.digest('hex').slice(0, 8)}`;
  const dates = validFor(authorityLifetimeMs, now);
  const certificate = await issue({ subject: name, key, issuer: name, issuerKey: key, ...dates });
  return writePair(directory, 'ca', { certificate, key });
}

async function issueServer(directory: string, authority: Pair, hosts: string[], now: Date): Promise<Pair> {
  const key = createKey();
  const certificate = await issue({
    subject: 'O=Assay, CN=Assay server',
    key,
    issuer: authority.certificate.subject.split('\n').join(', '),
    issuerKey: authority.key,
    hosts,
    ...validFor(serverLifetimeMs, now),
  });
  return writePair(directory, 'server', { certificate, key });
}

function validFor(lifetimeMs: number, now: Date): { notBefore: Date; notAfter: Date } {
  const start = now.getTime() - clockSkewMs;
  return { notBefore: new Date(start), notAfter: new Date(start + lifetimeMs) };
}

async function issue(options: {
  subject: string;
  key: KeyObject;
  issuer: string;
  issuerKey: KeyObject;
  notBefore: Date;
  notAfter: Date;
  /** Undefined for an authority. */
  hosts?: string[];
}): Promise<X509Certificate> {
  const { hosts, subject, issuer, notBefore, notAfter } = options;
  const x509 = await loadX509();
  const [publicKey, issuerPublicKey] = [options.key, options.issuerKey].map(key =>
    createPublicKey(key).toCryptoKey(ecdsa, true, ['verify']),
  ) as [CryptoKey, CryptoKey];
  const extensions =
    hosts === undefined
      ? [
          new x509.BasicConstraintsExtension(true, 0, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        ]
      : [
          new x509.BasicConstraintsExtension(false, undefined, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
          new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
          new x509.SubjectAlternativeNameExtension(
            hosts.map(value => ({ type: isAddress(value) ? ('ip' as const) : ('dns' as const), value })),
          ),
        ];
  const certificate = await x509.X509CertificateGenerator.create({
    // A leading 01 keeps the number positive and free of leading zeros, which strict clients require.
    serialNumber: `01${randomBytes(15).toString('hex')}`,
    subject,
    issuer,
    notBefore,
    notAfter,
    publicKey,
    signingKey: options.issuerKey.toCryptoKey(ecdsa, true, ['sign']),
    signingAlgorithm: ecdsa,
    extensions: [
      ...extensions,
      await x509.SubjectKeyIdentifierExtension.create(publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(issuerPublicKey),
    ],
  });
  return new X509Certificate(certificate.toString('pem'));
}

// Loaded only to issue a certificate: most starts find a valid one, and loading the package takes longer than the rest of
// the start. Its injection library requires a metadata store, which this code does not use.
async function loadX509(): Promise<typeof import('@peculiar/x509')> {
  if (!('getMetadata' in Reflect)) {
    Object.assign(Reflect, { getMetadata() {}, getOwnMetadata() {}, defineMetadata() {} });
  }
  return import('@peculiar/x509');
}

/** Undefined if the key is unreadable or on another curve. */
function readKey(keyPem: string | undefined): KeyObject | undefined {
  try {
    const key = createPrivateKey(keyPem ?? '');
    return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined if a file is missing or not PEM, or if the key does not match the certificate. */
function readPair(directory: string, name: string): Pair | undefined {
  const certPem = readIfExists(join(directory, `${name}.pem`));
  const key = readKey(readIfExists(join(directory, `${name}.key`)));
  if (certPem === undefined || key === undefined) return undefined;
  try {
    const certificate = new X509Certificate(certPem);
    return certificate.checkPrivateKey(key) ? { certificate, key } : undefined;
  } catch {
    return undefined;
  }
}

// A crash between the two writes leaves a pair that does not match. The next start issues a new one.
async function writePair(directory: string, name: string, pair: Pair): Promise<Pair> {
  await writeAtomically(join(directory, `${name}.key`), pemOf(pair.key), 0o600);
  await writeAtomically(join(directory, `${name}.pem`), pair.certificate.toString(), 0o644);
  return pair;
}

async function writeAtomically(path: string, text: string, mode: number): Promise<void> {
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  await writeFile(temporary, text, { flag: 'wx', mode, flush: true });
  // The umask of the process may have removed permissions that readers of the certificate need.
  await chmod(temporary, mode);
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

/** Like Node's isIP. That compiles its regular expression for IPv6 even for a host name, which takes 10 ms of a start. */
const isAddress = (host: string) => (host.includes(':') ? isIPv6(host) : isIPv4(host));

function isCurrent(certificate: X509Certificate, now: Date, marginMs: number): boolean {
  return certificate.validFromDate <= now && certificate.validToDate.getTime() > now.getTime() + marginMs;
}

/** `host` is one that `plainHost` returns, so a colon is enough to recognize an IPv6 address. */
function covers(certificate: X509Certificate, host: string): boolean {
  const name =
    host.includes(':') || isIPv4(host)
      ? certificate.checkIP(host)
      : certificate.checkHost(host, { subject: 'never' });
  return name !== undefined;
}

function plainHost(host: string): string {
  const bare = host.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '');
  const name = isAddress(bare) ? bare : domainToASCII(bare);
  if (name === '')
    throw new Error(`"${host}" is not a host name or an address that a certificate can be issued for`);
  return name;
}

function readIfExists(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function readSetting(setting: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new Error(`${setting}: ${path} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

function parse<T>(setting: string, path: string, content: string, read: () => T): T {
  try {
    return read();
  } catch {
    throw new Error(`${setting}: ${path} does not contain ${content}`);
  }
}

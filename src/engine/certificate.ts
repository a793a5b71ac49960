// Makes and renews the appliance's own certificate authority and server certificate, and checks an administrator's own PEM
// files. The server decides when to renew and listens with them.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  X509Certificate,
} from 'node:crypto';
import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { dirname, join } from 'node:path';
import { domainToASCII } from 'node:url';
import { syncDirectory } from '../fsync.ts';

export type Certificate = {
  /** PEM: the server's certificate, then what leads to its authority. */
  cert: string;
  /** PEM, PKCS#8. */
  key: string;
  endsAt: Date;
};

type Pair = { certificate: X509Certificate; key: KeyObject };

const dayMs = 86_400_000;
const authorityLifeMs = 3650 * dayMs;
// Browsers and Apple's platforms refuse server certificates that live longer than 398 days.
const serverLifeMs = 397 * dayMs;
const renewBeforeMs = 30 * dayMs;
// A client whose clock is a little behind still accepts a new certificate.
const clockSkewMs = 3_600_000;
const curve = { namedCurve: 'P-256' };
const ecdsa = { ...curve, name: 'ECDSA', hash: 'SHA-256' };
const alwaysCovered = ['localhost', '127.0.0.1', '::1'];

type Wanted = { directory: string; hosts: string[]; now?: Date };

const lastCalls = new Map<string, Promise<unknown>>();

/** One call at a time for each directory: a reload may coincide with the daily check, and both would write. */
export function ensureCertificate(wanted: Wanted): Promise<Certificate> {
  const before = lastCalls.get(wanted.directory) ?? Promise.resolve();
  const mine = before.catch(() => {}).then(() => ensure(wanted));
  lastCalls.set(wanted.directory, mine);
  return mine;
}

async function ensure(wanted: Wanted): Promise<Certificate> {
  const { directory } = wanted;
  const now = wanted.now ?? new Date();
  const hosts = [...new Set([...wanted.hosts.map(plainHost), ...alwaysCovered])];
  await mkdir(directory, { recursive: true, mode: 0o700 });

  const authority = await readPair(directory, 'ca');
  const server = await readPair(directory, 'server');
  const usable =
    authority !== undefined &&
    server !== undefined &&
    isCurrent(authority.certificate, now, 0) &&
    isCurrent(server.certificate, now, renewBeforeMs) &&
    server.certificate.verify(authority.certificate.publicKey) &&
    hosts.every(host => covers(server.certificate, host));
  if (usable) return present(server, authority);

  const signer =
    authority !== undefined && isCurrent(authority.certificate, now, serverLifeMs)
      ? authority
      : await issueAuthority(
          directory,
          authority?.key ?? readKey(await readIfThere(join(directory, 'ca.key'))),
          now,
        );
  return present(await issueServer(directory, signer, hosts, now), signer);
}

/** The administrator's own files (TLS_CERT, TLS_KEY); refuses what a client would refuse later. */
export async function loadCertificate(
  certPath: string,
  keyPath: string,
  now = new Date(),
): Promise<Certificate> {
  const cert = await readGiven('TLS_CERT', certPath);
  const key = await readGiven('TLS_KEY', keyPath);
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
      `TLS_CERT: ${certPath} ended on ${certificate.validToDate.toISOString()}: put a renewed one there`,
    );
  }
  return { cert, key, endsAt: certificate.validToDate };
}

function present(server: Pair, authority: Pair): Certificate {
  return {
    cert: `${server.certificate}${authority.certificate}`,
    key: pemOf(server.key),
    endsAt: server.certificate.validToDate,
  };
}

const createKey = () => generateKeyPairSync('ec', curve).privateKey;
const pemOf = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' }).toString();

// A new authority with the old key has the old name too, so clients that trust its predecessor keep working.
async function issueAuthority(directory: string, oldKey: KeyObject | undefined, now: Date): Promise<Pair> {
  const key = oldKey ?? createKey();
  const fingerprint = createHash('sha256').update(
    createPublicKey(key).export({ type: 'spki', format: 'der' }),
  );
  const name = `O=Assay, CN=Assay CA ${fingerprint.digest('hex').slice(0, 8)}`;
  const dates = validFor(authorityLifeMs, now);
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
    ...validFor(serverLifeMs, now),
  });
  return writePair(directory, 'server', { certificate, key });
}

function validFor(lifeMs: number, now: Date): { notBefore: Date; notAfter: Date } {
  const begin = now.getTime() - clockSkewMs;
  return { notBefore: new Date(begin), notAfter: new Date(begin + lifeMs) };
}

async function issue(wanted: {
  subject: string;
  key: KeyObject;
  issuer: string;
  issuerKey: KeyObject;
  notBefore: Date;
  notAfter: Date;
  /** Undefined for an authority. */
  hosts?: string[];
}): Promise<X509Certificate> {
  const { hosts, subject, issuer, notBefore, notAfter } = wanted;
  const x509 = await loadX509();
  const [publicKey, issuerPublicKey] = [wanted.key, wanted.issuerKey].map(key =>
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
            hosts.map(value => ({ type: isIP(value) ? ('ip' as const) : ('dns' as const), value })),
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
    signingKey: wanted.issuerKey.toCryptoKey(ecdsa, true, ['sign']),
    signingAlgorithm: ecdsa,
    extensions: [
      ...extensions,
      await x509.SubjectKeyIdentifierExtension.create(publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(issuerPublicKey),
    ],
  });
  return new X509Certificate(certificate.toString('pem'));
}

// Loaded only when something is to be issued: most starts find a valid certificate, and the package
// takes longer to load than all the rest of them. Its injection library insists on a metadata store,
// which nothing that is used here ever writes to.
async function loadX509(): Promise<typeof import('@peculiar/x509')> {
  if (!('getMetadata' in Reflect)) {
    Object.assign(Reflect, { getMetadata() {}, getOwnMetadata() {}, defineMetadata() {} });
  }
  return import('@peculiar/x509');
}

/** Undefined for a key that cannot be read or is of another kind. */
function readKey(keyPem: string | undefined): KeyObject | undefined {
  try {
    const key = createPrivateKey(keyPem ?? '');
    return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined when a file is missing, unreadable as PEM, or the two do not belong together. */
async function readPair(directory: string, name: string): Promise<Pair | undefined> {
  const certPem = await readIfThere(join(directory, `${name}.pem`));
  const key = readKey(await readIfThere(join(directory, `${name}.key`)));
  if (certPem === undefined || key === undefined) return undefined;
  try {
    const certificate = new X509Certificate(certPem);
    return certificate.checkPrivateKey(key) ? { certificate, key } : undefined;
  } catch {
    return undefined;
  }
}

// The key goes first: a crash between the two leaves a pair that does not match, and it is made again.
async function writePair(directory: string, name: string, pair: Pair): Promise<Pair> {
  await writeWhole(join(directory, `${name}.key`), pemOf(pair.key), 0o600);
  await writeWhole(join(directory, `${name}.pem`), pair.certificate.toString(), 0o644);
  return pair;
}

async function writeWhole(path: string, text: string, mode: number): Promise<void> {
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  await writeFile(temporary, text, { flag: 'wx', mode, flush: true });
  // The process's umask may have removed bits that other readers of a certificate need.
  await chmod(temporary, mode);
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

function isCurrent(certificate: X509Certificate, now: Date, marginMs: number): boolean {
  return certificate.validFromDate <= now && certificate.validToDate.getTime() > now.getTime() + marginMs;
}

function covers(certificate: X509Certificate, host: string): boolean {
  const name = isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host, { subject: 'never' });
  return name !== undefined;
}

function plainHost(host: string): string {
  const bare = host.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '');
  const name = isIP(bare) ? bare : domainToASCII(bare);
  if (name === '')
    throw new Error(`"${host}" is not a host name or an address that a certificate can be made for`);
  return name;
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function readGiven(setting: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new Error(`${setting}: ${path} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

function parse<T>(setting: string, path: string, what: string, read: () => T): T {
  try {
    return read();
  } catch {
    throw new Error(`${setting}: ${path} does not hold ${what}`);
  }
}
